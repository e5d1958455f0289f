--- mslua: what `require "mslua"` gives. docs/howto/from_mindspore.md has a row for each call of MindSpore's tutorials.
local args = require "mslua.args"
local arity = require "mslua.arity"
local core = require "mslua.core"
local dtypes = require "mslua.dtypes"
require "mslua.random_calls"
require "mslua.shape"

local ms = {}

local function take(module, ...)
  for _, name in ipairs { ... } do ms[name] = assert(module[name], name) end
end

for name, value in pairs(dtypes) do ms[name] = value end

--- A tensor of zeros: `ms.zeros {2, 3}`. (shape, dtype = float32)
ms.zeros = core.zeros
--- A tensor of ones: `ms.ones {2, 3}`. (shape, dtype = float32)
ms.ones = core.ones
--- A tensor whose elements are all `value`: `ms.full({2, 3}, 0.5)`. (shape, value, dtype = float32)
ms.full = core.full
--- The matrix of n rows and m columns with ones on its diagonal and zeros elsewhere. (n, m = n, dtype = float32)
ms.eye = core.eye
--- The numbers from start, which is 0 if it is left out, up to but not including stop: `ms.arange(5)`, `ms.arange(1, 2,
--- 0.25)`. They are int32 where all are whole, else float32. (start, stop, step = 1, dtype)
ms.arange = core.arange
--- Sets the seed of all random numbers: of ms.rand, initial parameters, dropout, and shuffles. In a recipe --seed comes
--- before it. (seed)
function ms.set_seed(...) core.set_seed(arity.take("set_seed", 1, ...), true) end

take(require "mslua.parameter", "Parameter")
ms.initializer = require "mslua.initializer"

local context = require "mslua.context"
take(require "mslua.printing", "set_printoptions", "get_printoptions", "reset_printoptions")
take(context, "GRAPH_MODE", "PYNATIVE_MODE", "set_context", "get_context")
take(require "mslua.parallel_context", "ParallelMode", "set_auto_parallel_context", "get_auto_parallel_context",
  "reset_auto_parallel_context")
take(require "mslua.ps_context", "set_ps_context", "get_ps_context", "reset_ps_context")

ms.ops = require "mslua.ops"
take(require "mslua.shard", "shard")

-- In a network other numbers at every step, unless a stream is named: a tensor made while it is traced is a constant.
local function random(eager, operator, what)
  return function(...)
    local shape, dtype, name = arity.take(what, 3, ...)
    if not core.is_tracing() or name then return eager(shape, dtype, name) end
    return (operator { shape = type(shape) == "number" and { shape } or shape, dtype = dtype })
  end
end

--- Uniform random numbers in [0, 1); a stream called `name` gives the same numbers again. (shape, dtype = float32,
--- name)
ms.rand = random(core.rand, ms.ops.random_uniform, "rand")
--- Random numbers from the standard normal distribution, with `name` as ms.rand. (shape, dtype = float32, name)
ms.randn = random(core.randn, ms.ops.random_normal, "randn")

--- Prints a tensor, and gives it. A value in a network is printed whenever the step has run, on each rank, under the
--- name given or that of the cell; evaluations of a Model print nothing. (value, name)
function ms.print(...)
  local value, name = arity.take("print", 2, ...)
  core.print(value, name)
  return value
end

ms.nn = require "mslua.nn"
ms.image = require "mslua.image"
ms.summary = require "mslua.summary"
ms.dataset = require "mslua.dataset"
ms.text = require "mslua.text"
ms.communication = require "mslua.communication"
take(require "mslua.loss_scale", "DynamicLossScaleManager", "FixedLossScaleManager")
take(require "mslua.callbacks", "Callback", "LossMonitor", "TimeMonitor", "ModelCheckpoint", "CheckpointConfig",
  "EvalCallback", "EarlyStopping", "ReduceLROnPlateau", "SampleImages", "Histograms")
ms.Model = require "mslua.model"
take(require "mslua.checkpoint", "save_checkpoint", "load_checkpoint", "load_param_into_net")
require "mslua.generation"
require "mslua.translation"
take(require "mslua.pretrained", "from_pretrained", "save_pretrained")
take(require "mslua.peft", "save_adapter", "load_adapter")
take(require "mslua.grad", "grad", "value_and_grad")
take(require "mslua.params", "params")
take(require "mslua.recipe", "recipe")
--- The version of mslua, a string.
ms.version = core.version

-- core.tensor checks what is in the lists.
args.kind("tensor_data", function() return true end, "a number, a boolean, nested lists of them or a Tensor", true)

local bind_tensor = args.signature("Tensor", {
  { "input_data", "tensor_data", required = true, doc = "the values" },
  { "dtype", "string", choices = require("mslua.errors").names(dtypes),
    doc = "the type of the elements; default: float32 for numbers, bool for booleans, else the Tensor's" },
  { "shape", "integers", min = 0,
    doc = "the shape: a number fills it, lists and Tensors have as many elements; default: input_data's" },
})

--- A tensor from a number, nested lists or a tensor: `ms.Tensor({{1, 2}, {3, 4}}, ms.float32)`. (input_data, dtype,
--- shape)
---@return Tensor
function ms.Tensor(...)
  local input, n = ..., select("#", ...)
  -- A table of more than the three arguments is a list, which core.tensor checks.
  if n == 1 and type(input) == "table" and (#input > 3 or args.is_list(input)) then return core.tensor(input) end
  local dtype, shape = select(2, ...)
  -- A last {} is the shape of a single number, not a table of named values.
  local a = n == 3 and args.is_list(shape) and bind_tensor(input, dtype, { shape = shape }) or bind_tensor(...)
  return core.tensor(a.input_data, a.dtype, a.shape)
end

-- `require "resnet"` finds the recipe's neighbours first, then mslua.models.
local function find_model(name)
  local loader = not name:find "^mslua" and package.loaders[2]("mslua.models." .. name)
  return type(loader) == "function" and function() return require("mslua.models." .. name) end or nil
end
table.insert(package.loaders, find_model)

-- Behind the library and before files: a recipe called resnet.lua is not the module "resnet" that it requires.
table.insert(package.loaders, 3, function(name)
  local file, params = package.searchpath(name, package.path), package.loaded["mslua.params"]
  local recipes = params and core.options.file and params.recipes_of(core.options.file, params.state().base) or {}
  recipes[#recipes + 1] = core.options.file
  for _, recipe in ipairs(recipes) do
    if file == recipe or file == "./" .. recipe then return find_model(name) end
  end
end)

return require("mslua.namespace").strict("ms", ms)
