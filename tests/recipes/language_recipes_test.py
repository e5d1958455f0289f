#!/usr/bin/env python3
"""The recipes of translation, BERT and LoRA on small files of the true format, and their bad input:
language_recipes_test.py MSLUA RECIPES"""
import gzip
import os
import random
import shutil
import subprocess
import sys

MSLUA, RECIPES = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
WORK = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "language_recipes_test")
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1", HOME=WORK, XDG_CACHE_HOME=WORK)
ENVIRONMENT.pop("XDG_RUNTIME_DIR", None)


def run(*words, code=0, says=""):
    done = subprocess.run([MSLUA, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
    text = done.stdout + done.stderr
    if done.returncode != code or says not in text:
        sys.exit("%s: exit code %d, expected %d and %r, got: %s" % (" ".join(words), done.returncode, code, says, text))
    return text


def recipe(name):
    return os.path.join(RECIPES, name + ".lua")


def put(path, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    opened = gzip.open(path, "wt") if path.endswith(".gz") else open(path, "w")
    with opened as f:
        f.write(text)


NOUNS = [("dog", "Hund"), ("cat", "Katze"), ("man", "Mann"), ("ball", "Ball"), ("car", "Wagen"), ("tree", "Baum")]
VERBS = [("sees", "sieht"), ("takes", "nimmt"), ("paints", "malt"), ("finds", "findet")]
COLORS = [("red", "rot"), ("big", "groß"), ("old", "alt"), ("small", "klein")]


def sentence(draw):
    (a, b), v, (x, y) = draw.choices(NOUNS, k=2), draw.choice(VERBS), draw.choices(COLORS, k=2)
    return ("a %s %s %s a %s %s." % (x[0], a[0], v[0], y[0], b[0]),
            "ein %s, %s, %s ein %s, %s." % (a[1], x[1], v[1], b[1], y[1]))


def make_pairs(folder):
    draw = random.Random(1)
    for part, n in (("train", 600), ("val", 40), ("test_2016_flickr", 40)):
        made = [sentence(draw) for _ in range(n)]
        for side, language in enumerate(("en", "de")):
            packed = ".gz" if part == "train" else ""
            put("%s/%s.%s%s" % (folder, part, language, packed), "".join(p[side] + "\n" for p in made))


TOPICS = [["minister", "treaty", "border", "election"], ["goal", "coach", "league", "season"],
          ["shares", "profit", "bank", "market"], ["software", "chip", "orbit", "web"]]
COMMON = ["the", "a", "new", "says", "over", "report", "with", "on", "after", "week"]


def make_news(folder):
    draw = random.Random(1)
    for part, n in (("train", 320), ("test", 80)):
        rows = []
        for _ in range(n):
            topic = draw.randrange(4)
            words = [draw.choice(COMMON if draw.random() < 0.6 else TOPICS[topic]) for _ in range(12)]
            rows.append('"%d","%s","%s ""it"""\n' % (topic + 1, " ".join(words[:4]), " ".join(words[4:])))
        put("%s/%s.csv" % (folder, part), "".join(rows))


def smoke(verb, name, *words, **how):
    return run(verb, recipe(name), "--preset", "smoke", *words, **how)


def first_loss(text):
    return float(next(line for line in text.splitlines() if "step: 1, loss is" in line).split()[-1])


def translation():
    make_pairs("pairs")
    smoke("train", "transformer_en_de", "data_path=pairs", "--out", "translate")
    assert os.path.isfile("translate/tokenizer.json"), os.listdir("translate")
    saved = ["translate/ckpt/" + name for name in os.listdir("translate/ckpt") if name.endswith(".ckpt")]
    assert saved, os.listdir("translate/ckpt")
    for name in saved:
        with open(name + "/tokenizer.json") as f, open("translate/tokenizer.json") as g:
            assert f.read() == g.read(), name
    smoke("verify", "transformer_en_de", "data_path=pairs", says="bleu above 40")
    said = smoke("generate", "transformer_en_de", "data_path=pairs", "--ckpt", "translate", "--prompt",
                 "a red dog sees a big car.")
    assert "ein Hund, rot, sieht ein Wagen, groß." in said, said
    # A run folder, and a checkpoint in it, say all that generation needs.
    saved = sorted(name for name in os.listdir("translate/ckpt") if name.endswith(".ckpt"))
    for folder in "translate", "translate/ckpt/" + saved[-1]:
        again = run("generate", folder, "--prompt", "a red dog sees a big car.")
        assert again.splitlines()[-1] == said.splitlines()[-1], (folder, again)
    smoke("generate", "transformer_en_de", "data_path=pairs", "--ckpt", "translate", "--prompt", "a", "--top-k", "3",
          code=2, says="translates by beam search: --temperature, --top-k")
    smoke("eval", "transformer_en_de", "data_path=pairs", "--ckpt", "translate", says="bleu")
    smoke("train", "transformer_en_de", code=2, says="data_path is empty")
    shutil.copytree("pairs", "short")
    put("short/val.de", "ein Hund.\n")
    smoke("train", "transformer_en_de", "data_path=short", code=2, says="val.en has 40 lines and val.de has 1")
    put("short/val.de", "ein Hund.\n" * 39 + "ein " * 400 + "\n")
    said = smoke("train", "transformer_en_de", "data_path=short", code=2, says="short/val: pair 40 has")
    assert "expected 1 to block = 192; give a larger block" in said, said
    # The longest sentences of Multi30k have about 200 characters.
    put("short/val.de", "ein Hund.\n" * 39 + "ein " * 50 + "\n")
    smoke("train", "transformer_en_de", "data_path=short", "train.max_steps=1", "eval.every_epochs=9")
    with open("short/val.en", "wb") as f:
        f.write(b"a dog.\xff\n" * 40)
    smoke("train", "transformer_en_de", "data_path=short", code=3, says="short/val.en: not UTF-8 at byte 6 (0xff)")


def bert():
    make_news("news")
    smoke("train", "bert_mlm", "data_path=news", "--out", "mlm")
    smoke("verify", "bert_mlm", "data_path=news", says="met")
    os.mkdir("bert")
    run("ckpt", "convert", "mlm", "bert")
    for folder in ("mlm", "bert"):
        with open(folder + "/tokenizer.json") as f:
            assert '"WordPiece"' in f.read(), folder
    fresh = smoke("verify", "bert_classify", "data_path=news", says="met")
    tuned = smoke("verify", "bert_classify", "data_path=news", "weights=bert",
                  says="starting from the weights of bert")
    assert "initial values stay: pooler.weight, pooler.bias, classifier.weight, classifier.bias" in tuned, tuned
    assert fresh != tuned
    smoke("train", "bert_classify", "data_path=news", "epochs=1", "--out", "sorted")
    os.mkdir("exported")
    smoke("export", "bert_classify", "exported/sorted.onnx", "data_path=news", "--ckpt", "sorted",
          says="the tokenizer's files are beside it")
    with open("exported/tokenizer.json") as f, open("bert/tokenizer.json") as g:
        assert f.read() == g.read()
    put("other/tokenizer.json", "{}")
    smoke("export", "bert_classify", "other/sorted.onnx", "data_path=news", "--ckpt", "sorted", code=2,
          says="export: other/tokenizer.json belongs to another tokenizer than the recipe's")
    assert os.listdir("other") == ["tokenizer.json"]
    smoke("train", "bert_classify", "data_path=news", "weights=bert", "dim=64", code=2,
          says="dim is 64 in the network and")
    put("bad/train.csv", '"1","a","b"\n"7","c","d"\n')
    smoke("train", "bert_classify", "data_path=bad", code=2,
          says="bad/train.csv: record 2: expected a class from 1 to 4 and texts, got \"7\"")
    put("bad/train.csv", '"1","a","b"\n"2","c"\n')
    smoke("train", "bert_mlm", "data_path=bad", code=2,
          says="bad/train.csv:2: expected 3 columns as in the first record")


def lora():
    run("data", "make", "text", "text", "--samples", "4000")
    run("data", "tokenizer", "text/input.txt", "news/train.csv", "--vocab", "280", "-o", "base")
    run("data", "tokenize", "text/input.txt", "--tokenizer", "base", "-o", "tokens")
    run("train", recipe("llama"), "--preset", "smoke", "data_path=tokens", "format=tokens", "vocab=280", "--out",
        "llama")
    run("ckpt", "convert", "llama", "base")
    fresh = smoke("verify", "llama_lora", "data_path=news", says="met")
    smoke("verify", "llama_lora", "data_path=news", "weights=base", says="met")
    more = smoke("train", "llama_lora", "data_path=news", "weights=base", "--out", "adapted")
    os.mkdir("adapter")
    run("ckpt", "convert", "adapted", "adapter", "--to", "peft")
    for folder in ("llama", "adapted", "adapter"):
        with open(folder + "/tokenizer.json") as f, open("base/tokenizer.json") as g:
            assert f.read() == g.read(), folder
    smoke("generate", "llama_lora", "data_path=news", "weights=base", "--ckpt", "adapted", "--prompt", "the",
          says="the")
    assert first_loss(more) != first_loss(fresh)
    files = [os.path.join(folder, name) for folder, _, names in os.walk("adapted/ckpt") for name in names]
    saved = max(os.path.getsize(f) for f in files if f.endswith(".safetensors"))
    assert saved < os.path.getsize("base/model.safetensors"), saved
    smoke("train", "llama_lora", "data_path=news", "weights=base", "targets=q_prj", code=2,
          says='targets: "q_prj" fits no Dense cell')
    smoke("train", "llama_lora", "data_path=news", "weights=base", "block=64", code=2, says="give a smaller block")


shutil.rmtree(WORK, ignore_errors=True)
os.makedirs(WORK)
os.chdir(WORK)
translation()
bert()
lora()
