#!/usr/bin/env python3
"""`mslua runs` on runs that have ended, that train, and that were killed: runs_test.py MSLUA"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

MSLUA = os.path.abspath(sys.argv[1])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "runs_test")
SOCKETS = tempfile.mkdtemp(prefix="msr", dir="/tmp")  # short: a socket's path ends at 107 bytes
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", XDG_RUNTIME_DIR=SOCKETS, HOME=WORK, XDG_CACHE_HOME=WORK)
RECIPE = """
local ms = require "mslua"
local p = ms.params { lr = 0.1, epochs = 2, nap = false, fails = false }
local Watch = ms.Callback:extend "Watch"
function Watch:on_train_step_end()
  if p.nap then os.execute "sleep 0.05" end
  if p.fails then error "the callback fails" end
end
local function rows() return ms.dataset.NumpySlicesDataset({ ms.rand({ 8, 4 }, ms.float32, "x"),
  ms.rand({ 8, 2 }, ms.float32, "y") }):batch(4) end
return ms.recipe { name = "tiny", dataset = rows, eval_dataset = rows,
  network = function() return ms.nn.Dense(4, 2) end, loss = ms.nn.MSELoss(),
  optimizer = ms.nn.SGD { learning_rate = p.lr },
  train = { epochs = p.epochs },
  callbacks = Watch(), eval = { metrics = { "loss" } } }
"""


def mslua(*words):
    return subprocess.run([MSLUA, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL, check=False)


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def error(result, *texts):
    lines = [line for line in result.stderr.splitlines() if line.startswith("mslua: error: ")]
    check(result.returncode == 2 and len(lines) == 1 and all(t in lines[0] for t in texts), (texts, result))


def rows():
    return {row["run"]: row for row in map(json.loads, mslua("runs", "ls", "--json").stdout.splitlines())}


def check_list():
    found = rows()
    check(found["runs/a"]["state"] == "done" and found["runs/a"]["steps"] == 4, found["runs/a"])
    check(found["runs/a"]["recipe"] == "recipe.lua" and found["runs/a"]["best_metric"] == "eval_loss", found["runs/a"])
    check(abs(found["runs/a"]["started"] - time.time()) < 3600 and found["runs/a"]["bytes"] > 0, found["runs/a"])
    check(found["runs/failed"]["state"] == "failed", found["runs/failed"])
    check("not a run" not in " ".join(found), found)
    table = mslua("runs", "ls").stdout.splitlines()
    check(table[0].startswith("run") and len(table) == len(found) + 1, table)
    check(mslua("runs", "ls", "nowhere").returncode == 2, "an error for a folder that is not there")


def check_compare():
    rows_of = mslua("runs", "compare", "runs/a", "runs/b", "--json")
    a, b = map(json.loads, rows_of.stdout.splitlines())
    check(a["lr"] == "0.1" and b["lr"] == "0.2" and "epochs" not in a and a["final loss"] != b["final loss"], rows_of)
    same = mslua("runs", "compare", "runs/a", "runs/a")
    check("the same parameters" in same.stderr and "final loss" in same.stdout, same)
    with open("runs/cut/metrics.jsonl", "a", encoding="utf-8") as out:
        out.write('{"step":9,"lo')
    cut = mslua("runs", "compare", "runs/a", "runs/cut")
    check(cut.returncode == 0 and cut.stderr.count("half-written") == 1, cut)
    error(mslua("runs", "compare", "runs/a", "runs/none"), "runs/none has no metrics.jsonl")
    error(mslua("runs", "compare", "runs/a", "runs/other"), "no metric in common", "runs/other has speed")
    error(mslua("runs", "compare", "runs/a", "nosuch"), "'nosuch' is no run folder")


def check_names():
    """A recipe's name means its last run, whatever the folder's name; `rm` takes it where there is one run."""
    for name in ("a", "failed"):
        os.utime("runs/%s/rank_0.log" % name, (time.time() + 1000, time.time() + (1000 if name == "a" else 500)))
    logs = mslua("logs", "tiny")
    check(logs.returncode == 0 and "mslua: runs/a\n" in logs.stderr, logs)
    check("mslua: runs/" in mslua("plot", "tiny").stderr, "plot takes the name")
    before = sorted(os.listdir("runs"))
    error(mslua("runs", "rm", "tiny"), "runs rm: tiny has ", "runs/a", "give a folder; nothing was removed")
    check(sorted(os.listdir("runs")) == before, before)


def check_others():
    """A folder that holds more than its run is kept."""
    check(mslua("train", "recipe.lua", "--out", "runs/nest").returncode == 0, "nest trains")
    check(mslua("train", "recipe.lua", "--out", "runs/nest/inner").returncode == 0, "inner trains")
    check(mslua("train", "recipe.lua", "--out", "runs/nest").returncode == 0, "nest trains again")
    error(mslua("runs", "rm", "runs/b", "runs/nest"), "runs/nest holds more than its run: inner;",
          "nothing was removed")
    check(os.path.exists("runs/nest/inner/lock") and os.path.exists("runs/b/lock"), os.listdir("runs"))
    os.rename("runs/nest/inner", "runs/nest/earlier-1/inner")
    error(mslua("runs", "rm", "runs/nest"), "earlier-1/inner")
    shutil.rmtree("runs/nest/earlier-1/inner")
    for name in ("notes.txt", "rank_x.log", "earlier-old"):
        with open("runs/nest/" + name, "w", encoding="utf-8") as out:
            out.write("mine\n")
    error(mslua("runs", "rm", "runs/nest"), "its run: earlier-old, notes.txt, rank_x.log;", "rm -r")
    for name in ("notes.txt", "rank_x.log", "earlier-old"):
        os.remove("runs/nest/" + name)
    check(mslua("runs", "rm", "runs/nest").returncode == 0 and not os.path.exists("runs/nest"), os.listdir("runs"))


def check_remove():
    error(mslua("runs", "rm"), "rm")
    error(mslua("runs", "rm", "runs/b", "runs/not a run"), "is no run folder: it has no lock", "nothing was removed")
    error(mslua("runs", "rm", "runs/b", "nosuch"), "no recipe with a run under runs/, and no running job")
    os.symlink("a", "runs/link")
    error(mslua("runs", "rm", "runs/link"), "symbolic link")
    check(os.path.exists("runs/b/lock"), "runs/b is kept")
    check_others()
    job = subprocess.Popen([MSLUA, "train", "recipe.lua", "nap=true", "epochs=100000", "--out", "runs/on"],
                           env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not os.path.exists("runs/on/rank_0.log") or not mslua("ps").stdout:
            check(job.poll() is None, "the job runs")
            time.sleep(0.05)
        logs = mslua("logs", "tiny")  # the log of runs/a has a later time
        check(logs.returncode == 0 and logs.stderr == "mslua: %s\n" % os.path.realpath("runs/on"), logs)
        check(rows()["runs/on"]["state"] == "running", rows())
        refused = mslua("runs", "rm", "runs/b", "runs/on")
        check(refused.returncode == 9 and "in use by pid" in refused.stderr and os.path.exists("runs/b"), refused)
    finally:
        job.kill()
        job.wait()
    check(rows()["runs/on"]["state"] == "no end", rows())
    gone = mslua("runs", "rm", "runs/b/", "runs/on", "runs/on")
    check(gone.stdout.startswith("removed runs/b (") and gone.stdout.count("removed runs/on") == 1, gone)
    check(not os.path.exists("runs/b") and not os.path.exists("runs/on"), os.listdir("runs"))


def check_seed():
    """An evaluation has the samples of its training: those that the seed draws for a part, and at the file's top."""
    with open("parts.lua", "w", encoding="utf-8") as out:
        out.write("""
local ms = require "mslua"
local x = ms.rand { 20, 1 }
local train, test = ms.dataset.NumpySlicesDataset({ x, ms.zeros { 20, 1 } }):split { 0.8, 0.2 }
local net = function() return ms.nn.Dense(1, 1, { weight_init = "ones", has_bias = false }) end
return ms.recipe { name = "parts", dataset = train:batch(4), eval_dataset = test:batch(4), network = net,
  loss = ms.nn.L1Loss(), optimizer = ms.nn.SGD { learning_rate = 1e-30 }, train = { epochs = 1 },
  parallel = { parallel_mode = "data_parallel" }, checkpoint = { save_checkpoint_steps = 4 } }
""")
    trained = mslua("train", "parts.lua", "--seed", "7", "--out", "runs/parts")
    loss = [line for line in trained.stdout.splitlines() if line.startswith("eval: ")][0].split("loss ")[1]
    for ranks in ("1", "2"):
        found = mslua("eval", "parts.lua", "--ckpt", "runs/parts", "-n", ranks)
        check(found.stdout == "eval: loss %s\n" % loss and "eval: seed 7, with which" in found.stderr, (loss, found))
    newest = mslua("eval", "parts.lua")
    check(newest.stdout == found.stdout and "weights of runs/parts/" in newest.stderr, newest)
    given = mslua("eval", "parts.lua", "seed=3", "--ckpt", "runs/parts")
    check(given.returncode == 0 and loss not in given.stdout and "with which" not in given.stderr, given)
    # Of two runs in one directory the newest is damaged: the other one was trained with another seed.
    for seed in ("7", "8"):
        words = ("train", "parts.lua", "--seed", seed, "--out", "runs/parts", "checkpoint.directory=both")
        check(mslua(*words).returncode == 0, words)
    with open("both/parts_1-1_4.ckpt/rank_0.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    error(mslua("eval", "parts.lua", "--ckpt", "both"), "parts-1_4.ckpt was trained with seed 7",
          "the samples are those of seed 8: give --ckpt both/parts-1_4.ckpt")
    found = mslua("eval", "parts.lua", "--ckpt", "both/parts-1_4.ckpt")
    check(found.stdout == "eval: loss %s\n" % loss, found)
    gone = mslua("runs", "rm", "parts")
    check(gone.returncode == 0 and gone.stdout.startswith("removed runs/parts ("), gone)


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    os.chdir(WORK)
    with open("recipe.lua", "w", encoding="utf-8") as out:
        out.write(RECIPE)
    none = mslua("runs", "ls")
    check(none.returncode == 0 and "no run in runs/" in none.stderr, none)
    check(mslua("train", "recipe.lua", "--out", "runs/a").returncode == 0, "a trains")
    check(mslua("train", "recipe.lua", "lr=0.2", "--out", "runs/b").returncode == 0, "b trains")
    check(mslua("train", "recipe.lua", "fails=true", "--out", "runs/failed").returncode != 0, "the callback fails")
    shutil.copytree("runs/a", "runs/cut")
    for name in ("none", "other", "not a run"):
        os.makedirs("runs/" + name)
    for name in ("none", "other"):
        for file in ("lock", "rank_0.log"):
            open(f"runs/{name}/{file}", "w", encoding="utf-8").close()
    with open("runs/other/metrics.jsonl", "w", encoding="utf-8") as out:
        out.write('{"step":1,"epoch":1,"speed":3}\n')
    check_list()
    check_compare()
    check_names()
    check_remove()
    check_seed()
    shutil.rmtree(SOCKETS, ignore_errors=True)


main()
