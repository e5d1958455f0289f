-- A network of one layer on random numbers, for tests: one step takes microseconds.
local ms = require "mslua"
local nn = ms.nn
local p = ms.params { epochs = 2, samples = 16, batch = 4, device_num = 0, odd = 0, other = 0, own = 0, seed = 3,
  sequence = 0, wait_for = "" }

local Net = nn.Cell:extend "Net"
function Net:init()
  -- With other=1 rank 1 has another network.
  self.dense = nn.Dense(4, 1, { has_bias = not (p.other > 0 and ms.communication.get_rank() == 1) })
  -- With own=1 each rank has weights of its own.
  self.dense.weight.layerwise_parallel = p.own > 0
end
function Net:construct(x) return self.dense(x) end

local parallel = { parallel_mode = p.own > 0 and "hybrid_parallel" or "data_parallel", gradients_mean = true }
if p.device_num > 0 then parallel.device_num = p.device_num end

return ms.recipe {
  name = "tiny", seed = p.seed,
  dataset = function()
    -- With wait_for=FILE training begins when the file is there.
    if p.wait_for ~= "" then os.execute("until [ -e '" .. p.wait_for .. "' ]; do sleep 0.1; done") end
    ms.set_seed(7)
    local samples = p.samples + (ms.communication.get_rank() == 1 and p.odd or 0)
    if p.sequence > 0 then  -- samples that nobody can take a part of
      return ms.dataset.GeneratorDataset(function()
        local i = 0
        return function()
          i = i + 1
          if i <= samples then return ms.full({ 4 }, i), ms.ones { 1 } end
        end
      end, { "x", "y" }):batch(p.batch, true)
    end
    return ms.dataset.NumpySlicesDataset({ ms.rand { samples, 4 }, ms.rand { samples, 1 } }, { "x", "y" })
      :batch(p.batch, true)
  end,
  network = function() return Net() end, loss = nn.MSELoss(),
  optimizer = nn.Momentum { learning_rate = 0.05, momentum = 0.9 },
  train = { epochs = p.epochs },
  parallel = parallel,
  checkpoint = { save_checkpoint_steps = 1000, keep_checkpoint_max = 2 },
}
