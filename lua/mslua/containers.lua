--- nn.CellList and nn.SequentialCell: cells in a row. Items count from 1, their parameters' names from 0, as in files.
local args = require "mslua.args"
local class = require "mslua.class"
local errors = require "mslua.errors"
local Cell = require "mslua.cell"

local function items_of(name, ...)
  local cells = { ... }
  if #cells == 1 and args.is_list(cells[1]) then cells = cells[1] end
  for i, cell in ipairs(cells) do
    if not class.is(cell, Cell) then errors.fail("%s: item %d: expected a Cell, got %s", name, i, errors.show(cell)) end
  end
  return cells
end

local M = {}

local Row = Cell:extend "Row"

function Row:init(...)
  self.count = 0
  for _, cell in ipairs(items_of(self.class_name, ...)) do self:append(cell) end
end

--- Adds a cell at the end; returns the list.
function Row:append(cell)
  if not class.is(cell, Cell) then
    errors.fail("%s:append: expected a Cell, got %s", self.class_name, errors.show(cell))
  end
  self[tostring(self.count)] = cell
  self.count = self.count + 1
  return self
end

function Row.__index(self, key)
  if type(key) == "number" then return rawget(self, "_fields")[tostring(key - 1)] end
  return Cell.__index(self, key)
end

--- `for i, cell in list:each() do`, from 1.
function Row:each()
  local i = 0
  return function()
    i = i + 1
    if i <= self.count then return i, self[i] end
  end
end

--- Cells that their owner calls itself: `for _, block in self.blocks:each() do x = block(x) end`.
M.CellList = Row:extend "CellList"

function M.CellList:append(cell)
  rawset(cell, "_list", self)
  return Row.append(self, cell)
end

--- Cells called one after another: `nn.SequentialCell { nn.Dense(4, 8), nn.ReLU() }`.
M.SequentialCell = Row:extend "SequentialCell"

function M.SequentialCell:construct(x)
  for _, cell in self:each() do x = cell(x) end
  return x
end

return M
