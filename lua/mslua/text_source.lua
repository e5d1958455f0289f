--- Where verbs that read or write text get their tokens from: the tokenizer of a folder, or the characters of a
--- recipe's TextDataset.
local core = require "mslua.core"
local derive = require "mslua.dataset.derive"
local errors = require "mslua.errors"

local M = {}

local PIECE = 2 ^ 20  -- bytes that are read at once

--- Whether a folder has a tokenizer.
---@param dir string
function M.has_tokenizer(dir) return #core.tokenizer_files(dir) > 0 end

--- The tokenizer of a folder: encode(text) gives ids, decode(ids) text; `tokenizer` is the ms.text.Tokenizer.
---@param dir string
function M.of_folder(dir)
  local ms = require "mslua"
  local text = rawget(ms, "text")
  if not text or not rawget(text, "Tokenizer") then
    errors.fail("%s has a tokenizer, and this build has no ms.text.Tokenizer: give token ids with --ids", dir)
  end
  local tokenizer = text.Tokenizer(dir)
  return {
    tokenizer = tokenizer, vocab = tokenizer.vocab_size,
    encode = function(s) return tokenizer:encode(s) end,
    decode = function(ids) return tokenizer:decode(ids) end,
  }
end

-- Marks the bytes that occur in a file, or in input.txt of a folder. Reads the file in pieces: a corpus may be larger
-- than what Lua can hold.
local function mark_bytes(path, seen)
  local file = io.open(path .. "/input.txt", "rb") or io.open(path, "rb")
  local problem
  while file do
    local piece
    piece, problem = file:read(PIECE)  -- nil alone at the end; nil and a problem for a folder
    if not piece then break end
    for i = 1, #piece do seen[piece:byte(i)] = true end
  end
  if file then file:close() end
  if not file or problem then
    errors.fail("there is no text at '%s', which says what characters the network knows", path)
  end
end

--- The characters that a TextDataset knows, in the order of their ids: the bytes of characters_from, else of its files.
---@param source table its description
---@return string[]
function M.characters(source)
  local from, seen, characters = source.characters_from or source.dataset_files, {}, {}
  for _, path in ipairs(type(from) == "table" and from or { from }) do mark_bytes(path, seen) end
  for byte = 0, 255 do
    if seen[byte] then characters[#characters + 1] = string.char(byte) end
  end
  return characters
end

-- The UTF-8 character that byte i of s belongs to, and the place of its first byte.
local function character_at(s, i)
  while i > 1 and s:find("^[\128-\191]", i) do i = i - 1 end
  return s:match("^.[\128-\191]*", i), i
end

--- The tokens of a TextDataset whose tokens are characters.
---@param source table its description
function M.of_characters(source)
  local characters, ids = M.characters(source), {}
  for id, character in ipairs(characters) do ids[character:byte()] = id - 1 end
  return {
    vocab = #characters,
    encode = function(s)
      local list = {}
      for i = 1, #s do
        list[i] = ids[s:byte(i)] or errors.fail("the text of %s has no character %q, byte %d of the prompt",
          errors.show(source.characters_from or source.dataset_files), character_at(s, i))
      end
      return list
    end,
    decode = function(list)
      local parts = {}
      for i, id in ipairs(list) do parts[i] = characters[id + 1] or "?" end
      return table.concat(parts)
    end,
  }
end

-- The description of the TextDataset that a recipe's dataset reads; nil where it reads none.
local function text_of(dataset)
  local source = dataset and dataset.spec and derive.flattened(dataset.spec).source
  return source and source.kind == "text" and source or nil
end

-- The folder of token files which has a tokenizer too; nil where there is none.
local function folder_of(source)
  local folder = source.dataset_files
  return source.format ~= "characters" and type(folder) == "string" and M.has_tokenizer(folder) and folder or nil
end

--- The tokens of a recipe's dataset; nil where it has no text.
---@param dataset mslua.Dataset?
function M.of_dataset(dataset)
  local source = text_of(dataset)
  if source and source.format == "characters" then return M.of_characters(source) end
  local folder = source and folder_of(source)
  return folder and M.of_folder(folder)
end

--- The tokenizer in the folder that a recipe's dataset reads; nil where there is none. Reads no text.
---@param dataset mslua.Dataset?
function M.tokenizer_of(dataset)
  local source = text_of(dataset)
  local folder = source and folder_of(source)
  return folder and M.of_folder(folder).tokenizer
end

return M
