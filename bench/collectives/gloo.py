#!/usr/bin/python3
"""The operations, sizes and JSON lines of ranks.cc by torch.distributed over Gloo.

usage: gloo.py RANKS [SECONDS-PER-CASE [OPERATION]]
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

SIZES = [4, 64, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26]
OPERATIONS = ["allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast"]


def call_of(operation, count, n):
    whole, part = torch.zeros(count), torch.zeros(max(count // n, 1))
    if operation == "allreduce":
        return lambda: dist.all_reduce(whole)
    if operation == "allgather":
        parts = list(whole.split(count // n))
        return lambda: dist.all_gather(parts, part)
    if operation == "reduce_scatter":
        scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
        return lambda: scatter(part, whole)
    if operation == "alltoall":
        other = torch.zeros(count)
        return lambda: dist.all_to_all_single(other, whole)
    return lambda: dist.broadcast(whole, 0)


def seconds_of(call, iterations):
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(iterations):
        call()
    return (time.perf_counter() - begun) / iterations


def work(rank, n, seconds, only, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", USE_LIBUV="0")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=n)
    for operation in OPERATIONS:
        if only and only != operation:
            continue
        for size in SIZES:
            count = max(size // 4, 1 if operation in ("allreduce", "broadcast") else n)
            try:
                call = call_of(operation, count, n)
                call()
            except (RuntimeError, ValueError):
                break  # this Gloo does not have the operation
            iterations = torch.tensor([max(3, min(3000, int(seconds / 9 / seconds_of(call, 3))))])
            dist.broadcast(iterations, 0)
            best = min(seconds_of(call, int(iterations)) for _ in range(9))
            if rank == 0:
                print(json.dumps({"bench": "coll", "library": "gloo", "kind": "private", "op": operation, "ranks": n,
                                  "bytes": count * 4, "us": round(best * 1e6, 3)}), flush=True)
    dist.barrier()


def main():
    n, seconds = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.2
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    port = 20000 + os.getpid() % 12000  # below those that the system gives to who connects
    torch.multiprocessing.spawn(work, (n, seconds, only, port), nprocs=n)


if __name__ == "__main__":
    main()
