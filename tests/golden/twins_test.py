#!/usr/bin/env python3
"""tools/golden/twins.py on made-up data: twins_test.py MSLUA twins.py. Skipped where PyTorch is not installed.

With a learning rate of nearly 0 both sides evaluate the initial values, so that their metrics are equal."""
import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
import traceback

PYTHON = "/usr/bin/python3"
MSLUA, SCRIPT = (os.path.abspath(path) for path in sys.argv[1:3])
os.environ.update(OMP_WAIT_POLICY="passive", OPENBLAS_NUM_THREADS="1")  # tests share their cores
ROW = re.compile(r"^\| (?!recipe )(\w+) \| (\w+) \|([^|]*)\|[^|]*\|([^|]*)\|[^|]*\|[^|]*\|[^|]*\|$", re.M)


def script(words):
    """What the script does with these arguments, in this process; the exit code."""
    sys.argv, sys.path[0] = [SCRIPT, "--mslua", MSLUA, *words], os.path.dirname(SCRIPT)
    try:
        runpy.run_path(SCRIPT, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def run(*words, code=0, says=""):
    """Forks: PyTorch, which takes a second to load, is loaded once."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = script(words)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for file in out, err:
            file.seek(0)
        said, errors = out.read(), err.read()
    if ended != code or says not in said + errors:
        sys.exit("%s: exit code %d, expected %d and %r, got: %s%s" % (
            " ".join(words), ended, code, says, said, errors))
    return said


def values(out):
    """Metric -> (mslua's values, the twin's)."""
    return {metric: tuple([float(v) for v in side.split()] for side in sides) for _, metric, *sides in ROW.findall(out)}


def same_at_the_start(recipe, data, metric, tolerance, *words):
    found = values(run("--recipe", recipe, "--data", data, "--preset", "smoke", "--seeds", "2", "train.max_steps=1",
                       "lr=1e-12", *words))
    (mine,), (theirs,) = found[metric]
    assert abs(mine - theirs) <= tolerance, (recipe, found)


def continues_where_it_was_killed():
    words = ["--recipe", "lenet_mnist", "--data", "mnist", "--preset", "smoke", "--side", "twin", "--seeds", "3",
             "epochs=20", "train.max_steps=400"]
    whole = values(run(*words))
    first = subprocess.Popen([PYTHON, SCRIPT, "--mslua", MSLUA, *words, "--keep", "kept"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    while not os.path.exists("kept/lenet_mnist_twin_3.pt") and first.poll() is None:
        time.sleep(0.005)
    first.kill()
    first.wait()
    assert values(run(*words, "--keep", "kept")) == whole, whole
    assert values(run(*words, "--keep", "kept")) == whole, "a result that is kept"
    run(*words, "lr=0.5", "--keep", "kept", code=1, says="give --keep another folder")
    run(*words, "--data", "other", "--keep", "kept", code=1, says="give --keep another folder")


def main():
    if os.path.realpath(sys.executable) != os.path.realpath(PYTHON):
        sys.stdout.flush()
        os.execv(PYTHON, [PYTHON, os.path.abspath(__file__), *sys.argv[1:]])
    try:
        import numpy  # for the forks, as torch
        import torch
    except ImportError:
        print("skipped: PyTorch is not installed (python3-torch)")
        return
    os.chdir(os.environ["TEST_TMPDIR"])
    for kind, samples in ("mnist", 640), ("cifar10", 320), ("text", 2000), ("criteo", 2000):
        subprocess.run([MSLUA, "data", "make", kind, kind, "--samples", str(samples)], check=True, capture_output=True)
    for recipe in "gpt2", "llama", "moe_gpt", "lstm_shakespeare":
        same_at_the_start(recipe, "text", "loss", 2e-4)
    same_at_the_start("lenet_mnist", "mnist", "top1", 1e-6)
    same_at_the_start("vit_cifar10", "cifar10", "top1", 1e-6)
    # The noise of codes is drawn by each side.
    same_at_the_start("vae_mnist", "mnist", "loss", 2)
    # Every parameter of a twin takes a value of the recipe's, and every loss has its gradients.
    for recipe, data, *words in (("dcgan_mnist", "mnist"), ("ddpm_mnist", "mnist"), ("dlrm", "criteo"),
                                 ("mobilenetv2_cifar10", "cifar10"), ("resnet18_cifar10", "cifar10"),
                                 ("unet_shapes", "cifar10", "digits_path=" + os.path.abspath("mnist"))):
        assert values(run("--recipe", recipe, "--data", data, "--preset", "smoke", "--seeds", "1", "--side", "twin",
                          "train.max_steps=1", *words)), recipe
    found = values(run("--recipe", "lenet_mnist", "--data", "mnist", "--preset", "smoke", "--seeds", "1,2", "epochs=6",
                       "train.max_steps=120"))
    for side in found["top1"]:
        assert len(side) == 2 and min(side) > 0.9, found
    continues_where_it_was_killed()
    run("--recipe", "lenet", "--data", "mnist", code=2, says="lenet_mnist")
    alone = subprocess.run([PYTHON, SCRIPT, "--help"], capture_output=True, text=True, check=True)
    assert "--recipe NAME" in alone.stdout, alone.stdout
    run("--recipe", "lenet_mnist", "--data", "nowhere", code=1, says="nowhere")
    run("--recipe", "lenet_mnist", "--data", "mnist", "rate=2", code=1, says="unknown parameter 'rate'")


main()
