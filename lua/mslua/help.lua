--- The reference of the library: what `?name` of the REPL prints and what docs/reference is generated from. Signatures
--- and keys come from the descriptions that check calls (mslua.args, core.ops), text from the `---` comments above the
--- definitions.
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local defined = require "mslua.defined"
local errors = require "mslua.errors"
local namespace = require "mslua.namespace"

local getinfo, getlocal, getupvalue, getmeta = debug.getinfo, debug.getlocal, debug.getupvalue, debug.getmetatable

local M = {}

---@class mslua.help.Key
---@field name string "learning_rate"; "train.epochs" where a key's value is a table with keys of its own
---@field type string in words: "a number, above 0"
---@field kinds string "integer|integers", as mslua.args has them; of an operator's attribute its kind, "ints"
---@field choices? any[] the legal values
---@field default? string as Lua text; nil: none
---@field required boolean
---@field text string what it does; may be empty

---@class mslua.help.Entry
---@field name string "nn.Adam"
---@field kind "module"|"class"|"function"|"operator"|"value"
---@field signature string "nn.Adam(params, learning_rate = 0.001)"; of a value: "ms.float32 = \"float32\""
---@field keys mslua.help.Key[]
---@field text string sentences on one line; empty: undocumented
---@field returns string[] "Tensor loss"
---@field call? {signature: string, text: string} of a cell: what calling an instance does
---@field methods mslua.help.Entry[] of a class: its own and inherited ones, without those that begin with "_"
---@field base? string the public class whose methods it has too, "nn.Cell"
---@field members string[] of a module: its names, sorted
---@field class? string of an operator's function: the class of the same operator, "ops.MatMul"
---@field inputs? string[] of an operator: the names of its tensors, "x"; "..." for any number
---@field arguments? string of an operator: what its constructor, or its function, takes beside tensors
---@field operands? string of an operator: what a call takes, "x ..., w = nil", as the signature has it
---@field operands_optional? boolean of an operator's class: it may be called without its tensors
---@field outputs? integer of an operator: how many tensors it gives
---@field operator? string of an operator: its name in graphs, "recv" of ops.receive
---@field takes_table? boolean of a function: it takes one table of named values

-------------------------------------------------------------------------------------------------------------- comments

local lines_of = {}  -- "mslua/nn/cells/dense.lua" -> its lines

local function library_lines(source)
  local path = source:match "^=(mslua/.*)$"
  if path and not lines_of[path] then
    local lines = {}
    for line in ((core.library_text(path) or "") .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = line end
    lines_of[path] = lines
  end
  return path and lines_of[path] or {}
end

local function is_doc(line) return line and line:find "^%s*%-%-%-" and not line:find "^%s*%-%-%-%s*%-%-" end

-- The `---` lines that end above line `line`: text, the @return lines, and whether the library alone calls what they
-- describe (@package).
local function block_above(lines, line)
  local first, words, returns, internal = line, {}, {}, false
  while is_doc(lines[first - 1]) do first = first - 1 end
  local annotation = false
  for i = first, line - 1 do
    local text = lines[i]:match "^%s*%-%-%-%s*(.-)%s*$"
    if text:sub(1, 1) == "@" then
      annotation = true
      internal = internal or text == "@package"
      returns[#returns + 1] = text:match "^@return%s+(.*)"
    elseif not annotation then
      words[#words + 1] = text
    end
  end
  return table.concat(words, " "), returns, internal
end

local function comment_at(place)
  if not place then return "", {}, false end
  return block_above(library_lines(place.source), place.line)
end

local function place_of_function(f)
  local info = getinfo(f, "S")
  return info.what ~= "C" and { source = info.source, line = info.linedefined } or nil
end

-- name -> places of `ms.name =`, `function M.name(` and `define("name"` with a comment above, in one file.
local indexes = {}
local function index_of(path)
  if not indexes[path] then
    local index, lines = {}, library_lines("=" .. path)
    for i, line in ipairs(lines) do
      local name = is_doc(lines[i - 1]) and (line:match "^%s*[%w_]+%.([%w_]+)%s*="
        or line:match "^function [%w_]+[.:]([%w_]+)" or line:match '^define%(?%s*"([%w_]+)"')
      if name and not index[name] then index[name] = { source = "=" .. path, line = i } end
    end
    indexes[path] = index
  end
  return indexes[path]
end

-- The comment of a name that is no function or class of its own: in the module's file, or in one whose names it takes.
local function comment_of_name(module, name)
  local paths = { module:gsub("^ms", "mslua"):gsub("%.", "/") .. "/init.lua",
    module:gsub("^ms", "mslua"):gsub("%.", "/") .. ".lua", "mslua/dtypes.lua", "mslua/context.lua",
    "mslua/parallel_context.lua", "mslua/core_api.lua" }
  for _, path in ipairs(paths) do
    local place = index_of(path)[name]
    if place then return comment_at(place) end
  end
  return "", {}
end

-- The first comment of a module's file.
local function comment_of_module(module)
  local path = module:gsub("^ms", "mslua"):gsub("%.", "/")
  for _, candidate in ipairs { path .. "/init.lua", path .. ".lua" } do
    local lines = library_lines("=" .. candidate)
    local last = 0
    while is_doc(lines[last + 1]) do last = last + 1 end
    if last > 0 then return (block_above(lines, last + 1)) end
  end
  return ""
end

------------------------------------------------------------------------------------------------------------------ keys

local function add_keys(keys, fields, prefix)
  for _, field in ipairs(fields) do
    local default = field[3]
    if field.fields then default = nil end
    keys[#keys + 1] = {
      name = prefix .. field[1], type = args.expected(field), kinds = field[2], choices = field.choices,
      required = field.required or false,
      default = default ~= nil and errors.show(default) or nil, text = field.doc or "",
    }
    if field.fields then add_keys(keys, field.fields, prefix .. field[1] .. ".") end
  end
  return keys
end

-- The fields that a function binds its arguments to: of itself, or of an upvalue called bind...
local function fields_of(f, depth)
  local fields = args.fields_of(f)
  if fields then return fields end
  if depth == 0 or getinfo(f, "S").what == "C" then return nil end
  for i = 1, 60 do
    local name, v = getupvalue(f, i)
    if not name then return nil end
    if type(v) == "function" and name:find "^bind" then
      fields = fields_of(v, depth - 1)
      if fields then return fields end
    end
  end
end

-- Keys of an operator's attributes.
local function attribute_keys(info)
  local keys = {}
  for i, attr in ipairs(info.attrs) do
    local kind = attr.choices and "one of " or attr.kind
    if attr.choices then
      local shown = {}
      for k, choice in ipairs(attr.choices) do shown[k] = errors.show(choice) end
      kind = kind .. table.concat(shown, ", ")
    end
    keys[i] = { name = attr.name, type = kind, kinds = attr.kind, choices = attr.choices, required = attr.required,
      text = attr.doc or "", default = attr.default ~= nil and errors.show(attr.default) or nil }
  end
  return keys
end

--- The arguments of a signature, "params, learning_rate = 0.1".
---@param keys mslua.help.Key[]
---@return string
function M.arguments(keys)
  local words = {}
  for _, key in ipairs(keys) do
    if not key.name:find(".", 1, true) then
      words[#words + 1] = key.required and key.name or ("%s = %s"):format(key.name, key.default or "nil")
    end
  end
  return table.concat(words, ", ")
end

-- "x, label" of a Lua function, without the first `skip` parameters.
local function parameters_of(f, skip)
  local info, words = getinfo(f, "u"), {}
  if getinfo(f, "S").what == "C" then return "..." end
  for i = skip + 1, info.nparams do words[#words + 1] = getlocal(f, i) end
  if info.isvararg then words[#words + 1] = "..." end
  return table.concat(words, ", ")
end

-- Without the list of arguments at its end, "(params, learning_rate = 0.1)": the signature has it.
local function without_arguments(text, keys)
  if not keys[1] then return text end
  local start = text:match("^.*()%s%(" .. keys[1].name .. "%f[^%w_][^%(]*%)%.?$")
  return start and text:sub(1, start - 1) or text
end

--------------------------------------------------------------------------------------------------------------- entries

local function new_entry(name, kind)
  return { name = name, kind = kind, signature = name, keys = {}, text = "", returns = {}, methods = {}, members = {} }
end

local function describe_call(entry, f, skip)
  local fields = fields_of(f, 3)
  if fields then
    entry.keys, entry.takes_table = add_keys({}, fields, ""), args.takes_table(f)
    local form = args.takes_table(f) and "%s {%s}" or "%s(%s)"
    entry.signature = form:format(entry.name, M.arguments(entry.keys))
  else
    entry.signature = ("%s(%s)"):format(entry.name, parameters_of(f, skip))
  end
end

-- The comment of a function, or of the statement that had it made by another function of the library.
local function comment_of_function(f)
  local text, returns, internal = comment_at(place_of_function(f))
  for i = 1, 60 do
    local up, v = getupvalue(f, i)
    if not up or text ~= "" then break end
    if type(v) == "function" and up:find "^bind" then
      text, returns, internal = comment_at(defined.place(v))
      text = defined.text(v) or text
    end
  end
  return text, returns, internal
end

-- Puts the text into an entry. The arguments at its end, "(shape, dtype = float32)", are its signature where no
-- description of keys says them.
local function set_text(entry, text)
  local start, arguments = text:match "^.*()%s(%([%a_][^%(]*%))%.?$"
  if start and entry.signature:find "%(%.%.%.%)$" then
    entry.signature = entry.name .. arguments
    text = text:sub(1, start - 1)
  end
  entry.text = without_arguments(text, entry.keys)
end

local function function_entry(name, f, module, key)
  local entry = new_entry(name, "function")
  describe_call(entry, f, 0)
  local text, returns = args.documented(f)
  if not text then text, returns = comment_of_function(f) end
  if text == "" and module then text, returns = comment_of_name(module, key) end
  entry.returns = returns
  set_text(entry, text)
  return entry
end

-- The methods of a class that users call; of those that it inherits, without those of nn.Cell, which stand there.
local function method_entries(of)
  local entries, seen, found = {}, { init = true, new = true, construct = true, extra = true, extend = true }, of
  local cell = package.loaded["mslua.cell"]
  while type(found) == "table" and found ~= class.Object and (found ~= cell or of == cell) do
    for name, f in pairs(found) do
      if type(name) == "string" and type(f) == "function" and not name:find "^_" and not seen[name] then
        local entry = new_entry(name, "function")
        describe_call(entry, f, 1)
        local text, returns, internal = comment_of_function(f)
        entry.returns = returns
        set_text(entry, text)
        seen[name] = text ~= ""
        if text ~= "" and not internal then entries[#entries + 1] = entry end
      end
    end
    found = rawget(found, "super")
  end
  table.sort(entries, function(a, b) return a.name < b.name end)
  return entries
end

local function is_class(v)
  return type(v) == "table" and rawget(v, "class_name") ~= nil and rawget(v, "super") ~= nil
end

-- The class, from `of` upwards, that has `key` itself.
local function owner_of(of, key)
  while type(of) == "table" and rawget(of, key) == nil do of = rawget(of, "super") end
  return of
end

-- The function that takes a constructor's arguments.
local function constructor_of(of)
  if rawget(of, "new") and fields_of(rawget(of, "new"), 3) then return rawget(of, "new"), of end
  local owner = owner_of(of, "init")
  if owner and owner ~= class.Object then return rawget(owner, "init"), owner end
end

local function class_text(of, constructor, owner)
  local function own(f) return f and comment_at(place_of_function(f)) or "" end
  local construct = rawget(of, "construct")
  for _, text in ipairs {
    rawget(of, "doc") or "", owner == of and own(constructor) or "", (comment_at(defined.place(of))),
    (own(construct)), owner ~= of and own(constructor) or "",
  } do
    if text ~= "" then return text end
  end
  return ""
end

local function class_entry(name, of)
  local entry = new_entry(name, "class")
  local constructor, owner = constructor_of(of)
  if constructor then
    describe_call(entry, rawget(of, "_bind") or constructor, 1)
  else
    entry.signature = name .. "()"
  end
  set_text(entry, class_text(of, constructor, owner))
  if class.extends(of, package.loaded["mslua.cell"]) then entry.base = "nn.Cell" end
  local construct = of.construct
  if construct and owner_of(of, "construct") ~= package.loaded["mslua.cell"] then
    local text = comment_at(place_of_function(construct))
    if text == entry.text then text = "" end
    entry.call = { signature = ("(%s)"):format(parameters_of(construct, 1)), text = text }
  end
  entry.methods = method_entries(of)
  return entry
end

-- The class of an operator in ms.ops, which may say of itself:
--   doc                what it does, instead of the operator's text
--   function_name      the name of its function in ms.ops, where that is not the operator's
--   operands_optional  it may be called without tensors, and its function takes none
-- A constructor that binds arguments of its own has them instead of the operator's attributes; the function too.
local function operator_class(info) return info.class and rawget(package.loaded["mslua.ops"], info.class) or nil end

local operators
local function operator_info(name)
  if not operators then
    operators = {}
    for _, info in ipairs(core.ops()) do
      local of = operator_class(info)
      operators[of and rawget(of, "function_name") or info.name] = info
      if info.class then operators[info.class] = info end
    end
  end
  return operators[name]
end

local function operator_entry(name, info)
  local entry, of = new_entry("ops." .. name, "operator"), operator_class(info)
  local optional, operands = of and rawget(of, "operands_optional"), {}
  entry.operator, entry.text, entry.outputs = info.name, of and rawget(of, "doc") or info.doc, #info.outputs
  entry.inputs = {}
  if name == info.class or not optional then
    entry.operands_optional = optional
    for i, input in ipairs(info.inputs) do
      entry.inputs[i] = input.variadic and "..." or input.name
      operands[i] = input.name .. (input.variadic and " ..." or "") .. (optional and " = nil" or "")
    end
  end
  -- The library's own function in place of the operator's: a plain one binds its tensors too.
  local value = name ~= info.class and rawget(package.loaded["mslua.ops"], name)
  local plain = type(value) == "function" and fields_of(value, 3) and value
  if plain then operands = {} end
  entry.operands = table.concat(operands, ", ")
  local own = plain or type(value) == "table" and getmetatable(value).__call
  local init = own or of and rawget(of, "init")
  local fields = init and fields_of(init, 3)
  entry.keys = fields and add_keys({}, fields, "") or attribute_keys(info)
  if own and fields then entry.text = without_arguments(comment_of_function(own), entry.keys) end
  entry.arguments = M.arguments(entry.keys)
  local order = of and rawget(of, "constructor_order")
  if name == info.class and order then
    local first, rest, places = {}, {}, {}
    for i, key in ipairs(order) do places[key] = i end
    for _, key in ipairs(entry.keys) do
      if places[key.name] then first[places[key.name]] = key else rest[#rest + 1] = key end
    end
    entry.arguments, entry.operands = M.arguments(first), entry.operands .. ", " .. M.arguments(rest)
  end
  local attributes = entry.arguments
  if name == info.class then
    local form = (fields or order or attributes == "") and "ops.%s(%s)(%s)" or "ops.%s {%s}(%s)"
    entry.signature = form:format(name, attributes, entry.operands)
  else
    if attributes ~= "" then operands[#operands + 1] = attributes end
    entry.signature = ("ops.%s(%s)"):format(name, table.concat(operands, ", "))
    entry.class = info.class and "ops." .. info.class or nil
  end
  return entry
end

local function value_entry(name, value, module, key)
  local entry = new_entry(name, "value")
  entry.signature = ("%s = %s"):format(name, errors.show(value))
  entry.text = comment_of_name(module, key)
  return entry
end

local function module_entry(name, module)
  local entry = new_entry(name, "module")
  entry.text = comment_of_module(namespace.name_of(module))
  entry.members = errors.names(module)
  return entry
end

-- "nn" of "ms.nn": the names that recipes and the REPL use.
local function short(name) return (name:gsub("^ms%.(nn)%f[^%w_]", "%1"):gsub("^ms%.(ops)%f[^%w_]", "%1")) end

-- The entry of the value of `key` in a module, "ms.nn".
local function member_entry(module, key, value)
  local name = short(module .. "." .. key)
  local info = module == "ms.ops" and operator_info(key)
  if info then return operator_entry(key, info) end
  if namespace.name_of(value) then return module_entry(short(namespace.name_of(value)), value) end
  if is_class(value) then return class_entry(name, value) end
  if type(value) == "function" then return function_entry(name, value, module, key) end
  return value_entry(name, value, module, key)
end

---------------------------------------------------------------------------------------------------------------- public

local MODULES = { "ms", "ms.nn", "ms.ops", "ms.dataset", "ms.dataset.vision", "ms.dataset.transforms",
  "ms.dataset.config", "ms.text", "ms.image", "ms.summary", "ms.communication" }

local function module_of(name)
  local module = require "mslua"
  for part in name:gmatch "%.([%w_]+)" do module = rawget(module, part) end
  return module
end

--- Every public name of ms, nn, ops, dataset, its transforms, and communication, sorted within its module.
---@return mslua.help.Entry[]
function M.list()
  local entries = {}
  for _, name in ipairs(MODULES) do
    local module = module_of(name)
    for _, key in ipairs(errors.names(module)) do entries[#entries + 1] = member_entry(name, key, module[key]) end
  end
  return entries
end

-- The value that a path names, without calling what users wrote: fields of tables from _G on; with the module and the
-- key where it is a member of one.
local function resolve(path)
  local value, module, key = _G, nil, nil
  for part in path:gmatch "[^.:]+" do
    module, key = namespace.name_of(value), part
    if type(value) ~= "table" then return nil end
    local found, v = pcall(function() return value[part] end)
    if not found then error(v, 0) end
    value = v
  end
  return value, module, key
end

-- The member of a module that has this name: "Adam", "matmul", "Resize".
local function find_anywhere(name)
  for _, module in ipairs { "ms.ops", "ms.nn", "ms", "ms.dataset", "ms.dataset.vision", "ms.dataset.transforms",
    "ms.dataset.config", "ms.text", "ms.image", "ms.summary", "ms.communication" } do
    local value = rawget(module_of(module), name)
    if value ~= nil then return member_entry(module, name, value) end
  end
end

local function module_of_class(of)
  for _, module in ipairs(MODULES) do
    for key, value in pairs(module_of(module)) do
      if rawequal(value, of) then return module, key end
    end
  end
end

-- The comment above a function in a file of the user's.
local function user_comment(place)
  local path = place.source:match "^@(.*)$"
  local file = path and io.open(path)
  if not file then return "" end
  local lines, words = {}, {}
  for line in file:lines() do lines[#lines + 1] = line end
  file:close()
  local first = place.line
  while lines[first - 1] and lines[first - 1]:find "^%s*%-%-" do first = first - 1 end
  for i = first, place.line - 1 do words[#words + 1] = lines[i]:match "^%s*%-+%s*(.-)%s*$" end
  return table.concat(words, " ")
end

local function user_function(name, f)
  local entry, place = new_entry(name, "function"), place_of_function(f)
  entry.signature = ("%s(%s)"):format(name, parameters_of(f, 0))
  entry.text = place and user_comment(place) or ""
  if place and place.source:find "^[@=]" then
    entry.text = ("%s%sdefined at %s:%d"):format(entry.text, entry.text == "" and "" or " ", place.source:sub(2),
      place.line)
  end
  return entry
end

-- The entry of a value that is no member of a module: a class, an instance, a method, a function.
local function entry_of_value(path, value)
  if namespace.name_of(value) then return module_entry(short(namespace.name_of(value)), value) end
  if is_class(value) then
    local module, key = module_of_class(value)
    return module and member_entry(module, key, value) or class_entry(path, value)
  end
  local of = type(value) == "table" and getmeta(value)
  if is_class(of) then
    local module, key = module_of_class(of)
    local entry = module and member_entry(module, key, of) or class_entry(of.class_name, of)
    entry.instance = path
    return entry
  end
  if type(value) == "function" then
    local place = place_of_function(value)
    if place and place.source:find "^=mslua/" then
      local entry = function_entry(path, value)
      entry.signature = entry.signature:gsub("%(self,? ?", "(")
      return entry
    end
    return user_function(path, value)
  end
end

--- The entry of "nn.Adam", "Adam", "ms.Model.train", "net" (a variable); nil where the name is of no such thing.
--- Raises what the library says of a name that moved or is misspelt.
---@param path string
---@return mslua.help.Entry?, any value
function M.find(path)
  if not path:find "^[%a_][%w_]*[%w_.:]*$" then return nil end
  local known, value, module, key = pcall(resolve, path)
  if known and value ~= nil then
    if module and not namespace.name_of(value) then return member_entry(module, key, value), value end
    return entry_of_value(path, value), value
  end
  local entry = find_anywhere(path)
  if not entry then
    local full = path:find "^nn%." or path:find "^ops%." or path:find "^dataset%."
    local found, v, of, name = pcall(resolve, "ms." .. path)
    if full and found and v ~= nil then entry = member_entry(of, name, v) end
  end
  if not entry and not known then error(value, 0) end
  return entry
end

------------------------------------------------------------------------------------------------------------------ text

local MOST_SHOWN = 30  -- columns of a name beside its text

local function wrapped(text, indent, width)
  local lines, line = {}, indent
  for word in text:gmatch "%S+" do
    if #line > #indent and #line + 1 + #word > width then
      lines[#lines + 1], line = line, indent
    end
    line = line .. (#line > #indent and " " or "") .. word
  end
  if #line > #indent then lines[#lines + 1] = line end
  return table.concat(lines, "\n")
end

-- A signature over several lines where it is longer than one.
local function wrapped_signature(text, width)
  if #text <= width then return text end
  local first = wrapped(text, "", width - 4)
  return (first:gsub("\n", "\n    "))
end

--- The first sentence.
---@param text string
---@return string
function M.sentence(text)
  local last = text:find "[^%d%s.]%.%s+[%u`(]"
  return last and text:sub(1, last + 1) or text
end

-- "name  first sentence", truncated at the width.
local function row(name, text, column, width)
  text = M.sentence(text)
  local space = math.max(width - column - 4, 20)
  if #text > space then text = text:sub(1, space - 3) .. "..." end
  return (("  %-" .. column .. "s  %s"):format(name, text):gsub("%s+$", ""))
end

local function widest(names)
  local most = 0
  for _, name in ipairs(names) do most = math.max(most, #name) end
  return math.min(most, MOST_SHOWN)
end

local function module_text(entry, width)
  local lines = { wrapped(entry.text, "", width) }
  local module_name = entry.name:find "^ms" and entry.name or "ms." .. entry.name
  local module, column = module_of(module_name), widest(entry.members)
  for _, key in ipairs(entry.members) do
    local member = member_entry(module_name, key, rawget(module, key))
    lines[#lines + 1] = row(key, member.text, column, width)
  end
  return table.concat(lines, "\n")
end

local function key_lines(lines, keys, width)
  local names = {}
  for i, key in ipairs(keys) do names[i] = key.name end
  local column = widest(names)
  for _, key in ipairs(keys) do
    local state = key.required and "required" or key.default and "default " .. key.default or "optional"
    local text = ("%s (%s)%s"):format(key.type, state, key.text ~= "" and ": " .. key.text or "")
    local indent = (" "):rep(column + 4)
    lines[#lines + 1] = ("  %-" .. column .. "s  "):format(key.name) .. wrapped(text, indent, width):sub(#indent + 1)
  end
end

--- An entry as the REPL prints it.
---@param entry mslua.help.Entry
---@param width integer columns of the terminal
---@return string
function M.text(entry, width)
  if entry.kind == "module" then return module_text(entry, width) end
  local lines = {}
  if entry.instance then lines[1] = ("%s is an instance of:"):format(entry.instance) end
  lines[#lines + 1] = wrapped_signature(entry.signature, width)
  if entry.class then lines[#lines] = lines[#lines] .. "    " .. entry.class end
  if entry.text ~= "" then lines[#lines + 1] = wrapped(entry.text, "  ", width) end
  for _, returns in ipairs(entry.returns) do lines[#lines + 1] = wrapped("returns " .. returns, "  ", width) end
  key_lines(lines, entry.keys, width)
  if entry.call then
    lines[#lines + 1] = wrapped(("called with %s%s"):format(entry.call.signature,
      entry.call.text ~= "" and ": " .. entry.call.text or ""), "  ", width)
  end
  if #entry.methods > 0 then
    lines[#lines + 1] = "methods:"
    local names = {}
    for i, method in ipairs(entry.methods) do
      names[i] = #method.signature <= MOST_SHOWN and method.signature or method.name .. "(...)"
    end
    local column = widest(names)
    for i, method in ipairs(entry.methods) do lines[#lines + 1] = row(names[i], method.text, column, width) end
  end
  if entry.base then lines[#lines + 1] = ("and the methods of %s (?%s)"):format(entry.base, entry.base) end
  return table.concat(lines, "\n")
end

--- What `?path` prints; nil where there is no entry: then `value` is what the path names, if anything.
---@param path string
---@param width integer
---@return string? text, any value
function M.describe(path, width)
  local entry, value = M.find(path)
  return entry and M.text(entry, width), value
end

return M
