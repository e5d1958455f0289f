--- Mean squared error.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local MSELoss = loss.Elementwise:extend "MSELoss"
local bind_mse = args.signature("MSELoss", { loss.reduction "mean" })

--- Squared difference, averaged. (reduction = "mean")
function MSELoss:init(...) self.reduction = bind_mse(...).reduction end

function MSELoss:each(output, label)
  local difference = loss.wide(output) - loss.wide(label)
  return difference * difference
end

--- Elementwise with reduction "none", as MindSpore's.
function MSELoss:construct(output, label)
  label = loss.label_of("MSELoss", output, label)
  return ops.mse_loss(output, label, { reduction = self.reduction })
end

return MSELoss
