--- `mslua ckpt convert`: weights from one form into another.
local core = require "mslua.core"
local errors = require "mslua.errors"
local files = require "mslua.files"
local checkpoint = require "mslua.checkpoint"
local notice = require "mslua.notice"
local LoRA = require "mslua.nn.lora"
local peft = require "mslua.peft"
local pretrained = require "mslua.pretrained"
local recipes = require "mslua.recipe"

local M = {}

-- The folder that a path is in.
local function parent(path)
  if path == "." then return ".." end
  if path == ".." or path:match "/%.%.$" then return path .. "/.." end
  return path:match "^(.*)/[^/]*$" or "."
end

--- The recipe that a run folder trained: its config.lua, which stands beside the checkpoints' folder; nil: there is
--- none.
---@param path string a run folder, or a checkpoint in one
function M.config_of(path)
  path = path:gsub("/+$", "")
  for _ = 1, 4 do  -- RUN/ckpt/best/CHECKPOINT
    if files.is_file(path .. "/config.lua") then return path .. "/config.lua" end
    path = parent(path)
  end
end

-- Takes the averages of parameters where a checkpoint has them, and says so.
local function use_averages(values)
  if checkpoint.use_averages(values) then notice "ckpt convert: the averages of the parameters (train.ema)" end
end

-- The network of a run folder or of a checkpoint in it, with those weights.
local function network_of(from)
  local config = M.config_of(from)
  if not config then
    errors.fail("ckpt convert: nothing says what network %s is of: give a run folder, which has config.lua, or a "
      .. "checkpoint in one", from)
  end
  core.options.file = config
  local chunk, problem = loadstring(assert(recipes.source(config)), "@" .. config)
  if not chunk then error(problem, 0) end
  local recipe = chunk()
  local net = recipe:make_network()
  net:_as_root()
  if recipe.weights and #LoRA.cells(net) > 0 then pretrained.load_into(net, recipe.weights) end
  local values, unsaved = core.load_checkpoint(from)
  use_averages(values)
  checkpoint.give(net, values, from, false, "")
  core.compare_unsaved(unsaved, net:get_parameters(), from)
  return net
end

-- The values of a checkpoint without the optimizer's state.
local function values_of(from)
  local values = core.load_checkpoint(from)
  use_averages(values)
  local names = errors.names(values)
  local _, states = core.match_names(names, names)
  for _, name in ipairs(names) do
    if states[name] or states[name:match "^rank_%d+/(.*)$" or ""] then values[name] = nil end
  end
  return values
end

local function check_folder(what, to)
  if not files.is_folder(to) then errors.fail("ckpt %s: there is no folder '%s': make it first", what, to) end
end

--- `mslua ckpt merge-lora BASE ADAPTER OUT`: the network of a folder as Hugging Face has it with an adapter as PEFT has
--- it added to its weights, as such a folder, in the type that the base says. Gives the exit code.
---@param base string
---@param adapter string
---@param to string
function M.merge_lora(base, adapter, to)
  check_folder("merge-lora", to)
  local net = LoRA.merge(peft.load_adapter(pretrained.from_pretrained(base), adapter))
  local config = net.pretrained.config
  local dtype = config.torch_dtype or config.dtype
  pretrained.save_pretrained(net, to, { dtype = (dtype == "float16" or dtype == "bfloat16") and dtype or nil })
  return 0
end

--- Writes the weights of `from`, a checkpoint, a run folder or a folder as Hugging Face has it, as `to`: form "hf" is
--- such a folder, "safetensors" and "npz" (NumPy's, where bf16 is f32) are one file with the names that parameters have
--- here, "peft" is a folder with the adapters of nn.LoRA. Gives the exit code.
---@param from string
---@param to string
---@param form "hf"|"safetensors"|"npz"|"peft"
function M.convert(from, to, form)
  local folder = pretrained.is_folder(from)
  if form == "safetensors" or form == "npz" then
    if not to:find("%." .. form .. "$") then
      errors.fail("ckpt convert: %s: expected a name that ends in .%s", to, form)
    end
    local values = {}
    if folder then
      for _, p in ipairs(pretrained.from_pretrained(from):get_parameters()) do values[p.name] = p.value end
    else
      values = values_of(from)
    end
    core.save_checkpoint(to, values, { format = "pt" })
    return 0
  end
  check_folder("convert", to)
  local net = folder and pretrained.from_pretrained(from) or network_of(from)
  if form == "hf" and #LoRA.cells(net) > 0 then
    errors.fail("ckpt convert: %s has adapters: write them by `--to peft`; `mslua ckpt merge-lora BASE ADAPTERS OUT` "
      .. "adds them to the base", net.class_name)
  end
  local beside = not folder and M.config_of(from):match "^(.*)/" or nil
  if form == "hf" then
    pretrained.family_of(net, "ckpt convert", "; --to safetensors, with OUT.safetensors, writes any network")
  end
  if form == "peft" then
    peft.save({ net = net, folder = to }, beside)
  else
    pretrained.save({ net = net, folder = to }, beside)
  end
  return 0
end

return M
