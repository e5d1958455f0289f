--- set_ps_context: the secured channel between ranks and scheduler (MindSpore's mindspore.set_ps_context).
local args = require "mslua.args"
local arity = require "mslua.arity"
local errors = require "mslua.errors"
local files = require "mslua.files"
local ranks = require "mslua.ranks"
local settings = require "mslua.settings"

local M = {}

local group = settings.new("ps_context", {
  { "enable_ssl", "boolean", false },
  { "config_file_path", "string", "", check = function(path)
    if path ~= "" and not files.is_file(path) then return ("no file %q"):format(path) end
  end },
  { "client_password", "string", "" },
  { "server_password", "string", "" },
})

-- The first key of `values` that asks for other connections than those that ranks have after they have joined.
local function too_late(values)
  if not ranks.joined() or type(values) ~= "table" then return nil end
  for _, field in ipairs(group.fields) do
    local v = values[field[1]]
    if v ~= nil and v ~= field[3] then return field[1] end
  end
end

--- Sets keys; before ms.communication.init. The ranks of a recipe have joined before it runs, without encryption:
--- there, enable_ssl = false is accepted and changes nothing.
---@param ... table { enable_ssl = false, config_file_path =, client_password =, server_password = }
function M.set_ps_context(...)
  local late = too_late(...)
  settings.set(group, ...)
  if not late then return end
  settings.reset(group)
  errors.fail("set_ps_context: %s: the ranks have joined already, without encryption (by ms.communication.init, or "
    .. "before a recipe runs)%s", late, late == "enable_ssl" and "; enable_ssl = true is not built yet" or "")
end

args.describe(M.set_ps_context, group.fields)

--- The value of a key of the channel between ranks and scheduler. Passwords read as "***" when they are set.
---@param key string
function M.get_ps_context(...)
  local key = arity.take("get_ps_context", 1, ...)
  local v = settings.get(group, key)
  if key:match "_password$" and v ~= "" then return "***" end
  return v
end

--- Sets every key of the channel between ranks and scheduler back to its default.
function M.reset_ps_context(...)
  arity.take("reset_ps_context", 0, ...)
  settings.reset(group)
end

--- Whether the user has said that connections need no encryption.
---@return boolean
function M.plaintext() return group.given.enable_ssl == false end

--- What is set and cannot run, one line each.
---@return string[]
function M.not_runnable()
  local lines = {}
  if group.given.enable_ssl then
    lines[1] = "set_ps_context: enable_ssl = true is not built yet: set enable_ssl = false "
      .. "(ranks of one host cannot be reached from outside)"
  end
  return lines
end

return M
