--- set_context and get_context: how this rank computes (MindSpore's mindspore.set_context).
local args = require "mslua.args"
local arity = require "mslua.arity"
local core = require "mslua.core"
local errors = require "mslua.errors"
local settings = require "mslua.settings"

local M = {}

--- The value of the key mode of ms.set_context: networks are compiled. The default.
M.GRAPH_MODE = 0
--- The value of the key mode of ms.set_context: each operator runs when it is called.
M.PYNATIVE_MODE = 1

local targets = { CPU = "cpu", GPU = "cuda" }  -- device_target, and --device's name of it

local function check_device(target)
  if target == "CPU" then return nil end
  if target == "GPU" then
    if core.options.verb == "plan" then return nil end  -- made without a device
    local missing = core.device_problem()
    return missing and missing .. '; set device_target = "CPU" to compute on the CPU'
  end
  if target == "Ascend" then return 'Ascend devices are not supported: set device_target = "CPU" or "GPU"' end
  return ("expected CPU or GPU, got %s"):format(errors.show(target))
end

local function check_save_graphs(v)
  if type(v) == "number" and (v < 0 or v > 3 or v ~= math.floor(v)) then
    return "expected false, true, or 0 (none), 1 (final graph), 2 (each pass), 3 (also DOT), got " .. v
  end
end

local group = settings.new("context", {
  { "mode", "integer", M.GRAPH_MODE, choices = { M.GRAPH_MODE, M.PYNATIVE_MODE },
    doc = "no effect: training steps, evaluations and large predictions are compiled, and an operator that a program "
      .. "calls by itself runs when it is called, in ms.GRAPH_MODE, 0, as in ms.PYNATIVE_MODE, 1" },
  { "device_target", "string", "CPU", check = check_device,
    doc = '"CPU", or "GPU": training and evaluation run on a CUDA device; --device of the command line comes first' },
  { "device_id", "integer", 0, min = 0,
    doc = "which CUDA device; where it is not set, the rank's number on its host" },
  { "save_graphs", "boolean|integer", false, check = check_save_graphs,
    doc = "graphs to write: false or 0: none; 1: the final one; true or 2: one after each pass; 3: also in DOT" },
  { "save_graphs_path", "string", ".", doc = "the folder for save_graphs" },
  { "tune", "boolean", false,
    doc = "true: kernels of a training step are chosen by a measurement, kept in the plan cache; false: by a table" },
  { "reference_kernels", "boolean", false,
    doc = "true: graphs run plain, slow kernels, each operator by itself, against which the fast ones are tested" },
  { "vector_products", "boolean", false,
    doc = "true: float32 products use vector instructions only; false: also tiles for bf16, where the processor has "
      .. "them: each number is then the sum of three bf16" },
  { "denormals", "boolean", false,
    doc = "true: numbers below 1.2e-38 in float32 (2.2e-308 in float64) are kept, but for products on tile "
      .. "instructions (AMX); false: they are 0 as operands and results" },
  { "gpu_config", "table", nil, merges = true, doc = "how a CUDA device computes", fields = {
    { "conv_allow_tf32", "boolean", false,
      doc = "true: convolutions may round float32 operands to TF32, 10 bits after the point" },
    { "matmul_allow_tf32", "boolean", false, doc = "true: matrix products likewise" },
  } },
  { "device_check", "boolean", false,
    doc = "true: each kernel of a CUDA device runs alone, and what lies behind its results is checked, so that an "
      .. "error of the device names the operator and the recipe's line" },
}, nil, {
  parallel_mode = "parallel_mode belongs to ms.set_auto_parallel_context",
  enable_ssl = "enable_ssl belongs to ms.set_ps_context",
})

M.fields = group.fields

--- Sets how this rank computes: `ms.set_context { device_target = "GPU" }`. Keys that are left out keep their values;
--- graphs that are compiled from now on follow them.
---@param ... table { mode = ms.GRAPH_MODE, device_target = "CPU", ... }
function M.set_context(...)
  settings.set(group, ...)
  core.options.save_graphs, core.options.save_graphs_path = M.save_graphs(), settings.get(group, "save_graphs_path")
  core.options.tune, core.options.reference_kernels =
    settings.get(group, "tune"), settings.get(group, "reference_kernels")
  core.options.vector_products = settings.get(group, "vector_products")
  core.options.device_check = settings.get(group, "device_check")
  local gpu = settings.get(group, "gpu_config") or {}
  core.options.conv_allow_tf32, core.options.matmul_allow_tf32 = gpu.conv_allow_tf32, gpu.matmul_allow_tf32
  core.forget_programs()
  local denormals = settings.get(group, "denormals")
  if denormals ~= (core.options.denormals or false) then core.set_denormals(denormals) end
  core.options.denormals = denormals
  -- The command line's --device counts before the recipe's device_target.
  local given = select("#", ...) == 1 and type(...) == "table" and (...) or {}
  if given.device_target and not core.options.device_given then
    core.options.device = targets[settings.get(group, "device_target")]
  end
  if given.device_id then core.options.device_id = tostring(settings.get(group, "device_id")) end
end

args.describe(M.set_context, group.fields)

--- The value of a key of ms.set_context.
---@param key string
function M.get_context(...) return settings.get(group, (arity.take("get_context", 1, ...))) end

--- save_graphs as a level: 0 none, 1 the final graph, 2 each pass, 3 also DOT.
---@return integer
function M.save_graphs()
  local v = settings.get(group, "save_graphs")
  if v == true then return 2 end
  return v or 0
end

return M
