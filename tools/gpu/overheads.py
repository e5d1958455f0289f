"""What a training on the device costs beside its steps: the loader's work, and checkpoints."""
import json
import os
import statistics
import subprocess
import tempfile

# Of each run, not counted: the first step, whose graph is not captured, and those until the loader is ahead.
SKIPPED_STEPS = 10
LOADER = {"recipe": "images.lua", "batch": 256, "steps": 40, "arguments": [
    "network=resnet50", "batch_size=256", "image_size=224", "batches=5", "train.amp=bf16"]}
SAVING = {"recipe": "text.lua", "batch": 16, "steps": 110, "every": 50, "arguments": [
    "--preset", "gpt2", "block=1024", "batch_size=16", "train.amp=bf16"]}


class Overheads:
    def __init__(self, places, env, left, options):
        self.places, self.env, self.left, self.options, self.rows = places, env, left, options, []

    def step_ms(self, workload, further):
        """Milliseconds of the steps after SKIPPED_STEPS, as a training's metrics.jsonl has them."""
        steps = self.options.steps + SKIPPED_STEPS if self.options.steps else workload["steps"]
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run")
            command = [self.places["program"], "train", os.path.join(self.places["training"], workload["recipe"])]
            command += workload["arguments"] + further + ["--device", "cuda", "--max-steps", str(steps), "--no-attach",
                                                          "--out", out]
            limit = self.left()
            if limit <= 0:
                raise RuntimeError("no time was left")
            try:
                run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit,
                                     env=self.env, universal_newlines=True)
            except subprocess.TimeoutExpired:
                raise RuntimeError("not finished in the time that was left")
            if run.returncode != 0:
                raise RuntimeError((run.stdout.strip().splitlines() or ["exit code %d" % run.returncode])[-1])
            with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
                found = [json.loads(line) for line in file]
        return [1e3 * workload["batch"] / x["samples_per_s"] for x in found if "samples_per_s" in x][SKIPPED_STEPS:]

    def add(self, what, detail, **found):
        self.rows.append(dict(found, what=what, detail=detail))
        print("%-34s %s" % (what, detail), flush=True)

    def loader(self):
        what = "ResNet-50, 256 x 224 px, bf16: batches made by the loader"
        try:
            resident = statistics.mean(self.step_ms(LOADER, []))
            loaded = statistics.mean(self.step_ms(LOADER, ["loader=true"]))
        except RuntimeError as problem:
            self.add(what, str(problem))
            return
        self.add(what, "%.4g ms a step, %.4g with batches in memory: %.3f" % (loaded, resident, loaded / resident),
                 loaded_ms=loaded, resident_ms=resident)

    def saving(self):
        what = "GPT-2, 16 x 1024, bf16: checkpoints beside the training"
        every = self.options.steps or SAVING["every"]
        try:
            plain = self.step_ms(SAVING, [])
            saved = self.step_ms(SAVING, ["save_every=%d" % every])
        except RuntimeError as problem:
            self.add(what, str(problem))
            return
        # What all steps took more, at the saves that were among them.
        typical = statistics.median(plain)
        saves = max(1, len(saved) // every)
        more = (sum(saved) - sum(plain)) / saves
        self.add(what, "%.4g ms more for each save, the longest step %.4g ms of %.4g" % (more, max(saved), typical),
                 more_ms=more, longest_ms=max(saved), step_ms=typical)

    def all(self):
        self.loader()
        self.saving()
