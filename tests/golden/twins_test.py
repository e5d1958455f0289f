#!/usr/bin/env python3
"""tools/golden/twins.py on made-up data: twins_test.py MSLUA twins.py. Skipped where PyTorch is not installed.

With a learning rate of nearly 0 both sides evaluate the initial values, so that their metrics are equal."""
import os
import re
import subprocess
import sys

PYTHON = "/usr/bin/python3"
MSLUA, SCRIPT = (os.path.abspath(path) for path in sys.argv[1:3])
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive")  # tests share their cores
ROW = re.compile(r"^\| (?!recipe )(\w+) \| (\w+) \|([^|]*)\|[^|]*\|([^|]*)\|[^|]*\|[^|]*\|[^|]*\|$", re.M)


def run(*words, code=0, says=""):
    done = subprocess.run([PYTHON, SCRIPT, "--mslua", MSLUA, *words], env=ENVIRONMENT, capture_output=True, text=True,
                          check=False)
    if done.returncode != code or says not in done.stdout + done.stderr:
        sys.exit("%s: exit code %d, expected %d and %r, got: %s%s" % (
            " ".join(words), done.returncode, code, says, done.stdout, done.stderr))
    return done.stdout


def values(out):
    """Metric -> (mslua's values, the twin's)."""
    return {metric: tuple([float(v) for v in side.split()] for side in sides) for _, metric, *sides in ROW.findall(out)}


def same_at_the_start(recipe, data, metric, tolerance, *words):
    found = values(run("--recipe", recipe, "--data", data, "--preset", "smoke", "--seeds", "2", "train.max_steps=1",
                       "lr=1e-12", *words))
    (mine,), (theirs,) = found[metric]
    assert abs(mine - theirs) <= tolerance, (recipe, found)


def main():
    if subprocess.run([PYTHON, "-c", "import numpy, torch"], capture_output=True, check=False).returncode != 0:
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
    run("--recipe", "lenet", "--data", "mnist", code=2, says="lenet_mnist")
    run("--recipe", "lenet_mnist", "--data", "nowhere", code=1, says="nowhere")
    run("--recipe", "lenet_mnist", "--data", "mnist", "rate=2", code=1, says="unknown parameter 'rate'")


main()
