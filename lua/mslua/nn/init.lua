--- ms.nn: cells, losses, optimizers and learning rates.
local core = require "mslua.core"

local nn = {}

nn.Cell = require "mslua.cell"
nn.LoRA = require "mslua.nn.lora"

local function take(module, ...)
  for _, name in ipairs { ... } do nn[name] = assert(module[name], name) end
end

take(require "mslua.containers", "CellList", "SequentialCell")
-- A file of cells/ gives a cell, or cells by their names. They take a tensor first, but for those that say otherwise.
for _, name in ipairs(core.library_modules "mslua.nn.cells.") do
  local made = require(name)
  for cell, class in pairs(made.class_name and { [made.class_name] = made } or made) do
    nn[cell] = class
    if not class._takes_any then nn.Cell._expects_tensor(class) end
  end
end
nn.Loss = require("mslua.nn.loss").Loss
for _, name in ipairs(core.library_modules "mslua.nn.loss.") do
  local loss = require(name)
  nn[loss.class_name] = loss
end
require "mslua.nn.loss_functions"(require "mslua.ops")
for name, made in pairs(require("mslua.optimizer").classes) do nn[name] = made end
for name, make in pairs(require("mslua.schedules").functions) do nn[name] = make end
take(require "mslua.nn.wrap", "WithLossCell", "TrainOneStepCell", "PipelineCell")

return require("mslua.namespace").strict("ms.nn", nn)
