#!/usr/bin/env python3
"""Exports every recipe to ONNX and checks the models: check_exports.py MSLUA RECIPES WORK [NODE_MODULES]

Needs python3-onnx (its full check), and onnxruntime-node in NODE_MODULES for the results: batches of 1, 2 and 7 rows
must agree with mslua within 1e-5. Prints a table in Markdown; exit code 1 where a recipe does not export or agree.
"""
import os
import random
import subprocess
import sys
import time

import onnx

MSLUA, RECIPES, WORK = (os.path.abspath(word) for word in sys.argv[1:4])
NODE_MODULES = sys.argv[4] if len(sys.argv) > 4 else None
HERE = os.path.dirname(os.path.abspath(__file__))
# By what a recipe's name holds: the kind of its data, and of what another parameter names.
DATA = {"wide_deep": {"data_path": "census"}, "dlrm": {"data_path": "criteo"}, "cifar10": {"data_path": "cifar10"},
        "mnist": {"data_path": "mnist"}, "unet": {"data_path": "cifar10", "digits_path": "mnist"},
        "bert": {"data_path": "news"}, "lora": {"data_path": "news"}, "en_de": {"data_path": "pairs"},
        "gpt": {"data_path": "text"}, "llama": {"data_path": "text"}, "shakespeare": {"data_path": "text"}}
WORDS = "man woman dog river child reads sees finds the a old green market game wins falls moon chip bank".split()
TIMED = """
const ort = require('onnxruntime-node'), fs = require('fs')
const arrays = { float32: Float32Array, int32: Int32Array, int64: BigInt64Array, uint8: Uint8Array }
async function main () {
  const session = await ort.InferenceSession.create(process.argv[2], { logSeverityLevel: 3, intraOpNumThreads: 1 })
  const feeds = {}
  for (const t of JSON.parse(fs.readFileSync(process.argv[3])).inputs) {
    if (!session.inputNames.includes(t.name)) continue
    feeds[t.name] = new ort.Tensor(t.dtype, arrays[t.dtype].from(t.data), t.dims)
  }
  const times = []
  for (let i = 0; i < 9; i++) {
    const start = process.hrtime.bigint()
    await session.run(feeds)
    times.push(Number(process.hrtime.bigint() - start) / 1e6)
  }
  console.log(times.sort((a, b) => a - b)[4])
}
main()
"""


def run(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, check=False,
                          env=dict(os.environ, NODE_PATH=NODE_MODULES or ""))
    if check and done.returncode != 0:
        sys.exit("%s: exit code %d\n%s" % (" ".join(words), done.returncode, (done.stdout + done.stderr)[-2000:]))
    return done


def recipes():
    for folder in (RECIPES, os.path.join(RECIPES, "examples")):
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith(".lua") and "ms.recipe" in open(path, encoding="utf-8").read():
                yield path


def make_census(folder):
    """Random files in the form of UCI Adult."""
    header = ("age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,race,sex,"
              "capital_gain,capital_loss,hours_per_week,native_country,income")
    draw = random.Random(1)
    os.makedirs(folder)
    for usage in "train", "test":
        with open("%s/%s.csv" % (folder, usage), "w", encoding="ascii") as file:
            print(header, file=file)
            for _ in range(600):
                print(draw.randint(17, 80), "Private", draw.randint(10000, 900000), draw.choice(["HS-grad", "Masters"]),
                      9, draw.choice(["Divorced", "Never-married"]), draw.choice(["Sales", "?"]), "Husband", "White",
                      "Male", draw.choice([0, 5013]), 0, draw.randint(10, 60), "United-States",
                      draw.choice([">50K", "<=50K"]), sep=",", file=file)


def sentence(draw, most=12):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(4, most)))


def make_news(folder):
    """Random files in the form of AG's News."""
    draw = random.Random(1)
    os.makedirs(folder)
    for usage in "train", "test":
        with open("%s/%s.csv" % (folder, usage), "w", encoding="ascii") as file:
            for _ in range(400):
                print('"%d","%s","%s"' % (draw.randint(1, 4), sentence(draw), sentence(draw)), file=file)


def make_pairs(folder):
    """Random files in the form of Multi30k."""
    draw = random.Random(1)
    os.makedirs(folder)
    for part in "train", "val", "test_2016_flickr":
        for language in "en", "de":
            with open("%s/%s.%s" % (folder, part, language), "w", encoding="ascii") as file:
                for _ in range(400):
                    print(sentence(draw, 18), file=file)


MAKERS = {"census": make_census, "news": make_news, "pairs": make_pairs}


def stand_in(kind):
    folder = os.path.join(WORK, kind)
    if os.path.exists(folder):
        return folder
    if kind in MAKERS:
        MAKERS[kind](folder)
    else:
        run(MSLUA, "data", "make", kind, folder, "--samples", "20000" if kind == "text" else "500")
    return folder


def words_of(path):
    """The recipe with small data and, where it has one, the preset of smoke tests."""
    text = open(path, encoding="utf-8").read()
    words = []
    if "data_path" in text:
        kinds = next((v for k, v in DATA.items() if k in os.path.basename(path)), None)
        if kinds is None:
            return None
        words += ["%s=%s" % (name, stand_in(kind)) for name, kind in kinds.items()]
    if "smoke" in text:
        words += ["--preset", "smoke"]
    return words


def check(path):
    stem = os.path.basename(path)[:-len(".lua")]
    words = words_of(path)
    if words is None:
        return [stem, "its data has no stand-in"]
    out, model = os.path.join(WORK, stem), os.path.join(WORK, stem + ".onnx")
    trained = run(MSLUA, "train", path, *words, "--out", out, "--no-attach", "train.max_steps=2",
                  "checkpoint.save_checkpoint_steps=1", check=False)
    if trained.returncode != 0:
        return [stem, "does not train: " + trained.stderr.strip().split("\n")[-1]]
    start = time.time()
    done = run(MSLUA, "export", path, *words, model, "--ckpt", out + "/ckpt", check=False)
    seconds = time.time() - start
    if done.returncode != 0:
        return [stem, "refused: " + done.stderr.strip().split("\n")[-1]]
    onnx.checker.check_model(model, full_check=True)
    size, operators = os.path.getsize(model), len(onnx.load(model).graph.node)
    row = [stem, str(operators), "%.2f" % (size / 2**20), "%.2f" % seconds]
    if NODE_MODULES is None:
        return row + ["not run", "not run"]
    folder = os.path.join(WORK, stem + "_numbers")
    os.makedirs(folder, exist_ok=True)
    overrides = [w for w in words if "=" in w]
    preset = ["--preset", "smoke"] if "smoke" in words else []
    run(MSLUA, "run", os.path.join(HERE, "predictions.lua"), *overrides, *preset, "--", path, out + "/ckpt", folder)
    most = 0.0
    for rows in (1, 2, 7):
        found = run("node", os.path.join(HERE, "check_onnx.js"), model, "%s/%d.json" % (folder, rows), check=False)
        if "models agree" not in found.stdout:
            sys.exit("%s: a batch of %d: %s%s" % (stem, rows, found.stdout, found.stderr))
        most = max(most, float(found.stdout.split("\n")[0].split(": ")[1]))
    with open(os.path.join(WORK, "timed.js"), "w", encoding="utf-8") as file:
        file.write(TIMED)
    timed = run("node", os.path.join(WORK, "timed.js"), model, folder + "/1.json").stdout
    return row + ["%.1e" % most, "%.2f" % float(timed)]


def main():
    os.makedirs(WORK, exist_ok=True)
    print("| recipe | operators | MiB | export, s | largest difference | ONNX Runtime, ms a sample |")
    print("| --- | --- | --- | --- | --- | --- |")
    failed = False
    for path in recipes():
        row = check(path)
        print("| %s |" % " | ".join(row + [""] * (6 - len(row))), flush=True)
        failed |= len(row) < 6 or (NODE_MODULES is not None and float(row[4]) > 1e-5)
    sys.exit(1 if failed else 0)


main()
