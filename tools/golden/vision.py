#!/usr/bin/env python3
"""Losses and gradient norms of torchvision's classes, small, which tests/golden/vision.lua compares the networks of
lua/mslua/models with.

  /usr/bin/python3 tools/golden/vision.py      needs NumPy, python3-torch and python3-torchvision

Parameters have the names of torchvision's on both sides, but for gamma and beta of normalisations. Their values, and
the data, are random numbers of streams of their own; dropout and stochastic depth are off.
"""
import json
import math
import os

import torch
from torch import nn
from torch.nn import functional as F
from torchvision import models
from torchvision.models import convnext, efficientnet, swin_transformer, vgg

import philox

SEED = 1
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "vision.json")


def with_classifier(net, flat, hidden):
    """Its dense layers narrower than 4096: float64 would take a minute."""
    places = [i for i, cell in enumerate(net.classifier) if isinstance(cell, nn.Linear)]
    for i, sizes in zip(places, ((flat, hidden), (hidden, hidden), (hidden, 10))):
        net.classifier[i] = nn.Linear(*sizes)
    return net


def make_vgg(batch_norm):
    layout = [8, "M", 16, "M", 32, 32, "M", 64, 64, "M", 64, 64, "M"]
    net = vgg.VGG(vgg.make_layers(layout, batch_norm=batch_norm), num_classes=10, dropout=0)
    return with_classifier(net, 64 * 49, 24)


def make_efficientnet():
    setting, last = efficientnet._efficientnet_conf("efficientnet_b0", width_mult=0.25, depth_mult=0.5)
    return efficientnet.EfficientNet(setting, 0, 0, num_classes=10, last_channel=last)


def make_convnext():
    dims, depths = [8, 16, 24], [1, 2, 1]
    setting = [convnext.CNBlockConfig(d, dims[i + 1] if i < 2 else None, depths[i]) for i, d in enumerate(dims)]
    return convnext.ConvNeXt(setting, 0, 1e-6, num_classes=10)


def make_swin():
    return swin_transformer.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0, num_classes=10)


# The module and the function of mslua's network, its options, torchvision's, and the pictures.
CASES = {
    "alexnet": ("alexnet", "", {"classes": 10, "hidden": 24, "dropout": 0},
                lambda: with_classifier(models.AlexNet(num_classes=10, dropout=0), 256 * 36, 24), [2, 3, 67, 63]),
    "vgg11": ("vgg", "vgg11", {"classes": 10, "width": 8, "hidden": 24, "dropout": 0},
              lambda: make_vgg(False), [2, 3, 33, 64]),
    "vgg11_bn": ("vgg", "vgg11", {"classes": 10, "width": 8, "hidden": 24, "dropout": 0, "batch_norm": True},
                 lambda: make_vgg(True), [4, 3, 64, 64]),
    "googlenet": ("googlenet", "", {"classes": 10, "wide_kernel": 3, "dropout": 0, "dropout_aux": 0},
                  lambda: models.GoogLeNet(num_classes=10, init_weights=False, dropout=0, dropout_aux=0),
                  [4, 3, 64, 64]),
    "efficientnet": ("efficientnet", "efficientnet_b0",
                     {"classes": 10, "width": 0.25, "depth": 0.5, "dropout": 0, "drop_path": 0},
                     make_efficientnet, [4, 3, 64, 64]),
    "convnext": ("convnext", "convnext_tiny",
                 {"classes": 10, "depths": [1, 2, 1], "dims": [8, 16, 24], "drop_path": 0}, make_convnext,
                 [2, 3, 32, 40]),
    # 9 x 13 patches in windows of 4: both kinds of padding, and borders.
    "swin": ("swin", "swin_t", {"classes": 10, "window": 4, "dim": 16, "depths": [2, 2], "heads": [2, 4],
                                "drop_path": 0}, make_swin, [2, 3, 36, 52]),
}


def mslua_name(name, module):
    if not isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
        return name
    return name[:-len("weight")] + "gamma" if name.endswith("weight") else name[:-len("bias")] + "beta"


def value_of(name, shape):
    """Of a parameter: around 1 for gamma, small for what is added, else of variance 1 / fan in."""
    values = torch.from_numpy(philox.normal(SEED, "golden." + name, shape)).double()
    if name.endswith("gamma"):
        return 1 + 0.1 * values
    return 0.1 * values if len(shape) == 1 else values / math.sqrt(math.prod(shape[1:]))


def golden(make, shape):
    net = make().double().train()
    names, total = {}, 0
    with torch.no_grad():
        for path, module in net.named_modules():
            for name, p in module.named_parameters(recurse=False):
                full = mslua_name(path + "." + name if path else name, module)
                names[full] = p
                total += p.numel()
                p.copy_(value_of(full, tuple(p.shape)))
    x = torch.from_numpy(philox.normal(SEED, "golden.x", shape)).double()
    y = torch.arange(shape[0]) * 3 % 10
    out = net(x)
    outputs = [out] if torch.is_tensor(out) else [out.logits, out.aux_logits2, out.aux_logits1]
    loss = sum((0.3 if i else 1) * F.cross_entropy(o, y) for i, o in enumerate(outputs))
    loss.backward()
    return {"loss": loss.item(), "parameters": total,
            "gradient_norms": {name: p.grad.norm().item() for name, p in names.items()}}


def main():
    philox.check()
    cases = []
    for name, (module, function, options, make, shape) in CASES.items():
        cases.append(dict(golden(make, shape), name=name, module=module, function=function, options=options,
                          x=shape))
        print(name, cases[-1]["loss"], cases[-1]["parameters"])
    with open(PATH, "w", encoding="ascii") as file:
        json.dump({"seed": SEED, "cases": cases}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
