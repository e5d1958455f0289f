#!/usr/bin/env python3
"""Stops (SIGSTOP) or kills one rank of a job of two, in each way of starting one and at each moment of its life.

usage: stop_campaign.py MSLUA [--modes M,...] [--moments M,...] [--signals STOP,KILL] [--limit S] [--trials N]
[--verbose]

A trial holds when all other processes of the job have ended within S seconds (5) of the signal, none of them with
exit code 0, and what they printed names the rank, its process and its host. At the moment `end` the others may also
have
finished before they could notice. A rank that is killed before it has met the others looks like one that nobody has
started: where nothing watches processes (all but `launcher` and `mpirun`) the others say that it is missing and
wait, so
that KILL at `start` and `meeting` does not hold there. Prints a line for each trial that does not hold, a table, and
the times it took.
"""

import argparse
import glob
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

MODES = ("launcher", "scheduler", "table", "torchrun", "mpirun", "srun")
MOMENTS = ("start", "meeting", "compile", "step", "save", "end")
PATIENCE = 40  # seconds until a trial counts as hanging

RECIPE = """
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { epochs = 1, every = 1000000 }
local Net = nn.Cell:extend "Net"
function Net:init()
  self.first = nn.Dense(64, 256)
  self.second = nn.Dense(256, 1)
end
function Net:construct(x) return self.second(ms.ops.ReLU()(self.first(x))) end
return ms.recipe {
  name = "campaign", seed = 3,
  dataset = function()
    ms.set_seed(7)
    return ms.dataset.NumpySlicesDataset({ ms.rand { 64, 64 }, ms.rand { 64, 1 } }, { "x", "y" }):batch(4, true)
  end,
  network = function() return Net() end, loss = nn.MSELoss(),
  optimizer = nn.Momentum { learning_rate = 0.001, momentum = 0.9 },
  train = { epochs = p.epochs },
  parallel = { parallel_mode = "data_parallel", gradients_mean = true },
  checkpoint = { save_checkpoint_steps = p.every, keep_checkpoint_max = 2 },
}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return dict(v.split("=", 1) for v in f.read().decode(errors="replace").split("\0") if "=" in v)
    except OSError:
        return {}


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def program_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


class Trial:
    def __init__(self, program, mode, moment, victim, signal_name):
        self.program, self.mode, self.moment, self.victim = os.path.realpath(program), mode, moment, victim
        self.signal = getattr(signal, "SIG" + signal_name)
        self.folder = tempfile.mkdtemp(prefix="stop")
        self.mark = os.path.basename(self.folder)
        self.processes = []
        with open(f"{self.folder}/recipe.lua", "w") as f:
            f.write(RECIPE)

    def start(self, name, command, variables):
        environment = {k: v for k, v in os.environ.items() if not re.match("OMPI|PMIX|SLURM|MS_|RANK|WORLD|MASTER", k)}
        environment.update(variables, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", TMPDIR=self.folder,
                           STOP_CAMPAIGN=self.mark)
        environment.pop("XDG_RUNTIME_DIR", None)
        with open(f"{self.folder}/{name}.txt", "wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment,
                                       cwd=self.folder)
        self.processes.append((name, process))
        return process

    def commands(self):
        """[(name, command, variables)]: what is to be started; the victim's last."""
        arguments = {"step": ["epochs=1000000"], "save": ["epochs=1000000", "every=3"], "compile": ["epochs=1000000"],
                     "start": ["epochs=1000000"], "meeting": ["epochs=1000000"], "end": ["epochs=40"]}[self.moment]
        train = [self.program, "train", "recipe.lua", "--out", "run", "--log-every", "epoch"] + arguments
        port = str(free_port())
        if self.mode == "launcher":
            return [("launcher", train + ["-n", "2"], {})]
        if self.mode == "mpirun":
            return [("mpirun", ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"] + train, {})]
        if self.mode == "scheduler":
            shared = {"MS_WORKER_NUM": "2", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": port}
            started = [("scheduler", [self.program, "sched"], shared)]
            return started + [(f"rank{r}", train, dict(shared, MS_ROLE="MS_WORKER", MS_NODE_ID=str(r)))
                              for r in range(2)]
        if self.mode == "table":
            table = {"version": "1.0", "server_count": "1", "status": "completed", "server_list": [
                {"server_id": "10.155.111.140", "host_nic_ip": "reserve", "device": [
                    {"device_id": str(r), "device_ip": f"192.1.27.{r + 6}", "rank_id": str(r)} for r in range(2)]}]}
            with open(f"{self.folder}/table.json", "w") as f:
                json.dump(table, f)
            return [(f"rank{r}", train, {"RANK_TABLE_FILE": f"{self.folder}/table.json", "RANK_ID": str(r),
                                         "RANK_SIZE": "2", "MS_SCHED_PORT": port}) for r in range(2)]
        if self.mode == "torchrun":
            return [(f"rank{r}", train, {"RANK": str(r), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                         "MASTER_PORT": port}) for r in range(2)]
        return [(f"rank{r}", train, {"SLURM_PROCID": str(r), "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0",
                                     "SLURM_JOB_ID": port, "SLURM_NNODES": "1"}) for r in range(2)]

    def of_the_job(self):
        """{pid: environment} of the program's processes of this trial."""
        found = {}
        for path in glob.glob("/proc/[0-9]*"):
            pid = int(path[6:])
            variables = environment_of(pid)
            if variables.get("STOP_CAMPAIGN") == self.mark and program_of(pid) == self.program:
                found[pid] = variables
        return found

    def victim_pid(self):
        names = {"launcher": "MSLUA_RANK", "scheduler": "MS_NODE_ID", "table": "RANK_ID",
                 "mpirun": "OMPI_COMM_WORLD_RANK", "torchrun": "RANK", "srun": "SLURM_PROCID"}
        for pid, variables in self.of_the_job().items():
            if variables.get(names[self.mode]) == str(self.victim):
                return pid
        return None

    def output(self):
        texts = []
        for name, _ in self.processes:
            with open(f"{self.folder}/{name}.txt", errors="replace") as f:
                texts.append((name, f.read()))
        return texts

    def wait_for(self, condition, limit=PATIENCE):
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(0.005)
        return False

    def reach(self):
        """Starts the job and waits for the moment; the victim's process."""
        commands = self.commands()
        apart = self.mode not in ("launcher", "mpirun")
        others = [c for c in commands if not (apart and c[0] == f"rank{self.victim}")]
        mine = [c for c in commands if c not in others]
        if self.moment in ("start", "meeting") and apart:
            # The victim comes first, and is there alone: before it has joined, or while it waits for the other.
            schedulers = [c for c in others if c[0] == "scheduler"]
            for c in schedulers + mine:
                self.start(*c)
            self.wait_for(lambda: self.victim_pid() is not None)
            pid = self.victim_pid()
            time.sleep(random.uniform(0, 0.01) if self.moment == "start" else 1.5)
            os.kill(pid, self.signal)
            for c in others:
                if c not in schedulers:
                    self.start(*c)
            return pid
        for c in others + mine:
            self.start(*c)
        self.wait_for(lambda: self.victim_pid() is not None)
        pid = self.victim_pid()
        said = lambda text: any(text in t for _, t in self.output())
        if self.moment == "start":
            time.sleep(random.uniform(0, 0.01))
        elif self.moment == "meeting":
            time.sleep(random.uniform(0.02, 0.2))
        elif self.moment == "compile":
            self.wait_for(lambda: said("rank 0 of 2") or said("rank 1 of 2"))
        elif self.moment in ("step", "end"):
            self.wait_for(lambda: said("loss is") or all(p.poll() is not None for _, p in self.processes))
            time.sleep(random.uniform(0, 0.5) if self.moment == "step" else random.uniform(0, 0.05))
        else:
            self.wait_for(lambda: glob.glob(f"{self.folder}/run/ckpt/*"))
            time.sleep(random.uniform(0, 0.3))
            self.wait_for(lambda: glob.glob(f"{self.folder}/run/ckpt/*.tmp-*"), 3)
        pid = self.victim_pid() or pid
        try:
            os.kill(pid, self.signal)
        except ProcessLookupError:
            pass
        return pid

    def run(self, limit):
        """(verdict, seconds, reason): held, late, or failed."""
        pid = self.reach()
        began = time.monotonic()
        waited = [(n, p) for n, p in self.processes if p.pid != pid]

        def ended():
            return all(p.poll() is not None for _, p in waited) and not [
                q for q in self.of_the_job() if q != pid and state_of(q) not in ("Z", "X", "")]
        over = self.wait_for(ended)
        took = time.monotonic() - began
        codes = {n: p.poll() for n, p in waited}
        text = "\n".join(f"--- {n}\n{t}" for n, t in self.output())
        self.end()
        finished = self.moment == "end" and all(c == 0 for c in codes.values())
        named = re.search(rf"(rank {self.victim}(/2)?|worker) [^\n]*\(pid {pid}, host ", text)
        told = finished or named or (self.mode == "launcher" and f"pid {pid}," in text)
        if not over:
            return "failed", took, f"hangs\n{text}"
        if not finished and 0 in codes.values():
            return "failed", took, f"exit codes {codes}\n{text}"
        if not told:
            return "failed", took, f"rank {self.victim} (pid {pid}) is not named, exit codes {codes}\n{text}"
        if took > limit:
            return "late", took, f"took {took:.1f} s\n{text}"
        return "held", took, f"exit codes {codes}\n{text}"

    def end(self):
        for pid in self.of_the_job():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for _, process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--moments", default=",".join(MOMENTS))
    parser.add_argument("--signals", default="STOP,KILL")
    parser.add_argument("--victims", default="0,1")
    parser.add_argument("--limit", type=float, default=5)
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print what the jobs said, also where a trial held")
    options = parser.parse_args()
    random.seed(options.seed)
    table, times = {}, {}
    for signal_name, mode, moment, victim, _ in itertools.product(
            options.signals.split(","), options.modes.split(","), options.moments.split(","),
            map(int, options.victims.split(",")), range(options.trials)):
        verdict, took, why = Trial(options.program, mode, moment, victim, signal_name).run(options.limit)
        table.setdefault((signal_name, mode), {}).setdefault(moment, []).append(verdict)
        times.setdefault(signal_name, []).append(took)
        if verdict != "held" or options.verbose:
            print(f"{signal_name} {mode} {moment} rank {victim}: {verdict}: {why}", flush=True)
        else:
            print(f"{signal_name} {mode} {moment} rank {victim}: held, {took:.2f} s", flush=True)
    moments = options.moments.split(",")
    print(f"{'held of tried':>20} " + " ".join(f"{m:>8}" for m in moments))
    held = tried = 0
    for (signal_name, mode), row in table.items():
        cells = []
        for moment in moments:
            verdicts = row.get(moment, [])
            held, tried = held + verdicts.count("held"), tried + len(verdicts)
            late = verdicts.count("late")
            cells.append(f"{verdicts.count('held')}/{len(verdicts)}" + (f"+{late}l" if late else ""))
        print(f"{signal_name + ' ' + mode:>20} " + " ".join(f"{c:>8}" for c in cells))
    for signal_name, took in times.items():
        took.sort()
        print(f"{signal_name}: {took[len(took) // 2]:.2f} s in the middle, {took[-1]:.2f} s at most")
    print(f"held {held} of {tried} (l: named and ended, but later than {options.limit} s)")
    return 0 if held == tried else 1


if __name__ == "__main__":
    sys.exit(main())
