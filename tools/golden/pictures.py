#!/usr/bin/env python3
"""Runs PyTorch's twins of the networks that make pictures, in float64 on mslua's initial values and data, and writes
what tests/golden/pictures.lua compares mslua's with: a loss that weights every output, and the norms of its gradients.

  /usr/bin/python3 tools/golden/pictures.py      needs NumPy and PyTorch (python3-torch)
"""

import json
import math
import os

import torch
from torch import nn
from torch.nn import functional as F

import philox

SEED = 1
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "pictures.json")


def numbers(stream, shape):
    return torch.from_numpy(philox.normal(SEED, stream, shape).astype("float64"))


def uniform(stream, shape):
    return torch.from_numpy(philox.uniform(SEED, stream, shape).astype("float64"))


def double(transposed, n_in, n_out, bias):
    return (nn.ConvTranspose2d if transposed else nn.Conv2d)(n_in, n_out, 4, 2, 1, bias=bias)


class Generator(nn.Module):
    def __init__(self, latent, width):
        super().__init__()
        self.width = width
        self.project, self.norm1 = nn.Linear(latent, 64 * width, bias=False), nn.BatchNorm2d(4 * width)
        self.conv2, self.norm2 = double(True, 4 * width, 2 * width, False), nn.BatchNorm2d(2 * width)
        self.conv3, self.norm3 = double(True, 2 * width, width, False), nn.BatchNorm2d(width)
        self.conv4 = double(True, width, 1, False)

    def forward(self, z):
        x = self.project(z).reshape(-1, 4 * self.width, 4, 4)
        x = self.conv2(torch.relu(self.norm1(x)))
        x = self.conv3(torch.relu(self.norm2(x)))
        return [torch.tanh(self.conv4(torch.relu(self.norm3(x))))]


class Discriminator(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = double(False, 1, width, False)
        self.conv2, self.norm2 = double(False, width, 2 * width, False), nn.BatchNorm2d(2 * width)
        self.conv3, self.norm3 = double(False, 2 * width, 4 * width, False), nn.BatchNorm2d(4 * width)
        self.head = nn.Linear(64 * width, 1, bias=False)

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x), 0.2)
        x = F.leaky_relu(self.norm2(self.conv2(x)), 0.2)
        x = F.leaky_relu(self.norm3(self.conv3(x)), 0.2)
        return [self.head(x.flatten(1))[:, 0]]


class Vae(nn.Module):
    """Gives the bound of each picture too."""

    def __init__(self, latent, width):
        super().__init__()
        self.width = width
        self.conv1, self.conv2 = double(False, 1, width, True), double(False, width, 2 * width, True)
        self.mean, self.log_variance = nn.Linear(128 * width, latent), nn.Linear(128 * width, latent)
        self.project = nn.Linear(latent, 128 * width)
        self.conv3, self.conv4 = double(True, 2 * width, width, True), double(True, width, 1, True)

    def forward(self, x, noise):
        y = torch.relu(self.conv2(torch.relu(self.conv1(x)))).flatten(1)
        code = torch.distributions.Normal(self.mean(y), torch.exp(self.log_variance(y) / 2))
        y = torch.relu(self.project(code.mean + code.stddev * noise)).reshape(-1, 2 * self.width, 8, 8)
        logits = self.conv4(torch.relu(self.conv3(y)))
        pixels = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum((1, 2, 3))
        divergence = torch.distributions.kl_divergence(code, torch.distributions.Normal(0.0, 1.0)).sum(1)
        return [logits, pixels + divergence]


class Twice(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out)
        self.conv2, self.norm2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out)

    def forward(self, x):
        return torch.relu(self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x))))))


class Unet(nn.Module):
    def __init__(self, channels, classes, width, depth):
        super().__init__()
        sizes = [width << i for i in range(depth + 1)]
        self.down = nn.ModuleList([Twice(a, b) for a, b in zip([channels] + sizes, sizes)])
        back = list(zip(sizes[::-1], sizes[-2::-1]))
        self.widen = nn.ModuleList([nn.ConvTranspose2d(a, b, 2, 2) for a, b in back])
        self.up = nn.ModuleList([Twice(a, b) for a, b in back])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = []
        for block in self.down:
            x = block(F.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        kept.pop()
        for widen, block in zip(self.widen, self.up):
            x = block(torch.cat([kept.pop(), widen(x)], 1))
        return [self.head(x)]


def norm(channels):
    return nn.GroupNorm(next(g for g in range(8, 0, -1) if channels % g == 0), channels)


class ResidualBlock(nn.Module):
    def __init__(self, n_in, n_out, time):
        super().__init__()
        self.norm1, self.conv1 = norm(n_in), nn.Conv2d(n_in, n_out, 3, padding=1)
        self.time = nn.Linear(time, n_out)
        self.norm2, self.conv2 = norm(n_out), nn.Conv2d(n_out, n_out, 3, padding=1)
        self.skip = nn.Conv2d(n_in, n_out, 1) if n_in != n_out else None

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        y = self.conv2(F.silu(self.norm2(y)))
        return (self.skip(x) if self.skip else x) + y


class PixelAttention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = norm(channels)
        self.attention = nn.ModuleDict({"in_proj": nn.Linear(channels, 3 * channels),
                                        "out_proj": nn.Linear(channels, channels)})

    def forward(self, x):
        n, c, h, w = x.shape
        q, k, v = self.attention["in_proj"](self.norm(x).flatten(2).transpose(1, 2)).split(c, 2)
        y = (q @ k.transpose(1, 2) / math.sqrt(c)).softmax(-1) @ v
        return x + self.attention["out_proj"](y).transpose(1, 2).reshape(n, c, h, w)


class Ddpm(nn.Module):
    """Gives the noise that it finds, and the loss of denoising a picture."""

    def __init__(self, channels, width, multiples, patch):
        super().__init__()
        widths, time = [width * m for m in multiples], 4 * width
        self.width = width
        self.time1, self.time2 = nn.Linear(width, time), nn.Linear(time, time)
        self.begin = (nn.Conv2d(channels, width, 3, padding=1) if patch == 1 else
                      nn.Conv2d(channels, width, patch, patch))
        self.down = nn.ModuleList([ResidualBlock(a, b, time) for a, b in zip([width] + widths, widths)])
        self.shrink = nn.ModuleList([nn.Conv2d(w, w, 3, 2, 1) for w in widths[:-1]])
        last = widths[-1]
        self.middle1, self.attend = ResidualBlock(last, last, time), PixelAttention(last)
        self.middle2 = ResidualBlock(last, last, time)
        self.up = nn.ModuleList([ResidualBlock(a + b, b, time)
                                 for a, b in zip([last] + widths[::-1], widths[::-1])])
        self.grow = nn.ModuleList([nn.ConvTranspose2d(w, w, 4, 2, 1) for w in widths[:0:-1]])
        self.norm = norm(widths[0])
        self.finish = (nn.Conv2d(widths[0], channels, 3, padding=1) if patch == 1 else
                       nn.ConvTranspose2d(widths[0], channels, patch, patch))

    def noise(self, x, time):
        half = self.width // 2
        # The network's table of frequencies is float32.
        rates = torch.tensor([1000 * 10000**(-i / half) for i in range(half)], dtype=torch.float32).to(time.dtype)
        angles = time[:, None] * rates
        t = self.time2(F.silu(self.time1(torch.cat([angles.sin(), angles.cos()], 1))))
        x, kept = self.begin(x), []
        for i, block in enumerate(self.down):
            x = block(x, t)
            kept.append(x)
            x = self.shrink[i](x) if i < len(self.shrink) else x
        x = self.middle2(self.attend(self.middle1(x, t)), t)
        for i, block in enumerate(self.up):
            x = block(torch.cat([x, kept.pop()], 1), t)
            if i < len(self.grow):
                x = self.grow[i](x)
        return self.finish(F.silu(self.norm(x)))

    def forward(self, x, noise, time):
        at = (time * (0.999 * math.pi / 2))[:, None, None, None]
        found = self.noise(at.cos() * x + at.sin() * noise, time)
        return [found, F.mse_loss(found, noise)]


def names_of(net):
    """PyTorch's name of every parameter -> mslua's, which says gamma and beta of what normalises."""
    names = {}
    for path, module in net.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            full = path + "." + name if path else name
            if isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
                name = "gamma" if name == "weight" else "beta"
            names[full] = path + "." + name if path else name
    return names


def case(name, net, inputs, **options):
    """inputs: (name, shape) each; a name that begins with "u." is of uniform numbers."""
    net, names = net(**options).double(), {}
    names = names_of(net)
    with torch.no_grad():
        for own, p in net.named_parameters():
            p.copy_(0.1 * numbers(names[own], tuple(p.shape)) + (1 if names[own].endswith("gamma") else 0))
    given = [(uniform if stream.startswith("u.") else numbers)(stream, shape) for stream, shape in inputs]
    outputs = net(*given)
    loss = sum((y * numbers("out.%d" % i, tuple(y.shape))).sum() for i, y in enumerate(outputs, 1))
    loss.backward()
    norms = {names[own]: p.grad.norm().item() for own, p in net.named_parameters()}
    return {"network": name, "options": options, "inputs": [list(i) for i in inputs], "loss": loss.item(),
            "gradient_norms": norms}


def cases():
    picture = [3, 1, 32, 32]
    yield case("generator", Generator, [("z", [5, 6])], latent=6, width=3)
    yield case("discriminator", Discriminator, [("x", [5, 1, 32, 32])], width=3)
    yield case("vae", Vae, [("u.x", picture), ("noise", [3, 4])], latent=4, width=3)
    yield case("unet", Unet, [("x", [4, 3, 16, 24])], channels=3, classes=2, width=4, depth=2)
    yield case("ddpm", Ddpm, [("x", [2, 1, 16, 16]), ("noise", [2, 1, 16, 16]), ("u.time", [2])],
               channels=1, width=6, multiples=[1, 2, 3], patch=1)
    yield case("ddpm", Ddpm, [("x", [2, 3, 16, 8]), ("noise", [2, 3, 16, 8]), ("u.time", [2])],
               channels=3, width=8, multiples=[1, 2], patch=2)


def main():
    philox.check()
    with open(FILE, "w") as f:
        f.write(json.dumps({"seed": SEED, "cases": list(cases())}, indent=1) + "\n")
    print(os.path.normpath(FILE))


if __name__ == "__main__":
    main()
