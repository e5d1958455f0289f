--- nn.Cell: a network or a part of one. Assigning cells and parameters to fields of `self` registers them, in order.
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local parameter = require "mslua.parameter"
local Initializer = require "mslua.initializer"

---@class Cell
local Cell = class.Object:extend "Cell"

local function is_cell(v) return class.is(v, Cell) end
local function check_self(self, call) class.check_self(self, Cell, "a Cell", "net:" .. call) end
require("mslua.args").kind("cell", is_cell, "a Cell")

-- Of an instance, kept beside its fields: _fields everything assigned, _order the names of its cells and parameters
-- as registered, _own a parameter's own name by field, _prefix "layer1.0." once names are fixed, _list the CellList
-- it is an item of.
function Cell:new(...)
  local cell = {}
  cell._fields, cell._order, cell._own = self.new_fields(cell), {}, {}
  setmetatable(cell, self)
  cell:init(...)
  return cell
end

--- The table of the fields of a cell being made.
function Cell.new_fields() return {} end

function Cell.__index(self, key)
  local v = rawget(self, "_fields")[key]
  if v ~= nil then return v end
  return class.lookup(self, key)
end

--- What users of other libraries call, and what does it here; for messages.
Cell.elsewhere = {
  clone = "make another one by calling its class",
  parameters = "get_parameters()",
  state_dict = "parameters_dict()",
  load_state_dict = "ms.load_param_into_net(net, values)",
  train = "set_train(); ms.Model trains",
  eval = "set_train(false); ms.Model evaluates",
  forward = "it is construct, and is called as net(x)",
  to_float = 'amp = "bf16" of ms.Model, or of train in a recipe',
}

local function registers(v) return is_cell(v) or parameter.is(v) end

local function check_field(self, key, v)
  if type(v) == "table" and not getmetatable(v) and is_cell(v[1]) then
    errors.fail("%s.%s: the cells of a plain list would not be found: use nn.CellList(...)", self.class_name, key)
  elseif key == "pipeline_stage" and v ~= nil and (type(v) ~= "number" or v < 0 or v ~= math.floor(v)) then
    errors.fail("%s.pipeline_stage: expected a stage, an integer from 0, got %s", self.class_name, errors.show(v))
  end
end

local named = setmetatable({}, { __mode = "k" })       -- parameters whose full name is fixed
local field_names = setmetatable({}, { __mode = "k" })  -- cell -> the field it was assigned to last

local bind

function Cell:__newindex(key, v)
  local fields, order = rawget(self, "_fields"), rawget(self, "_order")
  check_field(self, key, v)
  if registers(fields[key]) then
    for i, name in ipairs(order) do
      if name == key then
        table.remove(order, i)
        break
      end
    end
  end
  fields[key] = v
  if not registers(v) then return end
  order[#order + 1] = key
  if is_cell(v) then
    field_names[v] = tostring(key)
  else
    self._own[key] = v.name ~= parameter.UNNAMED and v.name or tostring(key)
  end
  if rawget(self, "_prefix") then bind(self, rawget(self, "_prefix")) end
end

-- Gives every parameter below its full name: the path of fields, joined by points. The first root that asks decides.
function bind(cell, prefix)
  rawset(cell, "_prefix", prefix)
  for _, key in ipairs(rawget(cell, "_order")) do
    local v = rawget(cell, "_fields")[key]
    if is_cell(v) then
      if not rawget(v, "_prefix") then bind(v, prefix .. tostring(key) .. ".") end
    elseif not named[v] then
      v.name, named[v] = prefix .. cell._own[key], true
    end
  end
end

--- What a call computes; networks define it. Inputs and outputs are tensors, traced values under train and eval.
function Cell:construct()
  errors.fail("%s has no construct: define function %s:construct(x) ... end", self.class_name, self.class_name)
end

local function scope_name(cell)
  local list = rawget(cell, "_list")
  local name = field_names[cell] or cell.class_name
  return list and scope_name(list) .. "." .. name or name
end

local function leave(recomputed, stage, ...)
  if recomputed then core.pop_region() end
  if stage then core.pop_stage() end
  core.pop_scope()
  return ...
end

--- Runs construct, in the cell's scope.
function Cell:__call(...)
  if is_cell((...)) then
    errors.fail("%s: the first argument is a Cell: call cells with a dot, self.%s(x)",
      self.class_name, scope_name(self))
  end
  if not rawget(self, "_prefix") then bind(self, "") end
  core.push_scope(scope_name(self))
  local recomputed, stage = self._recompute, self.pipeline_stage
  if stage then core.push_stage(stage) end
  if recomputed then core.push_region() end
  return leave(recomputed, stage, self:construct(...))
end

-------------------------------------------------------------------------------------------------- parts of the network

--- Calls visit(cell, path) for this cell and every cell below, parents first; a cell in two places is visited once.
---@param visit fun(cell: Cell, path: string)
function Cell:each_cell(visit, path, seen)
  path, seen = path or "", seen or {}
  if seen[self] then return end
  seen[self] = true
  visit(self, path)
  for _, key in ipairs(rawget(self, "_order")) do
    local child = rawget(self, "_fields")[key]
    if is_cell(child) then child:each_cell(visit, path == "" and tostring(key) or path .. "." .. key, seen) end
  end
end

--- The parameters of this cell and of those below, in order of registration, each once.
---@param predicate? fun(p: Parameter): boolean
---@return Parameter[]
function Cell:get_parameters(predicate)
  check_self(self, "get_parameters()")
  if not rawget(self, "_prefix") then bind(self, "") end
  local list, seen, by_name = {}, {}, {}
  self:each_cell(function(cell)
    for _, key in ipairs(rawget(cell, "_order")) do
      local p = rawget(cell, "_fields")[key]
      if not is_cell(p) and not seen[p] then
        seen[p] = true
        if by_name[p.name] then
          errors.fail("%s: two parameters have the name '%s': give one another name", self.class_name, p.name)
        end
        by_name[p.name] = p
        if not predicate or predicate(p) then list[#list + 1] = p end
      end
    end
  end)
  return list
end

--- The parameters that training changes.
---@return Parameter[]
function Cell:trainable_params()
  check_self(self, "trainable_params()")
  return self:get_parameters(function(p) return p.requires_grad end)
end

--- name -> parameter.
---@return table<string, Parameter>
function Cell:parameters_dict()
  check_self(self, "parameters_dict()")
  local dict = {}
  for _, p in ipairs(self:get_parameters()) do dict[p.name] = p end
  return dict
end

--- The cells directly below, with their names, in order: `for name, cell in net:name_cells() do`.
function Cell:name_cells()
  check_self(self, "name_cells()")
  local i = 0
  return function()
    while true do
      i = i + 1
      local key = rawget(self, "_order")[i]
      if key == nil then return nil end
      local v = rawget(self, "_fields")[key]
      if is_cell(v) then return tostring(key), v end
    end
  end
end

--- A parameter of this cell, registered under `name`: `self:parameter("w", {32, 16}, "normal")`.
---@param name string
---@param shape integer[]
---@param init any as core.parameter's
---@param options? table requires_grad, layerwise_parallel, parallel_optimizer, comm_fusion, dtype
---@return Parameter
function Cell:parameter(name, shape, init, options)
  class.check_self(self, Cell, "a Cell", "self:parameter(name, shape, init)")
  if type(name) ~= "string" or type(shape) ~= "table" then
    errors.fail("%s:parameter: expected a name and a shape, got %s and %s",
      self.class_name, errors.show(name), errors.show(shape))
  end
  local rest = { name = name }
  for key, v in pairs(options or {}) do rest[key] = v end
  local dtype = rest.dtype
  rest.dtype = nil
  self[name] = parameter.Parameter(Initializer(init, shape, dtype), rest)
  return self[name]
end

--- A value that the forward pass replaces by core.assign: running statistics. Saved, not trained.
---@return Parameter
function Cell:state(name, shape, init)
  self[name] = core.state { name = name, shape = shape, init = init }
  return self[name]
end

------------------------------------------------------------------------------------------------------------- settings

--- Training or evaluation: under train and eval the compiler decides; eagerly the cell that is called does.
---@param on? boolean default true
---@return Cell self
function Cell:set_train(on)
  check_self(self, "set_train()")
  core.set_training(on ~= false)
  return self
end

--- Communication fusion id of all parameters below: gradients of one id may travel in one message, 0 alone. The last
--- call wins.
---@param id integer
---@return Cell self
function Cell:set_comm_fusion(id)
  check_self(self, "set_comm_fusion(id)")
  if type(id) ~= "number" or id < 0 or id ~= math.floor(id) then
    errors.fail("set_comm_fusion: expected an integer, at least 0, got %s", errors.show(id))
  end
  for _, p in ipairs(self:get_parameters()) do p.comm_fusion = id end
  return self
end

--- Values inside this cell are computed again in the backward pass instead of kept.
---@return Cell self
function Cell:recompute(on)
  check_self(self, "recompute()")
  self._recompute = on ~= false
  return self
end

--- The cut of the cell's operator; for cells with one (Dense, Conv2d, Embedding: `self.op`).
---@return Cell self
function Cell:shard(in_strategy, out_strategy)
  check_self(self, "shard {...}")
  if not self.op then
    errors.fail("%s:shard: the cell has no single operator: shard its operators", self.class_name)
  end
  self.op:shard(in_strategy, out_strategy)
  return self
end

------------------------------------------------------------------------------------------------------------- printing

--- A few words about the cell's numbers, for print(net).
---@return string
function Cell:extra() return "" end

local function describe(cell, name, indent, lines)
  local extra = cell:extra()
  if extra ~= "" then extra = "(" .. extra .. ")" end
  lines[#lines + 1] = indent .. (name and name .. ": " or "") .. cell.class_name .. extra
  for _, key in ipairs(rawget(cell, "_order")) do
    local v = rawget(cell, "_fields")[key]
    if is_cell(v) then
      describe(v, tostring(key), indent .. "  ", lines)
    else
      lines[#lines + 1] = ("%s  %s: %s %s%s"):format(indent, tostring(key), v.dtype, errors.show(v.shape),
        v.requires_grad and "" or " (fixed)")
    end
  end
end

--- The tree: a line for each cell and parameter.
function Cell:__tostring()
  local lines = {}
  describe(self, nil, "", lines)
  return table.concat(lines, "\n")
end

return Cell
