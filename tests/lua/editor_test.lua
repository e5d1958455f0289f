-- The files of `mslua editor`: Lua that can be read, the names of the library both ways, types that are known.
local check = require "check"
local core = require "mslua.core"
local editor = require "mslua.editor"
local ms = require "mslua"

local files = editor.files()
local modules = {
  ["mslua.lua"] = ms, ["nn.lua"] = ms.nn, ["ops.lua"] = ms.ops, ["dataset.lua"] = ms.dataset, ["text.lua"] = ms.text,
  ["dataset.vision.lua"] = ms.dataset.vision, ["dataset.transforms.lua"] = ms.dataset.transforms,
  ["dataset.config.lua"] = ms.dataset.config, ["communication.lua"] = ms.communication, ["image.lua"] = ms.image,
  ["summary.lua"] = ms.summary,
}

local function names_of(t)
  local names = {}
  for name in pairs(t) do
    if type(name) == "string" and not name:find "^_" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

-- The names that a file gives to its module; modules in it are "nil" there.
local function names_in(text)
  local names = {}
  for line in text:gmatch "[^\n]+" do
    local name = line:match "^function [%w_]+%.([%w_]+)%(" or line:match "^[%w_]+%.([%w_]+) ="
    if name then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

check.case("there is a file for each module", function()
  check.equal(names_of(files), names_of(modules))
end)

for file, module in pairs(modules) do
  check.case(file .. " has the names of its module, and no others", function()
    check.equal(names_in(files[file]), names_of(module))
  end)
  check.case(file .. " is Lua", function()
    local chunk, problem = loadstring(files[file], "=" .. file)
    check.equal(problem, nil)
    check.equal(type(chunk()), "table")
  end)
end

check.case("tensors have the methods of tensors", function()
  local class = files["mslua.lua"]:match "%-%-%-@class Tensor\n(.-)\n\n"
  local names = {}
  for name in class:gmatch "%-%-%-@field ([%w_]+) fun%(self: Tensor" do names[#names + 1] = name end
  table.sort(names)
  check.equal(names, names_of(core.methods))
end)

check.case("every class that a type names is declared", function()
  local known = { Tensor = true }
  for _, text in pairs(files) do
    for name in text:gmatch "%-%-%-@class ([%w_.]+)" do known[name] = true end
    for name in text:gmatch "%-%-%-@alias ([%w_.]+)" do known[name] = true end
  end
  local unknown = {}
  for _, text in pairs(files) do
    for line in text:gmatch "%-%-%-@[^\n]+" do
      -- Texts may name things too: of fields, parameters and results, the types alone.
      local types = line:match "^%-%-%-@overload (.*)" or line:match "^%-%-%-@%l+ [%w_?]+ ([^ ]+)"
        or line:match "^%-%-%-@type (.*)" or ""
      for name in types:gmatch "%f[%w][%w_]+%.[%w_.]+" do
        if not known[name] and not name:find "^%d" and not types:find('"[^"]*' .. name) then unknown[name] = true end
      end
    end
  end
  check.equal(names_of(unknown), {})
end)

check.case("arguments have their types", function()
  local dense = files["nn.lua"]
  check.equal(dense:match "%-%-%-@class nn.Dense.keys\n(%-%-%-@field %S+ %S+)", "---@field in_channels integer")
  check.equal(dense:find("---@overload fun(keys: nn.Dense.keys): nn.Dense", 1, true) ~= nil, true)
  check.equal(files["dataset.lua"]:match 'MnistDataset.keys.-(%-%-%-@field usage%? %S+)',
    '---@field usage? "train"|"test"|"all"')
  check.equal(files["mslua.lua"]:match "%-%-%-@class ms.recipe.keys.train\n.-(%-%-%-@field epochs%? %S+)",
    "---@field epochs? integer")
  check.equal(files["ops.lua"]:find("---@param transpose_b? boolean|ops.matmul.keys", 1, true) ~= nil, true)
end)

check.case("operators between ranks have the arguments of the library", function()
  local ops = files["ops.lua"]
  for _, line in ipairs {
    '---@overload fun(op?: "sum"|"prod"|"max"|"min", group?: string|ops.AllReduce.keys): ops.AllReduce',
    "---@overload fun(root_rank: integer, group?: string|ops.Broadcast.keys): ops.Broadcast",
    "---@overload fun(x?: Tensor|number): Tensor",
    "---@overload fun(keys: ops.receive.keys): Tensor\nfunction ops.receive(sr_tag, src_rank, shape, dtype, group) end",
    "function ops.all_reduce(x, op, group) end",
    "---@overload fun(x: Tensor|number, keys: ops.send.keys): Tensor",
    "function ops.send(x, sr_tag, dest_rank, group) end",
  } do
    check.equal(ops:find(line .. "\n", 1, true) and line, line)
  end
end)

check.case("arguments have their meanings", function()
  local without, count = {}, 0
  for file, text in pairs(files) do
    for class, fields in text:gmatch "%-%-%-@class ([%w_.]+%.keys[%w_.]*)\n(.-)\n\n" do
      for line in fields:gmatch "%-%-%-@field [^\n]+" do
        local name, meaning = line:match "^%-%-%-@field ([%w_]+)%?? %S+ ?(.*)$"
        if name == nil or not meaning:gsub("^%(default .-%) ?", ""):find "%a" then
          without[#without + 1] = ("%s: %s.%s"):format(file, class, tostring(name))
        end
        count = count + 1
      end
    end
  end
  check.equal(count > 1000, true)
  check.equal(without, {})
  check.equal(files["ops.lua"]:match "(%-%-%-@param approximate%?[^\n]*)\n%-%-%-@return Tensor\nfunction ops.gelu%(",
    "---@param approximate? boolean|ops.gelu.keys the tanh formula")
end)

check.done()
