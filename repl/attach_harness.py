"""What tests of attaching share: jobs, one-shot clients, clients on a pseudo-terminal. The first argument of a test is
the program; "--device LIBRARY" behind it trains on the emulated device, of which that is the file."""

import hashlib
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
DEVICE = os.path.abspath(sys.argv[3]) if sys.argv[2:3] == ["--device"] else None
NAMES = sys.argv[4:] if DEVICE else sys.argv[2:]
ROOT = tempfile.mkdtemp(prefix="msa", dir="/tmp")  # short: a socket's path ends at 107 bytes
ENV = dict(os.environ, XDG_RUNTIME_DIR=ROOT, XDG_STATE_HOME=ROOT + "/state", OMP_NUM_THREADS="1",
           OMP_WAIT_POLICY="passive")
FAILURES = []
if DEVICE:
    os.mkdir(ROOT + "/cuda")
    for library in ("libcuda.so.1", "libnvrtc.so.12", "libcublasLt.so.12", "libcudnn.so.9"):
        os.symlink(DEVICE, ROOT + "/cuda/" + library)
    ENV.update(MSLUA_CUDA_LIBRARIES=ROOT + "/cuda", XDG_CACHE_HOME=ROOT + "/cache")
# Seconds after which something hangs, also on a machine that 8 other processes keep busy.
LIMIT = 120

RECIPE = """
local ms = require "mslua"
local ffi = require "ffi"
local nn, ops = ms.nn, ms.ops
local p = ms.params { steps = 2000, nap = 0.0, nap_until = "", lr = 0.01 }
local Net = nn.Cell:extend "Net"
function Net:init()
  self.weight = ms.Parameter(ms.initializer("normal", { 32, 16 }), "w")
  self.weight2 = ms.Parameter(ms.initializer("normal", { 16, 4 }), "w2")
  self.matmul, self.relu, self.matmul2 = ops.MatMul(), ops.ReLU(), ops.MatMul()
end
function Net:construct(x) return self.matmul2(self.relu(self.matmul(x, self.weight)), self.weight2) end
ffi.cdef "int usleep(unsigned microseconds);"
-- A short nap starts no program: that would take longer than the nap. A long one is where Lua knows it, for .diag.
local function nap()
  if p.nap < 1 then ffi.C.usleep(p.nap * 1e6) else os.execute("sleep " .. p.nap) end
end
-- Each sample comes after a nap, until there is the file.
local function source(i)
  local file = p.nap_until ~= "" and io.open(p.nap_until)
  if file then
    file:close()
  elseif p.nap > 0 then
    nap()
  end
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


def run(*args, timeout=LIMIT):
    return subprocess.run([PROGRAM, *args], env=ENV, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


def attach_arguments(*commands, rw=True, more=()):
    args = ["attach", "last"] + (["--rw"] if rw else []) + list(more)
    for c in commands:
        args += ["-e", c]
    return args


def attach(*commands, **options):
    """The answers as text, and the exit status."""
    done = run(*attach_arguments(*commands, **options))
    return done.stdout + done.stderr, done.returncode


def attach_json(*commands, rw=True):
    text, _ = attach(*commands, rw=rw, more=["--json"])
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


class Job:
    all = []

    def __init__(self, name, *args, recipe="recipe.lua", launch=(), env=None, wait=True):
        Job.all.append(self)
        self.folder = os.path.join(ROOT, name)
        args = (*(["--device", "cuda"] if DEVICE else []), *args)
        # Files: a full pipe, which nobody reads, would stop the training.
        self.out, self.err = (tempfile.TemporaryFile("w+", dir=ROOT) for _ in range(2))
        self.process = subprocess.Popen(
            [*launch, PROGRAM, "train", recipe, "--out", name, *args], env=dict(ENV, **(env or {})), cwd=ROOT,
            stdout=self.out, stderr=self.err, text=True)
        if not wait or "--no-attach" in args:
            return
        for _ in range(20 * LIMIT):
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

    def events(self):
        """The commands that have changed the job, so far."""
        path = self.folder + "/events.jsonl"
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as lines:
            return [json.loads(line)["command"] for line in lines if line.endswith("\n")]

    def end(self, limit=LIMIT):
        """What it printed and the exit status, when it has ended by itself."""
        self.process.wait(timeout=limit)
        for file in (self.out, self.err):
            file.seek(0)
        return self.out.read(), self.err.read(), self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.wait()


def make_file(name):
    """An empty file where jobs look for files."""
    with open(os.path.join(ROOT, name), "w", encoding="ascii"):
        pass


def measured(what, seconds):
    """Prints a time. No time fails a test: what hangs is ended by the limits of run, comes and Terminal.expect."""
    print("measured: %s: %.3f s" % (what, seconds))


def step_now():
    return json.loads(json.dumps(attach_json(".status", rw=False)[0]["answer"]))["step"]


def comes(holds, limit=LIMIT):
    """Whether that holds within so many seconds."""
    until = time.time() + limit
    while not holds():
        if time.time() > until:
            return False
        time.sleep(0.05)
    return True


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


class RawClient:
    """The protocol of rendezvous/control.h by hand, for clients that the program would not be."""
    PROOF, COMMAND = 9, 11

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(10)
        self.socket.connect(path)

    def send(self, kind, **fields):
        body = b"".join(struct.pack("<I", len(x)) + x for pair in sorted(fields.items())
                        for x in (pair[0].encode(), pair[1].encode()))
        head = struct.pack("<II", kind, len(body))
        self.socket.send(struct.pack("<I", 0x636C736D) + head + struct.pack("<I", crc32c(head + body)) + body)

    def receive(self):
        """The fields of the next message; none at the end."""
        data, fields, at = self.socket.recv(1 << 17), [], 16
        while at < len(data):
            size = struct.unpack_from("<I", data, at)[0]
            fields.append(data[at + 4:at + 4 + size].decode())
            at += 4 + size
        return dict(zip(fields[::2], fields[1::2]))

    def prove(self, token):
        """Answers the challenge; what the server says, which holds "why" where it refuses."""
        first = self.receive()
        if "nonce" not in first:
            return first
        proof = hashlib.blake2b(("mslua attach %s %s" % (token, first["nonce"])).encode()).hexdigest()
        self.send(self.PROOF, proof=proof)
        return self.receive()


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

    def expect(self, what, timeout=LIMIT):
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
        until = time.time() + LIMIT
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.time() > until:
                check("the terminal's client ends", False)
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.02)
        os.close(self.fd)


def main(tests):
    """Runs them, or those whose name holds the argument that is left; the exit status."""
    with open(os.path.join(ROOT, "recipe.lua"), "w", encoding="utf-8") as f:
        f.write(RECIPE)
    try:
        for test in tests:
            if not NAMES or NAMES[0] in test.__name__:
                test()
    finally:
        for job in Job.all:
            job.process.kill()
        shutil.rmtree(ROOT, ignore_errors=True)
    return 1 if FAILURES else 0
