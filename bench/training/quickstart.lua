-- The quick start's step with data from memory: what a step costs beside its arithmetic.
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local p = ms.params { in_dim = 32, hidden_dim = 16, out_dim = 16, batch_size = 2, steps = 1000, epochs = 1000 }

local Net = nn.Cell:extend "Net"

function Net:init()
  self.weight = ms.Parameter(ms.initializer("normal", { p.in_dim, p.hidden_dim }), "w")
  self.weight2 = ms.Parameter(ms.initializer("normal", { p.hidden_dim, p.out_dim }), "w2")
  self.matmul, self.relu, self.matmul2 = ops.MatMul(), ops.ReLU(), ops.MatMul()
end

function Net:construct(x) return self.matmul2(self.relu(self.matmul(x, self.weight)), self.weight2) end

return ms.recipe {
  name = "quickstart",
  seed = 1,
  dataset = function()
    local rows = p.batch_size * p.steps
    return ms.dataset.NumpySlicesDataset({ ms.rand { rows, p.in_dim }, ms.rand { rows, p.out_dim } },
      { "input", "label" }):batch(p.batch_size, { drop_remainder = true })
  end,
  network = function() return Net() end,
  loss = nn.MSELoss(),
  optimizer = nn.Momentum { learning_rate = 0.2, momentum = 0.1 },
  train = { epochs = p.epochs },
}
