--- What losses share. Each loss is a file of this folder that returns its class; nn takes all of them.
--- A loss is a cell of (output of the network, label). `rows` gives one number a row, whose mean is an
--- evaluation's loss.
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local Shape = require "mslua.shape"

local M = {}

--- Base of losses: a subclass defines `rows(output, label)`, the loss of each row, [n]. Where rows count for more or
--- less in the mean, `rows` gives their weights, [n], as its second result. Both may be [n, k]: the loss is the sum of
--- k means.
local Loss = Cell:extend "Loss"
M.Loss = Loss

--- The argument `reduction`.
---@param default "mean"|"sum"|"none"
---@return mslua.Field
function M.reduction(default)
  return { "reduction", "string", default, choices = { "mean", "sum", "none" },
    doc = '"mean": the mean of the losses; "sum": their sum; "none": the losses themselves' }
end

--- The argument `weight` of losses of single elements.
M.element_weight = { "weight", "tensor",
  doc = "factors of the elements' losses, of a shape that broadcasts to theirs; default: 1 each" }

--- The arguments of losses of class ids.
M.ignore_index = { "ignore_index", "integer", -100, doc = "a label that has no loss and does not count in the mean" }
M.label_smoothing = { "label_smoothing", "number", 0, min = 0, max = 1,
  doc = "the share of each label that is spread over all classes" }
M.class_weight = { "weight", "tensor", doc = "[classes], the factor of each class's losses; default: 1 each" }

-- The axes of x from `first` on.
local function axes_from(x, first)
  local axes = {}
  for i = first, #x.shape do axes[#axes + 1] = i end
  return axes
end

-- Losses as the reduction says; where they are not reduced, of `shape`, if that is given.
function Loss:reduce(rows, shape)
  if self.reduction == "none" then return shape and #shape ~= #rows.shape and ops.reshape(rows, shape) or rows end
  local axes = axes_from(rows, 1)
  return self.reduction == "sum" and ops.reduce_sum(rows, axes) or ops.reduce_mean(rows, axes)
end

-- As an evaluation, whose mean over a dataset of one batch this is.
function Loss:construct(output, label)
  local rows, weights = self:rows(output, label)
  if not weights then
    if #rows.shape > 1 then
      errors.fail("%s:rows: expected the loss of each row, [n], or with their weights as the second result [n, k], got "
        .. "%s", self.class_name, errors.show(rows.shape))
    end
    return #rows.shape == 0 and rows or self:reduce(rows)
  end
  local weighted = rows * weights
  if self.reduction == "none" then return weighted end
  local sums = ops.reduce_sum(weighted, { 1 })
  if self.reduction ~= "sum" then
    local counts = ops.reduce_sum(weights, { 1 })
    sums = sums / ops.select(ops.greater(counts, 0), counts, 1)
  end
  return #sums.shape == 0 and sums or ops.reduce_sum(sums, axes_from(sums, 1))
end

-- By the method that a loss is computed by, the construct that calls it.
Loss.constructs = { rows = Loss.construct }

--- A subclass. One that defines a method of `constructs`, and no construct of its own, is trained on that method.
function Loss:extend(name)
  local sub = Cell.extend(self, name)
  getmetatable(sub).__newindex = function(class, key, v)
    rawset(class, key, v)
    if class.constructs[key] and rawget(class, "construct") == nil then
      rawset(class, "construct", class.constructs[key])
    end
  end
  return sub
end

function Loss:extra() return self.reduction end

args.kind("loss", function(v) return class.is(v, Cell) or type(v) == "function" end, "a loss cell or function")

--- 16-bit floats as float32: squares and logarithms that 16 bits cannot hold, and small numbers beside them.
M.wide = require("mslua.wide").wide

--- The mean of what belongs to each row, [n] of [n, ..]; the sum with reduction "sum".
function M.over_rows(each, reduction)
  local axes = axes_from(each, 2)
  if #axes == 0 then return each end
  return reduction == "sum" and ops.reduce_sum(each, axes) or ops.reduce_mean(each, axes)
end

local function type_text(x) return ("%s[%s]"):format(x.dtype, table.concat(x.shape, ", ")) end

--- An error where a label does not have the wanted shape: broadcasting it would compare rows with others' labels.
---@param name string of the loss
---@param label Tensor
---@param shape integer[]
---@param output Tensor what it is the label of
---@param hint? string the end of the message
function M.check_shape(name, label, shape, output, hint)
  if label == nil then
    errors.fail("%s: expected an output and a label, got %s and nothing", name, errors.show(output))
  end
  if type(label) == "number" then return end
  if not core.kind(label) then errors.fail("%s: expected a label, a tensor, got %s", name, errors.show(label)) end
  if Shape.__eq(label.shape, shape) then return end
  errors.fail("%s: expected a label of shape [%s] for %s, got %s%s", name, table.concat(shape, ", "), type_text(output),
    type_text(label), hint or "")
end

--- The label of an output, of its shape; a number stands for that label everywhere.
---@param name string of the loss
---@param output Tensor
---@param label Tensor|number
---@return Tensor
function M.label_of(name, output, label)
  if not core.kind(output) then
    errors.fail("%s: expected an output and a label, got %s and %s", name, errors.show(output), errors.show(label))
  end
  if type(label) == "number" then return core.full(output.shape, label, output.dtype) end
  M.check_shape(name, label, output.shape, output)
  return label
end

--- Fails where a weight has another shape than the losses that it multiplies, and does not broadcast to it.
---@param name string of the loss
---@param key string of the argument
---@param weight? Tensor
---@param shape integer[] of the losses
function M.check_weight(name, key, weight, shape)
  if not weight then return end
  local given = weight.shape
  local fits, more = #given <= #shape, #shape - #given
  for d = 1, fits and #given or 0 do fits = fits and (given[d] == 1 or given[d] == shape[more + d]) end
  if fits then return end
  errors.fail("%s: %s: expected a shape that broadcasts to the losses' [%s], got %s", name, key,
    table.concat(shape, ", "), type_text(weight))
end

--- Losses of single elements: a subclass defines each(output, label), of the output's shape.
local Elementwise = Loss:extend "ElementwiseLoss"
M.Elementwise = Elementwise

-- Of each row the mean over its elements, or their sum, as the reduction says.
function Elementwise:rows(output, label)
  label = M.label_of(self.class_name, output, label)
  return M.over_rows(self:each(output, label), self.reduction)
end

function Elementwise:construct(output, label)
  label = M.label_of(self.class_name, output, label)
  return self:reduce(self:each(output, label))
end

Elementwise.constructs = { rows = Loss.construct, each = Elementwise.construct }

--- Losses of two outputs, which a network gives in a table: a subclass defines each(x1, x2, label), which says what it
--- expects where one is missing.
local OfPair = Loss:extend "PairLoss"
M.OfPair = OfPair

--- (x1, x2, label), or ({x1, x2}, label).
function OfPair:construct(x1, x2, label)
  if label == nil and type(x1) == "table" then x1, x2, label = x1[1], x1[2], x2 end
  return self:reduce(self:each(x1, x2, label))
end

function OfPair:rows(output, label)
  if type(output) ~= "table" then output = { output } end
  return M.over_rows(self:each(output[1], output[2], label), self.reduction)
end

--- alike where the label is 1, apart where it is -1, NaN for another label: tensors of one shape.
function M.by_sign(label, alike, apart)
  return ops.select(ops.equal(label, 1), alike, ops.select(ops.equal(label, -1), apart, 0 / 0))
end

-- The sizes above 1, and 0, as a text.
local function above_one(shape)
  local sizes = {}
  for _, size in ipairs(shape) do
    if size ~= 1 then sizes[#sizes + 1] = size end
  end
  return table.concat(sizes, ",")
end

--- Fails unless both are tensors, and the logits have a number for each class.
function M.check_logits(name, logits, labels)
  if not core.kind(logits) or not core.kind(labels) then
    errors.fail("%s: expected logits and labels, two tensors, got %s and %s", name, errors.show(logits),
      errors.show(labels))
  elseif #logits.shape == 0 then
    errors.fail("%s: expected logits [.., classes], got %s", name, type_text(logits))
  end
end

--- Fails unless there is one weight for each class.
function M.check_class_weight(name, weight, classes)
  if weight and (#weight.shape ~= 1 or weight.shape[1] ~= classes) then
    errors.fail("%s: weight: expected %d numbers, one for each class, got %s", name, classes, errors.show(weight))
  end
end

-- Whether labels are as many as ids of logits [.., classes]. Dimensions of 1, such as the channel of a mask, leave the
-- order of labels as it is.
local function fit_as_ids(logits, labels) return above_one(labels.shape) == above_one(M.label_shape(logits)) end

--- Whether labels of a loss that takes both are ids, and not shares of the classes.
function M.are_ids(logits, labels)
  return #labels.shape < #logits.shape or not labels.dtype:find "float" and fit_as_ids(logits, labels)
end

local function in_shape(x, shape) return Shape.__eq(x.shape, shape) and x or ops.reshape(x, shape) end

-- What labels that do not fit look like.
local function class_hint(logits, labels)
  if not logits.dtype:find "float" and labels.dtype:find "float" then return ": logits come first" end
  local n = #logits.shape
  if n < 3 or #labels.shape ~= n - 1 then return nil end
  local rest, perm = { logits.shape[1] }, { 1 }
  for d = 3, n do rest[d - 1], perm[d - 1] = logits.shape[d], d end
  perm[n] = 2
  if not Shape.__eq(labels.shape, rest) then return nil end
  return (": classes are the last dimension of logits: ops.transpose(x, %s)"):format(errors.show(perm))
end

--- Logits [.., classes] and labels, ids [..] or rows of probabilities, as [n, classes] and [n] or [n, classes].
function M.flat(name, logits, labels, sparse)
  M.check_logits(name, logits, labels)
  local shape = logits.shape
  local wanted = sparse and M.label_shape(logits) or shape
  if above_one(labels.shape) ~= above_one(wanted) then
    M.check_shape(name, labels, wanted, logits, class_hint(logits, labels))
  end
  if sparse and not labels.dtype:find "^int[36]" then
    errors.fail("%s: expected ids of classes, int32 or int64, got %s: ops.cast(labels, ms.int32)%s", name,
      type_text(labels), labels.dtype:find "float" and ", where they are ids" or "")
  end
  local classes, n = shape[#shape], 1
  for d = 1, #shape - 1 do n = n * shape[d] end
  return in_shape(logits, { n, classes }), in_shape(labels, sparse and { n } or { n, classes })
end

--- The number of rows of the batch in logits [.., classes].
function M.rows_in(logits) return #logits.shape > 1 and logits.shape[1] or 1 end

--- The shape of the labels of logits [.., classes].
---@param logits Tensor
---@return integer[]
function M.label_shape(logits)
  local shape = logits.shape
  shape[#shape] = nil
  return shape
end

--- The number of each row's class, [n] of [n, classes] and ids [n]; an id that is no class is an error that names the
--- row's record.
function M.of_label(x, ids)
  return ops.reshape(ops.gather_d(x, ops.expand_dims(ids, 2), { axis = 2, labels = true }), { -1 })
end

--- What belongs to each of n rows of the batch: [n * t] of [n, t, classes] as [n, t].
function M.split_rows(values, n)
  return values.shape[1] == n and values or ops.reshape(values, { n, -1 })
end

--- What `rows` gives for losses that are divided by the sum of their weights: each row's mean, 0 where nothing of it
--- counts, and the sum of its weights; with reduction "sum" each row's sum alone.
---@param losses Tensor of the labels, [n * ..] or [n, ..], times their weights
---@param weights Tensor of that shape
---@param n integer
---@param reduction? string
---@return Tensor rows [n]
---@return Tensor? weights [n]
function M.weighted_rows(losses, weights, n, reduction)
  losses, weights = M.over_rows(M.split_rows(losses, n), "sum"), M.over_rows(M.split_rows(weights, n), "sum")
  if reduction == "sum" then return losses end
  return losses / ops.select(ops.greater(weights, 0), weights, 1), weights
end

return M
