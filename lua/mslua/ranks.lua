--- Who this rank is, and the groups it knows.
local core = require "mslua.core"
local errors = require "mslua.errors"

local M = {}

local joined = false
local groups = {}

local function find_world()
  groups.world = {}
  for rank = 0, core.options.ranks - 1 do groups.world[rank + 1] = rank end
end
find_world()

--- Joins the other ranks; again: does nothing.
---@param backend? string a name of core.backends(); nil: the launch decides
---@param network? mslua.Network how connections to other hosts are secured
function M.join(backend, network)
  core.join(backend, network)
  if not joined then find_world() end
  joined = true
end

--- Whether the ranks are joined: under train, eval, plan and repl they are before the recipe runs; a script calls init.
---@return boolean
function M.joined() return joined or (core.options.verb ~= "run" and core.options.verb ~= nil) end

--- The ranks of a group, by their numbers in the world.
---@param name string
---@return integer[]
function M.members(name)
  local members = groups[name]
  if not members then
    errors.fail("there is no group '%s'%s: call ms.communication.create_group first%s", name,
      core.did_you_mean(name, errors.names(groups)),
      name:find "_world_group$" and "; the group of all ranks is 'world', the default" or "")
  end
  return members
end

--- The place of a rank of the world among the members of a group, from 0; nil: it is none of them.
---@param members integer[]
---@param world_rank integer
---@return integer?
function M.place(members, world_rank)
  for i, rank in ipairs(members) do
    if rank == world_rank then return i - 1 end
  end
end

--- The ranks of a group that are on the host of this one.
---@param name string
---@return integer[]
function M.members_here(name)
  local hosts, here = core.hosts(), {}
  for _, rank in ipairs(M.members(name)) do
    if not hosts or hosts[rank + 1] == hosts[core.options.rank + 1] then here[#here + 1] = rank end
  end
  return here
end

--- Makes a group; every rank of it calls this.
---@param name string
---@param members integer[]
function M.create(name, members)
  if groups[name] then errors.fail("create_group: the group '%s' exists already", name) end
  for _, rank in ipairs(members) do
    if rank >= core.options.ranks then
      errors.fail("create_group: there is no rank %d: the job has %d", rank, core.options.ranks)
    end
  end
  groups[name] = { unpack(members) }
end

--- Forgets a group.
---@param name string
function M.destroy(name)
  if name == "world" then errors.fail "destroy_group: the group of all ranks cannot be destroyed" end
  M.members(name)
  groups[name] = nil
end

return M
