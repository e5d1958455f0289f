#!/usr/bin/env python3
"""Runs PyTorch's scalar functions on NaN, infinities, zeros of both signs and halves, and its optimizers over some
steps, and writes what tests/golden/functions.lua compares mslua's with.

  /usr/bin/python3 tools/golden/functions.py      needs NumPy and PyTorch (python3-torch)
"""

import json
import os

import torch
from torch.nn import functional as F

import philox

SEED, STEPS, SHAPE = 1, 8, (3, 4)
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "functions.json")

VALUES = ("nan inf -inf 0.0 -0.0 0.25 -0.25 0.5 -0.5 1.0 -1.0 1.5 -1.5 2.5 -2.5 3.0 -3.0 3.5 -3.5 20.0 -20.0 100.0 "
          "-100.0 8388609.0 -8388609.0 1e+30 -1e+30").split()
PAIRED = 15  # so many of them, with each other, for functions of two operands
# mslua's names of functions of one operand; PyTorch's where it has another.
UNARY = {name: getattr(torch, name) for name in
         ("abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfinv exp expm1 floor isfinite lgamma log "
          "log1p neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan tanh").split()}
UNARY.update(hsigmoid=F.hardsigmoid, hswish=F.hardswish, mish=F.mish, silu=F.silu, softplus=F.softplus)
BINARY = {"maximum": torch.maximum, "minimum": torch.minimum, "pow": torch.pow, "div": torch.div,
          "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le, "greater": torch.gt,
          "greater_equal": torch.ge, "atan2": torch.atan2, "floor_div": torch.floor_divide,
          "floor_mod": torch.remainder, "truncate_div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
          "fmod": torch.fmod}


def words(t):
    """Numbers as text: JSON has no NaN, no infinity and no -0 that readers keep apart."""
    return " ".join(repr(v) for v in t.double().reshape(-1).tolist())


def functions():
    for dtype in torch.float64, torch.float32:
        x = torch.tensor([float(v) for v in VALUES], dtype=dtype)
        few = x[:PAIRED]
        a, b = few[:, None].expand(PAIRED, -1), few[None, :].expand(PAIRED, -1)
        name_of_type = str(dtype)[len("torch."):]
        for name, f in UNARY.items():
            yield {"function": name, "dtype": name_of_type, "values": words(f(x))}
        for name, f in BINARY.items():
            yield {"function": name, "dtype": name_of_type, "pairs": True, "values": words(f(a, b))}


class NAdam:
    """PyTorch 2's NAdam. That of Debian's 1.13 takes one factor of the product of momenta twice."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3):
        self.w, self.lr, self.betas, self.eps, self.weight_decay = params[0], lr, betas, eps, weight_decay
        self.momentum_decay, self.steps, self.product = momentum_decay, 0, 1
        self.m, self.v = torch.zeros_like(self.w), torch.zeros_like(self.w)

    def step(self):
        self.steps += 1
        (b1, b2), t = self.betas, self.steps
        mu, following = (b1 * (1 - 0.5 * 0.96 ** (k * self.momentum_decay)) for k in (t, t + 1))
        self.product *= mu
        with torch.no_grad():
            g = self.w.grad + self.weight_decay * self.w
            self.m = b1 * self.m + (1 - b1) * g
            self.v = b2 * self.v + (1 - b2) * g * g
            root = (self.v / (1 - b2 ** t)).sqrt() + self.eps
            self.w -= self.lr * ((1 - mu) / (1 - self.product) * g
                                 + following / (1 - self.product * following) * self.m) / root


def optimizer(torch_class, cell, options, **others):
    """A parameter after each step; `others` are the options that PyTorch names otherwise, or not at all."""
    names = {"learning_rate": "lr", "epsilon": "eps", "decay": "alpha", "use_amsgrad": "amsgrad"}
    given = {names.get(k, k): v for k, v in options.items()}
    if "beta1" in given:
        given["betas"] = (given.pop("beta1"), given.pop("beta2"))
    w = torch.from_numpy(philox.normal(SEED, "w", SHAPE).astype("float64")).requires_grad_()
    update = (NAdam if torch_class == "NAdam" else getattr(torch.optim, torch_class))([w], **given)
    after = []
    for step in range(1, STEPS + 1):
        w.grad = torch.from_numpy(philox.normal(SEED, "gradient.%d" % step, SHAPE).astype("float64"))
        update.step()
        after.append(w.reshape(-1).tolist())
    return {"optimizer": cell, "options": dict(options, **others), "after": after}


def optimizers():
    betas, small = {"beta1": 0.8, "beta2": 0.9}, {"learning_rate": 0.01, "weight_decay": 0.1}
    for name, cell in ("Adam", "Adam"), ("AdamW", "AdamW"):
        yield optimizer(name, cell, dict(small))
        yield optimizer(name, cell, dict(small, use_amsgrad=True, eps=1e-3, **betas))
    for name, cell in ("Adamax", "AdaMax"), ("NAdam", "NAdam"), ("RAdam", "RAdam"):
        yield optimizer(name, cell, dict(small, weight_decay=0))
        yield optimizer(name, cell, dict(small, eps=1e-3, **betas))
    yield optimizer("NAdam", "NAdam", dict(small, momentum_decay=0.5, **betas))
    yield optimizer("Adadelta", "Adadelta", {"learning_rate": 1.0})
    yield optimizer("Adadelta", "Adadelta", dict(small, rho=0.8, epsilon=1e-3))
    yield optimizer("SGD", "SGD", dict(small, momentum=0.9, nesterov=True))
    yield optimizer("Adagrad", "Adagrad", dict(learning_rate=0.1, initial_accumulator_value=0.1, eps=0), accum=0.1)


def main():
    philox.check()
    made = {"seed": SEED, "shape": list(SHAPE), "inputs": VALUES, "paired": PAIRED, "functions": list(functions()),
            "optimizers": list(optimizers())}
    for case in made["optimizers"]:
        for name in "initial_accumulator_value", "eps":
            if case["optimizer"] == "Adagrad":
                del case["options"][name]
    with open(FILE, "w", encoding="ascii") as f:
        f.write(json.dumps(made, indent=1) + "\n")
    print(os.path.normpath(FILE))


if __name__ == "__main__":
    main()
