#!/usr/bin/env python3
"""Files of Lua in the loader's workers, from the command line: workers_test.py MSLUA"""
import os
import subprocess
import sys

MSLUA = os.path.abspath(sys.argv[1])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "workers_test")
RECIPE = """local ms = require "mslua"
local nn = ms.nn
local p = ms.params { workers = 1 }
local function rows()
  return ms.dataset.GeneratorDataset("rows.lua", { "x", "y" }, { shuffle = true, num_parallel_workers = p.workers })
    :map { operations = "%s", input_columns = "x" }:batch(4)
end
return ms.recipe { name = "workers", dataset = rows, network = function() return nn.Dense(2, 1) end,
  loss = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.1 }, train = { epochs = 2 },
  checkpoint = { save_checkpoint_steps = 3 } }
"""
ROWS = "return { length = 32, get = function(i) return { i / 32, 1 }, { 2 * i / 32 } end }\n"
NOISE = "local ms = require 'mslua'\nreturn function(x) return x + ms.rand { 2 } * 0.1 + math.random() * 0.1 end\n"
HANGS = """local function wait(n)
  while n > 0 do
    n = n + 1
  end
  return n
end
return function(x)
  if x[1] > 0.5 then wait(1) end
  return x
end
"""


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def mslua(*words):
    return subprocess.run([MSLUA, *words], capture_output=True, text=True, timeout=200, check=False,
                          env=dict(os.environ, HOME=WORK, XDG_RUNTIME_DIR=WORK), stdin=subprocess.DEVNULL)


def losses(done):
    check(done.returncode == 0, done)
    return [line for line in done.stdout.split("\n") if "loss is" in line]


def main():
    os.makedirs(WORK + "/job", exist_ok=True)
    os.chdir(WORK)
    for name, text in (("rows", ROWS), ("noise", NOISE), ("hangs", HANGS)):
        with open("job/%s.lua" % name, "w", encoding="utf-8") as file:
            file.write(text)
    for name in ("noise", "hangs"):
        with open("job/with_%s.lua" % name, "w", encoding="utf-8") as file:
            file.write(RECIPE % (name + ".lua"))
    # The files are found beside the recipe. The same losses for any number of workers, and after a resume.
    one = losses(mslua("train", "job/with_noise.lua", "--out", "one", "--no-attach"))
    check(len(one) == 16, one)
    check(losses(mslua("train", "job/with_noise.lua", "workers=3", "--out", "three", "--no-attach")) == one, "workers")
    check(losses(mslua("train", "job/with_noise.lua", "--out", "part", "--no-attach", "--max-steps", "9")) == one[:9],
          "the first steps")
    rest = losses(mslua("train", "job/with_noise.lua", "workers=2", "--out", "part", "--no-attach", "--resume"))
    check(rest and rest == one[-len(rest):], ("a resume", rest, one))
    # A run's configuration finds the files of its recipe, and not others of the same name.
    os.makedirs("other", exist_ok=True)
    for name in ("rows", "noise"):
        for folder in ("other", "one", "."):
            with open("%s/%s.lua" % (folder, name), "w", encoding="utf-8") as file:
                file.write("error 'the wrong file'\n")
    os.chdir("other")
    check(losses(mslua("train", "../one/config.lua", "--out", "again", "--no-attach")) == one, "config.lua")
    os.chdir(WORK)
    stuck = mslua("train", "job/with_hangs.lua", "--out", "hangs", "--no-attach", "--hang-timeout", "2")
    check(stuck.returncode != 0, stuck)
    line = [w for w in stuck.stderr.split("\n") if "has not returned" in w]
    check(line and "job/hangs.lua:" in line[0] and "after 2 s (sample " in line[0], stuck.stderr)
    check(any("hangs.lua:%d:" % n in line[0] for n in (2, 3, 8)), line)


main()
