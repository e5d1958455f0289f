#!/usr/bin/env python3
"""Adapters of nn.LoRA: what is trained, saved, resumed, refused, written and merged: lora_test.py MSLUA hf.py"""
import filecmp
import json
import os
import shutil
import struct
import subprocess
import sys

MSLUA, WRITER = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "lora_test")
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1", HOME=WORK, XDG_CACHE_HOME=WORK)
ENVIRONMENT.pop("XDG_RUNTIME_DIR", None)
RECIPE = """
local ms = require "mslua"
local Llama = require "llama"
local GPT = require "gpt"
local p = ms.params { from = "llama", model = "llama", targets = "q_proj|v_proj", rank = 2, alpha = 4, dropout = 0,
  also = "", seed = 3, steps = 6, every = 2, mode = "stand_alone", micro = 0, stages = 1 }
local nets = {
  llama = function()
    return Llama { vocab = 37, block = 24, layers = 2, heads = 4, kv_heads = 2, dim = 16, hidden = 24, epsilon = 1e-5,
      rotary = { base = 100, scaling = "llama3", factor = 8, low_freq_factor = 1, high_freq_factor = 4,
        original_length = 32 } }
  end,
  gpt2 = function()
    return GPT { vocab = 37, block = 24, layers = 2, heads = 4, dim = 16, dropout = p.dropout, activation = "gelu_new" }
  end,
}
return ms.recipe {
  name = "adapt", seed = p.seed, weights = p.from ~= "" and p.from or nil,
  dataset = function()
    return ms.dataset.TextDataset("text", { usage = "train", block = 16 }):batch(4)
  end,
  network = function()
    local net = ms.nn.LoRA.apply(nets[p.model](), { rank = p.rank, alpha = p.alpha, dropout = p.dropout,
      targets = p.targets, also_train = p.also ~= "" and p.also or nil })
    for i, block in ipairs(p.stages > 1 and net.blocks or {}) do block.pipeline_stage = i - 1 end
    return p.micro > 0 and ms.nn.PipelineCell(net, p.micro) or net
  end,
  loss = ms.nn.CrossEntropyLoss(), optimizer = ms.nn.AdamW { learning_rate = 0.01 },
  parallel = p.mode ~= "stand_alone" and { parallel_mode = p.mode, gradients_mean = true,
    pipeline_stages = p.stages } or nil,
  train = { steps = p.steps }, checkpoint = { save_checkpoint_steps = p.every },
}
"""
PREFIX = "base_model.model."


def run(*words, code=0, says=""):
    done = subprocess.run([MSLUA, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    text = done.stdout + done.stderr
    if done.returncode != code or says not in text:
        sys.exit("%s: exit code %d, expected %d and %r, got: %s" % (" ".join(words), done.returncode, code, says, text))
    return done.stdout


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def tensors(path):
    """name -> (shape, list of numbers, rows first) of a safetensors file of float32."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        check(t["dtype"] == "F32", (name, t["dtype"]))
        begin, end = (8 + size + offset for offset in t["data_offsets"])
        found[name] = (t["shape"], struct.unpack("<%df" % ((end - begin) // 4), data[begin:end]))
    return found


def names_in(checkpoint):
    with open(os.path.join(checkpoint, "MANIFEST.json"), encoding="utf-8") as file:
        return {t["name"]: t for t in json.load(file)["tensors"]}


def newest(folder):
    made = [name for name in os.listdir(folder + "/ckpt") if name.endswith(".ckpt")]
    return folder + "/ckpt/" + max(made, key=lambda name: int(name[:-len(".ckpt")].rsplit("_", 1)[1]))


def logs(folder):
    with open(folder + "/rank_0.log", encoding="utf-8") as file:
        return file.read()


def merged_weight(base, adapter, module, scale, transposed):
    """W + scale B A of one layer, as the file of the base has it."""
    shape, w = base
    (rank, n_in), a = adapter[PREFIX + module + ".lora_A.weight"]
    (n_out, _), b = adapter[PREFIX + module + ".lora_B.weight"]
    check(shape == ([n_in, n_out] if transposed else [n_out, n_in]), module)
    out = []
    for i in range(len(w)):
        row, column = (i % n_out, i // n_out) if transposed else (i // n_in, i % n_in)
        out.append(w[i] + scale * sum(b[row * rank + r] * a[r * n_in + column] for r in range(rank)))
    return out


def written_and_merged(model, run_folder, targets):
    """The run's adapters in PEFT's form, added to the base: file and network agree with the formula."""
    for folder in ("peft_" + model, "merged_" + model):
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
    run("ckpt", "convert", run_folder, "peft_" + model, "--to", "peft")
    with open("peft_%s/adapter_config.json" % model, encoding="utf-8") as file:
        config = json.load(file)
    check(config["peft_type"] == "LORA" and config["r"] == 2 and config["lora_alpha"] == 4, config)
    check(config["fan_in_fan_out"] == (model == "gpt2"), config)
    check(config["base_model_name_or_path"] == model, config)
    run("ckpt", "merge-lora", model, "peft_" + model, "merged_" + model)
    base, adapter = tensors(model + "/model.safetensors"), tensors("peft_%s/adapter_model.safetensors" % model)
    merged = tensors("merged_%s/model.safetensors" % model)
    modules = {name[len(PREFIX):-len(".lora_A.weight")] for name in adapter if name.endswith(".lora_A.weight")}
    check(modules == set(config["target_modules"]) and len(modules) == targets, modules)
    moved = 0
    for name, (_, values) in merged.items():
        plain = name if name in base else name.replace("transformer.", "", 1)
        module = name[:-len(".weight")]
        expected = base[plain][1]
        if module in modules:
            expected = merged_weight(base[plain], adapter, module, 2, model == "gpt2")
            moved += max(abs(x - y) for x, y in zip(expected, base[plain][1])) > 1e-4
        check(max(abs(x - y) for x, y in zip(values, expected)) < 1e-6, name)
    check(moved == targets, "%d of %d weights have changed" % (moved, targets))
    with open("logits.lua", "w", encoding="utf-8") as file:
        file.write("""
local ms = require "mslua"
local net = ms.load_adapter(ms.from_pretrained(arg[1]), arg[2])
local merged = ms.from_pretrained(arg[3])
net:set_train(false); merged:set_train(false)
local ids = ms.Tensor({ { 1, 5, 9, 2, 7, 11 }, { 3, 3, 8, 20, 36, 0 } }, ms.int32)
local apart = ms.ops.reduce_max(ms.ops.abs(net(ids) - merged(ids))):item()
local plain = ms.ops.reduce_max(ms.ops.abs(ms.from_pretrained(arg[1])(ids) - merged(ids))):item()
assert(apart < 1e-5 and plain > 1e-3, apart .. " " .. plain)
""")
    run("run", "logits.lua", model, "peft_" + model, "merged_" + model)


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK + "/text")
    os.chdir(WORK)
    with open("text/input.txt", "w", encoding="utf-8") as file:
        file.write("the quick brown fox jumps over the lazy dog\n" * 60)
    with open("adapt.lua", "w", encoding="utf-8") as file:
        file.write(RECIPE)
    for family in ("gpt2", "llama", "bert"):
        subprocess.run([sys.executable, WRITER, "write", family, family], check=True)

    # Adapters alone are trained and saved.
    run("train", "adapt.lua", "--out", "whole")
    saved = names_in(newest("whole"))
    values = [name for name in saved if "lora_" in name and "." not in name.split("lora_")[0].split("layers")[0]]
    check(len(values) == 8 and all("lora_" in name for name in saved), sorted(saved))
    check("layers.1.self_attn.q_proj.lora_A" in saved, sorted(saved))

    # A run that resumes is the uninterrupted one, bit for bit; a base of other values is refused.
    run("train", "adapt.lua", "--out", "part", "--max-steps", "4")
    run("train", "adapt.lua", "--out", "part", "--resume", says="starting from the weights of llama")
    check(logs("part") == logs("whole"), "resumed losses")
    shutil.copytree("llama", "other")
    with open("other/model.safetensors", "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(struct.pack("<f", 0.25))
    run("train", "adapt.lua", "--out", "part", "--resume", "steps=8", "from=other", code=9,
        says="was saved with other ones than are here")
    run("generate", "adapt.lua", "--ckpt", "part", "--prompt", "the", "--max-new", "3", "from=other", code=9,
        says="was saved with other ones than are here")
    run("generate", "adapt.lua", "--ckpt", "part", "--prompt", "the", "--max-new", "3", says="the")

    # Ranks have the losses of one rank on the whole batch; parameters of a head may be trained too.
    run("train", "adapt.lua", "-n", "2", "--out", "ranks", "mode=data_parallel")
    check(sorted(names_in(newest("ranks"))) == sorted(saved), "what two ranks save")
    run("train", "adapt.lua", "-n", "2", "--out", "sharded", "mode=semi_auto_parallel")
    run("train", "adapt.lua", "--out", "head", "also=lm_head", "dropout=0.1")
    check("lm_head.weight" in names_in(newest("head")), "the head")

    written_and_merged("llama", "whole", 4)
    run("train", "adapt.lua", "--out", "gpt", "model=gpt2", "from=gpt2", "targets=attn.in_proj|up")
    written_and_merged("gpt2", "gpt", 4)
    piped = ("model=gpt2", "from=gpt2", "targets=attn.in_proj|up", "micro=2")
    run("train", "adapt.lua", "--out", "piped", *piped)
    written_and_merged("gpt2", "piped", 4)
    run("train", "adapt.lua", "-n", "2", "--out", "staged", *piped, "mode=semi_auto_parallel", "stages=2")
    check(logs("staged") == logs("piped"), "losses on two stages")
    written_and_merged("gpt2", "staged", 4)
    run("generate", "staged", "--prompt", "the", "--max-new", "3", says="the")
    os.mkdir("again")
    with open("again.lua", "w", encoding="utf-8") as file:
        file.write("""local ms = require "mslua"
ms.save_adapter(ms.load_adapter(ms.from_pretrained "llama", "peft_llama"), "again")""")
    run("run", "again.lua")
    check(filecmp.cmp("again/adapter_model.safetensors", "peft_llama/adapter_model.safetensors", shallow=False),
          "what is loaded is written again")

    # The merged weights have the base's type.
    os.mkdir("half")
    os.mkdir("merged_half")
    with open("half.lua", "w", encoding="utf-8") as file:
        file.write('local ms = require "mslua"\n'
                   'ms.save_pretrained(ms.from_pretrained "llama", "half", { dtype = "float16" })')
    run("run", "half.lua")
    run("ckpt", "merge-lora", "half", "peft_llama", "merged_half")
    sizes = [os.path.getsize(folder + "/model.safetensors") for folder in ("half", "merged_half", "merged_llama")]
    check(abs(sizes[0] - sizes[1]) < 100 and sizes[1] < 0.6 * sizes[2], sizes)

    # Statistics of BatchNorm change beside adapters, and go with them.
    with open("statistics.lua", "w", encoding="utf-8") as file:
        file.write("""
local ms = require "mslua"
local nn = ms.nn
local function make()
  ms.set_seed(1)
  return nn.SequentialCell { nn.Dense(3, 4), nn.BatchNorm1d(4), nn.Dense(4, 2) }
end
local net = nn.LoRA.apply(make(), { rank = 1, targets = "^2" })
local step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD { learning_rate = 0.1 })
step(ms.randn { 8, 3 }, ms.randn { 8, 2 })
ms.save_adapter(net, "statistics")
local loaded = ms.load_adapter(make(), "statistics")
net:set_train(false)
loaded:set_train(false)
local x = ms.randn { 4, 3 }
assert(ms.ops.reduce_max(ms.ops.abs(net(x) - loaded(x))):item() == 0)
assert(ms.ops.reduce_max(ms.ops.abs(net(x) - make():set_train(false)(x))):item() > 1e-3)
""")
    os.mkdir("statistics")
    run("run", "statistics.lua")

    # Bad input.
    run("train", "adapt.lua", "targets=nothing", code=2,
        says='targets: "nothing" fits no Dense cell of Llama, which has layers.0.self_attn.q_proj')
    run("train", "adapt.lua", "rank=0", code=2, says="rank")
    run("train", "adapt.lua", "also=nothing", code=2, says='also_train: "nothing" fits no parameter of Llama')
    run("train", "adapt.lua", "targets=q_proj[", code=2, says='targets: "q_proj[" is no pattern of Lua: malformed')
    os.mkdir("out")
    run("ckpt", "merge-lora", "gpt2", "peft_llama", "out", code=2,
        says="does not have: base_model.model.model.layers.0")
    run("ckpt", "merge-lora", "llama", "gpt2", "out", code=2, says="no adapter_config.json")
    run("ckpt", "merge-lora", "llama", "peft_llama", "nowhere", code=2, says="there is no folder 'nowhere'")
    run("ckpt", "convert", "whole", "out", code=2, says="Llama has adapters: write them by `--to peft`")
    with open("peft_llama/adapter_config.json", encoding="utf-8") as file:
        config = json.load(file)
    for key, value, says in (("target_modules", config["target_modules"] + ["lm_head"],
                              "has no adapter of lm_head, which target_modules of adapter_config.json names"),
                             ("modules_to_save", ["score"],
                              "has no tensor of score, which modules_to_save of adapter_config.json names"),
                             ("use_dora", True, "use_dora is not supported"),
                             ("alora_invocation_tokens", [1], "alora_invocation_tokens is not supported"),
                             ("init_lora_weights", "pissa", 'init_lora_weights = "pissa" is not supported'),
                             ("r", 0, "r is 0"),
                             ("r", 4, "lora_A has 2 rows, and adapter_config.json says r = 4"),
                             ("peft_type", "IA3", 'peft_type is "IA3"')):
        shutil.copytree("peft_llama", "bad_" + key, dirs_exist_ok=True)
        with open("bad_%s/adapter_config.json" % key, "w", encoding="utf-8") as file:
            json.dump(dict(config, **{key: value}), file)
        run("ckpt", "merge-lora", "llama", "bad_" + key, "out", code=2, says=says)


main()
