--- Arguments: one description of fields checks calls, recipes and contexts alike.
---
--- A field is `{ name, kinds, default, required =, min =, above =, max =, below =, choices =, check =, fields = }`;
--- `kinds` are words joined by "|":
---   integer number boolean string function list integers numbers strings table any, or the name of a class below.
local core = require "mslua.core"
local defined = require "mslua.defined"
local errors = require "mslua.errors"
local namespace = require "mslua.namespace"

local M = {}

---@class mslua.Field
---@field [1] string name
---@field [2] string kinds
---@field [3] any default; nil: none
---@field required? boolean
---@field min? number least value
---@field above? number values are greater than this
---@field max? number greatest value
---@field below? number values are less than this
---@field choices? any[] the legal values
---@field check? fun(value: any): string? what is wrong with a value of the right kind
---@field fields? mslua.Field[] of a table: its own fields
---@field unit? string
---@field doc? string what it does, for help: one sentence

local function whole(v) return type(v) == "number" and v == math.floor(v) and math.abs(v) < 2 ^ 53 end

-- Whether a table holds no string keys: no named arguments.
local function is_unnamed(v)
  if type(v) ~= "table" or getmetatable(v) then return false end
  for key in pairs(v) do
    if type(key) ~= "number" then return false end
  end
  return true
end

--- Whether a table is a list value: its keys are 1 to n. A list with nil before another element, such as
--- `{ a, wanted and b or nil, c }`, is none: what stands behind would be dropped.
---@param v any
function M.is_list(v)
  if not is_unnamed(v) then return false end
  local place = 0
  for _ in pairs(v) do
    place = place + 1
    if v[place] == nil then return false end
  end
  return true
end

--- The place of the first nil before another element, of a table with or without string keys; nil: there is none.
---@param v table
---@return integer?
function M.gap(v)
  for i = 1, table.maxn(v) do
    if v[i] == nil then return i end
  end
end

--- The number of an axis from 1, which may be counted from the end, -1 being the last.
---@param name string the function, for the message
---@param what string the argument, for the message
---@param given integer
---@param rank integer
---@return integer
function M.axis(name, what, given, rank)
  local found = given < 0 and rank + 1 + given or given
  if found < 1 or found > rank then
    errors.fail("%s: %s: expected an axis of %d, from 1, got %d", name, what, rank, given)
  end
  return found
end

local function list_of(test)
  return function(v)
    if not M.is_list(v) then return false end
    for _, item in ipairs(v) do
      if not test(item) then return false end
    end
    return true
  end
end

-- kind -> { test, "an integer", whether its numbers may be NaN }
local kinds = {
  any = { function() return true end, "a value", true },
  integer = { whole, "an integer" },
  number = { function(v) return type(v) == "number" end, "a number" },
  any_number = { function(v) return type(v) == "number" end, "a number", true },
  boolean = { function(v) return type(v) == "boolean" end, "true or false" },
  string = { function(v) return type(v) == "string" end, "a string" },
  ["function"] = { function(v) return type(v) == "function" end, "a function" },
  table = { function(v) return type(v) == "table" and not getmetatable(v) end, "a table" },
  list = { M.is_list, "a list" },
  integers = { list_of(whole), "a list of integers" },
  numbers = { list_of(function(v) return type(v) == "number" end), "a list of numbers" },
  strings = { list_of(function(v) return type(v) == "string" end), "a list of strings" },
}

--- Adds a kind: classes of the library do, for their instances.
---@param name string
---@param test fun(v: any): boolean
---@param phrase string "a Cell"
---@param takes_nan? boolean numbers of this kind, also those in lists, may be NaN
function M.kind(name, test, phrase, takes_nan) kinds[name] = { test, phrase, takes_nan } end

local function is_kind(field, v)
  for kind in field[2]:gmatch "[^|]+" do
    if assert(kinds[kind], kind)[1](v) then return true end
  end
  return false
end

local function takes_nan(field)
  for kind in field[2]:gmatch "[^|]+" do
    if kinds[kind][3] then return true end
  end
  return false
end

local function expected(field)
  local words = {}
  for kind in field[2]:gmatch "[^|]+" do words[#words + 1] = kinds[kind][2] end
  local text = table.concat(words, " or ")
  local limits = {}
  if field.min then limits[#limits + 1] = "at least " .. field.min end
  if field.above then limits[#limits + 1] = "above " .. field.above end
  if field.max then limits[#limits + 1] = "at most " .. field.max end
  if field.below then limits[#limits + 1] = "below " .. field.below end
  if #limits > 0 then text = text .. ", " .. table.concat(limits, " and ") end
  return field.unit and text .. " (" .. field.unit .. ")" or text
end

local in_range
-- Limits hold for a number, and for each number of a list.
function in_range(field, v)
  if M.is_list(v) then
    for _, item in ipairs(v) do
      if not in_range(field, item) then return false end
    end
  end
  if type(v) ~= "number" then return true end
  return not (field.min and v < field.min) and not (field.above and v <= field.above)
    and not (field.max and v > field.max) and not (field.below and v >= field.below)
end

-- Whether a number, or one of a list of numbers, is NaN.
local function has_nan(v)
  if M.is_list(v) then
    for _, item in ipairs(v) do
      if has_nan(item) then return true end
    end
  end
  return type(v) == "number" and v ~= v
end

--- What is wrong with a field's value.
---@param field mslua.Field
---@param v any
---@return string? problem "expected an integer, at least 1, got 0"
function M.problem(field, v)
  if field.choices then
    for _, choice in ipairs(field.choices) do
      if v == choice then return nil end
    end
    local shown = {}
    for i, choice in ipairs(field.choices) do shown[i] = errors.show(choice) end
    local mend = type(v) == "string" and core.did_you_mean(v, field.choices) or ""
    return ("expected one of %s, got %s%s"):format(table.concat(shown, ", "), errors.show(v), mend)
  end
  local fits = is_kind(field, v)
  if fits and not takes_nan(field) and has_nan(v) then
    return ("expected %s, got %s"):format(type(v) == "table" and "finite numbers" or "a finite number", errors.show(v))
  elseif not fits or (not takes_nan(field) and not in_range(field, v)) then
    return ("expected %s, got %s"):format(expected(field), errors.show(v))
  end
  return field.check and field.check(v)
end

local function find(fields, name)
  for _, field in ipairs(fields) do
    if field[1] == name then return field end
  end
end

local function names_of(fields)
  local names = {}
  for i, field in ipairs(fields) do names[i] = field[1] end
  return names
end
M.names_of = names_of

-- The first letters of the words of a name: "lr" of learning_rate.
local function initials(name) return (name:gsub("(%a)%a*_?", "%1")) end

-- The known name that is meant: by its letters, its initials, or as the words that one of the names holds.
local function meant(key, known)
  local text = core.did_you_mean(key, known)
  local begins = text:find("'" .. key .. "_", 1, true)  -- whole words are looked for below: bias is has_bias
  if text ~= "" and not begins or #key < 2 then return text end
  local fits
  for _, test in ipairs {
    function(name) return initials(name) == key end,
    function(name) return name:sub(-#key - 1) == "_" .. key end,
    function(name) return ("_" .. name .. "_"):find("_" .. key .. "_", 1, true) end,
    function(name) return key:sub(1, #name + 1) == name .. "_" end,
  } do
    for _, name in ipairs(known) do
      if test(name) then
        if fits then return "" end
        fits = name
      end
    end
    if fits then return (" (did you mean '%s'?)"):format(fits) end
  end
  return ""
end

--- What to say of a key that is none: "unknown key 'lr' (did you mean 'learning_rate'?); keys: learning_rate, ...".
---@param key string
---@param known string[]
---@return string
function M.unknown_key(key, known)
  return ("unknown key '%s'%s; keys: %s"):format(key, meant(key, known), table.concat(known, ", "))
end

--- Checks named values against fields and fills in defaults, into a new table. Nested `fields` are checked too.
---@param fields mslua.Field[]
---@param values table
---@param report fun(problem: string, path: string[]) called for the first problem; must not return
---@param path? string[] of `values` within the whole
---@return table
function M.check(fields, values, report, path)
  path = path or {}
  local function at(name)
    local longer = { unpack(path) }
    longer[#longer + 1] = name
    return longer
  end
  for _, key in ipairs(errors.names(values)) do
    if not find(fields, key) then
      report(M.unknown_key(key, names_of(fields)), at(key))
    end
  end
  if values[1] ~= nil then report(("expected named values, got %s first"):format(errors.show(values[1])), path) end
  local result = {}
  for _, field in ipairs(fields) do
    local name, v = field[1], values[field[1]]
    if v == nil then
      if field.required then report(("%s is missing: expected %s"):format(name, expected(field)), path) end
      v = field[3]
    else
      local problem = M.problem(field, v)
      if problem then report(name .. ": " .. problem, at(name)) end
    end
    if field.fields and type(v) == "table" and not getmetatable(v) then
      v = M.check(field.fields, v, report, at(name))
    end
    result[name] = v
  end
  return result
end

-- Whether a table with string keys is itself the value of field n, as load_param_into_net's: none of its keys is an
-- argument.
local function is_table_value(fields, n, t)
  if not fields[n] or not ("|" .. fields[n][2] .. "|"):find("|table|", 1, true) then return false end
  for _, field in ipairs(fields) do
    if t[field[1]] ~= nil then return false end
  end
  return true
end

-- Whether a field takes a list of whatever elements.
local function takes_list(field) return ("|" .. field[2] .. "|"):find("|list|", 1, true) ~= nil end

-- The named arguments of a call: its last argument, where that is a plain table with string keys, or an empty one where
-- no list is expected. `fail` tells what is wrong.
local function split(fields, fail, ...)
  local n = select("#", ...)
  local list, named, last = { ... }, {}, (select(n > 0 and n or 1, ...))
  if n == 0 or type(last) ~= "table" or getmetatable(last) then return list, n, named end
  if is_unnamed(last) then
    -- With nil between its elements it is no list of the field's, and then an error.
    local list_of_field = M.is_list(last) and last or { select(2, next(last)) }
    local is_value = fields[n] and (fields[n].required or next(last) ~= nil or n > 1 and takes_list(fields[n]))
    if is_value and is_kind(fields[n], list_of_field) then return list, n, named end
    if next(last) ~= nil and n > 1 then return list, n, named end
    list[n] = nil
    if n == 1 then list = { unpack(last) } end  -- Dense {3, 4} is Dense(3, 4)
    return list, n == 1 and table.maxn(last) or n - 1, named
  end
  if is_table_value(fields, n, last) then return list, n, named end
  if n > 1 and table.maxn(last) > 0 then
    local name = fields[n] and fields[n][1] or "NAME"
    fail("argument %d: expected named values alone in the last table, got %s in it; a table as %s is written {%s = %s}",
      n, errors.show(last[table.maxn(last)]), name, name, errors.show(last))
  end
  list[n], n = nil, n - 1
  for key, v in pairs(last) do
    if type(key) == "number" then
      n = math.max(n, key)
      list[key] = v
    else
      named[key] = v
    end
  end
  return list, n, named
end

local fields_of = setmetatable({}, { __mode = "k" })  -- binder -> its fields

--- Makes the binder of a call: positional arguments in the order of the fields, and a last table of named ones.
---@param name string for messages
---@param fields mslua.Field[]
---@return fun(...: any): table binds a call; raises at the caller's line
function M.signature(name, fields)
  local function report(problem) errors.fail("%s: %s", name, problem) end
  local function fail(text, ...) report(text:format(...)) end
  local function bind(...)
    namespace.check_dot(name, ...)
    local list, n, named = split(fields, fail, ...)
    if n > #fields then
      errors.fail("%s: takes at most %s (%s), got %d", name, errors.counted(#fields, "argument"),
        table.concat(names_of(fields), ", "), n)
    end
    for i = 1, n do
      local key = fields[i][1]
      if list[i] ~= nil then
        if named[key] ~= nil then errors.fail("%s: %s is given twice, by position and by name", name, key) end
        named[key] = list[i]
      end
    end
    return M.check(fields, named, report)
  end
  fields_of[bind] = fields
  defined.mark(bind)
  return bind
end

local table_calls = setmetatable({}, { __mode = "k" })  -- functions that take one table of named values

--- Tells help which keys a function's one table has: for functions that check it themselves.
---@param f function
---@param fields mslua.Field[]
function M.describe(f, fields) fields_of[f], table_calls[f] = fields, true end

local texts = setmetatable({}, { __mode = "k" })  -- functions that are made from a definition -> their help

--- Tells help what a function does, where no comment above it can.
---@param f function
---@param text string
---@param returns string[] "Tensor loss"
function M.document(f, text, returns) texts[f] = { text, returns } end

--- What M.document has told: the text and what is returned; nil for any other function.
function M.documented(f)
  if texts[f] then return unpack(texts[f]) end
end

--- Whether a function takes one table of named values, and nothing else.
function M.takes_table(f) return table_calls[f] or false end

--- The fields of a binder that M.signature made or of a function that M.describe has told; nil for any other value.
---@param bind any
---@return mslua.Field[]?
function M.fields_of(bind) return fields_of[bind] end

--- What a field takes, in words: "an integer, at least 1".
---@param field mslua.Field
---@return string
function M.expected(field)
  if not field.choices then return expected(field) end
  if #field.choices == 1 then return errors.show(field.choices[1]) end
  local shown = {}
  for i, choice in ipairs(field.choices) do shown[i] = errors.show(choice) end
  return "one of " .. table.concat(shown, ", ")
end

return M
