--- Activations as cells: nn.ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU GLU Sigmoid LogSigmoid Tanh Hardtanh HSigmoid
--- HSwish Mish Softplus Softsign PReLU Softmax LogSoftmax Identity.
local args = require "mslua.args"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local M = {}

for name, operator in pairs {
  ReLU = "relu", SiLU = "silu", Sigmoid = "sigmoid", Tanh = "tanh", HSigmoid = "hsigmoid", HSwish = "hswish",
  Mish = "mish", Softplus = "softplus",
} do
  local Activation = Cell:extend(name)
  Activation.doc = ("The operator ops.%s as a cell."):format(operator)
  function Activation:construct(x) return ops[operator](x) end
  M[name] = Activation
end

M.GELU = Cell:extend "GELU"
local bind_gelu = args.signature("GELU", {
  { "approximate", "boolean", true,
    doc = "true: the tanh formula, as in MindSpore; false: the normal distribution function, as in PyTorch" },
})

--- x times the probability that a standard normal number is below x. `approximate`: the tanh formula (MindSpore's
--- default); false: x times the normal distribution function.
function M.GELU:init(...) self.approximate = bind_gelu(...).approximate end
function M.GELU:construct(x) return ops.gelu(x, { approximate = self.approximate }) end

--- x limited to the range from 0 to 6; the gradient at 0 and at 6 is 0.
M.ReLU6 = Cell:extend "ReLU6"
function M.ReLU6:construct(x) return ops.hardtanh(x, 0, 6) end

--- Gives what it gets.
M.Identity = Cell:extend "Identity"
M.Identity._takes_any = true
function M.Identity:construct(x) return x end

M.LeakyReLU = Cell:extend "LeakyReLU"
local bind_leaky = args.signature("LeakyReLU", {
  { "alpha", "number", 0.2, min = 0, doc = "the slope where x is 0 or less; PyTorch's default is 0.01" },
})

--- x where it is above 0, alpha x elsewhere (PyTorch's default is 0.01). (alpha = 0.2)
function M.LeakyReLU:init(...) self.alpha = bind_leaky(...).alpha end
function M.LeakyReLU:construct(x) return ops.leaky_relu(x, self.alpha) end
function M.LeakyReLU:extra() return "alpha " .. self.alpha end

M.PReLU = Cell:extend "PReLU"
local bind_prelu = args.signature("PReLU", {
  { "channel", "integer", 1, min = 1,
    doc = "how many slopes are learned: 1 for all elements, or one for each channel of x [n, channel, ...]" },
  { "w", "number", 0.25, doc = "the initial value of each slope" },
})

--- x where it is above 0, w x elsewhere; w is learned: one number, or one for each channel of x [n, channel, ...].
--- (channel = 1, w = 0.25, where it begins)
function M.PReLU:init(...)
  local given = bind_prelu(...)
  self.channel = given.channel
  self:parameter("weight", { given.channel }, given.w)
end
function M.PReLU:construct(x) return ops.prelu(x, self.weight) end
function M.PReLU:extra() return "channel " .. self.channel end

M.ELU = Cell:extend "ELU"
local bind_elu = args.signature("ELU", {
  { "alpha", "number", 1, min = 0, doc = "the factor of exp(x) - 1; the result is at least -alpha" },
})

--- x where it is above 0, alpha (exp(x) - 1) elsewhere. (alpha = 1)
function M.ELU:init(...) self.alpha = bind_elu(...).alpha end
function M.ELU:construct(x) return ops.elu(x, self.alpha) end

--- ELU with the two numbers that keep mean 0 and variance 1 from layer to layer (Klambauer et al., 2017): 1.0507 x
--- where x is above 0, 1.7581 (exp(x) - 1) elsewhere.
M.SELU = Cell:extend "SELU"
function M.SELU:construct(x) return ops.selu(x) end

M.CELU = Cell:extend "CELU"
local bind_celu = args.signature("CELU", {
  { "alpha", "number", 1, above = 0, doc = "the factor of exp(x / alpha) - 1; the result is at least -alpha" },
})

--- x where it is above 0, alpha (exp(x / alpha) - 1) elsewhere (Barron, 2017). (alpha = 1)
function M.CELU:init(...) self.alpha = bind_celu(...).alpha end
function M.CELU:construct(x) return ops.celu(x, self.alpha) end
function M.CELU:extra() return "alpha " .. self.alpha end

--- log(1 / (1 + exp(-x))), exact for every x.
M.LogSigmoid = Cell:extend "LogSigmoid"
function M.LogSigmoid:construct(x) return ops.logsigmoid(x) end

--- x / (1 + abs(x)).
M.Softsign = Cell:extend "Softsign"
function M.Softsign:construct(x) return ops.softsign(x) end

M.Hardtanh = Cell:extend "Hardtanh"
local bind_hardtanh = args.signature("Hardtanh", {
  { "min_val", "number", -1, doc = "the smallest result; less than max_val" },
  { "max_val", "number", 1, doc = "the largest result" },
})

--- x limited to the range from min_val to max_val; the gradient at both is 0. (min_val = -1, max_val = 1)
function M.Hardtanh:init(...)
  local a = bind_hardtanh(...)
  if a.min_val >= a.max_val then
    errors.fail("Hardtanh: min_val: expected less than max_val = %g, got %g", a.max_val, a.min_val)
  end
  self.min_val, self.max_val = a.min_val, a.max_val
end
function M.Hardtanh:construct(x) return ops.hardtanh(x, self.min_val, self.max_val) end
function M.Hardtanh:extra() return ("%g to %g"):format(self.min_val, self.max_val) end

M.GLU = Cell:extend "GLU"
local bind_glu = args.signature("GLU", {
  { "axis", "integer", -1, doc = "the axis of even size that is split in two, from 1; -1: the last" },
})

--- a sigmoid(b) of the two halves a and b of x along an axis, whose size is even (Dauphin et al., 2017). (axis = -1)
function M.GLU:init(...) self.axis = bind_glu(...).axis end
function M.GLU:construct(x) return ops.glu(x, self.axis) end
function M.GLU:extra() return "axis " .. self.axis end

for name, operator in pairs { Softmax = "softmax", LogSoftmax = "log_softmax" } do
  local Activation = Cell:extend(name)
  local bind = args.signature(name, {
    { "axis", "integer", -1, doc = "the axis along which the probabilities add up to 1, from 1; -1: the last" },
  })
  Activation.doc = ("The operator ops.%s along one axis as a cell."):format(operator)
  function Activation:init(...) self.axis = bind(...).axis end
  function Activation:construct(x) return ops[operator](x, self.axis) end
  function Activation:extra() return "axis " .. self.axis end
  M[name] = Activation
end

return M
