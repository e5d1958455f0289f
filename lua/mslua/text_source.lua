--- Where verbs that read or write text get their tokens from: the tokenizer of a folder, or the characters of a
--- recipe's TextDataset.
local errors = require "mslua.errors"
local files = require "mslua.files"

local M = {}

local TOKENIZER_FILES = { "tokenizer.json", "vocab.json", "tokenizer.model" }

--- Whether a folder has a tokenizer.
---@param dir string
function M.has_tokenizer(dir)
  for _, name in ipairs(TOKENIZER_FILES) do
    if files.is_file(dir .. "/" .. name) then return true end
  end
  return false
end

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
    tokenizer = tokenizer,
    encode = function(s) return tokenizer:encode(s) end,
    decode = function(ids) return tokenizer:decode(ids) end,
  }
end

--- The characters of a text file in order of their bytes, as TextDataset numbers them.
---@param path string a file, or a folder with input.txt
function M.of_characters(path)
  local file = io.open(path .. "/input.txt", "rb") or io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  if not text then errors.fail("there is no text at '%s', which says what characters the network knows", path) end
  local seen, characters, ids = {}, {}, {}
  for i = 1, #text do seen[text:byte(i)] = true end
  for byte = 0, 255 do
    if seen[byte] then
      ids[byte] = #characters
      characters[#characters + 1] = string.char(byte)
    end
  end
  return {
    encode = function(s)
      local list = {}
      for i = 1, #s do
        list[i] = ids[s:byte(i)] or errors.fail("the text of '%s' has no character %q, byte %d of the prompt", path,
          s:sub(i, i), i)
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

--- The tokens of a recipe's dataset; nil where it has no text.
---@param dataset mslua.Dataset?
function M.of_dataset(dataset)
  local source = dataset and dataset.spec and dataset.spec.source
  if not source or source.kind ~= "text" then return nil end
  if source.format == "characters" then return M.of_characters(source.dataset_files) end
  local folder = source.dataset_files
  if M.has_tokenizer(folder) then return M.of_folder(folder) end
  return nil
end

return M
