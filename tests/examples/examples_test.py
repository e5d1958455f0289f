#!/usr/bin/env python3
"""Runs the examples that mslua prints: examples_test.py MSLUA [TEXT]

They are the examples of `mslua help` and of `mslua help VERB`, and the commands of `.help` of the REPL. tests/docs runs
those of README.md and docs/.

Every command runs in one folder with the recipes, small generated data sets, and a wrapper `mslua` that adds presets
and parameters which make training short. With TEXT, only commands that contain it run.
"""
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
ONLY = sys.argv[2] if len(sys.argv) > 2 else ""
SOURCE = os.getcwd()
TIMEOUT = 300  # of one command; a machine may be busy
# Written in front of absolute paths of examples.
ROOTS = ("/data/", "/models/")

# What a command needs to be small: patterns of the command line and what the wrapper adds. Later arguments win.
SMALL = r"""
# The preset of tests, where a verb trains or measures and the command line has no preset.
case $verb in train | eval | predict | sample | export | verify | prof | generate)
  case $line in
    *--preset*) ;;
    *lenet* | *resnet* | *char_gpt* | *dcgan*) set -- "$@" --preset smoke ;;
  esac ;;
esac
case $verb$line in train*lenet* | train*resnet* | train*char_gpt* | verify*lenet*) set -- "$@" train.max_steps=2 ;; esac
case $line in
  *lenet* | *dcgan*) data=mnist ;;
  *resnet*) data=cifar10 ;;
  *char_gpt*) data=text ;;
  *) data= ;;
esac
case $verb in train | eval | verify | prof | plan | graph | repl | predict | sample | export | generate)
  [ -z "$data" ] || set -- "$@" "data_path=$WORK/data/$data" ;;
esac
"""

# Examples that run until they are stopped: what they print by then.
ENDLESS = {
    "mslua logs last -f": "loss is",
    "mslua sched --workers 8": "8 workers",
    "mslua sched --workers 8 --port 8118": "8 workers",
    "MS_WORKER_NUM=8 MS_SCHED_PORT=8118 mslua sched": "8 workers",
    "mslua top": "rank",
    "mslua top last": "rank",
    "mslua top runs/a": "rank",
}
# Examples that end with another code than 0, and why.
CODES = {
    "mslua verify recipes/lenet_mnist.lua --preset smoke": (8,),  # two steps do not reach what the recipe expects
}

SCRIPT = """
local ms = require "mslua"
local p = ms.params { lr = 0.5 }
print("lr", p.lr, ...)
"""
JOB = """
local ms = require "mslua"
local Nap = ms.Callback:extend "Nap"
function Nap:on_train_step_end() os.execute "sleep 0.02" end
local x = ms.ones { 4, 3 }
return ms.recipe {
  name = "job", network = function() return ms.nn.Dense(3, 2) end, loss = ms.nn.MSELoss(),
  optimizer = ms.nn.SGD { learning_rate = 0.01 }, callbacks = { Nap() },
  dataset = function() return ms.dataset.NumpySlicesDataset({ x, ms.zeros { 4, 2 } }, { "x", "y" }):batch(2) end,
  train = { epochs = 1000000 }, checkpoint = { save_checkpoint_steps = 1000000 },
}
"""
CLUSTER = """{"flops_per_second": 312e12, "bytes_per_second": 1.5e12,
  "axes": [{"seconds": 12e-6, "seconds_per_byte": 4e-11}]}"""


class Workplace:
    """A folder with a wrapper of mslua and everything that examples name."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="mse", dir="/tmp")  # short: the path of a socket ends at 107 bytes
        self.groups, self.failed, self.count = [], [], 0
        folder = self.folder
        self.env = dict(os.environ, HOME=folder, XDG_RUNTIME_DIR=folder + "/run", XDG_CACHE_HOME=folder + "/cache",
                        XDG_STATE_HOME=folder + "/state", WORK=folder, OMP_WAIT_POLICY="passive", TERM="dumb",
                        PATH=folder + "/bin:" + os.environ["PATH"],
                        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        for name in ("DATA_PATH", "XDG_DATA_HOME"):
            self.env.pop(name, None)
        os.makedirs(folder + "/run", mode=0o700)
        completions = (".local/share/bash-completion/completions", ".zsh/completions", ".config/fish/completions")
        for name in ("bin",) + completions:
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        shutil.copytree(os.path.join(SOURCE, "recipes"), folder + "/recipes", copy_function=shutil.copy)
        self.write("bin/mslua", "#!/bin/sh\nverb=${1:-}\nline=\" $*\"\n" + SMALL + f'exec {PROGRAM} "$@"\n')
        os.chmod(folder + "/bin/mslua", 0o755)
        os.symlink("bin/mslua", folder + "/mslua")
        self.write("script.lua", SCRIPT)
        self.write("points.csv", "0.1,0.2\n0.9,-0.9\n")
        for name in ("cat.ppm", "dog.ppm"):
            self.write(name, "P6 32 32 255\n" + "abc" * 32 * 32)
        self.write("job.lua", JOB)
        self.write("cluster.json", CLUSTER)
        self.shell("for kind in mnist cifar10; do mslua data make $kind data/$kind --samples 200; done; "
                   "mslua data make text data/text --samples 2000")
        self.shell("cp -r data/text data/tinyshakespeare; "
                   f"python3 {SOURCE}/tools/golden/hf.py write gpt2 models/gpt2; "
                   f"python3 {SOURCE}/tools/golden/hf.py write llama models/llama --chat")

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as out:
            out.write(text)

    def start(self, command, **more):
        process = subprocess.Popen(["bash", "-c", command], cwd=self.folder, env=self.env, start_new_session=True,
                                   text=True, errors="replace", **more)
        self.groups.append(process.pid)
        return process

    def run(self, command, stdin=""):
        """(exit code, output); None for the code of a command that does not end."""
        process = self.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            return process.communicate(stdin, timeout=TIMEOUT), process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.communicate(), None

    def shell(self, command):
        (output, _), code = self.run(command)
        if code != 0:
            sys.exit(f"{command}: exit code {code}: {output}")

    def job(self):
        """A training that runs until it is stopped, in runs/a; does nothing where it runs already."""
        (output, _), _ = self.run("mslua ps")
        if "runs/a" in output:
            return
        self.start("exec mslua train job.lua --out runs/a --log-every 1", stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(TIMEOUT * 10):
            (output, _), _ = self.run("mslua ps")
            if re.search(r"runs/a", output):
                return
            time.sleep(0.1)
        sys.exit("the job does not start")

    def prints(self, command, text):
        """Whether the command prints `text`; it is stopped then."""
        process = self.start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        found, end, fd = "", time.monotonic() + TIMEOUT, process.stdout.fileno()
        while text not in found and time.monotonic() < end:
            if select.select([fd], [], [], 1)[0]:
                piece = os.read(fd, 65536)
                if not piece:
                    break
                found += piece.decode(errors="replace")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return text in found, found

    def check(self, where, command, stdin="", codes=(0,)):
        self.count += 1
        for root in ROOTS:
            command = command.replace(root, self.folder + root)
        (output, _), code = self.run(command, stdin)
        if code not in codes or re.search(r"^mslua: error", output, re.M) and 0 in codes:
            self.failed.append(f"{where}: {command}\n  exit code {code}, output:\n    " +
                               "\n    ".join(output.splitlines()[-12:]))

    def close(self):
        for group in self.groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)


def examples_of(page):
    """The lines under `examples`."""
    return [line.strip() for line in page.split("\nexamples\n")[1].splitlines() if line.strip()]


def check_help(place):
    verbs = re.findall(r"^  ([a-z-]+) ", place.run("mslua help")[0][0].split("\ntopics of help\n")[0], re.M)
    assert len(verbs) > 15, verbs
    built = [("help", example) for example in examples_of(place.run("mslua help")[0][0])]
    for verb in verbs:
        built += [("help " + verb, example) for example in examples_of(place.run("mslua help " + verb)[0][0])]
    # What examples expect to find: a checkpoint of each recipe, the graphs of a run, a copy of a recipe.
    place.shell("mslua train recipes/resnet18_cifar10.lua --out runs/a && "
                "mslua train recipes/quickstart.lua --out runs/b context.save_graphs=2 && "
                "mslua train recipes/examples/circle.lua --out runs/c && "
                "mslua train recipes/char_gpt.lua && mslua train recipes/dcgan_mnist.lua && "
                "cp -r runs/dcgan_mnist-* runs/g && "
                "mslua recipes copy quickstart my_recipe.lua && cp -r runs/a runs/saved")
    # Those that look at a running job come last, `stop` after all.
    watching = ("ps", "attach", "logs", "diag", "top", "stop")

    def order(example):
        words = [word for word in example[1].split() if "=" not in word or word.startswith("mslua")]
        verb = words[words.index("mslua") + 1] if "mslua" in words else ""
        return (2 if verb == "stop" else 1 if verb in watching else 0), verb

    for where, example in sorted(built, key=lambda e: order(e)[0]):
        if ONLY not in example:
            continue
        rank, verb = order((where, example))
        if rank == 1 or verb == "stop":
            place.job()
        if example in ENDLESS:
            place.count += 1
            good, output = place.prints(example, ENDLESS[example])
            if not good:
                place.failed.append(f"{where}: {example} does not print {ENDLESS[example]!r}: {output[-500:]}")
            continue
        place.check(where, example, ".detach\n" if verb == "attach" else "", CODES.get(example, (0,)))
        if verb == "stop":
            place.run("while mslua ps | grep -q runs/a; do sleep 0.05; done")


def check_repl(place):
    """Each command of .help that is a word behind a dot, and the names behind ?."""
    text = place.run("mslua repl", ".help\n")[0][0]
    commands = re.findall(r"(?:^|\s)(\.[a-z]+(?: on| off)?)\b", text)
    assert ".help" in commands and len(commands) >= 3, text
    for command in commands:
        (output, _), code = place.run("mslua repl", command + "\n")
        place.count += 1
        if code != 0 or re.search("unknown|error", output):
            place.failed.append(f".help of the REPL: {command}: {output}")


def main():
    place = Workplace()
    try:
        check_help(place)
        if not ONLY:
            check_repl(place)
    finally:
        place.close()
    for problem in place.failed:
        print(problem)
    print(f"{place.count} commands, {len(place.failed)} problems")
    sys.exit(1 if place.failed or place.count == 0 else 0)


main()
