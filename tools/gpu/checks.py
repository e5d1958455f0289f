"""Whether the device computes what it should: operators, trainings, ranks, and NVIDIA's sanitizer."""
import os
import re
import subprocess
import tempfile

import machine

OK, FAILED, NOT_RUN = "ok", "failed", "not run"
# name, recipe, arguments, how far a loss may be from the CPU's
TRAININGS = [
    ("quick start", "quickstart.lua", ["--max-steps", "10"], 1e-4),
    ("LeNet", "images.lua", ["network=lenet", "--max-steps", "10"], 1e-4),
    ("char_gpt", "text.lua", ["--max-steps", "10"], 1e-4),
    ("char_gpt bf16", "text.lua", ["train.amp=bf16", "--max-steps", "10"], 1e-2),
    ("char_gpt f16", "text.lua", ["train.amp=f16", "--max-steps", "10"], 1e-2),
]
SANITIZER_TOOLS = ["memcheck", "racecheck", "initcheck"]


class Checks:
    """`places`: program, operators (the test of all operators), cudnn and nccl (the tests of these), training (folder
    of recipes); `env`: of all runs; `left`: seconds that are left; `patience`: limits of single runs are so many times
    their own."""

    def __init__(self, places, env, left, patience=1):
        self.places, self.env, self.left, self.patience, self.rows = places, env, left, patience, []

    def add(self, what, state, detail):
        self.rows.append({"what": what, "state": state, "detail": detail})
        print("%-34s %-8s %s" % (what, state, detail), flush=True)

    def run(self, command, limit, **env):
        """(exit code, all that it printed); code None: out of time."""
        limit = min(limit * self.patience, self.left())
        if limit <= 0:
            return None, "no time was left"
        try:
            run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit,
                                 env=dict(self.env, **env), universal_newlines=True)
            return run.returncode, run.stdout
        except subprocess.TimeoutExpired:
            return None, "not finished after %d s" % limit
        except OSError as problem:
            return None, str(problem)

    def finish(self, what, code, out, detail=None):
        state = NOT_RUN if code is None else OK if code == 0 else FAILED
        last = (out.strip().splitlines() or [""])[-1]
        self.add(what, state, detail if detail and state == OK else last)
        return state == OK

    # ------------------------------------------------------------------------------------------------------- operators

    def operators(self):
        code, out = self.run([self.places["operators"]], 300, MSLUA_TEST_DEVICE="real")
        counts = re.search(r"\d+ operators, .* failures", out)
        self.finish("every operator against float64", code, out, counts and counts.group(0))

    def cudnn(self):
        what = "convolutions, attention by cuDNN"
        code, out = self.run([self.places["cudnn"]], 120, MSLUA_TEST_DEVICE="real")
        missing = re.search(r"libcudnn\.so\.9 was not found", out)
        if missing:
            self.add(what, NOT_RUN, missing.group(0))
            return
        counts = re.findall(r"(\d+) calls by cuDNN", out)
        self.finish(what, code, out, "%d calls against float64" % sum(int(n) for n in counts))

    def sanitized(self):
        tool = machine.sanitizer()
        for kind in SANITIZER_TOOLS:
            what = "compute-sanitizer " + kind
            if tool is None:
                self.add(what, NOT_RUN, "compute-sanitizer is not on this machine")
                continue
            code, out = self.run([tool, "--tool", kind, "--error-exitcode", "9", self.places["operators"]], 120,
                                 MSLUA_TEST_DEVICE="real", MSLUA_TEST_EVERY="40")
            summary = re.search(r"(ERROR|RACECHECK) SUMMARY: .*", out)
            self.finish(what, code, out, "%s, every 40th call" % summary.group(0) if summary else None)

    # ------------------------------------------------------------------------------------------------------- trainings

    def losses(self, recipe, arguments, *flags, **env):
        """Of each step; None, and a row, where the training fails."""
        with tempfile.TemporaryDirectory() as folder:
            command = [self.places["program"], "train", os.path.join(self.places["training"], recipe)] + arguments + [
                "--log-every", "1", "--no-attach", "--out", os.path.join(folder, "run")] + list(flags)
            code, out = self.run(command, 90, **env)
        if code != 0:
            return code, out
        return 0, [float(x) for x in re.findall(r"^epoch: \d+ step: \d+, loss is (\S+)$", out, re.M)]

    def compare(self, what, bar, one, two):
        for code, found in (one, two):
            if code != 0:
                self.finish(what, code, found)
                return
        one, two = one[1], two[1]
        worst = max([abs(a - b) / max(abs(b), 1e-30) for a, b in zip(one, two)] or [float("inf")])
        good = len(one) == len(two) and worst <= bar
        self.add(what, OK if good else FAILED, "%d losses, at most %.1e apart (bar %.0e)" % (len(one), worst, bar))

    def trainings(self):
        for name, recipe, arguments, bar in TRAININGS:
            device = self.losses(recipe, arguments, "--device", "cuda")
            self.compare(name + ": losses are the CPU's", bar, device, self.losses(recipe, arguments))
            self.compare(name + ": two runs are equal", 0, device, self.losses(recipe, arguments, "--device", "cuda"))

    def resume(self):
        """Four epochs of LeNet, and two of them resumed: equal from there on."""
        what, recipe = "a resumed run is an uninterrupted one", self.places["resumable"]
        with tempfile.TemporaryDirectory() as folder:
            def train(out, *flags):
                return self.run([self.places["program"], "train", recipe, "--device", "cuda", "--log-every", "1",
                                 "--no-attach", "--out", os.path.join(folder, out)] + list(flags), 90)
            for out, flags in (("whole", ("samples=96", "epochs=4")), ("half", ("samples=96", "epochs=2")),
                               ("half", ("samples=96", "epochs=4", "--resume=last"))):
                code, text = train(out, *flags)
                if code != 0:
                    self.finish(what, code, text)
                    return
            lines = [open(os.path.join(folder, out, "rank_0.log"), encoding="utf-8").read().splitlines()
                     for out in ("whole", "half")]
        steps = [[line for line in text if line.startswith("epoch: ") and "loss is" in line] for text in lines]
        self.add(what, OK if steps[0] and steps[0] == steps[1] else FAILED, "%d losses" % len(steps[0]))

    def ranks(self):
        for n in (2, 4):
            arguments = ["--max-steps", "10"]
            shared = self.losses("quickstart.lua", arguments, "--device", "cuda", "-n", str(n),
                                 MSLUA_SHARE_DEVICE="1")
            alone = self.losses("quickstart.lua", arguments, "-n", str(n))
            self.compare("%d ranks that share a device" % n, 1e-4, shared, alone)
        self.nccl()

    def nccl(self):
        """Every collective in each type over NCCL, with one rank: ranks of one device cannot use it together."""
        what = "NCCL with one rank: every collective"
        code, out = self.run([self.places["nccl"], "--gtest_filter=Nccl.OneRankConforms", "--gtest_brief=1"], 120,
                             MSLUA_TEST_DEVICE="real")
        missing = re.search(r"libnccl.* was not found", out)
        if code and missing:
            self.add(what, NOT_RUN, missing.group(0))
        else:
            self.finish(what, code, out)
        self.add("NCCL between devices", NOT_RUN, "one device is checked")
