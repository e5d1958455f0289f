#!/usr/bin/python3
"""The peer of bench/data_parallel/run: the same networks under PyTorch's DistributedDataParallel over Gloo.

usage: ddp.py MODEL RANKS STEPS [WARM]      MODEL: char_gpt or resnet50; prints samples a second of all ranks

One thread a rank; WARM steps go before those that are timed.
"""
import os
import sys
import tempfile
import time

import torch
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../tools/golden"))
import generate  # noqa: E402


def network(model):
    if model == "char_gpt":
        return generate.Gpt({"layers": 4, "heads": 4, "dim": 128, "block": 64})
    return generate.ResNet({}, (3, 4, 6, 3), True, "imagenet")


class WithLoss(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, y):
        return self.inner.loss(x, y)


def batch(model):
    if model == "char_gpt":
        return torch.randint(65, (12, 64)), torch.randint(65, (12, 64))
    return torch.randn(32, 3, 32, 32), torch.randint(10, (32,))


def work(rank, model, ranks, warm, steps, meeting):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    net = WithLoss(network(model))
    if ranks > 1:
        torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=ranks)
        net = DistributedDataParallel(net)
    if model == "char_gpt":
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x, y = batch(model)
    for step in range(warm + steps):
        if step == warm:
            begun = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        net(x, y).backward()
        if model == "char_gpt":
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    if rank == 0:
        print("%.3f" % (ranks * len(x) * steps / (time.perf_counter() - begun)))


def main():
    model, ranks, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    warm = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    if ranks == 1:
        work(0, model, 1, warm, steps, None)
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (model, ranks, warm, steps, os.path.join(folder, "meeting")), nprocs=ranks)


if __name__ == "__main__":
    main()
