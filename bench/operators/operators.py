#!/usr/bin/env python3
"""Operators called at once, most with their gradients, beside PyTorch: operators.py MSLUA [ROUNDS [SECONDS]]

One thread; the least processor time of a call in each round, and the median over the rounds, in which mslua and PyTorch
take turns. Prints a table in microseconds; `ratio` is PyTorch's time over mslua's. operators.lua has the same cases.
"""
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from peer_environment import peer_environment  # noqa: E402


def indices(torch, rows, columns, below):
    return (torch.arange(1, rows + 1)[:, None] * 7919 + torch.arange(1, columns + 1)[None] * 104729) % below


def cases(torch):
    """(shapes of what gradients are asked for, the operator) of each row."""
    F = torch.nn.functional
    row, column = indices(torch, 1024, 256, 1024), indices(torch, 256, 1024, 1024)

    def group_norm(shape, groups):
        return [shape, shape[1:2], shape[1:2]], lambda x, scale, bias: F.group_norm(x, groups, scale, bias)

    square = [[1024, 1024]]
    return [
        group_norm([16, 64, 32, 32], 8), group_norm([64, 48, 16, 16], 8), group_norm([16, 64, 32, 32], 64),
        ([[2048, 512], [512], [512]], lambda x, scale, bias: F.layer_norm(x, [512], scale, bias)),
        (square, lambda x: F.dropout(x, 0.1)),
        ([[8, 56, 56, 96]], lambda x: torch.roll(x, (3, 3), (1, 2))),
        (square, lambda x: torch.gather(x, 1, row)), (square, lambda x: torch.gather(x, 0, column)),
        (square, lambda x: torch.topk(x, 8)[0]), (square, lambda x: torch.topk(x, 256)[0]),
        (square, lambda x: torch.sort(x, stable=True)[0]),
        ([[4096, 64], [64, 1]], torch.matmul), ([[8192, 1024], [1024, 1]], torch.matmul),
        (square, lambda x: x**3), (square, lambda x: torch.cumsum(x, 1)),
        ([[16, 64, 32, 32]], lambda x: F.avg_pool2d(x, 2)), ([[8, 64, 28, 28]], lambda x: F.adaptive_max_pool2d(x, 1)),
        ([[64, 8192], [8192], [8192]], lambda x, scale, bias: F.layer_norm(x, [8192], scale, bias)),
        ([[16, 64, 32, 32]], lambda x: F.adaptive_avg_pool2d(x, 1)),
        ([[8, 32, 32, 32]], lambda x: F.interpolate(x, scale_factor=2)),
        ([[8, 32, 32, 32]], lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)),
    ]


def calls(torch):
    """Functions without gradients, ready to be called."""
    nn = torch.nn

    def of(f, dtype, *shapes):
        inputs = [(torch.randn(s) * 100).to(dtype) for s in shapes]
        return lambda: f(*inputs)

    def block(i, o):
        return [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]

    net = nn.Sequential(*block(3, 32), *block(32, 64), *block(64, 64), nn.Flatten(), nn.Linear(1024, 10)).eval()
    numbers = [i * 0.37 for i in range(1, 1000001)]
    square, f64, i32, f32 = [1024, 1024], torch.float64, torch.int32, torch.float32
    return [
        of(torch.matmul, f64, [256, 256], [256, 256]), of(torch.mul, f64, square, square),
        of(lambda x: x.sum(1), f64, square),
        of(lambda x, w: nn.functional.conv2d(x, w, padding=1), f64, [8, 64, 32, 32], [64, 64, 3, 3]),
        of(torch.add, i32, square, square),
        of(lambda x: x.amax(1), i32, square), of(lambda x: x.amax(1), f32, [100000, 3]),
        of(lambda x: x.to(f32), i32, square), of(lambda x: x.to(torch.float16), f32, square),
        of(lambda x: x.permute(0, 2, 1).contiguous(), f32, [16, 128, 784]),
        of(lambda x: x.t().contiguous(), f32, square),
        of(lambda x: nn.functional.leaky_relu(x, 0.01), f32, square),
        of(lambda x, y: torch.lerp(x, y, 0.3), f32, square, square), lambda: torch.zeros(1024, 1024),
        lambda: torch.tensor(numbers), of(net, f32, [32, 3, 32, 32]),
    ]


def measure(call, seconds):
    call()
    least, stop = float("inf"), time.process_time() + seconds
    while time.process_time() < stop:
        begun = time.process_time()
        call()
        least = min(least, time.process_time() - begun)
    print("%.0f" % (least * 1e6))


def peer(seconds):
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(1)
    for shapes, f in cases(torch):
        inputs = [torch.randn(s, requires_grad=True) for s in shapes]
        weight = torch.randn_like(f(*inputs))

        def both():
            for x in inputs:
                x.grad = None
            (f(*inputs) * weight).sum().backward()

        measure(both, seconds)
    with torch.no_grad():
        for call in calls(torch):
            measure(call, seconds)


def main():
    if sys.argv[1] == "--peer":
        return peer(float(sys.argv[2]))
    mslua, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    seconds = sys.argv[3] if len(sys.argv) > 3 else "1"
    environment = dict(peer_environment(sys.executable), OMP_NUM_THREADS="1")

    def lines(command):
        done = subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True, env=environment, check=True)
        return done.stdout.splitlines()

    names, ours, theirs = [], [], []
    for _ in range(rounds):
        found = [line.split("\t") for line in lines([mslua, "run", HERE + "/operators.lua", "--", seconds])]
        names = [name for name, _ in found]
        ours.append([float(us) for _, us in found])
        theirs.append([float(us) for us in lines([sys.executable, __file__, "--peer", seconds])])
    print("| operator, with gradients unless it says so | mslua, us | PyTorch, us | ratio |\n| --- | --- | --- | --- |")
    for i, name in enumerate(names):
        a, b = (statistics.median(run[i] for run in runs) for runs in (ours, theirs))
        print("| %s | %.0f | %.0f | %.2f |" % (name, a, b, b / a))


main()
