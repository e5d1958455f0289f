--- Metrics of an evaluation. Most give one number a row of the batch, [n]; the sums over the rows that count are
--- divided by their number, or by the sum of the rows' weights, which they give as a second result. Others give several
--- sums, of which `finish` makes the result when the dataset is through.
--- Neither batch size nor ranks change a result.
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local BCELoss = require "mslua.nn.loss.bce"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local M = {}

-- Raises the message at the line of the recipe's metrics.
local function fail(...) errors.fail_at({ "eval", "metrics" }, ...) end

-- Numbers in the type that metrics are computed in: float64 stays, all others become float32.
local function wide(x) return x.dtype == "float64" and x or ops.cast(x, "float32") end

-- The mean over all but the first dimension, as float64 where x is, else as float32.
local function by_row(x)
  local rows, axes = wide(x), {}
  for i = 2, #x.shape do axes[i - 1] = i end
  return #axes == 0 and rows or ops.reduce_mean(rows, axes)
end

-- A value, or the values of a table, of this 16-bit type as float32.
local function widened(v, narrow)
  if core.kind(v) then return v.dtype == narrow and ops.cast(v, "float32") or v end
  if type(v) ~= "table" or getmetatable(v) then return v end
  local all = {}
  for key, item in pairs(v) do all[key] = widened(item, narrow) end
  return all
end

-- f(output, label, ...) outside of mixed precision: counts are exact, which 16 bits do not hold above 256.
local function exactly(f)
  return function(output, label, ...)
    local narrow = core.is_tracing() and core.set_amp(nil)
    if not narrow then return f(output, label, ...) end
    local result, weights = f(widened(output, narrow), widened(label, narrow), ...)
    core.set_amp(narrow)
    return result, weights
  end
end

-- The sizes above 1, and 0, of a shape without the dimension `left_out`, if that is given, as a text.
local function sizes(shape, left_out)
  local above = {}
  for i, size in ipairs(shape) do
    if size ~= 1 and i ~= left_out then above[#above + 1] = size end
  end
  return table.concat(above, ",")
end

-- Labels as ids of the wanted shape: floats are rounded, so that a share of 0.9 is a 1.
local function as_ids(labels, shape)
  if labels.dtype:find "float" then labels = ops.floor(labels + 0.5) end
  return ops.reshape(ops.cast(labels, "int32"), shape)
end

local NO_CLASS = -2 ^ 31
local several_classes = "labels of the output's shape are shares of classes, of which one is the largest: for several "
  .. "classes in a row give a function(output, label)"

-- The two logits of each label whose output is one number: 0 and that of the second class.
local function two_classes(output, label)
  local shape = label.shape
  local pair = { unpack(shape) }
  pair[#pair + 1] = 1
  output = ops.reshape(output, pair)
  local zero = ops.cast(ops.less(output, output), output.dtype)  -- of infinities too
  return ops.concat({ zero, output }, -1), as_ids(label, shape)
end

-- Logits [n, .., classes] and ids [n, ..], int32, of an output and its labels:
-- - one number a label ([n], [n, 1], [n, 1, h, w]): the logit of the second of two classes; BCELoss's: its probability;
-- - labels of the output's shape: shares of the classes, of which the largest counts, and where several are the largest
--   the id is NO_CLASS. The third result is then where;
-- - ids, where dimensions of 1 do not matter: classes are along the last dimension, [n, t, c] to labels [n, t], or the
--   second, [n, c, h, w] to labels [n, h, w] or [n, 1, h, w]. Where both fit, images have them along the second, unless
--   the loss takes the last.
local function by_class(output, label, loss_fn)
  if not core.kind(output) or not core.kind(label) then
    fail("metrics: expected a network with one output and one label, got %s and %s: give a function(output, "
      .. "label) for others", errors.show(output), errors.show(label))
  end
  if class.is(loss_fn, BCELoss) then
    output = wide(output)
    output = ops.log(output) - ops.log(1 - output)
  end
  local shape = output.shape
  local rank = #shape
  local one = rank == 1 or shape[rank] == 1 or (rank > 3 and shape[2] == 1)
  if one and output.size == label.size then return two_classes(output, label) end
  local given = label.shape
  local whole = #given == rank and sizes(given) == sizes(shape)
  local last = not whole and sizes(given) == sizes(shape, rank)
  local second = not whole and rank > 2 and sizes(given) == sizes(shape, 2)
  if not whole and not last and not second then
    fail("metrics: an output %s goes with labels of its shape, or of that without the classes, the last "
      .. "dimension or the second; got %s", errors.show(shape), errors.show(given))
  end
  local of_last = class.is(loss_fn, class.Object) and loss_fn.of_classes
  if second and not last or rank > 3 and (whole or second) and not of_last then
    local order = { 1 }
    for i = 3, rank do order[i - 1] = i end
    order[rank] = 2
    output = ops.transpose(output, order)
    if whole then label = ops.transpose(label, order) end
  end
  if whole then
    local largest = ops.equal(label, ops.reduce_max(label, { -1 }, { keep_dims = true }))
    local several = ops.not_equal(ops.reduce_sum(ops.cast(largest, "float32"), { -1 }), 1)
    return output, ops.select(several, NO_CLASS, ops.cast(ops.argmax(label, -1), "int32")), several
  end
  local places = output.shape
  places[rank] = nil
  return output, as_ids(label, places)
end

-- Whether there is no NaN along the last axis: reduce_max gives NaN where there is one.
local function without_nan(x)
  local largest = ops.reduce_max(x, { -1 })
  return ops.equal(largest, largest)
end

-- Of each row the share of its labels for which `right` holds, and how many labels of it count; `ignored`: the label
-- that does not, or nil.
local function share_right(right, labels, ignored)
  if not ignored then return by_row(right) end
  local counts = ops.not_equal(labels, ignored)
  return loss.weighted_rows(wide(ops.logical_and(right, counts)), wide(counts), labels.shape[1])
end

-- argmax gives the place of a NaN, which is no prediction.
local function top1(logits, labels, ignored)
  local first = ops.equal(ops.cast(ops.argmax(logits, -1), "int32"), labels)
  return share_right(ops.logical_and(first, without_nan(logits)), labels, ignored)
end

-- A label counts when it is among the first five: of equal logits the lower class comes first, NaN before all numbers.
-- A label whose own logit is NaN, or that is no class, does not count.
local function top5(logits, labels, ignored)
  local shape = logits.shape
  local classes, column = shape[#shape], labels.shape
  column[#shape] = 1
  local own = ops.greater(ops.one_hot(labels, classes), 0)
  local score = ops.reduce_sum(ops.select(own, logits, 0), { -1 }, { keep_dims = true })
  local lower = ops.less(ops.iota { size = classes }, ops.reshape(labels, column))
  local before = ops.logical_or(ops.logical_not(ops.less_equal(logits, score)),
    ops.logical_and(ops.equal(logits, score), lower))
  local first = ops.less(ops.reduce_sum(ops.cast(before, "float32"), { -1 }), 5)
  local scored = ops.cast(ops.logical_and(own, ops.equal(logits, logits)), "float32")
  return share_right(ops.logical_and(first, ops.greater(ops.reduce_max(scored, { -1 }), 0)), labels, ignored)
end

----------------------------------------------------------------------------------------------- metrics of several sums

-- The mask [n] of rows for each label of ids [n, ..], flat; 0 where the label is `ignored`, if that is not nil.
local function mask_of(ids, mask, ignored)
  local n, flat = mask.shape[1], ops.reshape(ids, { -1 })
  local each = flat.shape[1] / n
  if each > 1 then mask = ops.reshape(ops.broadcast_to(ops.reshape(mask, { n, 1 }), { n, each }), { n * each }) end
  return ignored and mask * ops.cast(ops.not_equal(flat, ignored), mask.dtype) or mask
end

-- Ids [m] of predicted classes and of labels, the labels' mask [m], and the number of classes. A prediction of NaN is
-- of another class than the label.
local function classified(logits, labels, mask, ignored)
  local classes, flat = logits.shape[#logits.shape], ops.reshape(labels, { -1 })
  local predicted = ops.reshape(ops.cast(ops.argmax(logits, -1), "int32"), { -1 })
  local wrong = ops.cast(ops.select(ops.equal(flat, 0), classes - 1, 0), "int32")
  predicted = ops.select(ops.reshape(without_nan(logits), { -1 }), predicted, wrong)
  return predicted, flat, mask_of(labels, mask, ignored), classes
end

-- How often rows of place i, from 0, of the first list have place j in the second, each counted `weights` times:
-- [n, m]. float32 holds the integers up to 2^24.
local function pairs_counted(first, second, n, m, weights)
  local dtype = first.shape[1] > 2 ^ 24 and "float64" or "float32"
  local rows = ops.cast(ops.one_hot(first, n) * ops.reshape(weights, { -1, 1 }), dtype)
  return ops.matmul(rows, ops.cast(ops.one_hot(second, m), dtype), { transpose_a = true })
end

-- How many labels that count are no class.
local function labels_outside(labels, classes, weights)
  local outside = ops.logical_or(ops.less(labels, 0), ops.greater_equal(labels, classes))
  return ops.reduce_sum(weights * ops.cast(outside, weights.dtype))
end

-- How often rows of class i, from 0, were given class j: [c, c].
local function confusion(logits, labels, mask, ignored)
  local predicted, wanted, weights, classes = classified(logits, labels, mask, ignored)
  return { counts = pairs_counted(wanted, predicted, classes, classes, weights),
    outside = labels_outside(wanted, classes, weights) }
end

-- finish(sums) of the metric `name`, where all labels are classes.
local function of_classes(name, finish)
  return function(sums)
    if sums.outside > 0 then
      fail("metrics: %s: %d labels of the dataset are no class: there are %d, from 0 on (ignore_index of the "
        .. "loss leaves a label out; %s)", name, sums.outside, sums.counts and math.sqrt(#sums.counts) or 2,
        several_classes)
    end
    return finish(sums)
  end
end

-- counts[i][j] of a flat list.
local function square(list)
  local c, counts = math.sqrt(#list), {}
  for i = 1, c do
    counts[i] = {}
    for j = 1, c do counts[i][j] = list[(i - 1) * c + j] end
  end
  return counts
end

-- Of class k: how often it was given and right, given, and there.
local function class_counts(counts, k)
  local given, there = 0, 0
  for i = 1, #counts do given, there = given + counts[i][k], there + counts[k][i] end
  return counts[k][k], given, there
end

-- The mean over classes of what `of(right, given, there)` gives; nil: the class does not count.
local function over_classes(of)
  return function(sums)
    local counts, sum, n = square(sums.counts), 0, 0
    for k = 1, #counts do
      local value = of(class_counts(counts, k))
      if value then sum, n = sum + value, n + 1 end
    end
    return n > 0 and sum / n or 0 / 0
  end
end

-- 0 where there is nothing to divide by, as in scikit-learn.
local function share(a, b) return b > 0 and a / b or 0 end

-- A score is a logit. Between -16 and 16 bins are 1/128 wide; beyond, there are 33 for each power of 2. They are
-- counted as a table of 192 by 64.
local HIGH, LOW, RANGE = 192, 64, 16
local INNER, OUTER = 64 * LOW, 64 * LOW  -- bins between -16 and 16, and on each side of them

-- The number of each score's bin, from 0.
local function bin_of(score)
  local inner = ops.maximum(ops.minimum(ops.floor((score + RANGE) * (INNER / (2 * RANGE))), INNER - 1), 0)
  local beyond = ops.floor(ops.log(ops.maximum(ops.abs(score) / RANGE, 1)) * (33 / math.log(2)))
  beyond = ops.minimum(beyond, OUTER - 1)
  return ops.select(ops.greater(score, RANGE), beyond + (OUTER + INNER),
    ops.select(ops.less(score, -RANGE), (OUTER - 1) - beyond, inner + OUTER))
end

local function score_bins(logits, labels, mask, ignored)
  local classes = logits.shape[#logits.shape]
  if classes ~= 2 then
    fail("metrics: auc: expected an output [n, 2], [n, 1] or [n], got %s", errors.show(logits.shape))
  end
  local parts = { ops.split(logits, #logits.shape, 2) }
  local score = ops.reshape(parts[2] - parts[1], { -1 })
  local flat = ops.reshape(labels, { -1 })
  local positive = ops.cast(ops.equal(flat, 1), "float32")
  mask = mask_of(labels, mask, ignored)
  score = wide(score)
  -- NaN is never right: the lowest score of a positive row, the highest of a negative one.
  score = ops.select(ops.equal(score, score), score, ops.cast((0.5 - positive) * math.huge, score.dtype))
  local place = bin_of(score)
  local high = ops.floor(place / LOW)
  local low = ops.cast(place - high * LOW, "int32")
  high = ops.cast(high, "int32")
  return { positive = pairs_counted(high, low, HIGH, LOW, mask * positive),
    negative = pairs_counted(high, low, HIGH, LOW, mask * (1 - positive)), outside = labels_outside(flat, 2, mask) }
end

-- The share of pairs of a positive and a negative row in which the positive one has the higher score; a pair in one bin
-- counts half.
local function area(sums)
  local positives, negatives, above = 0, 0, 0
  for i = 1, HIGH * LOW do
    above = above + sums.positive[i] * (negatives + sums.negative[i] / 2)
    positives, negatives = positives + sums.positive[i], negatives + sums.negative[i]
  end
  return positives * negatives > 0 and above / (positives * negatives) or 0 / 0
end

-- The metrics of logits and ids, as by_class gives them: `classes` gives a share of each row, or sums.
local function of_counts(kind, finish) return { kind = kind, classes = confusion, finish = finish } end
local function of_rows(classes) return { kind = "percent", classes = classes, by_row = true } end
-- Those of numbers: the mean over all elements of f(output - label).
local function of_differences(name, f, map)
  local function rows(output, label)
    label = loss.label_of("metrics: " .. name, output, label)
    return by_row(f(wide(output) - wide(label)))
  end
  return { kind = "mean", rows = rows, map = map }
end

local known = {
  top1 = of_rows(top1), accuracy = of_rows(top1), top5 = of_rows(top5),
  loss = { kind = "mean", of_loss = true },
  perplexity = { kind = "mean", of_loss = true, map = math.exp },
  precision = of_counts("percent", over_classes(function(right, given) return share(right, given) end)),
  recall = of_counts("percent", over_classes(function(right, _, there) return share(right, there) end)),
  f1 = of_counts("percent", over_classes(function(right, given, there) return share(2 * right, given + there) end)),
  iou = of_counts("percent", over_classes(function(right, given, there)
    local union = given + there - right
    return union > 0 and right / union or nil
  end)),
  confusion_matrix = of_counts("matrix", function(sums) return square(sums.counts) end),
  auc = { kind = "mean", classes = score_bins, finish = area },
  mae = of_differences("mae", ops.abs),
  mse = of_differences("mse", ops.square),
  rmse = of_differences("rmse", ops.square, math.sqrt),
}

for name, m in pairs(known) do
  if m.finish then m.finish = of_classes(name, m.finish) end
end

--- Raises where a recipe's names of classes are not as many as the numbers that its network gives.
---@param labels string[]
---@param count integer
function M.check_labels(labels, count)
  if #labels ~= count then
    errors.fail_at_key({ "labels" }, "labels: expected %d names, one for each number that the network gives, got %d",
      count, #labels)
  end
end

--- Whether there is a metric of that name besides those that a recipe defines.
---@param name string
---@return boolean
function M.is_known(name) return known[name] ~= nil end

-- The loss of each row, and the rows' weights where the loss has these; of the whole batch, a scalar, where the loss
-- knows no rows.
local function loss_rows(loss_fn, output, label)
  if type(loss_fn) ~= "function" and loss_fn.rows then return loss_fn:rows(output, label) end
  return (loss_fn(output, label))
end

-- The sums over the rows whose mask is 1: [] of values [n], else flat.
local function sum_over_rows(values, mask)
  -- By choice, not by product: padding may give NaN.
  local counts = ops.greater(mask, 0.5)
  if #values.shape == 1 then return ops.reduce_sum(ops.select(counts, values, 0)) end
  local flat = ops.reshape(values, { values.shape[1], -1 })
  return ops.reduce_sum(ops.select(ops.broadcast_to(ops.reshape(counts, { -1, 1 }), flat.shape), flat, 0), { 1 })
end

--- The sums over the rows of the batch that come from the dataset, of the values and of their weights. A scalar is the
--- mean of all rows.
---@param values Value [n] or [], with weights [n] or [n, k]
---@param weights? Value of the shape of values
---@param n integer rows of the batch
---@return Value
---@return Value? weights
function M.mean_sums(values, weights, n)
  values = wide(values)
  local mask = ops.cast(core.valid_mask(n), values.dtype)
  if #values.shape == 0 then return values * ops.reduce_sum(mask) end
  if not weights then return sum_over_rows(values, mask) end
  weights = ops.cast(weights, values.dtype)
  return sum_over_rows(values * weights, mask), sum_over_rows(weights, mask)
end

--- The name of the output that has the sums of a metric's weights.
---@param name string of the metric
---@return string
function M.weights_name(name) return name .. "/weights" end

-- The mean of a metric's sums. As in the losses, it is 0 where nothing counts.
local function mean_of(found, name, samples)
  local weights, mean = found[M.weights_name(name)], 0
  if not weights then return found[name][1] / samples end
  for k, sum in ipairs(found[name]) do mean = mean + sum / (weights[k] > 0 and weights[k] or 1) end
  return mean
end

-- The key of a user's table of tensors that the name of an output stands for: numbers are those of a list.
local function key_of(part) return tonumber(part:match "^%d+$") or part end

-- The sums over the rows that count of what a user's metric gives: a tensor [n, ..], or a table or list of them.
local function sums_of_rows(name, rows)
  return function(output, label, mask)
    local given, sums = rows(output, label), {}
    if core.kind(given) then given = { value = given } end
    if type(given) ~= "table" or not next(given) then
      fail("metrics: %s.rows: expected a tensor with a row for each of the %d rows, or a table of such, got %s",
        name, mask.shape[1], errors.show(given))
    end
    for key, values in pairs(given) do
      if type(key) ~= "number" and type(key) ~= "string" or key_of(tostring(key)) ~= key then
        fail("metrics: %s.rows: expected a list of tensors, or a table of them by name, got the key %s", name,
          errors.show(key))
      end
      local shape = core.kind(values) and values.shape
      if not shape or #shape < 1 or shape[1] ~= mask.shape[1] then
        fail("metrics: %s.rows: %s: expected a tensor with a row for each of the %d rows, got %s", name, key,
          mask.shape[1], shape and errors.show(shape) or errors.show(values))
      end
      sums[tostring(key)] = sum_over_rows(wide(values), mask)
    end
    return sums
  end
end

local function check_table(name, m)
  if m.compute ~= nil then
    if type(m.compute) ~= "function" or next(m, next(m)) then
      fail("metrics: %s: expected { compute = function(network) ... end } alone, got %s", name, errors.show(m))
    end
    return
  end
  for key in pairs(m) do
    if key ~= "rows" and key ~= "finish" then
      fail("metrics: %s: unknown key '%s', expected rows and finish, or compute", name, tostring(key))
    end
  end
  for _, key in ipairs { "rows", "finish" } do
    if type(m[key]) ~= "function" then
      fail("metrics: %s.%s: expected a function, got %s", name, key, errors.show(m[key]))
    end
  end
end

--- The sums of a batch that a metric needs: name -> tensor.
---@param m table of M.list
---@param output Value
---@param label Value
---@param n integer rows
function M.sums_of(m, output, label, n)
  return m.sums(output, label, ops.cast(core.valid_mask(n), "float32"))
end

--- The results of an evaluation by name, of the sums of all outputs and the number of samples. Of a matrix, lists.
---@param list table of M.list
---@param found table<string, number[]> by the names of outputs
---@param samples integer
---@param network Cell
---@return table<string, any>
function M.finish(list, found, samples, network)
  local results = {}
  for _, m in ipairs(list) do
    if m.compute then
      local value = m.compute(network)
      if type(value) ~= "number" then
        fail("metrics: %s.compute: expected a number, got %s", m.name, errors.show(value))
      end
      results[m.name] = value
    elseif m.finish then
      local sums = {}
      for name, values in pairs(found) do
        local part = name:match("^" .. m.name:gsub("%p", "%%%0") .. "/(.*)$")
        if part then sums[key_of(part)] = #values > 1 and values or values[1] end
      end
      local value = m.finish(sums, samples)
      if type(value) ~= "number" and m.kind ~= "matrix" then
        fail("metrics: %s.finish: expected a number, got %s", m.name, errors.show(value))
      end
      results[m.name] = value
    else
      local mean = mean_of(found, m.name, samples)
      results[m.name] = m.map and m.map(mean) or mean
    end
  end
  return results
end

--- Turns `{"loss", "top1", mine = function(output, label) ... end}` into a list with "loss" first. A metric that is no
--- mean over rows is `{ rows = function(output, label) ... end, finish = function(sums, samples) ... end }`: rows gives
--- a tensor [n, ..], a list of them or a table of them by name. finish gets their sums over the dataset by the same
--- keys, numbers and flat lists of numbers, and makes one number of them (of one tensor: sums.value).
--- `{ compute = function(network) ... end }` gives a number that does not come from the evaluation's batches, such as
--- BLEU of what the network generates.
---@param metrics table
---@param loss_fn Cell?
---@param own_loss boolean whether the network gives the loss: "loss" is that one, and is there where no other metric is
---  measured on the batches
---@return {name: string, kind: "mean"|"percent"|"matrix", own_loss?: boolean, rows?: fun(output, label),
---  map?: fun(mean: number), sums?: function, finish?: fun(sums: table, samples: integer), compute?: function}[]
function M.list(metrics, loss_fn, own_loss)
  local list, given = {}, {}
  local ignored = loss_fn and type(loss_fn) ~= "function" and loss_fn.ignore_index or nil
  local function add(name, entry)
    if given[name] then return end
    given[name] = true
    if entry.of_loss and not loss_fn and not own_loss then
      fail("metrics: %s is measured by the recipe's key loss, or ms.Model's loss_fn, and there is none: "
        .. "give a metric of your own instead, my_%s = %s", name, name, entry.map
        and "{ rows = function(output, label) ... end, finish = function(sums, samples) return math.exp(sums.value / "
        .. "samples) end }, where rows gives the loss of each row"
        or "function(output, label) ... end, which gives the loss of each row")
    end
    local m = { name = name, kind = entry.kind, map = entry.map, finish = entry.finish, compute = entry.compute }
    if entry.of_loss and own_loss then
      m.own_loss = true
    elseif entry.of_loss then
      m.rows = function(output, label) return loss_rows(loss_fn, output, label) end
    elseif entry.classes then
      local of = exactly(function(output, label, ...)
        local logits, ids, several = by_class(output, label, loss_fn)
        local result, weights = entry.classes(logits, ids, ...)
        if several and entry.by_row then result = ops.select(ops.greater(by_row(several), 0), math.huge, result) end
        return result, weights
      end)
      if entry.by_row then
        m.map = function(mean)
          if mean == math.huge then fail("metrics: %s: %s", name, several_classes) end
          return mean
        end
        m.rows = function(output, label) return of(output, label, ignored) end
      else
        m.sums = function(output, label, mask) return of(output, label, mask, ignored) end
      end
    elseif entry.sums then
      m.sums = exactly(entry.sums)
    elseif entry.rows then
      m.rows = exactly(entry.rows)
    end
    list[#list + 1] = m
  end
  local on_batches = false
  for _, m in pairs(metrics) do on_batches = on_batches or type(m) ~= "table" or m.compute == nil end
  if loss_fn or own_loss and not on_batches then add("loss", known.loss) end
  local gap = args.gap(metrics)
  if gap then fail("metrics: item %d: expected a name, got nil", gap) end
  for _, name in ipairs(metrics) do
    if not known[name] then
      fail("metrics: unknown metric %s%s; there are %s, and name = function(output, label) or "
        .. "{ rows =, finish = }", errors.show(name), core.did_you_mean(tostring(name), errors.names(known)),
        table.concat(errors.names(known), ", "))
    end
    add(name, known[name])
  end
  for _, name in ipairs(errors.names(metrics)) do
    local f = metrics[name]
    if given[name] then
      fail("metrics: %s: there is a metric of that name already: give yours another one", name)
    elseif name:find '[%c"\\]' then
      fail("metrics: a name has no quotes, backslashes or control characters, got %s", errors.show(name))
    end
    if type(f) == "table" and not getmetatable(f) then
      check_table(name, f)
      if f.compute then
        add(name, { kind = "mean", compute = f.compute })
      else
        add(name, { kind = "mean", sums = sums_of_rows(name, f.rows), finish = f.finish })
      end
    elseif type(f) ~= "function" then
      fail("metrics: %s: expected function(output, label) giving a number a row, { rows =, finish = } or "
        .. "{ compute = }, got %s", name, errors.show(f))
    else
      add(name, { kind = "mean", rows = function(output, label) return (f(output, label)) end })
    end
  end
  return list
end

return M
