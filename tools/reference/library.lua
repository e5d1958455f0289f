-- Writes the pages of the Lua library: operators, cells, training, datasets, and the rest of ms. Returns a table of
-- file name -> Markdown. The text comes from mslua.help; core.ops tells the types of operators' tensors.
local help = require "mslua.help"
local class = require "mslua.class"
local core = require "mslua.core"
local ms = require "mslua"

local function cell(text) return (text:gsub("|", "\\|"):gsub("%s+", " ")) end
local function code(text) return "`" .. text .. "`" end

local LONGEST = 90  -- columns of a signature on one line

-- The arguments of "a, b = {1, 2}", separated at the commas outside of brackets and texts.
local function arguments_of(text)
  local list, depth, quoted, from = {}, 0, false, 1
  for i = 1, #text do
    local c = text:sub(i, i)
    if c == '"' and text:sub(i - 1, i - 1) ~= "\\" then
      quoted = not quoted
    elseif not quoted and c:find "[%({]" then
      depth = depth + 1
    elseif not quoted and c:find "[%)}]" then
      depth = depth - 1
    elseif not quoted and depth == 0 and c == "," then
      list[#list + 1] = text:sub(from, i - 1)
      from = text:find("%S", i + 1) or i + 1
    end
  end
  list[#list + 1] = text:sub(from)
  return list
end

-- A signature with one argument a line where it is long: "nn.Dense(in_channels, ...)", "ops.Cast {dtype}(x)".
local function signature(text)
  if #text <= LONGEST then return text end
  local head, inner, rest = text:match "^([%w_.]+[%s=]*)(%b())(.*)$"
  if not head then head, inner, rest = text:match "^([%w_.]+[%s=]*)(%b{})(.*)$" end
  if not head then return text end
  return ("%s%s\n  %s\n%s%s"):format(head, inner:sub(1, 1), table.concat(arguments_of(inner:sub(2, -2)), ",\n  "),
    inner:sub(-1), rest)
end

local function add(lines, format, ...) lines[#lines + 1] = select("#", ...) > 0 and format:format(...) or format end

-- A table with the columns name, type, default and meaning; nothing where there are no keys.
local function add_keys(lines, title, keys)
  if #keys == 0 then return end
  add(lines, "| %s | type | default | meaning |", title)
  add(lines, "| --- | --- | --- | --- |")
  for _, key in ipairs(keys) do
    local default = key.required and "required" or key.default and code(key.default) or ""
    add(lines, "| %s | %s | %s | %s |", code(cell(key.name)), cell(key.type), cell(default), cell(key.text))
  end
  add(lines, "")
end

-- "[`nn.Adam`](#nnadam)": GitHub's anchor of a heading is the heading without punctuation.
local function link(name) return ("[`%s`](#%s)"):format(name, name:lower():gsub("[^%w_-]", "")) end

local function add_contents(lines, names)
  local links = {}
  for i, name in ipairs(names) do links[i] = link(name) end
  add(lines, "%s", table.concat(links, ", "))
  add(lines, "")
end

----------------------------------------------------------------------------------------------------------- operators

local TYPES = { T = "tensor", index = "tensor of integers", bool = "tensor of booleans", float = "tensor of floats",
  any = "tensor of any type" }

-- The keys with their choices alone as types.
local function attribute_keys(keys)
  local list = {}
  for i, key in ipairs(keys) do
    list[i] = setmetatable({ type = key.choices and key.type:gsub("^one of ", "") or nil }, { __index = key })
  end
  return list
end

-- The entries of the operator's function and of its class, which may be nil; info: what core.ops tells of it.
local function add_operator(lines, entry, class_entry, info)
  add(lines, "### %s\n", entry.name)
  add(lines, "%s\n", entry.text)
  add(lines, "```lua")
  add(lines, "%s", signature(entry.signature))
  if class_entry then
    add(lines, "%s", signature(("%s(%s)(%s)"):format(class_entry.name, class_entry.arguments,
      class_entry.operands)))
  end
  add(lines, "```\n")
  local types = {}
  for i, input in ipairs(#entry.inputs > 0 and info.inputs or {}) do
    types[i] = ("%s: %s"):format(code(input.name), TYPES[input.type] or input.type)
  end
  if #types > 0 then add(lines, "Inputs: %s.\n", table.concat(types, "; ")) end
  if #info.outputs > 1 then
    local first = type(ms.ops[info.name]) == "table" and (" The function gives %s, `ops.%s.all` gives all."):format(
      code(info.outputs[1]), info.name) or ""
    add(lines, "Outputs: %s.%s\n", table.concat(info.outputs, ", "), first)
  end
  add_keys(lines, "attribute", attribute_keys(entry.keys))
end

------------------------------------------------------------------------------------------------- entries of the library

local function add_entry(lines, entry)
  add(lines, "### %s\n", entry.name)
  if entry.text ~= "" then add(lines, "%s\n", entry.text) end
  add(lines, "```lua\n%s\n```\n", signature(entry.signature))
  add_keys(lines, "key", entry.keys)
  if entry.call then
    local text = entry.call.text ~= "" and ": " .. entry.call.text or "."
    add(lines, "Called with `%s`%s\n", entry.call.signature, text)
  end
  for _, returns in ipairs(entry.returns) do add(lines, "Returns `%s`.\n", returns) end
  for _, method in ipairs(entry.methods) do
    add(lines, "- `:%s`%s", method.signature, method.text ~= "" and ": " .. method.text or "")
  end
  if #entry.methods > 0 then add(lines, "") end
  if entry.base then add(lines, "It has the methods of `%s` too.\n", entry.base) end
end

local function add_section(lines, title, entries)
  if #entries == 0 then return end
  if title then add(lines, "## %s\n", title) end
  local names = {}
  for i, entry in ipairs(entries) do names[i] = entry.name end
  add_contents(lines, names)
  for _, entry in ipairs(entries) do add_entry(lines, entry) end
end

-- The value of "nn.Adam", "ms.dataset.vision.Resize".
local function value_of(name)
  local value = name:find "^ms%." and _G or ms
  for part in name:gmatch "[^.]+" do value = part == "ms" and ms or value[part] end
  return value
end

-- The group of an entry; nil: its page is another one.
local function group_of(entry)
  if entry.kind == "module" or entry.kind == "operator" then return nil end
  if entry.name:find "^ops%." then return "ops" end
  if entry.name:find "^ms%.dataset%.%l+%." then return "transforms" end
  if entry.name:find "^ms%.dataset%." then return "datasets" end
  if entry.name:find "^ms%.communication%." then return "communication" end
  if not entry.name:find "^nn%." then return entry.kind == "value" and "values" or "ms" end
  if entry.kind == "function" then return "schedules" end
  local value = value_of(entry.name)
  if value == ms.nn.Loss or class.extends(value, ms.nn.Loss) then return "losses" end
  if value == ms.nn.Cell or class.extends(value, ms.nn.Cell) then return "cells" end
  return "optimizers"
end

local groups, operators, operator_classes = {}, {}, {}
for _, entry in ipairs(help.list()) do
  if entry.kind == "operator" and entry.name:find "^ops%.%u" then
    operator_classes[entry.name] = entry
  elseif entry.kind == "operator" then
    operators[#operators + 1] = entry
  end
  local group = group_of(entry)
  if group then
    groups[group] = groups[group] or {}
    table.insert(groups[group], entry)
  end
end

-- sections: title, group, title, group, ...
local function page(title, intro, ...)
  local lines = { ("# %s\n"):format(title), intro .. "\n" }
  for i = 1, select("#", ...), 2 do
    local heading, group = select(i, ...)
    add_section(lines, heading, groups[group] or {})
  end
  return lines
end

local infos, names = {}, {}
for _, info in ipairs(core.ops()) do infos[info.name] = info end
for i, entry in ipairs(operators) do names[i] = entry.name end
local ops_page = page("Operators", "Each operator is a function of `ms.ops`, and most are a class, for an operator "
  .. "with a strategy of its own: `ops.MatMul():shard { ... }`. Attributes follow the inputs, by position or by name "
  .. "in a last table: `ops.matmul(x, w, { transpose_b = true })`. Those of the types axis and axes count from 1.")
add_contents(ops_page, names)
for _, entry in ipairs(operators) do
  add_operator(ops_page, entry, operator_classes[entry.class], infos[entry.operator])
end
add_section(ops_page, "Other functions", groups.ops or {})

local pages = { ["operators.md"] = ops_page }
pages["cells.md"] = page("Cells", "A cell is a part of a network, with parameters and a function `construct`. "
  .. "Arguments are given by position, or by name in a table.", nil, "cells")
pages["training.md"] = page("Losses, optimizers and schedules", "What a recipe names beside its network.", "Losses",
  "losses", "Optimizers", "optimizers", "Learning-rate schedules", "schedules")
pages["datasets.md"] = page("Datasets", "Sources of batches, and transforms of samples.", "Datasets", "datasets",
  "Transforms of samples", "transforms")
pages["ms.md"] = page("The module ms", "Recipes, parameters, models, callbacks, checkpoints and contexts.",
  "Functions and classes", "ms", "Communication", "communication", "Values", "values")
for name, lines in pairs(pages) do pages[name] = table.concat(lines, "\n"):gsub("\n+$", "") .. "\n" end
return pages
