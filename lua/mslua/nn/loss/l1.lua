--- Mean absolute error.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local L1Loss = loss.Elementwise:extend "L1Loss"
local bind_l1 = args.signature("L1Loss", { loss.reduction "mean" })

--- Absolute difference, averaged. (reduction = "mean")
function L1Loss:init(...) self.reduction = bind_l1(...).reduction end
function L1Loss:each(output, label) return ops.abs(output - label) end

return L1Loss
