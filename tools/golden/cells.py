#!/usr/bin/env python3
"""Runs PyTorch's cells on mslua's initial values and data in float64, and writes what tests/golden/cells.lua compares
mslua's with: a loss that weights every output, and the norms of its gradients.

  /usr/bin/python3 tools/golden/cells.py      needs NumPy and PyTorch (python3-torch)
"""

import json
import os

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import philox

SEED = 1
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "cells.json")


def numbers(stream, shape):
    return torch.from_numpy(philox.normal(SEED, stream, shape).astype("float64"))


def mslua_name(name):
    if ".in_proj_" in name:
        return name.replace(".in_proj_", ".in_proj.")
    if "norm" in name:
        return name.replace(".weight", ".gamma").replace(".bias", ".beta")
    return name


def norm_name(name):
    return {"weight": "gamma", "bias": "beta"}[name]


def fill(net, name_of=mslua_name):
    """Normal numbers, by the names of mslua's parameters."""
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(0.3 * numbers(name_of(name), tuple(p.shape)))


def weighted(outputs):
    """The loss: every output times numbers of its own."""
    return sum((y * numbers("out.%d" % i, tuple(y.shape))).sum() for i, y in enumerate(outputs, 1))


def result(case, net, x, loss, name_of=mslua_name):
    loss.backward()
    norms = {name_of(name): p.grad.norm().item() for name, p in net.named_parameters()}
    return dict(case, loss=loss.item(), x_gradient=x.grad.norm().item(), gradient_norms=norms)


def recurrent(cell, x, states=0, lengths=None, **options):
    """A case of nn.LSTM, GRU or RNN: x is [t, n, i]; so many states are given; MindSpore's options."""
    names = {"has_bias": "bias"}
    made = dict({names.get(k, k): v for k, v in options.items()})
    net = getattr(nn, cell)(**made).double()
    fill(net)
    case = {"cell": cell, "options": options, "x": x, "states": states}
    given = numbers("x", x).requires_grad_()
    t, n = (x[1], x[0]) if options.get("batch_first") else (x[0], x[1])
    shape = (options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1), n, options["hidden_size"])
    state = [numbers("state.%d" % i, shape) for i in range(1, states + 1)]
    hx = None if not state else state[0] if states == 1 else tuple(state)
    if lengths:
        case["lengths"] = lengths
        first = options.get("batch_first", False)
        y, last = net(pack_padded_sequence(given, lengths, first, enforce_sorted=False), hx)
        y, _ = pad_packed_sequence(y, first, total_length=t)
    else:
        y, last = net(given, hx)
    return result(case, net, given, weighted([y, *last] if isinstance(last, tuple) else [y, last]))


def step(cell, x, states=0, **options):
    """A case of nn.LSTMCell, GRUCell or RNNCell: x is [n, i]."""
    names = {"has_bias": "bias"}
    net = getattr(nn, cell)(**{names.get(k, k): v for k, v in options.items()}).double()
    fill(net)
    given = numbers("x", x).requires_grad_()
    state = [numbers("state.%d" % i, (x[0], options["hidden_size"])) for i in range(1, states + 1)]
    last = net(given, None if not state else state[0] if states == 1 else tuple(state))
    case = {"cell": cell, "options": options, "x": x, "states": states}
    return result(case, net, given, weighted(last if isinstance(last, tuple) else [last]))


def mask_of(kind, t, s):
    """The mask of a case: "future" hides later keys, "numbers" are added to the scores."""
    return torch.ones(t, s, dtype=torch.bool).triu(1) if kind == "future" else numbers("mask", (t, s))


def hidden_of(lengths, s):
    return torch.arange(s)[None, :] >= torch.tensor(lengths)[:, None]


def transformer(cell, x, memory=None, layers=0, masks=None, lengths=None, **options):
    """A case of TransformerEncoderLayer or TransformerDecoderLayer, or of a stack of `layers` with a normalisation. x
    and memory are shapes; masks: of the arguments' names, see mask_of; lengths: of a padding mask's name."""
    net = getattr(nn, "Transformer%sLayer" % cell)(dropout=0.0, **options)
    if layers:
        net = getattr(nn, "Transformer" + cell)(net, layers, nn.LayerNorm(options["d_model"]))
    net = net.double()
    fill(net)
    masks, lengths = masks or {}, lengths or {}
    given = numbers("x", x).requires_grad_()
    seen = [] if memory is None else [numbers("memory", memory)]
    time = 1 if options.get("batch_first") else 0
    t, s = x[time], x[time] if memory is None else memory[time]
    named = {name: mask_of(kind, t, s if "memory" in name else t) for name, kind in masks.items()}
    if layers and cell == "Encoder":
        named = {name.replace("src_mask", "mask"): mask for name, mask in named.items()}
    for name, values in lengths.items():
        named[name] = hidden_of(values, s if "memory" in name else t)
        if layers and cell == "Encoder":
            named["src_key_padding_mask"] = named.pop(name)
    case = {"transformer": cell, "options": options, "x": x, "layers": layers, "masks": masks, "lengths": lengths}
    if memory is not None:
        case["memory"] = memory
    return result(case, net, given, weighted([net(given, *seen, **named)]))


def bag(ids, offsets=None, **options):
    """A case of nn.EmbeddingBag; its outputs are multiplied by x."""
    net = nn.EmbeddingBag(options["vocab_size"], options["embedding_size"], mode=options.get("mode", "mean"),
                          padding_idx=options.get("padding_idx")).double()
    with torch.no_grad():
        net.weight.copy_(0.3 * numbers("embedding_table", tuple(net.weight.shape)))
    x = [len(offsets or ids), options["embedding_size"]]
    given = numbers("x", x).requires_grad_()
    y = net(torch.tensor(ids), torch.tensor(offsets) if offsets else None)
    case = {"bag": "EmbeddingBag", "options": options, "x": x, "ids": ids}
    if offsets:
        case["offsets"] = offsets
    done = result(case, net, given, weighted([y * given]))
    return dict(done, gradient_norms={"embedding_table": done["gradient_norms"]["weight"]})


def layer(net, cell, x, name_of=mslua_name, **options):
    """A case of a cell with one input and one output: PyTorch's module, mslua's cell with its options."""
    net = net.double().train()
    fill(net, name_of)
    given = numbers("x", x).requires_grad_()
    case = {"layer": cell, "options": options, "x": x}
    return result(case, net, given, weighted([net(given)]), name_of)


def embedding(ids, **options):
    """A case of nn.Embedding with a row of padding; its outputs are multiplied by x."""
    net = nn.Embedding(options["vocab_size"], options["embedding_size"], options["padding_idx"]).double()
    with torch.no_grad():
        net.weight.copy_(0.3 * numbers("embedding_table", tuple(net.weight.shape)))
    x = [len(ids), len(ids[0]), options["embedding_size"]]
    given = numbers("x", x).requires_grad_()
    case = {"bag": "Embedding", "options": options, "x": x, "ids": ids}
    return result(case, net, given, weighted([net(torch.tensor(ids)) * given]), lambda name: "embedding_table")


def convolutions():
    pad = {"pad_mode": "pad"}
    yield layer(nn.Conv1d(4, 6, 3, 2, 1, groups=2), "Conv1d", [2, 4, 9], in_channels=4, out_channels=6, kernel_size=3,
                stride=2, padding=1, group=2, has_bias=True, **pad)
    yield layer(nn.Conv1d(4, 3, 3, padding="same", dilation=2, bias=False), "Conv1d", [2, 4, 9], in_channels=4,
                out_channels=3, kernel_size=3, dilation=2)
    yield layer(nn.ConvTranspose1d(4, 6, 3, 2, 1, output_padding=1, groups=2), "Conv1dTranspose", [2, 4, 5],
                in_channels=4, out_channels=6, kernel_size=3, stride=2, padding=1, output_padding=1, group=2,
                has_bias=True, **pad)
    yield layer(nn.Conv3d(4, 6, (3, 2, 3), (2, 1, 2), (1, 0, 2), (1, 2, 1), 2), "Conv3d", [2, 4, 5, 6, 7],
                in_channels=4, out_channels=6, kernel_size=[3, 2, 3], stride=[2, 1, 2], padding=[1, 0, 2],
                dilation=[1, 2, 1], group=2, has_bias=True, **pad)
    yield layer(nn.Conv3d(3, 4, 3, padding="same", bias=False), "Conv3d", [2, 3, 4, 5, 3], in_channels=3,
                out_channels=4, kernel_size=3)
    yield layer(nn.Conv3d(3, 4, (1, 2, 2), (2, 2, 2), bias=False), "Conv3d", [2, 3, 4, 5, 4], in_channels=3,
                out_channels=4, kernel_size=[1, 2, 2], stride=2, pad_mode="valid")


def norms():
    sizes = {1: [3, 4, 5], 2: [3, 4, 5, 2], 3: [3, 4, 2, 3, 2]}
    for d, x in sizes.items():
        name = "InstanceNorm%dd" % d
        yield layer(getattr(nn, name)(4, affine=True), name, x, norm_name, num_features=4)
        name = "BatchNorm%dd" % d
        yield layer(getattr(nn, name)(4), name, x, norm_name, num_features=4)
    yield layer(nn.LayerNorm([4, 5]), "LayerNorm", [3, 4, 5], norm_name, normalized_shape=[4, 5])
    yield layer(nn.LayerNorm([3, 4, 5]), "LayerNorm", [2, 3, 4, 5], norm_name, normalized_shape=[3, 4, 5])
    yield layer(nn.GroupNorm(2, 4), "GroupNorm", [3, 4, 5, 2], norm_name, num_groups=2, num_channels=4)


def pools():
    sizes = {1: [2, 3, 11], 2: [2, 3, 11, 8], 3: [2, 3, 7, 8, 6]}
    for d, x in sizes.items():
        for kind, more in ("Max", [{}]), ("Avg", [{}, {"count_include_pad": False}]):
            name = "%sPool%dd" % (kind, d)
            for extra in more:
                for ceil in False, True:
                    yield layer(getattr(nn, name)(3, 2, 1, ceil_mode=ceil, **extra), name, x, kernel_size=3, stride=2,
                                pad_mode="pad", padding=1, ceil_mode=ceil, **extra)
            yield layer(getattr(nn, name)(2), name, x, kernel_size=2)
    for kind in "Avg", "Max":
        for size in 1, 4, 13:
            name = "Adaptive%sPool1d" % kind
            yield layer(getattr(nn, name)(size), name, sizes[1], output_size=size)
        for size, ours in ((1, 1), ((4, 3), [4, 3]), ((5, None), [5, -1]), ((None, 10), [-1, 10])):
            name = "Adaptive%sPool2d" % kind
            yield layer(getattr(nn, name)(size), name, sizes[2], output_size=ours)
    yield layer(nn.Upsample(scale_factor=(2, 3)), "Upsample", sizes[2], scale_factor=[2, 3])
    for corners in False, True:
        yield layer(nn.Upsample(scale_factor=(3, 2), mode="bilinear", align_corners=corners), "Upsample", sizes[2],
                    scale_factor=[3, 2], mode="bilinear", align_corners=corners)


def activations():
    x = [3, 8]
    for name in ("ReLU6 SELU SiLU Sigmoid LogSigmoid Tanh Hardtanh Mish Softplus Softsign ReLU ELU CELU GLU "
                 "Identity").split():
        yield layer(getattr(nn, name)(), name, x)
    # PyTorch's gradient of Hardsigmoid has 1 / 6 in float32.
    yield dict(layer(nn.Hardsigmoid(), "HSigmoid", x), tolerance=1e-7)
    yield layer(nn.Hardswish(), "HSwish", x)
    yield layer(nn.GELU(), "GELU", x, approximate=False)
    yield layer(nn.GELU(approximate="tanh"), "GELU", x)
    yield layer(nn.ELU(0.7), "ELU", x, alpha=0.7)
    yield layer(nn.CELU(0.5), "CELU", x, alpha=0.5)
    yield layer(nn.LeakyReLU(0.1), "LeakyReLU", x, alpha=0.1)
    yield layer(nn.Hardtanh(-0.3, 0.7), "Hardtanh", x, min_val=-0.3, max_val=0.7)
    yield layer(nn.GLU(0), "GLU", [4, 3, 2], axis=1)
    yield layer(nn.Softmax(1), "Softmax", [3, 5, 2], axis=2)
    yield layer(nn.LogSoftmax(-1), "LogSoftmax", x)
    yield layer(nn.PReLU(4), "PReLU", [3, 4, 2], channel=4)


def sparse_adam():
    """A table after three steps of SparseAdam, which leaves rows without an index alone; the loss is that of cases."""
    table = nn.Embedding(9, 2, sparse=True).double()
    with torch.no_grad():
        table.weight.copy_(0.3 * numbers("embedding_table", (9, 2)))
    update = torch.optim.SparseAdam(table.parameters(), lr=0.1, betas=(0.8, 0.9), eps=1e-3)
    steps = [[0, 3, 3, 7], [7, 1, 0, 1], [3, 3, 3, 3]]
    for ids in steps:
        update.zero_grad()
        weighted([table(torch.tensor(ids))**2]).backward()
        update.step()
    return {"steps": steps, "table": table.weight.tolist()}


def cases():
    for group in convolutions, norms, pools, activations:
        yield from group()
    yield embedding([[0, 2, 2], [4, 1, 3]], vocab_size=5, embedding_size=4, padding_idx=2)
    for mode in "sum", "mean", "max":
        yield bag([[0, 2, 2], [4, 1, 3]], vocab_size=5, embedding_size=4, mode=mode)
        yield bag([[0, 2, 2], [2, 2, 2], [4, 2, 3]], vocab_size=5, embedding_size=4, mode=mode, padding_idx=2)
    for mode in "sum", "mean":
        yield bag([0, 2, 2, 4, 2], [0, 1, 1, 3], vocab_size=5, embedding_size=4, mode=mode)
    small = {"d_model": 8, "nhead": 2, "dim_feedforward": 12}
    yield transformer("Encoder", [5, 3, 8], masks={"src_mask": "numbers"}, **small)
    yield transformer("Encoder", [3, 5, 8], layers=2, masks={"src_mask": "future"},
                      lengths={"src_key_padding_mask": [5, 2, 3]}, batch_first=True, norm_first=True,
                      activation="gelu", **small)
    yield transformer("Decoder", [5, 3, 8], [4, 3, 8], masks={"tgt_mask": "future", "memory_mask": "numbers"}, **small)
    yield transformer("Decoder", [3, 5, 8], [3, 4, 8], layers=2, masks={"tgt_mask": "future"},
                      lengths={"tgt_key_padding_mask": [5, 2, 3], "memory_key_padding_mask": [1, 4, 2]},
                      batch_first=True, norm_first=True, activation="gelu", **small)
    sizes = {"input_size": 5, "hidden_size": 7}
    both = dict(sizes, num_layers=2, bidirectional=True)
    for cell, states in (("LSTM", 2), ("GRU", 1), ("RNN", 1)):
        yield recurrent(cell, [6, 3, 5], **sizes)
        yield recurrent(cell, [6, 3, 5], states, has_bias=False, **sizes)
        yield recurrent(cell, [6, 4, 5], states, [6, 1, 4, 3], **both)
        yield recurrent(cell, [4, 6, 5], states, [2, 6, 5, 6], batch_first=True, **both)
        yield step(cell + "Cell", [3, 5], **sizes)
        yield step(cell + "Cell", [3, 5], states, has_bias=False, **sizes)
    yield recurrent("RNN", [6, 4, 5], 1, [6, 1, 4, 3], nonlinearity="relu", **both)


def main():
    philox.check()
    with open(FILE, "w") as f:
        f.write(json.dumps({"seed": SEED, "cases": list(cases()), "sparse_adam": sparse_adam()}, indent=1) + "\n")
    print(os.path.normpath(FILE))


if __name__ == "__main__":
    main()
