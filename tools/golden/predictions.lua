-- What a recipe's network gives for batches of its data, as tools/golden/check_onnx.js reads them:
--   mslua run predictions.lua [key=value ...] -- RECIPE CKPT FOLDER
-- writes FOLDER/1.json, 2.json and 7.json, for batches of so many rows.
local Model = require "mslua.model"
local ms = require "mslua"

local path, ckpt, folder = ...
ms.communication.init()
local chunk = assert(loadfile(path))
local recipe = chunk()
local model = Model(recipe:make_network(), {
  loss_fn = recipe.loss, steps = recipe.steps and recipe:make_steps(1000),  -- of an epoch: schedules want a number
})
model.network:_as_root()
local values = ms.load_checkpoint(ckpt)
require("mslua.checkpoint").use_averages(values)
ms.load_param_into_net(model.network, values)

local function numbers(tensor)
  local words = {}
  local function walk(v)
    if type(v) == "table" then
      for _, item in ipairs(v) do walk(item) end
    elseif type(v) == "boolean" then
      words[#words + 1] = v and "1" or "0"
    else
      words[#words + 1] = v ~= v and '"NaN"' or math.abs(v) == math.huge and (v > 0 and '"inf"' or '"-inf"')
        or ("%.9g"):format(v)
    end
  end
  walk(tensor:totable())
  return table.concat(words, ",")
end

local function entry(name, tensor)
  return ('{"name":"%s","dtype":"%s","dims":[%s],"data":[%s]}'):format(name, tensor.dtype,
    table.concat(tensor.shape, ","), numbers(tensor))
end

local schema = recipe:columns() or (recipe:make_dataset "eval_dataset" or recipe:make_dataset "dataset"):open():schema()

-- The first batch of samples of the shapes that are exported.
local function first_batch()
  local function fits(columns)
    for i, column in ipairs(schema) do
      for d = 2, #column.shape do
        if columns[i].shape[d] ~= column.shape[d] then return false end
      end
    end
    return true
  end
  for _, part in ipairs { "eval_dataset", "dataset" } do
    local data = recipe:make_dataset(part)
    local next_batch = data and data:create_tuple_iterator()
    local columns = data and { next_batch() } or {}
    while columns[1] do
      if fits(columns) then return columns end
      columns = { next_batch() }
    end
  end
  error("no batch has samples of the shapes that are exported", 0)
end

for _, rows in ipairs { 1, 2, 7 } do
  local columns, inputs, words = first_batch(), {}, {}
  local part = { columns = {}, inputs = math.max(1, #schema - 1) }
  for i = 1, part.inputs do
    local x = columns[i]
    while x.shape[1] < rows do x = ms.ops.concat({ x, columns[i] }, 1) end
    local picked = {}
    for r = 1, rows do picked[r] = ms.ops.expand_dims(x[r], 1) end
    inputs[i] = rows == 1 and picked[1] or ms.ops.concat(picked, 1)
    part.columns[i] = { name = schema[i].name, dtype = x.dtype, shape = inputs[i].shape }
    words[i] = entry(schema[i].name, inputs[i])
  end
  local output = model:predict_graph(part, true):run(unpack(inputs))
  local file = assert(io.open(("%s/%d.json"):format(folder, rows), "w"))
  file:write(('{"inputs":[%s],"outputs":[%s]}\n'):format(table.concat(words, ","), entry("output", output)))
  file:close()
end
