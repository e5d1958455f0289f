--- Files for editors: the public names of the library with their arguments, types and text, as ---@meta files that
--- lua-language-server reads. They are written from mslua.help, as the reference is.
local core = require "mslua.core"
local help = require "mslua.help"

local M = {}

-- Kinds of mslua.args and of operators' attributes -> types. Others are written as "any".
local TYPES = {
  integer = "integer", number = "number", boolean = "boolean", string = "string", ["function"] = "function",
  table = "table", list = "any[]", integers = "integer[]", numbers = "number[]", strings = "string[]",
  cell = "nn.Cell", loss = "nn.Cell|function", callback = "ms.Callback", checkpoint_config = "ms.CheckpointConfig",
  optimizer = "nn.Optimizer", schedule = "mslua.Schedule", parameter = "Parameter", tensor = "Tensor",
  dataset = "mslua.Dataset", loss_scale = "table", initializer = "string|number|table|Tensor",
  bool = "boolean", int = "integer", float = "number", ints = "integer|integer[]", dtype = "string", axis = "integer",
  axes = "integer|integer[]",
}

local KEYWORDS = { ["end"] = true, ["repeat"] = true, ["in"] = true, ["function"] = true, ["not"] = true,
  ["or"] = true, ["and"] = true, ["local"] = true }

-- The classes that no entry of the library has, with their fields.
local OWN = [[
---@class Tensor
---@field shape integer[]
---@field dtype string
---@field size integer
---@operator add(any): Tensor
---@operator sub(any): Tensor
---@operator mul(any): Tensor
---@operator div(any): Tensor
---@operator pow(any): Tensor
---@operator unm: Tensor
---@operator len: integer
---@field [any] any
%s

---@class Parameter: Tensor
---@field name string
---@field value Tensor
---@field requires_grad boolean
---@field saved boolean
---@field layerwise_parallel boolean
---@field parallel_optimizer boolean
---@field comm_fusion integer
---@field init any

---@alias Cell nn.Cell
---@class nn.Optimizer
---@class mslua.Schedule
---@class mslua.Recipe: table
---@class mslua.Dataset
]]

local function one_line(text) return (text:gsub("%s+", " ")) end

local function name_of(key) return KEYWORDS[key] and key .. "_" or key end

local function literal(value) return type(value) == "string" and ("%q"):format(value) or tostring(value) end

local function type_of(key)
  if key.choices then
    local choices = {}
    for i, choice in ipairs(key.choices) do choices[i] = literal(choice) end
    return table.concat(choices, "|")
  end
  local types = {}
  for kind in key.kinds:gmatch "[^|]+" do types[#types + 1] = TYPES[kind] or "any" end
  return table.concat(types, "|")
end

-- A file under way: its lines, and a line with format and arguments.
local function add(lines, format, ...) lines[#lines + 1] = select("#", ...) > 0 and format:format(...) or format end

local function add_text(lines, text)
  if text ~= "" then add(lines, "%s", "---" .. one_line(text)) end
end

-- The class of the named arguments of `name`, and of the tables in them; nothing where there are no keys.
local function add_keys(lines, name, keys)
  local classes, order = { [""] = {} }, { "" }
  for _, key in ipairs(keys) do
    local prefix, last = key.name:match "^(.*)%.([^.]+)$"
    local own = key.name .. "."
    local nested = false
    for _, other in ipairs(keys) do nested = nested or other.name:sub(1, #own) == own end
    local kind = type_of(key)
    if nested then
      classes[key.name], order[#order + 1] = {}, key.name
      kind = kind == "table" and name .. ".keys." .. key.name or kind .. "|" .. name .. ".keys." .. key.name
    end
    local text = (key.default and "(default " .. key.default .. ") " or "") .. key.text
    table.insert(classes[prefix or ""], ("---@field %s%s %s %s"):format(last or key.name, key.required and "" or "?",
      kind, one_line(text)))
  end
  for _, prefix in ipairs(order) do
    add(lines, "%s", "---@class " .. name .. ".keys" .. (prefix ~= "" and "." .. prefix or ""))
    for _, field in ipairs(classes[prefix]) do add(lines, "%s", (field:gsub("%s+$", ""))) end
  end
  add(lines, "")
end

local function is_nested(key) return key.name:find(".", 1, true) ~= nil end

-- The parameters of a call by position: { name, type, optional }. Named arguments may follow those that are needed.
local function positional(name, keys)
  local list = {}
  for _, key in ipairs(keys) do
    if not is_nested(key) then
      local kind = type_of(key)
      if #list > 0 and not key.required and kind ~= "any" then kind = kind .. "|" .. name .. ".keys" end
      list[#list + 1] = { name_of(key.name), kind, not key.required }
    end
  end
  return list
end

-- The parameters that a signature's text names, "ms.full(shape, value, dtype = float32)".
local function from_signature(signature)
  local list = {}
  for word in (signature:match "%((.*)%)" or ""):gmatch "[^,]+" do
    local name, default = word:match "^%s*([%w_.]+)%s*(.*)$"
    if name then list[#list + 1] = { name == "..." and name or name_of(name), "any", default ~= "" } end
  end
  return list
end

local function parameters_of(name, entry)
  if entry.takes_table then return { { "keys", name .. ".keys", false } } end
  if #entry.keys > 0 then return positional(name, entry.keys) end
  return from_signature(entry.signature)
end

-- "fun(x: integer, y?: number): R".
local function fun(parameters, result)
  local words = {}
  for i, p in ipairs(parameters) do
    words[i] = p[1] == "..." and "...: " .. p[2] or p[1] .. (p[3] and "?" or "") .. ": " .. p[2]
  end
  return ("fun(%s)%s"):format(table.concat(words, ", "), result and ": " .. result or "")
end

-- The types alone of "Tensor loss the mean": a type may be followed by a name and a text.
local function result_of(returns)
  local types = {}
  for i, text in ipairs(returns) do
    local kind = text:match "^(table%b<>%??)" or text:match "^(%b{})" or text:match "^(fun%b():?%s?%S*)"
      or text:match "^(%S+)"
    types[i] = kind or "any"
  end
  return #types > 0 and table.concat(types, ", ") or nil
end

local function add_function(lines, path, entry)
  local parameters, texts = parameters_of(entry.name, entry), {}
  if #entry.keys > 0 then add_keys(lines, entry.name, entry.keys) end
  for _, key in ipairs(entry.keys) do texts[name_of(key.name)] = key.text end
  add_text(lines, entry.text)
  local names = {}
  for i, p in ipairs(parameters) do
    names[i] = p[1]
    add(lines, "%s", ("---@param %s%s %s %s"):format(p[1], p[3] and "?" or "", p[2], one_line(texts[p[1]] or ""))
      :gsub("%s+$", ""))
  end
  local result = result_of(entry.returns)
  for _, returns in ipairs(entry.returns) do add(lines, "%s", "---@return " .. one_line(returns)) end
  if #entry.keys > 0 and not entry.takes_table then
    add(lines, "%s", "---@overload " .. fun({ { "keys", entry.name .. ".keys", false } }, result))
  end
  add(lines, "function %s(%s) end\n", path, table.concat(names, ", "))
end

local function add_methods(lines, name, methods)
  for _, method in ipairs(methods) do
    local parameters = { { "self", name, false } }
    for _, p in ipairs(#method.keys > 0 and positional(name .. "." .. method.name, method.keys)
      or from_signature(method.signature)) do
      -- A method's keys have no class: they are a table.
      parameters[#parameters + 1] = { p[1], (p[2]:gsub("|[%w_.]+%.keys$", "|table")), p[3] or #method.keys > 0 }
    end
    add(lines, "%s", ("---@field %s %s %s"):format(method.name, fun(parameters, result_of(method.returns)),
      one_line(method.text)):gsub("%s+$", ""))
  end
end

-- Instances are of class `name`, the class itself of `name`.class: it is called, and extended.
local function add_class(lines, path, entry)
  local name = entry.name
  local base = entry.base or (name:find "^ms%.dataset%." and "mslua.Dataset") or nil
  if #entry.keys > 0 then add_keys(lines, name, entry.keys) end
  add_text(lines, entry.text)
  add(lines, "%s", "---@class " .. name .. (base and base ~= name and ": " .. base or ""))
  if entry.call then
    local inputs = from_signature(entry.call.signature)
    for _, p in ipairs(inputs) do p[3] = p[3] or p[1] ~= "..." and #inputs > 1 and p ~= inputs[1] end
    add(lines, "%s", "---@overload " .. fun(inputs, "Tensor"))
  end
  if name == "nn.Cell" then
    add(lines, "---@field [string] any")
    add(lines, "---@overload fun(...: any): any")
  end
  add_methods(lines, name, entry.methods)
  add(lines, "")
  add(lines, "%s", "---@class " .. name .. ".class" .. (base and base ~= name and entry.base
    and ": " .. base .. ".class" or ""))
  add(lines, "%s", "---@overload " .. fun(parameters_of(name, entry), name))
  if #entry.keys > 0 then add(lines, "%s", "---@overload " .. fun({ { "keys", name .. ".keys", false } }, name)) end
  add(lines, "%s", ("---@field extend fun(self: table, name: string): %s.class makes a class with the methods of this")
    :format(name))
  if name == "nn.Cell" then add(lines, "---@field [string] any") end
  add(lines, "%s = {}\n", path)
end

local function tensors(entry)
  local list = {}
  for i, input in ipairs(entry.inputs) do
    list[i] = { input == "..." and input or name_of(input), "Tensor|number", entry.operands_optional or false }
  end
  return list
end

local function add_operator_class(lines, path, entry)
  local name, result = entry.name, {}
  for i = 1, entry.outputs do result[i] = "Tensor" end
  add(lines, "%s", "---@class " .. name)
  add(lines, "%s", "---@overload " .. fun(tensors(entry), table.concat(result, ", ")))
  add(lines, "%s", ("---@field shard fun(self: %s, in_strategy: table, out_strategy?: table): %s the number of shards "
    .. "of each dimension of each tensor"):format(name, name))
  add(lines, "")
  add(lines, "%s", "---@class " .. name .. ".class")
  add(lines, "%s", "---@overload " .. fun(positional(name, entry.keys), name))
  if #entry.keys > 0 then add(lines, "%s", "---@overload " .. fun({ { "keys", name .. ".keys", false } }, name)) end
  add(lines, "%s = {}\n", path)
end

-- The tensors, then the attributes, or a table of them behind the last tensor. After any number of tensors, no more.
local function operator_parameters(entry)
  local parameters = tensors(entry)
  if #parameters > 0 and parameters[#parameters][1] == "..." then
    parameters[#parameters][2] = "any"
    return parameters
  end
  for i, p in ipairs(positional(entry.name, entry.keys)) do
    if i == 1 and p[3] and p[2] ~= "any" then p[2] = p[2] .. "|" .. entry.name .. ".keys" end
    parameters[#parameters + 1] = p
  end
  return parameters
end

local function add_operator_function(lines, path, entry)
  local names, texts = {}, {}
  for _, key in ipairs(entry.keys) do texts[name_of(key.name)] = key.text end
  for i, p in ipairs(operator_parameters(entry)) do
    names[i] = p[1]
    add(lines, "%s", ("---@param %s%s %s %s"):format(p[1], p[3] and "?" or "", p[2], one_line(texts[p[1]] or ""))
      :gsub("%s+$", ""))
  end
  add(lines, "---@return Tensor")
  -- A table of the attributes stands for those that are needed too.
  local needed = false
  for _, key in ipairs(entry.keys) do needed = needed or key.required end
  if needed and entry.inputs[#entry.inputs] ~= "..." then
    local parameters = tensors(entry)
    parameters[#parameters + 1] = { "keys", entry.name .. ".keys", false }
    add(lines, "%s", "---@overload " .. fun(parameters, "Tensor"))
  end
  add(lines, "function %s(%s) end\n", path, table.concat(names, ", "))
end

local function add_operator(lines, path, entry)
  if #entry.keys > 0 then add_keys(lines, entry.name, entry.keys) end
  add_text(lines, entry.text)
  local write = path:match "%.%u%w*$" and add_operator_class or add_operator_function
  write(lines, path, entry)
end

local function add_value(lines, path, entry, value)
  add_text(lines, entry.text)
  add(lines, "---@type %s", type(value))
  add(lines, "%s = %s\n", path, type(value) == "string" and ("%q"):format(value)
    or (type(value) == "number" or type(value) == "boolean") and tostring(value) or "nil")
end

-- The methods that all tensors have: operators know their texts.
local function tensor_methods()
  local texts, names, lines = {}, {}, {}
  for _, info in ipairs(core.ops()) do texts[info.name] = info.doc end
  for name in pairs(core.methods) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do
    lines[i] = ("---@field %s fun(self: Tensor, ...: any): any %s"):format(name, one_line(texts[name] or ""))
      :gsub("%s+$", "")
  end
  return table.concat(lines, "\n")
end

-- "ms.dataset.vision.Resize" -> "ms.dataset.vision", "Resize".
local function split(name)
  local module, key = name:match "^(.*)%.([^.]+)$"
  return module, key
end

local ADDERS = { ["function"] = add_function, class = add_class, operator = add_operator }

-- The variable of a module in its file: "vision" of "ms.dataset.vision".
local function variable_of(module) return module:match "[^.]+$" end

--- The files, by their names: one for each module.
---@return table<string, string>
function M.files()
  local modules = { ms = {} }
  local order = { "ms" }
  for _, entry in ipairs(help.list()) do
    local module, key = split(entry.name)
    if entry.kind == "module" then
      modules[entry.name] = modules[entry.name] or {}
      order[#order + 1] = entry.name
      module = module or "ms"
      key = key or entry.name
      local lines = modules[module]
      add_text(lines, entry.text)
      add(lines, "---@type mslua.%s", entry.name)
      add(lines, "%s.%s = nil\n", variable_of(module), key)
    else
      modules[module] = modules[module] or {}
      local _, value = help.find(entry.name)
      local adder = ADDERS[entry.kind] or add_value
      adder(modules[module], variable_of(module) .. "." .. key, entry, value)
    end
  end
  local files = {}
  for module, lines in pairs(modules) do
    local name = module == "ms" and "mslua" or module:gsub("^ms%.", "")
    local head = ("---@meta %s\n-- Written by `mslua editor` for mslua %s; written again, it is replaced.\n\n"):format(
      module == "ms" and "mslua" or "_", core.version)
    local first = ("---@class mslua.%s\nlocal %s = {}\n\n"):format(module, variable_of(module))
    local last = module == "ms" and "return ms\n" or ("return %s\n"):format(variable_of(module))
    local own = module == "ms" and OWN:gsub("%%s", (tensor_methods():gsub("%%", "%%%%"))) .. "\n" or ""
    files[name .. ".lua"] = head .. own .. first .. table.concat(lines, "\n") .. "\n" .. last
  end
  return files
end

-- What .luarc.json says where there is none: mslua's Lua, and where the files are.
local SETTINGS = [[
{
  "runtime.version": "LuaJIT",
  "workspace.library": ["%s"],
  "workspace.checkThirdParty": false,
  "diagnostics.disable": ["inject-field"]
}
]]

--- The text of .luarc.json for files in the folder `library`.
---@param library string as the file names it
---@return string
function M.settings(library) return SETTINGS:format(library) end

return M
