--- What an evaluation of a training gives besides its metrics: for each sample how bad it is, and how to show it.
local class = require "mslua.class"
local core = require "mslua.core"
local derive = require "mslua.dataset.derive"
local ops = require "mslua.ops"
local text_source = require "mslua.text_source"

local M = {}

local of_classes = { top1 = true, top5 = true, accuracy = true, confusion_matrix = true }

-- Whether the network's output has a number for each class.
local function classifies(model)
  for _, m in ipairs(model.metrics) do
    if of_classes[m.name] then return true end
  end
  return class.is(model.loss_fn, class.Object) and model.loss_fn.of_classes == true
end

--- Adds the outputs of samples by add(name, value): their losses, and of a classifier the likeliest class and its
--- probability.
---@param model mslua.Model
---@param add fun(name: string, value: Value)
---@param rows integer of the batch
---@param loss? Value [rows] or [rows, parts]; one number for the batch says nothing of a sample
---@param output? Value
---@param label? Value
function M.outputs(model, add, rows, loss, output, label)
  if loss and #loss.shape == 2 then loss = ops.reduce_sum(loss, { 2 }) end
  if loss and #loss.shape == 1 then add("sample:loss", ops.cast(loss, "float32")) end
  if not output or not label or not classifies(model) then return end
  local shape = output.shape
  local known = #label.shape == 1 or (#label.shape == 2 and label.shape[2] == shape[2])
  if #shape ~= 2 or shape[1] ~= rows or shape[2] < 2 or not known then return end
  add("sample:prediction", ops.cast(ops.argmax(output, -1), "int32"))
  add("sample:confidence", ops.reduce_max(ops.softmax(ops.cast(output, "float32"), -1), { -1 }))
end

-- Kinds of sources whose first column has levels from 0 to 255.
local pictures = {}
for _, source in ipairs(core.sources()) do pictures[source.kind] = source.pictures end

-- How the operations change the levels of a column: {scale =, shift =}, one number or one for each channel; nil where
-- functions may do anything.
local function levels_of(spec, column)
  local scale, shift = { 1 }, { 0 }
  for _, op in ipairs(spec.ops) do
    if op.kind == "call" or op.kind == "code" then return nil end
    local concerned = not op.columns
    for _, name in ipairs(op.columns or {}) do concerned = concerned or name == column end
    for _, t in ipairs(concerned and op.kind == "map" and op.transforms or {}) do
      -- The first channel last: it stands for all that have no number of their own.
      for c = math.max(#scale, t.kind == "normalize" and #t.mean or 1), 1, -1 do
        local own_scale, own_shift = scale[c] or scale[1], shift[c] or shift[1]
        if t.kind == "rescale" then
          scale[c], shift[c] = own_scale * t.scale, own_shift * t.scale + t.shift
        elseif t.kind == "normalize" then
          local mean, std = t.mean[c] or t.mean[1], t.std[c] or t.std[1]
          scale[c], shift[c] = own_scale / std, (own_shift - mean) / std
        end
      end
    end
  end
  return { scale = scale, shift = shift }
end

--- How the samples of a dataset are shown.
---@param dataset mslua.Dataset
---@return {scale?: number[], shift?: number[], characters?: string[]}?
function M.form(dataset)
  local spec = derive.flattened(dataset.spec)
  local source = spec.source
  if source.kind == "text" and source.format == "characters" then
    return { characters = text_source.characters(source) }
  end
  return pictures[source.kind] and levels_of(spec, dataset:open():schema()[1].name) or nil
end

return M
