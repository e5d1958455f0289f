--- Values as Lua text, and back from the command line.
local core = require "mslua.core"
local keywords = require "mslua.keywords"

local M = {}

--- Lua text that reads back as the same value. Tables are written in order of their keys.
---@param v any numbers, strings, booleans and tables of them
---@return string? text; nil where v cannot be written
function M.write(v)
  if type(v) == "number" then
    if v ~= v then return "0/0" end
    if v == math.huge or v == -math.huge then return v > 0 and "math.huge" or "-math.huge" end
    local short = ("%.14g"):format(v)
    return tonumber(short) == v and short or ("%.17g"):format(v)
  elseif type(v) == "string" then
    return (("%q"):format(v):gsub("\\\n", "\\n"):gsub("\r", "\\r"))
  elseif type(v) == "boolean" then
    return tostring(v)
  elseif type(v) ~= "table" or getmetatable(v) then
    return nil
  end
  local parts, names = {}, {}
  for i, item in ipairs(v) do parts[i] = M.write(item) or "nil" end
  for key in pairs(v) do
    if type(key) == "string" then names[#names + 1] = key end
  end
  table.sort(names)
  for _, key in ipairs(names) do
    local text = M.write(v[key])
    local plain = key:match "^[%a_][%w_]*$" and not keywords.set[key]
    local shown = plain and key or "[" .. M.write(key) .. "]"
    if text then parts[#parts + 1] = shown .. " = " .. text end
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

--- A number as JSON, which has no word for NaN or infinity: null.
---@param v number
---@return string
function M.json_number(v)
  if v ~= v or v == math.huge or v == -math.huge then return "null" end
  return ("%.9g"):format(v)
end

-- Text with U+FFFD in the place of each byte that is not UTF-8.
local function as_utf8(text)
  local parts, from = {}, 1
  local bad = core.invalid_utf8(text, from)
  while bad do
    parts[#parts + 1] = text:sub(from, bad - 1) .. "\239\191\189"
    from = bad + 1
    bad = core.invalid_utf8(text, from)
  end
  return table.concat(parts) .. text:sub(from)
end

--- A text as JSON.
---@param text string
---@return string
function M.json_string(text)
  return '"' .. as_utf8(text):gsub('[%c"\\]', function(c)
    return (c == '"' or c == "\\") and "\\" .. c or ("\\u%04x"):format(c:byte())
  end) .. '"'
end

--- A command line's text as the wanted type. Strings are taken as they stand; lists are Lua tables of literals.
---@param text string
---@param kind "number"|"boolean"|"string"|"table"
---@return any value nil where the text is not of that kind
---@return string? hint what is wrong, for the end of a message
function M.read(text, kind)
  if kind == "string" then return text end
  if kind == "boolean" then return ({ ["true"] = true, ["false"] = false })[text] end
  if kind == "number" then return tonumber(text) end
  local chunk = text:match "^%s*{" and loadstring("return " .. text, "=value")
  if not chunk then return nil end
  local word
  local other = { __index = function(_, name) word = word or name end }
  local names = setmetatable({ math = setmetatable({ huge = math.huge }, other) }, other)
  local ok, v = pcall(setfenv(chunk, names))
  if word then return nil, (': %s needs quotes, "%s"'):format(word, word) end
  return ok and type(v) == "table" and v or nil
end

return M
