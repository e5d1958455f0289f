--- Arguments that a function has no parameter for: Lua drops them in silence, here they are an error.
local errors = require "mslua.errors"

local getinfo, getlocal = debug.getinfo, debug.getlocal

local M = {}

local most_of = setmetatable({}, { __mode = "k" })  -- function -> how many arguments it takes, with self

local function most(f)
  local n = most_of[f]
  if not n then
    local info = getinfo(f, "u")
    n = (info.isvararg or info.what == "C") and math.huge or info.nparams
    most_of[f] = n
  end
  return n
end

--- How many parameters `f` has, self included; math.huge where it takes any number of them.
---@param f function
---@return number
function M.parameters(f) return most(f) end

--- The name of a parameter of `f`; nil where it has no such one.
---@param f function
---@param place integer self is the first
---@return string?
function M.parameter_name(f, place) return (getlocal(f, place)) end

--- Whether a method is defined with a dot: it has parameters, and the first is not self.
---@param f function
---@return boolean
function M.has_dot(f)
  local first = getlocal(f, 1)
  return first ~= nil and first ~= "self"
end

local function counted(n) return n == 0 and "no arguments" or errors.counted(n, "argument") end

-- "(x, label)", without the first `skip` parameters.
local function names_of(f, skip)
  local names = {}
  for i = skip + 1, most(f) do names[#names + 1] = getlocal(f, i) end
  return #names > 0 and (" (%s)"):format(table.concat(names, ", ")) or ""
end

--- Raises when `f`, called with `skip` arguments of its own (self) and these, would drop one that is not nil.
---@param name string of what is called, for the message
---@param hint? string what to do instead
---@param f function
---@param skip integer
function M.check(name, hint, f, skip, ...)
  local n = select("#", ...)
  if type(f) ~= "function" or n + skip <= most(f) then return end
  local takes = math.max(0, most(f) - skip)  -- it may have no parameter for self either
  while n > takes and select(n, ...) == nil do n = n - 1 end
  if n <= takes then return end
  if skip == 1 and n == most(f) and M.has_dot(f) then
    hint = "its method is defined with a dot: write a colon, as in function Net:construct(x)"
  end
  errors.fail("%s: takes %s%s, got %d%s", name, counted(takes), names_of(f, skip), n, hint and ": " .. hint or "")
end

--- The arguments of a function that takes at most `takes` of them.
---@param name string of the function, for the message
---@param takes integer
function M.take(name, takes, ...)
  local n = select("#", ...)
  while n > takes and select(n, ...) == nil do n = n - 1 end
  if n > takes then
    errors.fail("%s: takes %s, got %d", name, counted(takes), n)
  end
  return ...
end

return M
