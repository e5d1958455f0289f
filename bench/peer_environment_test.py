#!/usr/bin/env python3
"""Tests of bench/peer_environment.py."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import peer_environment  # noqa: E402

MODERN = peer_environment.AVX512 | {"avx2", "fma"}


class Kernels(unittest.TestCase):
    def test_a_build_that_does_not_know_the_processor_is_told_what_it_can(self):
        self.assertEqual(peer_environment.kernels_of("Core: Prescott\n", MODERN), "SkylakeX")
        self.assertEqual(peer_environment.kernels_of("Core: Prescott\n", MODERN - {"avx512dq"}), "Haswell")
        self.assertIsNone(peer_environment.kernels_of("Core: Prescott\n", {"sse2"}))

    def test_a_choice_of_its_own_stays(self):
        self.assertIsNone(peer_environment.kernels_of("Core: Zen\n", MODERN))
        self.assertIsNone(peer_environment.kernels_of("", MODERN))  # no OpenBLAS


class Environment(unittest.TestCase):
    def test_a_preset_is_left_out(self):
        os.environ["OPENBLAS_CORETYPE"] = "Prescott"
        self.addCleanup(os.environ.pop, "OPENBLAS_CORETYPE")
        self.assertNotIn("OPENBLAS_CORETYPE", peer_environment.plain())
        self.assertNotEqual(peer_environment.peer_environment(sys.executable).get("OPENBLAS_CORETYPE"), "Prescott")


if __name__ == "__main__":
    unittest.main()
