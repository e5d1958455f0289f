"""PyTorch's steps of one workload on a CUDA device, each way in turn, for tools/gpu_check; prints a JSON line a way.

usage: device_peer.py --workload NAME --dtype f32|bf16|f16 --ways eager,compile,... --seconds S [--device cuda|cpu]

Ways: eager; compile, compile:reduce-overhead, compile:max-autotune (torch.compile and its modes); graph (the whole
step captured by hand). Images are channels-last, the optimizer is the fused one, float32 products use no TF32, and
attention is what scaled_dot_product_attention takes.
"""
import argparse
import contextlib
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import peer

START = time.time()
DTYPES = {"bf16": "bfloat16", "f16": "float16"}


class Step:
    """One way of making a workload's step."""

    def __init__(self, torch, a, way):
        torch.manual_seed(1)
        self.torch, self.device = torch, a.device
        self.net, x, y, self.loss_of, momentum = peer.networks(torch)[a.workload]()
        self.net, self.x, self.y = self.net.to(a.device), x.to(a.device), y.to(a.device)
        if x.dim() == 4:
            self.net = self.net.to(memory_format=torch.channels_last)
            self.x = self.x.contiguous(memory_format=torch.channels_last)
        fused = {"fused": True} if a.device == "cuda" else {}
        capturable = {"capturable": True} if way == "graph" else {}
        if momentum is None:
            self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1,
                                               **fused, **capturable)
        else:
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=momentum, **fused)
        self.scaler = torch.amp.GradScaler(a.device) if a.dtype == "f16" else None
        self.cast = (lambda: torch.autocast(a.device, dtype=getattr(torch, DTYPES[a.dtype]))) if (
            a.dtype in DTYPES) else contextlib.nullcontext
        self.run = self.make
        if way.startswith("compile"):
            mode = way.partition(":")[2]
            self.forward = torch.compile(self.forward, **({"mode": mode} if mode else {}))
        if way == "graph":
            self.capture()

    def forward(self, x, y):
        with self.cast():
            return self.loss_of(self.net(x), y)

    def make(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(self.x, self.y)
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.detach()

    def capture(self):
        torch = self.torch
        if self.scaler is not None:
            raise RuntimeError("a loss scale reads the device: no graph")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                self.make()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.loss = self.make()

        def replay():
            graph.replay()
            return self.loss
        self.run = replay

    def time(self, seconds):
        """Milliseconds of each step; the loss of each is read, as a training that prints it does."""
        float(self.run())
        first = time.time() - START
        for _ in range(3):
            float(self.run())
        ms, end = [], time.perf_counter() + seconds
        while len(ms) < 5 or time.perf_counter() < end:
            begin = time.perf_counter()
            float(self.run())
            ms.append((time.perf_counter() - begin) * 1e3)
        return {"step_ms": statistics.median(ms), "min_ms": min(ms), "max_ms": max(ms), "first_step_s": first}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", required=True)
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--ways", default="eager")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--device", default="cuda")
    a = parser.parse_args()
    import torch
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    for way in a.ways.split(","):
        found = {"way": way, "torch": torch.__version__}
        try:
            if a.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            found.update(Step(torch, a, way).time(a.seconds))
            if a.device == "cuda":
                found["allocated_mb"] = torch.cuda.max_memory_allocated() / 2**20
                found["reserved_mb"] = torch.cuda.max_memory_reserved() / 2**20
                torch.cuda.empty_cache()
        except Exception as problem:  # what one way cannot do is a row, and the others follow
            found["problem"] = "%s: %s" % (type(problem).__name__, str(problem).splitlines()[0] if str(problem) else "")
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
