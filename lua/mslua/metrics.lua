--- Metrics of an evaluation: each gives one number a row of the batch, [n]; the sums over the rows that count are
--- divided by their number, so that neither batch size nor ranks change a result.
local errors = require "mslua.errors"
local core = require "mslua.core"
local ops = require "mslua.ops"

local M = {}

-- Numbers in the type that metrics are computed in: float64 stays, all others become float32.
local function wide(x) return x.dtype == "float64" and x or ops.cast(x, "float32") end

-- The mean over all but the first dimension, as float64 where x is, else as float32.
local function by_row(x)
  local rows, axes = wide(x), {}
  for i = 2, #x.shape do axes[i - 1] = i end
  return #axes == 0 and rows or ops.reduce_mean(rows, axes)
end

-- Ids of the classes, whether labels are ids or rows of probabilities.
local function ids(logits, labels)
  return #labels.shape == #logits.shape and ops.argmax(labels, -1) or labels
end

local function top1(logits, labels)
  labels = ids(logits, labels)
  return by_row(ops.equal(ops.cast(ops.argmax(logits, -1), labels.dtype), labels))
end

-- A label counts when fewer than five logits are above its own.
local function top5(logits, labels)
  local shape = logits.shape
  local own = ops.one_hot(ids(logits, labels), shape[#shape])
  local score = ops.reduce_sum(ops.select(ops.greater(own, 0), logits, 0), { -1 }, { keep_dims = true })
  local above = ops.reduce_sum(ops.cast(ops.greater(logits, score), "float32"), { -1 })
  return by_row(ops.less(above, 5))
end

local known = {
  top1 = { rows = top1, kind = "percent" }, accuracy = { rows = top1, kind = "percent" },
  top5 = { rows = top5, kind = "percent" },
  loss = { kind = "mean" },
}

-- The loss of each row; of the whole batch, a scalar, where the loss knows no rows.
local function loss_rows(loss_fn, output, label)
  local knows_rows = type(loss_fn) ~= "function" and loss_fn.rows
  return knows_rows and loss_fn:rows(output, label) or loss_fn(output, label)
end

--- The sum over the rows of the batch that come from the dataset; a scalar is the mean of them all.
---@param values Value [n] or []
---@param n integer rows of the batch
---@return Value
function M.sum(values, n)
  values = wide(values)
  local mask = ops.cast(core.valid_mask(n), values.dtype)
  if #values.shape == 0 then return values * ops.reduce_sum(mask) end
  -- By choice, not by product: padding may give NaN.
  return ops.reduce_sum(ops.select(ops.greater(mask, 0.5), values, 0))
end

--- Turns `{"loss", "top1", mine = function(output, label) ... end}` into a list with "loss" first.
---@param metrics table
---@param loss_fn Cell?
---@return {name: string, kind: "mean"|"percent", rows: fun(output, label)}[]
function M.list(metrics, loss_fn)
  local list, given = {}, {}
  local function add(name, entry)
    if given[name] then return end
    given[name] = true
    if name == "loss" and not loss_fn then errors.fail "metrics: loss needs a loss_fn" end
    list[#list + 1] = {
      name = name, kind = entry.kind,
      rows = entry.rows or function(output, label) return loss_rows(loss_fn, output, label) end,
    }
  end
  if loss_fn then add("loss", known.loss) end
  for _, name in ipairs(metrics) do
    if not known[name] then
      errors.fail("metrics: unknown metric %s%s; there are %s, and name = function(output, label)",
        errors.show(name), core.did_you_mean(tostring(name), errors.names(known)),
        table.concat(errors.names(known), ", "))
    end
    add(name, known[name])
  end
  for _, name in ipairs(errors.names(metrics)) do
    local f = metrics[name]
    if type(f) ~= "function" then
      errors.fail("metrics: %s: expected function(output, label) giving a number a row, got %s", name, errors.show(f))
    end
    add(name, { kind = "mean", rows = f })
  end
  return list
end

return M
