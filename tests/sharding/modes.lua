-- A recipe of the library small and without batch statistics, in float64 or float32; every rank writes its losses with
-- all digits. Variables: MODES_RECIPE (path), MODES_DTYPE, MODES_LOSSES (path; the rank's number is added),
-- MODES_STAGES (pipeline stages, with two micro-batches for each; 0: no pipeline).
local core = require "mslua.core"
local ms = require "mslua"
local nn = ms.nn
local dtype = os.getenv "MODES_DTYPE"

-- Parameters and states of the wanted type, whatever the cells ask for.
for _, name in ipairs { "parameter", "state" } do
  local make = core[name]
  core[name] = function(spec)
    spec.dtype = dtype
    return make(spec)
  end
end

-- A rank's own batch has statistics of its own; groups of channels have not.
nn.BatchNorm2d = function(channels) return nn.GroupNorm(2, channels) end

local recipe = dofile(os.getenv "MODES_RECIPE")

-- Images come as float32.
local Wide = nn.Cell:extend "Wide"
function Wide:init(net) self.net = net end
function Wide:construct(x, ...) return self.net(x.dtype == "float32" and x:astype(dtype) or x, ...) end
local make_network = recipe.network
recipe.network = function() return Wide(make_network()) end

-- The first cell and the first blocks are of stage 0, and so on; the rest comes where its inputs are.
local function in_stages(net, stages)
  local blocks = {}
  for i = 1, net.blocks and net.config.layers or net.stages do
    blocks[i] = net.blocks and net.blocks[i] or net["layer" .. i]
  end
  for i, block in ipairs(blocks) do block.pipeline_stage = math.floor((i - 1) * stages / #blocks) end
  local first = net.tokens or net.conv1
  first.pipeline_stage = 0
end

local stages = tonumber(os.getenv "MODES_STAGES")
if stages > 0 then
  recipe.network = function()
    local net = make_network()
    in_stages(net, stages)
    return nn.PipelineCell(Wide(net), 2 * stages)
  end
end

local Losses = ms.Callback:extend "Losses"
function Losses:on_train_step_end(state)
  self.file = self.file or assert(io.open(os.getenv "MODES_LOSSES" .. "." .. core.options.rank, "w"))
  self.file:write(("%.17g\n"):format(state.loss))
  self.file:flush()
end
recipe.callbacks = { Losses() }
return recipe
