#!/usr/bin/env python3
"""Every flag of every verb has an effect: each row of ROWS shows it, and a flag without a row fails.

flags_test.py MSLUA [ROW ...]
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

MSLUA = os.path.abspath(sys.argv[1])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "flags")
os.makedirs(WORK, exist_ok=True)
WRITER = os.path.abspath("tools/golden/hf.py")
os.chdir(WORK)
SOCKETS = tempfile.mkdtemp(prefix="msf", dir="/tmp")  # short: a socket's path ends at 107 bytes
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", XDG_RUNTIME_DIR=SOCKETS, HOME=WORK, XDG_CACHE_HOME=WORK)

RECIPE = """
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { epochs = 1, lr = 0.1, width = 3, sleep = false, nap = false, dies = false,
  presets = { smoke = { width = 5 } } }
local Watch = ms.Callback:extend "Watch"
function Watch:on_train_step_end()
  if p.nap then os.execute "sleep 0.05" end
  if p.dies then os.execute "kill -9 $PPID" end
  if p.sleep and ms.communication.get_rank() == 1 then os.execute "sleep 60" end
  local file = io.open("out/attach")
  if file then print "can attach" file:close() end
end
local Net = nn.Cell:extend "Net"
function Net:init() self.first, self.last = nn.Dense(4, p.width), nn.Dense(p.width, 2) end
function Net:construct(x) return self.last(ms.ops.relu(self.first(x))) end
local function rows() return ms.dataset.NumpySlicesDataset({ ms.rand({ 16, 4 }, ms.float32, "x"),
  ms.rand({ 16, 2 }, ms.float32, "y") }):batch(4) end
return ms.recipe {
  name = "flags", dataset = rows, eval_dataset = rows, network = function() return Net() end, loss = nn.MSELoss(),
  optimizer = nn.Momentum { learning_rate = p.lr, momentum = 0.9 }, train = { epochs = p.epochs },
  callbacks = Watch(), checkpoint = { save_checkpoint_steps = 2 }, expect = { loss_below = 10 },
  input = { { dtype = ms.float32, shape = { 4, 4 } }, { dtype = ms.float32, shape = { 4, 2 } } },
  parallel = { parallel_mode = ms.ParallelMode.SEMI_AUTO_PARALLEL },
}
"""
SCRIPT = """
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { width = 3, presets = { smoke = { width = 5 } } }
local function fails() error "failed" end
if arg[1] == "fails" then fails() end
if arg[1] == "ranks" then
  ms.communication.init()
  if arg[2] and ms.communication.get_rank() == 1 then os.execute "sleep 60" end
  print("sum " .. ms.ops.AllReduce()(ms.ones { 1 }):item())
end
local data = ms.dataset.NumpySlicesDataset({ ms.ones { 8, 4 }, ms.ones { 8, 2 } }):batch(2)
ms.Model(nn.Dense(4, 2), { loss_fn = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0.1 } })
  :train { 3, data, callbacks = ms.LossMonitor() }
print("width " .. p.width .. " random " .. ms.rand({ 1 }):item())
"""


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        self.all = out + err

    def __str__(self):
        return "exit %s\n%s%s" % (self.code, self.out, self.err)


def mslua(words, limit=120, stdin=""):
    """Runs a command line of mslua; after `limit` seconds it is ended, its code then None."""
    process = subprocess.Popen([MSLUA] + words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=ENVIRONMENT, start_new_session=True)
    try:
        out, err = process.communicate(stdin, timeout=limit)
        return Result(process.returncode, out, err)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, err = process.communicate()
        return Result(None, out, err)


def waits(words, text):
    """Whether the command prints `text` and does not end by itself."""
    process = subprocess.Popen([MSLUA] + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)
    seen = ""
    for line in process.stdout:
        seen += line
        if text in seen:
            break
    time.sleep(0.5)
    alive = process.poll() is None
    process.kill()
    process.communicate()
    return alive and text in seen


def without_end(folder):
    """A copy of a run's folder that does not say how the run has ended, as where its process was killed."""
    copy = folder + "_killed"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("outcome.json"))
    return copy


def worker(words):
    """A worker of a cluster whose scheduler is on another host, and does not answer."""
    variables = {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "2", "MS_SCHED_HOST": "203.0.113.7", "MS_SCHED_PORT": "9",
                 "MS_CLUSTER_TIMEOUT": "1"}
    ENVIRONMENT.update(variables)
    try:
        return mslua(words)
    finally:
        for name in variables:
            del ENVIRONMENT[name]


def keeps_nothing():
    """The process that keeps images has ended."""
    for _ in range(200):
        if not glob.glob(SOCKETS + "/**/meet-images-*", recursive=True):
            return True
        time.sleep(0.1)
    return False


def shown(folder, *flags):
    """What `cert show` says of the certificates in a folder, which are made if need be."""
    if not os.path.exists(folder):
        mslua(["cert", "make", folder, *flags])
    return mslua(["cert", "show", folder]).out.replace(folder, "")


def losses(result):
    return re.findall(r"loss is \S+", result.out)


def differs(base, what):
    return base.code == 0 and what.code == 0 and base.out != what.out


def is_json(base, what):
    """Its lines on stdout are JSON, and without the flag they are not."""
    try:
        lines = [json.loads(line) for line in what.out.splitlines()]
    except ValueError:
        return False
    try:
        json.loads(base.out.splitlines()[0])
        return False
    except (ValueError, IndexError):
        return what.code == 0 and len(lines) > 0


def says(text, code=0):
    return lambda base, what: what.code == code and text in what.all


def lines(n):
    return lambda base, what: what.code == 0 and len(losses(what)) == n and len(losses(base)) != n


def size(folder):
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder) if name.endswith(".bin"))


def contents(folder):
    return [open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder))]


def frames(base, what):
    """Both end with one error; the flag adds the functions that led to it, one a line."""
    def led(result):
        return len(re.findall(r"^  \w+\.lua:\d+: in ", result.err, re.M))
    return base.code == what.code == 2 and led(base) == 0 and led(what) >= 2


# Whatever this machine has.
os.environ["MSLUA_CUDA_LIBRARIES"] = "/nowhere"
NO_DEVICE = says(os.environ.get("MSLUA_TEST_NO_DEVICE", "libcuda.so.1 was not found"), 4)
LETTERS = ["generate", "letters.lua", "--preset", "smoke", "data_path=words"]
UNPROMPTED = LETTERS + ["--max-new", "12"]
GENERATE = UNPROMPTED + ["--prompt", "the"]
CHAT = ["chat", "talk", "--max-new", "12"]
TOKENIZER = ["data", "tokenizer", "words/input.txt"]
TOKENIZE = ["data", "tokenize", "words/input.txt", "--tokenizer", "tok"]
TRAIN = ["train", "recipe.lua", "--no-attach"]
EVAL = ["eval", "recipe.lua"]
PREDICT = ["predict", "recipe.lua", "rows.csv"]
SWEEP = ["sweep", "recipe.lua", "lr=0.1"]
FIND = ["lr-find", "recipe.lua"]
EXPORT = ["export", "recipe.lua", "net.onnx"]
SAMPLE = ["sample", "draws.lua", "drawn.png"]
VERIFY = ["verify", "recipe.lua"]
RUN = ["run", "script.lua"]
RANKS = ["ranks", "-n", "2"]

# verb and flag -> words of the command line without the flag (None: not run), the flag with its value, what shows the
# effect.
ROWS = {
    "train -n": (TRAIN, ["-n", "2", "--out", "two"], lambda b, w: w.code == 0 and os.path.exists("two/rank_1.log")),
    "train --elastic": (TRAIN, ["--elastic", "1:2", "-n", "2"], says("-n 2 starts all ranks here: leave it out", 2)),
    "train --device": (TRAIN, ["--device", "cuda"], NO_DEVICE),
    "train --preset": (TRAIN, ["--preset", "smoke"], differs),
    "train --seed": (TRAIN, ["--seed", "9"], differs),
    "train --out": (TRAIN, ["--out", "out2"], lambda b, w: w.code == 0 and os.path.exists("out2/metrics.jsonl")),
    "train --resume": (TRAIN + ["epochs=2"], ["--resume=out1/ckpt"],
                       lambda b, w: w.code == 0 and "out1/ckpt/flags-1_4.ckpt" in w.err and len(losses(w)) == 4),
    "train --init-from": (TRAIN, ["--init-from=out1/ckpt"],
                          lambda b, w: w.code == 0 and "starting from the weights of out1/ckpt/" in w.err
                          and losses(w)[0] != losses(b)[0] and len(losses(w)) == len(losses(b))),
    "train --traceback": (TRAIN + ["width=0"], ["--traceback"], frames),
    "train --log-every": (TRAIN, ["--log-every", "6", "epochs=3"], lines(2)),
    "train --progress": (TRAIN, ["--progress", "on"], lambda b, w: "mean loss" in w.err and "mean loss" not in b.err),
    "train --log-ranks": (TRAIN + ["-n", "2"], ["--log-ranks", "all"], lambda b, w: w.code == 0 and len(losses(b)) > 0
                          and len(losses(w)) == 2 * len(losses(b))),
    "train --backend": (TRAIN + ["-n", "2"], ["--backend", "mpi"], lambda b, w: b.code == 0 and w.code != 0),
    "train --iface": (TRAIN + ["-n", "2"], ["--iface", "nosuch0"], lambda b, w: b.code == 0 and "nosuch0" in w.err),
    "train --profile": (TRAIN, ["--profile", "2:2", "--out", "profiled"],
                        lambda b, w: w.code == 0 and os.path.exists("profiled/trace/step_3.json")),
    "train --max-steps": (TRAIN, ["--max-steps", "3"], lambda b, w: lines(3)(b, w) and lines(2)(
        b, mslua(TRAIN + ["train.max_steps=2", "--max-steps", "3"]))),
    "train --fast-dev-run": (TRAIN, ["--fast-dev-run=2"], lines(2)),
    "train --overfit": (TRAIN, ["--overfit", "1"], lines(1)),
    "train --recover": (None, TRAIN + ["dies=true", "--recover"], says("3 times in the same way", 5)),
    "train --max-restarts": (None, TRAIN + ["dies=true", "--recover", "--max-restarts", "0"],
                             says("0 times (--max-restarts)", 5)),
    "train --hang-timeout": (None, TRAIN + ["-n", "2", "sleep=true", "--hang-timeout", "1"], lambda b, w: w.code == 6),
    "train --heartbeat-timeout": (TRAIN, ["--heartbeat-timeout", "0.5"], says("--heartbeat-timeout expects", 2)),
    "train --no-attach": (["train", "recipe.lua", "--out", "out"], ["--no-attach"],
                          lambda b, w: "can attach" in b.out and "can attach" not in w.out),
    "eval -n": (EVAL, ["-n", "2"], lambda b, w: w.code == 0 and "rank 0 of 2" in w.err and "rank 0" not in b.err),
    "eval --ckpt": (EVAL, ["--ckpt", "nowhere"], says("nowhere", 9)),
    "eval --partial": (EVAL + ["width=4"], ["--partial"], lambda b, w: b.code == 2 and w.code == 0),
    "eval --traceback": (EVAL + ["width=0"], ["--traceback"], frames),
    "eval --device": (EVAL, ["--device", "cuda"], NO_DEVICE),
    "eval --preset": (EVAL, ["--preset", "smoke"], says("in the network", 2)),
    "eval --json": (EVAL, ["--json"], is_json),
    "eval --log-ranks": (EVAL + ["-n", "2"], ["--log-ranks", "7"], says("--log-ranks", 2)),
    "eval --backend": (EVAL + ["-n", "2"], ["--backend", "mpi"], lambda b, w: b.code == 0 and w.code != 0),
    "eval --iface": (EVAL + ["-n", "2"], ["--iface", "nosuch0"], lambda b, w: b.code == 0 and "nosuch0" in w.err),
    "eval --hang-timeout": (EVAL, ["--hang-timeout", "0.5"], says("--hang-timeout expects", 2)),
    "eval --heartbeat-timeout": (EVAL, ["--heartbeat-timeout", "0.5"], says("--heartbeat-timeout expects", 2)),
    "predict --ckpt": (PREDICT, ["--ckpt", "nowhere"], says("nowhere", 9)),
    "predict --top": (PREDICT, ["--top", "2"], says("--top has no effect", 2)),
    "predict --device": (PREDICT, ["--device", "cuda"], NO_DEVICE),
    "predict --preset": (PREDICT, ["--preset", "smoke"], says("in the network", 2)),
    "predict --json": (PREDICT, ["--json"], is_json),
    "predict --traceback": (PREDICT + ["width=0"], ["--traceback"], frames),
    "sample --ckpt": (SAMPLE, ["--ckpt", "nowhere"], says("nowhere", 9)),
    "sample --preset": (SAMPLE, ["--preset", "smoke"], says("in the network", 2)),
    "sample --traceback": (SAMPLE + ["width=0"], ["--traceback"], frames),
    "export --ckpt": (EXPORT, ["--ckpt", "nowhere"], says("nowhere", 9)),
    "export --dtype": (EXPORT, ["--dtype", "bf16"], differs),
    "export --preset": (EXPORT, ["--preset", "smoke"], says("in the network", 2)),
    "export --traceback": (EXPORT + ["width=0"], ["--traceback"], frames),
    "sweep --seeds": (SWEEP + ["--out", "sweep1"], ["--seeds", "2"], lambda b, w: w.code == 0
                      and len(w.out.splitlines()) == len(b.out.splitlines()) + 1),
    "sweep --jobs": (SWEEP, ["--jobs", "0"], says("--jobs expects", 2)),
    "sweep --out": (SWEEP, ["--out", "sweep2"], lambda b, w: w.code == 0 and "sweep2/lr=0.1,seed=1" in w.out),
    "sweep --device": (SWEEP, ["--device", "cuda", "--out", "sweep3"], NO_DEVICE),
    "sweep --preset": (SWEEP, ["--preset", "nosuch", "--out", "sweep4"], says("unknown preset", 2)),
    "sweep --json": (SWEEP, ["--json"], is_json),
    "lr-find --steps": (FIND, ["--steps", "20"], differs),
    "lr-find --device": (FIND, ["--device", "cuda"], NO_DEVICE),
    "lr-find --preset": (FIND, ["--preset", "smoke"], differs),
    "lr-find --seed": (FIND, ["--seed", "9"], differs),
    "lr-find --json": (FIND, ["--json"], is_json),
    "lr-find --traceback": (FIND + ["width=0"], ["--traceback"], frames),
    "run -n": (RUN + ["ranks"], ["-n", "2"], lambda b, w: "sum 1" in b.out and w.out.count("sum 2") == 2),
    "run --device": (RUN, ["--device", "cuda"], NO_DEVICE),
    "run --preset": (RUN, ["--preset", "smoke"], says("width 5")),
    "run --traceback": (RUN + ["fails"], ["--traceback"], frames),
    "run --seed": (RUN, ["--seed", "9"], differs),
    "run --max-steps": (RUN, ["--max-steps", "3"], lines(3)),
    "run --log-ranks": (RUN + RANKS, ["--log-ranks", "all"], lambda b, w: w.code == 0 and len(losses(w)) == 24
                        and len(losses(b)) == 12),
    "run --iface": (RUN + RANKS, ["--iface", "nosuch0"], lambda b, w: b.code == 0 and "nosuch0" in w.err),
    "run --hang-timeout": (None, RUN + RANKS + ["busy", "--hang-timeout", "1"], lambda b, w: w.code == 6),
    "run --heartbeat-timeout": (RUN, ["--heartbeat-timeout", "0.5"], says("--heartbeat-timeout expects", 2)),
    "repl -e": (["repl", "recipe.lua"], ["-e", "x = 20 + 22", "-e", "x"], lambda b, w: w.code == 0 and w.out == "42\n"),
    "repl -n": (["repl", "recipe.lua"], ["-n", "2"], lambda b, w: w.code == 0 and "rank 0 of 2" in w.err),
    "repl --backend": (["repl", "recipe.lua", "-n", "2"], ["--backend", "mpi"],
                       lambda b, w: b.code == 0 and w.code != 0),
    "repl --iface": (["repl", "recipe.lua", "-n", "2"], ["--iface", "nosuch0"],
                     lambda b, w: b.code == 0 and "nosuch0" in w.err),
    "repl --hang-timeout": (["repl", "recipe.lua", "-n", "2"], ["--hang-timeout", "0.5"],
                            says("--hang-timeout expects", 2)),
    "repl --heartbeat-timeout": (["repl", "recipe.lua", "-n", "2"], ["--heartbeat-timeout", "0.5"],
                                 says("--heartbeat-timeout expects", 2)),
    "repl --device": (["repl", "recipe.lua"], ["--device", "cuda"], NO_DEVICE),
    "repl --preset": (["repl", "recipe.lua"], ["--preset", "smoke"], differs),
    "repl --seed": (["repl", "recipe.lua"], ["--seed", "9"], differs),
    "graph --format": (["graph", "recipe.lua"], ["--format", "dot"], says("digraph")),
    "graph --preset": (["graph", "recipe.lua"], ["--preset", "smoke"], differs),
    "graph --pass": (["graph", "recipe.lua"], ["--pass", "nosuch"], says("there is no pass 'nosuch'", 2)),
    "graph -n": (["graph", "recipe.lua"], ["-n", "2"], differs),
    "graph --rank": (["graph", "recipe.lua", "-n", "2"], ["--rank", "2"], says("--rank 2", 2)),
    "data --samples": (["data", "make", "mnist"], ["fifty", "--samples", "50"],
                       lambda b, w: w.code == 0 and " 50 samples" in mslua(["data", "verify", "mnist", "fifty"]).out),
    "data --seed": (["data", "make", "mnist"], ["other", "--samples", "20", "--seed", "2"],
                    lambda b, w: w.code == 0 and contents("other") != contents("digits")),
    "data --json": (["data", "verify", "mnist", "digits"], ["--json"], is_json),
    "runs --json": (["runs", "ls"], ["--json"], is_json),
    "recipes --json": (["recipes", "ls"], ["--json"], is_json),
    "verify -n": (VERIFY, ["-n", "2"], lambda b, w: w.code == 0 and "rank 0 of 2" in w.err and "rank 0" not in b.err
                  and w.out.count("expect: ") == b.out.count("expect: ") > 0),
    "verify --device": (VERIFY, ["--device", "cuda"], NO_DEVICE),
    "verify --preset": (VERIFY, ["--preset", "smoke"], differs),
    "verify --traceback": (VERIFY + ["width=0"], ["--traceback"], frames),
    "verify --backend": (VERIFY + ["-n", "2"], ["--backend", "mpi"], lambda b, w: b.code == 0 and w.code != 0),
    "verify --iface": (VERIFY + ["-n", "2"], ["--iface", "nosuch0"], lambda b, w: b.code == 0 and "nosuch0" in w.err),
    "verify --json": (VERIFY, ["--json"], is_json),
    "prof --steps": (["prof", "recipe.lua"], ["--steps", "3"], says("median of 3")),
    "prof --steps-only": (["prof", "recipe.lua", "--steps", "2"], ["--steps-only"],
                          lambda b, w: w.code == 0 and len(w.out) < len(b.out)),
    "prof --trace": (["prof", "recipe.lua", "--steps", "2"], ["--trace", "trace.json"],
                     lambda b, w: w.code == 0 and json.load(open("trace.json"))),
    "prof --device": (["prof", "recipe.lua"], ["--device", "cuda"], NO_DEVICE),
    "prof --preset": (["prof", "recipe.lua", "--steps", "2"], ["--preset", "nosuch"], says("unknown preset", 2)),
    "prof --json": (["prof", "recipe.lua", "--steps", "2"], ["--json"], is_json),
    "ckpt --to": (["ckpt", "convert", "nosuch", "converted"], ["--to", "nosuch"], says("--to expects", 2)),
    "generate --ckpt": (GENERATE, ["--ckpt", "nosuch"], lambda b, w: b.code == 0 and w.code != 0 and "nosuch" in w.err),
    "generate --prompt": (UNPROMPTED, ["--prompt", "the"], lambda b, w: b.code == 2 and w.out.startswith("the")),
    "generate --prompt-file": (UNPROMPTED, ["--prompt-file", "prompt.txt"],
                               lambda b, w: b.code == 2 and w.out.startswith("the")),
    "generate --ids": (UNPROMPTED, ["--ids", "3,4"], lambda b, w: b.code == 2 and w.out.startswith("3,4,")),
    "generate --max-new": (LETTERS + ["--prompt", "the"], ["--max-new", "2"],
                           lambda b, w: w.code == 0 and len(w.out) < len(b.out)),
    "generate --temperature": (GENERATE, ["--temperature", "0"], differs),
    "generate --top-k": (GENERATE, ["--top-k", "1"], differs),
    "generate --top-p": (GENERATE, ["--top-p", "0.01"], differs),
    "generate --repetition-penalty": (GENERATE, ["--repetition-penalty", "1000"], differs),
    "generate --seed": (GENERATE, ["--seed", "7"], differs),
    "generate --dtype": (["generate", "talk", "--ids", "1,2,3", "--max-new", "100"], ["--dtype", "bf16"], differs),
    "generate --stop": (UNPROMPTED + ["--ids", "3"], ["--stop", "x"], says("--stop is a text", 2)),
    "generate --texts": (GENERATE, ["--texts", "3"], lambda b, w: w.code == 0 and len(w.out) > 2 * len(b.out)),
    "generate -n": (GENERATE + ["--texts", "3"], ["-n", "2"], lambda b, w: b.code == w.code == 0 and w.out == b.out
                    and "rank 0 of 2" in w.err),
    "generate --backend": (GENERATE + ["-n", "2"], ["--backend", "mpi"], lambda b, w: b.code == 0 and w.code != 0),
    "generate --preset": (["generate", "letters.lua", "data_path=words", "--prompt", "the"], ["--preset", "smoke"],
                          lambda b, w: b.code != 0 and w.code == 0),
    "generate --json": (GENERATE, ["--json"], is_json),
    "generate --traceback": (GENERATE + ["dim=0"], ["--traceback"], lambda b, w: b.code == w.code == 2
                             and len(w.err.splitlines()) > len(b.err.splitlines())),
    "chat --ckpt": (CHAT, ["--ckpt", "best"], says("--ckpt is for a recipe", 2)),
    "chat --template": (CHAT, ["--template", "nosuch"], says("expected alpaca, chatml", 2)),
    "chat --system": (CHAT, ["--system", "be brief"], differs),
    "chat --max-new": (CHAT[:2], ["--max-new", "2"], lambda b, w: w.code == 0 and len(w.out) < len(b.out)),
    "chat --temperature": (CHAT, ["--temperature", "0"], differs),
    "chat --top-k": (CHAT, ["--top-k", "1"], differs),
    "chat --top-p": (CHAT, ["--top-p", "0.01"], differs),
    "chat --repetition-penalty": (CHAT, ["--repetition-penalty", "1000"], differs),
    "chat --seed": (CHAT, ["--seed", "7"], differs),
    "chat --dtype": (["chat", "letters.lua", "--preset", "smoke", "data_path=words"], ["--dtype", "bf16"],
                     says("--dtype is for a folder", 2)),
    "chat --preset": (["chat", "letters.lua", "data_path=words"], ["--preset", "nosuch"], says("unknown preset", 2)),
    "chat --json": (CHAT, ["--json"], is_json),
    "chat --traceback": (["chat", "letters.lua", "--preset", "smoke", "data_path=words", "dim=0"], ["--traceback"],
                         lambda b, w: b.code == w.code == 2 and len(w.err.splitlines()) > len(b.err.splitlines())),
    "data --vocab": (None, TOKENIZER + ["--vocab", "300", "-o", "tok1"], lambda b, w: w.code == 0 and "300" in w.all),
    "data --kind": (None, TOKENIZER + ["--vocab", "280", "--kind", "wordpiece", "-o", "tok4"],
                    lambda b, w: w.code == 0 and "[MASK]" in open("tok4/tokenizer.json").read()),
    "data --cased": (None, TOKENIZER + ["--vocab", "280", "--kind", "wordpiece", "--cased", "-o", "tok5"],
                     lambda b, w: w.code == 0 and '"lowercase": false' in open("tok5/tokenizer.json").read()),
    "data --special": (None, TOKENIZER + ["--vocab", "280", "--special", "<x>", "-o", "tok2"],
                       lambda b, w: "<x>" in open("tok2/tokenizer.json").read()),
    "data -o": (None, TOKENIZER + ["--vocab", "280", "-o", "tok3"], lambda b, w: os.path.exists("tok3/tokenizer.json")),
    "data --tokenizer": (None, ["data", "tokenize", "words/input.txt", "--tokenizer", "nosuch", "-o", "bin1"],
                         lambda b, w: w.code != 0 and "nosuch" in w.err),
    "data --end-of-text": (None, TOKENIZE + ["--end-of-text", "<|endoftext|>", "-o", "bin2"],
                           lambda b, w: size("bin2") > size("bin")),
    "data --test-fraction": (None, TOKENIZE + ["--test-fraction", "0.5", "-o", "bin3"],
                             lambda b, w: os.path.getsize("bin3/val.bin") > os.path.getsize("bin/val.bin")),
    "ckpt --json": (["ckpt", "ls"], ["--json"], is_json),
    "doctor --calibrate": (["doctor"], ["--calibrate=maybe"], says("--calibrate expects", 2)),
    "doctor --device": (["doctor"], ["--device", "cuda"], says("--device says what --calibrate measures", 2)),
    "doctor --json": (["doctor"], ["--json"], lambda b, w: is_json(b, w) or w.out.lstrip().startswith("{")
                      and not b.out.lstrip().startswith("{")),
    "version --json": (["version"], ["--json"], is_json),
    "plan -n": (["plan", "recipe.lua"], ["-n", "2"], differs),
    "plan --explain": (["plan", "recipe.lua", "-n", "2"], ["--explain", "MatMul"], differs),
    "plan --device": (["plan", "recipe.lua"], ["--device", "h200"], differs),
    "plan --cluster": (["plan", "recipe.lua", "-n", "2"], ["--cluster", "nowhere.json"], says("nowhere.json", 2)),
    "plan --preset": (["plan", "recipe.lua"], ["--preset", "nosuch"], says("unknown preset", 2)),
    "plan --json": (["plan", "recipe.lua"], ["--json"], is_json),
    "sched --host": (None, ["sched", "--workers", "1", "--host", "203.0.113.7"],
                     lambda b, w: w.code not in (0, None) and "203.0.113.7" in w.all),
    "sched --port": (None, ["sched", "--workers", "1", "--port", "70000"],
                     says("--port expects a whole number from 0 to 65535, got 70000", 2)),
    "sched --heartbeat-timeout": (None, ["sched", "--workers", "1", "--heartbeat-timeout", "0.5"],
                                  says("--heartbeat-timeout expects", 2)),
    "sched --workers": (["sched"], [], lambda b, w: b.code not in (0, None)
                        and waits(["sched", "--workers", "3"], "3 workers")),
    "again --max-restarts": (None, ["again", "--max-restarts", "1", "--", "sh", "-c", "kill -9 $$"],
                             says("1 times (--max-restarts)", 137)),
    "keep --seconds": (None, ["keep", "flags", "--seconds", "0"], lambda b, w: w.code == 0 and keeps_nothing()),
    "sched --spares": (None, ["sched", "--workers", "1", "--spares", "1"], says("--spares (MSLUA_SPARES) is for", 4)),
    "sched --elastic": (None, ["sched", "--workers", "2", "--elastic", "1:2"], says("--elastic (MSLUA_ELASTIC) is", 4)),
    "sched --replace-after": (None, ["sched", "--workers", "1", "--replace-after", "5"],
                              says("--replace-after (MSLUA_REPLACE_AFTER) is for", 4)),
    "sched --tls": (None, ["sched", "--workers", "1", "--host", "203.0.113.7", "--tls", "nosuch.json"],
                    says("nosuch.json", 10)),
    "sched --insecure-network": (["sched", "--workers", "1", "--host", "203.0.113.7"], ["--insecure-network"],
                                 lambda b, w: b.code == 10 and w.code == 4),
    "cert --days": (["cert", "make", "days"], [], lambda b, w: b.code == 0 and shown("days") != shown("days7", "--days",
                                                                                                  "7")),
    "cert --hosts": (None, ["cert", "make", "named", "--hosts", "node-1,10.0.0.2"],
                     lambda b, w: "hosts node-1, 10.0.0.2" in shown("named")),
    "cert --job": (None, ["cert", "make", "jobs", "--job", "resnet"], lambda b, w: "job resnet" in shown("jobs")),
    "cert --password-file": (["cert", "show", "days/client.p12"], ["--password-file", "nosuch"], says("nosuch", 10)),
    "cert --json": (["cert", "show", "days"], ["--json"], is_json),
    "ps --json": (["ps"], ["--json"], is_json),
    "attach --rw": (["attach", "-e", ".set lr=0.2"], ["--rw"], lambda b, w: b.code != 0 and w.code == 0),
    "attach -e": (["attach"], ["-e", ".status"], lambda b, w: w.code == 0 and len(w.out) > 0),
    "attach --json": (["attach", "-e", ".status"], ["--json"], is_json),
    "logs -f": (["logs", "out1"], [], lambda b, w: b.code == 0 and waits(["logs", without_end("out1"), "-f"], "loss is")
                and mslua(["logs", "out1", "-f"]).code == 0),
    "logs --rank": (["logs", "two"], ["--rank", "1"], lambda b, w: w.code == 0 and b.code == 0),
    "diag --json": (["diag"], ["--json"], is_json),
    "plot --keys": (["plot", "out1"], ["--keys", "lr"], differs),
    "plot -x": (["plot", "out1"], ["-x", "lr"], lambda b, w: w.code == 0 and "  lr\n" in w.out),
    "plot --log": (["plot", "out1"], ["--log"], differs),
    "plot --svg": (["plot", "out1"], ["--svg", "curve.svg"], lambda b, w: w.code == 0 and os.path.exists("curve.svg")),
    "report -o": (["report", "out1"], ["-o", "page.html"], lambda b, w: b.code == 2 and w.code == 0
                  and "<html" in open("page.html").read()),
    "stop --now": (["stop"], ["--now"], None),  # run last: it ends the job
}
# On one host there is nothing to encrypt and nothing to consent to: a worker of a cluster shows it.
for verb, words in (("train", TRAIN), ("eval", EVAL), ("verify", VERIFY), ("run", RUN + ["ranks"]),
                    ("repl", ["repl", "recipe.lua"])):
    ROWS[verb + " --tls"] = (None, ["version"], lambda b, w, words=words:
                             "nosuch.json" in worker(words + ["--tls", "nosuch.json"]).err)
    ROWS[verb + " --insecure-network"] = (None, ["version"], lambda b, w, words=words:
                                          "has no TLS" in worker(words).err
                                          and "has no TLS" not in worker(words + ["--insecure-network"]).err)
STDIN = {"chat": "hi\n", "repl": "net.first.weight.shape[1], net.first.weight.value\n", "attach -e": ".detach\n"}

def check(name):
    if len(sys.argv) > 2 and name not in sys.argv[2:]:
        return True
    base_words, flag, effect = ROWS[name]
    stdin = STDIN.get(name, STDIN.get(name.split()[0], ""))
    base = Result(0, "", "") if base_words is None else mslua(base_words, stdin=stdin)
    what = mslua((base_words or []) + flag, stdin=stdin)
    if effect(base, what):
        return True
    print("%s has no effect that shows:\nwithout: %s\nwith %s: %s" % (name, base, flag, what))
    return False


def flags_of_help():
    """(verb, flag) of the table, as help prints it."""
    found = []
    overview = mslua(["help"]).out
    verbs = re.findall(r"^  ([a-z-]+) ", overview.split("examples")[0], re.M)
    for verb in verbs:
        page = mslua(["help", verb]).out
        section = re.search(r"\nflags\n(.*?)\n\n", page, re.S)
        for line in (section.group(1) if section else "").splitlines():
            found.append((verb, re.match(r"  (-\w\b|--[\w-]+)", line).group(1)))
    assert len(verbs) > 15, overview
    return found


def main():
    open("recipe.lua", "w").write(RECIPE)
    open("draws.lua", "w").write(RECIPE.replace("  callbacks =", """  samples = {
    images = function(net) return ms.ops.reshape(net(ms.ones { 2, 4 }), { 2, 1, 2, 1 }) end,
  },
  callbacks =""", 1))
    open("script.lua", "w").write(SCRIPT)
    open("rows.csv", "w").write("1,2,3,4\n5,6,7,8\n")
    failed = []
    table = flags_of_help()
    assert len(table) > 60, table
    for verb, flag in table:
        name = "%s %s" % (verb, flag)
        if name not in ROWS:
            print("%s has no row here: show that it has an effect" % name)
            failed.append(name)
    mslua(TRAIN + ["--out", "out1"])
    mslua(TRAIN)
    mslua(["data", "make", "mnist", "digits", "--samples", "20"])
    mslua(["data", "make", "text", "words", "--samples", "4000"])
    open("prompt.txt", "w").write("the")
    mslua(["recipes", "copy", "char_gpt", "letters.lua"])
    mslua(["train", "letters.lua", "--preset", "smoke", "data_path=words", "--max-steps", "2"])
    mslua(TOKENIZER + ["--vocab", "280", "-o", "tok"])
    subprocess.run([sys.executable, WRITER, "write", "llama", "talk", "--chat"], check=True)
    mslua(TOKENIZE + ["-o", "bin"])
    mslua(TRAIN + ["-n", "2", "--out", "two"])
    job = subprocess.Popen([MSLUA, "train", "recipe.lua", "epochs=100000000", "nap=true", "--out", "job",
                            "--log-every", "100000", "checkpoint.save_checkpoint_steps=1000000"],
                           env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            if os.path.exists("job/attach"):
                break
            time.sleep(0.1)
        failed += [name for name in sorted(ROWS) if ROWS[name][2] and not check(name)]
        for value in ("-1", "nan"):
            refused = mslua(["attach", "--rw", "-e", ".set lr=" + value])
            if refused.code == 0 or ".set lr: expected a finite number, at least 0" not in refused.all:
                print("attach accepts a rate of %s: %s" % (value, refused))
                failed.append(".set lr=" + value)
        for arguments, says in ((["--rw", "-e", ".set foo=1"], "there is no 'foo' to set; only lr can be set"),
                                (["-e", ".pause"], "error: .pause changes the training: take the writer lock")):
            refused = mslua(["attach"] + arguments)
            if refused.code == 0 or says not in refused.all:
                print("attach %s: %s" % (arguments, refused))
                failed.append(arguments[-1])
        stopped = mslua(["stop", "--now"])
        job.wait(60)
        if stopped.code != 0 or any(f.endswith(".ckpt") for f in os.listdir("job/ckpt")):
            print("stop --now: %s %s" % (stopped, os.listdir("job/ckpt")))
            failed.append("stop --now")
    finally:
        job.kill()
        job.wait()
        shutil.rmtree(SOCKETS, ignore_errors=True)
    if failed:
        sys.exit("%d of %d flags: %s" % (len(failed), len(table), ", ".join(failed)))
    print("%d flags" % len(table))


main()
