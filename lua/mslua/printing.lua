--- set_printoptions: how tensors are written (numpy.set_printoptions and torch.set_printoptions have the same names).
local args = require "mslua.args"
local arity = require "mslua.arity"
local core = require "mslua.core"
local settings = require "mslua.settings"

local M = {}

local built_in = core.print_options()

local group = settings.new("printoptions", {
  { "precision", "integer", built_in.precision, min = 0, max = 100, doc = "digits after the point, at most" },
  { "threshold", "integer", built_in.threshold, min = 0,
    doc = 'a tensor of more elements is written by its edges, with "..." between them' },
  { "edgeitems", "integer", built_in.edgeitems, min = 1, doc = "elements of each dimension at either edge" },
  { "linewidth", "integer", nil, min = 20,
    doc = "columns of a line; default: the terminal's, or 75 where there is none" },
  { "sci_mode", "boolean", nil, doc = "true: 1.5e+00; false: 1.5; default: by the elements" },
})

local function apply()
  local function get(key) return settings.get(group, key) end
  core.set_print_options(get "precision", get "threshold", get "edgeitems", get "linewidth", get "sci_mode")
end

--- Sets how tensors are written by print, the REPL and ms.print: `ms.set_printoptions { precision = 4 }`.
---@param ... table { precision = 4, ... }
function M.set_printoptions(...)
  settings.set(group, ...)
  apply()
end

args.describe(M.set_printoptions, group.fields)

--- The value of a key of ms.set_printoptions; nil where it is chosen by the terminal or the elements.
---@param key string
function M.get_printoptions(...) return settings.get(group, (arity.take("get_printoptions", 1, ...))) end

--- Sets every key of ms.set_printoptions back to its default.
function M.reset_printoptions(...)
  arity.take("reset_printoptions", 0, ...)
  settings.reset(group)
  apply()
end

return M
