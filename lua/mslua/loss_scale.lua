--- Loss scaling for 16-bit gradients (mindspore.amp): the loss is multiplied, gradients are divided again before the
--- update.
local args = require "mslua.args"
local class = require "mslua.class"

local M = {}

local Manager = class.Object:extend "LossScaleManager"
Manager.__index = Manager
args.kind("loss_scale", function(v) return class.is(v, Manager) end,
  "a loss scale manager such as ms.FixedLossScaleManager(1024)")

local bind_fixed = args.signature("FixedLossScaleManager", {
  { "loss_scale", "number", 128, above = 0, doc = "the loss is multiplied by it, and the gradients divided" },
})

M.FixedLossScaleManager = Manager:extend "FixedLossScaleManager"

--- Multiplies the loss by a constant scale; a step whose gradients are not finite updates nothing. (loss_scale = 128)
function M.FixedLossScaleManager:init(...)
  self.spec = { kind = "fixed", value = bind_fixed(...).loss_scale }
end

local bind_dynamic = args.signature("DynamicLossScaleManager", {
  { "init_loss_scale", "number", 2 ^ 24, above = 0, doc = "the scale of the first step" },
  { "scale_factor", "number", 2, above = 1,
    doc = "the scale is divided by it after gradients that are not finite, multiplied by it after scale_window steps" },
  { "scale_window", "integer", 2000, min = 1, unit = "steps",
    doc = "steps with finite gradients, one after the other, before the scale grows" },
})

M.DynamicLossScaleManager = Manager:extend "DynamicLossScaleManager"

--- Multiplies the loss by a scale that is divided by scale_factor when gradients are not finite, multiplied by it after
--- scale_window good steps.
function M.DynamicLossScaleManager:init(...)
  local a = bind_dynamic(...)
  self.spec = { kind = "dynamic", value = a.init_loss_scale, factor = a.scale_factor, window = a.scale_window }
end

return M
