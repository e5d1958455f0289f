#!/usr/bin/env python3
"""Trainings of several steps, and pictures of what they draw: losses, optimizers, resuming after kill -9, ranks, the
other commands, and what is refused: steps_test.py MSLUA"""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib

MSLUA = os.path.abspath(sys.argv[1])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "steps_test")
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1", HOME=WORK, XDG_CACHE_HOME=WORK)
ENVIRONMENT.pop("XDG_RUNTIME_DIR", None)
# A critic of points [n, 4], and a maker of points that it takes for real. Parameters: `more` and `extra` are text of a
# step and of the recipe that cases add.
RECIPE = """
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { rows = 16, mode = "data_parallel", critic_below = 9, epochs = 4 }
local Net = nn.Cell:extend "Gan"
function Net:init()
  self.critic = nn.SequentialCell { nn.Dense(4, 80), nn.Tanh(), nn.Dense(80, 1) }
  self.maker = nn.SequentialCell { nn.Dense(2, 8), nn.Tanh(), nn.Dense(8, 4) }
end
function Net:construct(x) return self.maker(ops.strided_slice(x, { 1, 1 }, { x.shape[1] + 1, 3 })) end
local function made(net, n) return net.maker(ms.randn { n, 2 }) end
local function real(logits) return ops.reduce_mean(ops.softplus(-logits)) end
local function points()
  ms.set_seed(3)
  local feeds = p.mode == "data_parallel" and ms.communication.get_group_size() or 1
  return ms.dataset.NumpySlicesDataset({ ms.rand { 128, 4 } + 1, ms.zeros { 128 } }, { "x", "y" }, { shuffle = false,
    num_shards = feeds, shard_id = feeds > 1 and ms.communication.get_rank() or 0 }):batch(p.rows / feeds)
end
return ms.recipe {
  name = "steps", seed = 5, network = function() return Net() end, dataset = points, eval_dataset = points,
  steps = {
    { name = "critic", params = "^critic%.", optimizer = nn.Adam { learning_rate = 0.01 },
      loss = function(net, x)
        return real(net.critic(x)) + real(-net.critic(ops.stop_gradient(made(net, x.shape[1]))))
      end },
    { name = "maker", params = "^maker%.",
      optimizer = function(steps)
        return nn.AdamW { learning_rate = nn.cosine_decay_lr { min_lr = 0, max_lr = 0.02, total_step = 4 * steps } }
      end,
      loss = function(net, x) return real(net.critic(made(net, x.shape[1]))) end }, --@more
  },
  eval = { metrics = { spread = function(output) return ops.reduce_max(output, { 2 }) end } },
  samples = { images = function(net) return ops.reshape(net(ms.ones { 6, 4 }), { 6, 1, 2, 2 }) end, columns = 3 },
  train = { epochs = p.epochs, ema = 0.9 }, parallel = { parallel_mode = p.mode, gradients_mean = true },
  checkpoint = { save_checkpoint_steps = 8, keep_checkpoint_max = 99 }, --@extra
  expect = { critic_loss_below = p.critic_below, spread_above = -100 },
}
"""


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def run(*words, code=0):
    done = subprocess.run([MSLUA, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    check(done.returncode == code, (" ".join(words), done.returncode, done.stdout + done.stderr))
    return done.stdout + done.stderr


def tensors(folder):
    """The tensors of the .safetensors files of a checkpoint, as bytes by name."""
    found = {}
    for file in os.listdir(folder):
        if not file.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, file), "rb") as f:
            data = f.read()
        size = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = data[8 + size + begin:8 + size + end]
    return found


def last_of(folder):
    return tensors(os.path.join(folder, "ckpt", "steps-4_32.ckpt"))


def numbers(data):
    return struct.unpack("<%df" % (len(data) // 4), data)


def near(got, wanted, tolerance, what):
    check(sorted(got) == sorted(wanted), (what, sorted(got), sorted(wanted)))
    for name in got:
        for a, b in zip(numbers(got[name]), numbers(wanted[name])):
            check(abs(a - b) <= tolerance, (what, name, a, b))


def write(name, more="", extra=""):
    with open(name, "w") as recipe:
        recipe.write(RECIPE.replace("--@more", more).replace("--@extra", extra))


LINE = r"epoch: \d+ step: \d+, loss is ([-\d.e]+) \(critic ([-\d.e]+), maker ([-\d.e]+)\)"


def lines(output):
    return [tuple(map(float, found)) for found in re.findall(LINE, output)]


def pixels(path):
    """Width, height and rows of a grey PNG file, without a library."""
    with open(path, "rb") as f:
        data = f.read()
    check(data[:8] == b"\x89PNG\r\n\x1a\n", path)
    at, body, head = 8, b"", None
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + size]
        check(zlib.crc32(kind + chunk) == struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0], path)
        head = chunk if kind == b"IHDR" else head
        body += chunk if kind == b"IDAT" else b""
        at += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", head[:10])
    check((depth, colour) == (8, 0), (depth, colour))
    check(len(zlib.decompress(body)) == height * (width + 1), path)
    return width, height


shutil.rmtree(WORK, ignore_errors=True)
os.makedirs(WORK)
os.chdir(WORK)
write("r.lua")

# Losses of each step in the lines, the records and the results of the epoch.
whole = run("train", "r.lua", "--out", "whole")
losses = lines(whole)
check(len(losses) == 32, whole)
for total, critic, maker in losses:
    check(abs(total - critic - maker) <= 1e-6 * total, (total, critic, maker))
check(losses[-1][1] < losses[0][1], "the critic learns: %s" % losses)
# Every so many steps of the training, whose epochs have 8.
check(lines(run("train", "r.lua", "--out", "thin", "--log-every", "10")) == losses[9::10], "every tenth loss")
with open("whole/metrics.jsonl") as f:
    record = json.loads(f.readline())
check({"loss", "critic_loss", "maker_loss", "critic_lr", "maker_lr"} <= set(record), record)
check((record["critic_lr"], record["maker_lr"]) == (0.01, 0.02), record)
wanted = last_of("whole")
check("moment1.critic.0.weight" in wanted and "ema.maker.2.bias" in wanted, sorted(wanted))

# Pictures: a grid of 3 columns of 2x2 pixels, 2 pixels around each; the same from a checkpoint.
for epoch in range(1, 5):
    check(pixels("whole/samples/epoch_%d.png" % epoch) == (14, 10), epoch)
run("sample", "r.lua", "out/drawn.png", "--ckpt", "whole/ckpt")
with open("out/drawn.png", "rb") as a, open("whole/samples/epoch_4.png", "rb") as b:
    check(a.read() == b.read(), "sample draws what training drew")

# Killed three times, between and within steps, and resumed: the same lines and bits.
rest = ""
for number in (8, 16, 24):
    killed = subprocess.Popen([MSLUA, "train", "r.lua", "--out", "parts", *(["--resume"] if number > 8 else [])],
                              env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = "parts/ckpt/steps-%d_%d.ckpt" % (number // 8, number)
    while killed.poll() is None and not os.path.exists(until):
        time.sleep(0.001)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
rest = run("train", "r.lua", "--out", "parts", "--resume")
if lines(rest):
    check(lines(rest) == losses[-len(lines(rest)):], "the lines after resuming")
check(last_of("parts") == wanted, "a resumed training has other bits")
run("train", "r.lua", "--out", "stopped", "--max-steps", "13", "checkpoint.save_checkpoint_steps=13")
rest = run("train", "r.lua", "--out", "stopped", "--resume", "checkpoint.save_checkpoint_steps=8")
check(lines(rest) == losses[13:], (lines(rest), losses[13:]))
check(last_of("stopped") == wanted, "resumed in the middle of an epoch: other bits")

# Ranks share each batch, and the noise; micro-batches share the rows.
run("train", "r.lua", "--out", "two", "-n", "2")
near(last_of("two"), wanted, 2e-5, "two ranks")
run("train", "r.lua", "--out", "slices", "-n", "2", "parallel.enable_parallel_optimizer=true",
    "parallel.parallel_optimizer_config={parallel_optimizer_threshold=1}")
sliced = last_of("slices")
near({n: sliced[n] for n in sliced if n[:2] in ("cr", "ma")}, {n: wanted[n] for n in wanted if n[:2] in ("cr", "ma")},
     2e-5, "optimizers' state in slices")
micro = run("train", "r.lua", "--out", "micro", "train.accumulate_steps=2", "train.clip_norm=1")
check(len(lines(micro)) == 32, micro)
with open("micro/metrics.jsonl") as f:
    check(json.loads(f.readline())["grad_norm"] > 0, "the norm of both steps' gradients")
check(len(lines(run("train", "r.lua", "--out", "bf16", "train.amp=bf16"))) == 32, "bf16")

# The other commands.
output = run("verify", "r.lua")
check("expect: critic_loss below 9" in output and "expect: eval_spread above -100" in output, output)
run("verify", "r.lua", "critic_below=0.001", code=8)
run("eval", "r.lua", "--ckpt", "whole/ckpt")
graph = run("graph", "r.lua")
check("critic/" in graph and "loss.maker" in graph, graph[:2000])
check("all_reduce" in run("plan", "r.lua", "-n", "2"), "plan")
check("step " in run("prof", "r.lua", "--steps", "3"), "prof")
stopping = run("train", "r.lua", "--out", "early",
               "train.early_stopping={monitor = 'critic_loss', min_delta = 100, patience = 2}", "epochs=9")
check(len(lines(stopping)) == 24, stopping)

# What is refused, at its line.
ADAM = "optimizer = nn.Adam { learning_rate = 0.01 }"
LOSS = "loss = function(net, x) return real(net.critic(x)) end"
for more, extra, words, message in [
    ("{ name = 'both', %s, %s }," % (ADAM, LOSS), "", [],
     "steps: parameter 'critic.0.weight' belongs to the steps 'critic' and 'both': one optimizer updates a parameter"),
    ("{ name = 'maker', %s, %s }," % (ADAM, LOSS), "", [], "recipe: steps: 3: there are two steps 'maker'"),
    ("{ name = 'a b', %s, %s }," % (ADAM, LOSS), "", [],
     "steps: 3: name: expected letters, digits and '_', got \"a b\""),
    ("{ name = 'third', %s }," % ADAM, "", [], "steps: 3: loss is missing: expected a function"),
    ("{ name = 'third', %s, %s, every = 2 }," % (ADAM, LOSS), "", [], "steps: 3: unknown key 'every'"),
    ("{ name = 'third', params = '^judge', %s, %s }," % (ADAM, LOSS), "", [],
     "steps: third: params selects none of the network's 8 parameters"),
    ("{ name = 'third', params = '^none', %s, loss = function(net, x) return x end }," % ADAM, "", [], "third"),
    ("", ADAM + ",", [], "recipe: optimizer and steps: each step has its own optimizer"),
    ("", "loss = nn.MSELoss(),", [], "recipe: loss and steps: each step has its own loss"),
    ("", "", ["-n", "2", "mode=semi_auto_parallel"], "steps go with data_parallel ranks, not with parallel_mode = "
     '"semi_auto_parallel"'),
]:
    write("bad.lua", more, extra)
    output = run("train", "bad.lua", "--out", "bad", *words, code=2)
    check(message in output and "bad.lua:" in output, (message, output))
check("each of several steps has a learning rate of its own" in run("lr-find", "r.lua", code=2), "lr-find")
write("flat.lua")
with open("flat.lua") as f:
    text = f.read().replace("{ 6, 1, 2, 2 }", "{ 6, 4 }")
with open("flat.lua", "w") as f:
    f.write(text)
output = run("sample", "flat.lua", "flat.png", "--ckpt", "whole/ckpt", code=2)
check("samples: images: expected pictures [n, c, h, w]" in output, output)
check("expected a file that ends in .png" in run("sample", "r.lua", "out.jpg", "--ckpt", "whole/ckpt", code=2), "jpg")
print("passed")
