--- nn.Dense: y = x W^T + b over the last dimension.
local args = require "mslua.args"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local Dense = Cell:extend "Dense"

-- An adapter of nn.LoRA: its parameters are named as this cell's own.
Dense.transparent = { lora = true }

local bind = args.signature("Dense", {
  { "in_channels", "integer", required = true, min = 1, doc = "size of the last dimension of x, in" },
  { "out_channels", "integer", required = true, min = 1, doc = "size of the last dimension of the result, out" },
  { "weight_init", "initializer", { "he_uniform", negative_slope = math.sqrt(5) },
    doc = "the initial weight [out, in]; default: uniform in +-1/sqrt(in), as in MindSpore 2 and PyTorch" },
  { "bias_init", "initializer", doc = "the initial bias [out]; default: uniform in +-1/sqrt(in)" },
  { "has_bias", "boolean", true, doc = "a bias is added" },
  { "activation", "cell", doc = "a cell that is applied to the result, nn.ReLU(); MindSpore takes a name too" },
})

--- A fully connected layer, y = x W^T + b over the last dimension: `nn.Dense(128, 10)`. weight [out, in] and bias [out]
--- begin uniform in +-1/sqrt(in) (MindSpore 2).
---@param ... any in_channels, out_channels, weight_init, bias_init, has_bias, activation (a Cell)
function Dense:init(...)
  local a = bind(...)
  self.in_channels, self.out_channels = a.in_channels, a.out_channels
  self:parameter("weight", { a.out_channels, a.in_channels }, a.weight_init)
  if a.has_bias then
    self:parameter("bias", { a.out_channels }, a.bias_init or { "uniform", scale = 1 / math.sqrt(a.in_channels) })
  end
  self.op = ops.MatMul { transpose_b = true }
  self.activation = a.activation
end

--- x [.., in] gives [.., out].
function Dense:construct(x)
  local shape = x.shape
  if shape[#shape] ~= self.in_channels then
    errors.fail("Dense: in_channels is %d, the last dimension of x is %s: x is %s", self.in_channels,
      shape[#shape] or "missing", errors.show(shape))
  end
  local rows = #shape == 2 and x or ops.reshape(x, { -1, shape[#shape] })
  local y = self.op(rows, self.weight)
  if self.bias then y = y + self.bias end
  if self.lora then y = y + self.lora(rows) end
  if #shape ~= 2 then
    shape[#shape] = self.out_channels
    y = ops.reshape(y, shape)
  end
  return self.activation and self.activation(y) or y
end

function Dense:extra()
  return ("%d -> %d%s"):format(self.in_channels, self.out_channels, self.bias and "" or ", no bias")
end

return Dense
