"""Steps of mslua and of PyTorch on the device, one after the other in each round; and what mslua's kernels reach."""
import atexit
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time

import machine

LEFT_FOR_WORKLOADS = 240  # seconds, for which PyTorch's compiler is stopped
PROFILED_STEPS = 5
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


def types_of(name):
    return WORKLOADS[name][2]


class Workloads:
    """`env`: of mslua. Its caches of kernels are empty in the first round of each workload, so that the start of that
    round is the first one on a machine, and full in the others."""

    def __init__(self, places, env, left, options):
        self.places, self.env, self.left, self.options, self.rows = places, env, left, options, []
        self.caches, self.warming = tempfile.mkdtemp(), []
        atexit.register(shutil.rmtree, self.caches, ignore_errors=True)

    def ours(self, name, dtype):
        """The environment of mslua's runs of a workload."""
        cache = os.path.join(self.caches, name + dtype)
        return dict(self.env, XDG_CACHE_HOME=cache, CUDA_CACHE_PATH=os.path.join(cache, "driver"))

    def prof(self, name, dtype, *flags):
        recipe, arguments = WORKLOADS[name][:2]
        amp = ["train.amp=" + dtype] if dtype != "f32" else []
        return [self.places["program"], "prof", os.path.join(self.places["training"], recipe)] + arguments + amp + [
            "--device", "cuda", "--json"] + list(flags)

    def peer(self, name, dtype, ways, seconds):
        return ["python3", os.path.join(self.places["training"], "device_peer.py"), "--workload", WORKLOADS[name][3],
                "--dtype", dtype, "--ways", ",".join(ways), "--seconds", str(seconds), "--device",
                self.options.peer_device]

    def lines(self, command, env=None):
        """JSON lines, the peak of device memory, and seconds to the first line. `env`: this process's, where it is not
        given."""
        limit = self.left()
        if limit <= 0:
            raise RuntimeError("no time was left")
        begin = time.time()
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors,
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
        steps = str(self.options.steps or WORKLOADS[name][4])
        command = self.prof(name, dtype, "--steps-only", "--steps", steps)
        found, peak, start = self.lines(command, self.ours(name, dtype))
        if not found or "step_ms" not in found[-1]:
            raise RuntimeError("mslua prof printed no time of a step")
        return dict(found[-1], process_mb=peak, first_step_s=start)

    def torch(self, name, dtype, ways):
        return self.lines(self.peer(name, dtype, ways, self.options.seconds))[0]

    def begin_warming(self):
        """PyTorch compiles all workloads beside the checks, which are not timed, and keeps the kernels in its cache."""
        if not self.options.peers:
            return
        for name in self.options.workloads or WORKLOADS:
            for dtype in types_of(name):
                self.warming.append(subprocess.Popen(
                    self.peer(name, dtype, [way for way in WAYS if way != "eager"], 0), stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def end_warming(self):
        for process in self.warming:
            try:
                process.wait(timeout=max(0, self.left() - LEFT_FOR_WORKLOADS))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.warming = []

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
                for found in self.torch(name, dtype, ways):
                    theirs.setdefault(found["way"], []).append(found)
            except (RuntimeError, ValueError) as problem:
                row["problems"].append("PyTorch: %s" % problem)
        if ours:
            row["mslua_ms"] = statistics.median(x["step_ms"] for x in ours)
            row["mslua_start_s"] = [round(x["first_step_s"], 2) for x in ours]
            row["mslua_mb"] = ours[-1].get("device_mb")
            row["mslua_process_mb"] = max((x["process_mb"] for x in ours if x["process_mb"]), default=None)
        for way, found in theirs.items():
            good = [x for x in found if "step_ms" in x]
            if good:
                row.setdefault("torch", {})[way] = {
                    "ms": statistics.median(x["step_ms"] for x in good),
                    "mb": max((x["allocated_mb"] for x in good if "allocated_mb" in x), default=None),
                    "reserved_mb": max((x["reserved_mb"] for x in good if "reserved_mb" in x), default=None)}
            else:
                row["problems"].append("PyTorch %s: %s" % (way, found[0].get("problem")))
        if ours and row.get("torch"):
            best = min(row["torch"], key=lambda way: row["torch"][way]["ms"])
            row["best"], row["ratio"] = best, row["torch"][best]["ms"] / row["mslua_ms"]
        if ours:
            self.add_kernels(row, name, dtype)
        self.rows.append(row)
        print("%-34s %s" % (row["workload"], text_of(row)), flush=True)

    def add_kernels(self, row, name, dtype):
        """What each kind of kernel takes and what it could take at the rates that are measured in the same run."""
        try:
            found, _, _ = self.lines(self.prof(name, dtype, "--steps", str(PROFILED_STEPS)), self.ours(name, dtype))
        except (RuntimeError, ValueError) as problem:
            row["problems"].append("mslua prof: %s" % problem)
            return
        row["kernels"] = [x for x in found if "count" in x]
        row["floor_ms"] = sum(x["floor_ms"] for x in row["kernels"])
        row["ceilings"] = next((x["ceilings"] for x in found if "ceilings" in x), None)

    def all(self):
        self.end_warming()
        for name in self.options.workloads or WORKLOADS:
            for dtype in types_of(name):
                self.measure(name, dtype)


def text_of(row):
    parts = []
    if "mslua_ms" in row:
        parts.append("mslua %.4g ms" % row["mslua_ms"])
    parts += ["%s %.4g ms" % (way, found["ms"]) for way, found in row.get("torch", {}).items()]
    if "ratio" in row:
        parts.append("ratio %.2f" % row["ratio"])
    return ", ".join(parts + row["problems"])
