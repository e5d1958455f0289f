-- A Llama from the folder WEIGHTS, each of whose matrices two ranks share by heads, columns or rows. The first step
-- over, each rank writes how many bytes it has read of files since the network was made, into the file READ.<rank>, and
-- the loss into LOSS.<rank>.
local core = require "mslua.core"
local ms = require "mslua"
local nn = ms.nn
local Llama = require "mslua.models.llama"

local function read_bytes() return tonumber(assert(io.open "/proc/self/io"):read("*a"):match "rchar: (%d+)") end

local function write(name, value)
  local file = assert(io.open(os.getenv(name) .. "." .. core.options.rank, "w"))
  file:write(("%.9g\n"):format(value))
  file:close()
end

local n = ms.communication.get_group_size()
local before

local function network()
  local net = Llama { vocab = 512, block = 16, layers = 2, heads = 8, kv_heads = 4, dim = 256, hidden = 512 }
  if n > 1 then
    for _, layer in ipairs(net.layers) do
      local a, m = layer.self_attn, layer.mlp
      for _, cell in ipairs { a.q_proj, a.k_proj, a.v_proj, m.gate_proj, m.up_proj } do
        cell:shard { { 1, 1 }, { n, 1 } }
      end
      for _, cell in ipairs { a.o_proj, m.down_proj } do cell:shard { { 1, n }, { 1, n } } end
    end
    net.embed_tokens:shard { { n, 1 }, { 1, 1 } }
    net.lm_head:shard { { 1, 1 }, { n, 1 } }
  end
  before = read_bytes()
  return net
end

local Measure = ms.Callback:extend "Measure"
function Measure:on_train_step_end(state)
  if not before then return end
  write("READ", read_bytes() - before)
  write("LOSS", state.loss)
  before = nil
end

local ids = ms.Tensor({ { 1, 2, 3, 4, 5, 6, 7, 8 }, { 11, 12, 13, 14, 15, 16, 17, 18 } }, ms.int32)

return ms.recipe {
  name = "slices",
  weights = os.getenv "WEIGHTS",
  dataset = function() return ms.dataset.NumpySlicesDataset({ ids, ids }, { column_names = { "x", "y" } }):batch(2) end,
  network = network,
  loss = function(output, label)
    return nn.CrossEntropyLoss()(ms.ops.reshape(output, { -1, 512 }), ms.ops.reshape(label, { -1 }))
  end,
  optimizer = nn.SGD { learning_rate = 0.1 },
  callbacks = { Measure() },
  parallel = { parallel_mode = "semi_auto_parallel", full_batch = true },
}
