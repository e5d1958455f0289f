-- Every rank gives its number and gets those of all: the GPU tutorial's check that collectives work.
--
--   mslua run recipes/examples/all_gather.lua -n 4       prints [[0.],[1.],[2.],[3.]] by rows
--   mpirun -n 4 mslua run recipes/examples/all_gather.lua
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local Net = nn.Cell:extend "Net"

function Net:init() self.all_gather = ops.AllGather() end
function Net:construct(x) return self.all_gather(x) end

ms.set_context { mode = ms.GRAPH_MODE, device_target = "CPU" }
ms.communication.init()
local value = ms.communication.get_rank()
local input_x = ms.Tensor({ { value } }, ms.float32)
local net = Net()
local output = net(input_x)
print(output)
