--- `mslua export R OUT.onnx`: the trained network as an ONNX model for any batch size.
local core = require "mslua.core"
local derive = require "mslua.dataset.derive"
local dtype_flag = require "mslua.dtype_flag"
local errors = require "mslua.errors"
local literal = require "mslua.literal"

local M = {}

-- Two sizes of a batch, of which the recipe's is no multiple: what differs between their graphs follows the batch.
local function sizes_beside(own)
  local sizes = {}
  for _, rows in ipairs { 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47 } do
    if own % rows ~= 0 then sizes[#sizes + 1] = rows end
  end
  return { sizes[1], sizes[2] }
end

-- The columns of a batch of so many rows, without the label.
local function inputs_of(columns, rows)
  local inputs = {}
  for i = 1, math.max(1, #columns - 1) do
    local column = columns[i]
    if #column.shape == 0 then
      errors.fail("export: column '%s' is one number: a batch has a dimension of its rows", column.name)
    end
    inputs[i] = { name = column.name, dtype = column.dtype, shape = { rows, unpack(column.shape, 2) } }
  end
  return { columns = inputs, inputs = #inputs }
end

local write

-- A value as JSON: text, numbers, booleans, lists, and tables by name in the order of their names.
local function json(v)
  if type(v) == "string" then return literal.json_string(v) end
  if type(v) == "number" then return literal.json_number(v) end
  if type(v) ~= "table" then return tostring(v) end
  return write(v)
end

function write(v)
  local words = {}
  if #v > 0 or next(v) == nil then
    for i, item in ipairs(v) do words[i] = json(item) end
    return "[" .. table.concat(words, ", ") .. "]"
  end
  for i, key in ipairs(errors.names(v)) do words[i] = literal.json_string(key) .. ": " .. json(v[key]) end
  return "{" .. table.concat(words, ", ") .. "}"
end

-- What the evaluation's data does to each column before the network gets it, in order; of training's data, what
-- predict does in its place.
local function preprocessing(base)
  local steps = {}
  for _, op in ipairs(base and derive.flattened(base.spec).ops or {}) do
    if op.kind == "map" then
      local kept = derive.without_random(op.transforms)
      if #kept > 0 then steps[#steps + 1] = { columns = op.columns or {}, transforms = kept } end
    elseif op.kind == "call" then
      steps[#steps + 1] = { columns = op.inputs or {}, transforms = { { kind = "function of the recipe" } } }
    elseif op.kind == "code" then
      steps[#steps + 1] = { columns = op.inputs or {}, transforms = { { kind = "file of Lua", file = op.file } } }
    end
  end
  return json(steps)
end

local function metadata_of(recipe, base, step)
  local list = { { "recipe", recipe.name }, { "step", ("%d"):format(step) } }
  if recipe.labels then list[#list + 1] = { "labels", json(recipe.labels) } end
  list[#list + 1] = { "preprocessing", preprocessing(base) }
  return list
end

-- Sizes for which the model is to be right too, beside the recipe's own. One row is left out: a graph may lack what is
-- nothing to do for it.
local OTHER_SIZES = { 2, 12, 100 }

-- The network for batches of both sizes, and for others to check the model by.
local function graphs_of(columns, model)
  local graphs, checks, own = {}, {}, columns[1].shape[1] or 1
  for i, rows in ipairs(sizes_beside(own)) do
    local good, graph = pcall(model.predict_graph, model, inputs_of(columns, rows), true, own)
    if not good then
      model:predict_graph(inputs_of(columns, own), true)  -- an error of the recipe's own batches is not about rows
      error(graph, 0)
    end
    graphs[i] = graph
  end
  for _, rows in ipairs { math.max(own, 2), unpack(OTHER_SIZES) } do
    checks[#checks + 1] = model:predict_graph(inputs_of(columns, rows), true)
  end
  return graphs, checks
end

-- The tokenizer's files lie beside the model. Those of another one stay as they are.
local function check_beside(tokenizer, folder)
  for _, wanted in ipairs(tokenizer:contents()) do
    local path = folder .. "/" .. wanted.name
    local file = io.open(path, "rb")
    if file then
      local same = file:read "*a" == wanted.content
      file:close()
      if not same then
        errors.fail("export: %s belongs to another tokenizer than the recipe's; write the model into another folder, "
          .. "or remove the file", path)
      end
    end
  end
end

--- Writes the file; gives the exit code.
---@param recipe mslua.Recipe
---@param model mslua.Model
---@param load fun(): integer takes the weights; gives their step
---@return integer
function M.run(recipe, model, load)
  local path = core.options.args[1]
  local columns, base = recipe:columns(), nil
  if not columns then
    base = recipe:make_dataset "eval_dataset" or recipe:make_dataset "dataset"
    columns = base:open():schema()
  else
    -- The data may be absent: then the transforms are not known.
    local found, made = pcall(function() return recipe:make_dataset "eval_dataset" or recipe:make_dataset "dataset" end)
    base = found and made or nil
  end
  local tokenizer, folder = recipe.tokenizer and recipe:make_tokenizer(), path:match "^(.*)/" or "."
  if tokenizer then check_beside(tokenizer, folder) end
  local graphs, checks = graphs_of(columns, model)
  local step = load()
  local count, bytes = core.export_onnx {
    graph = graphs[1], other = graphs[2], checks = checks, path = path, dtype = dtype_flag[core.options.dtype],
    metadata = metadata_of(recipe, base, step),
  }
  if tokenizer then tokenizer:save(folder) end
  print(("%s: %d operators, %.2f MiB of weights%s"):format(path, count, bytes / 2 ^ 20,
    tokenizer and "; the tokenizer's files are beside it" or ""))
  return 0
end

return M
