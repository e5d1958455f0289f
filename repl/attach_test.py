#!/usr/bin/env python3
"""Attaching to a running job, through the program: commands, locks, leases, equal bits, a terminal, floods.

usage: attach_test.py PROGRAM
"""

import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
ROOT = tempfile.mkdtemp(prefix="msa", dir="/tmp")  # short: a socket's path ends at 107 bytes
ENV = dict(os.environ, XDG_RUNTIME_DIR=ROOT, XDG_STATE_HOME=ROOT + "/state", OMP_NUM_THREADS="1",
           OMP_WAIT_POLICY="passive")
FAILURES = []

RECIPE = """
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { steps = 2000, nap = 0.0, lr = 0.01 }
local Net = nn.Cell:extend "Net"
function Net:init()
  self.weight = ms.Parameter(ms.initializer("normal", { 32, 16 }), "w")
  self.weight2 = ms.Parameter(ms.initializer("normal", { 16, 4 }), "w2")
  self.matmul, self.relu, self.matmul2 = ops.MatMul(), ops.ReLU(), ops.MatMul()
end
function Net:construct(x) return self.matmul2(self.relu(self.matmul(x, self.weight)), self.weight2) end
local function source(i)
  if p.nap > 0 then os.execute("sleep " .. p.nap) end
  return ms.rand({ 32 }, ms.float32, "x" .. i % 7), ms.rand({ 4 }, ms.float32, "y" .. i % 7)
end
return ms.recipe {
  name = "walk", seed = 1,
  dataset = function() return ms.dataset.GeneratorDataset(source, { "x", "y" }, { length = 2000 }):batch(4) end,
  network = function() return Net() end,
  loss = nn.MSELoss(), optimizer = nn.Momentum { learning_rate = p.lr, momentum = 0.9 },
  train = { epochs = 100000, max_steps = p.steps },
  checkpoint = { save_checkpoint_steps = 1000000, keep_checkpoint_max = 2 },
}
"""


def check(name, ok, detail=""):
    print(("ok    " if ok else "FAIL  ") + name + ("" if ok else "\n      " + str(detail)[:1500]), flush=True)
    if not ok:
        FAILURES.append(name)


def run(*args, timeout=30):
    return subprocess.run([PROGRAM, *args], env=ENV, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


def attach(*commands, rw=True, more=()):
    """The answers as text, and the exit status."""
    args = ["attach", "last"] + (["--rw"] if rw else []) + list(more)
    for c in commands:
        args += ["-e", c]
    done = run(*args)
    return done.stdout + done.stderr, done.returncode


def attach_json(*commands, rw=True):
    text, _ = attach(*commands, rw=rw, more=["--json"])
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


class Job:
    all = []

    def __init__(self, name, *args, recipe="recipe.lua"):
        Job.all.append(self)
        self.folder = os.path.join(ROOT, name)
        self.process = subprocess.Popen(
            [PROGRAM, "train", recipe, "--out", name, *args], env=ENV, cwd=ROOT, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        if "--no-attach" in args:
            return
        for _ in range(400):
            if self.sockets() or self.process.poll() is not None:
                break
            time.sleep(0.05)

    def sockets(self):
        """The folder of the job's sockets, when rank 0 listens."""
        if not os.path.exists(self.folder + "/attach"):
            return None
        with open(self.folder + "/attach", encoding="ascii") as f:
            folder = os.path.join(ROOT, "mslua", f.read().strip())
        return folder if os.path.exists(folder + "/rank_0.sock") else None

    def end(self):
        """Standard output and the exit status, when it has ended by itself."""
        out, err = self.process.communicate(timeout=60)
        return out, err, self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.communicate()


def step_now():
    return json.loads(json.dumps(attach_json(".status", rw=False)[0]["answer"]))["step"]


def test_commands():
    job = Job("a", "steps=1000000", "nap=0.002")
    listed = [json.loads(line) for line in run("ps", "--json").stdout.splitlines()]
    check("ps lists the job", len(listed) == 1 and listed[0]["name"] == "walk", listed)
    text, code = attach(".ranks", ".params", ".plan", ".mem", ".graph matmul", ".tail 3", ".plot", ".layout w2",
                        ".who", ".help", rw=False)
    check("snapshots answer", code == 0 and "w2" in text and "nodes in" in text and "writer lock" in text, text)
    text, code = attach(".pause", rw=False)
    check("an observer cannot pause", code == 2 and "take the writer lock" in text, text)
    text, code = attach(".puase")
    check("a wrong command is corrected", code == 2 and "did you mean 'pause'" in text, text)
    answers = attach_json(".pause", ".status", ".step 3", ".stat w", ".set lr=0.5", ".step", ".resume")
    steps = [a["answer"].get("step") for a in answers if isinstance(a["answer"], dict) and "step" in a["answer"]]
    check("pause, step, resume", len(answers) == 7 and all(a["ok"] for a in answers), answers)
    check("steps are exact", steps[1] == steps[0] and steps[2] == steps[0] + 3, answers)
    answers = attach_json(".stat Net/matmul", ".grad w2", ".stat w2", ".dump w2", rw=False)
    check("activations, gradients, parameters", all(a["ok"] for a in answers), answers)
    check("a dump has all elements", len(answers[3]["answer"]["values"]) == 64, answers[3])
    text, _ = attach(".watch Net/matmul every 2 limit 3", ".stat w", ".grad w", ".grad w2", ".watches")
    check("a watch is accepted", "watching Net/matmul" in text and "every 2" in text, text)
    text, code = attach(".save mine", ".dump w mine.safetensors")
    check("save and dump write files", code == 0 and os.path.exists(job.folder + "/mine.safetensors"), text)
    saved = re.search(r"saved (\S+)", text)
    shown = run("ckpt", "verify", saved.group(1) if saved else "none")
    check("the checkpoint verifies", shown.returncode == 0, text + shown.stderr)
    with open(job.folder + "/events.jsonl", encoding="utf-8") as events:
        recorded = [json.loads(line)["command"] for line in events]
    check("interventions are recorded", ".set lr=0.5" in recorded and ".pause" in recorded, recorded)
    done = run("stop")
    _, err, code = job.end()
    check("stop saves and ends with 75", done.returncode == 0 and code == 75 and "saved" in err, (done, err, code))
    check("the endpoint is gone", run("ps", "--json").stdout == "" and not os.path.exists(job.folder + "/attach"))


def test_equal_bits():
    quiet = Job("quiet", "steps=300", "--no-attach").end()
    job = Job("loud", "steps=300", "nap=0.001")
    pauses = 0
    try:
        while job.process.poll() is None and pauses < 6:
            text, code = attach(".pause", ".stat Net/matmul", ".watch %7", ".grad w", ".step 2", ".resume")
            pauses += code == 0
    except subprocess.TimeoutExpired:
        check("pauses end", False)
    loud = job.end()
    check("pauses and watches leave the losses bit for bit", pauses >= 1 and quiet[0] == loud[0] and quiet[0] != "",
          (pauses, quiet[0][-300:], loud[0][-300:], loud[1]))


def test_lease():
    job = Job("lease", "steps=1000000", "nap=0.002")
    client = Terminal("attach", "--rw")
    client.send(".pause\n")
    client.expect("paused at step")
    os.kill(client.pid, signal.SIGKILL)
    os.waitpid(client.pid, 0)
    before = step_now()
    time.sleep(3)
    check("a dead client's pause ends", step_now() > before)
    job.kill()


class Terminal:
    """The program on a pseudo-terminal."""

    def __init__(self, *args):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execve(PROGRAM, [PROGRAM, *args], dict(ENV, TERM="xterm"))

    def send(self, text):
        os.write(self.fd, text.encode())

    def expect(self, what, timeout=15):
        until = time.time() + timeout
        while time.time() < until:
            plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", self.text)
            found = re.search(what, plain)
            if found:
                self.text = plain[found.end():]
                return True
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    break
        check("terminal shows " + what, False, self.text[-800:])
        return False

    def end(self):
        until = time.time() + 15
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.time() > until:
                check("the terminal's client ends", False)
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.02)
        os.close(self.fd)


def test_transcript():
    job = Job("t", "steps=1000000", "nap=0.002")
    t = Terminal("attach")
    ok = t.expect(r"attached to [0-9a-f]{6} walk \(1 rank, started .*observer")
    ok = ok and t.expect(r"e\d+:s\d+ run> ")
    for line, answer in ((".ranks", r"rank +host +pid"), (".pause", "take the writer lock first"),
                         (".rw", "writer lock taken"), (".pause", r"paused at step \d+ on 1/1 ranks"),
                         (".step 2", r"paused at step \d+"), (".stat w", r"w f32\[32,16\]  mean"),
                         (".set lr=0.005", r"lr 0.01 -> 0.005"), (".resume", "goes on from step"),
                         (".watch w2 every 5 limit 2", r"s\d+  w2  mean"), ("1 + 1", r"\n2"),
                         ("ms.run.stat('w').stat.elements", r"\n512"), (".pl\t", "plan"), ("\x15.plan", "nodes in")):
        t.send(line + ("" if line.endswith("\t") else "\n"))
        ok = t.expect(answer) and ok
    t.send("while true do end\n")
    time.sleep(0.5)
    t.send("\x03")
    # Ctrl-D counts where the editor reads, not before the prompt.
    ok = t.expect("interrupted") and t.expect(r"run!?> ") and ok
    t.send("\x04")
    ok = t.expect("detached; training continues") and ok
    t.end()
    check("a session on a terminal", ok)
    job.kill()


def test_diagnosis():
    job = Job("d", "steps=1000000", "nap=5")
    time.sleep(0.5)
    start = time.time()
    done = run("diag", "--json")
    took = time.time() - start
    answer = json.loads(done.stdout.splitlines()[0])["answer"] if done.stdout else {}
    check("diag names the sleeping dataset", answer.get("phase") == "data" and "recipe.lua:" in answer.get("lua", ""),
          done)
    check("diag takes its second, with room for a slow machine", took < 10, took)
    text, _ = attach(".stack", rw=False)
    check("the native stack is shown", "native" in text and len(text.splitlines()) > 3, text)
    job.kill()


def comes(holds, limit=10):
    """Whether that holds within so many seconds."""
    until = time.time() + limit
    while not holds():
        if time.time() > until:
            return False
        time.sleep(0.05)
    return True


def test_lua_at_the_rank():
    job = Job("l", "steps=1000000", "nap=0.002")
    text, code = attach("@all 1 + 1", "@0 ms.ones{2}", "@all ms.run.stat('w2').stat.elements", "@0 print('a') return 2")
    check("Lua runs at the rank", code == 0 and "[0] 2" in text and "f32[2]" in text and "[0] 64" in text, text)
    text, code = attach("@all 1", rw=False)
    check("Lua at a rank needs the writer lock", code == 2 and "writer lock" in text, text)
    text, code = attach("@3 1")
    check("there is no rank 3", code == 2 and "ranks 0 to 0" in text, text)
    text, code = attach("@all io, os.execute, pcall(require, 'ffi')")
    check("files and processes are out of reach", "nil" in text and "true" not in text, text)
    text, _ = attach('@all string.rep("x", 1e10):rep(1e3)')
    check("no string fills the memory", len(text) < 100000, text[-300:])
    bombs = ("while true do end", "while true do print(1) end",
             'local s = string.rep("a", 5e4) return s:find(string.rep("a?", 3e4) .. string.rep("a", 5e4))',
             "local t = {} while true do t[#t + 1] = string.rep('x', 1e6) .. #t end")
    for bomb in bombs:
        before, start = step_now(), time.time()
        text, code = attach("@all " + bomb)
        took = time.time() - start
        check("ended: " + bomb[:40], code == 2 and took < 10 and "[0] " in text, (took, text[-300:]))
        check("training went on", comes(lambda: step_now() > before))
    text, code = attach("@all 2 + 2")
    check("Lua runs again after them", "[0] 4" in text, text)
    job.kill()


def test_ranks():
    text = RECIPE.replace("if p.nap > 0 then", "if p.nap > 0 and ms.communication.get_rank() == 1 then")
    text = text.replace("train = {", 'parallel = { parallel_mode = "data_parallel" }, train = {')
    with open(os.path.join(ROOT, "ranks.lua"), "w", encoding="utf-8") as f:
        f.write(text)
    job = Job("r", "-n", "2", "steps=1000000", "nap=2", recipe="ranks.lua")
    listed = [json.loads(line) for line in run("ps", "--json").stdout.splitlines()]
    check("ranks are one job", len(listed) == 1 and listed[0]["ranks"] == 2, listed)
    text, _ = attach(".ranks", "@all 1 + 1", "@1 40 + 2")
    check("every rank answers", re.search(r"^0 ", text, re.M) and re.search(r"^1 ", text, re.M) and "[0] 2" in text
          and "[1] 2" in text and "[1] 42" in text and "[0] 42" not in text, text)
    time.sleep(1)
    start = time.time()
    done = run("diag")
    check("diag names the rank that the other waits for",
          re.search(r"rank 0 waits for rank 1, in its data .*ranks.lua:", done.stdout), done)
    check("diag takes its 3 seconds, with room, stacks and all", time.time() - start < 30, time.time() - start)
    text, code = attach(".set lr=0.1")
    check("one rank alone is not changed", code == 2 and "not built yet" in text, text)
    job.kill()


def test_intruders():
    job = Job("i", "steps=1000000", "nap=0.002")
    folder = job.sockets()
    for path, mode in ((folder, 0o700), (folder + "/token", 0o600), (folder + "/rank_0.sock", 0o600)):
        check("mode of " + os.path.basename(path), os.stat(path).st_mode & 0o777 == mode)
    descriptors = len(os.listdir("/proc/%d/fd" % job.process.pid))
    crowd, refused = [], 0
    for i in range(60):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(5)
        s.connect(folder + "/rank_0.sock")
        refused += b"no more" in s.recv(65536)
        try:
            if i >= 30:
                s.send(os.urandom(1 + i * 37 % 3000))
        except BrokenPipeError:  # refused, and closed
            pass
        crowd.append(s)
    check("a crowd is refused", refused > 0, refused)
    for s in crowd:
        s.close()
    token = folder + "/token"
    with open(token, encoding="ascii") as f:
        true_token = f.read()
    with open(token, "w", encoding="ascii") as f:
        f.write("0" * 64)
    text, code = attach(".ranks")
    check("a wrong token is refused", code == 4 and "refused" in text, (text, code))
    with open(token, "w", encoding="ascii") as f:
        f.write(true_token)
    clients = [Terminal("attach") for _ in range(34)]
    served = sum(c.expect(r"attached to|no more", timeout=20) for c in clients)
    check("clients are served or told", served == 34, served)
    for c in clients:
        os.kill(c.pid, signal.SIGKILL)
        c.end()
    time.sleep(0.5)
    check("descriptors are back", len(os.listdir("/proc/%d/fd" % job.process.pid)) <= descriptors,
          (descriptors, len(os.listdir("/proc/%d/fd" % job.process.pid))))
    text, code = attach(".status", rw=False)
    check("the job still answers", code == 0 and "run" in text, text)
    job.kill()


def main():
    with open(os.path.join(ROOT, "recipe.lua"), "w", encoding="utf-8") as f:
        f.write(RECIPE)
    try:
        tests = [test_commands, test_equal_bits, test_lease, test_transcript, test_diagnosis, test_lua_at_the_rank,
                 test_ranks, test_intruders]
        for test in tests:
            if len(sys.argv) < 3 or sys.argv[2] in test.__name__:
                test()
    finally:
        for job in Job.all:
            job.process.kill()
        shutil.rmtree(ROOT, ignore_errors=True)
    return 1 if FAILURES else 0


sys.exit(main())
