#!/usr/bin/env python3
"""How long a step of char_gpt waits for samples that a file of Lua makes: lua_map.py MSLUA TEXT_FOLDER [ROUNDS]

Trains char_gpt's network with a map that takes 100 us for each sample, on 1 and 2 workers, and without the map, taking
turns; prints the medians of a step's time and of the share that it waits for data.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def train(mslua, data, microseconds, workers):
    """Milliseconds of the median step, and the median share that steps wait for data."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [mslua, "train", HERE + "/lua_map.lua", "data_path=" + data, "microseconds=%d" % microseconds,
             "workers=%d" % workers, "--out", folder, "--progress", "off"],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stderr)
        with open(folder + "/metrics.jsonl", encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
    steady = [r for r in records if r["step"] > 20 and "samples_per_s" in r]
    return (statistics.median(12e3 / r["samples_per_s"] for r in steady),
            statistics.median(r["data_wait"] for r in steady))


def main():
    mslua, data = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    cases = [("0 us", 0, 2), ("100 us, 1 worker", 100, 1), ("100 us, 2 workers", 100, 2)]
    found = {name: [] for name, *_ in cases}
    for _ in range(rounds):
        for name, microseconds, workers in cases:
            found[name].append(train(mslua, data, microseconds, workers))
    print("| map | step, ms | waits for data |\n| --- | --- | --- |")
    for name, values in found.items():
        step, wait = (statistics.median(v[i] for v in values) for i in (0, 1))
        print("| %s | %.1f | %.2f %% |" % (name, step, 100 * wait))


main()
