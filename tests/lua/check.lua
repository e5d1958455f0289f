--- A test harness of three functions: a case, an equality, an expected error. Each file of this folder is a script
--- that `mslua run` executes; the last line of each is `check.done()`.
local M = {}

local cases, failures = 0, {}

--- Runs one case; an error in it is a failure of that case alone.
---@param name string
---@param body function
function M.case(name, body)
  cases = cases + 1
  local ok, problem = xpcall(body, function(e) return tostring(e) end)
  if not ok then failures[#failures + 1] = name .. ": " .. problem end
end

local function show(v)
  if type(v) ~= "table" or getmetatable(v) then return type(v) == "string" and ("%q"):format(v) or tostring(v) end
  local items = {}
  for key, item in pairs(v) do
    items[#items + 1] = (type(key) == "number" and "" or tostring(key) .. "=") .. show(item)
  end
  return "{" .. table.concat(items, ", ") .. "}"
end

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" or getmetatable(a) or getmetatable(b) then return a == b end
  for key, v in pairs(a) do
    if not same(v, b[key]) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

--- Fails unless both are equal; tables by their contents.
function M.equal(got, wanted)
  if not same(got, wanted) then error(("expected %s, got %s"):format(show(wanted), show(got)), 2) end
end

--- Fails unless numbers, or nested lists of them, differ by at most `tolerance`.
function M.near(got, wanted, tolerance)
  if type(wanted) == "table" then
    if type(got) ~= "table" or #got ~= #wanted then
      error(("expected %s, got %s"):format(show(wanted), show(got)), 2)
    end
    for i, v in ipairs(wanted) do M.near(got[i], v, tolerance) end
  elseif got ~= got or math.abs(got - wanted) > tolerance then
    error(("expected %.9g within %g, got %.9g"):format(wanted, tolerance, got), 2)
  end
end

--- Fails unless body raises an error that contains `text`, behind this file's name and a line.
function M.fails(text, body, ...)
  local ok, problem = pcall(body, ...)
  if ok then error(("expected the error '%s', got none"):format(text), 2) end
  problem = tostring(problem)
  if not problem:find(text, 1, true) then error(("expected the error '%s', got '%s'"):format(text, problem), 2) end
  return problem
end

--- Fails unless the error names a line of the test itself.
function M.fails_here(text, body, ...)
  local problem = M.fails(text, body, ...)
  if not problem:find "_test%.lua:%d+: " then
    error(("the error names no line of the test: '%s'"):format(problem), 2)
  end
end

--- Reports; a failure ends the script with an error.
function M.done()
  if #failures > 0 then
    error(("%d of %d cases failed:\n%s"):format(#failures, cases, table.concat(failures, "\n")), 0)
  end
  print(("%d cases passed"):format(cases))
end

return M
