"""The environment in which a peer computes as fast as it can on this machine."""
import functools
import os
import subprocess

AVX512 = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}


def plain():
    """This process's environment without what is set for OpenBLAS: a preset kernel would slow PyTorch down."""
    return {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}


def kernels_of(message, flags):
    """The kernels that OpenBLAS should take, from what it says of itself (OPENBLAS_VERBOSE=2); None: its own choice.

    A build that is older than the processor takes those of a Pentium 4 (Prescott), which are up to five times slower.
    """
    if "Core: Prescott" not in message:
        return None
    if AVX512 <= flags:
        return "SkylakeX"
    return "Haswell" if {"avx2", "fma"} <= flags else None


@functools.lru_cache(maxsize=None)
def blas_kernels(*python):
    """What kernels_of says of the PyTorch that this command runs."""
    found = subprocess.run([*python, "-c", "import torch"], env=dict(plain(), OPENBLAS_VERBOSE="2"),
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True)
    with open("/proc/cpuinfo") as f:
        flags = next((line for line in f if line.startswith("flags")), "")
    return kernels_of(found.stderr, set(flags.split()))


def peer_environment(*python):
    kernels = blas_kernels(*python)
    return dict(plain(), OPENBLAS_CORETYPE=kernels) if kernels else plain()
