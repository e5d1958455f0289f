#!/usr/bin/env python3
"""Trains the recipes' networks in PyTorch on mslua's initial values and data, and writes what tests/golden compares
mslua with: losses, and the norms of the first gradients.

  /usr/bin/python3 tools/golden/generate.py [network ...]      needs NumPy and PyTorch (python3-torch)

Every case is a recipe with parameters (`params`, as on the command line), the shapes of a batch and a number of steps;
tests/golden/parity.lua reads them from the same file, so that both sides compute one thing. The learning rate is
rounded to the parameters' dtype, as the compiled step takes it.
"""

import json
import math
import os
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import philox
import pictures

SEED = 1
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden")


class Quickstart(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.rules = {"w": ("normal", 0.01), "w2": ("normal", 0.01)}
        self.w = nn.Parameter(torch.empty(32, 16))
        self.w2 = nn.Parameter(torch.empty(16, 16))

    def forward(self, x):
        return torch.relu(x @ self.w) @ self.w2

    def loss(self, x, y):
        return F.mse_loss(self(x), y)


class Classifier(nn.Module):
    def loss(self, x, y):
        return F.cross_entropy(self(x), y)


class LeNet(Classifier):
    def __init__(self, p):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)
        self.rules = {}
        for name, fan_in in (("conv1", 25), ("conv2", 150), ("fc1", 400), ("fc2", 120), ("fc3", 84)):
            self.rules[name + ".weight"] = ("he_uniform_sqrt5",)
            self.rules[name + ".bias"] = ("uniform", 1 / math.sqrt(fan_in))

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = F.max_pool2d(torch.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def conv(n_in, n_out, kernel, stride=1):
    return nn.Conv2d(n_in, n_out, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    """Basic: 3x3, 3x3. Bottleneck: 1x1, 3x3 with the stride, 1x1."""

    def __init__(self, n_in, planes, stride, bottleneck):
        super().__init__()
        n_out = planes * (4 if bottleneck else 1)
        parts = [(n_in, planes, 1, 1), (planes, planes, 3, stride), (planes, n_out, 1, 1)]
        if not bottleneck:
            parts = [(n_in, planes, 3, stride), (planes, planes, 3, 1)]
        self.count = len(parts)
        for i, part in enumerate(parts, 1):
            setattr(self, "conv%d" % i, conv(*part))
            setattr(self, "bn%d" % i, nn.BatchNorm2d(part[1]))
        self.projects = stride != 1 or n_in != n_out
        if self.projects:
            self.down_conv, self.down_bn = conv(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out)

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, "bn%d" % i)(getattr(self, "conv%d" % i)(y))
            y = torch.relu(y) if i < self.count else y
        return torch.relu(y + (self.down_bn(self.down_conv(x)) if self.projects else x))


class ResNet(Classifier):
    def __init__(self, p, depths, bottleneck, stem):
        super().__init__()
        width = p.get("width", 64)
        self.stem = stem
        self.conv1 = conv(3, width, 7, 2) if stem == "imagenet" else conv(3, width, 3)
        self.bn1 = nn.BatchNorm2d(width)
        n_in = width
        for stage, depth in enumerate(depths):
            blocks = []
            for i in range(depth):
                blocks.append(Block(n_in, width << stage, 2 if stage > 0 and i == 0 else 1, bottleneck))
                n_in = (width << stage) * (4 if bottleneck else 1)
            setattr(self, "layer%d" % (stage + 1), nn.Sequential(*blocks))
        self.fc = nn.Linear(n_in, 10)
        self.rules = {"fc.weight": ("normal", 0.01), "fc.bias": 0}
        for name, parameter in self.named_parameters():
            if name not in self.rules:
                weight = ("he_normal_fan_out",) if parameter.dim() == 4 else 1
                self.rules[name] = weight if name.endswith("weight") else 0

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        if self.stem == "imagenet":
            x = F.max_pool2d(x, 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, "layer%d" % stage)(x)
        return self.fc(x.mean((2, 3)))


class GptBlock(nn.Module):
    def __init__(self, dim, heads, gelu, dropout=0):
        super().__init__()
        self.heads, self.gelu, self.dropout = heads, gelu, nn.Dropout(dropout)
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.ModuleDict({"in_proj": nn.Linear(dim, 3 * dim), "out_proj": nn.Linear(dim, dim)})
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def attention(self, x):
        n, t, e = x.shape
        q, k, v = (part.reshape(n, t, self.heads, e // self.heads).transpose(1, 2)
                   for part in self.attn["in_proj"](x).split(e, 2))
        scores = q @ k.transpose(2, 3) / math.sqrt(e // self.heads)
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        y = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v
        return self.dropout(self.attn["out_proj"](y.transpose(1, 2).reshape(n, t, e)))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.dropout(self.down(F.gelu(self.up(self.ln2(x)), approximate=self.gelu)))


class LanguageModel(nn.Module):
    def loss(self, ids, labels):
        return F.cross_entropy(self(ids).flatten(0, 1), labels.flatten())


class Gpt(LanguageModel):
    """gelu "tanh" is GPT-2's."""

    def __init__(self, p, gelu="none"):
        super().__init__()
        layers, heads, dim, block = p["layers"], p["heads"], p["dim"], p["block"]
        self.dropout = nn.Dropout(p.get("dropout", 0))
        self.tokens, self.positions = nn.Embedding(65, dim), nn.Embedding(block, dim)
        self.blocks = nn.ModuleList([GptBlock(dim, heads, gelu, self.dropout.p) for _ in range(layers)])
        self.ln = nn.LayerNorm(dim)
        self.rules = {}
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                self.rules[name] = 1 if ".weight" in name and "ln" in name or name == "ln.weight" else 0
            else:
                residual = name.endswith(("out_proj.weight", "down.weight"))
                self.rules[name] = ("normal", 0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, ids):
        x = self.dropout(self.tokens(ids) + self.positions(torch.arange(ids.shape[1])))
        for block in self.blocks:
            x = block(x)
        return self.ln(x) @ self.tokens.weight.T


class RmsNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotated(x):
    """Rotary positions in halves; x [n, heads, t, width]."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequencies
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class LlamaAttention(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, dim // heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(dim, kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        n, t, e = x.shape
        q, k, v = (y.reshape(n, t, -1, self.width).transpose(1, 2)
                   for y in (self.q_proj(x), self.k_proj(x), self.v_proj(x)))
        repeat = self.heads // self.kv_heads
        q, k, v = rotated(q), rotated(k).repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.width)
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        y = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v
        return self.o_proj(y.transpose(1, 2).reshape(n, t, e))


class LlamaMlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, dim, heads, kv_heads, hidden):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(dim), RmsNorm(dim)
        self.self_attn, self.mlp = LlamaAttention(dim, heads, kv_heads), LlamaMlp(dim, hidden)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(LanguageModel):
    def __init__(self, p):
        super().__init__()
        self.embed_tokens = nn.Embedding(65, p["dim"])
        self.layers = nn.ModuleList([LlamaBlock(p["dim"], p["heads"], p["kv_heads"], p["hidden"])
                                     for _ in range(p["layers"])])
        self.norm = RmsNorm(p["dim"])
        self.lm_head = nn.Linear(p["dim"], 65, bias=False)
        self.rules = {name: 1 if parameter.dim() == 1 else ("normal", 0.02)
                      for name, parameter in self.named_parameters()}

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class InvertedResidual(nn.Module):
    def __init__(self, n_in, n_out, stride, expansion):
        super().__init__()
        hidden = n_in * expansion
        self.residual = stride == 1 and n_in == n_out
        self.expands = expansion > 1
        if self.expands:
            self.expand_conv, self.expand_bn = conv(n_in, hidden, 1), nn.BatchNorm2d(hidden)
        self.depth_conv = nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)
        self.depth_bn = nn.BatchNorm2d(hidden)
        self.project_conv, self.project_bn = conv(hidden, n_out, 1), nn.BatchNorm2d(n_out)

    def forward(self, x):
        y = F.relu6(self.expand_bn(self.expand_conv(x))) if self.expands else x
        y = self.project_bn(self.project_conv(F.relu6(self.depth_bn(self.depth_conv(y)))))
        return x + y if self.residual else y


class MobileNetV2(Classifier):
    """Channels are rounded as torchvision's _make_divisible does."""

    def __init__(self, p):
        super().__init__()

        def rounded(channels):
            n = max(8, int(channels + 4) // 8 * 8)
            return n + 8 if n < 0.9 * channels else n

        width = p["width"]
        n_in, last = rounded(32 * width), rounded(1280 * max(1, width))
        self.conv1, self.bn1, blocks = conv(3, n_in, 3), nn.BatchNorm2d(n_in), []
        for t, c, n, s in ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                           (6, 320, 1, 1)):
            for i in range(n):
                blocks.append(InvertedResidual(n_in, rounded(c * width), 1 if i else s, t))
                n_in = rounded(c * width)
        self.blocks = nn.ModuleList(blocks)
        self.conv2, self.bn2, self.fc = conv(n_in, last, 1), nn.BatchNorm2d(last), nn.Linear(last, 10)
        self.dropout = nn.Dropout(p["dropout"])
        self.rules = {"fc.weight": ("normal", 0.01), "fc.bias": 0}
        for name, parameter in self.named_parameters():
            if name not in self.rules:
                weight = ("he_normal_fan_out",) if parameter.dim() == 4 else 1
                self.rules[name] = weight if name.endswith("weight") else 0

    def forward(self, x):
        x = F.relu6(self.bn1(self.conv1(x)))
        for block in self.blocks:
            x = block(x)
        return self.fc(self.dropout(F.relu6(self.bn2(self.conv2(x))).mean((2, 3))))


class VitLayer(nn.Module):
    """drop_path: the probability that a row skips a branch."""

    def __init__(self, dim, heads, drop_path):
        super().__init__()
        self.heads, self.drop_path = heads, drop_path
        self.norm_before, self.norm_after = nn.LayerNorm(dim, 1e-6), nn.LayerNorm(dim, 1e-6)
        self.attention = nn.ModuleDict({"in_proj": nn.Linear(dim, 3 * dim), "out_proj": nn.Linear(dim, dim)})
        self.intermediate, self.output = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        n, t, e = x.shape
        q, k, v = (part.reshape(n, t, self.heads, e // self.heads).transpose(1, 2)
                   for part in self.attention["in_proj"](self.norm_before(x)).split(e, 2))
        y = (q @ k.transpose(2, 3) / math.sqrt(e // self.heads)).softmax(-1) @ v
        x = x + self.dropped(self.attention["out_proj"](y.transpose(1, 2).reshape(n, t, e)))
        return x + self.dropped(self.output(F.gelu(self.intermediate(self.norm_after(x)))))

    def dropped(self, y):
        return y * F.dropout(torch.ones(len(y), 1, 1, dtype=y.dtype), self.drop_path, self.training)


class Vit(Classifier):
    def __init__(self, p):
        super().__init__()
        dim, patch, layers = p["dim"], p["patch"], p["layers"]
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim))
        self.positions = nn.Parameter(torch.empty(1, (32 // patch)**2 + 1, dim))
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.layers = nn.ModuleList([VitLayer(dim, p["heads"], p["drop_path"] * i / max(1, layers - 1))
                                     for i in range(layers)])
        self.norm, self.classifier = nn.LayerNorm(dim, 1e-6), nn.Linear(dim, 10)
        self.rules = {name: ("normal", 0.02) if parameter.dim() > 1 else int("norm" in name and "weight" in name)
                      for name, parameter in self.named_parameters()}

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.norm(x)[:, 0])


class Experts(nn.Module):
    """The experts of a block, each token by the k that a router chooses. In training an expert takes no more than
    `capacity` times its even share, in the order of the tokens, first choices before second ones."""

    def __init__(self, dim, hidden, experts, k, capacity):
        super().__init__()
        self.k, self.capacity, self.router = k, capacity, nn.Linear(dim, experts, bias=False)
        self.up, self.down = (nn.Parameter(torch.empty(experts, a, b)) for a, b in ((dim, hidden), (hidden, dim)))
        self.up_bias, self.down_bias = (nn.Parameter(torch.empty(experts, 1, n)) for n in (hidden, dim))
        self.up_bias.decays = self.down_bias.decays = False

    def forward(self, x):
        flat = x.flatten(0, 1)
        likely = self.router(flat).softmax(-1)
        weights, chosen = likely.topk(self.k)
        weights = weights / weights.sum(-1, keepdim=True)
        y, (n, experts) = torch.zeros_like(flat), likely.shape
        most = min(n, max(1, math.ceil(self.capacity * self.k * n / experts))) if self.training else n
        for e in range(experts):
            place, token = (chosen.T == e).nonzero()[:most].T
            inner = F.gelu(flat[token] @ self.up[e] + self.up_bias[e])
            y = y.index_add(0, token, (inner @ self.down[e] + self.down_bias[e]) * weights[token, place, None])
        first = F.one_hot(chosen[:, 0], experts).to(likely.dtype).mean(0)
        return y.reshape(x.shape), (first * likely.mean(0)).sum() * experts


class MoeBlock(GptBlock):
    def __init__(self, dim, heads, hidden, *experts):
        super().__init__(dim, heads, "none")
        del self.up, self.down
        self.moe = Experts(dim, hidden, *experts)

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        y, balance = self.moe(self.ln2(x))
        return x + y, balance


class MoeGpt(nn.Module):
    def __init__(self, p):
        super().__init__()
        layers, heads, dim = p["layers"], p["heads"], p["dim"]
        self.tokens, self.positions = nn.Embedding(65, dim), nn.Embedding(p["block"], dim)
        blocks = [MoeBlock(dim, heads, p["hidden"], p["experts"], p["top_k"], p["capacity_factor"])
                  for _ in range(layers)]
        self.blocks, self.ln = nn.ModuleList(blocks), nn.LayerNorm(dim)
        self.rules = {}
        for name, parameter in self.named_parameters():
            if "bias" in name or "ln" in name:
                self.rules[name] = 1 if ".weight" in name else 0
            else:
                residual = name.endswith(("out_proj.weight", "moe.down"))
                self.rules[name] = ("normal", 0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def both(self, ids):
        """Logits, and the mean of the blocks' balance losses."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        balances = []
        for block in self.blocks:
            x, balance = block(x)
            balances.append(balance)
        return self.ln(x) @ self.tokens.weight.T, sum(balances) / len(balances)

    def forward(self, ids):
        return self.both(ids)[0]

    def loss(self, ids, labels):
        logits, balance = self.both(ids)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()) + 0.01 * balance


class Translator(nn.Module):
    """torch.nn's layers of the Transformer, normalised before each part. Dropout acts on what a part adds, and between
    the layers of the feed-forward part; torch.nn's on the weights of attention too, which is off."""

    def __init__(self, p, pad=0):
        super().__init__()
        self.dim, self.pad, self.dropout = p["dim"], pad, nn.Dropout(p["dropout"])
        dim, how = self.dim, {"dropout": p["dropout"], "batch_first": True, "norm_first": True}
        self.tokens = nn.Embedding(p["vocab"], dim)
        self.encoder = nn.ModuleList([nn.TransformerEncoderLayer(dim, p["heads"], p["hidden"], **how)
                                      for _ in range(p["layers"])])
        self.decoder = nn.ModuleList([nn.TransformerDecoderLayer(dim, p["heads"], p["hidden"], **how)
                                      for _ in range(p["layers"])])
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.smoothing = p["smoothing"]
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
        self.rules = {}
        for name, parameter in self.named_parameters():
            if "norm" in name or name.endswith("bias"):
                self.rules[name] = 1 if "norm" in name and name.endswith("weight") else 0
            else:
                self.rules[name] = ("normal", dim**-0.5) if name == "tokens.weight" else ("xavier_uniform",)

    def embed(self, ids):
        half = self.dim // 2
        angles = torch.arange(ids.shape[1], dtype=torch.float64)[:, None] / 10000 ** (
            torch.arange(half, dtype=torch.float64) / (half - 1))
        # mslua keeps the table in float32.
        waves = torch.cat([angles.sin(), angles.cos()], 1).float()
        return self.dropout(self.tokens(ids) * math.sqrt(self.dim) + waves.to(self.tokens.weight.dtype))

    def encode(self, source):
        hidden, x = source == self.pad, self.embed(source)
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask=hidden)
        return self.encoder_norm(x), hidden

    def decode(self, target, memory, hidden):
        """The last layer's result of the target's tokens."""
        t, x = target.shape[1], self.embed(target)
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        for layer in self.decoder:
            x = layer(x, memory, tgt_mask=later, memory_key_padding_mask=hidden)
        return self.decoder_norm(x)

    def loss(self, source, target, labels):
        logits = (self.decode(target, *self.encode(source)) @ self.tokens.weight.T).flatten(0, 1)
        return F.cross_entropy(logits, labels.flatten(), ignore_index=self.pad, label_smoothing=self.smoothing)


class BertLayer(nn.Module):
    def __init__(self, dim, heads, hidden, dropout):
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.attention = nn.ModuleDict({"in_proj": nn.Linear(dim, 3 * dim), "out_proj": nn.Linear(dim, dim)})
        self.attention_norm, self.output_norm = nn.LayerNorm(dim, 1e-12), nn.LayerNorm(dim, 1e-12)
        self.intermediate, self.output = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x, hidden):
        n, t, e = x.shape
        q, k, v = (part.reshape(n, t, self.heads, e // self.heads).transpose(1, 2)
                   for part in self.attention["in_proj"](x).split(e, 2))
        scores = (q @ k.transpose(2, 3) / math.sqrt(e // self.heads)).masked_fill(hidden[:, None, None], -math.inf)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, e)
        x = self.attention_norm(x + self.dropout(self.attention["out_proj"](y)))
        return self.output_norm(x + self.dropout(self.output(F.gelu(self.intermediate(x)))))


class Bert(nn.Module):
    """Id 0 is padding."""

    def __init__(self, p):
        super().__init__()
        dim, self.dropout = p["dim"], nn.Dropout(p["dropout"])
        self.words, self.positions = nn.Embedding(p["vocab"], dim), nn.Embedding(p["block"], dim)
        self.segments, self.norm = nn.Embedding(2, dim), nn.LayerNorm(dim, 1e-12)
        self.layers = nn.ModuleList([BertLayer(dim, p["heads"], p["hidden"], p["dropout"])
                                     for _ in range(p["layers"])])

    def encode(self, ids):
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1])) + self.segments(torch.zeros_like(ids))
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x, ids == 0)
        return x


class BertClassifier(Bert, Classifier):
    """BERT with its pooler and four classes, of the first token or of the mean."""

    def __init__(self, p):
        super().__init__(p)
        self.pool, self.hide = p["pool"], p["hide"]
        self.pooler, self.classifier = nn.Linear(p["dim"], p["dim"]), nn.Linear(p["dim"], 4)
        self.rules = {}
        for name, parameter in self.named_parameters():
            gain = "norm" in name and name.endswith("weight")
            self.rules[name] = ("normal", 0.02) if parameter.dim() > 1 else 1 if gain else 0

    def forward(self, ids):
        if self.training and self.hide > 0:
            ids = torch.where((ids > 4) & (torch.rand(ids.shape) < self.hide), 4, ids)
        x = self.encode(ids)
        counts = (ids != 0).to(x.dtype)[:, :, None]
        x = x[:, 0] if self.pool == "first" else (x * counts).sum(1) / counts.sum(1)
        return self.classifier(self.dropout(torch.tanh(self.pooler(x))))


class Unet(pictures.Unet):
    def __init__(self, p):
        super().__init__(3, 2, p["width"], p["depth"])
        self.rules = {name: ("he_normal_fan_out",) if parameter.dim() == 4 else
                      int(".norm" in name and "weight" in name) for name, parameter in self.named_parameters()}

    def loss(self, x, y):
        return F.cross_entropy(self(x)[0], y)


def mslua_name(name, module):
    """mslua names what normalises gamma and beta, and a table of embeddings embedding_table."""
    if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm, RmsNorm)):
        return name[:-len("weight")] + "gamma" if name.endswith("weight") else name[:-len("bias")] + "beta"
    if isinstance(module, nn.MultiheadAttention):
        return name.replace("in_proj_", "in_proj.")
    return name[:-len("weight")] + "embedding_table" if isinstance(module, nn.Embedding) else name


def names_of(net):
    """PyTorch's name of every parameter -> mslua's."""
    names = {}
    for path, module in net.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            full = path + "." + name if path else name
            names[full] = mslua_name(full, module)
    return names


def batch(case, step):
    """The data of a step (from 1): normal images or uniform ids, and labels; before them the ids of a source."""
    out = []
    for name, spec in ((name, case[name]) for name in ("s", "x", "y") if name in case):
        stream = "golden.%s.%d" % (name, step)
        if "classes" in spec:
            values = np.floor(philox.uniform(SEED, stream, spec["shape"]).astype(np.float64) * spec["classes"])
            out.append(torch.from_numpy(values.astype(np.int64)))
        else:
            make = philox.normal if name == "x" else philox.uniform
            out.append(torch.from_numpy(make(SEED, stream, spec["shape"]).astype(np.float64)))
    return out


def rounded(rate, parameters):
    """A learning rate as the parameters' dtype has it."""
    return torch.tensor(rate, dtype=parameters[0].dtype).item()


def momentum(rate, mu, nesterov=False, decay=0.0):
    """Momentum as MindSpore and PyTorch have it."""
    def update(state, parameters, step):
        lr = rounded(rate(step), parameters)
        for p in parameters:
            g = p.grad + decay * p
            v = state[p] = state[p] * mu + g if p in state else g.clone()
            p -= lr * (g + mu * v if nesterov else v)
    return update


def adam_weight_decay(rate, beta1, beta2, eps, decay, clip):
    """MindSpore's AdamWeightDecay, BERT's: no correction of the moments. Matrices decay; gradients are clipped."""
    def update(state, parameters, step):
        lr = rounded(rate(step), parameters)
        norm = torch.sqrt(sum((p.grad**2).sum() for p in parameters))
        factor = torch.clamp(clip / (norm + 1e-6), max=1)
        for p in parameters:
            g = p.grad * factor
            m, v = state.get(p, (torch.zeros_like(p), torch.zeros_like(p)))
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
            state[p] = m, v
            decays = p.dim() > 1 and getattr(p, "decays", True)
            p -= lr * (m / (torch.sqrt(v) + eps) + (decay if decays else 0) * p)
    return update


def adamw(rate, decay, clip):
    """AdamW with corrected moments. Matrices decay; gradients are clipped."""
    def update(state, parameters, step):
        lr = rounded(rate(step), parameters)
        norm = torch.sqrt(sum((p.grad**2).sum() for p in parameters))
        factor = torch.clamp(clip / (norm + 1e-6), max=1)
        for p in parameters:
            g = p.grad * factor
            m, v = state.get(p, (torch.zeros_like(p), torch.zeros_like(p)))
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            state[p] = m, v
            p *= 1 - lr * (decay if p.dim() > 1 else 0)
            p -= lr * m / (1 - 0.9**(step + 1)) / (torch.sqrt(v / (1 - 0.999**(step + 1))) + 1e-8)
    return update


def adam_w(rate, beta1, beta2, eps, decay):
    """PyTorch's AdamW."""
    def update(state, parameters, step):
        lr, n = rounded(rate(step), parameters), step + 1
        for p in parameters:
            m, v = state.get(p, (torch.zeros_like(p), torch.zeros_like(p)))
            m, v = beta1 * m + (1 - beta1) * p.grad, beta2 * v + (1 - beta2) * p.grad * p.grad
            state[p] = m, v
            p *= 1 - lr * decay
            p -= lr * (m / (1 - beta1**n)) / (torch.sqrt(v / (1 - beta2**n)) + eps)
    return update


def cosine(low, high, total):
    return lambda step: low + (high - low) * (1 + math.cos(math.pi * min(step, total) / total)) / 2


def warm(rate, steps):
    return lambda step: rate(0) * (step + 1) / steps if step < steps else rate(step - steps)


def one_cycle(high, total):
    """PyTorch's OneCycleLR."""
    first, up, end = high / 25, 0.3 * total - 1, total - 1

    def between(a, b, share):
        return b + (a - b) / 2 * (1 + math.cos(math.pi * share))

    return lambda step: (between(first, high, step / up) if step <= up else
                         between(high, first / 1e4, (step - up) / (end - up)))


def images(n, channels):
    return {"shape": [n, channels, 32, 32]}, {"shape": [n], "classes": 10}


def masks(n):
    return {"shape": [n, 3, 32, 32]}, {"shape": [n, 32, 32], "classes": 2}


def case(steps, x, y, **params):
    return {"steps": steps, "steps_per_epoch": 100, "x": x, "y": y, "params": params}


def vectors():
    return {"shape": [2, 32]}, {"shape": [2, 16]}


def text(n, t):
    return {"shape": [n, t], "classes": 65}, {"shape": [n, t], "classes": 65}


def sentences(n, s, t, vocab):
    return dict(zip("sxy", ({"shape": [n, length], "classes": vocab} for length in (s, t, t))))


def translation(steps, n, s, t, **params):
    return {"steps": steps, "steps_per_epoch": 100, "params": dict(params, dropout=0),
            **sentences(n, s, t, params["vocab"])}


def news(steps, n, t, **params):
    return case(steps, {"shape": [n, t], "classes": params["vocab"]}, {"shape": [n], "classes": 4}, dropout=0, hide=0,
                pool="first", block=t, **params)


GPT_SMALL = {"layers": 2, "heads": 4, "dim": 32, "block": 16, "batch_size": 3}
GPT = {"layers": 2, "heads": 4, "dim": 64, "block": 32, "batch_size": 4}
LLAMA_SMALL, LLAMA = dict(GPT_SMALL, kv_heads=2, hidden=40), dict(GPT, kv_heads=2, hidden=80)

NETWORKS = {
    "quickstart": {
        "recipe": "quickstart", "make": Quickstart, "update": momentum(lambda step: 0.2, 0.1),
        "f64": case(5, *vectors()), "f32": case(20, *vectors()),
    },
    "lenet": {
        "recipe": "lenet_mnist", "make": LeNet, "update": momentum(cosine(0, 0.02, 800), 0.9),
        "f64": case(5, *images(8, 1)), "f32": case(20, *images(8, 1)),
    },
    "char_gpt": {
        "recipe": "char_gpt", "make": Gpt,
        "update": adam_weight_decay(warm(cosine(1e-4, 1e-3, 1900), 100), 0.9, 0.99, 1e-8, 0.1, 1.0),
        "f64": case(5, *text(3, 16), **GPT_SMALL), "f32": case(20, *text(4, 32), **GPT),
    },
    "gpt2": {
        "recipe": "gpt2", "make": lambda p: Gpt(p, "tanh"),
        "update": adam_weight_decay(warm(cosine(1e-4, 1e-3, 700), 100), 0.9, 0.99, 1e-8, 0.1, 1.0),
        "f64": case(5, *text(3, 16), dropout=0, **GPT_SMALL), "f32": case(20, *text(4, 32), dropout=0, **GPT),
    },
    "llama": {
        "recipe": "llama", "make": Llama,
        "update": adam_weight_decay(warm(cosine(1e-4, 1e-3, 1400), 100), 0.9, 0.95, 1e-8, 0.1, 1.0),
        "f64": case(5, *text(3, 16), **LLAMA_SMALL), "f32": case(20, *text(4, 32), **LLAMA),
    },
    "resnet18": {
        "recipe": "resnet18_cifar10", "make": lambda p: ResNet(p, [2, 2, 2, 2], False, "cifar"),
        "update": momentum(one_cycle(0.1, 1000), 0.9, True, 5e-4),
        "f64": case(5, *images(4, 3), width=8), "f32": case(5, *images(4, 3), width=16), "spread": True,
    },
    "resnet50": {
        "recipe": "resnet50_cifar10", "make": lambda p: ResNet(p, [3, 4, 6, 3], True, "imagenet"),
        "update": momentum(lambda step: 0.01, 0.9),
        # At 32 pixels the last stage normalises over the batch alone: with 4 images PyTorch's float64 losses move by
        # 4e-2 at step 5 when its data moves by 1e-15; with 32 by 2e-8.
        "f64": case(5, *images(32, 3), width=8, image_size=32), "f32": case(5, *images(32, 3), width=16, image_size=32),
        "spread": True,
    },
    "mobilenetv2": {
        "recipe": "mobilenetv2_cifar10", "make": MobileNetV2, "update": momentum(one_cycle(0.1, 500), 0.9, True, 5e-4),
        "f64": case(5, *images(16, 3), width=0.25, dropout=0), "f32": case(5, *images(16, 3), width=0.5, dropout=0),
        "spread": True,
    },
    "moe_gpt": {
        "recipe": "moe_gpt", "make": MoeGpt,
        "update": adam_weight_decay(warm(cosine(1e-4, 1e-3, 1900), 100), 0.9, 0.99, 1e-8, 0.1, 1.0),
        "f64": case(5, *text(3, 16), hidden=24, experts=4, top_k=2, capacity_factor=4, **GPT_SMALL),
        "f32": case(20, *text(4, 32), hidden=48, experts=4, top_k=2, capacity_factor=4, **GPT),
    },
    "transformer": {
        "recipe": "transformer_en_de", "make": Translator,
        "update": adam_weight_decay(lambda step: 3e-3 * (step + 1) / 400, 0.9, 0.98, 1e-9, 0, 1.0),
        "f64": translation(5, 3, 7, 6, vocab=17, layers=2, heads=4, dim=32, hidden=40, smoothing=0.1, amp=""),
        "f32": translation(20, 4, 12, 10, vocab=50, layers=2, heads=4, dim=64, hidden=96, smoothing=0.1, amp=""),
    },
    "bert": {
        "recipe": "bert_classify", "make": BertClassifier,
        "update": adamw(lambda step: 4e-4 * (step + 1) / 100, 0.01, 1.0),
        "f64": news(5, 4, 10, vocab=20, layers=2, heads=2, dim=16, hidden=24),
        "f32": news(20, 8, 16, vocab=60, layers=2, heads=4, dim=32, hidden=64),
    },
    "unet": {
        "recipe": "unet_shapes", "make": Unet, "update": adam_w(cosine(0, 2e-3, 400), 0.9, 0.999, 1e-8, 1e-4),
        "f64": case(5, *masks(4), width=4, depth=2), "f32": case(5, *masks(4), width=8, depth=2), "spread": True,
    },
    "vit": {
        "recipe": "vit_cifar10", "make": Vit,
        "update": adam_weight_decay(warm(cosine(0, 1e-3, 700), 100), 0.9, 0.999, 1e-8, 0.05, 1.0),
        "f64": case(5, *images(4, 3), drop_path=0, patch=8, layers=2, heads=2, dim=32),
        "f32": case(20, *images(8, 3), drop_path=0, patch=8, layers=2, heads=4, dim=64),
    },
}


def train(spec, run, dtype):
    """Losses of the steps, and the norm of each gradient of the first by mslua's name."""
    net = spec["make"](run["params"])
    names = names_of(net)
    assert sorted(net.rules) == sorted(names), set(net.rules) ^ set(names)
    net = net.to(dtype)
    parameters = dict(net.named_parameters())
    with torch.no_grad():
        for name, p in parameters.items():
            value = philox.initial(SEED, names[name], tuple(p.shape), net.rules[name])
            # Rounded once to the dtype, as mslua stores it.
            p.copy_(torch.from_numpy(value).to(dtype))
    losses, norms, state = [], {}, {}
    for step in range(run["steps"]):
        data = [t.to(dtype) if t.is_floating_point() else t for t in batch(run, step + 1)]
        net.zero_grad()
        loss = net.loss(*data)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            norms = {names[name]: p.grad.double().norm().item() for name, p in parameters.items()}
        with torch.no_grad():
            spec["update"](state, list(parameters.values()), step)
    return losses, norms


def golden(spec):
    out = {"recipe": spec["recipe"], "seed": SEED}
    f64 = dict(spec["f64"])
    f64["losses"], f64["gradient_norms"] = train(spec, f64, torch.float64)
    out["f64"] = f64
    # The truth of a float32 run is the same run in float64; how far PyTorch's own float32 is from it is the spread.
    f32 = dict(spec["f32"])
    f32["losses"], _ = train(spec, f32, torch.float64)
    if spec.get("spread"):
        narrow, _ = train(spec, f32, torch.float32)
        f32["spread"] = [abs(a - b) for a, b in zip(narrow, f32["losses"])]
    out["f32"] = f32
    return out


def main():
    philox.check()
    for name in sys.argv[1:] or NETWORKS:
        if name not in NETWORKS:
            sys.exit("unknown network '%s', expected one of %s" % (name, ", ".join(NETWORKS)))
        path = os.path.join(FOLDER, name + ".json")
        text = json.dumps(golden(NETWORKS[name]), indent=1)
        with open(path, "w") as f:
            f.write(text + "\n")
        print(os.path.normpath(path))


if __name__ == "__main__":
    main()
