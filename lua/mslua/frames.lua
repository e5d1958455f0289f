--- The user's functions on the Lua stack, for errors: in which cell an error happened, and on which line where a tail
--- call, `return f(x)`, has left no frame. Nothing here costs anything until there is an error.
local util = require "jit.util"

local getinfo, getlocal, band = debug.getinfo, debug.getlocal, require("bit").band

local M = {}

-- Functions of the library that call the user's -> what gives the user's function and its cell for a level.
local points = {}

--- Declares that `point`, a function of the library, calls functions of users. `called(level)` gives the function that
--- is called at that level of the stack, nil before the call, and the cell it belongs to.
---@param point function
---@param called fun(level: integer): function?, Cell?
function M.declare(point, called) points[point] = called end

--- Whether `f` calls functions of users: session.cc asks.
function M.is_point(f) return points[f] ~= nil end

local function keep(...) return ... end

--- f(...), in a way that errors in `f` name its line even where `f` ends in a tail call.
---@param f function
function M.call(f, ...) return keep(f(...)) end
M.declare(M.call, function(level) return (select(2, getlocal(level + 1, 1))) end)

local function is_user(info) return info.what ~= "C" and info.short_src:sub(1, 6) ~= "mslua/" end

--- Whether `f` is a function of the library.
---@param f any
function M.of_library(f) return type(f) == "function" and not is_user(getinfo(f, "S")) end

-- The file of a function as messages name it.
local function file_of(info)
  local first = info.source:sub(1, 1)
  return (first == "@" or first == "=") and info.source:sub(2) or info.short_src
end

local function last_opcode(f) return band(util.funcbc(f, util.funcinfo(f).bytecodes - 1), 0xff) end
local tail_calls = {
  [last_opcode(function(f) return f() end)] = true, [last_opcode(function(f, ...) return f(...) end)] = true,
}

--- The line of the only tail call in `f`; the line where `f` begins when there are several.
---@param f function
---@return integer
local function tail_line(f)
  local info, line = util.funcinfo(f), nil
  for pc = 1, info.bytecodes - 1 do
    if tail_calls[band(util.funcbc(f, pc), 0xff)] then
      local here = util.funcinfo(f, pc).currentline
      if line and line ~= here then return info.linedefined end
      line = here
    end
  end
  return line or info.linedefined
end

---@class mslua.Frame
---@field file string
---@field line integer
---@field info table of debug.getinfo
---@field cell? Cell whose construct it is

--- The user's frames, innermost first, and the cells that are being called, innermost first. With `nearest` it ends at
--- the first frame: stacks are deep where functions call themselves.
---@param nearest? boolean
---@return mslua.Frame[] frames, Cell[] cells
local function scan(nearest)
  local frames, cells, seen = {}, {}, {}  -- seen: functions since the last point
  local level = 2
  while true do
    local info = getinfo(level, "Slnf")
    if not info then return frames, cells end
    local point = points[info.func]
    if point then
      local f, cell = point(level)
      local defined = f and getinfo(f, "S")
      if defined and is_user(defined) then
        if not seen[f] then
          frames[#frames + 1] = { file = file_of(defined), line = tail_line(f), info = defined }
        end
        frames[#frames].cell = cell
      end
      if f and cell then cells[#cells + 1] = cell end
      seen = {}
    elseif is_user(info) and info.currentline > 0 then
      frames[#frames + 1] = { file = file_of(info), line = info.currentline, info = info }
      seen[info.func] = true
    end
    if nearest and frames[1] then return frames, cells end
    level = level + 1
  end
end

--- The name of a cell in a path; mslua.cell sets it.
---@type fun(cell: Cell): string
M.name_of = nil

local function path_of(cells, from)
  local names = {}
  for i = #cells, from, -1 do names[#names + 1] = M.name_of(cells[i]) end
  return table.concat(names, "/")
end

--- Where the user's code is that runs: file and line; nothing when there is none.
---@return string? file, integer? line
function M.where()
  local frame = scan(true)[1]
  if frame then return frame.file, frame.line end
end

local made_at = setmetatable({}, { __mode = "k" })  -- cell -> { file, line } of the user's code that made it

--- Remembers the user's line that makes `cell`: a network of the library's cells runs no line of the user.
---@param cell Cell
function M.note_made(cell)
  local frame = scan(true)[1]
  if frame then made_at[cell] = { frame.file, frame.line } end
end

--- The user's line that made the innermost cell whose call runs; nothing outside of cells.
---@return string? file, integer? line
function M.made()
  local _, cells = scan()
  for _, cell in ipairs(cells) do
    if made_at[cell] then return made_at[cell][1], made_at[cell][2] end
  end
end

--- The path of the cell whose call runs, "Net/layers.2/fc"; nil outside of cells.
---@return string?
function M.path()
  local _, cells = scan()
  return #cells > 0 and path_of(cells, 1) or nil
end

--- The user's frames as lines of text, innermost first; nil when there are none.
---@return string?
function M.traceback()
  local frames, cells = scan()
  local lines, depth = {}, 1
  for i, frame in ipairs(frames) do
    local info = frame.info
    local what = info.what == "main" and "in the file's own code"
      or info.name and ("in %s"):format(info.name) or ("in the function of line %d"):format(info.linedefined)
    if frame.cell then
      while cells[depth] ~= frame.cell do depth = depth + 1 end
      what = ("in construct of %s (%s)"):format(path_of(cells, depth), frame.cell.class_name)
    end
    lines[i] = ("  %s:%d: %s"):format(frame.file, frame.line, what)
  end
  return #lines > 0 and table.concat(lines, "\n") or nil
end

return M
