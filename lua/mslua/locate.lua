--- The line of a key in a recipe's source: `return ms.recipe {...}` is a tail call, so the stack does not know it.
local M = {}

--- Tokens of Lua source with their lines; comments are dropped, a string is one token '"', a number '0'.
---@param source string
---@return {[1]: string, [2]: integer}[]
function M.tokens(source)
  local list, at, line = {}, 1, 1
  local function take(pattern, text)
    local found = source:match("^" .. pattern, at)
    if not found then return false end
    if text ~= "" then list[#list + 1] = { text or found, line } end
    line = line + select(2, found:gsub("\n", ""))
    at = at + #found
    return true
  end
  local function take_long(prefix, text)  -- [[...]] and [=[...]=]
    local level = source:match("^" .. prefix .. "%[(=*)%[", at)
    return level and take(prefix .. "%[" .. level .. "%[.-%]" .. level .. "%]", text)
  end
  while at <= #source do
    local _ = take("%s+", "") or take_long("%-%-", "") or take("%-%-[^\n]*", "") or take_long("", '"')
      or take('"[^"\\\n]*"', '"') or take("'[^'\\\n]*'", '"') or take('"(.-)[^\\]"', '"')
      or take("[%a_][%w_]*")
      or take("%d[%w%.]*", "0") or take("[=~<>]=") or take(".")
  end
  return list
end

local opens = { ["function"] = 1, ["do"] = 1, ["if"] = 1, ["repeat"] = 1, ["end"] = -1, ["until"] = -1 }

--- The place behind the function whose keyword is token `i`.
---@param list table tokens
---@param i integer
---@return integer
function M.skip_function(list, i)
  local depth = 0
  repeat
    depth = depth + (opens[list[i][1]] or 0)
    i = i + 1
  until depth == 0 or not list[i]
  return i
end

--- The line where the table that `call` takes sets the key at `path`; of the call when the key is not written there.
---@param source string
---@param call string "recipe"
---@param path string[]
---@return integer? line
function M.line(source, call, path)
  local list, i, begun = M.tokens(source), 1, nil
  while list[i] and not begun do
    local after = list[i + 1] and list[i + 1][1]
    if after == "(" then after = list[i + 2] and list[i + 2][1] end
    if list[i][1] == call and after == "{" then begun = list[i][2] end
    i = i + 1
  end
  if not begun then return nil end
  local keys, nesting, found = {}, 0, begun  -- keys[d]: the key whose value is being read d braces deep
  while list[i] do
    local text = list[i][1]
    if text == "function" then
      i = M.skip_function(list, i) - 1
    elseif text == "{" then
      nesting = nesting + 1
    elseif text == "}" then
      keys[nesting], nesting = nil, nesting - 1
      if nesting == 0 then break end
    elseif list[i + 1] and list[i + 1][1] == "=" and text:match "^[%a_]" then
      keys[nesting] = text
      local same = nesting <= #path
      for d = 1, nesting do same = same and keys[d] == path[d] end
      if same then found = list[i][2] end
      if same and nesting == #path then return found end
    end
    i = i + 1
  end
  return found
end

return M
