--- ms.shard: strategies for what a function takes and gives.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local strategy = require "mslua.strategy"

local M = {}

local bind = args.signature("shard", {
  { "fn", "function|cell", required = true, doc = "a function or a cell of tensors" },
  { "in_strategy", "list", required = true,
    doc = "for each argument the number of shards of each dimension, {{2, 4}, {4, 1}}; false: it stays as it is" },
  { "out_strategy", "list", doc = "the same for each result; default: they stay as they are" },
})

-- The text of each entry; false where the value stays as it is.
local function texts(what, list)
  local entries = {}
  for i, counts in ipairs(list) do
    local text, problem = false, nil
    if counts then text, problem = strategy.text(what, { counts }) end
    if problem then errors.fail("shard: %s", (problem:gsub("tensor 1", "tensor " .. i))) end
    entries[i] = text
  end
  return entries
end

-- The values, each in the layout of its entry.
local function placed(what, entries, values)
  if values.n ~= #entries then
    errors.fail("shard: %s has %d entries, and the function %s %s: one for each, false for what stays as it is",
      what, #entries, what == "in_strategy" and "is given" or "gives", errors.counted(values.n, "value"))
  end
  for i, text in ipairs(entries) do
    if text then
      local x = values[i]
      local shape = type(x) == "userdata" and x.shape
      if not shape then
        errors.fail("shard: %s, tensor %d: expected a tensor, got %s; write false for what stays as it is", what, i,
          errors.show(x))
      end
      values[i] = core.op("reshape", { n = 1, x }, { shape = shape, _in_strategy = text, _out_strategy = text })
    end
  end
  return unpack(values, 1, values.n)
end

local function pack(...) return { n = select("#", ...), ... } end

--- A function, or a cell, whose arguments and results are sharded so in a step: `ms.shard(fn, {{2, 4}, {4, 1}},
--- {{8, 1}})`. An entry is the number of shards of each dimension; false: the value stays as it is. What the operators
--- between do follows, or is their own strategy. Outside a step the function computes on whole tensors.
---@param fn function|Cell
---@param in_strategy (integer[]|false)[] an entry for each argument
---@param out_strategy? (integer[]|false)[] an entry for each result
---@return function
function M.shard(...)
  local a = bind(...)
  local inputs = texts("in_strategy", a.in_strategy)
  local outputs = a.out_strategy and texts("out_strategy", a.out_strategy)
  strategy.holder = strategy.holder or "ms.shard"
  return function(...)
    if not core.is_tracing() then return a.fn(...) end
    local results = pack(a.fn(placed("in_strategy", inputs, pack(...))))
    if not outputs then return unpack(results, 1, results.n) end
    return placed("out_strategy", outputs, results)
  end
end

return M
