-- Text from a trained char_gpt.
--
--   mslua run recipes/examples/sample.lua runs/<id>/ckpt data_path=/data/tinyshakespeare start=ROMEO: count=300
local ms = require "mslua"
local GPT = require "gpt"

local p = ms.params {
  data_path = "", start = "\n", count = 500, temperature = 0.8, top_k = 0, seed = 1,
  layers = 4, heads = 4, dim = 128, block = 64,
}

local checkpoint = ...
if not checkpoint then
  error("sample.lua: which checkpoint? mslua run recipes/examples/sample.lua runs/<id>/ckpt", 0)
end

-- The characters of the text in order of their bytes: the ids that TextDataset gives.
local function alphabet(path)
  local file = io.open(path .. "/input.txt", "rb") or io.open(path, "rb")
  local text = file and file:read "*a"
  if not text then error(("sample.lua: no text at '%s': give data_path=..."):format(path), 0) end
  local seen, characters, ids = {}, {}, {}
  for i = 1, #text do seen[text:byte(i)] = true end
  for byte = 0, 255 do
    if seen[byte] then
      ids[string.char(byte)] = #characters
      characters[#characters + 1] = string.char(byte)
    end
  end
  return characters, ids
end

local characters, ids = alphabet(p.data_path)
local prompt = {}
for c in p.start:gmatch "." do
  prompt[#prompt + 1] = ids[c] or error(("sample.lua: start: the text has no character %q"):format(c), 0)
end

local net = GPT { vocab = #characters, block = p.block, layers = p.layers, heads = p.heads, dim = p.dim, dropout = 0 }
ms.load_checkpoint(checkpoint, net)
math.randomseed(p.seed)

local text = {}
for i, id in ipairs(net:generate(prompt, p.count, { temperature = p.temperature, top_k = p.top_k })) do
  text[i] = characters[id + 1]
end
print(table.concat(text))
