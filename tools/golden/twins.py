#!/usr/bin/env python3
"""Trains the PyTorch twin of a recipe, and the recipe with mslua, and prints what both reach.

  /usr/bin/python3 tools/golden/twins.py --recipe lenet_mnist --data /data/mnist --mslua .build/mslua

needs NumPy and PyTorch (python3-torch). The twin has the recipe's network, loss, optimizer, schedule, clipping,
dropout, averages of parameters and evaluations. It starts from the values that mslua draws for the seed and trains on
the rows that mslua reads (twins.lua writes both); the order of its batches, what it augments, dropout and noise are
drawn by PyTorch from the same seed. It computes in float32, mslua as the recipe says. The networks are those whose
gradients tests/golden compares.
"""

import argparse
import contextlib
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import generate
import philox
import pictures
from generate import cosine, warm

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = 500  # of a batch of an evaluation, where it does not matter


# ---------------------------------------------------------------------------------------------------------- optimizers


class AdamWeightDecay(torch.optim.Optimizer):
    """MindSpore's and BERT's: AdamW whose moments are not corrected for beginning at 0."""

    def __init__(self, groups, betas=(0.9, 0.999), eps=1e-6):
        super().__init__(groups, {"lr": 0.0, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            parameters, (beta1, beta2) = group["params"], group["betas"]
            gradients = [p.grad for p in parameters]
            if "m" not in group:
                group["m"], group["v"] = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
            torch._foreach_mul_(group["m"], beta1)
            torch._foreach_add_(group["m"], gradients, alpha=1 - beta1)
            torch._foreach_mul_(group["v"], beta2)
            torch._foreach_addcmul_(group["v"], gradients, gradients, 1 - beta2)
            divisors = torch._foreach_sqrt(group["v"])
            torch._foreach_add_(divisors, group["eps"])
            steps = torch._foreach_div(group["m"], divisors)
            if group["weight_decay"] > 0:
                torch._foreach_add_(steps, parameters, alpha=group["weight_decay"])
            torch._foreach_add_(parameters, steps, alpha=-group["lr"])


def matrices_decay(net, decay):
    """Groups in which biases and what normalises do not decay."""
    def decays(p):
        return p.dim() > 1 and getattr(p, "decays", True)

    return [{"params": [p for p in net.parameters() if decays(p) == side], "weight_decay": decay if side else 0.0}
            for side in (True, False)]


def linear(high, low, total):
    """polynomial_decay_lr of power 1."""
    return lambda step: (high - low) * (1 - min(step, total) / total) + low


class Step:
    """One update: of what loss(columns of a batch) gives, with the rate of a step from 0."""

    def __init__(self, loss, rate, *optimizers):
        self.loss, self.rate, self.optimizers = loss, rate, optimizers
        self.parameters = [p for o in optimizers for group in o.param_groups for p in group["params"]]

    def run(self, number, columns, clip):
        loss = self.loss(*columns)
        for p, gradient in zip(self.parameters, torch.autograd.grad(loss, self.parameters)):
            p.grad = gradient
        if clip:
            nn.utils.clip_grad_norm_(self.parameters, clip)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate(number)
            optimizer.step()


class Averages:
    """The recipe's train.ema."""

    def __init__(self, net, decay):
        self.parameters, self.decay, self.updates = list(net.parameters()), decay, 0
        self.values = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def update(self):
        self.updates += 1
        share = (1 - self.decay) / (1 - self.decay**self.updates)
        torch._foreach_mul_(self.values, 1 - share)
        torch._foreach_add_(self.values, self.parameters, alpha=share)

    @contextlib.contextmanager
    def in_use(self):
        """The network has them meanwhile."""
        own = [p.detach().clone() for p in self.parameters]
        for p, value in zip(self.parameters, self.values):
            p.data.copy_(value)
        yield
        for p, value in zip(self.parameters, own):
            p.data.copy_(value)


# ------------------------------------------------------------------------------------------------------------- metrics


def in_batches(function, *columns, rows=ROWS):
    """What function gives for batches of the columns, joined."""
    parts = [function(*(c[i:i + rows] for c in columns)) for i in range(0, len(columns[0]), rows)]
    return torch.cat(parts)


def top1(logits, labels):
    return (logits.argmax(1) == labels).double().mean().item()


def auc(scores, labels):
    """The share of pairs of a positive and a negative row in which the positive one has the higher score."""
    _, place, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts - 1) / 2)[place]
    positives = labels.sum().item()
    above = ranks[labels == 1].sum().item() - positives * (positives + 1) / 2
    return above / (positives * (len(labels) - positives))


def iou(predicted, wanted, classes):
    shares = []
    for c in range(classes):
        union = ((predicted == c) | (wanted == c)).sum().item()
        if union > 0:
            shares.append(((predicted == c) & (wanted == c)).sum().item() / union)
    return sum(shares) / len(shares)


# -------------------------------------------------------------------------------------------------------------- twins


class Twin:
    """What the twins of recipes have in common. `p` are the recipe's parameters; train and eval the columns of its
    datasets. A subclass has make, which gives the network, steps and measure."""

    def __init__(self, settings, train, evaluation, program):
        self.settings, self.train, self.eval = settings, train, evaluation
        self.p = dict(settings["params"], **settings["network"])
        self.program = program
        self.rows = self.p["batch_size"] or self.share
        self.net = self.make(self.p)

    share = 0  # the batch of recipes that share one over ranks

    def steps_per_epoch(self):
        return len(self.train[0]) // self.rows

    def total(self):
        return self.p["epochs"] * self.steps_per_epoch()

    def batches(self):
        """The columns of the batches of an epoch."""
        order = torch.randperm(len(self.train[0]))
        for i in range(self.steps_per_epoch()):
            picked = order[i * self.rows:(i + 1) * self.rows]
            yield [c[picked] for c in self.train]


class Classes(Twin):
    """Networks of (x, labels)."""

    def logits(self):
        return in_batches(self.net, self.eval[0])

    def measure(self):
        return {"eval_top1": top1(self.logits(), self.eval[1])}


class Lenet(Classes):
    make = generate.LeNet

    def steps(self):
        p = self.p
        return [Step(self.net.loss, cosine(0, p["lr"], self.total()),
                     torch.optim.SGD(self.net.parameters(), lr=p["lr"], momentum=p["momentum"]))]


def cropped(x, places, flips, fill):
    """Pictures [n, c, s, s] of which each is moved by its place, from 0 to 8, less 4, and flipped or not."""
    n, c, s, _ = x.shape
    padded, line = F.pad(x, (4, 4, 4, 4), value=fill), torch.arange(s)
    down = places[:, 0, None] + line
    across = places[:, 1, None] + torch.where(flips[:, None], s - 1 - line, line)
    return padded[torch.arange(n)[:, None, None, None], torch.arange(c)[None, :, None, None], down[:, None, :, None],
                  across[:, None, None, :]]


def drawn_crops(n):
    return torch.randint(9, (n, 2)), torch.rand(n) < 0.5


class Cifar(Classes):
    share = 128

    def batches(self):
        for x, labels in super().batches():
            yield cropped(x, *drawn_crops(len(x)), 0.0), labels

    def steps(self):
        p = self.p
        return [Step(self.net.loss, generate.one_cycle(p["lr"], self.total()),
                     torch.optim.SGD(self.net.parameters(), lr=p["lr"], momentum=p["momentum"], nesterov=True,
                                     weight_decay=p["weight_decay"]))]


class MobileNet(Cifar):
    make = generate.MobileNetV2


class Resnet(Cifar):
    def make(self, p):
        return generate.ResNet(p, [2, 2, 2, 2], False, "cifar").to(memory_format=torch.channels_last)


class Vit(Cifar):
    make, share = generate.Vit, 64

    def steps(self):
        p, each = self.p, self.steps_per_epoch()
        warmup = int(p["warmup"] * each)
        return [Step(self.net.loss, warm(cosine(0, p["lr"], self.total() - warmup), warmup),
                     AdamWeightDecay(matrices_decay(self.net, p["weight_decay"]), (p["beta1"], p["beta2"]), 1e-8))]


class WideDeepNet(nn.Module):
    def __init__(self, p, categories=8, crosses=5, numbers=5, most=64):
        super().__init__()
        self.categories = categories
        self.deep = nn.Embedding(categories * most, p["embedding"])
        self.wide = nn.Embedding(categories * most + crosses * p["buckets"], 2)
        self.first = torch.tensor([i * most for i in range(categories)] +
                                  [categories * most + i * p["buckets"] for i in range(crosses)])
        self.norm, hidden = nn.BatchNorm1d(2 * numbers), p["hidden"]
        self.layers = nn.Sequential(nn.Linear(categories * p["embedding"] + 2 * numbers, hidden), nn.ReLU(),
                                    nn.Dropout(p["dropout"]), nn.Linear(hidden, hidden), nn.ReLU(),
                                    nn.Dropout(p["dropout"]), nn.Linear(hidden, 2))

    def forward(self, x, ids):
        ids = ids + self.first
        deep = self.deep(ids[:, :self.categories]).flatten(1)
        x = self.norm(torch.cat([x, torch.log(x + 1)], 1))
        return self.wide(ids).sum(1) + self.layers(torch.cat([deep, x], 1))


class Clicks(Twin):
    """Networks of (numbers, categories, labels of two classes)."""

    def loss(self, x, ids, labels):
        return F.cross_entropy(self.net(x, ids), labels)

    def measure(self):
        logits, labels = in_batches(self.net, *self.eval[:2]), self.eval[2]
        return {"eval_accuracy": top1(logits, labels), "eval_auc": auc(logits[:, 1] - logits[:, 0], labels)}


class WideDeep(Clicks):
    make = WideDeepNet

    def steps(self):
        groups = [{"params": list(self.net.parameters()), "weight_decay": self.p["weight_decay"]}]
        return [Step(self.loss, cosine(0, self.p["lr"], self.total()), AdamWeightDecay(groups))]


class DlrmNet(nn.Module):
    def __init__(self, p, numbers=13, tables=26):
        super().__init__()
        dim, height = p["dim"], -(-p["rows"] // 48) * 48
        self.bottom = nn.Sequential(nn.Linear(numbers, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
                                    nn.Linear(32, dim), nn.ReLU())
        self.tables = nn.ModuleList([nn.Embedding(height, dim, sparse=True) for _ in range(tables)])
        self.pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.top = nn.Sequential(nn.Linear(dim + self.pairs.shape[1], 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, x, ids):
        dense = self.bottom(torch.log(x.clamp(min=0) + 1))
        vectors = torch.stack([dense] + [table(ids[:, i]) for i, table in enumerate(self.tables)], 1)
        products = vectors @ vectors.transpose(1, 2)
        return self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], 1))


class Dlrm(Clicks):
    make = DlrmNet

    def steps(self):
        tables = list(self.net.tables.parameters())
        rest = list(self.net.bottom.parameters()) + list(self.net.top.parameters())
        return [Step(self.loss, lambda step: self.p["lr"], torch.optim.SparseAdam(tables), torch.optim.Adam(rest))]


class Vae(Twin):
    def make(self, p):
        return pictures.Vae(p["latent"], p["width"])

    def bounds(self, x):
        return self.net(x, torch.randn(len(x), self.p["latent"]))[1]

    def steps(self):
        return [Step(lambda x, _: self.bounds(x).mean(), cosine(0, self.p["lr"], self.total()),
                     torch.optim.Adam(self.net.parameters()))]

    def measure(self):
        return {"eval_loss": in_batches(self.bounds, self.eval[0]).double().mean().item()}


class Unet(Twin):
    make = generate.Unet

    def batches(self):
        for x, mask in super().batches():
            crops = drawn_crops(len(x))
            # Pictures are cropped before their pixels, from 0 to 255, become -1 to 1.
            yield cropped(x, *crops, -1.0), cropped(mask, *crops, 0)[:, 0]

    def steps(self):
        return [Step(self.net.loss, cosine(0, self.p["lr"], self.total()),
                     torch.optim.AdamW(self.net.parameters(), weight_decay=self.p["weight_decay"]))]

    def measure(self):
        predicted = in_batches(lambda x: self.net(x)[0].argmax(1), self.eval[0], rows=100)
        return {"eval_iou": iou(predicted, self.eval[1][:, 0], 2)}


class Characters(Twin):
    """Language models of windows of a text that begin anywhere."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        x, y = self.train
        self.text = torch.cat([x[:, 0], y[-1]])

    def windows(self):
        return len(self.text) - self.p["block"]

    def steps_per_epoch(self):
        return self.windows() // self.rows

    def batches(self):
        order, places = torch.randperm(self.windows()), torch.arange(self.p["block"] + 1)
        for i in range(self.steps_per_epoch()):
            picked = self.text[order[i * self.rows:(i + 1) * self.rows, None] + places]
            yield picked[:, :-1], picked[:, 1:]

    def steps(self):
        p = self.p
        low = min(p["min_lr"], p["lr"] / 10)
        return [Step(self.net.loss, warm(cosine(low, p["lr"], p["steps"] - p["warmup"]), p["warmup"]),
                     AdamWeightDecay(matrices_decay(self.net, p["weight_decay"]), (p["beta1"], p["beta2"]), 1e-8))]

    def losses(self, x, y):
        return F.cross_entropy(self.net(x).transpose(1, 2), y, reduction="none").mean(1)

    def measure(self):
        return {"eval_loss": in_batches(self.losses, *self.eval, rows=64).double().mean().item()}


class CharGpt(Characters):
    make = generate.Gpt


class Gpt2(Characters):
    def make(self, p):
        return generate.Gpt(p, "tanh")


class Llama(Characters):
    make = generate.Llama


class MoeGpt(Characters):
    make = generate.MoeGpt


class CharRnn(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.embed, self.head = nn.Embedding(p["vocab"], p["hidden"]), nn.Linear(p["hidden"], p["vocab"])
        self.rnn = getattr(nn, p["cell"])(p["hidden"], p["hidden"], p["layers"], batch_first=True,
                                          dropout=p["dropout"])

    def forward(self, ids, state=None):
        y, state = self.rnn(self.embed(ids), state)
        return self.head(y), state


class Lstm(Twin):
    """Its rows are in their order: each batch continues where the one before it ended."""
    make, state = CharRnn, None

    def batches(self):
        self.state = None
        for i in range(self.steps_per_epoch()):
            yield [c[i * self.rows:(i + 1) * self.rows] for c in self.train]

    def loss(self, x, y):
        logits, state = self.net(x, self.state)
        if self.p["carry"]:
            self.state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())

    def steps(self):
        groups = [{"params": list(self.net.parameters()), "weight_decay": self.p["weight_decay"]}]
        return [Step(self.loss, lambda step: self.p["lr"], AdamWeightDecay(groups))]

    def losses(self, x, y):
        return F.cross_entropy(self.net(x)[0].transpose(1, 2), y, reduction="none").mean(1)

    def measure(self):
        return {"eval_loss": in_batches(self.losses, *self.eval, rows=self.rows).double().mean().item()}


class Judged(Twin):
    """Networks that draw digits, and LeNet, trained beside, that judges them."""

    def judge(self, x):
        return self.net["judge"]["lenet"](((x + 1) / 2 - 0.1307) / 0.3081)

    def judging(self):
        return Step(lambda x, labels: F.cross_entropy(self.judge(x), labels), lambda step: self.p["judge_lr"],
                    torch.optim.SGD(self.net["judge"].parameters(), lr=self.p["judge_lr"], momentum=0.9))

    @staticmethod
    def with_judge(**nets):
        return nn.ModuleDict(dict(nets, judge=nn.ModuleDict({"lenet": generate.LeNet(None)})))

    def measure(self):
        likely = self.judge(in_batches(self.draw, self.eval[0], rows=100)).softmax(1)
        shares = torch.bincount(likely.argmax(1), minlength=10).double() / len(likely)
        return {"eval_confident": (likely.amax(1) > 0.9).double().mean().item(),
                "eval_entropy": torch.special.entr(shares).sum().item()}


class Dcgan(Judged):
    def make(self, p):
        return self.with_judge(generator=pictures.Generator(p["latent"], p["width"]),
                               discriminator=pictures.Discriminator(p["width"]))

    def draw(self, z):
        return self.net["generator"](z)[0]

    def fakes(self, n):
        return self.draw(torch.randn(n, self.p["latent"]))

    def real(self, x):
        return self.net["discriminator"](x)[0]

    def steps(self):
        p = self.p

        def adam(name):
            return torch.optim.Adam(self.net[name].parameters(), betas=(p["beta1"], 0.999))

        return [Step(lambda x, _: F.softplus(-self.real(x)).mean() +
                     F.softplus(self.real(self.fakes(len(x)).detach())).mean(), lambda step: p["lr"],
                     adam("discriminator")),
                Step(lambda x, _: F.softplus(-self.real(self.fakes(len(x)))).mean(), lambda step: p["lr"],
                     adam("generator")),
                self.judging()]


class Ddpm(Judged):
    def make(self, p):
        return self.with_judge(denoiser=pictures.Ddpm(1, p["width"], p["multiples"], p["patch"]))

    def steps(self):
        p, denoiser = self.p, self.net["denoiser"]
        rate = warm(cosine(0, p["lr"], self.total() - p["warmup"]), p["warmup"])
        return [Step(lambda x, _: denoiser(x, torch.randn_like(x), torch.rand(len(x)))[1], rate,
                     torch.optim.AdamW(denoiser.parameters(), weight_decay=0)), self.judging()]

    def draw(self, x):
        """DDIM's steps from noise to pictures."""
        steps = self.p["draw_steps"]

        def angle(k):
            return 0.999 * math.pi / 2 * k / steps

        for k in range(steps, 0, -1):
            noise = self.net["denoiser"].noise(x, torch.full((len(x),), k / steps))
            picture = ((x - math.sin(angle(k)) * noise) / math.cos(angle(k))).clamp(-1, 1)
            noise = (x - math.cos(angle(k)) * picture) / math.sin(angle(k))
            x = math.cos(angle(k - 1)) * picture + math.sin(angle(k - 1)) * noise
        return x


class BertClassify(Classes):
    make = generate.BertClassifier

    def rate(self):
        p = self.p
        return warm(linear(p["lr"], p["lr"] / 100, max(1, self.total() - p["warmup"])), p["warmup"])

    def steps(self):
        return [Step(self.net.loss, self.rate(), torch.optim.AdamW(matrices_decay(self.net, self.p["weight_decay"])))]

    def measure(self):
        return {"eval_accuracy": top1(self.logits(), self.eval[1])}


class BertMlmNet(generate.Bert):
    def __init__(self, p):
        super().__init__(p)
        dim = p["dim"]
        self.mlm = nn.Module()
        self.mlm.transform, self.mlm.transform_norm = nn.Linear(dim, dim), nn.LayerNorm(dim, 1e-12)
        self.mlm.bias = nn.Parameter(torch.empty(p["vocab"]))

    def forward(self, x):
        """Logits of the last layer's rows."""
        return self.mlm.transform_norm(F.gelu(self.mlm.transform(x))) @ self.words.weight.T + self.mlm.bias


class BertMlm(BertClassify):
    make = BertMlmNet

    def losses(self, ids, which, how, other):
        """The losses [n, most] of hidden tokens, and which of them count."""
        p, free = self.p, ids >= 5
        chosen = free & (which < p["hide"])
        instead = torch.where(how < 0.8, 4, torch.where(how < 0.9, (other * p["vocab"]).long(), ids))
        x = self.net.encode(torch.where(chosen, instead, ids))
        places = torch.where(free, which, torch.full_like(which, 2)).topk(p["most"], largest=False).indices
        rows = x.gather(1, places[:, :, None].expand(-1, -1, x.shape[2]))
        losses = F.cross_entropy(self.net(rows).transpose(1, 2), ids.gather(1, places), reduction="none")
        counts = chosen.gather(1, places).to(losses.dtype)
        return losses * counts, counts

    def loss(self, ids):
        losses, counts = self.losses(ids, *torch.rand(3, *ids.shape))
        return losses.sum() / counts.sum().clamp(min=1)

    def steps(self):
        return [Step(self.loss, self.rate(), torch.optim.AdamW(matrices_decay(self.net, self.p["weight_decay"])))]

    def measure(self):
        shape = (self.rows, self.p["block"])
        draws = [torch.from_numpy(philox.uniform(self.settings["seed"], "bert_mlm." + name, shape))
                 for name in ("which", "how", "other")]

        def sums(ids):
            return torch.stack(self.losses(ids, *(d[:len(ids)] for d in draws)), 2).sum(1)

        losses, counts = in_batches(sums, self.eval[0], rows=self.rows).double().sum(0)
        return {"eval_loss": (losses / counts).item()}


class Translator(Twin):
    """Batches of sentences of similar length; BLEU of beam search."""

    def make(self, p):
        return generate.Translator(p, p["pad"])

    def lengths(self):
        return torch.maximum(*((c != self.p["pad"]).sum(1) for c in (self.train[0], self.train[2])))

    def buckets(self):
        """The rows of each."""
        edges = [0] + [n for n in self.p["buckets"] if n < self.p["longest"]] + [self.p["longest"]]
        lengths = self.lengths()
        return [((lengths > a) & (lengths <= b)).nonzero()[:, 0] for a, b in zip(edges, edges[1:])]

    def steps_per_epoch(self):
        return sum(len(rows) // self.rows for rows in self.buckets())

    def batches(self):
        batches = []
        for rows in self.buckets():
            rows = rows[torch.randperm(len(rows))]
            batches += [rows[i:i + self.rows] for i in range(0, len(rows) - self.rows + 1, self.rows)]
        lengths = self.lengths()
        for i in torch.randperm(len(batches)).tolist():
            yield [c[batches[i], :lengths[batches[i]].max()] for c in self.train]

    def steps(self):
        p = self.p
        rate = warm(linear(p["lr"], p["lr"] / 100, max(1, self.total() - p["warmup"])), p["warmup"])
        groups = [{"params": list(self.net.parameters())}]
        return [Step(self.net.loss, rate, AdamWeightDecay(groups, (0.9, 0.98), 1e-9))]

    def measure(self):
        task = self.settings["translate"]
        order = sorted(range(len(task["sources"])), key=lambda i: len(task["sources"][i]))
        found = [None] * len(order)
        for i in range(0, len(order), 32):
            group = order[i:i + 32]
            for place, ids in zip(group, self.translate([task["sources"][g] for g in group], task)):
                found[place] = ids
        return {"eval_bleu": self.program.score(found)}

    def translate(self, sources, task):
        """Beam search as net:translate of mslua makes it."""
        n, k, longest = len(sources), task["beams"], max(map(len, sources))
        source = torch.tensor([s + [self.p["pad"]] * (longest - len(s)) for s in sources])
        memory, hidden = (x.repeat_interleave(k, 0) for x in self.net.encode(source))
        scores = torch.full((n, k), -1e30)
        scores[:, 0] = 0
        ids, ended = torch.full((n * k, 1), task["begin"]), [[] for _ in range(n)]
        for step in range(1, self.p["block"] + 1):
            last = self.net.decode(ids, memory, hidden)[:, -1]
            likely = (last @ self.net.tokens.weight.T).log_softmax(1)
            values, places = (likely.reshape(n, k, -1) + scores[:, :, None]).flatten(1).topk(2 * k)
            beams, tokens = places // likely.shape[1], places % likely.shape[1]
            stops, kept = tokens == task["stop"], []
            for i in range(n):
                for c in (stops[i, :k] & (values[i, :k] > -5e29)).nonzero()[:, 0].tolist():
                    ended[i].append((values[i, c].item() / step**task["length_penalty"],
                                     ids[i * k + beams[i, c], 1:].tolist()))
                kept.append((~stops[i]).nonzero()[:k, 0])
            kept = torch.stack(kept)
            scores = values.gather(1, kept)
            parents = (beams.gather(1, kept) + torch.arange(n)[:, None] * k).flatten()
            ids = torch.cat([ids[parents], tokens.gather(1, kept).reshape(-1, 1)], 1)
            if all(len(e) >= k for e in ended):
                break
        return [max(e)[1] if e else ids[i * k, 1:].tolist() for i, e in enumerate(ended)]


TWINS = {
    "bert_classify": BertClassify, "bert_mlm": BertMlm, "char_gpt": CharGpt, "dcgan_mnist": Dcgan, "ddpm_mnist": Ddpm,
    "dlrm": Dlrm, "gpt2": Gpt2, "lenet_mnist": Lenet, "llama": Llama, "lstm_shakespeare": Lstm,
    "mobilenetv2_cifar10": MobileNet, "moe_gpt": MoeGpt, "resnet18_cifar10": Resnet, "transformer_en_de": Translator,
    "unet_shapes": Unet, "vae_mnist": Vae, "vit_cifar10": Vit, "wide_deep": WideDeep,
}


# ------------------------------------------------------------------------------------------------------------ training


class Program:
    """mslua with a recipe, its parameters and a seed."""

    def __init__(self, options, seed, folder):
        self.options, self.seed, self.folder = options, seed, folder
        self.path = os.path.join(HERE, "..", "..", "recipes", options.recipe + ".lua")
        self.given = ["data_path=" + os.path.abspath(options.data)] + options.parameters
        self.given += ["--preset", options.preset] if options.preset else []

    def run(self, *arguments, statuses=(0,)):
        """What it prints."""
        threads = dict(os.environ, OMP_NUM_THREADS=str(self.options.threads))
        done = subprocess.run([os.path.abspath(self.options.mslua), *arguments], capture_output=True, text=True,
                              check=False, cwd=self.folder, env=threads)
        if done.returncode not in statuses:
            sys.exit(done.stderr.strip() or "mslua: status %d" % done.returncode)
        return done.stdout

    def script(self, action):
        return self.run("run", os.path.join(HERE, "twins.lua"), "--seed", str(self.seed), *self.given, "--", action,
                        self.path, self.folder)

    def write(self):
        """The recipe's settings, initial values, and the columns to train and to evaluate on."""
        self.script("write")
        with open(os.path.join(self.folder, "settings.json"), encoding="utf-8") as file:
            settings = json.load(file)
        arrays = {name: dict(np.load(os.path.join(self.folder, name + ".npz")))
                  for name in ("initial", "train", "eval")}

        def columns(name):
            values = [arrays[name]["column%d" % (i + 1)] for i in range(len(arrays[name]))]
            return [torch.from_numpy(v.astype(np.int64) if v.dtype == np.int32 else v) for v in values]

        return dict(settings, seed=self.seed), arrays["initial"], columns("train"), columns("eval")

    def score(self, lists):
        """BLEU of translations, lists of ids."""
        with open(os.path.join(self.folder, "translated.lua"), "w", encoding="ascii") as file:
            file.write("return {%s}\n" % ",\n".join("{%s}" % ",".join(map(str, ids)) for ids in lists))
        return float(self.script("score"))

    def verify(self):
        """The values of what the recipe expects."""
        lines = self.run("verify", self.path, "--json", "seed=%d" % self.seed, *self.given, statuses=(0, 8)).split("\n")
        checks = [json.loads(line) for line in lines if line.startswith('{"name"')]
        return {check["name"]: check["value"] for check in checks}


def start(net, initial):
    """The values that mslua begins with; every parameter has one."""
    parameters, names = dict(net.named_parameters()), generate.names_of(net)
    wanted = {name for name in initial if not name.rpartition(".")[2].startswith(("moving_", "state", "batch"))}
    if set(names.values()) != wanted:
        sys.exit("the twin's parameters are not the recipe's: %s" % sorted(set(names.values()) ^ wanted))
    with torch.no_grad():
        for name, p in parameters.items():
            value = torch.from_numpy(initial[names[name]])
            if value.shape != p.shape:
                sys.exit("%s: %s, in the recipe %s" % (name, list(p.shape), list(value.shape)))
            p.copy_(value)


class Kept:
    """The file of a training in the folder that --keep names: its state after each epoch, and at last its result. The
    same command reads it, and continues. Without a folder nothing is kept."""

    def __init__(self, options, side, seed):
        self.of = [options.recipe, os.path.abspath(options.data), options.preset, options.parameters, side, seed]
        self.path = options.keep and os.path.join(options.keep, "%s_%s_%d.pt" % (options.recipe, side, seed))
        self.begun, self.before = seconds(), 0.0
        self.state = torch.load(self.path) if self.path and os.path.exists(self.path) else {}
        if not self.state:
            return
        if self.state["of"] != self.of:
            sys.exit("%s is of %s, and not of %s; fix: give --keep another folder" % (
                self.path, self.state["of"], self.of))
        self.before = self.state["seconds"]

    def seconds(self):
        """Processor time of the training, that before an interruption included."""
        return self.before + seconds() - self.begun

    def write(self, **state):
        if self.path:
            torch.save(dict(state, of=self.of, seconds=self.seconds()), self.path + ".new")
            os.replace(self.path + ".new", self.path)


def train_twin(program, kept):
    """The metrics of the last evaluation."""
    settings, initial, train, evaluation = program.write()
    torch.manual_seed(program.seed)
    twin = TWINS[program.options.recipe](settings, train, evaluation, program)
    start(twin.net, initial)
    how, when = settings["train"], settings["eval"]
    averages = Averages(twin.net, how["ema"]) if "ema" in how else None
    most = min(how.get(name, math.inf) for name in ("steps", "max_steps"))
    most = min(most, how.get("epochs", math.inf) * twin.steps_per_epoch())
    steps, number, found, measured, epoch = twin.steps(), 0, {}, 0, 0
    optimizers = [optimizer for step in steps for optimizer in step.optimizers]
    if kept.state:
        twin.net.load_state_dict(kept.state["net"])
        for optimizer, state in zip(optimizers, kept.state["optimizers"]):
            optimizer.load_state_dict(state)
        if averages:
            averages.values, averages.updates = kept.state["averages"]
        torch.set_rng_state(kept.state["random"])
        number, found, measured, epoch = kept.state["place"]

    def measure():
        twin.net.eval()
        with torch.no_grad(), averages.in_use() if averages else contextlib.nullcontext():
            values = twin.measure()
        twin.net.train()
        return values

    while number < most:
        for columns in twin.batches():
            for step in steps:
                step.run(number, columns, how.get("clip_norm"))
            if averages:
                averages.update()
            number += 1
            if when["every_steps"] and number % when["every_steps"] == 0:
                found, measured = measure(), number
            if number >= most:
                break
        epoch += 1
        if when["every_epochs"] and epoch % when["every_epochs"] == 0 and measured < number:
            found, measured = measure(), number
        kept.write(net=twin.net.state_dict(), optimizers=[optimizer.state_dict() for optimizer in optimizers],
                   averages=averages and (averages.values, averages.updates), random=torch.get_rng_state(),
                   place=(number, found, measured, epoch))
    return found if measured == number else measure()


def seconds():
    """Processor time of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def show(values):
    """Those of the seeds, their mean and spread; nothing where a side was not trained."""
    if not values:
        return "", ""

    def figure(value):
        return "%.*f" % (4 if max(values) < 10 else 2, value)

    spread = " (%s)" % figure(max(values) - min(values)) if len(values) > 1 else ""
    return " ".join(map(figure, values)), figure(sum(values) / len(values)) + spread


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parameters", nargs="*", metavar="key=value", help="parameters of the recipe")
    parser.add_argument("--recipe", required=True, choices=sorted(TWINS), metavar="NAME", help=", ".join(sorted(TWINS)))
    parser.add_argument("--data", required=True, metavar="FOLDER", help="the recipe's data_path")
    parser.add_argument("--mslua", default=os.path.join(HERE, "..", "..", ".build", "mslua"), metavar="PROGRAM",
                        help="the program, which also reads the twin's data (default .build/mslua)")
    parser.add_argument("--seeds", default="1,2,3", metavar="LIST", help="a training of each (default 1,2,3)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of each side (default 1)")
    parser.add_argument("--preset", metavar="NAME", help="the recipe's parameters of this preset")
    parser.add_argument("--keep", metavar="FOLDER", help="continue there what was interrupted: the state of each "
                        "training after each epoch of PyTorch's, and results")
    parser.add_argument("--side", choices=("both", "twin", "mslua"), default="both",
                        help="what is trained (default both)")
    options = parser.parse_intermixed_args()
    if not all(seed.isdigit() for seed in options.seeds.split(",")):
        parser.error("--seeds: expected whole numbers and commas between them, got %s" % options.seeds)
    if not os.access(options.mslua, os.X_OK):
        parser.error("--mslua: there is no program %s" % options.mslua)
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    torch.set_num_threads(options.threads)
    results = {"mslua": [], "twin": []}
    for seed in seeds:
        for side, found in results.items():
            if options.side not in ("both", side):
                continue
            kept = Kept(options, side, seed)
            values = kept.state.get("values")
            if values is None:
                with tempfile.TemporaryDirectory() as folder:
                    program = Program(options, seed, folder)
                    values = program.verify() if side == "mslua" else train_twin(program, kept)
                kept.write(values=values)
            found.append((values, kept.seconds()))
            print("%s %s seed %d: %s, %.1f s" % (time.strftime("%H:%M:%S"), side, seed, " ".join(
                "%s %.5g" % item for item in values.items()), found[-1][1]), file=sys.stderr)
    print("| recipe | metric | mslua, seeds %s | mean (spread) | PyTorch %s | mean (spread) | seconds: mslua | "
          "PyTorch |" % (options.seeds, torch.__version__))
    print("|" + " --- |" * 8)
    times = [" ".join("%.0f" % t for _, t in found) for found in results.values()]
    for metric in names(results):
        shown = [show([values[metric] for values, _ in found if metric in values]) for found in results.values()]
        print("| %s | %s | %s | %s | %s | %s | %s | %s |" % (options.recipe, metric.replace("eval_", ""), *shown[0],
                                                           *shown[1], *times))


def names(results):
    """Of the metrics that mslua checks, or else that the twin measures."""
    return next(list(found[0][0]) for found in results.values() if found)


if __name__ == "__main__":
    main()
