--- ms.text.Tokenizer: text to ids of tokens and back. core/text reads the files.
local args = require "mslua.args"
local chat = require "mslua.text.chat"
local class = require "mslua.class"
local core = require "mslua.core"
local files = require "mslua.files"

local Tokenizer = class.Object:extend "Tokenizer"
args.kind("tokenizer", function(v) return class.is(v, Tokenizer) end, "a ms.text.Tokenizer")

local bind = args.signature("Tokenizer", {
  { "path", "string", required = true, doc = "a folder of tokenizer files, or one of them" },
})

--- Reads a tokenizer from a folder, or a file of it: tokenizer.json, vocab.json with merges.txt, vocab.txt, a .tiktoken
--- file, or SentencePiece's tokenizer.model. `t.vocab_size` is the number of rows that an embedding needs,
--- `t.special_tokens` a table token -> id, `t.chat_template` the Jinja text of tokenizer_config.json, `t.files` the
--- paths that were read. (path)
function Tokenizer:init(...)
  local a = bind(...)
  self.path, self._core = a.path, core.tokenizer(a.path)
  for key, value in pairs(core.tokenizer_info(self._core)) do self[key] = value end
end

Tokenizer.__index = class.lookup

local bind_train = args.signature("Tokenizer.train", {
  { "texts", "string|strings", required = true, doc = "the texts to learn from" },
  { "vocab_size", "integer", required = true, min = 2, doc = "the most tokens that it has" },
  { "kind", "string", "bpe", choices = { "bpe", "wordpiece" },
    doc = "a byte-level BPE as GPT-2's, or WordPiece as BERT's" },
  { "special", "strings", doc = 'special tokens; default: { "<|endoftext|>" } of a BPE, else none beside its own' },
  { "lowercase", "boolean", true, doc = "of WordPiece: letters become small and lose their accents" },
})

--- Trains a tokenizer on texts, as `mslua data tokenizer` does on files: `ms.text.Tokenizer.train { texts = lines,
--- vocab_size = 4000, kind = "wordpiece" }`. kind: "bpe", a byte-level BPE as GPT-2's, or "wordpiece" as BERT's, with
--- [PAD] [UNK] [CLS] [SEP] [MASK] as ids 0 to 4. special: more special tokens, of a BPE { "<|endoftext|>" } by default.
--- lowercase: of WordPiece, letters become small and lose their accents. The same texts in any order give the same
--- tokenizer; it has fewer tokens where no pair occurs twice any more. (texts, vocab_size, kind = "bpe", special,
--- lowercase = true)
---@return mslua.Tokenizer
function Tokenizer.train(...)
  local a = bind_train(...)
  local texts = type(a.texts) == "table" and a.texts or { a.texts }
  local special = a.special or (a.kind == "bpe" and { "<|endoftext|>" } or {})
  local self = setmetatable({}, Tokenizer)
  self.path, self.json = "trained", core.train_tokenizer(a.kind, texts, a.vocab_size, special, a.lowercase)
  self._core = core.tokenizer_of_json(self.json)
  for key, value in pairs(core.tokenizer_info(self._core)) do self[key] = value end
  return self
end

local function check(self, call) class.check_self(self, Tokenizer, "a Tokenizer", call) end

local bind_encode = args.signature("encode", {
  { "text", "string", required = true, doc = "the text" },
  { "pair", "string", doc = "a second text behind it, as an answer behind a question; default: none" },
  { "add_special_tokens", "boolean", true, doc = "adds what the model expects around a text, such as [CLS]" },
  { "parse_special_tokens", "boolean", true, doc = "false: the name of a special token in the text is only text" },
})

--- The ids of a text, from 0. With `pair` those of two texts, as questions and answers are. add_special_tokens adds
--- what the model expects around a text, such as [CLS]; parse_special_tokens = false takes `<|endoftext|>` in the text
--- as text, for texts of others. (text, pair, add_special_tokens = true, parse_special_tokens = true)
---@return integer[] ids
---@return integer[]? types of a pair: for each token which of the two texts it belongs to, 0 or 1
function Tokenizer:encode(...)
  check(self, "tokenizer:encode(text)")
  local a = bind_encode(...)
  return core.tokenizer_encode(self._core, a.text, a.pair, a.add_special_tokens, a.parse_special_tokens)
end

local skip_special_tokens = { "skip_special_tokens", "boolean", true, doc = "special tokens have no text" }

local bind_decode = args.signature("decode", {
  { "ids", "any", required = true, doc = "a list of ids, or an int32 tensor [n]" }, skip_special_tokens,
})

--- The text of a list of ids, or of an int32 tensor [n]. Bytes that are not UTF-8 become U+FFFD. (ids,
--- skip_special_tokens = true)
---@return string
function Tokenizer:decode(...)
  check(self, "tokenizer:decode(ids)")
  local a = bind_decode(...)
  return core.tokenizer_decode(self._core, a.ids, a.skip_special_tokens)
end

local bind_stream = args.signature("stream", { skip_special_tokens })

--- A function for text that grows token by token: `more(id)` gives the characters that are complete with this id, which
--- may be none; `more()` gives the rest at the end. All of them together are the text of decode. (skip_special_tokens =
--- true)
---@return fun(id?: integer): string
function Tokenizer:stream(...)
  check(self, "tokenizer:stream()")
  local stream = core.decode_stream(self._core, bind_stream(...).skip_special_tokens)
  return function(id) return core.decode_push(stream, id) end
end

--- The id of a token as the vocabulary writes it; nil: there is none. (token)
---@return integer?
function Tokenizer:id_of(token)
  check(self, "tokenizer:id_of(token)")
  return core.tokenizer_id(self._core, token)
end

--- The token of an id as the vocabulary writes it; nil: there is none. (id)
---@return string?
function Tokenizer:token_of(id)
  check(self, "tokenizer:token_of(id)")
  return core.tokenizer_token(self._core, id)
end

local bind_chat = args.signature("chat", {
  { "messages", "list", required = true, doc = 'the conversation, { { role = "user", content = "Hello" }, ... }' },
  { "template", "string",
    doc = '"llama3", "chatml", "alpaca" or a file of Lua; default: the one of tokenizer_config.json' },
  { "add_generation_prompt", "boolean", true, doc = "it ends where the answer begins" },
})

--- The ids of a conversation, `{ { role = "user", content = "Hello" } }`, by the chat template of
--- tokenizer_config.json. template: a known name ("llama3", "chatml", "alpaca") or a Lua file for another one.
--- add_generation_prompt: ends where the answer begins. What messages say is text: a special token in it is none.
--- (messages, template, add_generation_prompt = true)
---@return integer[] ids
---@return string text
function Tokenizer:chat(...)
  check(self, "tokenizer:chat(messages)")
  local a = bind_chat(...)
  local parts = chat.render(self, a.messages, a.template, a.add_generation_prompt)
  local ids, text = {}, {}
  for i, part in ipairs(parts) do
    text[i] = part.text
    for _, id in ipairs((self:encode { text = part.text, add_special_tokens = false,
      parse_special_tokens = part.template })) do ids[#ids + 1] = id end
  end
  return ids, table.concat(text)
end

--- The tokenizer's files.
---@return {name: string, content: string}[]
---@package
function Tokenizer:contents()
  local list = {}
  if self.json then list[1] = { name = "tokenizer.json", content = self.json } end
  for _, path in ipairs(self.files) do
    local from = assert(io.open(path, "rb"))
    list[#list + 1] = { name = path:match "[^/]*$", content = from:read "*a" }
    from:close()
  end
  return list
end

--- Copies the tokenizer's files into a folder, which must exist. (folder)
function Tokenizer:save(folder)
  check(self, "tokenizer:save(folder)")
  files.fill(folder, function(path)
    for _, file in ipairs(self:contents()) do core.write_file(path .. "/" .. file.name, file.content) end
  end)
end

function Tokenizer:__tostring() return ("Tokenizer(%q, %d tokens)"):format(self.path, self.vocab_size) end

return Tokenizer
