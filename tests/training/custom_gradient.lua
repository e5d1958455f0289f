-- A network of cells with a bprop that returns the usual gradients (own = true), or without it (own = false): the
-- losses are the same. Every rank writes its losses with all digits into the file `losses`, its number added.
local core = require "mslua.core"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local p = ms.params {
  own = true, losses = "losses", mode = "stand_alone", stages = 0, dtype = "float64",
  accumulate = 1, amp = false, recompute = false, strategies = false, loss_scale = 0, batch_size = 32,
  tied = false,    -- the last block has the weights of the first
  extras = false,  -- bprop reads a parameter and random numbers that construct does not
  clip = 0,        -- the largest norm of the gradient of a whole batch within a cell
}

local Product = nn.Cell:extend "Product"
function Product:init() self.matmul = ops.MatMul() end
function Product:construct(x, w) return self.matmul(x, w) end

local Squash = nn.Cell:extend "Squash"
function Squash:construct(x) return ops.tanh(x), ops.sigmoid(x) end

-- Each row over its length: statistics within the cell.
local Direction = nn.Cell:extend "Direction"
function Direction:init()
  if p.extras then self.one = ms.Parameter(ms.ones({ 16 }, p.dtype), { requires_grad = false }) end
end
function Direction:construct(x) return x / ops.sqrt((x * x):sum(2):reshape { -1, 1 } + 1) end

if p.own then
  function Product:bprop(x, w, out, dout)
    return ops.matmul(dout, w, { transpose_b = true }), ops.matmul(x, dout, { transpose_a = true })
  end
  function Squash:bprop(x, out, dout)
    return dout[2] * (out[2] * (1 - out[2])) + dout[1] * (1 - out[1] * out[1])
  end
  function Direction:bprop(x, out, dout)
    local length = ops.sqrt((x * x):sum(2):reshape { -1, 1 } + 1)
    if p.clip > 0 then dout = dout / ops.maximum(ops.sqrt((dout * dout):sum()) / p.clip, 1) end
    if p.extras then
      local random = ops.random_uniform { shape = x.shape }
      dout = dout * self.one * ops.cast(ops.greater(random, -1), p.dtype)
    end
    return (dout - out * (dout * out):sum(2):reshape { -1, 1 }) / length
  end
end

local Block = nn.Cell:extend "Block"
function Block:init(name)
  self.w = ms.Parameter(ms.randn({ 16, 16 }, p.dtype, name) * 0.3)
  self.product, self.squash, self.direction = Product(), Squash(), Direction()
  if p.strategies then self.product.matmul:shard { { 2, 1 }, { 1, 2 } } end
  if p.recompute then self.squash:recompute() end
end
function Block:construct(x, w)
  local tanh, sigmoid = self.squash(self.product(x, w or self.w))
  return self.direction(x + tanh * sigmoid)
end

local Net = nn.Cell:extend "Net"
function Net:init()
  self.blocks = nn.CellList {}
  for i = 1, 4 do
    local block = Block("w" .. i)
    if p.stages > 0 then block.pipeline_stage = math.floor((i - 1) * p.stages / 4) end
    self.blocks:append(block)
  end
  self.head = ms.Parameter(ms.randn({ 16, 1 }, p.dtype, "head"))
end
function Net:construct(x)
  for i, block in self.blocks:each() do x = block(x, p.tied and i == 4 and self.blocks[1].w or nil) end
  return ops.matmul(x, self.head)
end

local Losses = ms.Callback:extend "Losses"
function Losses:on_train_step_end(state)
  self.file = self.file or assert(io.open(p.losses .. "." .. core.options.rank, "w"))
  self.file:write(("%.17g\n"):format(state.loss))
  self.file:flush()
end

return ms.recipe {
  name = "custom_gradient",
  seed = 1,
  dataset = function()
    local x, y = ms.randn({ 256, 16 }, p.dtype, "x"), ms.randn({ 256, 1 }, p.dtype, "y")
    return ms.dataset.NumpySlicesDataset({ x, y }, { "x", "y" }):batch(p.batch_size, { drop_remainder = true })
  end,
  network = function() return p.stages > 0 and nn.PipelineCell(Net(), 4) or Net() end,
  loss = nn.MSELoss(),
  optimizer = nn.Momentum { learning_rate = 0.05, momentum = 0.9 },
  train = {
    epochs = 2, accumulate_steps = p.accumulate, amp = p.amp and "bf16" or nil,
    loss_scale = p.loss_scale > 0 and ms.FixedLossScaleManager(p.loss_scale) or nil,
  },
  parallel = p.stages > 0 and { parallel_mode = p.mode, pipeline_stages = p.stages }
    or { parallel_mode = p.mode, gradients_mean = p.mode == "data_parallel" or nil },
  callbacks = { Losses() },
}
