--- Where classes and calls are defined: mslua.help finds the comment above that line.
local getinfo = debug.getinfo

local M = {}

---@class mslua.Place
---@field source string "=mslua/nn/cells/dense.lua", "@recipe.lua"
---@field line integer

local places = setmetatable({}, { __mode = "k" })

--- Remembers the line of the file that is being run: of the statement that calls extend, signature or define.
---@param object any
function M.mark(object)
  local level = 3
  local info = getinfo(level, "Sl")
  while info and info.what ~= "main" do
    level = level + 1
    info = getinfo(level, "Sl")
  end
  if info then places[object] = { source = info.source, line = info.currentline } end
end

--- The place of a marked object; nil when it was defined inside a function.
---@param object any
---@return mslua.Place?
function M.place(object) return places[object] end

local texts = setmetatable({}, { __mode = "k" })  -- object -> help of what is declared in C++

--- Gives an object the text that help shows, instead of the comment above its definition.
---@param object any
---@param text string
function M.describe(object, text) texts[object] = text end

--- The text of a described object; nil for any other.
---@param object any
---@return string?
function M.text(object) return texts[object] end

return M
