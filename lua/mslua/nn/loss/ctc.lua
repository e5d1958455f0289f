--- Connectionist temporal classification: labels of a sequence, without which of its outputs is of which label.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"
local within = require "mslua.within"

local NEVER = -1e30  -- the logarithm of the probability of what cannot be

local CTCLoss = loss.Loss:extend "CTCLoss"
local bind = args.signature("CTCLoss", {
  { "blank", "integer", 0, min = 0, doc = "the class of outputs that are of no label" },
  loss.reduction "mean",
  { "zero_infinity", "boolean", false,
    doc = "true: outputs that are too few for their labels have the loss 0; false: infinity" },
})

--- -log p(labels | outputs), summed over all ways to repeat labels and to put blanks between them (Graves et al.,
--- 2006). Outputs are logarithms of probabilities, [t, n, classes], as ops.log_softmax gives them; labels are ids,
--- [n, s], of which those below 0 at the end of a row do not count. "mean": each loss is divided by its number of
--- labels before. The gradient of an infinite loss is 0. Each of the t outputs becomes a part of the graph. (blank = 0,
--- reduction = "mean", zero_infinity = false)
function CTCLoss:init(...)
  local a = bind(...)
  self.blank, self.reduction, self.zero_infinity = a.blank, a.reduction, a.zero_infinity
end

local function check(blank, log_probs, labels)
  if not core.kind(log_probs) or #log_probs.shape ~= 3 then
    errors.fail("CTCLoss: expected logarithms of probabilities [t, n, classes], got %s", errors.show(log_probs))
  elseif not core.kind(labels) or #labels.shape ~= 2 or labels.shape[1] ~= log_probs.shape[2] then
    errors.fail("CTCLoss: labels: expected ids [%d, s], got %s", log_probs.shape[2], errors.show(labels))
  elseif blank >= log_probs.shape[3] then
    errors.fail("CTCLoss: blank: expected one of %d classes, 0 to %d, got %d", log_probs.shape[3],
      log_probs.shape[3] - 1, blank)
  end
end

-- Lengths [n] from `least` to `most`.
local function lengths_of(name, lengths, n, least, most)
  if not core.kind(lengths) or #lengths.shape ~= 1 or lengths.shape[1] ~= n then
    errors.fail("CTCLoss: %s: expected [%d] integers from %d to %d, got %s", name, n, least, most, errors.show(lengths))
  end
  return within(ops, "CTCLoss: " .. name, lengths, least, most)
end

-- log(exp(a) + exp(b) + ..), also where all are NEVER.
local function log_sum(a, ...)
  local most, sum = a, nil
  for _, b in ipairs { ... } do most = ops.maximum(most, b) end
  most = ops.stop_gradient(most)
  for _, b in ipairs { a, ... } do
    local part = ops.exp(b - most)
    sum = sum and sum + part or part
  end
  return most + ops.log(sum)
end

-- x [n, m] moved to the right by so many columns.
local function moved(x, by)
  local kept = ops.strided_slice(x, { 1, 1 }, { x.shape[1] + 1, x.shape[2] - by + 1 })
  return ops.pad(kept, { 0, by }, { 0, 0 }, {}, NEVER)
end

-- The losses [n], and the numbers of labels [n].
function CTCLoss:each(log_probs, labels, input_lengths, label_lengths)
  check(self.blank, log_probs, labels)
  log_probs = loss.wide(log_probs)
  local t, n = log_probs.shape[1], log_probs.shape[2]
  local s = labels.shape[2]
  local m = 2 * s + 1
  local lengths = label_lengths and lengths_of("label_lengths", label_lengths, n, 0, s)
    or ops.reduce_sum(ops.cast(ops.greater_equal(labels, 0), "int32"), { 2 })
  -- A blank before each label and one at the end.
  local counts = ops.less(ops.reshape(ops.iota { size = s }, { 1, s }), ops.expand_dims(lengths, 2))
  local ids = within(ops, "CTCLoss: labels", ops.select(counts, ops.cast(labels, "int32"), self.blank), 0,
    log_probs.shape[3] - 1)
  local blanks = ops.zeros_like(ids) + self.blank
  local path = ops.concat({ ops.reshape(ops.stack({ blanks, ids }, 3), { n, 2 * s }), blanks[{ {}, { 1, 1 } }] }, 2)
  local each = ops.gather_d(log_probs, ops.broadcast_to(ops.reshape(path, { 1, n, m }), { t, n, m }), 3)
  -- A blank may be left out between two labels that differ.
  local before = ops.pad(ops.strided_slice(path, { 1, 1 }, { n + 1, m - 1 }), { 0, 2 }, { 0, 0 }, {}, self.blank)
  local leaves_out = ops.logical_and(ops.not_equal(path, self.blank), ops.not_equal(path, before))
  local first = ops.less(ops.reshape(ops.iota { size = m }, { 1, m }), 2)
  local inputs = input_lengths and ops.expand_dims(lengths_of("input_lengths", input_lengths, n, 1, t), 2)
  local of_step = { ops.unstack(each, 1) }
  local alpha = ops.select(ops.broadcast_to(first, { n, m }), of_step[1], NEVER)
  for step = 2, t do
    local next_alpha = log_sum(alpha, moved(alpha, 1), ops.select(leaves_out, moved(alpha, 2), NEVER)) + of_step[step]
    alpha = inputs and ops.select(ops.broadcast_to(ops.greater_equal(inputs, step), { n, m }), next_alpha, alpha)
      or next_alpha
  end
  local last = ops.expand_dims(lengths * 2, 2)
  local some = ops.greater(last, 0)
  local label = ops.select(some, ops.gather_d(alpha, ops.maximum(last - 1, 0), 2), NEVER)
  local losses = -ops.squeeze(log_sum(ops.gather_d(alpha, last, 2), label), { 2 })
  return ops.select(ops.greater(losses, -NEVER / 2), self.zero_infinity and 0 or math.huge, losses), lengths
end

-- The losses as reduction "mean" takes them.
function CTCLoss:rows(...)
  local losses, lengths = self:each(...)
  if self.reduction ~= "mean" then return losses end
  return losses / ops.cast(ops.maximum(lengths, 1), losses.dtype)
end

--- (log_probs, labels, input_lengths, label_lengths): the lengths, [n] integers, say how many outputs and labels of
--- each row count; default: all outputs, and the labels up to the last one that is not below 0.
function CTCLoss:construct(...) return self:reduce(self:rows(...)) end

return CTCLoss
