--- Learning rates that change: objects that hold numbers only and are evaluated in C++. Each schedule is a file of
--- core/schedule, from which its function here is made. MindSpore's functions of one value an epoch give one a step
--- when step_per_epoch is left out.
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"

local M = {}

---@class mslua.Schedule
---@field kind string of core.schedules, "constant" or "table"; beside it the values of that schedule's fields
---@field value number the highest rate
local Schedule = class.Object:extend "Schedule"
Schedule.__index = Schedule
M.Schedule = Schedule

function Schedule:init(fields)
  for key, v in pairs(fields) do self[key] = v end
  self.value = core.schedule_value(self)
end

--- The rate of a step, which count from 1.
---@param step integer
---@return number
function Schedule:at(step) return core.schedule_at(self, step) end

function Schedule:__tostring()
  local copy = {}
  for key, v in pairs(self) do copy[key] = v end
  return "schedule" .. errors.show(copy)
end

args.kind("schedule", function(v) return class.is(v, Schedule) end, "a schedule such as nn.cosine_decay_lr {...}")

--- A number, a list of one number a step, or a schedule, as a schedule.
---@return mslua.Schedule
function M.of(rate)
  if type(rate) == "number" then return Schedule { kind = "constant", value = rate } end
  if args.is_list(rate) then return Schedule { kind = "table", rates = rate } end
  return rate
end

--- name -> function, of each definition in core/schedule.
---@type table<string, fun(...: any): mslua.Schedule>
M.functions = {}
for _, info in ipairs(core.schedules()) do
  local fields = {}
  for i, f in ipairs(info.fields) do
    fields[i] = { f.name, f.kind, f.default, required = not f.optional, min = f.min, above = f.above, max = f.max,
      below = f.below, unit = f.unit, doc = f.doc }
  end
  local bind = args.signature(info.name, fields)
  local function make(...)
    local a = bind(...)
    a.kind = info.name
    return Schedule(a)
  end
  args.document(make, info.doc, { "mslua.Schedule" })
  M.functions[info.name] = make
end

return M
