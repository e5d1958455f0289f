--- nn.MaxPool2d, AvgPool2d, AdaptiveAvgPool2d: windows over images [n, c, h, w].
local args = require "mslua.args"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local M = {}

local function list(v) return type(v) == "table" and v or { v } end

local function pool(name, operator)
  local Pool = Cell:extend(name)
  local bind = args.signature(name, {
    { "kernel_size", "integer|integers", 1, min = 1 },
    { "stride", "integer|integers", nil, min = 1 },
    { "pad_mode", "string", "valid", choices = { "valid", "same", "pad" } },
    { "padding", "integer|integers", 0, min = 0 },
  })
  -- As PyTorch's, and unlike MindSpore's (1), the stride defaults to the kernel size.
  function Pool:init(...)
    local a = bind(...)
    self.kernel_size, self.stride = list(a.kernel_size), list(a.stride or a.kernel_size)
    self.op = ops[operator] {
      kernel_size = self.kernel_size, stride = self.stride, pad_mode = a.pad_mode, padding = list(a.padding),
    }
  end
  function Pool:construct(x) return self.op(x) end
  function Pool:extra()
    return ("kernel %s, stride %s"):format(table.concat(self.kernel_size, "x"), table.concat(self.stride, "x"))
  end
  return Pool
end

--- The largest element under each window. (kernel_size, stride = kernel_size, pad_mode = "valid", padding = 0)
M.MaxPool2d = pool("MaxPool2d", "MaxPool")
--- The mean under each window. (kernel_size, stride = kernel_size, pad_mode = "valid", padding = 0)
M.AvgPool2d = pool("AvgPool2d", "AvgPool")

M.AdaptiveAvgPool2d = Cell:extend "AdaptiveAvgPool2d"
local bind_adaptive = args.signature("AdaptiveAvgPool2d",
  { { "output_size", "integer|integers", required = true, min = 1 } })

--- Means that give images of `output_size`, whatever their size was; sizes must divide.
function M.AdaptiveAvgPool2d:init(...)
  self.output_size = list(bind_adaptive(...).output_size)
end

function M.AdaptiveAvgPool2d:construct(x) return ops.adaptive_avg_pool2d(x, { output_size = self.output_size }) end

function M.AdaptiveAvgPool2d:extra() return table.concat(self.output_size, "x") end

return M
