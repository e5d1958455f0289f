#!/usr/bin/env python3
"""The page of `mslua report`: report_test.py MSLUA"""
import json
import os
import random
import re
import shutil
import subprocess
import sys

MSLUA = os.path.abspath(sys.argv[1])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "report_test")
HOSTILE = "runs/<script>alert(1)<" + "!--&\"'"
SETTINGS = ('require("mslua.params").resolved {from = "r.lua", leaves = {seed = 1}, origins = {lr = "command line"}, '
            'params = {lr = %s, name = "</script><script>alert(2)</script>"}} local ms\n')


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def mslua(*words):
    return subprocess.run([MSLUA, *words], capture_output=True, text=True, timeout=120, check=False,
                          env=dict(os.environ, HOME=WORK, XDG_RUNTIME_DIR=WORK), stdin=subprocess.DEVNULL)


def make_run(folder, steps, lr, keys=("loss", "lr", "samples_per_s", "data_wait", "grad_norm")):
    os.makedirs(folder)
    for name in ("lock", "rank_0.log"):
        open(f"{folder}/{name}", "w", encoding="utf-8").close()
    with open(f"{folder}/config.lua", "w", encoding="utf-8") as out:
        out.write(SETTINGS % lr)
    with open(f"{folder}/events.jsonl", "w", encoding="utf-8") as out:
        out.write('{"what":".set lr=<b>"}\n')
    draw = random.Random(1)
    with open(f"{folder}/metrics.jsonl", "w", encoding="utf-8") as out:
        for step in range(1, steps + 1):
            numbers = {"step": step, "epoch": 1, **{key: draw.gauss(0, 1) for key in keys}}
            if step % 10 == 0:
                numbers.update(time=1.7e9 + step / 7, samples=32 * step)
            out.write(json.dumps(numbers, separators=(",", ":")) + "\n")
        out.write('{"step":%d,"epoch":1,"loss":1e9}\n' % (steps // 2))
        out.write('{"step":%d,"lo' % (steps + 1))


def page_of(path):
    """The text of the page, and its list of runs."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1)
    return text, json.loads(data)


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    os.chdir(WORK)
    make_run("runs/a", 100000, 0.1)
    # A name with a slash would be a folder in a folder, which is as good.
    make_run(HOSTILE, 30, 0.2)
    long = mslua("report", "runs/a", "-o", "a.html")
    check(long.returncode == 0 and "half-written" in long.stderr and "wrote a.html" in long.stderr, long)
    check(os.path.getsize("a.html") < 2e6, os.path.getsize("a.html"))
    text, runs = page_of("a.html")
    check(not re.search(r"https?:|//[a-z]+\.|src=|@import", text), "the page asks no network")
    # Its icon is text of the page: a browser that may not load it says so.
    check('href="data:,"' not in text or "img-src data:" in text, "the page allows its own icon")
    steps, values = runs[0]["curves"]["loss"]
    check(max(values) == 1e9 and steps[0] == 1 and steps[-1] == 100000, "the extremes stay")
    check(steps == sorted(steps) and len(steps) > 1000, len(steps))
    check(["lr", "0.1", "command line"] in runs[0]["settings"], runs[0]["settings"])
    check(runs[0]["matrices"].startswith("None: with"), runs[0]["matrices"])
    check(runs[0]["operators"].startswith("None: `mslua train --profile"), runs[0]["operators"])
    os.makedirs("runs/a/trace")
    work = ((0, "matmul", "onednn", 3000), (0, "matmul", "onednn", 3000), (0, "add", "tile", 2000),
            (0, "data", "", 9e9), (0, "step 7", "step", 1), (0, "step 8", "step", 1), (1, "add", "tile", 1e9))
    events = [{"ph": "X", "pid": rank, "tid": 0, "name": name, "cat": kernel, "ts": 0, "dur": length}
              for rank, name, kernel, length in work]
    for name, kept in (("step_8", events), ("step_9x", []), ("step_6", [])):
        with open("runs/a/trace/%s.json" % name, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": kept}, file)
    with open("runs/a/eval.json", "w", encoding="utf-8") as file:
        file.write('{"step":7,"labels":["</script>","b"],"matrices":{"confusion_matrix":[[3,1],[0,4]]}}')
    with open(HOSTILE + "/eval.json", "w", encoding="utf-8") as file:
        file.write("{")
    both = mslua("report", "runs/a", HOSTILE, "-o", "b.html")
    check(both.returncode == 0, both)
    text, runs = page_of("b.html")
    check(text.count("<script") == 2 and "alert(2)</script>" not in text and "<b>" not in text, "all text is escaped")
    check(runs[0]["operators"] == [["matmul", "onednn", 1, 3, "75.0%"], ["add", "tile", 1 / 2, 1, "25.0%"]],
          runs[0]["operators"])
    check(runs[0]["matrices"]["matrices"] == {"confusion_matrix": [[3, 1], [0, 4]]}, runs[0]["matrices"])
    check(isinstance(runs[1]["matrices"], str) and "1:2" in runs[1]["matrices"] or "expected" in runs[1]["matrices"],
          runs[1]["matrices"])
    check(runs[1]["name"] == HOSTILE and runs[1]["settings"][1][1].startswith("</script>"), runs[1])
    check(runs[1]["events"] == [{"what": ".set lr=<b>"}] and runs[1]["state"] == "no end", runs[1])
    check(len(runs[1]["curves"]["loss"][0]) == 30 and runs[1]["time"][1][0] == 0, runs[1])
    check(mslua("report", "runs/a").returncode == 2, "the file is not left out")
    none = mslua("report", ".", "-o", "c.html")
    check(none.returncode == 2 and "has no metrics.jsonl" in none.stderr and not os.path.exists("c.html"), none)


main()
