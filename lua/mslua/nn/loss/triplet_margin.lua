--- Whether an anchor is nearer to a positive example than to a negative one.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local TripletMarginLoss = loss.Loss:extend "TripletMarginLoss"
local bind = args.signature("TripletMarginLoss", {
  { "p", "number", 2, min = 1, doc = "the norm of a difference; 2 is the Euclidean one" },
  { "swap", "boolean", false, doc = "the distance of positive and negative counts where it is the smaller one" },
  { "eps", "number", 1e-6, above = 0, doc = "added to each difference, so that the norm has a derivative" },
  loss.reduction "mean",
  { "margin", "number", 1, above = 0, doc = "how much farther the negative example is to be than the positive one" },
})

--- max(0, d(x, positive) - d(x, negative) + margin) of three tensors [n, size], where d is the p-norm of the difference
--- plus eps; with swap the smaller of d(x, negative) and d(positive, negative) counts. A network gives the three in a
--- table, {x, positive, negative}; a label beside it does not count. (p = 2, swap = false, eps = 1e-6, reduction =
--- "mean", margin = 1)
function TripletMarginLoss:init(...)
  local a = bind(...)
  self.p, self.swap, self.eps, self.reduction, self.margin = a.p, a.swap, a.eps, a.reduction, a.margin
end

function TripletMarginLoss:distance(a, b)
  return ops.pairwise_distance(a, b, self.p, self.eps)
end

function TripletMarginLoss:each(x, positive, negative)
  if not core.kind(x) or not core.kind(positive) or not core.kind(negative) then
    errors.fail("TripletMarginLoss: expected three tensors: x, positive and negative")
  end
  loss.check_shape("TripletMarginLoss", positive, x.shape, x)
  loss.check_shape("TripletMarginLoss", negative, x.shape, x)
  x, positive, negative = loss.wide(x), loss.wide(positive), loss.wide(negative)
  local near, far = self:distance(x, positive), self:distance(x, negative)
  if self.swap then far = ops.minimum(far, self:distance(positive, negative)) end
  return ops.maximum(near - far + self.margin, 0)
end

--- (x, positive, negative), or ({x, positive, negative}, label).
function TripletMarginLoss:construct(x, positive, negative)
  if type(x) == "table" then x, positive, negative = x[1], x[2], x[3] end
  return self:reduce(self:each(x, positive, negative))
end

function TripletMarginLoss:rows(output)
  if type(output) ~= "table" then output = { output } end
  return loss.over_rows(self:each(output[1], output[2], output[3]), self.reduction)
end

return TripletMarginLoss
