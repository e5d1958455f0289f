#!/usr/bin/env python3
"""Tiny folders of networks under the names of their published files, and what PyTorch computes with them.

  tools/golden/hf.py write FAMILY FOLDER [--shards] [--bf16] [--old] [--chat]    needs nothing but Python
  tools/golden/hf.py golden                                             needs PyTorch: writes tests/golden/hf_*.json

Each family is a table of tensors, a config.json and a plain forward pass; the weights are drawn by Python's own
generator, so that the folder of a test is the one that the numbers are of.
"""

import json
import math
import os
import random
import struct
import sys

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden")
VOCAB, DIM, HEADS, KV, HIDDEN, LAYERS, BLOCK = 37, 16, 4, 2, 24, 2, 24


# ------------------------------------------------------------------------------------------------------------- families


def linear(name, n_in, n_out, transposed=False):
    return {name + ".weight": [n_in, n_out] if transposed else [n_out, n_in], name + ".bias": [n_out]}


def norm(name, dim=DIM):
    return {name + ".weight": [dim], name + ".bias": [dim]}


def gpt2():
    config = {"model_type": "gpt2", "vocab_size": VOCAB, "n_positions": BLOCK, "n_layer": LAYERS, "n_head": HEADS,
              "n_embd": DIM, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
    shapes = {"wte.weight": [VOCAB, DIM], "wpe.weight": [BLOCK, DIM], **norm("ln_f")}
    for i in range(LAYERS):
        at = "h.%d." % i
        shapes.update(norm(at + "ln_1"), **norm(at + "ln_2"))
        shapes.update(linear(at + "attn.c_attn", DIM, 3 * DIM, True), **linear(at + "attn.c_proj", DIM, DIM, True))
        shapes.update(linear(at + "mlp.c_fc", DIM, 4 * DIM, True), **linear(at + "mlp.c_proj", 4 * DIM, DIM, True))
        shapes[at + "attn.bias"] = [1, 1, BLOCK, BLOCK]
    return config, shapes


def llama():
    config = {"model_type": "llama", "vocab_size": VOCAB, "max_position_embeddings": BLOCK,
              "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV,
              "hidden_size": DIM, "intermediate_size": HIDDEN, "rms_norm_eps": 1e-5, "hidden_act": "silu",
              "rope_theta": 100.0, "tie_word_embeddings": False,
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                               "original_max_position_embeddings": 32}}
    width = DIM // HEADS
    shapes = {"model.embed_tokens.weight": [VOCAB, DIM], "model.norm.weight": [DIM], "lm_head.weight": [VOCAB, DIM]}
    for i in range(LAYERS):
        at = "model.layers.%d." % i
        shapes.update({at + "input_layernorm.weight": [DIM], at + "post_attention_layernorm.weight": [DIM],
                       at + "self_attn.q_proj.weight": [DIM, DIM], at + "self_attn.k_proj.weight": [KV * width, DIM],
                       at + "self_attn.v_proj.weight": [KV * width, DIM], at + "self_attn.o_proj.weight": [DIM, DIM],
                       at + "mlp.gate_proj.weight": [HIDDEN, DIM], at + "mlp.up_proj.weight": [HIDDEN, DIM],
                       at + "mlp.down_proj.weight": [DIM, HIDDEN]})
    return config, shapes


def bert():
    config = {"model_type": "bert", "vocab_size": VOCAB, "max_position_embeddings": BLOCK, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS, "hidden_size": DIM, "intermediate_size": HIDDEN, "type_vocab_size": 2,
              "layer_norm_eps": 1e-12, "hidden_act": "gelu", "hidden_dropout_prob": 0.1}
    at = "bert.embeddings."
    shapes = {at + "word_embeddings.weight": [VOCAB, DIM], at + "position_embeddings.weight": [BLOCK, DIM],
              at + "token_type_embeddings.weight": [2, DIM], **norm(at + "LayerNorm")}
    for i in range(LAYERS):
        at = "bert.encoder.layer.%d." % i
        for part in ("query", "key", "value"):
            shapes.update(linear(at + "attention.self." + part, DIM, DIM))
        shapes.update(linear(at + "attention.output.dense", DIM, DIM), **norm(at + "attention.output.LayerNorm"))
        shapes.update(linear(at + "intermediate.dense", DIM, HIDDEN), **linear(at + "output.dense", HIDDEN, DIM))
        shapes.update(norm(at + "output.LayerNorm"))
    shapes.update(linear("cls.predictions.transform.dense", DIM, DIM), **norm("cls.predictions.transform.LayerNorm"))
    shapes["cls.predictions.bias"] = [VOCAB]
    return config, shapes


def vit():
    config = {"model_type": "vit", "image_size": 8, "patch_size": 4, "num_channels": 3, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS, "hidden_size": DIM, "intermediate_size": HIDDEN, "layer_norm_eps": 1e-12,
              "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "qkv_bias": True}
    at = "vit.embeddings."
    shapes = {at + "cls_token": [1, 1, DIM], at + "position_embeddings": [1, 5, DIM],
              at + "patch_embeddings.projection.weight": [DIM, 3, 4, 4],
              at + "patch_embeddings.projection.bias": [DIM], **norm("vit.layernorm")}
    for i in range(LAYERS):
        at = "vit.encoder.layer.%d." % i
        for part in ("query", "key", "value"):
            shapes.update(linear(at + "attention.attention." + part, DIM, DIM))
        shapes.update(linear(at + "attention.output.dense", DIM, DIM), **linear(at + "intermediate.dense", DIM, HIDDEN))
        shapes.update(linear(at + "output.dense", HIDDEN, DIM))
        shapes.update(norm(at + "layernorm_before"), **norm(at + "layernorm_after"))
    shapes.update(linear("classifier", DIM, 5))
    return config, shapes


def resnet():
    """resnet18 with 8 instead of 64 channels, by the names of torchvision and timm."""
    config = {"architecture": "resnet18", "num_classes": 5, "num_features": 64, "pretrained_cfg": {"classifier": "fc"}}
    shapes = {"conv1.weight": [8, 3, 7, 7], "fc.weight": [5, 64], "fc.bias": [5]}

    def batch_norm(name, channels):
        shapes.update({name + "." + part: [channels] for part in ("weight", "bias", "running_mean", "running_var")})
        shapes[name + ".num_batches_tracked"] = []

    batch_norm("bn1", 8)
    channels = 8
    for stage in range(1, 5):
        for i in range(2):
            at, planes = "layer%d.%d." % (stage, i), 4 * 2**stage
            for conv, n_in in ((1, channels), (2, planes)):
                shapes[at + "conv%d.weight" % conv] = [planes, n_in, 3, 3]
                batch_norm(at + "bn%d" % conv, planes)
            if channels != planes:
                shapes[at + "downsample.0.weight"] = [planes, channels, 1, 1]
                batch_norm(at + "downsample.1", planes)
            channels = planes
    return config, shapes


FAMILIES = {"gpt2": gpt2, "llama": llama, "bert": bert, "vit": vit, "resnet": resnet}


def draw(shapes):
    """Values with 8 significant bits, which every float type holds: name -> list."""
    values = {}
    for name in sorted(shapes):
        r = random.Random("hf " + name)
        n = math.prod(shapes[name])
        gain = name.endswith("weight") and ("norm" in name.lower() or "ln_" in name)
        values[name] = [1 + r.randint(-16, 15) / 128 if gain else r.randint(-128, 127) / 256 for _ in range(n)]
        if name.endswith("attn.bias"):
            values[name] = [1.0] * n
        if name.endswith("running_var"):  # about that of what is normalised
            stage = int(name[5]) if name.startswith("layer") else 1
            shift = (10 if "downsample" in name else 7) - stage
            values[name] = [(192 + r.randint(0, 31)) / 2**shift for _ in range(n)]
        if name.endswith("num_batches_tracked"):
            values[name] = [7]
    return values


# ---------------------------------------------------------------------------------------------------------------- files


def packed(values, bf16):
    if not bf16:
        return struct.pack("<%df" % len(values), *values)
    return b"".join(struct.pack("<f", v)[2:] for v in values)


CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
          "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def write_chat(folder):
    """A tokenizer of letters with the tokens and the template of ChatML, and room for a conversation (llama alone: its
    positions have no weights)."""
    def change(name, **fields):
        path = os.path.join(folder, name)
        values = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                values = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**values, **fields}, file, indent=1)

    special = ["<|im_start|>", "<|im_end|>"]
    tokens = special + [chr(ord("a") + i) for i in range(26)] + list(" \n.?!,;:-")
    added = [{"id": i, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for i, text in enumerate(special)]
    change("tokenizer.json", version="1.0", added_tokens=added, decoder={"type": "Fuse"},
           model={"type": "BPE", "vocab": {text: i for i, text in enumerate(tokens)}, "merges": []})
    change("tokenizer_config.json", chat_template=CHATML)
    change("config.json", max_position_embeddings=256)


def write_safetensors(path, shapes, values, bf16):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name in sorted(shapes):
        count = name.endswith("num_batches_tracked")
        piece = struct.pack("<q", values[name][0]) if count else packed(values[name], bf16)
        header[name] = {"dtype": "I64" if count else "BF16" if bf16 else "F32", "shape": shapes[name],
                        "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def write(family, folder, shards, bf16, old):
    config, shapes = FAMILIES[family]()
    values = draw(shapes)
    if old:  # the names of the first files
        rename = {n: n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
                  for n in shapes}
        if family == "gpt2":
            rename = {n: "transformer." + n for n in shapes}
        elif family == "bert":
            rename = {n: new[len("bert."):] if new.startswith("bert.") else new for n, new in rename.items()}
        shapes, values = {rename[n]: s for n, s in shapes.items()}, {rename[n]: v for n, v in values.items()}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    if not shards:
        write_safetensors(os.path.join(folder, "model.safetensors"), shapes, values, bf16)
        return
    names = sorted(shapes)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in parts.items():
        write_safetensors(os.path.join(folder, file), {n: shapes[n] for n in part}, values, bf16)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": {n: file for file, part in parts.items() for n in part}}, f)


# -------------------------------------------------------------------------------------------------------------- PyTorch


def forward_gpt2(w, x):
    import torch
    from torch.nn import functional as F
    n, t = x.shape
    h = w["wte.weight"][x] + w["wpe.weight"][:t]
    for i in range(LAYERS):
        p = lambda name: w["h.%d.%s" % (i, name)]
        y = F.layer_norm(h, (DIM,), p("ln_1.weight"), p("ln_1.bias"), 1e-5)
        q, k, v = (y @ p("attn.c_attn.weight") + p("attn.c_attn.bias")).split(DIM, 2)
        q, k, v = (a.view(n, t, HEADS, -1).transpose(1, 2) for a in (q, k, v))
        s = q @ k.transpose(2, 3) / math.sqrt(DIM // HEADS)
        s = s.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -math.inf)
        y = (s.softmax(-1) @ v).transpose(1, 2).reshape(n, t, DIM)
        h = h + y @ p("attn.c_proj.weight") + p("attn.c_proj.bias")
        y = F.layer_norm(h, (DIM,), p("ln_2.weight"), p("ln_2.bias"), 1e-5)
        y = y @ p("mlp.c_fc.weight") + p("mlp.c_fc.bias")
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        h = h + y @ p("mlp.c_proj.weight") + p("mlp.c_proj.bias")
    return F.layer_norm(h, (DIM,), w["ln_f.weight"], w["ln_f.bias"], 1e-5) @ w["wte.weight"].T


def rotary(x):
    import torch
    d, t = x.shape[-1], x.shape[-2]
    inv = 100.0 ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    wave = 2 * math.pi / inv
    smooth = (32 / wave - 1) / (4 - 1)
    mixed = (1 - smooth) * inv / 8 + smooth * inv
    inv = torch.where(wave > 32, inv / 8, torch.where(wave < 8, inv, mixed))
    angles = torch.arange(t, dtype=x.dtype)[:, None] * inv
    cos, sin = (torch.cat((f(angles), f(angles)), -1) for f in (torch.cos, torch.sin))
    return x * cos + torch.cat((-x[..., d // 2:], x[..., :d // 2]), -1) * sin


def forward_llama(w, x):
    import torch
    from torch.nn import functional as F
    n, t = x.shape
    rms = lambda a, g: a * torch.rsqrt((a * a).mean(-1, keepdim=True) + 1e-5) * g
    h = w["model.embed_tokens.weight"][x]
    for i in range(LAYERS):
        p = lambda name: w["model.layers.%d.%s.weight" % (i, name)]
        y = rms(h, p("input_layernorm"))
        q, k, v = (F.linear(y, p("self_attn.%s_proj" % a)).view(n, t, -1, DIM // HEADS).transpose(1, 2) for a in "qkv")
        q, k = rotary(q), rotary(k)
        k, v = (a.repeat_interleave(HEADS // KV, 1) for a in (k, v))
        s = q @ k.transpose(2, 3) / math.sqrt(DIM // HEADS)
        s = s.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -math.inf)
        h = h + F.linear((s.softmax(-1) @ v).transpose(1, 2).reshape(n, t, DIM), p("self_attn.o_proj"))
        y = rms(h, p("post_attention_layernorm"))
        h = h + F.linear(F.silu(F.linear(y, p("mlp.gate_proj"))) * F.linear(y, p("mlp.up_proj")), p("mlp.down_proj"))
    return F.linear(rms(h, w["model.norm.weight"]), w["lm_head.weight"])


def encoder_attention(w, at, names, y, hidden=None):
    from torch.nn import functional as F
    n, t, _ = y.shape
    q, k, v = (F.linear(y, w[at + a + ".weight"], w[at + a + ".bias"]).view(n, t, HEADS, -1).transpose(1, 2)
               for a in names)
    s = q @ k.transpose(2, 3) / math.sqrt(DIM // HEADS)
    if hidden is not None:
        s = s.masked_fill(hidden[:, None, None], -math.inf)
    return (s.softmax(-1) @ v).transpose(1, 2).reshape(n, t, DIM)


def forward_bert(w, x, segments, mask):
    from torch.nn import functional as F
    layer_norm = lambda a, name: F.layer_norm(a, (DIM,), w[name + ".weight"], w[name + ".bias"], 1e-12)
    dense = lambda a, name: F.linear(a, w[name + ".weight"], w[name + ".bias"])
    e = "bert.embeddings."
    h = w[e + "word_embeddings.weight"][x] + w[e + "position_embeddings.weight"][:x.shape[1]]
    h = layer_norm(h + w[e + "token_type_embeddings.weight"][segments], e + "LayerNorm")
    for i in range(LAYERS):
        at = "bert.encoder.layer.%d." % i
        y = encoder_attention(w, at + "attention.self.", ("query", "key", "value"), h, mask == 0)
        h = layer_norm(h + dense(y, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        y = dense(F.gelu(dense(h, at + "intermediate.dense")), at + "output.dense")
        h = layer_norm(h + y, at + "output.LayerNorm")
    at = "cls.predictions."
    h = layer_norm(F.gelu(dense(h, at + "transform.dense")), at + "transform.LayerNorm")
    return h @ w[e + "word_embeddings.weight"].T + w[at + "bias"]


def forward_vit(w, x):
    import torch
    from torch.nn import functional as F
    layer_norm = lambda a, name: F.layer_norm(a, (DIM,), w[name + ".weight"], w[name + ".bias"], 1e-12)
    dense = lambda a, name: F.linear(a, w[name + ".weight"], w[name + ".bias"])
    e = "vit.embeddings."
    h = F.conv2d(x, w[e + "patch_embeddings.projection.weight"], w[e + "patch_embeddings.projection.bias"], stride=4)
    h = torch.cat((w[e + "cls_token"].expand(len(x), 1, DIM), h.flatten(2).transpose(1, 2)), 1)
    h = h + w[e + "position_embeddings"]
    for i in range(LAYERS):
        at = "vit.encoder.layer.%d." % i
        y = layer_norm(h, at + "layernorm_before")
        h = h + dense(encoder_attention(w, at + "attention.attention.", ("query", "key", "value"), y),
                      at + "attention.output.dense")
        y = dense(F.gelu(dense(layer_norm(h, at + "layernorm_after"), at + "intermediate.dense")), at + "output.dense")
        h = h + y
    return dense(layer_norm(h, "vit.layernorm")[:, 0], "classifier")


def forward_resnet(w, x):
    from torch.nn import functional as F

    def normed(y, name):
        p = lambda part: w[name + "." + part]
        return F.batch_norm(y, p("running_mean"), p("running_var"), p("weight"), p("bias"), False, 0, 1e-5)

    y = F.max_pool2d(F.relu(normed(F.conv2d(x, w["conv1.weight"], stride=2, padding=3), "bn1")), 3, 2, 1)
    for stage in range(1, 5):
        for i in range(2):
            at = "layer%d.%d." % (stage, i)
            stride = 2 if stage > 1 and i == 0 else 1
            z = F.relu(normed(F.conv2d(y, w[at + "conv1.weight"], stride=stride, padding=1), at + "bn1"))
            z = normed(F.conv2d(z, w[at + "conv2.weight"], padding=1), at + "bn2")
            if at + "downsample.0.weight" in w:
                y = normed(F.conv2d(y, w[at + "downsample.0.weight"], stride=stride), at + "downsample.1")
            y = F.relu(y + z)
    return F.linear(y.mean((2, 3)), w["fc.weight"], w["fc.bias"])


PICTURES = {"vit": 8, "resnet": 40}  # families that take pictures, and their sides


def inputs(family):
    r = random.Random("inputs " + family)
    if family in PICTURES:
        side = range(PICTURES[family])
        return [[[[[r.randint(-128, 127) / 128 for _ in side] for _ in side] for _ in range(3)] for _ in range(2)]]
    ids = [[r.randrange(VOCAB) for _ in range(9)] for _ in range(2)]
    if family != "bert":
        return [ids]
    return [ids, [[0] * 4 + [1] * 5, [0] * 6 + [1] * 3], [[1] * 9, [1] * 5 + [0] * 4]]


def golden():
    import torch
    run = {"gpt2": forward_gpt2, "llama": forward_llama, "bert": forward_bert, "vit": forward_vit,
           "resnet": forward_resnet}
    for family, make in FAMILIES.items():
        _, shapes = make()
        w = {n: torch.tensor(v, dtype=torch.float64).view(shapes[n]) for n, v in draw(shapes).items()}
        x = inputs(family)
        tensors = [torch.tensor(a, dtype=torch.float64 if family in PICTURES else torch.int64) for a in x]
        logits = run[family](w, *tensors)
        with open(os.path.join(GOLDEN, "hf_%s.json" % family), "w") as f:
            json.dump({"family": family, "inputs": x, "logits": logits.tolist()}, f)
            f.write("\n")


def main():
    if sys.argv[1:2] == ["golden"]:
        golden()
    elif sys.argv[1:2] == ["write"] and len(sys.argv) >= 4 and sys.argv[2] in FAMILIES:
        flags = sys.argv[4:]
        write(sys.argv[2], sys.argv[3], "--shards" in flags, "--bf16" in flags, "--old" in flags)
        if "--chat" in flags:
            write_chat(sys.argv[3])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
