--- Activations as cells: nn.ReLU GELU SiLU Sigmoid Tanh Softmax LogSoftmax.
local args = require "mslua.args"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local M = {}

for name, operator in pairs { ReLU = "relu", SiLU = "silu", Sigmoid = "sigmoid", Tanh = "tanh" } do
  local Activation = Cell:extend(name)
  function Activation:construct(x) return ops[operator](x) end
  M[name] = Activation
end

M.GELU = Cell:extend "GELU"
local bind_gelu = args.signature("GELU", { { "approximate", "boolean", true } })

--- `approximate`: the tanh formula (MindSpore's default); false: x times the normal distribution function.
function M.GELU:init(...) self.approximate = bind_gelu(...).approximate end
function M.GELU:construct(x) return ops.gelu(x, { approximate = self.approximate }) end

for name, operator in pairs { Softmax = "softmax", LogSoftmax = "log_softmax" } do
  local Activation = Cell:extend(name)
  local bind = args.signature(name, { { "axis", "integer", -1 } })
  function Activation:init(...) self.axis = bind(...).axis end
  function Activation:construct(x) return ops[operator](x, self.axis) end
  function Activation:extra() return "axis " .. self.axis end
  M[name] = Activation
end

return M
