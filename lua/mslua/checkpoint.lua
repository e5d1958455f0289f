--- save_checkpoint, load_checkpoint, load_param_into_net (mindspore.train.serialization).
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local notice = require "mslua.notice"
local optimizers = require "mslua.optimizer"
local parallel_context = require "mslua.parallel_context"
local shared_parameters = require "mslua.shared_parameters"
local Cell = require "mslua.cell"
local wrap = require "mslua.nn.wrap"

local M = {}

local bind_save = args.signature("save_checkpoint", {
  { "save_obj", "cell|optimizer|table|list", required = true,
    doc = "a network, an nn.TrainOneStepCell, an optimizer, or a table of tensors by name" },
  { "ckpt_file_name", "string", required = true,
    doc = "a folder to write, or a file that ends in .safetensors or .npz" },
})

-- The optimizer whose state belongs to a cell's values; nil: none.
local function optimizer_of(cell) return class.is(cell, wrap.TrainOneStepCell) and cell.optimizer or nil end

-- The parameters in a table of values and their keys, in an order that is the same on all ranks.
local function parameters_in(values)
  local parameters, keys = {}, {}
  for key, v in pairs(values) do
    if core.kind(v) == "Parameter" then keys[#keys + 1] = key end
  end
  table.sort(keys, function(x, y) return tostring(x) < tostring(y) end)
  for i, key in ipairs(keys) do parameters[i] = values[key] end
  return parameters, keys
end

--- Saves a network's parameters and states, or a table name -> tensor, as a folder, or as one file when the name ends
--- in .safetensors or .npz (NumPy's, where bf16 is f32). Of an optimizer its state is
--- saved, and the steps that it has made; of an nn.TrainOneStepCell the parameters and these. Where ranks keep parts of
--- the parameters, all of them call it, and of those that give one name the first writes; with pipeline stages, whose
--- ranks do not have all parameters, it is an error. (save_obj, ckpt_file_name)
function M.save_checkpoint(...)
  local a = bind_save(...)
  local values, path = a.save_obj, a.ckpt_file_name
  if class.is(values, Cell) then
    local cell, opt = values, optimizer_of(values)
    cell:_check_found "save_checkpoint"
    values = cell:get_parameters(function(p) return p.saved end)
    if opt then
      local known, state = pcall(opt.saved_state, opt, cell:get_parameters())
      if not known then notice("note: save_checkpoint: the optimizer's state is left out: " .. state) end
      for name, v in pairs(known and state or {}) do values[name] = v end
    end
  elseif class.is(values, optimizers.Optimizer) then
    values = values:saved_state()
  end
  local parameters, keys = parameters_in(values)
  for _, p in ipairs(parameters) do
    if p.layerwise_parallel and core.options.ranks > 1 then
      notice(("save_checkpoint: %s is layerwise_parallel: %s has the values of one rank; ms.ModelCheckpoint saves "
        .. "those of all"):format(p.name, path))
      break
    end
  end
  shared_parameters.write("save_checkpoint", parameters, path, function(writes)
    local whole = {}
    for key, v in pairs(values) do whole[key] = v end
    for i, p in ipairs(parameters) do
      if core.is_part(p) then
        local value, key = p.value, keys[i]
        whole[key] = nil
        if writes then whole[type(key) == "number" and p.name or key] = value end
      end
    end
    if writes then core.save_checkpoint(path, whole) end
  end)
end

local load_into

local strict_load = { "strict_load", "boolean", true,
  doc = "true: names, shapes and types must be equal on both sides; false: what fits is loaded, and the rest is said" }

local bind_load = args.signature("load_checkpoint", {
  { "ckpt_file_name", "string", required = true,
    doc = "a checkpoint's folder, a directory of checkpoints, of which the newest is read, or a .safetensors or .npz "
      .. "file" },
  { "net", "cell|optimizer", doc = "a network whose parameters, or an optimizer whose state, take the values; "
    .. "default: none" },
  strict_load,
})

--- Reads a checkpoint folder, the newest of a directory of them, a .safetensors file, or an .npz file of NumPy's: name
--- -> tensor. With `net` its parameters take the values, as by load_param_into_net. (ckpt_file_name, net, strict_load =
--- true)
---@return table<string, Tensor>
function M.load_checkpoint(...)
  local a = bind_load(...)
  local values, unsaved = core.load_checkpoint(a.ckpt_file_name)
  if a.net then
    load_into(a.net, values, a.strict_load, "load_checkpoint: " .. a.ckpt_file_name)
    if class.is(a.net, Cell) then core.compare_unsaved(unsaved, a.net:get_parameters(), a.ckpt_file_name) end
  end
  return values
end

local bind_into = args.signature("load_param_into_net", {
  { "net", "cell|optimizer", required = true,
    doc = "the network whose parameters, or the optimizer whose state, take the values" },
  { "parameter_dict", "table", required = true, doc = "tensors by the names of parameters" },
  strict_load,
})

local function same_shape(a, b)
  if #a ~= #b then return false end
  for i, n in ipairs(a) do
    if n ~= b[i] then return false end
  end
  return true
end

local function type_of(v) return v.dtype .. errors.show(v.shape) end

local MOST_SHOWN = 12

-- "a, b, c and 7 more"
local function listed(names)
  if #names <= MOST_SHOWN then return table.concat(names, ", ") end
  return ("%s and %d more"):format(table.concat(names, ", ", 1, MOST_SHOWN), #names - MOST_SHOWN)
end

--- Gives each name of a checkpoint's values its average, where the checkpoint has one ("ema.w" of "w"); whether it has
--- any.
---@param values table<string, Tensor>
---@return boolean
---@package
function M.use_averages(values)
  local any = false
  for _, name in ipairs(errors.names(values)) do
    local rank, own = name:match "^(rank_%d+/)ema%.(.*)$"  -- of a rank's own value
    local of = rank and rank .. own or name:match "^ema%.(.*)$"
    if of and values[of] ~= nil then
      values[of], any = values[name]:astype(values[of].dtype), true
    end
  end
  return any
end

-- Whether each rank of this job has a value of its own of a parameter.
local function is_own(p) return p.layerwise_parallel and not parallel_context.shard() end

-- The name under which a checkpoint has this rank's own value of a parameter, or nil.
local function own_name(p, values)
  local name = ("rank_%d/%s"):format(core.options.rank, p.name)
  return core.options.rank > 0 and values[name] ~= nil and is_own(p) and name or nil
end

-- The parameters of which the ranks that saved the values had values of their own, where this job has other ranks or
-- keeps them alike on all ranks; how many ranks saved. Running statistics, which no optimizer trains, are rank 0's.
local function lost_values(parameters, stored)
  local saved, lost, most = {}, {}, 0
  for _, name in ipairs(stored) do
    local rank, of = name:match "^rank_(%d+)/(.*)$"
    if rank then saved[of] = math.max(saved[of] or 0, rank + 1) end
  end
  for _, p in ipairs(parameters) do
    local ranks = saved[p.name]
    if ranks and (p.requires_grad or p.layerwise_parallel) and (ranks ~= core.options.ranks or not is_own(p)) then
      lost[#lost + 1], most = p.name, math.max(most, ranks)
    end
  end
  return lost, most
end

-- Which value each parameter takes, and what has no counterpart.
local function fit(parameters, values)
  local wanted, unsaved, stored, by_name = {}, {}, errors.names(values), {}
  for _, p in ipairs(parameters) do
    table.insert(p.saved and wanted or unsaved, p.name)
    by_name[p.name] = p
  end
  local older, states = core.match_names(wanted, stored, unsaved)
  local found = { taken = {}, missing = {}, unused = {}, wrong = {}, older = {} }
  found.lost, found.saved_by = lost_values(parameters, stored)
  local used = {}
  for _, p in ipairs(parameters) do
    local name = own_name(p, values) or (values[p.name] ~= nil and p.name) or older[p.name]
    local v = name and values[name]
    if name then used[name], used[p.name] = true, true end
    if older[p.name] then table.insert(found.older, ("%s from %s"):format(p.name, name)) end
    if v == nil then
      if p.saved then table.insert(found.missing, p.name) end
    elseif core.kind(v) ~= "Tensor" and core.kind(v) ~= "Parameter" then
      errors.fail("load_param_into_net: parameter_dict: '%s': expected a Tensor, got %s", name, errors.show(v))
    elseif not same_shape(v.shape, p.shape) or v.dtype ~= p.dtype then
      table.insert(found.wrong, { parameter = p, value = v,
        text = ("%s is %s in the network and %s in the checkpoint"):format(p.name, type_of(p), type_of(v)) })
    else
      table.insert(found.taken, { parameter = p, value = v })
    end
  end
  for _, name in ipairs(stored) do
    -- A value of one rank: of a layerwise_parallel parameter or its optimizer's state, or of running statistics.
    local of_rank = name:match "^rank_%d+/(.*)$" or ""
    local known = used[name] or name == optimizers.HISTORY or states[name]
    if not known and not by_name[of_rank] and not states[of_rank] then
      table.insert(found.unused, name)
    end
  end
  return found
end

local function texts_of(wrong)
  local texts = {}
  for i, entry in ipairs(wrong) do texts[i] = entry.text end
  return texts
end

local PARTIAL = " (strict_load = false loads what fits)"

-- Everything that does not fit, as one error. `from`: whose values they are; `hint`: what the caller can do.
local function check_fit(found, from, hint)
  local problems = {}
  local function add(text, list)
    if #list > 0 then problems[#problems + 1] = text:format(listed(list)) end
  end
  add("%s", texts_of(found.wrong))
  add("not in the checkpoint: %s", found.missing)
  add("not in the network: %s", found.unused)
  local lost_text = ("values of %d ranks of their own of %%s (layerwise_parallel): expected %d ranks that train data "
    .. "parallel with them layerwise_parallel, got %d: start as many, or load the values of one rank "
    .. "(docs/howto/data_parallel.md, The values of one rank)"):format(found.saved_by, found.saved_by,
    core.options.ranks)
  add(lost_text, found.lost)
  if #problems == 0 then return end
  errors.fail("%s: %s%s", from, table.concat(problems, "; "), hint)
end

-- Without strict_load: a float of another type is converted, the rest stays as it is, and all is said, of each load.
-- `from`: whose values they are.
local function settle_partial(found, from)
  local kept, converted = { unpack(found.missing) }, {}
  for _, entry in ipairs(found.wrong) do
    local p, v = entry.parameter, entry.value
    if same_shape(v.shape, p.shape) and v.dtype:find "float" and p.dtype:find "float" then
      table.insert(found.taken, entry)
      table.insert(converted, entry.text)
    else
      table.insert(kept, entry.text)
      table.insert(found.missing, p.name)
    end
  end
  if #found.taken == 0 then
    errors.fail("%s: nothing of the checkpoint fits the network: %s", from, listed(kept))
  end
  local function say(text, list)
    if #list == 0 or core.options.rank ~= 0 then return end
    io.stderr:write(("mslua: note: %s: %s\n"):format(from, text:format(listed(list))))
  end
  say("initial values stay: %s", kept)
  say("not in the network, unused: %s", found.unused)
  say("converted: %s", converted)
  say(("%d ranks had values of their own, of which rank r takes those of rank r where both have one, else those of "
    .. "rank 0: %%s"):format(found.saved_by), found.lost)
end

-- Gives an optimizer the state and the steps among the values.
local function restore(opt, values, strict, parameters)
  if values[optimizers.HISTORY] == nil then
    errors.fail("load_param_into_net: the values have no '%s': expected those of an optimizer, which "
      .. "ms.save_checkpoint(opt, FILE) saves", optimizers.HISTORY)
  end
  return opt:restore_state(values, strict, parameters)
end

-- load_param_into_net of the values of `from`, which begins messages. `hint`: ends those of what does not fit.
function load_into(net, values, strict, from, hint)
  if class.is(net, optimizers.Optimizer) then return restore(net, values, strict), {} end
  local found = fit(net:get_parameters(), values)
  if #found.taken + #found.wrong == 0 then
    errors.fail("%s: no name in common: the network has %s, the checkpoint %s", from, found.missing[1] or "none",
      found.unused[1] or "none")
  end
  if strict then check_fit(found, from, hint or PARTIAL) else settle_partial(found, from) end
  if #found.older > 0 then
    notice("note: load_param_into_net: the checkpoint has other names, of a part or a wrapper of this network: "
      .. listed(found.older))
  end
  local opt = optimizer_of(net)
  if opt and values[optimizers.HISTORY] ~= nil and not parallel_context.shard() then
    restore(opt, values, strict, (opt:bind(net)))
  end
  for _, entry in ipairs(found.taken) do
    local p, v = entry.parameter, entry.value
    if core.kind(v) == "Parameter" then v = v.value end
    p.value = v:astype(p.dtype)
  end
  return found.missing, found.unused
end

--- Gives a network the weights of `path`, of which it takes what fits and says the rest; where a training has kept
--- averages of the parameters, it takes these, and says so.
---@param network Cell
---@param values table<string, Tensor>
---@param path string
---@package
function M.start_from(network, values, path)
  if M.use_averages(values) and core.speaks() then
    io.stderr:write(("mslua: %s: the averages of the parameters (train.ema)\n"):format(core.options.verb))
  end
  load_into(network, values, false, path)
end

--- Gives a network the weights of `path`: all that it has, or with `partial` what fits. `hint`: ends the error of
--- weights that do not fit.
---@param network Cell
---@param values table<string, Tensor>
---@param path string
---@param partial boolean?
---@param hint string
---@package
function M.give(network, values, path, partial, hint) load_into(network, values, not partial, path, hint) end

--- Gives the parameters of a network the values of their names. What only one side has, or has with another shape or
--- dtype, is an error that lists it, before any parameter changes; an optimizer's state in a checkpoint is neither
--- missed nor surplus. strict_load = false loads what fits, converts floats, and prints the rest. An optimizer takes
--- its state and its steps from values that save_checkpoint has saved of one, an nn.TrainOneStepCell the parameters and
--- these: a training that continues equals one that was not interrupted. (net, parameter_dict, strict_load = true)
---@return string[] missing parameters of the network that got no value
---@return string[] unused names that the network does not have
function M.load_param_into_net(...)
  local a = bind_into(...)
  return load_into(a.net, a.parameter_dict, a.strict_load, "load_param_into_net")
end

return M
