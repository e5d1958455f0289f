--- ms.communication: who this rank is, and groups of ranks (mindspore.communication). Ranks count from 0.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local parallel_context = require "mslua.parallel_context"
local ps_context = require "mslua.ps_context"
local ranks = require "mslua.ranks"

local M = {}

local backends, choices = {}, {}
for i, backend in ipairs(core.backends()) do
  backends[backend.name], choices[i] = backend, backend.name
end
choices[#choices + 1] = "hccl"

local bind_init = args.signature("communication.init", {
  { "backend_name", "string", choices = choices,
    doc = 'what carries values between ranks; default: "mpi" under mpirun, else "native", with "nccl" for CUDA devices '
      .. 'where it can be used; "hccl" is for Ascend devices and an error' },
})

--- Joins the other ranks; does nothing when they are joined already. Without a name the launch decides: "mpi" under
--- mpirun, else "native". "nccl", for CUDA devices, is NCCL beside that; without a name it is used where it can be.
function M.init(...)
  local backend = bind_init(...).backend_name
  if backend == "hccl" then errors.fail 'communication.init: "hccl" is for Ascend devices: use "native" or "mpi"' end
  if backend and backends[backend].device and core.options.device ~= backends[backend].device then
    errors.fail('communication.init: "%s" is for CUDA devices: ms.set_context { device_target = "GPU" } or ' ..
      '--device cuda comes first; on the CPU use "native" or "mpi"', backend)
  end
  ranks.join(backend, ps_context.network())
  parallel_context.set_feed()
end

-- A function that needs the ranks: bound arguments to `answer`.
local function define(name, fields, answer)
  local bind = args.signature("communication." .. name, fields)
  M[name] = function(...)
    if not ranks.joined() then errors.fail("communication.%s: call ms.communication.init() first", name) end
    return answer(bind(...))
  end
end

local group = { "group", "string", "world", doc = 'a group of create_group; "world": all ranks' }
local needed_group = { "group", "string", required = true, doc = "the group's name" }

-- The place of a rank of the world in a group, from 0.
local function place(name, members, world_rank)
  return ranks.place(members, world_rank)
    or errors.fail("communication: rank %d is not in the group '%s'", world_rank, name)
end

--- This rank's number in the group. (group = "world")
define("get_rank", { group }, function(a) return place(a.group, ranks.members(a.group), core.options.rank) end)
--- Ranks in the group. (group = "world")
define("get_group_size", { group }, function(a) return #ranks.members(a.group) end)
--- This rank's number among those of this host. (group = "world")
define("get_local_rank", { group }, function(a)
  return place(a.group, ranks.members_here(a.group), core.options.rank)
end)
--- Ranks of the group on this host. (group = "world")
define("get_local_size", { group }, function(a) return #ranks.members_here(a.group) end)

--- The number in the world of a rank of the group. (group, group_rank_id)
define("get_world_rank_from_group_rank", { needed_group,
  { "group_rank_id", "integer", required = true, min = 0, doc = "a rank's number in the group, from 0" } },
  function(a)
  local members = ranks.members(a.group)
  return members[a.group_rank_id + 1]
    or errors.fail("communication: the group '%s' has %d rank(s), there is no rank %d",
      a.group, #members, a.group_rank_id)
end)

--- The number in the group of a rank of the world. (world_rank_id, group)
define("get_group_rank_from_world_rank", {
  { "world_rank_id", "integer", required = true, min = 0, doc = "a rank's number in the world, from 0" }, needed_group,
},
  function(a)
  return place(a.group, ranks.members(a.group), a.world_rank_id)
end)

local function check_members(list)
  local seen = {}
  if #list == 0 then return "expected at least one rank, got {}" end
  for _, rank in ipairs(list) do
    if seen[rank] then return ("rank %d is named twice"):format(rank) end
    seen[rank] = true
  end
end

--- Makes a group; every rank of it calls this. (group, rank_ids)
define("create_group", {
  needed_group,
  { "rank_ids", "integers", required = true, min = 0, check = check_members,
    doc = "the group's ranks by their numbers in the world, in the order of their numbers in the group" },
}, function(a) ranks.create(a.group, a.rank_ids) end)
--- Forgets a group. (group)
define("destroy_group", { needed_group }, function(a) ranks.destroy(a.group) end)

return require("mslua.namespace").strict("ms.communication", M)
