#!/usr/bin/env python3
"""The page of `mslua report`: report_test.py MSLUA"""
import base64
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


def add_summaries(folder):
    """Pictures, texts and histograms of a run, and the worst samples of its evaluation."""
    png = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAAAAABX3VL4AAAADklEQVR4nGP4z8DA8B8ABgAB/3hctoEAAAAASUVORK5CYII="
    os.makedirs(folder + "/summaries")
    os.makedirs(folder + "/samples")
    for name in ("summaries/x_%d.png" % 5, "samples/epoch_3.png"):
        with open(folder + "/" + name, "wb") as out:
            out.write(base64.b64decode(png))
    with open(folder + "/summaries.jsonl", "w", encoding="utf-8") as out:
        for step in range(1, 2001):
            out.write('{"step":%d,"at":%d,"noise":%g}\n' % (step, step, 1 / step))
        for name in ("w", "</script>"):
            for step in range(0, 2000, 10):
                out.write('{"step":%d,"at":%d,"histogram":{"name":"%s","count":9,"nan":1,"infinite":0,"low":-1,'
                          '"high":1,"mean":0,"std":0.5,"counts":%s}}\n' % (step, step, name, [step % 7] * 64))
        for step in (4, 5, 6):
            out.write('{"step":%d,"at":%d,"image":{"name":"x","file":"summaries/x_%d.png","height":2,"width":2}}\n' %
                      (step, step, step))
        out.write('{"step":1,"at":1,"image":{"name":"y","file":"../../etc/passwd","height":2,"width":2}}\n')
        out.write('{"step":9,"at":9,"text":{"name":"t","text":"</script><b>"}}\n')
        out.write('{"step":10,"at":10,"text":{"na')
    samples = [{"sample": "x.bin, record 3", "loss": 5.5, "label": 0, "prediction": 1, "confidence": 0.9,
                "picture": png}, {"sample": "row 4", "loss": None, "text": "<i>"}, {"sample": "r", "values": [1, 2]}]
    with open(folder + "/eval_samples.json", "w", encoding="utf-8") as out:
        json.dump({"step": 7, "labels": ["cat", "</script>"], "samples": samples}, out)


def check_summaries(run):
    check(len(run["curves"]["noise"][0]) == 2000 and "at" not in run["curves"], run["curves"].keys())
    check(sorted(run["histograms"]) == ["</script>", "w"] and len(run["histograms"]["w"]) == 40 and
          run["histograms"]["w"][-1]["step"] == 1990, run["histograms"].keys())
    pictures = {(p["name"], p.get("step", p.get("epoch"))): "picture" in p for p in run["pictures"]}
    check(pictures == {("generated samples", 3): True, ("x", 6): False, ("x", 5): True, ("x", 4): False}, pictures)
    check([t["text"] for t in run["texts"]] == ["</script><b>"], run["texts"])
    check([s["sample"] for s in run["worst"]["samples"]] == ["x.bin, record 3", "row 4", "r"], run["worst"])


def browse(page):
    """What a browser without a network says of the page; nothing where there is no browser."""
    browser = shutil.which("chromium")
    if browser is None:
        return
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--user-data-dir=" + WORK + "/browser", "--virtual-time-budget=5000",
         "--dump-dom", "file://" + os.path.abspath(page)],
        capture_output=True, text=True, timeout=120, check=False, env=dict(os.environ, HOME=WORK))
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    check(not said, said)
    dom = done.stdout
    for text in ("cat, taken for &lt;/script&gt; (90.0%)", "loss NaN or infinite", "x at step 5",
                 "generated samples after epoch 3", "newest: mean 0, std 0.5, 1 NaN, 0 infinite",
                 "summaries/x_6.png is not shown"):
        check(text in dom, "%s is in the page: %s" % (text, done.stderr[-500:]))
    check('<td class="short">0.2</td>' in dom, "short texts of a table stay whole")
    check(dom.count("<img src=") == 3 and dom.count("<canvas") >= 6, dom.count("<canvas"))


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
    add_summaries("runs/a")
    both = mslua("report", "runs/a", HOSTILE, "-o", "b.html")
    check(both.returncode == 0, both)
    check(os.path.getsize("b.html") < 2e6, os.path.getsize("b.html"))
    text, runs = page_of("b.html")
    check_summaries(runs[0])
    check(runs[1]["worst"].startswith("None: an evaluation") and runs[1]["pictures"] == [], runs[1]["worst"])
    browse("b.html")
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
    other = mslua("report", "runs/a", "-o", "page.lua")
    check(other.returncode == 2 and "expected a file that ends in .html, got 'page.lua'" in other.stderr and
          not os.path.exists("page.lua"), other)
    make_run("runs/c", 3, 0.1)
    with open("runs/c/metrics.jsonl", "a", encoding="utf-8") as file:
        file.write("\n")
    bad = mslua("report", "runs/c", "-o", "c.html")
    check(bad.returncode == 0 and "metrics.jsonl: 1 line is not JSON with a step: left out" in bad.stderr, bad)
    os.remove("c.html")
    for name, text in (("summaries.jsonl", '{"step":1,"image":{"name":"a","file":3}}\n'),
                       ("summaries.jsonl", '{"step":1,"text":{"name":"a","text":3}}\n'),
                       ("trace/step_1.json", '{"traceEvents":[{"ph":3},{"ph":"X","pid":0,"cat":"step","dur":"z"},3]}'),
                       ("trace/step_1.json", '{"traceEvents":7}'), ("ckpt/c-1_1.ckpt/MANIFEST.json", "[]")):
        os.makedirs(os.path.dirname("runs/c/" + name), exist_ok=True)
        with open("runs/c/" + name, "w", encoding="utf-8") as file:
            file.write(text)
        damaged = mslua("report", "runs/c", "-o", "c.html")
        check(damaged.returncode == 0, (name, text, damaged))
        os.remove("c.html")
    none = mslua("report", ".", "-o", "c.html")
    check(none.returncode == 2 and "has no metrics.jsonl" in none.stderr and not os.path.exists("c.html"), none)


main()
