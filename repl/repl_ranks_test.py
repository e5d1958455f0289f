#!/usr/bin/env python3
"""`mslua repl -n N`: lines run on all ranks, values are rank 0's, errors name their rank, Ctrl-C stops all.

usage: repl_ranks_test.py MSLUA
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

MSLUA = os.path.abspath(sys.argv[1])
LIMIT_S = 200
RECIPE = """
local ms = require "mslua"
local nn = ms.nn
local x, y = ms.randn({ 64, 4 }, ms.float32, "x"), ms.zeros({ 64 }, ms.int32)
return ms.recipe {
  name = "ranks", network = function() return nn.Dense(4, 3) end,
  loss = nn.SoftmaxCrossEntropyWithLogits(true, "mean"),
  optimizer = nn.Momentum { learning_rate = 0.1, momentum = 0.9 },
  dataset = function() return ms.dataset.NumpySlicesDataset({ x, y }, { "x", "y" }):batch(8) end,
  parallel = { parallel_mode = "data_parallel", gradients_mean = true },
}
"""
failed = []


def check(what, good, shown=""):
    if not good:
        failed.append(what)
        print(f"FAILED: {what}\n{shown}")


def repl(arguments, lines):
    done = subprocess.run([MSLUA, "repl"] + arguments, input="\n".join(lines) + "\n", capture_output=True, text=True,
                          timeout=LIMIT_S)
    return done.stdout, done.stderr, done.returncode


def test_lines():
    out, err, code = repl(["-n", "2"], [
        "rank = ms.communication.get_rank()",
        "rank",
        "@1 rank",
        "@all rank * 10",
        "x = ms.ones({2}) * (rank + 1)",
        "ops.AllReduce()(x)",
        "_:sum():item()",
        "@1 _",
        "if rank == 1 then error('only here') end",
        "error('everywhere')",
        "@1 nothing.x",
        "@7 rank",
        "'still ' .. 'here'",
    ])
    check("a value is rank 0's", "\n0\n" in "\n" + out, out + err)
    check("@1 looks at one rank", "[rank 1] 1" in out, out)
    check("@all looks at all", "[rank 0] 0" in out and "[rank 1] 10" in out, out)
    check("a collective runs on all", "[3., 3.]" in out and "\n6\n" in out, out + err)
    check("_ is each rank's own", "[rank 1] 6" in out, out)
    check("an error of one rank names it", "rank 1: stdin:1: only here" in err, err)
    check("an error of all is said once", err.count("everywhere") == 1, err)
    check("an error of @ is its answer", "[rank 1] error:" in out, out)
    check("a rank that is not there is refused", "ranks from 0 to 1" in err, err)
    check("errors leave the session", "still here" in out, out + err)
    check("errors give the exit code 1", code == 1, (code, err))


def test_recipe():
    out, err, code = repl(["recipe.lua", "-n", "2"], [
        "l = m:step(3):item()", "@all m.steps", "@all net.weight.value:sum():item()",
    ])
    sums = [line.split("] ")[1] for line in out.splitlines() if line.startswith("[rank")]
    check("m:step() steps all ranks", sums[:2] == ["3", "3"], out + err)
    check("they stay the same network", len(sums) == 4 and sums[2] == sums[3], out + err)
    check("leaving ends the job", code == 0, (code, err))


def test_training():
    for ranks in "1", "2":
        out, err, code = repl(["recipe.lua", "-n", ranks, "-e", "model:train(1, dataset)", "-e", "6 * 7"], [])
        check("lines follow a training on %s ranks" % ranks, out.endswith("\n42\n") and code == 0, f"{out}{err}{code}")
        check("what train returns has a text", "Trainer" in out and "userdata" not in out, out)


def test_stages():
    with open("recipe.lua", encoding="utf-8") as f:
        stages = f.read().replace('parallel_mode = "data_parallel", gradients_mean = true',
                                  'parallel_mode = "semi_auto_parallel", pipeline_stages = 2')
    with open("stages.lua", "w", encoding="utf-8") as f:
        f.write(stages)
    _, err, code = repl(["stages.lua", "-n", "2", "-e", "m:step()"], [])
    check("m:step() with stages says what to call", "step: pipeline_stages = 2" in err and code == 1, f"{err}{code}")


def test_commands():
    out, err, code = repl(["-e", "x = 4", "-e", "x * 10", "-e", "for i = 1, 2 do\n  print(i)\nend"], [])
    check("-e runs each command, in order", (out, err, code) == ("40\n1\n2\n", "", 0), out + err)
    out, err, code = repl(["-e", "1", "-e", "error 'no'", "-e", "2"], [])
    check("a command that fails is the last", out == "1\n" and "no" in err and code == 1, f"{out}{err}{code}")
    out, err, code = repl(["-e", "for i = 1, 2 do"], [])
    check("an unfinished command says so", "-e: the statement is not complete: for i" in err and code == 1, err)
    out, err, code = repl(["recipe.lua", "-e", ".help", "-e", ".reload", "-e", "1"], [])
    check("-e .reload says that it is the prompt's", ".reload  " in out and not out.endswith("1\n") and code == 1 and
          ".reload works only at the prompt, got -e .reload" in err, f"{out}{err}{code}")
    out, err, code = repl(["-n", "2", "-e", "ops.AllReduce()(ms.ones {2})", "-e", "@1 6 * 7"], ["not read"])
    check("-e runs on all ranks", "[2., 2.]" in out and "[rank 1] 42" in out and code == 0, out + err)


def test_interrupt():
    process = subprocess.Popen([MSLUA, "repl", "recipe.lua", "-n", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    process.stdin.write("m:step()\nprint 'ready'\nm:step(100000000)\n")
    process.stdin.flush()
    while process.stdout.readline().strip() != "ready":
        check("the ranks begin", process.poll() is None)
        if process.poll() is not None:
            return
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the launcher and rank 0
    out, err = process.communicate("@all m.steps\nops.AllReduce()(ms.ones{1}):item()\n", timeout=LIMIT_S)
    answers = [line.split("] ")[1] for line in out.splitlines() if line.startswith("[rank")]
    steps = [answer for answer in answers if answer != "ready"]  # which rank 1 may print late
    check("Ctrl-C stops the line on all ranks", "interrupted" in err, err)
    check("after the same step", len(steps) == 2 and steps[0] == steps[1], out + err)
    check("collectives continue", out.strip().endswith("2"), out + err)


def main():
    with tempfile.TemporaryDirectory(prefix="mslua-test-") as folder:
        os.chdir(folder)
        with open("recipe.lua", "w", encoding="utf-8") as f:
            f.write(RECIPE)
        test_lines()
        test_recipe()
        test_training()
        test_stages()
        test_commands()
        test_interrupt()
        os.chdir("/")
    print("FAILED: " + "; ".join(failed) if failed else "all good")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
