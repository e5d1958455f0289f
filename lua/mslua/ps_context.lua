--- set_ps_context: the secured channel between ranks and scheduler (MindSpore's mindspore.set_ps_context).
local args = require "mslua.args"
local arity = require "mslua.arity"
local core = require "mslua.core"
local errors = require "mslua.errors"
local files = require "mslua.files"
local notice = require "mslua.notice"
local ranks = require "mslua.ranks"
local settings = require "mslua.settings"

local M = {}

local group = settings.new("ps_context", {
  { "enable_ssl", "boolean", false,
    doc = "true: connections to other hosts use TLS; false, when set: they may go without" },
  { "config_file_path", "string", "", check = function(path)
    if path ~= "" and not files.is_file(path) then return ("no file %q"):format(path) end
  end, doc = "a JSON file that names certificates and keys, with enable_ssl" },
  { "client_password", "string", "", doc = "opens the client's certificate file" },
  { "server_password", "string", "", doc = "opens the server's certificate file" },
})

-- The first key of `values` that asks for other connections than those that ranks have after they have joined.
local function too_late(values)
  if not ranks.joined() or type(values) ~= "table" then return nil end
  for _, field in ipairs(group.fields) do
    local v = values[field[1]]
    local as_it_is = field[1] == "enable_ssl" and v == true and core.private_network()
    if v ~= nil and v ~= field[3] and not as_it_is then return field[1] end
  end
end

--- Sets keys; before ms.communication.init. With enable_ssl = true, connections to other hosts go through TLS, as the
--- file config_file_path says; client_password and server_password open the files of certificates that it names. With
--- enable_ssl = false they may go without. The ranks of a recipe have joined before it runs: there, `--tls FILE` names
--- the file.
---@param ... table { enable_ssl = false, config_file_path =, client_password =, server_password = }
function M.set_ps_context(...)
  local late = too_late(...)
  if not late then return settings.set(group, ...) end
  settings.check(group, ...)
  errors.fail("set_ps_context: %s: the ranks have joined already (by ms.communication.init, or before a recipe runs); "
    .. "start with --tls FILE, or MSLUA_TLS=FILE, instead", late)
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

---@class mslua.Network
---@field plaintext boolean connections to other hosts may go without encryption
---@field tls_file string the TLS configuration; "": none is given
---@field client_password string
---@field server_password string

--- How connections to other hosts are to be secured.
---@return mslua.Network
function M.network()
  local tls_file = settings.get(group, "enable_ssl") and settings.get(group, "config_file_path") or ""
  if group.given.enable_ssl and tls_file == "" and not core.tls_given() then
    errors.fail("set_ps_context: enable_ssl = true needs config_file_path, "
      .. "the file with ca_cert_path and server_cert_path")
  end
  for _, key in ipairs { "config_file_path", "client_password", "server_password" } do
    if not settings.get(group, "enable_ssl") and (group.given[key] or "") ~= "" then
      notice(("set_ps_context: %s has no effect without enable_ssl = true"):format(key))
    end
  end
  return {
    plaintext = group.given.enable_ssl == false,
    tls_file = tls_file,
    client_password = settings.get(group, "client_password"),
    server_password = settings.get(group, "server_password"),
  }
end

return M
