--- nn.LRN: local response normalisation (Krizhevsky et al., "ImageNet classification with deep convolutional neural
--- networks", 2012, section 3.3).
local args = require "mslua.args"
local axis_part = require "mslua.axis_part"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local widened = require("mslua.wide").widened
local Cell = require "mslua.cell"

local LRN = Cell:extend "LRN"

local bind = args.signature("LRN", {
  { "depth_radius", "integer", 5, min = 0, doc = "so many channels on each side count" },
  { "bias", "number", 1, above = 0, doc = "added to the sum" },
  { "alpha", "number", 1, doc = "the factor of the sum of squares; PyTorch's is alpha / size" },
  { "beta", "number", 0.5, doc = "the power of the sum" },
})

--- x / (bias + alpha s)^beta of x [n, c, ..], where s is the sum of the squares of a channel and its neighbours, from
--- depth_radius before to depth_radius after it. PyTorch's LocalResponseNorm(size, alpha, beta, k) of an odd size is
--- LRN((size - 1) / 2, k, alpha / size, beta). (depth_radius = 5, bias = 1, alpha = 1, beta = 0.5)
function LRN:init(...)
  local a = bind(...)
  self.depth_radius, self.bias, self.alpha, self.beta = a.depth_radius, a.bias, a.alpha, a.beta
end

-- x / (bias + alpha s)^beta.
local normalised = widened(function(x, r, bias, alpha, beta)
  local shape, around = x.shape, {}
  for d = 1, #shape do around[d] = d == 2 and r or 0 end
  local squares, sum = ops.pad(x * x, around, around), nil
  for first = 1, 2 * r + 1 do
    local neighbour = axis_part(ops, squares, 2, first, first + shape[2] - 1)
    sum = sum and sum + neighbour or neighbour
  end
  return x / ops.pow(sum * alpha + bias, beta)
end)

function LRN:construct(x)
  if #x.shape < 2 then errors.fail("LRN: x: expected [n, c, ..], got %s", errors.show(x.shape)) end
  return normalised(x, self.depth_radius, self.bias, self.alpha, self.beta)
end

function LRN:extra() return ("radius %d, alpha %g, beta %g"):format(self.depth_radius, self.alpha, self.beta) end

return LRN
