--- nn.Cell: a network or a part of one. Assigning cells and parameters to fields of `self` registers them, in order.
local arity = require "mslua.arity"
local class = require "mslua.class"
local core = require "mslua.core"
local custom_gradient = require "mslua.custom_gradient"
local errors = require "mslua.errors"
local frames = require "mslua.frames"
local namespace = require "mslua.namespace"
local parameter = require "mslua.parameter"
local Initializer = require "mslua.initializer"

--- Base class of networks and their parts: `local Net = nn.Cell:extend "Net"`; define Net:init(...), which assigns
--- cells and parameters to fields of self, and Net:construct(x), which computes the output. Net(...) makes a network,
--- net(x) calls it. A method Net:bprop(x, out, dout) gives the gradient by x in place of that of construct's operators:
--- it gets the arguments of construct, what that returned (a list, of several results) and the gradient of that, and
--- returns a gradient for each argument, nil for one that has none.
---@class Cell
local Cell = class.Object:extend "Cell"

local function is_cell(v) return class.is(v, Cell) end
local function check_self(self, call) class.check_self(self, Cell, "a Cell", "net:" .. call) end
require("mslua.args").kind("cell", is_cell, "a Cell")

-- Of an instance, kept beside its fields: _fields everything assigned, _order the names of its cells and parameters
-- as registered, _owner the cell that it was assigned to last, _root whether a Model or TrainOneStepCell took it as its
-- network, _named and _named_by when and from which root its parameters got their names, _list the CellList it is an
-- item of, _lists the lists of cells that are below it, or are itself, each before its _items.
function Cell:new(...)
  namespace.check_dot(self.class_name, ...)
  arity.check(self.class_name, nil, self.init, 1, ...)
  local cell = {}
  cell._fields, cell._order = self._new_fields(cell), {}
  setmetatable(cell, self)
  frames.note_made(cell)
  cell:init(...)
  return cell
end

--- The table of the fields of a cell being made.
function Cell._new_fields() return {} end

local told

--- A field. `training` is whether the cell trains, in construct or outside.
function Cell.__index(self, key)
  local v = rawget(self, "_fields")[key]
  if v ~= nil then return v end
  if key == "training" then return core.training(told(self)) end
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
  to_float = 'amp = "bf16" or "f16" of ms.Model, or of train in a recipe',
  freeze = "for _, p in ipairs(net:get_parameters()) do p.requires_grad = false end",
  requires_grad_ = "for _, p in ipairs(net:get_parameters()) do p.requires_grad = false end",
  set_grad = "ms.value_and_grad asks for gradients where it is called",
  zero_grad = "gradients are results of ms.value_and_grad: nothing adds up that would have to be zeroed",
  apply = "for _, p in ipairs(net:get_parameters()) do ... end, or cells of net:name_cells()",
  register_forward_hook = "call ms.print(x) or return the value from construct",
  register_forward_pre_hook = "call ms.print(x) or return the value from construct",
  register_backward_hook = "ms.grad by the value that the gradient is asked of",
  register_full_backward_hook = "ms.grad by the value that the gradient is asked of",
  register_buffer = 'self:state("name", shape, init)',
  named_parameters = "get_parameters(), each has a p.name",
  parameters_and_names = "get_parameters(), each has a p.name",
  to = "a network is on the device of the program: --device",
  cuda = "a network is on the device of the program: --device",
}

local function registers(v) return is_cell(v) or parameter.is(v) end

-- The first cell or parameter of a plain table, or of plain tables in it, for which `wanted` is true.
local function find_in(v, wanted, seen)
  if type(v) ~= "table" or getmetatable(v) or seen[v] then return nil end
  seen[v] = true
  for _, item in pairs(v) do
    local found = registers(item) and wanted(item) and item or find_in(item, wanted, seen)
    if found then return found end
  end
end

local function holds_cell(v)
  if type(v) ~= "table" or getmetatable(v) then return false end
  for _, item in pairs(v) do
    if is_cell(item) then return true end
  end
  return false
end

local function check_field(self, key, v)
  if holds_cell(v) then
    errors.fail("%s.%s: the cells of a plain table would not be found: use nn.CellList(...), or a field for each",
      self.class_name, key)
  elseif key == "requires_grad" and type(v) == "boolean" then
    errors.fail("%s.requires_grad = %s has no effect: parameters have it: for _, p in ipairs(cell:get_parameters()) do "
      .. "p.requires_grad = %s end", self.class_name, tostring(v), tostring(v))
  elseif key == "training" then
    errors.fail("%s.training cannot be assigned: cell:set_train(%s)", self.class_name, tostring(v))
  elseif key == "pipeline_stage" and v ~= nil and (type(v) ~= "number" or v < 0 or v ~= math.floor(v)) then
    errors.fail("%s.pipeline_stage: expected a stage, an integer from 0, got %s", self.class_name, errors.show(v))
  end
end

-- A tensor in the place of a parameter or a cell: these would be trained and saved no more.
local function check_replaced(self, key, old, v)
  local kind = core.kind(v)
  if kind ~= "Tensor" and kind ~= "Value" then return end
  if is_cell(old) then
    errors.fail("%s.%s is a cell, %s: a tensor is assigned to another field, or to a local variable", self.class_name,
      key, old.class_name)
  end
  errors.fail("%s.%s is a parameter: %s.value = x gives it a value; ms.Parameter(x) is another parameter",
    self.class_name, key, key)
end

local field_names = setmetatable({}, { __mode = "k" })  -- cell -> the field it was assigned to last

-- A parameter's name is the path of fields from the root that is trained. Registering anything may change paths:
-- `structure` counts that.
local structure = 0
local own_names = setmetatable({}, { __mode = "k" })    -- parameter -> the name that it was made with; false: none
-- How often a field of any cell was assigned, or set_train called: what is compiled may have changed.
local changes = 0
local given_names = setmetatable({}, { __mode = "k" })  -- parameter -> the name that it got from a root last
local set_names = setmetatable({}, { __mode = "k" })    -- parameter -> the full name that the user assigned to p.name

-- Whether the items of a list of cells are others than these. Each call of a cell asks for the lists below it.
local function has_moved(list, items)
  local n = #items
  for i = 1, n do
    if list[i] ~= items[i] then return true end
  end
  return rawget(list, n + 1) ~= nil
end
Cell._has_moved = has_moved

--- The names of the fields of its cells and parameters, in order. A list of cells finds its items first.
function Cell:_keys() return rawget(self, "_order") end

--- Takes note that `v` is the cell in the field `key`.
function Cell:_own(key, v)
  field_names[v] = key
  rawset(v, "_owner", self)
end

--- Takes note that cells or parameters have changed places.
function Cell._restructured() structure = structure + 1 end

--- Fields whose cells add nothing to the names of parameters: the network of a wrapper such as WithLossCell.
Cell.transparent = {}

function Cell:__newindex(key, v)
  local fields, order = rawget(self, "_fields"), rawget(self, "_order")
  check_field(self, key, v)
  local registered = registers(fields[key])
  if registered then
    check_replaced(self, key, fields[key], v)
    for i, name in ipairs(order) do
      if name == key then
        table.remove(order, i)
        break
      end
    end
  end
  fields[key] = v
  changes = changes + 1
  if class.is(v, class.Object) then v:_held_as(tostring(key)) end
  if registered or registers(v) then structure = structure + 1 end
  if not registers(v) then return end
  order[#order + 1] = key
  if is_cell(v) then
    self:_own(tostring(key), v)
  elseif own_names[v] == nil then
    own_names[v] = v.name ~= parameter.UNNAMED and v.name or false
  end
end

-- The full name of a parameter at the field `key` of the cell whose parameters' names begin with `prefix`.
local function name_at(p, prefix, key)
  local known = given_names[p] or own_names[p] or parameter.UNNAMED
  if p.name ~= known then set_names[p] = p.name end
  return set_names[p] or prefix .. (own_names[p] or tostring(key))
end

-- Fills `names`, parameter -> full name. A parameter in several places has the name of the first.
local function collect_names(cell, prefix, names, seen)
  if seen[cell] then return end
  seen[cell] = true
  local class, lists = getmetatable(cell), {}
  if class.has_items then lists[1], lists[2] = cell, rawget(cell, "_items") end
  for _, key in ipairs(cell:_keys()) do
    local v = rawget(cell, "_fields")[key]
    if is_cell(v) then
      collect_names(v, class.transparent[key] and prefix or prefix .. tostring(key) .. ".", names, seen)
      for _, list in ipairs(rawget(v, "_lists") or {}) do lists[#lists + 1] = list end
    elseif v ~= nil and not names[v] then
      names[v] = name_at(v, prefix, key)
    end
  end
  rawset(cell, "_lists", lists[1] and lists or nil)
end

-- Gives every parameter below `root` its name as seen from there.
local function name_from(root)
  local names, cells = {}, {}
  collect_names(root, "", names, cells)
  for p, name in pairs(names) do
    if p.name ~= name then p.name = name end
    given_names[p] = name
  end
  for cell in pairs(cells) do
    rawset(cell, "_named", structure)
    rawset(cell, "_named_by", root)
  end
  return names
end

-- The first of a cell, its owner, the owner's owner and so on for which `found` is true; else the outermost.
local function nearest(cell, found)
  local seen = {}
  while not found(cell) and not seen[cell] do
    seen[cell] = true
    local owner = rawget(cell, "_owner")
    if not owner then break end
    cell = owner
  end
  return cell
end

local function is_root(cell) return rawget(cell, "_root") end

-- The cell that names start at: the network of a Model, else the outermost owner.
local function root_of(cell) return nearest(cell, is_root) end

-- Makes sure that the parameters of a cell have their names; of `root` when it is given.
local function ensure_names(cell, root)
  local lists = rawget(cell, "_lists")
  for i = 1, lists and #lists or 0, 2 do
    if has_moved(lists[i], lists[i + 1]) then lists[i]:_keys() end
  end
  if rawget(cell, "_named") == structure and (not root or rawget(cell, "_named_by") == root) then return end
  root = root or root_of(cell)
  name_from(root)
  if rawget(cell, "_named_by") ~= root then name_from(cell) end  -- its owner has another cell in its place
end

--- Makes this cell the root of its parameters' names, as the network of a Model is: a name is the path of fields from
--- here. Returns parameter -> name.
---@return table<Parameter, string>
function Cell:_as_root()
  rawset(self, "_root", true)
  return name_from(self)
end

--- What a call computes; networks define it. Inputs and outputs are tensors, traced values under train and eval.
function Cell:construct(...)
  errors.fail("%s has no construct: define function %s:construct(x) ... end", self.class_name, self.class_name)
end

local function scope_name(cell)
  local list = rawget(cell, "_list")
  local name = field_names[cell] or cell.class_name
  return list and scope_name(list) .. "." .. name or name
end

-- Calls a cell of 16-bit matrices outside a trace: compiled each time, since what construct does may have changed.
local function call_compiled(self, ...)
  local inputs = {}
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    if core.kind(v) ~= "Tensor" then
      errors.fail("%s: argument %d is %s, expected a Tensor: a network of %s matrices is compiled for its arguments",
        self.class_name, i, errors.show(v), rawget(self, "_narrow"))
    end
    inputs[i] = { name = "x" .. i, dtype = v.dtype, shape = v.shape }
  end
  return core.trace(self, inputs):run(...)
end

--- Says that the matrices of this cell and of those below have a 16-bit type: products compute in it, other operators
--- as in mixed precision.
---@param dtype dtype
function Cell:_compute_in(dtype)
  self:_each_cell(function(cell) rawset(cell, "_narrow", dtype) end)
end

local function is_told(cell) return rawget(cell, "_training") ~= nil end

-- What set_train has said of a cell, or of the nearest cell that owns it; nil: nothing.
function told(cell) return rawget(nearest(cell, is_told), "_training") end

local function leave(recomputed, stage, narrow, before, trained, ...)
  if trained ~= nil then core.set_training(trained) end
  if narrow then core.set_amp(before) end
  if recomputed then core.pop_region() end
  if stage then core.pop_stage() end
  core.pop_scope()
  return ...
end

local takes_tensor = setmetatable({}, { __mode = "k" })  -- construct -> whether its first argument is a tensor

--- Says that the first argument of a call of this class, and of classes that inherit its construct, is a tensor.
---@param class table
function Cell._expects_tensor(class) takes_tensor[class.construct] = true end

-- What is wrong with a first argument that is no tensor.
local function check_first(self, x)
  if is_cell(x) then
    errors.fail("%s: the first argument is a Cell: call cells with a dot, self.%s(x)",
      self.class_name, scope_name(self))
  elseif takes_tensor[self.construct] then
    errors.fail("%s: expected a tensor, got %s", self.class_name, errors.show(x))
  end
end

--- Runs construct, in the cell's scope. While a graph is traced, gradients of a cell that has a method bprop are what
--- that one returns.
function Cell:__call(...)
  if type((...)) ~= "userdata" then check_first(self, (...)) end
  arity.check(self.class_name, getmetatable(self).instead_of_more, self.construct, 1, ...)
  if rawget(self, "_narrow") and not core.is_tracing() then return call_compiled(self, ...) end
  ensure_names(self)
  core.push_scope(scope_name(self))
  local recomputed, stage = self._recompute, self.pipeline_stage
  if stage then core.push_stage(stage) end
  if recomputed then core.push_region() end
  local narrow = rawget(self, "_narrow")
  local before = narrow and core.set_amp(narrow)
  local trained = core.set_training(told(self))
  if self.bprop and core.is_tracing() then
    return leave(recomputed, stage, narrow, before, trained, custom_gradient.construct(self, ...))
  end
  return leave(recomputed, stage, narrow, before, trained, self:construct(...))
end

frames.name_of = scope_name
frames.declare(Cell.__call, function(level)
  -- The local `stage` lives from the moment that construct may run.
  if (debug.getlocal(level + 1, 3)) ~= "stage" then return nil end
  local _, self = debug.getlocal(level + 1, 1)
  return self.construct, self
end)

-------------------------------------------------------------------------------------------------- parts of the network

--- Calls visit(cell, path) for this cell and every cell below, parents first; a cell in two places is visited once.
---@param visit fun(cell: Cell, path: string)
function Cell:_each_cell(visit, path, seen)
  path, seen = path or "", seen or {}
  if seen[self] then return end
  seen[self] = true
  visit(self, path)
  for _, key in ipairs(self:_keys()) do
    local child = rawget(self, "_fields")[key]
    if is_cell(child) then child:_each_cell(visit, path == "" and tostring(key) or path .. "." .. key, seen) end
  end
end

--- The parameters of this cell and of those below, in order of registration, each once. Those in a plain table of a
--- field are not found, which is an error.
---@param predicate? fun(p: Parameter): boolean
---@return Parameter[]
function Cell:get_parameters(...)
  check_self(self, "get_parameters()")
  local predicate = arity.take("get_parameters", 1, ...)
  if predicate ~= nil and type(predicate) ~= "function" then
    errors.fail("get_parameters: expected a function of a parameter, got %s", errors.show(predicate))
  end
  self:_check_found("get_parameters", true)
  ensure_names(self, root_of(self))
  local list, seen, by_name = {}, {}, {}
  self:_each_cell(function(cell)
    for _, key in ipairs(cell:_keys()) do
      local p = rawget(cell, "_fields")[key]
      if not is_cell(p) and not seen[p] then
        seen[p] = true
        if by_name[p.name] then
          errors.fail("%s: two parameters have the name '%s': give one of them another name, "
            .. "ms.Parameter(init, {name = ...})", self.class_name, p.name)
        end
        by_name[p.name] = p
        if not predicate or predicate(p) then list[#list + 1] = p end
      end
    end
  end)
  return list
end

local function has_parameters(cell)
  local found = false
  cell:_each_cell(function(part)
    for _, key in ipairs(part:_keys()) do found = found or parameter.is(rawget(part, "_fields")[key]) end
  end)
  return found
end

local network_key = { "network" }  -- of a recipe

--- Fails where a plain table in a field has parameters, or cells with parameters, that are nowhere else in the network.
---@param what string "save_checkpoint"
---@param anywhere? boolean true: what is in a field of any other cell is found there
---@package
function Cell:_check_found(what, anywhere)
  local owned, root = {}, root_of(self)
  self:_each_cell(function(cell) owned[cell] = true end)
  local function is_elsewhere(cell) return rawget(cell, "_owner") or is_root(cell) or cell == root end
  local function is_lost(item)
    if parameter.is(item) then return own_names[item] == nil end
    return not owned[item] and not (anywhere and is_elsewhere(item)) and has_parameters(item)
  end
  for cell in pairs(owned) do
    for key, v in pairs(rawget(cell, "_fields")) do
      local lost = find_in(v, is_lost, {})
      if lost and is_cell(lost) then
        errors.fail_at(network_key, "%s: %s.%s is a plain table, in which the parameters of a %s are not found: use "
          .. "nn.CellList(...), or a field for each cell", what, cell.class_name, tostring(key), lost.class_name)
      elseif lost then
        errors.fail_at(network_key, "%s: %s.%s is a plain table, in which parameter '%s' is not found: assign each "
          .. 'parameter to a field, self["w" .. i] = ms.Parameter(...)', what, cell.class_name, tostring(key),
          lost.name)
      end
    end
  end
end

--- The parameters that training changes.
---@return Parameter[]
function Cell:trainable_params(...)
  check_self(self, "trainable_params()")
  arity.take("trainable_params", 0, ...)
  return self:get_parameters(function(p) return p.requires_grad end)
end

--- name -> parameter.
---@return table<string, Parameter>
function Cell:parameters_dict(...)
  check_self(self, "parameters_dict()")
  arity.take("parameters_dict", 0, ...)
  local dict = {}
  for _, p in ipairs(self:get_parameters()) do dict[p.name] = p end
  return dict
end

--- The cells directly below, with their names, in order: `for name, cell in net:name_cells() do`.
function Cell:name_cells(...)
  check_self(self, "name_cells()")
  arity.take("name_cells", 0, ...)
  local keys, i = self:_keys(), 0
  return function()
    while true do
      i = i + 1
      local key = keys[i]
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
function Cell:parameter(...)
  class.check_self(self, Cell, "a Cell", "self:parameter(name, shape, init)")
  local name, shape, init, options = arity.take("parameter", 4, ...)
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

--- A value that is saved and not trained, registered under `name`: `self:state("count", {}, 0)`. construct reads it as
--- it reads a parameter, and replaces it by `ops.assign(self.count, self.count + 1)`, as running statistics are.
--- Outside, assigning `net.count.value` changes what the next step reads.
---@param name string
---@param shape integer[]
---@param init any as core.parameter's
---@return Parameter
function Cell:state(...)
  local name, shape, init = arity.take("state", 3, ...)
  self[name] = core.state { name = name, shape = shape, init = init }
  return self[name]
end

------------------------------------------------------------------------------------------------------------- settings

-- The argument of a method that switches something on, true where it is left out.
local function switch(name, ...)
  local on = arity.take(name, 1, ...)
  if on ~= nil and type(on) ~= "boolean" then
    errors.fail("%s: expected true or false, got %s", name, errors.show(on))
  end
  return on ~= false
end

--- Training or evaluation, of this cell and of those below; `cell.training` tells which. Called eagerly, and in
--- ms.grad, cells evaluate until they are told to train. In the steps of ms.Model and nn.TrainOneStepCell they train,
--- but for parts that were told to evaluate, such as a BatchNorm whose statistics stay, in a network that was not. In
--- evaluations and predictions of ms.Model all evaluate.
---@param on? boolean default true
---@return Cell self
function Cell:set_train(...)
  check_self(self, "set_train()")
  local on = switch("set_train", ...)
  self:_each_cell(function(cell) rawset(cell, "_training", on) end)
  changes = changes + 1
  return self
end

--- Whether parts of this network that were told to evaluate do so in training steps: not where all of it was.
---@package
function Cell:_heeds_parts() return rawget(self, "_training") ~= false end

local plain = { number = true, boolean = true, string = true }

-- The fields of a cell that a compiled step may depend on. Others, such as a value that construct keeps, are none.
local function notes_of(cell)
  local notes = {}
  for key, v in pairs(rawget(cell, "_fields")) do
    if plain[type(v)] or registers(v) or core.kind(v) == "Tensor" then notes[key] = v end
  end
  return { cell = cell, fields = notes, training = rawget(cell, "_training") }
end

-- The first field that has another value than it had, "training" where set_train has said something else.
local function changed_field(noted)
  if rawget(noted.cell, "_training") ~= noted.training then return "training" end
  local fields, before = rawget(noted.cell, "_fields"), noted.fields
  for key, v in pairs(before) do
    if not rawequal(fields[key], v) and (v == v or fields[key] == fields[key]) then return key end
  end
  for key, v in pairs(fields) do
    if before[key] == nil and (plain[type(v)] or registers(v)) then return key end
  end
end

--- A function that gives the first cell at or below this one that has another value in a field than now, and the
--- field's name; "training" where set_train has said something else. Contents of tables are not looked at.
---@return fun(): Cell?, string?
---@package
function Cell:_watch()
  ensure_names(self)
  local assigned, placed, noted = changes, structure, {}
  self:_each_cell(function(cell) noted[#noted + 1] = notes_of(cell) end)
  return function()
    ensure_names(self)
    if assigned == changes and placed == structure then return nil end
    for _, before in ipairs(noted) do
      local key = changed_field(before)
      if key then return before.cell, key end
    end
    local n, other = 0, nil
    self:_each_cell(function(cell)
      n = n + 1
      if not noted[n] or noted[n].cell ~= cell then other = other or cell end
    end)
    if other or n ~= #noted then return other or self, "cells" end
    assigned, placed = changes, structure
    return nil
  end
end

--- Communication fusion id of all parameters below: gradients of one id may travel in one message, 0 alone. The last
--- call wins.
---@param id integer
---@return Cell self
function Cell:set_comm_fusion(...)
  check_self(self, "set_comm_fusion(id)")
  local id = arity.take("set_comm_fusion", 1, ...)
  if type(id) ~= "number" or id < 0 or id ~= math.floor(id) then
    errors.fail("set_comm_fusion: expected an integer, at least 0, got %s", errors.show(id))
  end
  for _, p in ipairs(self:get_parameters()) do p.comm_fusion = id end
  return self
end

--- Values inside this cell are computed again in the backward pass instead of kept.
---@return Cell self
function Cell:recompute(...)
  check_self(self, "recompute()")
  self._recompute = switch("recompute", ...)
  return self
end

--- The strategy of the cell's operator; for cells with one (Dense, Conv2d, Embedding: `self.op`).
---@return Cell self
function Cell:shard(...)
  check_self(self, "shard {...}")
  local in_strategy, out_strategy = arity.take("shard", 2, ...)
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

-- The lines of a cell and of what is in it; `counts` has the elements of each parameter once.
local function describe(cell, name, indent, lines, counts)
  local extra = cell:extra()
  if extra ~= "" then extra = "(" .. extra .. ")" end
  lines[#lines + 1] = indent .. (name and name .. ": " or "") .. cell.class_name .. extra
  for _, key in ipairs(cell:_keys()) do
    local v = rawget(cell, "_fields")[key]
    if is_cell(v) then
      describe(v, tostring(key), indent .. "  ", lines, counts)
    else
      if not counts.seen[v] then
        local elements = 1
        for _, n in ipairs(v.shape) do elements = elements * n end
        counts.seen[v] = true
        counts.all = counts.all + elements
        if not v.requires_grad then counts.fixed = counts.fixed + elements end
      end
      lines[#lines + 1] = ("%s  %s: %s %s%s"):format(indent, tostring(key), v.dtype, errors.show(v.shape),
        v.requires_grad and "" or " (fixed)")
    end
  end
end

--- The tree: a line for each cell and parameter, and the number of elements of all parameters.
function Cell:__tostring()
  local lines, counts = {}, { all = 0, fixed = 0, seen = {} }
  describe(self, nil, "", lines, counts)
  if counts.all > 0 then
    lines[#lines + 1] = ("%d parameters%s"):format(counts.all,
      counts.fixed > 0 and (", %d of them fixed"):format(counts.fixed) or "")
  end
  return table.concat(lines, "\n")
end

return Cell
