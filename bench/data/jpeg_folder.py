#!/usr/bin/env python3
"""Images per second of a folder of JPEGs, beside torchvision's DataLoader: jpeg_folder.py MSLUA [IMAGES] [ROUNDS]

Makes IMAGES pictures of 500 pixels (default 2000), and reads them with RandomResizedCrop(224), a flip and Normalize in
batches of 32 with 1, 2 and 4 workers. The two take turns; medians of ROUNDS (default 3) are printed with their ratio,
and the processor time of an image, which other work on the machine changes less. Then the folder of pictures of 224
pixels through `cache`, beside the same pictures in one array. Runs with Debian's python3-torchvision.
"""
import os
import resource
import statistics
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image

MSLUA = os.path.abspath(sys.argv[1])
IMAGES = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
LUA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jpeg_folder.lua")
TORCH = """
import sys, time, torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms as T
torch.set_num_threads(1)
to = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(),
                T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
data = datasets.ImageFolder(sys.argv[1], to)
loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=int(sys.argv[2]), persistent_workers=True)
for _ in range(int(sys.argv[3])):
    begun, seen = time.time(), 0
    for images, labels in loader:
        seen += len(labels)
    print("%.1f" % (seen / (time.time() - begun)))
"""


def make(folder):
    """Pictures with edges and noise, so that a JPEG is as large as a photograph's."""
    draw = np.random.default_rng(1)
    small = np.empty((IMAGES, 224, 224, 3), dtype=np.uint8)
    for i in range(IMAGES):
        coarse = draw.integers(0, 256, (25, 25, 3), dtype=np.uint8)
        pixels = np.asarray(Image.fromarray(coarse).resize((500, 500), Image.BILINEAR), dtype=np.int16)
        pixels = (pixels + draw.integers(-12, 13, pixels.shape)).clip(0, 255).astype(np.uint8)
        path = "%s/jpegs/%d/%d.jpg" % (folder, i % 10, i)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Image.fromarray(pixels).save(path, quality=90)
        small[i] = np.asarray(Image.fromarray(pixels).resize((224, 224), Image.BILINEAR))
    np.save(folder + "/x.npy", small)


def processor_seconds():
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def run(*words):
    """Images per second of each epoch, and the processor seconds of the process."""
    before = processor_seconds()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit("%s\n%s" % (" ".join(words[:3]), done.stderr[-2000:]))
    return [float(line) for line in done.stdout.split()], processor_seconds() - before


def ours(kind, path, workers, epochs):
    return run(MSLUA, "run", LUA, "--", kind, path, str(workers), str(epochs))


def torchvision(path, workers, epochs):
    return run(sys.executable, "-c", TORCH, path, str(workers), str(epochs))


def row(read, path, workers):
    """Medians of the second epoch's images per second, and of the milliseconds of processor time of an image."""
    rates, times = [], []
    for _ in range(ROUNDS):
        found, two = read(path, workers, 2)
        rates.append(found[1])
        times.append((two - read(path, workers, 0)[1]) / (2 * IMAGES) * 1e3)
        yield statistics.median(rates), statistics.median(times)


def main():
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        jpegs = folder + "/jpegs"
        print("| workers | mslua, images/s | torchvision, images/s | ratio | mslua, CPU ms an image | torchvision | "
              "ratio |\n| --- | --- | --- | --- | --- | --- | --- |")
        first = None
        for workers in (1, 2, 4):
            pairs = list(zip(row(lambda *a: ours("crop", *a), jpegs, workers), row(torchvision, jpegs, workers)))
            (a, ms), (b, theirs) = pairs[-1]
            first = first or a
            print("| %d | %.0f | %.0f | %.2f | %.2f | %.2f | %.2f |" % (workers, a, b, a / b, ms, theirs, theirs / ms),
                  flush=True)
            if workers == 2:
                scaling = a / first
        print("\n1 to 2 workers: %.2fx" % scaling)
        cached = [ours("cache", jpegs, 1, 3) for _ in range(ROUNDS)]
        arrays = [ours("arrays", folder + "/x.npy", 1, 3) for _ in range(ROUNDS)]
        print("cache, 1 worker: first epoch %.0f images/s, second and third %.0f; arrays %.0f" % (
            statistics.median(rates[0] for rates, _ in cached),
            statistics.median(rate for rates, _ in cached for rate in rates[1:]),
            statistics.median(rate for rates, _ in arrays for rate in rates[1:])))


main()
