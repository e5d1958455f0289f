--- ms.params: a recipe's parameters, typed by example and merged at the place where they are declared, so that what is
--- computed from them follows an override. Default < preset < MSLUA_* environment < command line.
local arity = require "mslua.arity"
local core = require "mslua.core"
local errors = require "mslua.errors"
local literal = require "mslua.literal"
local notice = require "mslua.notice"

local M = {}

-- In a rank that the local launcher has started, or of a cluster, these are its words (rendezvous/identity.h).
local launch_variables = {}
if os.getenv "MSLUA_LAUNCHER" then
  launch_variables = { RANK = true, SIZE = true, MEETING = true, LAUNCHER = true, RECOVERY = true,
    RESTARTS = true, RESTART_CAUSE = true }
elseif os.getenv "MS_ROLE" then
  launch_variables = { JOB_EPOCH = true, SPARES = true, ELASTIC = true, REPLACE_AFTER = true }
end

-- Variables that the program itself reads, and the tests' own.
local own_variables = { "MSLUA_RANK", "MSLUA_SIZE", "MSLUA_MEETING", "MSLUA_LAUNCHER", "MSLUA_RECOVERY",
  "MSLUA_RESTARTS", "MSLUA_RESTART_CAUSE", "MSLUA_JOB_EPOCH", "MSLUA_SPARES", "MSLUA_ELASTIC", "MSLUA_REPLACE_AFTER",
  "MSLUA_PLAINTEXT", "MSLUA_VERIFY_PASSES", "MSLUA_JOB_SECRET_FILE", "MSLUA_TLS",
  "MSLUA_CUDA_LIBRARIES", "MSLUA_SHARE_DEVICE", "MSLUA_GUARD_MEMORY", "MSLUA_FAULT" }
local TEST_PREFIX = "MSLUA_TEST_"

-- Of the recipe that is being loaded.
local state = { values = {}, origins = {}, leaves = {}, base = {} }

--- The recipe's name on messages about the command line: the file's name without folder and ending.
function M.recipe_name()
  return (core.options.file or "recipe"):match "([^/]+)$":gsub("%.lua$", "")
end

local function usage_error(format, ...)
  error(M.recipe_name() .. ": " .. format:format(...), 0)
end
M.usage_error = usage_error

local function phrase(example)
  if type(example) == "table" then return "a list such as " .. errors.show(example) end
  return ("a %s such as %s"):format(type(example), errors.show(example))
end

local function same_kind(example, v)
  if type(v) ~= type(example) then return false end
  if type(v) == "table" and example[1] ~= nil then
    for _, item in ipairs(v) do
      if type(item) ~= type(example[1]) then return false end
    end
  end
  return true
end

local function set(name, v, origin)
  state.values[name], state.origins[name] = v, origin
end

local function apply_text(defaults, name, text, origin)
  local v, hint = literal.read(text, type(defaults[name]))
  if v == nil or not same_kind(defaults[name], v) then
    usage_error("parameter '%s': expected %s, got '%s' (%s)%s", name, phrase(defaults[name]), text, origin, hint or "")
  end
  set(name, v, origin)
end

--- The variable that sets a parameter, or a leaf of the recipe's table.
---@param path string "lr", "train.epochs"
function M.variable(path) return "MSLUA_" .. path:gsub("%.", "_"):upper() end

--- Names each variable MSLUA_* of the environment that sets nothing, with what was meant.
---@param leaves? string[] paths of the recipe's table
function M.check_environment(leaves)
  local known, is_known = { unpack(own_variables) }, {}
  for name in pairs(state.defaults or {}) do known[#known + 1] = M.variable(name) end
  for _, path in ipairs(leaves or {}) do known[#known + 1] = M.variable(path) end
  for _, name in ipairs(known) do is_known[name] = true end
  for _, name in ipairs(core.environment "MSLUA_") do
    if not is_known[name] and name:sub(1, #TEST_PREFIX) ~= TEST_PREFIX then
      notice(("warning: the variable %s of the environment sets nothing here%s"):format(name,
        core.did_you_mean(name, known)))
    end
  end
end

-- Keys with a dot are leaves of the recipe's table: ms.recipe checks them.
local function is_leaf(name) return name:find(".", 1, true) ~= nil end

local function check_table(defaults, values, what)
  for _, name in ipairs(errors.names(values)) do
    if not is_leaf(name) and defaults[name] == nil then
      errors.fail("params: %s: unknown parameter '%s'%s", what, name, core.did_you_mean(name, errors.names(defaults)))
    elseif not is_leaf(name) and not same_kind(defaults[name], values[name]) then
      errors.fail("params: %s: %s: expected %s, got %s", what, name, phrase(defaults[name]), errors.show(values[name]))
    end
  end
end

local function apply_table(values, origin)
  for _, name in ipairs(errors.names(values)) do
    if is_leaf(name) then
      state.leaves[#state.leaves + 1] = { name, values[name], origin }
    else
      set(name, values[name], origin)
    end
  end
end

local function apply_preset(presets)
  local name, known = core.options.preset, errors.names(presets)
  if not name or (name == "full" and not presets.full) then return end
  if #known == 0 then
    usage_error("unknown preset '%s': the recipe has none; `presets = { %s = {...} }` of ms.params declares it", name,
      name)
  elseif not presets[name] then
    usage_error("unknown preset '%s'%s; it has: %s", name, core.did_you_mean(name, known), table.concat(known, ", "))
  end
  apply_table(presets[name], "preset " .. name)
end

--- Refuses the command line's preset where the recipe has not called ms.params, which applies it.
function M.check_preset()
  if not state.defaults then apply_preset({}) end
end

local function check_shape(defaults, presets)
  for name, v in pairs(defaults) do
    if type(name) ~= "string" then errors.fail("params: expected named values, got %s", errors.show(v)) end
    if not ({ number = 1, string = 1, boolean = 1, table = 1 })[type(v)] then
      errors.fail("params: %s: expected a number, string, boolean or list, got %s", name, errors.show(v))
    end
  end
  if type(presets) ~= "table" then errors.fail("params: presets: expected a table, got %s", errors.show(presets)) end
  for name, preset in pairs(presets) do
    if type(preset) ~= "table" then
      errors.fail("params: presets.%s: expected a table, got %s", name, errors.show(preset))
    end
    check_table(defaults, preset, "presets." .. name)
  end
end

--- Declares the parameters: `local p = ms.params { lr = 0.1, presets = { smoke = { lr = 0.2 } } }`. A parameter
--- `data_path` that is "" takes $DATA_PATH.
---@param declared table<string, number|string|boolean|table>
---@return table p reading a name that was not declared is an error
function M.params(...)
  local declared = arity.take("params", 1, ...)
  if type(declared) ~= "table" then errors.fail("params: expected a table, got %s", errors.show(declared)) end
  local defaults, presets = {}, declared.presets or {}
  for name, v in pairs(declared) do
    if name ~= "presets" then defaults[name] = v end
  end
  check_shape(defaults, presets)
  state.values, state.origins, state.leaves, state.defaults = {}, {}, {}, defaults
  state.presets = errors.names(presets)
  for name, v in pairs(defaults) do set(name, v, "recipe") end
  if defaults.data_path == "" and os.getenv "DATA_PATH" then set("data_path", os.getenv "DATA_PATH", "$DATA_PATH") end
  check_table(defaults, state.base.params or {}, "resolved")
  apply_table(state.base.params or {}, "config")
  apply_preset(presets)
  for _, name in ipairs(errors.names(defaults)) do
    local text = not launch_variables[name:upper()] and os.getenv(M.variable(name))
    if text then apply_text(defaults, name, text, M.variable(name)) end
  end
  for _, pair in ipairs(core.options.overrides) do
    if defaults[pair[1]] ~= nil then
      apply_text(defaults, pair[1], pair[2], "command line")
    elseif core.options.verb == "run" then
      usage_error("unknown parameter '%s'%s", pair[1], core.did_you_mean(pair[1], errors.names(defaults)))
    end
  end
  local values = state.values
  return setmetatable({}, {
    __index = function(_, name)
      local v = values[name]
      if v == nil then
        errors.fail("params: no parameter '%s'%s",
          tostring(name), core.did_you_mean(tostring(name), errors.names(values)))
      end
      return v
    end,
    __tostring = function() return errors.show(values) end,
    __newindex = function(_, name)
      errors.fail("params: %s cannot be assigned: a value computed from parameters is a local variable", tostring(name))
    end,
  })
end

-- Where `require` looks for the neighbours of a recipe.
local function beside(recipe)
  local folder = recipe:match "^(.*)/" or "."
  return folder .. "/?.lua;" .. folder .. "/?/init.lua"
end

-- The path of `file`, which is relative to `folder`; `folder` is "" or ends with "/". Each "../" of the file takes a
-- name off the folder.
local function join(folder, file)
  while file:sub(1, 3) == "../" do
    local above, name = folder:match "^(.-)([^/]+)/$"
    if not name or name == "." or name == ".." then break end
    folder, file = above, file:sub(4)
  end
  return folder .. file
end

--- Where the recipe that a written configuration came from may lie, in the order to look there: from the folders that
--- the configuration names, then from the current folder.
---@param config string the configuration's file
---@param base {from: string?, folders: string[]?} of the configuration
---@return string[]
function M.recipes_of(config, base)
  local paths, from = {}, base.from
  if not from then return paths end
  for _, folder in ipairs(from:sub(1, 1) ~= "/" and base.folders or {}) do
    local path = folder .. "/" .. from
    paths[#paths + 1] = folder:sub(1, 1) == "/" and path or join(config:match "^(.*/)" or "", path)
  end
  paths[#paths + 1] = from
  return paths
end

--- The path on which `require` finds the neighbours of the recipe that a written configuration came from.
---@param config string the configuration's file
---@param base {from: string?, folders: string[]?} of the configuration
---@return string
function M.path_of(config, base)
  local templates = {}
  for i, recipe in ipairs(M.recipes_of(config, base)) do templates[i] = beside(recipe) end
  templates[#templates + 1] = package.path
  return table.concat(templates, ";")
end

--- What a written configuration starts from; its first line calls this (Recipe:config_text).
--- `from`: the recipe it came from, whose neighbours `require` finds. `folders`: what a relative `from` is relative to,
--- which training adds (train/run_config.h). `name`: the recipe's.
---@param base {params: table?, leaves: table?, from: string?, name: string?, folders: string[]?, origins: table?}
function M.resolved(...)
  local base = arity.take("resolved", 1, ...)
  state.base = base
  package.path = M.path_of(core.options.file or "", base)
end

--- What was declared and set: for ms.recipe, `recipes show` and the run folder's config.lua.
---@return {values: table, origins: table<string, string>, leaves: table[], defaults: table?}
function M.state() return state end

return M
