--- save_checkpoint, load_checkpoint, load_param_into_net (mindspore.train.serialization).
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local Cell = require "mslua.cell"

local M = {}

local bind_save = args.signature("save_checkpoint", {
  { "save_obj", "cell|table|list", required = true }, { "ckpt_file_name", "string", required = true },
})

--- Saves a network's parameters and states, or a table name -> tensor, at a path. (save_obj, ckpt_file_name)
function M.save_checkpoint(...)
  local a = bind_save(...)
  local values = a.save_obj
  if class.is(values, Cell) then values = values:get_parameters() end
  core.save_checkpoint(a.ckpt_file_name, values)
end

local bind_load = args.signature("load_checkpoint", {
  { "ckpt_file_name", "string", required = true }, { "net", "cell" }, { "strict_load", "boolean", false },
})

--- Reads a checkpoint folder, the newest of a directory of them, or a .safetensors file: name -> tensor. With `net` its
--- parameters take the values. (ckpt_file_name, net, strict_load = false)
---@return table<string, Tensor>
function M.load_checkpoint(...)
  local a = bind_load(...)
  local values = core.load_checkpoint(a.ckpt_file_name)
  if a.net then M.load_param_into_net(a.net, values, a.strict_load) end
  return values
end

local bind_into = args.signature("load_param_into_net", {
  { "net", "cell", required = true },
  { "parameter_dict", "table", required = true },
  { "strict_load", "boolean", false },
})

local function same_shape(a, b)
  if #a ~= #b then return false end
  for i, n in ipairs(a) do
    if n ~= b[i] then return false end
  end
  return true
end

--- Gives the parameters of a network the values of their names; all shapes are compared before any changes.
--- strict_load: a name that only one side has is an error. (net, parameter_dict, strict_load = false)
---@return string[] missing parameters of the network that got no value
---@return string[] unused names that the network does not have
function M.load_param_into_net(...)
  local a = bind_into(...)
  local matched, missing, unused = {}, {}, {}
  for _, p in ipairs(a.net:get_parameters()) do
    local v = a.parameter_dict[p.name]
    if v == nil then
      missing[#missing + 1] = p.name
    elseif not same_shape(v.shape, p.shape) then
      errors.fail("load_param_into_net: %s is %s in the network and %s in the checkpoint",
        p.name, errors.show(p.shape), errors.show(v.shape))
    else
      matched[p.name] = p
    end
  end
  for _, name in ipairs(errors.names(a.parameter_dict)) do
    if not matched[name] then unused[#unused + 1] = name end
  end
  if a.strict_load and #missing + #unused > 0 then
    errors.fail("load_param_into_net: not in the checkpoint: %s; not in the network: %s",
      table.concat(missing, ", "), table.concat(unused, ", "))
  elseif next(matched) == nil then
    errors.fail("load_param_into_net: no name in common: the network has %s, the checkpoint %s",
      missing[1] or "none", unused[1] or "none")
  end
  for name, p in pairs(matched) do p.value = a.parameter_dict[name]:astype(p.dtype) end
  return missing, unused
end

return M
