--- Dice loss of masks.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local DiceLoss = loss.Loss:extend "DiceLoss"
local bind = args.signature("DiceLoss", {
  { "smooth", "number", 1e-5, above = 0, doc = "added to the divisor, so that it is never 0" },
})

--- 1 - 2 sum(x y) / (sum(x^2) + sum(y^2) + smooth) of probabilities x and a mask y of one shape (Milletari et al.,
--- 2016), over the whole batch; evaluation takes each row by itself. (smooth = 1e-5)
function DiceLoss:init(...) self.smooth = bind(...).smooth end
function DiceLoss:extra() return ("smooth = %g"):format(self.smooth) end

-- 1 - the coefficient, of values [n, k].
local function dice(x, y, smooth)
  local both = ops.reduce_sum(x * y, { 2 })
  return 1 - 2 * both / (ops.reduce_sum(x * x, { 2 }) + ops.reduce_sum(y * y, { 2 }) + smooth)
end

function DiceLoss:rows(x, y)
  y = loss.label_of("DiceLoss", x, y)
  local n = x.shape[1]
  return dice(ops.reshape(loss.wide(x), { n, -1 }), ops.reshape(loss.wide(y), { n, -1 }), self.smooth)
end

function DiceLoss:construct(x, y)
  y = loss.label_of("DiceLoss", x, y)
  local one = dice(ops.reshape(loss.wide(x), { 1, -1 }), ops.reshape(loss.wide(y), { 1, -1 }), self.smooth)
  return ops.reduce_sum(one, { 1 })
end

return DiceLoss
