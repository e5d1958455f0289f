"""Trainings of tests/recovery/lenet.lua, in folders of their own: starts them, kills them, reads what they leave."""

import argparse
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
RECIPE = os.path.join(HERE, "lenet.lua")
PATIENCE = 120  # seconds without a new line of a job until it counts as hanging
GRACE = 10  # seconds in which what is left of a job that has ended ends by itself
DRAWS = 20  # of one trial, until its fault meets the job
TAIL = 40  # lines of the output of a trial that does not hold
PARTS = ("loss lines", "last checkpoint", "best checkpoint", "steps of metrics.jsonl")  # of what results() gives


def parser(doc):
    """Of a program's flags, whose help begins with `doc`: argparse takes the usage for a format."""
    return argparse.ArgumentParser(usage=doc.replace("%", "%%"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def positive(text):
    """Whether it is a number above 0."""
    try:
        return float(text) > 0
    except ValueError:
        return False


def processes(runtime):
    """Processes of the job: those with its runtime folder in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as f:
                if ("XDG_RUNTIME_DIR=" + runtime).encode() in f.read().split(b"\0"):
                    with open(f"/proc/{name}/cmdline", "rb") as g:
                        found.append((int(name), g.read().decode(errors="replace").split("\0")))
        except OSError:
            pass
    return found


def rank_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            env = dict(v.split(b"=", 1) for v in f.read().split(b"\0") if b"=" in v)
    except OSError:
        return None
    for name in (b"MSLUA_RANK", b"OMPI_COMM_WORLD_RANK", b"MS_NODE_ID"):
        if name in env and env[name].isdigit():
            return int(env[name])
    return None


def kill(pid, sig=signal.SIGKILL):
    try:
        os.kill(pid, sig)
        return True
    except OSError:
        return False


def tail(text):
    return "\n".join("  | " + line for line in text.splitlines()[-TAIL:])


class Job:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.runtime = os.path.join(folder, "rt")
        os.makedirs(self.runtime, mode=0o700)
        self.out = os.path.join(folder, "run")
        self.env = dict(os.environ, XDG_RUNTIME_DIR=self.runtime, OMP_NUM_THREADS="1")
        self.log = open(os.path.join(folder, "output.txt"), "ab")
        self.main = {}
        self.again = {}  # of what was started again: when
        self.train = ["train", RECIPE, "--out", self.out] + args.overrides
        self.client = Client(args.mslua, self.env, args.at) if args.client else None
        if args.mode == "cluster":
            self.env.update(MS_ENABLE_RECOVERY="1", MS_RECOVERY_PATH=os.path.join(folder, "recovery"),
                            MS_WORKER_NUM=str(args.ranks), MS_SCHED_HOST="127.0.0.1", MS_SCHED_PORT=str(free_port()))

    def start(self, what="job"):
        a = self.args
        env = dict(self.env)
        if a.mode == "native":
            command = [a.mslua] + self.train + ["-n", str(a.ranks), "--recover"]
        elif a.mode == "mpirun":
            command = [a.mslua, "again", "--", "mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(a.ranks),
                       a.mslua] + self.train
        elif what == "scheduler":
            command = [a.mslua, "sched"]
        else:
            env.update(MS_ROLE="MS_WORKER", MS_NODE_ID=str(what))
            command = [a.mslua] + self.train
        self.main[what] = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self.log,
                                           stderr=subprocess.STDOUT)

    def start_all(self):
        if self.args.mode != "cluster":
            return self.start()
        for what in ["scheduler"] + list(range(self.args.ranks)):
            self.start(what)

    def ranks(self):
        found = {}
        for pid, command in processes(self.runtime):
            rank = rank_of(pid)
            if rank is not None and "train" in command and "mpirun" not in command[0]:
                found[rank] = pid
        return found

    def keepers(self):
        return [pid for pid, command in processes(self.runtime) if command[1:2] == ["keep"]]

    def ended(self):
        if self.client:
            self.client.play()
        return all(p.poll() is not None for p in self.main.values())

    def wait(self, deadline):
        while not self.ended() and time.time() < deadline:
            time.sleep(0.01)
        return self.ended()

    def forgotten(self):
        """Whether the workers are done, and the scheduler, killed since, has removed all that it knew of the job."""
        workers = [p for what, p in self.main.items() if what != "scheduler"]
        return ("scheduler" in self.main and all(p.poll() == 0 for p in workers) and
                not os.path.exists(os.path.join(self.env["MS_RECOVERY_PATH"], "scheduler.json")))

    def codes(self):
        """Of each process that was started: its exit code, or None while it runs."""
        return {what: p.poll() for what, p in self.main.items()}

    def failed(self):
        """Whether a process ended otherwise than with 0: those that were killed when the job was done do not count."""
        codes = self.codes()
        done = codes.get("scheduler") == 0 or self.forgotten()
        return any(code for code in codes.values() if not (done and code == -signal.SIGKILL))

    def written(self):
        """How much the job has printed and recorded: it grows while the job trains, however slowly."""
        size = os.path.getsize(self.log.name)
        for root, _, files in os.walk(self.out):
            for name in files:
                try:
                    size += os.path.getsize(os.path.join(root, name))
                except OSError:
                    pass
        return size

    def steps(self):
        """How many steps rank 0 has told of: each is a line of its log."""
        try:
            with open(os.path.join(self.out, "rank_0.log"), "rb") as f:
                return sum(line.startswith(b"epoch") for line in f)
        except OSError:
            return 0

    def output(self):
        with open(self.log.name, errors="replace") as f:
            return f.read()

    def kill_everything(self):
        if self.client:
            self.client.end()
        for pid, _ in processes(self.runtime):
            kill(pid)
        for p in self.main.values():
            p.kill()  # it may be starting again just now, and show no environment
            p.wait()


class Patience:
    """With a job: ends when the job has printed and recorded nothing for a while."""

    def __init__(self, job):
        self.job, self.looked, self.written, self.since = job, 0, -1, time.time()

    def over(self):
        now = time.time()
        if now - self.looked > 1:
            self.looked = now
            written = self.job.written()
            if written != self.written:
                self.written, self.since = written, now
        return now - self.since > PATIENCE


class Client:
    """Attaches as often as it takes until the learning rate is to change after step `at`."""

    def __init__(self, mslua, env, at):
        self.env, self.at = env, at
        self.command = [mslua, "attach", "last", "--rw"]
        for line in (".watch fc1.weight every 7", ".pause", f".set lr=0.005 at {at}", ".step 2", ".resume"):
            self.command += ["-e", line]
        self.process, self.said, self.over, self.scheduled = None, "", False, False

    def play(self):
        """To be called often."""
        if self.over:
            return
        if self.process is None:
            self.process = subprocess.Popen(self.command, env=self.env, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if self.process.poll() is None:
            return
        text = self.process.communicate()[0]
        self.said += text
        self.scheduled = re.search(rf"scheduled at step {self.at}\b", text) is not None
        self.over = self.scheduled or "lr " in text and " -> 0.005" in text  # now, if it came too late
        self.process = None

    def end(self):
        self.over = True
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


def restart_killed(job):
    """The harness is the user who starts again what was killed. Gives whether there was something."""
    if "scheduler" in job.main and job.main["scheduler"].poll() == 0:
        # The job is done: who was killed after it had left is not missed, and who was started again just then, for the
        # scheduler had not ended yet, waits for nobody.
        for what, when in job.again.items():
            if time.time() - when > GRACE:
                job.main[what].kill()
        return False
    killed = [what for what, process in job.main.items() if process.poll() is not None and process.returncode < 0]
    if job.forgotten():
        return False
    for what in killed:
        job.start(what)
        job.again[what] = time.time()
    return bool(killed)


def done(job):
    """Whether the job has ended, and nothing of it is to be started again, as it is here. Waits a moment for it."""
    return not restart_killed(job) and job.wait(time.time() + 0.05) and not restart_killed(job)


def digest_of(checkpoints):
    """The name and the tensors of the newest."""
    number = lambda path: [int(n) for n in re.findall(r"\d+", os.path.basename(path))]
    newest = max(checkpoints, key=number)
    digest = hashlib.blake2b()
    for name in sorted(os.listdir(newest)):
        if name.endswith(".safetensors"):
            with open(os.path.join(newest, name), "rb") as f:
                digest.update(name.encode() + f.read())
    return os.path.basename(newest), digest.hexdigest()


def results(job):
    """What the run left: loss lines by rank, tensors of the last and the best checkpoint, steps of metrics.jsonl."""
    lines = {}
    for r in range(job.args.ranks):
        with open(os.path.join(job.out, f"rank_{r}.log"), errors="replace") as f:
            lines[r] = [line for line in f if line.startswith("epoch")]
    checkpoints = []
    for root, folders, _ in os.walk(os.path.join(job.out, "ckpt")):
        checkpoints += [os.path.join(root, d) for d in folders if d.endswith(".ckpt")]
    best = [c for c in checkpoints if os.path.basename(os.path.dirname(c)) == "best"]
    others = [c for c in checkpoints if c not in best]
    with open(os.path.join(job.out, "metrics.jsonl")) as f:
        steps = [json.loads(line) for line in f]
    return lines, digest_of(others), digest_of(best) if best else None, [(s["step"], "loss" in s) for s in steps]
