#!/usr/bin/env python3
"""How fast .npz archives and tar shards are read, as a share of what the disk gives: read_rate.py MSLUA FOLDER [ROUNDS]

FOLDER is on the disk to measure. Writes an archive of 1.2 GB of pictures [224, 224, 3] and the same as tar shards of
PPM files, and reads them, not in the page cache: with read() of 1 MiB each, and as a data set in batches of 32 with 1
and 2 workers. They take turns; medians in MB/s.
"""
import io
import os
import statistics
import subprocess
import sys
import tarfile
import time

import numpy as np

MSLUA = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES, SHARDS, SIDE = 8192, 8, 224


def make(folder):
    draw = np.random.default_rng(1)
    pixels = draw.integers(0, 256, (SAMPLES, SIDE, SIDE, 3), dtype=np.uint8)
    np.savez(folder + "/x.npz", x=pixels)
    head = b"P6 %d %d 255\n" % (SIDE, SIDE)
    for shard in range(SHARDS):
        with tarfile.open("%s/x-%d.tar" % (folder, shard), "w") as archive:
            for i in range(shard, SAMPLES, SHARDS):
                for name, data in (("%d.ppm" % i, head + pixels[i].tobytes()), ("%d.cls" % i, b"1")):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    os.sync()


def forget(paths):
    """Takes the files out of the page cache."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def disk(paths):
    begun, count = time.monotonic(), 0
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        while part := os.read(file, 1 << 20):
            count += len(part)
        os.close(file)
    return count / (time.monotonic() - begun) / 1e6


def ours(kind, path, workers):
    """MB/s of reading alone, and with opening."""
    done = subprocess.run([MSLUA, "run", HERE + "/read_rate.lua", "--", kind, path, str(workers)],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    count, opening, reading = map(float, done.stdout.split())
    return count / reading / 1e6, count / (opening + reading) / 1e6


def main():
    folder, rounds = os.path.abspath(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 3
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(folder + "/x-%d.tar" % (SHARDS - 1)):
        make(folder)
    shards = ["%s/x-%d.tar" % (folder, i) for i in range(SHARDS)]
    print("| format | disk, MB/s | 1 worker | 2 workers | with opening | share of the disk |\n"
          "| --- | --- | --- | --- | --- | --- |")
    for kind, paths, path in (("npz", [folder + "/x.npz"], folder + "/x.npz"), ("tar", shards, folder)):
        rates = {"disk": [], 1: [], 2: []}
        for _ in range(rounds):
            for what, found in rates.items():
                forget(paths)
                found.append(disk(paths) if what == "disk" else ours(kind, path, what))
        d = statistics.median(rates["disk"])
        one, two = (statistics.median(rate for rate, _ in rates[k]) for k in (1, 2))
        whole = statistics.median(rate for _, rate in rates[2])
        print("| %s | %.0f | %.0f | %.0f | %.0f | %.0f %% |" % (kind, d, one, two, whole, 100 * max(one, two) / d),
              flush=True)


main()
