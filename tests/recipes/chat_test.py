#!/usr/bin/env python3
"""mslua chat: chat_test.py MSLUA hf.py"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

MSLUA, WRITER = (os.path.abspath(path) for path in sys.argv[1:3])
WORK = tempfile.mkdtemp()
os.chdir(WORK)
failed = []


def check(what, good, shown=""):
    if not good:
        failed.append(what)
        print("FAILED: %s\n%s" % (what, shown))


def run(*arguments, lines=()):
    return subprocess.run([MSLUA, *arguments], input="".join(line + "\n" for line in lines), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)


def edit(path, change):
    with open(path, encoding="utf-8") as file:
        values = json.load(file)
    change(values)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file)


for folder in ("wide", "narrow", "plain"):
    subprocess.run([sys.executable, WRITER, "write", "llama", folder, "--chat"], check=True)
edit("narrow/config.json", lambda config: config.update(max_position_embeddings=64))
edit("plain/tokenizer_config.json", lambda config: config.pop("chat_template"))
with open("wide/tokenizer.json", encoding="utf-8") as vocabulary:
    TOKENS = list(json.load(vocabulary)["model"]["vocab"])


def prompt_of(messages):
    """The ids of ChatML's text."""
    text = "".join("<|im_start|>%s\n%s<|im_end|>\n" % m for m in messages) + "<|im_start|>assistant\n"
    ids = []
    while text:
        size = next((len(t) for t in TOKENS[:2] if text.startswith(t)), 1)
        ids.append(TOKENS.index(text[:size]))
        text = text[size:]
    return ids


def answer_to(messages, count):
    """What `mslua generate` draws behind the conversation, up to <|im_end|>."""
    done = run("generate", "wide", "--ids", ",".join(map(str, prompt_of(messages))), "--temperature", "0", "--max-new",
               str(count), "--json")
    ids = json.loads(done.stdout)["ids"]
    ids = ids[:ids.index(1)] if 1 in ids else ids
    return "".join(TOKENS[i] for i in ids if i > 1)


CHAT = ["--temperature", "0", "--max-new", "6"]


def test_answers_follow_the_conversation():
    done = run("chat", "wide", *CHAT, "--json", lines=["hi", "", "how are you"])
    first, second = [json.loads(line)["answer"] for line in done.stdout.splitlines()]
    check("the first answer", first == answer_to([("user", "hi")], 6), done)
    check("the second answer", second == answer_to([("user", "hi"), ("assistant", first), ("user", "how are you")], 6),
          done)
    shown = run("chat", "wide", *CHAT, lines=["hi", "how are you"])
    given = run("chat", "plain", *CHAT, "--template", "chatml", lines=["hi", "how are you"])
    check("--template", given.stdout == shown.stdout, given)
    check("the text of answers", shown.stdout == "%s\n%s\n" % (first, second) and shown.returncode == 0, shown)


def test_commands():
    alone = answer_to([("user", "hi")], 6)
    asked = answer_to([("system", "be brief"), ("user", "hi")], 6)
    check("the system message changes the answer", alone != asked, asked)
    done = run("chat", "wide", *CHAT,
               lines=["hi", ".reset", "hi", ".system be brief", "hi", ".system", "hi", ".quit", "a"])
    check(".reset, .system and .quit", done.stdout.splitlines() == [alone, alone, asked, alone], done)
    done = run("chat", "wide", *CHAT, "--system", "be brief", lines=["hi", ".reset", "hi"])
    check("--system", done.stdout.splitlines() == [asked, asked], done)
    done = run("chat", "wide", *CHAT, lines=[".nonsense", ".help"])
    check("an unknown command", done.returncode == 1 and "unknown command .nonsense" in done.stderr
          and ".system TEXT" in done.stdout, done)


def test_old_messages_are_forgotten():
    done = run("chat", "narrow", *CHAT, lines=["abc", "abc", "abc", "x" * 60, "abc"])
    check("old messages", "the 2 oldest messages are forgotten: the network takes 64 tokens" in done.stderr, done)
    # Without a conversation before it, the last message would leave nothing to forget.
    check("the conversation is kept", done.stderr.count("the 2 oldest messages are forgotten") == 2, done)
    check("a message that is too long", "the message has" in done.stderr and done.returncode == 1
          and len(done.stdout.splitlines()) == 4, done)


def test_template_of_a_file():
    first = answer_to([("user", "hi")], 1)
    with open("own.lua", "w", encoding="utf-8") as file:
        file.write("""return { ends = { "%s" }, render = function(messages, chat)
  for _, m in ipairs(messages) do
    chat.template "<|im_start|>" chat.text(m.role .. "\\n" .. m.content) chat.template "<|im_end|>\\n"
  end
  chat.template "<|im_start|>assistant\\n"
end }""" % first)
    done = run("chat", "wide", "--template", "own.lua", "--temperature", "0", "--json", lines=["hi"])
    said = json.loads(done.stdout)
    check("the token that ends an answer",
          said == {"answer": "", "tokens": 1, "truncated": False, "forgotten": 0}, done)


def test_where_generated_texts_end():
    def drawn(folder, *words):
        done = run("generate", folder, "--prompt", "hi", "--temperature", "0", "--max-new", "8", "--json", *words)
        check("generate %s %s" % (folder, words), done.returncode == 0, done)
        return json.loads(done.stdout)

    edit("plain/config.json", lambda config: config.update(eos_token_id=None))
    edit("plain/tokenizer_config.json", lambda config: config.pop("eos_token", None))
    whole = drawn("plain")["ids"]
    last = next(token for token in whole if token != whole[0])
    ends = whole[:whole.index(last)]  # without the token that ends it
    for folder in ("configured", "named", "stopped"):
        shutil.copytree("plain", folder)
    with open("configured/generation_config.json", "w", encoding="utf-8") as file:
        json.dump({"eos_token_id": [last]}, file)
    check("eos_token_id of generation_config.json", drawn("configured")["ids"] == ends)
    edit("named/tokenizer_config.json", lambda config: config.update(eos_token=TOKENS[last]))
    check("eos_token of the tokenizer", drawn("named")["ids"] == ends)
    edit("named/config.json", lambda config: config.update(eos_token_id=len(TOKENS) - 1))
    check("eos_token_id of config.json goes before it", drawn("named")["ids"] == whole)
    edit("stopped/tokenizer.json", lambda tokenizer: tokenizer["added_tokens"].append(
        dict(tokenizer["added_tokens"][0], id=last, content=TOKENS[last])))
    found = drawn("stopped", "--stop", TOKENS[last])
    check("--stop of a special token", found["ids"] == ends and TOKENS[last] not in found["text"], found)


def test_a_network_in_micro_batches():
    with open("piped.lua", "w", encoding="utf-8") as file:
        file.write("""
local ms = require "mslua"
local p = ms.params { micro = 0 }
return ms.recipe {
  name = "piped",
  tokenizer = ms.text.Tokenizer.train { texts = ("the cat and the hat "):rep(50), vocab_size = 270,
    special = { "<|im_start|>", "<|im_end|>" } },
  dataset = function()
    local ids = ms.zeros({ 8, 16 }, ms.int32)
    return ms.dataset.NumpySlicesDataset({ ids, ids }):batch(4)
  end,
  network = function()
    local net = require "gpt" { vocab = 300, block = 64, layers = 1, heads = 2, dim = 8 }
    return p.micro > 0 and ms.nn.PipelineCell(net, p.micro) or net
  end,
  loss = ms.nn.CrossEntropyLoss(), optimizer = ms.nn.SGD { learning_rate = 0.1 }, train = { steps = 2 },
  checkpoint = { save_checkpoint_steps = 2 },
}
""")
    done = run("train", "piped.lua", "micro=2", "--no-attach", "--out", "piped")
    check("train piped.lua", done.returncode == 0, done)
    bare = run("chat", "piped.lua", "--ckpt", "piped", *CHAT, "--template", "chatml", lines=["hi", "how are you"])
    inside = run("chat", "piped", *CHAT, "--template", "chatml", lines=["hi", "how are you"])
    check("answers of a network in nn.PipelineCell", bare.returncode == 0 and len(bare.stdout) > 4
          and inside.stdout == bare.stdout, (bare, inside))


def test_errors():
    for arguments, text in ((["plain"], "has no chat_template"),
                            (["wide", "--template", "nope"], "expected alpaca, chatml"),
                            (["wide", "--template", "llama3"], "has no token <|eot_id|>"),
                            (["wide", *CHAT, "--top-p", "0"], "--top-p: expected a number above 0"),
                            (["nowhere"], "nowhere")):
        done = run("chat", *arguments, lines=["hi"])
        check("chat " + " ".join(arguments), done.returncode != 0 and text in done.stderr and done.stdout == "", done)


for name, test in sorted(globals().items()):
    if name.startswith("test_"):
        test()
print("FAILED: " + "; ".join(failed) if failed else "all checks passed")
sys.exit(1 if failed else 0)
