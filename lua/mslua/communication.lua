--- ms.communication: who this rank is, and groups of ranks (mindspore.communication).
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local ps_context = require "mslua.ps_context"

local M = {}

local bind_init = args.signature("communication.init", {
  { "backend_name", "string", choices = { "mpi", "native", "nccl", "hccl" } },
})

--- Joins the other ranks; does nothing when they are joined already. Without a name the launch decides: "mpi" under mpirun,
--- else "native".
function M.init(...)
  local backend = bind_init(...).backend_name
  if backend == "hccl" then errors.fail 'communication.init: "hccl" is for Ascend devices: use "native" or "mpi"' end
  if backend == "nccl" then errors.fail 'communication.init: "nccl" needs the CUDA build of mslua: use "native" or "mpi"' end
  for _, line in ipairs(ps_context.not_runnable()) do errors.fail("communication.init: %s", line) end
  core.init_ranks(backend)
end

local function joined(name)
  if not core.initialized() then errors.fail("communication.%s: call ms.communication.init() first", name) end
end

local world = { "group", "string", "world" }

-- A function of a group: `core_name` answers it.
local function of_group(name, fields)
  local bind = args.signature("communication." .. name, fields)
  return function(...)
    joined(name)
    local a, list = bind(...), {}
    for i, field in ipairs(fields) do list[i] = a[field[1]] end
    return core[name](unpack(list))
  end
end

--- This rank's number in the group, from 0. (group = "world")
M.get_rank = of_group("get_rank", { world })
--- Ranks in the group. (group = "world")
M.get_group_size = of_group("get_group_size", { world })
--- This rank's number among those of this host. (group = "world")
M.get_local_rank = of_group("get_local_rank", { world })
--- Ranks of the group on this host. (group = "world")
M.get_local_size = of_group("get_local_size", { world })
--- (group, group_rank_id)
M.get_world_rank_from_group_rank = of_group("get_world_rank_from_group_rank", {
  { "group", "string", required = true }, { "group_rank_id", "integer", required = true, min = 0 },
})
--- (world_rank_id, group)
M.get_group_rank_from_world_rank = of_group("get_group_rank_from_world_rank", {
  { "world_rank_id", "integer", required = true, min = 0 }, { "group", "string", required = true },
})
--- Makes a group of ranks; every rank of it calls this. (group, rank_ids)
M.create_group = of_group("create_group", {
  { "group", "string", required = true },
  { "rank_ids", "integers", required = true, min = 0, check = function(list)
    local seen = {}
    for _, rank in ipairs(list) do
      if seen[rank] then return ("rank %d is named twice"):format(rank) end
      seen[rank] = true
    end
    if #list == 0 then return "expected at least one rank, got {}" end
  end },
})
--- Forgets a group. (group)
M.destroy_group = of_group("destroy_group", { { "group", "string", required = true } })

return require("mslua.namespace").strict("ms.communication", M)
