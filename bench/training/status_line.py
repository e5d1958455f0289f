#!/usr/bin/env python3
"""What the status line says and costs: status_line.py MSLUA TEXT_FOLDER [--steps N] [--rounds N] [--only cost]

Trains char_gpt in a pseudo-terminal, with an evaluation and a save after each eighth of the run, and compares the time
left that the line shows with the time that was left, from a tenth of the run on. Then, without them, trains char_gpt
and the step of the quick start with the line and without, taking turns: the least processor time of each, which other work on the
machine changes least, and the medians of processor and wall time and of their ratio in a round. Last, a run into a
pipe: no carriage return and no escape on stdout and stderr. For an idle machine, or as root with `chrt -r 1`, which
lets nothing else run in between.
"""
import argparse
import os
import pty
import re
import resource
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
PARSER.add_argument("--rounds", type=int, default=5)
PARSER.add_argument("--only", choices=["cost"], help="leave out the time left and the pipe")
ARGS = PARSER.parse_args()
MSLUA, DATA, STEPS = ARGS.mslua, ARGS.text, ARGS.steps
CHAR = ["recipes/char_gpt.lua", "data_path=" + DATA, "eval_every=1000000", "steps=%d" % STEPS]
TIMED = ["recipes/char_gpt.lua", "data_path=" + DATA, "eval_every=%d" % (STEPS // 8), "steps=%d" % STEPS]
QUICK = ["bench/training/quickstart.lua", "steps=100000", "epochs=4"]  # saves nothing


def command(words, folder, progress):
    return [MSLUA, "train", *words, "--out", folder, "--log-every", "epoch", "--progress", progress]


def in_terminal(words, progress, found=None):
    """Seconds of wall and of processor time; of each line with a time left (seconds since the start, text)."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun = time.monotonic()
        child, master = pty.fork()
        if child == 0:
            os.chdir(ROOT)
            os.environ["TERM"] = "xterm"
            words = command(words, folder, progress)
            os.execv(words[0], words)
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
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (time.monotonic() - begun, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def seconds(clock):
    total = 0
    for part in clock.split(":"):
        total = 60 * total + int(part)
    return total


def time_left():
    found = []
    wall, _ = in_terminal(TIMED, "on", found)
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
    walls, cpus = {"on": [], "off": []}, {"on": [], "off": []}
    for turn in range(ARGS.rounds):
        for progress in ("on", "off") if turn % 2 == 0 else ("off", "on"):
            wall, cpu = in_terminal(words, progress)
            walls[progress].append(wall)
            cpus[progress].append(cpu)
    for what, of, times in (("least processor time", min, cpus), ("median processor time", statistics.median, cpus),
                            ("median wall time", statistics.median, walls)):
        on, off = of(times["on"]), of(times["off"])
        print("%s: %s %.3f s with the line, %.3f s without: %+.2f %%" % (name, what, on, off, 100 * (on / off - 1)))
    for what, times in (("processor", cpus), ("wall", walls)):
        ratio = statistics.median(on / off for on, off in zip(times["on"], times["off"]))
        print("%s: median ratio of %s time in a round: %+.2f %%" % (name, what, 100 * (ratio - 1)))


def piped():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command(CHAR[:-1] + ["steps=30"], folder, "auto"), cwd=ROOT, capture_output=True,
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
