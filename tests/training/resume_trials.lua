-- A random training for resume_trials.sh: `draw` and `mode` decide everything, on all ranks alike. Each rank appends
-- "<step> <loss>" to <out>.<rank> after each step. `own`: each rank saves into a directory of its own.
local ms = require "mslua"
local core = require "mslua.core"
local nn, ops = ms.nn, ms.ops

local p = ms.params { draw = 1, mode = "single", out = "", own = false }
local ranks = ms.communication.get_group_size()
math.randomseed(p.draw)
local random = math.random
for _ = 1, 10 do random() end -- neighbouring seeds begin alike
local function one_of(...) return (select(random(select("#", ...)), ...)) end
local function chance(x) return random() < x end

local WIDTH, ROWS, STEPS = 32, 24, 10 -- ROWS of a global batch; STEPS of an epoch
local cuts = p.mode == "semi" or p.mode == "auto" or p.mode:match "^level" or p.mode:match "^pipeline"
local stages = tonumber(p.mode:match "^pipeline(%d)") or 1
local layerwise = p.mode == "hybrid"
local amp, dropout, norm = chance(0.35) and "bf16" or nil, chance(0.4), chance(0.6)
local accumulate = stages == 1 and one_of(1, 1, 2) or 1
local empty = stages > 1 and chance(0.4) and random(0, stages - 1) or nil -- a stage without parameters
local layers = math.max(stages, random(2, 4))

local Layer = nn.Cell:extend "Layer"
function Layer:init(stage, strategy)
  self.fc = nn.Dense(WIDTH, WIDTH, { weight_init = "xavier_uniform" })
  if norm then self.norm = nn.BatchNorm1d(WIDTH) end
  if dropout then self.drop = nn.Dropout { p = 0.2 } end
  if layerwise then self:parameter("own", { WIDTH }, "ones", { layerwise_parallel = true }) end
  self.matmul, self.pipeline_stage = ops.MatMul(), stage
  self:parameter("w", { WIDTH, WIDTH }, "xavier_uniform")
  if strategy then self.matmul:shard(strategy) end
end
function Layer:construct(x)
  local h = self.fc(x)
  if self.norm then h = self.norm(h) end
  if self.own then h = h * self.own end
  h = ops.tanh(h)
  if self.drop then h = self.drop(h) end
  return x + self.matmul(h, self.w)
end

local Empty = nn.Cell:extend "Empty"
function Empty:init(stage) self.pipeline_stage = stage end
function Empty:construct(x) return ops.tanh(x) end

local cells = {}
for i = 1, layers do
  local stage = stages > 1 and math.floor((i - 1) * stages / layers) or nil
  local strategy
  if p.mode == "semi" and chance(0.7) then
    strategy = one_of({ { ranks, 1 }, { 1, 1 } }, { { 1, 1 }, { 1, ranks } }, { { 1, ranks }, { ranks, 1 } })
    if WIDTH % ranks ~= 0 then strategy = { { ranks, 1 }, { 1, 1 } } end
  end
  cells[i] = { stage = stage, strategy = strategy }
end

local Net = nn.Cell:extend "Net"
function Net:init()
  for i, cell in ipairs(cells) do
    local hollow = empty and cell.stage == empty
    self["l" .. i] = hollow and Empty(cell.stage) or Layer(cell.stage, cell.strategy)
  end
end
function Net:construct(x)
  for i = 1, layers do x = self["l" .. i](x) end
  return x
end

local function data(name, batches, batch)
  local x = ms.randn({ ROWS * batches, WIDTH }, "float32", name)
  local y = ops.tanh(x * 0.7 + 0.3)
  return ms.dataset.NumpySlicesDataset({ x, y }, { column_names = { "x", "y" } }):batch(batch)
end

local optimizer = one_of(
  function() return nn.Momentum { learning_rate = 0.02, momentum = 0.9, weight_decay = 0.001 } end,
  function() return nn.Adam { learning_rate = 0.003 } end,
  function() return nn.Adam { learning_rate = 0.003, use_amsgrad = true, use_nesterov = true } end,
  function() return nn.AdamWeightDecay { learning_rate = 0.003, weight_decay = 0.01 } end,
  function() return nn.Lamb { learning_rate = 0.01 } end,
  function() return nn.SGD { learning_rate = 0.05 } end)
local clip = one_of("norm", "norm", "value", "none")
local scale = chance(0.35) and ms.DynamicLossScaleManager(2 ^ one_of(10, 20, 126), 2, random(3, 20)) or nil
local slices = p.mode == "slices" or p.mode == "pairs" or p.mode:match "^level" ~= nil or layerwise and chance(0.4)

local parallel
if ranks > 1 then
  parallel = { parallel_mode = layerwise and "hybrid_parallel" or cuts and "semi_auto_parallel" or "data_parallel" }
  if p.mode == "auto" then
    parallel.parallel_mode = "auto_parallel"
    parallel.search_mode = one_of("recursive_programming", "sharding_propagation", "dynamic_programming")
  end
  if not cuts then parallel.gradients_mean = chance(0.7) end
  if stages > 1 then parallel.pipeline_stages = stages end
  if slices then
    parallel.enable_parallel_optimizer = true
    parallel.parallel_optimizer_config = { parallel_optimizer_threshold = 1, optimizer_level = p.mode:match "^level%d" }
    if p.mode == "pairs" then parallel.optimizer_weight_shard_size = 2 end
  end
end

local Losses = ms.Callback:extend "Losses"
function Losses:on_train_step_end(s)
  self.file = self.file or assert(io.open(p.out .. "." .. core.options.rank, "a"))
  self.file:write(("%d %.17g\n"):format(s.global_step, s.loss))
  self.file:flush()
end

-- All draws come before a rank does anything of its own.
local save = { prefix = "t", save_checkpoint_steps = random(3, 15), async_save = chance(0.5),
  integrated_save = chance(0.7), keep_checkpoint_max = random(1, 4) }
if p.own then save.directory = ("%s/ckpt/rank_%d"):format(core.options.out, core.options.rank) end
local every = one_of(0, 7, 20)
local seed = random(1, 1000)
if core.options.rank == 0 then
  print(("draw %d: %s on %d: amp %s, dropout %s, batch norm %s, accumulate %d, clip %s, loss scale %s, slices %s, "
    .. "%d layers, empty stage %s, save every %d, async %s, eval every %d"):format(p.draw, p.mode, ranks, tostring(amp),
    tostring(dropout), tostring(norm), accumulate, clip, tostring(scale ~= nil), tostring(slices), layers,
    tostring(empty), save.save_checkpoint_steps, tostring(save.async_save), every))
end

local share = stages > 1 and ranks / stages or ranks
return ms.recipe {
  name = "trial", seed = seed,
  network = function() return stages > 1 and nn.PipelineCell(Net(), 4) or Net() end,
  loss = nn.MSELoss(), optimizer = optimizer,
  dataset = function() return data("train", STEPS, ROWS / share):shuffle(ROWS * STEPS) end,
  eval_dataset = every > 0 and function() return data("eval", 2, cuts and ROWS or ROWS / share) end or nil,
  train = {
    epochs = 6, amp = amp, accumulate_steps = accumulate, clip_norm = clip == "norm" and 0.2 or nil,
    clip_value = clip == "value" and 0.01 or nil, loss_scale = scale,
  },
  eval = { every_epochs = 0, every_steps = every },
  callbacks = { Losses() }, checkpoint = save, parallel = parallel,
}
