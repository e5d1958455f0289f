--- ms.save_adapter, ms.load_adapter: adapters of nn.LoRA in the form of PEFT, adapter_config.json and
--- adapter_model.safetensors. Names of modules are those of the family's files, else the network's own.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local files = require "mslua.files"
local ops = require "mslua.ops"
local pretrained = require "mslua.pretrained"
local shared_parameters = require "mslua.shared_parameters"
local wrap = require "mslua.nn.wrap"
local LoRA = require "mslua.nn.lora"

local M = {}

local CONFIG, WEIGHTS, PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."

local function family_of(net)
  return wrap.unwrap(net).family and (pretrained.family_of(net, "adapter")) or nil
end

-- The modules of files that a Dense cell is: a list of {module, how}.
local function modules_of(family, path)
  if not family then return { { module = path } } end
  local list = {}
  for i, entry in ipairs(pretrained.names_in_files(family, path .. ".weight")) do
    list[i] = { module = entry.name:gsub("%.weight$", ""), how = entry.how }
  end
  return list
end

-- What all adapters of a network have in common: rank, scale, dropout.
local function common_of(net, cells)
  local first = cells[1].cell.lora
  local rank, scale = first.lora_A.shape[1], first.scale
  for _, entry in ipairs(cells) do
    local lora = entry.cell.lora
    if lora.lora_A.shape[1] ~= rank or lora.scale ~= scale then
      errors.fail("save_adapter: the adapters of %s have several ranks or scales (%s and %s), a file has one",
        net.class_name, cells[1].path, entry.path)
    end
  end
  return rank, scale, first.dropout.p
end

-- Whether a folder has a parameter: those of adapters, what is trained beside them, and what changes without being
-- trained, such as statistics of BatchNorm.
local function is_written(p) return p.requires_grad or p.saved end

-- The tensors of the files, and what of adapter_config.json follows from them.
local function adapters_of(net, family, cells)
  local values, targets, transposed = {}, {}, false
  for _, entry in ipairs(cells) do
    local lora, modules = entry.cell.lora, modules_of(family, entry.path)
    if #modules == 0 then
      errors.fail("save_adapter: files of '%s' have no name for %s", family.model_type, entry.path)
    end
    local x, y = lora.lora_A.value, lora.lora_B.value
    for _, m in ipairs(modules) do
      local b = type(m.how) == "table" and ({ ops.split(y, 1, m.how[2]) })[m.how[1]] or y
      transposed = transposed or m.how == "transposed"
      values[PREFIX .. m.module .. ".lora_A.weight"] = x
      values[PREFIX .. m.module .. ".lora_B.weight"] = b
      targets[m.module] = true
    end
  end
  local others = {}
  for _, p in ipairs(net:get_parameters(is_written)) do
    if not LoRA.is_adapter(p) then
      local name = family and (pretrained.names_in_files(family, p.name)[1] or {}).name or p.name
      values[PREFIX .. name] = p.value
      others[name:match "^(.*)%.[^.]*$" or name] = true
    end
  end
  return values, {
    peft_type = "LORA", bias = "none",
    target_modules = errors.names(targets), fan_in_fan_out = transposed, inference_mode = true,
    modules_to_save = next(others) and errors.names(others) or nil,
    base_model_name_or_path = wrap.unwrap(net).weights_folder or "",
  }
end

local bind_save = args.signature("save_adapter", {
  { "net", "cell", required = true, doc = "a network with adapters of nn.LoRA" },
  { "folder", "string", required = true, doc = "the folder to write into; it exists" },
})

--- Writes the adapters of a network, and what else its checkpoints have, as PEFT has them: other parameters that it
--- trains, and statistics of BatchNorm. The folder must exist. Where ranks keep
--- parts of the parameters, all of them call it, and of those that give one folder the first writes. (net, folder)
function M.save_adapter(...) M.save(bind_save(...)) end

--- save_adapter with its arguments by name. `beside`: a folder whose tokenizer is copied too.
---@param a {net: Cell, folder: string}
---@param beside? string
function M.save(a, beside)
  local net, dir = a.net, a.folder
  local cells = LoRA.cells(net)
  if #cells == 0 then errors.fail("save_adapter: %s has no adapters: nn.LoRA.apply makes them", net.class_name) end
  if not files.is_folder(dir) then errors.fail("save_adapter: there is no folder '%s'", dir) end
  local family = family_of(net)
  local rank, scale, dropout = common_of(net, cells)
  local parameters = net:get_parameters(is_written)
  shared_parameters.write("save_adapter", parameters, dir, function(writes)
    local values, config = adapters_of(net, family, cells)
    if not writes then return end
    config.r, config.lora_alpha, config.lora_dropout = rank, scale * rank, dropout
    files.fill(dir, function(path)
      pretrained.write_json(path .. "/" .. CONFIG, config)
      core.save_checkpoint(path .. "/" .. WEIGHTS, values, { format = "pt" })
      if beside then pretrained.copy_companions(beside, path) end
    end)
  end)
end

-- Keys of adapter_config.json whose other values mean another computation.
local REFUSED = { use_dora = true, use_rslora = true, rank_pattern = true, alpha_pattern = true,
  layer_replication = true, lora_bias = true, megatron_config = true, use_qalora = true,
  alora_invocation_tokens = true }
-- Of init_lora_weights: those that leave the base as it is.
local PLAIN_STARTS = { gaussian = true, eva = true, orthogonal = true }

local function is_set(v) return v ~= nil and v ~= false and not (type(v) == "table" and next(v) == nil) end

local function read_config(dir)
  local function fail(format, ...) errors.fail("%s: " .. format, dir, ...) end
  for _, name in ipairs { CONFIG, WEIGHTS } do
    if not files.is_file(dir .. "/" .. name) then
      fail("no %s: expected a folder with %s and %s, as PEFT writes it", name, CONFIG, WEIGHTS)
    end
  end
  local config = core.read_json(dir .. "/" .. CONFIG)
  if type(config) ~= "table" then fail("%s: expected an object, got %s", CONFIG, errors.show(config)) end
  if config.peft_type ~= "LORA" then
    fail("%s: peft_type is %s, expected LORA", CONFIG, errors.show(config.peft_type))
  end
  for key in pairs(REFUSED) do
    if is_set(config[key]) then fail("%s: %s is not supported", CONFIG, key) end
  end
  local start = config.init_lora_weights
  if type(start) == "string" and not PLAIN_STARTS[start] then
    fail("%s: init_lora_weights = %s is not supported: it changes the weights that the adapter is for; save it with "
      .. "path_initial_model_for_weight_conversion in PEFT", CONFIG, errors.show(start))
  end
  if (config.bias or "none") ~= "none" then
    fail("%s: bias = %s is not supported, expected \"none\"", CONFIG, errors.show(config.bias))
  end
  for _, key in ipairs { "r", "lora_alpha" } do
    if type(config[key]) ~= "number" or config[key] <= 0 then
      fail("%s: %s is %s, expected a number above 0", CONFIG, key, errors.show(config[key]))
    end
  end
  local dropout = config.lora_dropout or 0
  if type(dropout) ~= "number" or dropout < 0 or dropout >= 1 then
    fail("%s: lora_dropout is %s, expected a number from 0, below 1", CONFIG, errors.show(dropout))
  end
  return config, dropout, fail
end

-- Sorts the tensors of a file by what they are of: Dense path -> list of {A, B, how}, and values of other parameters.
local function sort_tensors(family, from)
  local adapters, others, unknown = {}, {}, {}
  for _, t in ipairs(from:tensors()) do
    local name = t.name:sub(1, #PREFIX) == PREFIX and t.name:sub(#PREFIX + 1) or nil
    local module, side = (name or ""):match "^(.*)%.lora_([AB])%.weight$"
    local file = module and module .. ".weight" or name
    local ours, how = file, nil
    if family and file then ours, how = pretrained.name_of_file(family, file) end
    if not ours then
      unknown[#unknown + 1] = t.name
    elseif module then
      local path = ours:gsub("%.?weight$", "")
      adapters[path] = adapters[path] or {}
      adapters[path][module] = adapters[path][module] or { how = how, module = module }
      adapters[path][module][side] = t
    else
      others[ours] = t
    end
  end
  return adapters, others, unknown
end

-- The adapter of a Dense cell of all the parts that files have: those of one weight, rows of which they are, side by
-- side. A [parts r, in], B [out, parts r], zero where a part's rows meet another part's ranks.
local function join_parts(parts, dense, from, wanted_rank, fail)
  local list = {}
  for _, module in ipairs(errors.names(parts)) do
    local p = parts[module]
    if not p.A or not p.B then fail("%s has lora_%s alone", module, p.A and "A" or "B") end
    list[#list + 1] = p
  end
  local as, bs = {}, {}
  for i, p in ipairs(list) do
    local count = type(p.how) == "table" and p.how[2] or 1
    local rank, out = p.A.shape[1], dense.out_channels / count
    if p.A.shape[2] ~= dense.in_channels or p.B.shape[1] ~= out or p.B.shape[2] ~= rank then
      fail("%s: lora_A is [%s] and lora_B [%s], but the base's layer has %d inputs and %d outputs: another base",
        p.module, table.concat(p.A.shape, ", "), table.concat(p.B.shape, ", "), dense.in_channels, out)
    end
    if rank ~= wanted_rank then
      fail("%s: lora_A has %d rows, and %s says r = %g, which the scale lora_alpha / r is of", p.module, rank, CONFIG,
        wanted_rank)
    end
    local dtype = dense.weight.dtype
    as[i] = from:read(p.A.name):astype(dtype)
    local b = from:read(p.B.name):astype(dtype)
    local rows = {}
    for part = 1, count do
      rows[part] = (count == 1 or part == p.how[1]) and b or core.zeros({ out, rank }, dtype)
    end
    bs[i] = count == 1 and b or ops.concat(rows, 1)
  end
  return #as == 1 and as[1] or ops.concat(as, 1), #bs == 1 and bs[1] or ops.concat(bs, 2)
end

-- Whether a module is one of `names`, or ends in one, as PEFT looks for them.
local function is_named(module, names)
  for _, name in ipairs(names) do
    if module == name or module:sub(-#name - 1) == "." .. name then return true end
  end
  return false
end

-- An error where adapter_config.json names modules whose tensors the file lacks.
local function check_whole(net, family, config, adapters, others, fail)
  local targets, saved = config.target_modules, config.modules_to_save
  -- Modules by a pattern, of some layers, or but for some are not looked for.
  if args.is_list(targets) and not is_set(config.layers_to_transform) and not is_set(config.exclude_modules) then
    for _, entry in ipairs(LoRA.dense_cells(net)) do
      for _, m in ipairs(modules_of(family, entry.path)) do
        if is_named(m.module, targets) and not (adapters[entry.path] or {})[m.module] then
          fail("%s has no adapter of %s, which target_modules of %s names: the folder is incomplete", WEIGHTS, m.module,
            CONFIG)
        end
      end
    end
  end
  for _, name in ipairs(args.is_list(saved) and saved or {}) do
    local found = false
    for _, t in pairs(others) do
      local module = t.name:sub(#PREFIX + 1):match "^(.*)%.[^.]*$" or t.name:sub(#PREFIX + 1)
      found = found or ("." .. module .. "."):find("." .. name .. ".", 1, true) ~= nil
    end
    if not found then
      fail("%s has no tensor of %s, which modules_to_save of %s names: the folder is incomplete", WEIGHTS, name, CONFIG)
    end
  end
end

local bind_load = args.signature("load_adapter", {
  { "net", "cell", required = true, doc = "a network without adapters" },
  { "folder", "string", required = true, doc = "a folder with adapter_config.json and adapter_model.safetensors" },
})

--- Gives a network the adapters of a folder in the form of PEFT, and the values of other parameters that it holds; as
--- after LoRA.apply, all else is fixed. Gives the network. (net, folder)
---@return Cell
function M.load_adapter(...)
  local a = bind_load(...)
  local net, dir = a.net, a.folder
  local config, dropout, fail = read_config(dir)
  if #LoRA.cells(net) > 0 then fail("%s has adapters already", net.class_name) end
  local from, family = core.open_weights(dir .. "/" .. WEIGHTS), family_of(net)
  local adapters, others, unknown = sort_tensors(family, from)
  local cells = {}
  for _, entry in ipairs(LoRA.dense_cells(net)) do cells[entry.path] = entry.cell end
  local values, parameters = {}, net:parameters_dict()
  for _, path in ipairs(errors.names(adapters)) do
    if not cells[path] then fail("%s is no Dense cell of %s: another base", path, net.class_name) end
    local x, y = join_parts(adapters[path], cells[path], from, config.r, fail)
    values[path] = { x, y }
  end
  for _, name in ipairs(errors.names(others)) do
    local p, t = parameters[name], others[name]
    if not p then unknown[#unknown + 1] = t.name end
    if p and table.concat(p.shape, ",") ~= table.concat(t.shape, ",") then
      fail("%s is [%s], the base's is [%s]: another base", t.name, table.concat(t.shape, ", "),
        table.concat(p.shape, ", "))
    end
  end
  if #unknown > 0 then
    fail("tensors that %s does not have: %s%s", net.class_name, table.concat(unknown, ", ", 1, math.min(#unknown, 12)),
      #unknown > 12 and (" and %d more"):format(#unknown - 12) or "")
  end
  if not next(values) then fail("%s has no adapters", WEIGHTS) end
  check_whole(net, family, config, adapters, others, fail)
  for path, pair in pairs(values) do
    LoRA._attach(cells[path], pair[1].shape[1], config.lora_alpha / config.r, dropout)
    cells[path].lora.lora_A.value, cells[path].lora.lora_B.value = pair[1], pair[2]
  end
  for name, t in pairs(others) do parameters[name].value = from:read(t.name):astype(parameters[name].dtype) end
  LoRA._fix(net, function(p) return others[p.name] ~= nil end)
  return net
end

return M
