--- nn.CellList and nn.SequentialCell: cells in a row. Items count from 1, their parameters' names from 0, as in files.
local arity = require "mslua.arity"
local args = require "mslua.args"
local class = require "mslua.class"
local errors = require "mslua.errors"
local Cell = require "mslua.cell"

local function items_of(name, ...)
  local cells = { ... }
  if #cells == 1 and args.is_list(cells[1]) then cells = cells[1] end
  local gap = args.gap(cells)
  if gap then errors.fail("%s: item %d: expected a Cell, got nil", name, gap) end
  for i, cell in ipairs(cells) do
    if not class.is(cell, Cell) then errors.fail("%s: item %d: expected a Cell, got %s", name, i, errors.show(cell)) end
  end
  return cells
end

local M = {}

local Row = Cell:extend "Row"

-- Items are the object's own slots 1, 2, ..., so that `#list`, `list[i]` and ipairs are Lua's own; the fields "0", "1",
-- ... by which Cell knows them stand for these slots, and so follow an item that is replaced.
local function slot_of(key)
  if type(key) == "string" and key:find "^%d+$" then return tonumber(key) + 1 end
end

local function item_of(self, slot)
  local item = rawget(self, slot)
  if item ~= nil and not class.is(item, Cell) then
    errors.fail("%s: item %d: expected a Cell, got %s", self.class_name, slot, errors.show(item))
  end
  return item
end

function Row._new_fields(self)
  return setmetatable({}, {
    __index = function(_, key)
      local slot = slot_of(key)
      if slot then return item_of(self, slot) end
    end,
    __newindex = function(fields, key, v)
      local slot = slot_of(key)
      rawset(slot and self or fields, slot or key, v)
    end,
  })
end

function Row:init(...)
  for _, cell in ipairs(items_of(self.class_name, ...)) do self:append(cell) end
end

--- Adds a cell at the end; returns the list. `list[#list + 1] = cell` does it too.
function Row:append(...)
  local cell = arity.take("append", 1, ...)
  if not class.is(cell, Cell) then
    errors.fail("%s:append: expected a Cell, got %s", self.class_name, errors.show(cell))
  end
  self[tostring(#self)] = cell
  return self
end

function Row:__newindex(key, v)
  if type(key) ~= "number" then return Cell.__newindex(self, key, v) end
  if key ~= #self + 1 then
    errors.fail("%s: item %s: the list has %d items, the next is %d", self.class_name, key, #self, #self + 1)
  end
  self:append(v)
end

--- `for i, cell in list:each() do`, from 1, as ipairs(list).
function Row:each(...)
  arity.take("each", 0, ...)
  return ipairs(self)
end

--- Cells that their owner calls itself: `for _, block in ipairs(self.blocks) do x = block(x) end`.
M.CellList = Row:extend "CellList"

function M.CellList:append(...)
  local cell = ...
  Row.append(self, ...)
  rawset(cell, "_list", self)
  return self
end

--- Cells called one after another: `nn.SequentialCell { nn.Dense(4, 8), nn.ReLU() }`.
M.SequentialCell = Row:extend "SequentialCell"

function M.SequentialCell:construct(x)
  for _, cell in self:each() do x = cell(x) end
  return x
end

return M
