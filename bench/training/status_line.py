#!/usr/bin/env python3
"""What the status line says and costs: status_line.py MSLUA TEXT_FOLDER [--steps N] [--only cost]

Trains char_gpt in a pseudo-terminal, with an evaluation and a save after each eighth of the run, and compares the time
left that the line shows with the time that was left, from a tenth of the run on. Then a run into a pipe: no carriage
return and no escape on stdout and stderr. Last, the share of the time of a training that the line takes, of char_gpt
and of the quick start's step, by perf: on a machine that does other work runs differ by more than the line costs. For
an idle machine, or as root with `chrt -r 1`, which lets nothing else run in between.
"""
import argparse
import os
import pty
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PARSER = argparse.ArgumentParser()
PARSER.add_argument("mslua", type=os.path.abspath)
PARSER.add_argument("text", type=os.path.abspath)
PARSER.add_argument("--steps", type=int, default=600)
PARSER.add_argument("--only", choices=["cost"], help="leave out the time left and the pipe")
ARGS = PARSER.parse_args()
MSLUA, DATA, STEPS = ARGS.mslua, ARGS.text, ARGS.steps
CHAR = ["recipes/char_gpt.lua", "data_path=" + DATA, "eval_every=1000000", "steps=%d" % STEPS]
TIMED = ["recipes/char_gpt.lua", "data_path=" + DATA, "eval_every=%d" % (STEPS // 8), "steps=%d" % STEPS]
QUICK = ["bench/training/quickstart.lua", "steps=100000", "epochs=4"]  # saves nothing


def command(words, folder, progress):
    return [MSLUA, "train", *words, "--out", folder, "--log-every", "epoch", "--progress", progress]


def in_terminal(words, found=None, before=()):
    """Seconds that the run takes; in `found` what it prints, each with the seconds since the start."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        child, master = pty.fork()
        if child == 0:
            os.chdir(ROOT)
            os.environ["TERM"] = "xterm"
            words = [*before, *command(words, folder, "on")]
            os.execvp(words[0], words)
        text = b""
        while True:
            select.select([master], [], [])
            try:
                part = os.read(master, 1 << 16)
            except OSError:
                break
            if not part:
                break
            text += part
            if found is not None:
                found.append((time.monotonic() - begun, part.decode(errors="replace")))
        status = os.waitpid(child, 0)[1]
        if os.waitstatus_to_exitcode(status) != 0:
            sys.exit(text.decode(errors="replace")[-2000:])
        return time.monotonic() - begun


def seconds(clock):
    total = 0
    for part in clock.split(":"):
        total = 60 * total + int(part)
    return total


def time_left():
    found = []
    wall = in_terminal(TIMED, found)
    errors = []
    for at, text in found:
        for clock in re.findall(r"(\d+(?::\d+)+) left", text):
            # The line shows whole seconds: they say little of a share of the last few.
            if at > wall / 10 and wall - at > 10:
                errors.append(abs(seconds(clock) - (wall - at)) / (wall - at))
    if not errors:
        sys.exit("no line with more than 10 s left after a tenth of the run: give more steps")
    print("char_gpt, %d steps in %.0f s: the time left is off by %.1f %% (median of %d lines), at most %.1f %%" % (
        STEPS, wall, 100 * statistics.median(errors), len(errors), 100 * max(errors)))


def cost(name, words):
    with tempfile.TemporaryDirectory() as folder:
        samples = os.path.join(folder, "samples")
        in_terminal(words, before=["perf", "record", "-q", "-g", "-F", "2000", "-o", samples])
        report = subprocess.run(["perf", "report", "-i", samples, "--children", "--stdio", "-g", "none"],
                                capture_output=True, check=True, text=True).stdout

    def share(function):
        found = re.search(r"^ *([0-9.]+)%%.*\] mslua::%s$" % function, report, re.M)
        return float(found.group(1)) if found else 0.0
    if share("Trainer::Run") == 0:
        sys.exit("perf has no samples of Trainer::Run")
    line = share("StatusLine::AtStep") + share("StatusLine::NextStep")
    print("%s: the line takes %.2f %% of the training's time" % (name, line))


def piped():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command(CHAR[:-1] + ["steps=110"], folder, "auto"), cwd=ROOT, capture_output=True,
                              check=True)
        print("piped: %d carriage returns, %d escapes" % ((done.stdout + done.stderr).count(b"\r"),
                                                          (done.stdout + done.stderr).count(b"\x1b")))


def main():
    if ARGS.only != "cost":
        time_left()
        piped()
    cost("quickstart", QUICK)
    cost("char_gpt", CHAR)


main()
