--- `mslua recipes check`: what Lua cannot catch when it runs. In `construct` a traced value has no truth and no
--- equality of its own: `if x then`, `x == y`, `not x`, `x and ...` are decided once, while tracing.
local locate = require "mslua.locate"

local M = {}

local mend = "%s is decided while tracing, whatever the values are: use ops.select, ops.equal, or compare shapes"

-- The names of the parameters in the list that begins at token `i`, "(", and the place behind it.
local function parameters(list, i)
  local names = {}
  while list[i] and list[i][1] ~= ")" do
    if list[i][1]:match "^[%a_]" then names[list[i][1]] = true end
    i = i + 1
  end
  return names, i + 1
end

local before = { ["if"] = true, ["not"] = true, ["while"] = true, ["until"] = true, ["elseif"] = true }
local after = { ["then"] = true, ["do"] = true, ["and"] = true, ["or"] = true }

-- What is doubtful about the parameter at token `i`, if anything.
local function doubt(list, i)
  local name, prev, next_ = list[i][1], list[i - 1][1], list[i + 1] and list[i + 1][1]
  local function is_nil(at) return list[at] and list[at][1] == "nil" end
  if prev == "." or prev == ":" or next_ == "." or next_ == ":" or next_ == "=" then return nil end
  if (next_ == "==" or next_ == "~=") and not is_nil(i + 2) then return name .. " " .. next_ .. " ..." end
  if (prev == "==" or prev == "~=") and not is_nil(i - 2) then return "... " .. prev .. " " .. name end
  if before[prev] and after[next_] then return prev .. " " .. name end
  if prev == "not" then return "not " .. name end
end

--- Doubtful lines of a recipe.
---@param source string
---@return {line: integer, text: string}[]
function M.check(source)
  local list, found = locate.tokens(source), {}
  for i = 1, #list do
    local function is(at, text) return list[at] and list[at][1] == text end
    if is(i - 1, ":") and is(i, "construct") and is(i + 1, "(") then
      local start = i
      while start > 1 and list[start][1] ~= "function" do start = start - 1 end
      local stop = locate.skip_function(list, start)
      local names, at = parameters(list, i + 2)
      for k = at, stop - 1 do
        local what = names[list[k][1]] and doubt(list, k)
        if what then found[#found + 1] = { line = list[k][2], text = mend:format(what) } end
      end
    end
  end
  return found
end

return M
