#!/usr/bin/env python3
"""`mslua sweep`: all combinations, failures, Ctrl-C and what follows it: sweep_test.py MSLUA"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MSLUA = os.path.abspath(sys.argv[1])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "sweep_test")
SOCKETS = tempfile.mkdtemp(prefix="msw", dir="/tmp")  # short: a socket's path ends at 107 bytes
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", XDG_RUNTIME_DIR=SOCKETS, HOME=WORK, XDG_CACHE_HOME=WORK)
RECIPE = """
local ms = require "mslua"
local p = ms.params { lr = 0.1, sizes = {4}, nap = false, fails = false, epochs = 2, presets = { a = { epochs = 1 } } }
local Watch = ms.Callback:extend "Watch"
function Watch:on_train_step_end()
  if p.nap then os.execute "sleep 0.1" end
  if p.fails then error "the callback fails" end
end
local function rows() return ms.dataset.NumpySlicesDataset({ ms.rand({ 8, 4 }, ms.float32, "x"),
  ms.rand({ 8, 2 }, ms.float32, "y") }):batch(4) end
return ms.recipe { name = "tiny", dataset = rows, eval_dataset = rows,
  network = function() return ms.nn.Dense(4, 2) end, loss = ms.nn.MSELoss(),
  optimizer = ms.nn.SGD { learning_rate = p.lr },
  train = { epochs = p.nap and 1000000 or p.epochs },
  callbacks = Watch(), eval = { metrics = { "loss" } } }
"""


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def sweep(*words):
    return subprocess.run([MSLUA, "sweep", "recipe.lua", *words], env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=300, stdin=subprocess.DEVNULL, check=False)


def rows(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def check_combinations():
    done = sweep("lr=0.01,0.3", "sizes={1,2},{3}", "--seeds", "2", "--jobs", "2", "--out", "all", "--json")
    found = rows(done)
    check(done.returncode == 0 and len(found) == 8, done)
    check({(r["lr"], r["sizes"], r["seed"]) for r in found}
          == {(lr, sizes, seed) for lr in ("0.01", "0.3") for sizes in ("{1,2}", "{3}") for seed in (1, 2)}, found)
    check(all(r["state"] == "done" and os.path.exists(r["run"] + "/metrics.jsonl") for r in found), found)
    values = [r["best"] for r in found]
    check(values == sorted(values) and found[0]["best_metric"] == "eval_loss", values)
    check(len({r["run"] for r in found}) == 8 and len(os.listdir("all")) == 8, os.listdir("all"))
    before = {r["run"]: os.stat(r["run"] + "/metrics.jsonl").st_mtime_ns for r in found}
    shutil.rmtree(found[3]["run"])
    again = sweep("lr=0.01,0.3", "sizes={1,2},{3}", "--seeds", "2", "--out", "all", "--json")
    check("7 of them are done already" in again.stderr and rows(again) == found, again)
    after = {r["run"]: os.stat(r["run"] + "/metrics.jsonl").st_mtime_ns for r in rows(again)}
    check([run for run in before if before[run] != after[run]] == [found[3]["run"]], "only that one is trained")


def check_seed():
    done = sweep("seed=3,4", "--out", "seeds", "--json")
    found = rows(done)
    check(done.returncode == 0 and sorted(r["seed"] for r in found) == [3, 4], done)
    check(all(line.count('"seed"') == 1 for line in done.stdout.splitlines()), done)
    check(sorted(os.listdir("seeds")) == ["seed=3", "seed=4"], os.listdir("seeds"))
    check(found[0]["loss"] != found[1]["loss"], "the seeds give other losses")
    table = sweep("seed=3,4", "--out", "seeds").stdout.splitlines()
    check(table[0].split().count("seed") == 1 and {line.split()[0] for line in table[1:]} == {"3", "4"}, table)


def check_preset():
    """What is done with other parameters than the sweep has now is not ranked beside its trainings."""
    check(sweep("lr=0.1,0.2", "--out", "preset").returncode == 0, "both train")
    for values in ("lr=0.1,0.2", "lr=0.1,0.2,0.3"):
        other = sweep(values, "--preset", "a", "--out", "preset")
        check(other.returncode == 2 and "sweep: preset/lr=0.1,seed=1 is done, with epochs 2 (recipe), and this sweep "
              "has epochs 1 (preset a): give another --out, or remove that run" in other.stderr, other)
    check(sorted(os.listdir("preset")) == ["lr=0.1,seed=1", "lr=0.2,seed=1"], os.listdir("preset"))
    for _ in range(2):
        one = sweep("lr=0.1,0.2", "--preset", "a", "--out", "one", "--json")
        check(one.returncode == 0 and [r["steps"] for r in rows(one)] == [2, 2], one)


def check_changed_recipe():
    """What is done with another text of the recipe is not shown as this one's."""
    def write(text):
        with open("changed.lua", "w", encoding="utf-8") as out:
            out.write(text)

    def run(out, *words):
        return subprocess.run([MSLUA, "sweep", "changed.lua", "lr=0.1", "--out", out, *words], env=ENVIRONMENT,
                              capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, check=False)
    write(RECIPE)
    check(run("changed").returncode == 0, "it trains")
    check("1 of them are done already" in run("changed").stderr, "the same text")
    write(RECIPE.replace("nn.Dense(4, 2)", "nn.Dense(4, 2, false)"))
    other = run("changed")
    check(other.returncode == 2 and "sweep: changed/lr=0.1,seed=1 is done, and the recipe's text has changed since: "
          "give another --out" in other.stderr, other)
    # Its own seed does not make the seeds of a sweep one.
    write(RECIPE.replace("network = function()", "network = function() ms.set_seed(42)").replace('"x")', '"x" )'))
    seeds = run("own_seed", "--seeds", "2", "--json")
    check(seeds.returncode == 0 and len({r["loss"] for r in rows(seeds)}) == 2, seeds)


def check_failures():
    one = sweep("lr=0.1", "fails=true,false", "--out", "some")
    lines = one.stdout.splitlines()
    check(lines[0].split()[:2] == ["fails", "seed"], "what is the same in all trainings is no column")
    check(one.returncode == 2 and len(lines) == 3, one)
    check("done" in lines[1] and "failed: recipe.lua:7: the callback fails" in lines[2], one)
    for words, says in ((["nosuch=1,2"], "unknown parameter 'nosuch'"),
                        (["lr=0.1,abc"], "parameter 'lr': expected a number"), (["lr=0.1,0.1"], "has 0.1 twice"),
                        (["seed=1,2", "--seeds", "2"], "seed=1,2 and --seeds: give one of them")):
        bad = sweep(*words, "--out", "refused", "--json")
        check(bad.returncode == 2 and bad.stdout == "" and says in bad.stderr and bad.stderr.count("\n") == 1, bad)
        check(not os.path.exists("refused"), "nothing is made")
    for words in (["lr=1,,2"], ["lr=1", "lr=2"], ["--seeds", "0"]):
        bad = sweep(*words)
        check(bad.returncode == 2 and bad.stdout == "" and bad.stderr.count("mslua: error: ") == 1, bad)


def check_interrupt():
    process = subprocess.Popen([MSLUA, "sweep", "recipe.lua", "nap=false,true", "lr=0.1,0.2", "--out", "cut", "--json"],
                               env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               stdin=subprocess.DEVNULL)
    log = "cut/nap=true,lr=0.1,seed=1/rank_0.log"
    end = time.monotonic() + 120
    while not (os.path.exists(log) and os.path.getsize(log) > 0):
        check(process.poll() is None and time.monotonic() < end, "the third training begins")
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    found = [json.loads(line) for line in out.splitlines()]
    check(process.returncode == 130, process.returncode)
    check([r["state"] for r in found] == ["done", "done", "stopped", "not trained"], found)
    # The folder of the training that was stopped would be made again.
    with open(found[2]["run"] + "/notes.txt", "w", encoding="utf-8") as file:
        file.write("mine")
    again = sweep("nap=false,true", "lr=0.1", "--out", "cut")
    check(again.returncode != 0 and "holds more than its run: notes.txt; move it" in again.stdout + again.stderr, again)
    check(os.path.exists(found[2]["run"] + "/notes.txt"), "the file is kept")
    check(found[2]["nap"] == "true" and found[3]["lr"] == "0.2", found)


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    os.chdir(WORK)
    with open("recipe.lua", "w", encoding="utf-8") as out:
        out.write(RECIPE)
    check_combinations()
    check_seed()
    check_preset()
    check_changed_recipe()
    check_failures()
    check_interrupt()
    shutil.rmtree(SOCKETS, ignore_errors=True)


main()
