-- Two ranks gather a tensor that a listener on the network would know (wire.py); with TLS as MindSpore's tutorial asks
-- for it.
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local password = os.getenv "MSLUA_TEST_PASSWORD_FILE"
if password then
  local file = assert(io.open(password))
  local word = file:read "*l"
  file:close()
  ms.set_ps_context { config_file_path = os.getenv "MSLUA_TEST_CONFIG", enable_ssl = true,
    client_password = word, server_password = word }
end
ms.communication.init()

local Net = nn.Cell:extend "Net"
function Net:init() self.all_gather = ops.AllGather() end
function Net:construct(x) return self.all_gather(x) end

local gathered = Net()(ms.full({ 4096 }, 12345.678))
print(("gathered %d numbers, sum %.0f"):format(gathered.shape[1], gathered:sum():item()))
