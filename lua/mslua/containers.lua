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

-- Items are the object's own slots 1, 2, ..., so that `#list`, `list[i]`, ipairs and Lua's functions of tables work.
-- These change slots without a word. So _items keeps the items that the fields "0", "1", ..., by which Cell knows them,
-- stood for when they were looked at last.
Row.has_items = true

local function slot_of(key)
  if type(key) == "string" and key:find "^%d+$" then return tonumber(key) + 1 end
end

function Row._new_fields(self)
  self._items = {}
  return setmetatable({}, { __index = function(_, key) return rawget(self, slot_of(key) or 0) end })
end

-- Fails where an item is no cell.
local function check_items(self, n)
  for slot = 1, n do
    local item = rawget(self, slot)
    if not class.is(item, Cell) then
      errors.fail("%s: item %d: expected a Cell, got %s%s", self.class_name, slot, errors.show(item),
        item == nil and (": table.remove(list, %d) leaves no gap"):format(slot) or "")
    end
  end
end

function Row:_keys()
  local order, items = rawget(self, "_order"), rawget(self, "_items")
  if not Cell._has_moved(self, items) then return order end
  local n = table.maxn(self)
  check_items(self, n)
  for i = #order, 1, -1 do
    if (slot_of(order[i]) or 0) > n then table.remove(order, i) end
  end
  for slot = #items + 1, n do order[#order + 1] = tostring(slot - 1) end
  for slot = 1, n do
    local item = rawget(self, slot)
    if item ~= items[slot] then
      self:_own(tostring(slot - 1), item)
      rawset(item, "_list", getmetatable(self).in_scopes and self or nil)
      items[slot] = item
    end
  end
  for slot = #items, n + 1, -1 do items[slot] = nil end
  self._restructured()
  return order
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
  rawset(self, #self + 1, cell)
  self:_keys()
  return self
end

function Row:__newindex(key, v)
  if slot_of(key) then key = slot_of(key) end
  if type(key) ~= "number" then return Cell.__newindex(self, key, v) end
  if rawget(self, key) ~= nil then return rawset(self, key, v) end
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

-- It is not called, so the scopes of its items have its name.
M.CellList.in_scopes = true

--- Cells called one after another: `nn.SequentialCell { nn.Dense(4, 8), nn.ReLU() }`.
M.SequentialCell = Row:extend "SequentialCell"

function M.SequentialCell:construct(x)
  for _, cell in self:each() do x = cell(x) end
  return x
end

return M
