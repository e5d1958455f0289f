"""Steps of mslua and of PyTorch on the device, one after the other in each round."""
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time

import machine

WAYS = ["eager", "compile", "compile:reduce-overhead"]
# name: (recipe, arguments, types, PyTorch's workload, steps of a round, further ways of PyTorch)
WORKLOADS = {
    "quick start": ("quickstart.lua", [], ["f32"], "quickstart", 5000, ["graph"]),
    "char_gpt": ("text.lua", [], ["bf16"], "char_gpt", 200, []),
    "ResNet-50, 32 x 32 px": ("images.lua", ["network=resnet50", "batch_size=32"], ["f32"], "resnet50_32", 50, []),
    "ResNet-50, 256 x 224 px": ("images.lua", ["network=resnet50", "batch_size=256", "image_size=224"], ["bf16", "f16"],
                                "resnet50_b256", 10, []),
    "GPT-2, 16 x 1024": ("text.lua", ["--preset", "gpt2", "block=1024", "batch_size=16"], ["bf16"], "gpt2_1024", 10,
                         []),
}


class PeakMemory(threading.Thread):
    """The most device memory that a process has, in MiB, as nvidia-smi sees it four times a second."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.peak, self.over = str(pid), None, False
        self.start()

    def run(self):
        query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
        while not self.over:
            for line in (machine.output_of(query) or "").splitlines():
                pid, _, used = line.partition(", ")
                if pid == self.pid and used.isdigit():
                    self.peak = max(self.peak or 0, int(used))
            time.sleep(0.25)

    def end(self):
        self.over = True
        return self.peak


class Workloads:
    def __init__(self, places, env, left, options):
        self.places, self.env, self.left, self.options, self.rows = places, env, left, options, []

    def lines(self, command):
        """JSON lines, the peak of device memory, and seconds to the first line."""
        limit = self.left()
        if limit <= 0:
            raise RuntimeError("no time was left")
        begin = time.time()
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=errors,
                                       universal_newlines=True)
            memory, timer = PeakMemory(process.pid), threading.Timer(limit, process.kill)
            timer.start()
            first = process.stdout.readline()
            start = time.time() - begin
            out = process.stdout.read()
            process.wait()
            timer.cancel()
            peak = memory.end()
            errors.seek(0)
            problem = errors.read()
        if process.returncode != 0:
            last = (problem.strip().splitlines() or ["exit code %d" % process.returncode])[-1]
            raise RuntimeError("not finished in the time that was left" if process.returncode == -9 else last)
        return [json.loads(line) for line in (first + out).splitlines() if line.startswith("{")], peak, start

    def mslua(self, name, dtype):
        recipe, arguments, _, _, steps, _ = WORKLOADS[name]
        amp = ["train.amp=" + dtype] if dtype != "f32" else []
        found, peak, start = self.lines(
            [self.places["program"], "prof", os.path.join(self.places["training"], recipe)] + arguments + amp +
            ["--device", "cuda", "--steps-only", "--json", "--steps", str(self.options.steps or steps)])
        if not found or "step_ms" not in found[-1]:
            raise RuntimeError("mslua prof printed no time of a step")
        return dict(found[-1], peak_mb=peak, first_step_s=start)

    def torch(self, name, dtype, ways):
        peer = os.path.join(self.places["training"], "device_peer.py")
        found, peak, _ = self.lines(["python3", peer, "--workload", WORKLOADS[name][3], "--dtype", dtype, "--ways",
                                     ",".join(ways), "--seconds", str(self.options.seconds), "--device",
                                     self.options.peer_device])
        return found, peak

    def measure(self, name, dtype):
        row = {"workload": "%s, %s" % (name, dtype), "problems": []}
        ours, theirs = [], {}
        ways = WAYS + WORKLOADS[name][5] + (["compile:max-autotune"] if self.options.autotune else [])
        for _ in range(self.options.rounds):
            try:
                ours.append(self.mslua(name, dtype))
            except (RuntimeError, ValueError, KeyError) as problem:
                row["problems"].append("mslua: %s" % problem)
            if not self.options.peers:
                continue
            try:
                for found in self.torch(name, dtype, ways)[0]:
                    theirs.setdefault(found["way"], []).append(found)
            except (RuntimeError, ValueError) as problem:
                row["problems"].append("PyTorch: %s" % problem)
        if ours:
            row["mslua_ms"] = statistics.median(x["step_ms"] for x in ours)
            row["mslua_start_s"] = [round(x["first_step_s"], 2) for x in ours]
            row["mslua_mb"] = max((x["peak_mb"] for x in ours if x["peak_mb"]), default=None)
        for way, found in theirs.items():
            good = [x for x in found if "step_ms" in x]
            if good:
                row.setdefault("torch", {})[way] = {
                    "ms": statistics.median(x["step_ms"] for x in good),
                    "mb": max((x["peak_mb"] for x in good if "peak_mb" in x), default=None)}
            else:
                row["problems"].append("PyTorch %s: %s" % (way, found[0].get("problem")))
        if ours and row.get("torch"):
            best = min(row["torch"], key=lambda way: row["torch"][way]["ms"])
            row["best"], row["ratio"] = best, row["torch"][best]["ms"] / row["mslua_ms"]
        self.rows.append(row)
        print("%-34s %s" % (row["workload"], text_of(row)), flush=True)

    def all(self):
        for name in self.options.workloads or WORKLOADS:
            for dtype in WORKLOADS[name][2]:
                self.measure(name, dtype)


def text_of(row):
    parts = []
    if "mslua_ms" in row:
        parts.append("mslua %.4g ms" % row["mslua_ms"])
    parts += ["%s %.4g ms" % (way, found["ms"]) for way, found in row.get("torch", {}).items()]
    if "ratio" in row:
        parts.append("ratio %.2f" % row["ratio"])
    return ", ".join(parts + row["problems"])
