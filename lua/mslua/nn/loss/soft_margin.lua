--- The logistic loss of labels 1 and -1.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local ops = require "mslua.ops"

local SoftMarginLoss = loss.Elementwise:extend "SoftMarginLoss"
local bind = args.signature("SoftMarginLoss", { loss.reduction "mean" })

--- log(1 + exp(-y x)) of the output x and labels y, which are 1 or -1. (reduction = "mean")
function SoftMarginLoss:init(...) self.reduction = bind(...).reduction end
function SoftMarginLoss:each(output, label) return ops.softplus(-(output * label)) end

return SoftMarginLoss
