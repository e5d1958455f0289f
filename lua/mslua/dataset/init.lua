--- ms.dataset: sources of samples (mindspore.dataset).
local arity = require "mslua.arity"
local core = require "mslua.core"
local errors = require "mslua.errors"
local params = require "mslua.params"
local define = require("mslua.dataset.dataset").define
local code = require("mslua.dataset.derive").code

local M = {
  vision = require "mslua.dataset.vision",
  transforms = require "mslua.dataset.transforms",
  config = require "mslua.dataset.config",
}

-- How to give the path that is "", ": give data_path=... on the command line": the recipe's parameters that name a path
-- and are "". Empty where it has none.
local function how_to_give()
  local state, empty = params.state(), {}
  for _, name in ipairs(errors.names(state.defaults or {})) do
    if name:find "path$" and state.values[name] == "" then empty[#empty + 1] = name .. "=..." end
  end
  if #empty == 0 then return "" end
  return (": give %s on the command line%s"):format(table.concat(empty, " and "),
    empty[1] == "data_path=..." and ", or set DATA_PATH" or "")
end

local function check_path(what)
  return function(path)
    if path ~= "" then return nil end
    return ("expected %s, got \"\"%s"):format(what, how_to_give())
  end
end

-- { x, y } with their names, or { data = x, label = y }: then the names are the keys, sorted unless column_names says
-- their order (a Lua table has none).
local function named_columns(data, column_names)
  local keys = errors.names(data)
  if #keys == 0 then return data, column_names end
  if #data > 0 then errors.fail "NumpySlicesDataset: data: expected a list of arrays or named arrays, got both" end
  local names, arrays = column_names or keys, {}
  if #names ~= #keys then
    errors.fail("NumpySlicesDataset: column_names: expected the %d keys of data in their order, got %s", #keys,
      errors.show(names))
  end
  for i, name in ipairs(names) do
    if data[name] == nil then
      errors.fail("NumpySlicesDataset: column_names: data has no '%s'%s", name, core.did_you_mean(name, keys))
    end
    arrays[i] = data[name]
  end
  return arrays, names
end

-- Sources whose fields are values of Lua, by kind: what becomes of the arguments before core.dataset gets them.
local readers = {}

function readers.generator(a)
  if #a.column_names == 0 then errors.fail "GeneratorDataset: column_names: expected at least one name, got {}" end
  if type(a.source) == "string" then
    a.source = code("GeneratorDataset: source", a.source, a.arguments, {})
  elseif a.arguments ~= nil then
    errors.fail "GeneratorDataset: arguments: they are for a file of Lua; a function has its upvalues"
  elseif not a.length and arity.parameters(a.source) > 0 and arity.parameters(a.source) < math.huge then
    errors.fail("GeneratorDataset: source: without length the function is called without arguments and gives an "
      .. "iterator, but it takes %s: give length = N to call it with each number from 1 to N",
      arity.parameter_name(a.source, 1))
  end
  return a
end

function readers.numpy_slices(a)
  local data = a.data
  local first = type(data[1])
  if core.kind(data) == "Tensor" or first == "number" or first == "boolean" then data = { data } end
  local columns, arrays, names = {}, named_columns(data, a.column_names)
  for i, v in ipairs(arrays) do
    local t = core.kind(v) == "Tensor" and v or core.tensor(v)
    columns[i] = { name = names and names[i] or "column_" .. i - 1, value = t }
  end
  if names and #names ~= #columns then
    errors.fail("NumpySlicesDataset: %d arrays and %d column_names", #columns, #names)
  end
  if #columns == 0 then errors.fail "NumpySlicesDataset: data: expected at least one array, got {}" end
  return { data = columns }
end

-- The classes that core/data/sources declares.
for _, source in ipairs(core.sources()) do
  for _, field in ipairs(source.fields) do
    if field.path then field.check = check_path(field[2] == "string" and "a folder" or "a file") end
  end
  local fields = { unpack(source.fields) }
  if source.kind == "generator" then
    fields[#fields + 1] = { "arguments", "any",
      doc = "what a file gets as `...`: a number, string, boolean or a table of them" }
  end
  M[source.class] = define(source.class, fields, function(a)
    local made, values = { kind = source.kind }, readers[source.kind] and readers[source.kind](a) or a
    for _, field in ipairs(source.fields) do made[field[1]] = values[field[1]] end
    return made
  end, source.doc)
end

return require("mslua.namespace").strict("ms.dataset", M)
