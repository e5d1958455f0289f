#!/usr/bin/env python3
"""The live status line, and how training answers Ctrl-C, on a terminal and without one.

usage: progress_test.py MSLUA
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

MSLUA = os.path.abspath(sys.argv[1])
LIMIT_S = 120  # for one run; a hang is a failure
RECIPE = """
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { nap = 0.02, epochs = 2 }
local x, y = ms.randn({ 320, 4 }, ms.float32, "x"), ms.zeros({ 320 }, ms.int32)
local function data() return ms.dataset.NumpySlicesDataset({ x, y }, { "x", "y" }):batch(16) end
local Nap = ms.Callback:extend "Nap"
function Nap:on_train_step_end() os.execute("sleep " .. p.nap) end
return ms.recipe {
  name = "progress", network = function() return nn.Dense(4, 3) end,
  loss = nn.SoftmaxCrossEntropyWithLogits(true, "mean"),
  optimizer = nn.Momentum { learning_rate = 0.1, momentum = 0.9 },
  dataset = data, eval_dataset = data, callbacks = { Nap() }, train = { epochs = p.epochs },
}
"""
failed = []


def check(what, good, shown=""):
    if not good:
        failed.append(what)
        print(f"FAILED: {what}\n{shown}")


def terminal(columns):
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return main, side


def read_all(process, descriptors):
    """What comes out of each descriptor until the process has ended."""
    texts = {d: b"" for d in descriptors}
    end = time.monotonic() + LIMIT_S
    ended = False
    while time.monotonic() < end:
        ready = select.select(descriptors, [], [], 0.1)[0]
        for d in ready:
            try:
                texts[d] += os.read(d, 65536)
            except OSError:
                ready = []
        if not any(ready) and ended:
            break
        ended = process.poll() is not None
    else:
        process.kill()
        check("a run ends in time", False, texts)
    return [texts[d].decode() for d in descriptors]


def train(arguments, columns=None, both=False):
    """(stdout, stderr) of a training whose stderr, or both, is a terminal of so many columns."""
    command = [MSLUA, "train", "recipe.lua", "--no-attach", "--seed", "3"] + arguments
    environment = dict(os.environ, TERM="xterm")
    if columns is None:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        return done.stdout, done.stderr
    main, side = terminal(columns)
    out, out_end = (main, side) if both else os.pipe()
    process = subprocess.Popen(command, env=environment, stdout=out_end, stderr=side, stdin=subprocess.DEVNULL)
    os.close(side)
    if both:
        return read_all(process, [main])[0], ""
    os.close(out_end)
    return read_all(process, [out, main])


def drawn(text):
    """The lines that were drawn in place."""
    return [part for part in re.split(r"\r|\x1b\[K|\n", text) if part.startswith("epoch") and "step" in part]


def without_status(text):
    return re.sub(r"\r(epoch[^\r\n]*?)?\x1b\[K\r?", "", text).replace("\r", "")


def test_status_line():
    plain_out, plain_err = train([])
    check("no line in a pipe", "\r" not in plain_out + plain_err and "\x1b" not in plain_out + plain_err, plain_err)
    out, err = train([], columns=100)
    check("stdout is the same with a line", out == plain_out, out[:500])
    lines = drawn(err)
    check("a line is drawn", len(lines) > 2, err)
    check("it says speed and time left", any("samples/s" in l and "left" in l and "(mean" in l for l in lines), lines)
    for epoch in (1, 2):
        check(f"epoch {epoch} leaves its mean, time and evaluation",
              re.search(rf"epoch {epoch}/2  mean loss [\d.]+  [\d.]+ s  eval loss [\d.]+", err), err)
    _, narrow = train([], columns=40)
    check("it fits a narrow terminal", drawn(narrow) and all(len(l) < 40 for l in drawn(narrow)), drawn(narrow))
    together, _ = train([], columns=100, both=True)
    text = without_status(together)
    check("lines of stdout stay whole above it", all(line in text for line in plain_out.splitlines()), text)
    _, off = train(["--progress", "off"], columns=100)
    check("--progress off draws none", not drawn(off) and "mean loss" not in off, off)
    out, on = train(["--progress", "on"])
    check("--progress on prints lines into a pipe", "epoch 2/2  mean loss" in on and "\x1b" not in on, on)
    check("and leaves stdout alone", out == plain_out, out[:500])
    out, _ = train(["--log-every", "epoch"])
    check("--log-every epoch prints the mean", "epoch: 2, mean loss is" in out, out)


def interrupted(send):
    """stderr and exit code of a training that `send` interrupts while a callback waits for a command."""
    command = [MSLUA, "train", "recipe.lua", "--no-attach", "nap=30"]
    pid, main = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(command[0], command)
    text, sent, end = b"", False, time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if select.select([main], [], [], 0.1)[0]:
            try:
                text += os.read(main, 65536)
            except OSError:
                break
        if not sent and b"loss is" in text:
            time.sleep(0.3)  # the command has begun, or will find the signal pending
            send(pid, main)
            sent = True
    else:
        os.kill(pid, signal.SIGKILL)
        check("an interrupted run ends in time", False, text)
    return text.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_interrupt():
    for name, send in {"Ctrl-C": lambda pid, main: os.write(main, b"\x03"),
                       "a signal to the process": lambda pid, main: os.kill(pid, signal.SIGINT)}.items():
        text, code = interrupted(send)
        check(f"{name} in os.execute ends training", code == 130, (code, text))
        check(f"{name} is acknowledged", "stopping after this step; once more to stop at once" in text, text)
        check(f"after {name} a stop is no error", "mslua: stopped at step 1" in text and "error" not in text, text)


def main():
    with tempfile.TemporaryDirectory(prefix="mslua-test-") as folder:
        os.chdir(folder)
        with open("recipe.lua", "w", encoding="utf-8") as f:
            f.write(RECIPE)
        test_status_line()
        test_interrupt()
        os.chdir("/")
    print("FAILED: " + "; ".join(failed) if failed else "all good")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
