"""One PyTorch training loop for tools/bench; prints one JSON line. Works with PyTorch 1.13 and later.

usage: peer.py --workload NAME --dtype f32|bf16 --threads N --layout nchw|nhwc --mode eager|compile --seconds S
"""
import argparse
import contextlib
import json
import math
import resource
import statistics
import sys
import time

START = time.time()


def residual_network(torch):
    nn, F = torch.nn, torch.nn.functional

    def conv(n_in, n_out, k, stride=1):
        return nn.Conv2d(n_in, n_out, k, stride, k // 2, bias=False)

    class Block(nn.Module):
        """Basic (two 3x3) or bottleneck (1x1, 3x3, 1x1)."""

        def __init__(self, n_in, planes, stride, deep):
            super().__init__()
            shapes = [(n_in, planes, 1, 1), (planes, planes, 3, stride), (planes, 4 * planes, 1, 1)] if deep else [
                (n_in, planes, 3, stride), (planes, planes, 3, 1)]
            self.convs = nn.ModuleList(conv(*s) for s in shapes)
            self.norms = nn.ModuleList(nn.BatchNorm2d(s[1]) for s in shapes)
            n_out = shapes[-1][1]
            self.down = nn.Sequential(conv(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out)) if (
                stride != 1 or n_in != n_out) else nn.Identity()

        def forward(self, x):
            y = x
            for i, (c, b) in enumerate(zip(self.convs, self.norms)):
                y = b(c(y))
                if i + 1 < len(self.convs):
                    y = F.relu(y, inplace=True)
            return F.relu(y + self.down(x), inplace=True)

    class ResNet(nn.Module):
        def __init__(self, deep):
            super().__init__()
            self.deep = deep
            self.stem, self.norm = conv(3, 64, 7 if deep else 3, 2 if deep else 1), nn.BatchNorm2d(64)
            blocks, n_in = [], 64
            for i, depth in enumerate((3, 4, 6, 3) if deep else (2, 2, 2, 2)):
                for j in range(depth):
                    blocks.append(Block(n_in, 64 << i, 2 if i and not j else 1, deep))
                    n_in = (64 << i) * (4 if deep else 1)
            self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(n_in, 10)

        def forward(self, x):
            x = F.relu(self.norm(self.stem(x)), inplace=True)
            if self.deep:
                x = F.max_pool2d(x, 3, 2, 1)
            return self.fc(self.blocks(x).mean((2, 3)))

    return ResNet


def transformer(torch):
    nn, F = torch.nn, torch.nn.functional

    class Layer(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads = heads
            self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x, mask):
            b, t, c = x.shape
            q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                       for z in self.qkv(self.ln1(x)).split(c, dim=2))
            if hasattr(F, "scaled_dot_product_attention") and (q.is_cuda or q.dtype == torch.float32):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:  # faster than the fused one in bf16 on a CPU
                scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.heads)
                y = F.softmax(scores.masked_fill(~mask[:t, :t], float("-inf")), dim=-1) @ v
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.ln2(x))))

    class GPT(nn.Module):
        def __init__(self, vocab, block, layers, heads, dim):
            super().__init__()
            self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(block, dim)
            self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
            self.ln = nn.LayerNorm(dim)
            self.mask = torch.tril(torch.ones(block, block)).bool()
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, 0.0, 0.02)

        def forward(self, idx):
            x = self.tok(idx) + self.pos.weight[:idx.shape[1]]
            for layer in self.layers:
                x = layer(x, self.mask)
            return F.linear(self.ln(x), self.tok.weight)

    return GPT


def networks(torch):
    nn, F = torch.nn, torch.nn.functional
    ResNet, GPT = residual_network(torch), transformer(torch)

    class Quickstart(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(32, 16) * 0.01)
            self.w2 = nn.Parameter(torch.randn(16, 16) * 0.01)

        def forward(self, x):
            return torch.relu(x @ self.w) @ self.w2

    def lenet():
        return nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                             nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84),
                             nn.ReLU(), nn.Linear(84, 10))

    class Recurrent(nn.Module):
        def __init__(self, vocab, layers, hidden):
            super().__init__()
            self.embed, self.head = nn.Embedding(vocab, hidden), nn.Linear(hidden, vocab)
            self.lstm = nn.LSTM(hidden, hidden, layers, batch_first=True)

        def forward(self, idx):
            return self.head(self.lstm(self.embed(idx))[0])

    def encoder(dim, heads, layers, norm_first):
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(dim, heads, 4 * dim, 0.0, "gelu", batch_first=True,
                                                                norm_first=norm_first), layers)

    class Vit(nn.Module):
        def __init__(self, size, patch, layers, heads, dim):
            super().__init__()
            self.patches = nn.Conv2d(3, dim, patch, patch)
            self.token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
            self.positions = nn.Parameter(torch.randn(1, (size // patch)**2 + 1, dim) * 0.02)
            self.layers = encoder(dim, heads, layers, True)
            self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 10)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
            return self.head(self.norm(self.layers(x))[:, 0])

    class Bert(nn.Module):
        def __init__(self, vocab, block, layers, heads, dim):
            super().__init__()
            self.words, self.positions, self.segments = (nn.Embedding(n, dim) for n in (vocab, block, 2))
            self.norm, self.layers = nn.LayerNorm(dim), encoder(dim, heads, layers, False)
            self.transform, self.last = nn.Linear(dim, dim), nn.LayerNorm(dim)
            self.bias = nn.Parameter(torch.zeros(vocab))

        def forward(self, idx):
            x = self.words(idx) + self.positions.weight[:idx.shape[1]] + self.segments.weight[0]
            x = self.last(F.gelu(self.transform(self.layers(self.norm(x)))))
            return F.linear(x, self.words.weight, self.bias)

    class RmsNorm(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(dim))

        def forward(self, x):
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight

    class LlamaLayer(nn.Module):
        def __init__(self, dim, heads, kv_heads, hidden):
            super().__init__()
            self.heads, self.kv_heads, self.width = heads, kv_heads, dim // heads
            self.norm1, self.norm2 = RmsNorm(dim), RmsNorm(dim)
            self.q, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
            self.k, self.v = (nn.Linear(dim, kv_heads * self.width, bias=False) for _ in range(2))
            self.gate, self.up = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
            self.down = nn.Linear(hidden, dim, bias=False)

        def forward(self, x, cos, sin, mask):
            b, t, c = x.shape
            y = self.norm1(x)
            q, k, v = (part(y).view(b, t, -1, self.width).transpose(1, 2) for part in (self.q, self.k, self.v))

            def turned(z):
                low, high = z.chunk(2, -1)
                return z * cos + torch.cat([-high, low], -1) * sin
            q, k = turned(q).to(v.dtype), turned(k).to(v.dtype)
            k, v = (z.repeat_interleave(self.heads // self.kv_heads, 1) for z in (k, v))
            if hasattr(F, "scaled_dot_product_attention") and q.dtype == torch.float32:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = (q @ k.transpose(-2, -1)) / math.sqrt(self.width)
                y = F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v
            x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
            y = self.norm2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    class Llama(nn.Module):
        def __init__(self, vocab, block, layers, heads, kv_heads, dim, hidden):
            super().__init__()
            self.tok, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab, bias=False)
            self.layers = nn.ModuleList(LlamaLayer(dim, heads, kv_heads, hidden) for _ in range(layers))
            self.norm, width = RmsNorm(dim), dim // heads
            angles = torch.outer(torch.arange(block), 10000.0**(-torch.arange(0, width, 2) / width))
            self.cos, self.sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
            self.mask = torch.tril(torch.ones(block, block)).bool()

        def forward(self, idx):
            x = self.tok(idx)
            for layer in self.layers:
                x = layer(x, self.cos, self.sin, self.mask)
            return self.head(self.norm(x))

    def conv(n_in, n_out, k):
        return nn.Conv2d(n_in, n_out, k, 1, k // 2, bias=False)

    class Inverted(nn.Module):
        def __init__(self, n_in, n_out, stride, expansion):
            super().__init__()
            hidden = n_in * expansion
            steps = [conv(n_in, hidden, 1), nn.BatchNorm2d(hidden), nn.ReLU6(True)] if expansion > 1 else []
            steps += [nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden),
                      nn.ReLU6(True), conv(hidden, n_out, 1), nn.BatchNorm2d(n_out)]
            self.steps, self.residual = nn.Sequential(*steps), stride == 1 and n_in == n_out

        def forward(self, x):
            return x + self.steps(x) if self.residual else self.steps(x)

    def mobilenetv2():
        cells, n_in = [conv(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU6(True)], 32
        for t, c, n, s in ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                           (6, 320, 1, 1)):
            for i in range(n):
                cells.append(Inverted(n_in, c, 1 if i else s, t))
                n_in = c
        cells += [conv(n_in, 1280, 1), nn.BatchNorm2d(1280), nn.ReLU6(True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*cells, nn.Linear(1280, 10))

    class GroupNorm(nn.GroupNorm):
        def forward(self, x):
            # PyTorch 1 has none for parameters of other types than x's.
            return super().forward(x if torch.__version__.startswith("2") else x.float())

    class Residual(nn.Module):
        def __init__(self, n_in, n_out, time):
            super().__init__()
            self.norm1, self.norm2 = GroupNorm(8, n_in), GroupNorm(8, n_out)
            self.conv1, self.conv2 = nn.Conv2d(n_in, n_out, 3, padding=1), nn.Conv2d(n_out, n_out, 3, padding=1)
            self.time, self.skip = nn.Linear(time, n_out), nn.Conv2d(n_in, n_out, 1) if n_in != n_out else nn.Identity()

        def forward(self, x, time):
            y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
            return self.skip(x) + self.conv2(F.silu(self.norm2(y)))

    class PixelAttention(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.norm, self.qkv, self.out = GroupNorm(8, channels), nn.Linear(channels, 3 * channels), nn.Linear(
                channels, channels)

        def forward(self, x):
            n, c, h, w = x.shape
            q, k, v = self.qkv(self.norm(x).flatten(2).transpose(1, 2)).split(c, 2)
            if hasattr(F, "scaled_dot_product_attention") and q.dtype == torch.float32:
                y = F.scaled_dot_product_attention(q, k, v)
            else:
                y = (q @ k.transpose(1, 2) / math.sqrt(c)).softmax(-1) @ v
            return x + self.out(y).transpose(1, 2).reshape(n, c, h, w)

    class Ddpm(nn.Module):
        """The denoiser of recipes/ddpm_mnist.lua: two sizes, patches of 2 x 2."""

        def __init__(self, width):
            super().__init__()
            wide, time = 2 * width, 4 * width
            self.rates = 1000 * 10000**(-torch.arange(width // 2) / (width // 2))
            self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
            self.begin = nn.Conv2d(1, width, 2, 2)
            self.down1, self.down2 = Residual(width, width, time), Residual(width, wide, time)
            self.shrink, self.grow = nn.Conv2d(width, width, 3, 2, 1), nn.ConvTranspose2d(wide, wide, 4, 2, 1)
            self.middle1, self.attend = Residual(wide, wide, time), PixelAttention(wide)
            self.middle2 = Residual(wide, wide, time)
            self.up2, self.up1 = Residual(2 * wide, wide, time), Residual(wide + width, width, time)
            self.norm, self.finish = GroupNorm(8, width), nn.ConvTranspose2d(width, 1, 2, 2)

        def noise(self, x, time):
            angles = time[:, None] * self.rates
            t = self.time(torch.cat([angles.sin(), angles.cos()], 1))
            large = self.down1(self.begin(x), t)
            small = self.down2(self.shrink(large), t)
            x = self.middle2(self.attend(self.middle1(small, t)), t)
            x = self.up1(torch.cat([self.grow(self.up2(torch.cat([x, small], 1), t)), large], 1), t)
            return self.finish(F.silu(self.norm(x)))

        def forward(self, x):
            time, noise = torch.rand(x.shape[0]), torch.randn_like(x)
            at = (time * (0.999 * math.pi / 2))[:, None, None, None]
            return self.noise(at.cos() * x + at.sin() * noise, time).float(), noise

    def entropy(out, y):
        return F.cross_entropy(out.float().view(-1, out.shape[-1]), y.view(-1))

    def images(net, n, channels, size):
        return net, torch.randn(n, channels, size, size), torch.randint(0, 10, (n,)), entropy, 0.9

    def of_text(net, batch, vocab, block):
        idx = torch.randint(0, vocab, (batch, block + 1))
        return net, idx[:, :-1].contiguous(), idx[:, 1:].contiguous(), entropy, None

    def text(batch, vocab, block, *sizes, make=GPT):
        return of_text(make(vocab, block, *sizes), batch, vocab, block)

    return {
        "quickstart": lambda: (Quickstart(), torch.rand(2, 32), torch.rand(2, 16), F.mse_loss, 0.1),
        "lenet": lambda: images(lenet(), 32, 1, 32),
        "resnet18": lambda: images(ResNet(False), 128, 3, 32),
        "resnet50_32": lambda: images(ResNet(True), 32, 3, 32),
        "resnet50_224": lambda: images(ResNet(True), 32, 3, 224),
        "resnet50_b256": lambda: images(ResNet(True), 256, 3, 224),
        "char_gpt": lambda: text(12, 65, 64, 4, 4, 128),
        "gpt2": lambda: text(2, 50257, 256, 12, 12, 768),
        "gpt2_1024": lambda: text(16, 50257, 1024, 12, 12, 768),
        "lstm": lambda: of_text(Recurrent(65, 2, 256), 32, 65, 128),
        "mobilenetv2": lambda: images(mobilenetv2(), 32, 3, 32),
        "vit": lambda: images(Vit(32, 4, 6, 3, 192), 32, 3, 32),
        "ddpm": lambda: (Ddpm(24), torch.randn(64, 1, 32, 32), None, lambda out, _: F.mse_loss(*out), None),
        "bert": lambda: text(8, 4096, 128, 4, 4, 256, make=Bert),
        "llama": lambda: text(8, 4096, 128, 4, 8, 4, 256, 688, make=Llama),
    }


def input_pipeline(torch, seconds):
    """Whole batches of tensor operations: the fastest way to write the tutorial's pipeline in PyTorch."""
    F = torch.nn.functional
    images = torch.randint(0, 256, (1280, 3, 32, 32), dtype=torch.uint8)
    mean, std = torch.tensor((0.4914, 0.4822, 0.4465)), torch.tensor((0.2023, 0.1994, 0.2010))
    mean, std, b, best = mean.view(3, 1, 1), std.view(3, 1, 1), 32, 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        x = F.pad(images[torch.randint(0, 1280, (b,))], (4, 4, 4, 4))
        flip, cols = torch.rand(b) < 0.5, torch.arange(32)
        cols = torch.where(flip[:, None], 31 - cols, cols) + torch.randint(0, 9, (b, 1))
        rows = torch.arange(32) + torch.randint(0, 9, (b, 1))
        x = x[torch.arange(b)[:, None, None, None], torch.arange(3)[None, :, None, None], rows[:, None, :, None],
              cols[:, None, None, :]]
        F.interpolate((x.float() / 255 - mean) / std, size=(224, 224), mode="bilinear", align_corners=False)
        best = max(best, b / (time.perf_counter() - begin))
    return {"images_s": best}


def train(torch, a):
    net, x, y, loss_of, momentum = networks(torch)[a.workload]()
    if a.layout == "nhwc":
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    if momentum is None:
        fused = {"fused": True} if int(torch.__version__.split(".")[0]) >= 2 else {}
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, **fused)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=momentum)

    def forward(x, y):
        bf16 = torch.autocast("cpu", dtype=torch.bfloat16) if a.dtype == "bf16" else contextlib.nullcontext()
        with bf16:
            return loss_of(net(x), y)

    if a.mode == "compile":
        forward = torch.compile(forward)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    step()
    first = time.time() - START
    step()
    ms, end = [], time.perf_counter() + a.seconds
    while len(ms) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        ms.append((time.perf_counter() - begin) * 1e3)
    return {"step_ms": statistics.median(ms), "min_ms": min(ms), "max_ms": max(ms), "first_step_s": first}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", required=True)
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layout", default="nchw")
    parser.add_argument("--mode", default="eager")
    parser.add_argument("--seconds", type=float, default=3)
    a = parser.parse_args()
    import torch
    if a.mode == "compile" and not hasattr(torch, "compile"):
        sys.exit("this PyTorch has no torch.compile")
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    result = input_pipeline(torch, a.seconds) if a.workload == "input" else train(torch, a)
    result.update(torch=torch.__version__, peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
