-- Layers of a matrix product, a sum and a relu, each sharded as a letter of `cuts` says: by (d)ata, by (c)olumns of the
-- weight, by its (r)ows, or not at all (w). With `times` rank 0 writes what each step took, in seconds.
local core = require "mslua.core"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local p = ms.params { width = 768, batch = 256, cuts = "dddd", parts = 2, times = "" }

-- Of the product's inputs, and of its result where the sum and the relu take it.
local function strategies_of(cut)
  local n = p.parts
  if cut == "d" then return { { n, 1 }, { 1, 1 } }, { n, 1 } end
  if cut == "c" then return { { 1, 1 }, { 1, n } }, { 1, n } end
  if cut == "r" then return { { 1, n }, { n, 1 } }, { n, 1 } end
  return { { 1, 1 }, { 1, 1 } }, { 1, 1 }
end

local Layer = nn.Cell:extend "Layer"
function Layer:init(cut)
  local product, result = strategies_of(cut)
  self.w = self:parameter("w", { p.width, p.width }, "xavier_uniform")
  self.b = self:parameter("b", { p.width }, "zeros")
  self.matmul = ops.MatMul():shard(product)
  self.add = ops.Add():shard { result, { result[2] } }
  self.relu = ops.ReLU():shard { result }
end
function Layer:construct(x) return self.relu(self.add(self.matmul(x, self.w), self.b)) end

local Net = nn.Cell:extend "Net"
function Net:init()
  self.layers = nn.CellList()
  for i = 1, #p.cuts do self.layers:append(Layer(p.cuts:sub(i, i))) end
end
function Net:construct(x)
  for i = 1, #p.cuts do x = self.layers[i](x) end
  return x
end

local Times = ms.Callback:extend "Times"
function Times:on_train_step_end()
  if p.times == "" or core.options.rank ~= 0 then return end
  local now = core.clock()
  if self.last then
    self.file = self.file or assert(io.open(p.times, "w"))
    self.file:write(("%.9f\n"):format(now - self.last))
    self.file:flush()
  end
  self.last = core.clock()
end

return ms.recipe {
  name = "strategies",
  seed = 1,
  dataset = function()
    local x = ms.randn({ p.batch, p.width }, ms.float32, "x")
    return ms.dataset.NumpySlicesDataset({ x, x }, { "x", "y" }):batch(p.batch)
  end,
  network = function() return Net() end,
  loss = nn.MSELoss(),
  optimizer = nn.Momentum { learning_rate = 1e-3, momentum = 0.9 },
  callbacks = { Times() },
  train = { epochs = 1000000 },
  parallel = { parallel_mode = "semi_auto_parallel", full_batch = true },
  checkpoint = { save_checkpoint_steps = 1000000 },
}
