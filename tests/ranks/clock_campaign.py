#!/usr/bin/env python3
"""Sets the calendar clock of one process of a job back or forth while it trains: nothing may happen.

usage: clock_campaign.py MSLUA [--seconds S]

Needs libfaketime (apt-get install faketime), which gives one process a calendar clock of its own and leaves its
monotonic
one. A trial holds when all ranks train on for S seconds (6) after the step and then, interrupted, save and end with
75 or
130. Then again with a rank that is stopped (SIGSTOP) after the step: the job ends within 6 s of it.
"""

import argparse
import glob
import os
import signal
import subprocess
import sys
import time

from stop_campaign import Trial

LIBRARY = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
STEPS = ("+3600", "-3600", "+4", "-4")
WHO = {"launcher": ("launcher",), "scheduler": ("scheduler", "rank0", "rank1"), "torchrun": ("rank0", "rank1"),
       "mpirun": ("mpirun",)}


class Stepped(Trial):
    """A job of which the process `who` (of a launcher: it and its ranks) has a clock that can be set."""

    def __init__(self, program, mode, who):
        super().__init__(program, mode, "step", 1, "STOP")
        self.who, self.clock = who, f"{self.folder}/clock"
        self.set_clock("+0")

    def set_clock(self, offset):
        with open(self.clock + ".new", "w") as f:
            f.write(offset + "\n")
        os.rename(self.clock + ".new", self.clock)

    def start(self, name, command, variables):
        if name == self.who:
            variables = dict(variables, LD_PRELOAD=LIBRARY, FAKETIME_TIMESTAMP_FILE=self.clock, FAKETIME_NO_CACHE="1",
                             FAKETIME_DONT_FAKE_MONOTONIC="1", DONT_FAKE_MONOTONIC="1")
        return super().start(name, command, variables)

    def run(self, offset, seconds, stops):
        for command in self.commands():
            self.start(*command)
        self.wait_for(lambda: any("loss is" in text for _, text in self.output()))
        self.set_clock(offset)
        time.sleep(seconds)
        ended = [name for name, p in self.processes if p.poll() is not None]
        victim = self.victim_pid()
        if ended or victim is None:
            verdict = f"ended after the step: {ended}"
        elif stops:
            os.kill(victim, signal.SIGSTOP)
            others = [p for _, p in self.processes if p.pid != victim]
            over = self.wait_for(lambda: all(p.poll() is not None for p in others), 6)
            verdict = "held" if over else "a stopped rank was not noticed within 6 s"
        else:
            for name, process in self.processes:
                process.send_signal(signal.SIGTERM) if name != "scheduler" else None
            over = self.wait_for(lambda: all(p.poll() is not None for _, p in self.processes))
            codes = {name: p.poll() for name, p in self.processes}
            good = over and (self.mode == "mpirun" or all(code in (75, 130) for code in codes.values()))
            verdict = "held" if good else f"exit codes {codes}"
        text = "\n".join(f"--- {name}\n{text[-600:]}" for name, text in self.output()) if verdict != "held" else ""
        self.end()
        return verdict, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=6)
    options = parser.parse_args()
    if not glob.glob(LIBRARY):
        sys.exit("libfaketime is not installed: apt-get install faketime")
    held = tried = 0
    for mode, whos in WHO.items():
        for who in whos:
            for offset in STEPS:
                for stops in (False, True):
                    verdict, text = Stepped(options.program, mode, who).run(offset, options.seconds, stops)
                    tried, held = tried + 1, held + (verdict == "held")
                    then = ", then rank 1 stopped" if stops else ""
                    print(f"{mode}, clock of {who} {offset} s{then}: {verdict}{text}",
                          flush=True)
    print(f"held {held} of {tried}")
    return 0 if held == tried else 1


if __name__ == "__main__":
    sys.exit(main())
