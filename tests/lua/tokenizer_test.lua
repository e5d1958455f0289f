-- ms.text.Tokenizer: encode, decode, streams, conversations, and mistakes.
local check = require "check"
local ms = require "mslua"

local case, equal, fails = check.case, check.equal, check.fails

local folder = (os.getenv "TEST_TMPDIR" or "/tmp") .. "/tokenizer_test"
os.execute("mkdir -p " .. folder)

local function put(name, text)
  local file = assert(io.open(folder .. "/" .. name, "wb"))
  file:write(text)
  file:close()
end

-- Bytes as tokens, "ab", and three special tokens.
local function tokenizer(config)
  local vocab, n = {}, 0
  local function add(text)
    vocab[#vocab + 1] = ("%s: %d"):format(text, n)
    n = n + 1
  end
  local other = 256
  for byte = 0, 255 do
    local c = byte
    if byte < 33 or (byte > 126 and byte < 161) or byte == 173 then
      c, other = other, other + 1
    end
    add(('"\\u%04x"'):format(c))
  end
  add '"ab"'
  local added = {}
  for i, name in ipairs { "<|im_start|>", "<|im_end|>", "<s>" } do
    added[i] = ('{"id": %d, "content": "%s", "special": true}'):format(256 + i, name)
  end
  put("tokenizer.json", ([[{"added_tokens": [%s], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {%s}, "merges": ["a b"]}}]]):format(
    table.concat(added, ", "), table.concat(vocab, ", ")))
  put("tokenizer_config.json", config or "{}")
  return ms.text.Tokenizer(folder)
end

case("encode and decode are inverse", function()
  local t = tokenizer()
  equal(t.vocab_size, 260)
  equal(t:encode "abc", { 256, 99 })
  equal(t:decode { 256, 99 }, "abc")
  equal(t:decode(ms.Tensor({ 256, 99 }, ms.int32)), "abc")
  equal(t:encode "<s>", { 259 })
  equal(#t:encode("<s>", { parse_special_tokens = false }), 3)
  equal({ t:decode { 259, 99 }, t:decode({ 259, 99 }, false) }, { "c", "<s>c" })
  equal({ t:id_of "ab", t:id_of "nothing", t:token_of(256), t:token_of(9999) }, { 256, nil, "ab", nil })
  equal(t.special_tokens["<s>"], 259)
  local ids, types = t:encode("a", "b")
  equal({ ids, types }, { { 97, 98 }, { 0, 1 } })
end)

case("a decoder behind one of bytes leaves bytes that are no character alone", function()
  local before = [["added_tokens": [], "model": {"type": "BPE", "vocab": {"<0xF0>": 0, "a": 1}, "merges": []}]]
  for _, second in ipairs { '{"type": "ByteLevel"}',
    [[{"type": "Replace", "pattern": {"Regex": "\\p{L}+x|[^a]"}, "content": "b"}]] } do
    put("tokenizer.json", ('{%s, "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, %s]}}'):format(
      before, second))
    put("tokenizer_config.json", "{}")
    equal(ms.text.Tokenizer(folder):decode { 0, 1 }, "\239\191\189a")
  end
end)

case("a stream gives whole characters", function()
  local t = tokenizer()
  local more, parts = t:stream(), {}
  for _, id in ipairs(t:encode "é 👍") do parts[#parts + 1] = more(id) end
  parts[#parts + 1] = more()
  equal(parts, { "", "é", " ", "", "", "", "👍", "" })
end)

case("conversations follow the known templates", function()
  local t = tokenizer([[{"bos_token": "<s>", "chat_template": "{% for message in messages %}{{'<|im_start|>' + ]]
    .. [[message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt ]]
    .. [[%}{{ '<|im_start|>assistant\n' }}{% endif %}"}]])
  local messages = { { role = "user", content = "Hi <|im_end|>" } }
  local ids, text = t:chat(messages)
  equal(text, "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n")
  local ends = 0
  for _, id in ipairs(ids) do ends = ends + (id == 258 and 1 or 0) end
  equal(ends, 1)  -- what the message says is text
  equal(t:decode(ids, false), text)
  equal(select(2, t:chat(messages, "llama3")), "<s><|start_header_id|>user<|end_header_id|>\n\nHi <|im_end|><|eot_id|>"
    .. "<|start_header_id|>assistant<|end_header_id|>\n\n")
  equal(select(2, t:chat { messages = messages, template = "alpaca", add_generation_prompt = false }),
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
    .. "### Instruction:\nHi <|im_end|>")
  put("mine.lua", "return function(messages, chat) chat.template(chat.roles.bos) chat.text(messages[1].content) end")
  equal(select(2, t:chat(messages, folder .. "/mine.lua")), "<s>Hi <|im_end|>")
end)

case("a template that appends no text is an error at its line", function()
  local function chat(template)
    tokenizer("{}"):chat { messages = { { role = "user", content = "x" } }, template = folder .. "/" .. template }
  end
  put("none.lua", "return function(messages, chat)\n  chat.text(messages[1].content)\n"
    .. "  chat.template(chat.roles.eos)\nend")
  fails("none.lua:3: chat.template: expected a text, got nil; chat.roles has only what the tokenizer's files say",
    function() chat "none.lua" end)
  put("number.lua", "return function(messages, chat)\n  chat.text(3)\nend")
  fails("number.lua:2: chat.text: expected a text, got 3", function() chat "number.lua" end)
end)

case("a conversation without a known template is an error that shows it", function()
  local t = tokenizer [[{"chat_template": "{{ messages | tojson }}"}]]
  local messages = { { role = "user", content = "Hi" } }
  fails("--template FILE.lua", t.chat, t, messages)
  fails("{{ messages | tojson }}", t.chat, t, messages)
  fails("known are alpaca, chatml, llama3", t.chat, tokenizer(), messages)
  fails("messages[1]: expected { role", t.chat, t, { "Hi" })
  fails('got "chatlm" (did you mean \'chatml\'?)', t.chat, t, messages, "chatlm")
end)

case("mistakes name the place", function()
  local t = tokenizer()
  fails("the text is not UTF-8 at byte 1 (0xff)", t.encode, t, "a\255")
  fails("ids[2]: expected an id in 0..259, got 260", t.decode, t, { 1, 260 })
  fails("expected an id in 0..259, got -1", t:stream(), -1)
  fails("no folder or file '/nowhere'", ms.text.Tokenizer, "/nowhere")
  put("tokenizer.json", '{"model": {"type": "Neural"}}')
  fails("tokenizer.json: model: the model 'Neural' is not built; built are BPE, Unigram, WordLevel, WordPiece",
    ms.text.Tokenizer, folder)
end)

case("save copies the files", function()
  local t = tokenizer()
  os.execute("mkdir -p " .. folder .. "/copy")
  t:save(folder .. "/copy")
  equal(ms.text.Tokenizer(folder .. "/copy"):encode "abc", t:encode "abc")
end)

check.done()
