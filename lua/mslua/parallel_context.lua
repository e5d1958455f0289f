--- set_auto_parallel_context: keys, ranges and defaults of MindSpore's parallel context
--- (mindspore/python/mindspore/parallel/_auto_parallel_context.py).
local arity = require "mslua.arity"
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local files = require "mslua.files"
local namespace = require "mslua.namespace"
local notice = require "mslua.notice"
local ranks = require "mslua.ranks"
local settings = require "mslua.settings"
local strategy = require "mslua.strategy"

local M = {}

--- The five parallel modes, as strings.
M.ParallelMode = namespace.choices("ms.ParallelMode", {
  STAND_ALONE = "stand_alone", DATA_PARALLEL = "data_parallel", HYBRID_PARALLEL = "hybrid_parallel",
  SEMI_AUTO_PARALLEL = "semi_auto_parallel", AUTO_PARALLEL = "auto_parallel",
  MODE_LIST = { "stand_alone", "data_parallel", "hybrid_parallel", "semi_auto_parallel", "auto_parallel" },
})

-- Counts of gradients, strictly ascending: {20, 35} is [0,20), [20,35), [35, ...).
local function check_segments(list)
  if #list == 0 then return "expected at least one index, got {}" end
  for i, index in ipairs(list) do
    if index < 0 then return ("expected indices from 0, got %d"):format(index) end
    if i > 1 and index <= list[i - 1] then
      return ("expected ascending indices without repetition, got %d after %d"):format(index, list[i - 1])
    end
  end
end

-- comm_fusion.allreduce = { mode = "auto" | "size" | "index", config = ... }; the others have no index.
local function check_fusion(modes)
  return function(rule)
    local fields = { { "mode", "string", nil, required = true, choices = modes }, { "config", "integer|list" } }
    local problem
    local function report(what) problem = problem or what end
    args.check(fields, rule, report)
    if problem then return problem end
    if rule.mode == "auto" then
      return rule.config ~= nil and "config: mode auto takes none (64 MB), got " .. errors.show(rule.config) or nil
    elseif rule.mode == "size" then
      problem = args.problem({ "config", "integer", min = 0, unit = "MB" }, rule.config)
    else
      problem = args.problem({ "config", "integers", check = check_segments }, rule.config)
    end
    return problem and "config: " .. problem
  end
end

-- "data_parallel", "full_batch", or the number of shards of each input's dimensions: {{8, 1}, {8}}.
local function check_strategy(v)
  if type(v) == "string" then
    if v == "data_parallel" or v == "full_batch" then return nil end
    return ('expected "data_parallel", "full_batch" or a list such as {{8, 1}, {8}}, got %q'):format(v)
  end
  local widest, shards_of_widest, largest = -1, 1, 1
  for i, counts in ipairs(v) do
    local problem = args.problem({ "", "integers" }, counts)
    if problem then return ("input %d: %s"):format(i, problem) end
    local total, dims = 1, 0
    for _, n in ipairs(counts) do
      if n < 1 then return ("input %d: expected at least 1 shard of each dimension, got %d"):format(i, n) end
      if n > 1 then dims = dims + 1 end
      total = total * n
    end
    if dims > 1 then return ("input %d: only one dimension may be sharded, got %s"):format(i, errors.show(counts)) end
    if #counts > widest then widest, shards_of_widest = #counts, total end
    largest = math.max(largest, total)
  end
  if widest < 0 then return "expected an entry for each input, got {}" end
  if shards_of_widest < largest then
    return ("the input with the most dimensions has %d shards, another has %d: it must have the most"):format(
      shards_of_widest, largest)
  end
end

-- {["Net/fc1/*"] = {{2, 4}, {4, 1}}}: strategies of operators by name.
local function check_strategies(by_name)
  for _, name in ipairs(errors.names(by_name)) do
    local _, problem = strategy.text(name, by_name[name])
    if problem then return problem end
  end
end

local function check_load_file(path)
  if path ~= "" and not files.is_file(path) then
    return ("no strategy file %q: give the file that strategy_ckpt_save_file wrote%s"):format(
      path, files.is_folder(path) and " (this is a folder)" or "")
  end
end

local function check_save_file(path)
  if files.is_folder(path) then return ("expected a file to write, %q is a folder"):format(path) end
end

local units = { KB = 2 ^ 10, MB = 2 ^ 20, GB = 2 ^ 30, TB = 2 ^ 40 }

-- "8GB", "512MB": bytes; nil where it is no size.
local function bytes_of(text)
  local number, unit = text:match "^(%d+%.?%d*)%s*(%a+)$"
  local bytes = number and units[unit] and tonumber(number) * units[unit]
  return bytes and bytes >= 1 and math.floor(bytes) or nil
end

local function check_memory(text)
  if not bytes_of(text) then return ('expected a size such as "8GB" or "512MB", got %q'):format(text) end
end

local fusion_of = {
  { "allreduce", "table", nil, check = check_fusion { "auto", "size", "index" },
    doc = 'which gradients share a message: {mode = "auto"}: up to 64 MB; {mode = "size", config = 32}: up to 32 MB, 0 '
      .. 'for no limit; {mode = "index", config = {20, 35}}: as all_reduce_fusion_config' },
  { "allgather", "table", nil, check = check_fusion { "auto", "size" },
    doc = "the same for new values of shards, with enable_parallel_optimizer; default: each has its own message" },
  { "reducescatter", "table", nil, check = check_fusion { "auto", "size" },
    doc = "the same for gradients to shards, with enable_parallel_optimizer; default: each has its own message" },
  { "openstate", "boolean", doc = "false: every gradient has its own message; default: true" },
}

-- Of keys that are checked and kept, and have no effect.
local NOT_BUILT = "; only the default trains on several ranks"

local group = settings.new("auto_parallel_context", {
  { "parallel_mode", "string", "stand_alone", choices = M.ParallelMode.MODE_LIST,
    doc = '"stand_alone": each rank trains by itself; "data_parallel": ranks have batches of their own and combine '
      .. 'gradients; "hybrid_parallel": the same, with layerwise_parallel parameters; "semi_auto_parallel": operators '
      .. 'are sharded as the recipe says; "auto_parallel": as a search finds' },
  { "device_num", "integer", nil, min = 1, max = 4096,
    doc = "the job's ranks, which it must equal; default: as many as were started" },
  { "global_rank", "integer", nil, min = 0, max = 4095,
    doc = "this rank's number, which it must equal; default: the one it was started with" },
  { "gradients_mean", "boolean", false,
    doc = "in data and hybrid parallel: true: gradients are averaged over ranks; false: they are summed" },
  { "gradient_fp32_sync", "boolean", true,
    doc = "true: 16-bit gradients are sent and summed in float32; false: in their own type, unless micro-batches or a "
      .. "loss scale have changed them" },
  { "loss_repeated_mean", "boolean", true,
    doc = "MindSpore's: gradients of a loss that several ranks compute are averaged" .. NOT_BUILT },
  { "search_mode", "string", "dynamic_programming",
    choices = { "dynamic_programming", "recursive_programming", "sharding_propagation" },
    doc = 'how auto_parallel searches: "dynamic_programming": for the least predicted time; "recursive_programming": '
      .. 'one mesh axis after the other, which is faster; "sharding_propagation": by the strategies that are given' },
  { "sharding_propagation", "boolean", false,
    doc = 'deprecated: true is search_mode = "sharding_propagation"' },
  { "device_memory", "string", nil, check = check_memory,
    doc = 'in auto_parallel: the most memory that a rank may use by the plan, "8GB"; default: no limit' },
  { "parameter_broadcast", "boolean", false,
    doc = "in data and hybrid parallel: true: all ranks begin with rank 0's values; ranks of one seed need it not" },
  { "all_reduce_fusion_config", "integers", nil, check = check_segments,
    doc = "which gradients, in the order of the backward pass, share a message: {20, 35} is [0, 20), [20, 35), "
      .. "[35, ...); default: messages of up to 64 MB" },
  { "comm_fusion", "table", nil, fields = fusion_of, doc = "which values that ranks send share a message" },
  { "enable_parallel_optimizer", "boolean", false,
    doc = "true: ranks that have the same parameters share the optimizer's state and update (ZeRO)" },
  { "parallel_optimizer_config", "table", nil, doc = "how enable_parallel_optimizer shards", fields = {
    { "gradient_accumulation_shard", "boolean", true,
      doc = "true: with accumulate_steps, gradients are reduced into shards after each micro-batch, which takes less "
        .. "memory and more messages; false: once a step" },
    { "parallel_optimizer_threshold", "integer", 64, min = 0, unit = "KB", doc = "smaller parameters are not sharded" },
    { "optimizer_level", "string", nil, choices = { "level1", "level2", "level3" },
      doc = 'in semi-auto and auto parallel: "level1" shards the state, "level2" also sums of gradients, "level3" also '
        .. 'the parameters; default: "level2", or "level1" without gradient_accumulation_shard' },
  } },
  { "optimizer_weight_shard_size", "integer", -1, check = function(n)
    if n ~= -1 and n < 2 then return ("expected an integer above 1, or -1 for all ranks, got %d"):format(n) end
  end, doc = "in data and hybrid parallel: so many neighbouring ranks share the shards of a parameter; it divides the "
    .. "ranks; -1: all of them" },
  { "optimizer_weight_shard_aggregated_save", "boolean", false,
    doc = "no effect: a checkpoint always has whole tensors of all shards" },
  { "strategy_ckpt_load_file", "string", "", check = check_load_file,
    doc = "in semi-auto and auto parallel: a file of strategies that the operators take; default: none" },
  { "strategy_ckpt_save_file", "string", "", check = check_save_file,
    doc = "in semi-auto and auto parallel: a file for the strategies that operators have, as JSON; default: none" },
  { "strategy_ckpt_config", "table", nil,
    doc = "instead of strategy_ckpt_load_file and strategy_ckpt_save_file", fields = {
    { "load_file", "string", "", check = check_load_file, doc = "as strategy_ckpt_load_file" },
    { "save_file", "string", "", check = check_save_file, doc = "as strategy_ckpt_save_file" },
    { "only_trainable_params", "boolean", true, doc = "MindSpore's: what the file holds" .. NOT_BUILT },
  } },
  { "group_ckpt_save_file", "string", "", doc = "MindSpore's file of groups of ranks" .. NOT_BUILT },
  { "full_batch", "boolean", false,
    doc = 'true: dataset_strategy = "full_batch"; false: "data_parallel"' },
  { "dataset_strategy", "string|list", "data_parallel", check = check_strategy,
    doc = 'in semi-auto and auto parallel: "data_parallel": each rank reads its rows of the batch; "full_batch": '
      .. "all ranks read all; {{8, 1}, {8}}: all read all, and each column has so many shards along its dimensions" },
  { "strategy", "table", nil, check = check_strategies,
    doc = 'in semi-auto and auto parallel: strategies of operators by name: {["Net/fc1/*"] = {{2, 4}, {4, 1}}}' },
  { "pipeline_stages", "integer", 1, min = 1,
    doc = "in semi-auto and auto parallel: groups of ranks that have parts of the layers; it divides the ranks" },
  { "grad_accumulation_step", "integer", 1, min = 1,
    doc = "MindSpore's micro-batches of a step, here train.accumulate_steps" .. NOT_BUILT },
  { "communi_parallel_mode", "string", "all_group_parallel",
    choices = { "all_group_parallel", "same_server_group_parallel", "no_group_parallel" },
    doc = "MindSpore's: which groups of ranks send at the same time" .. NOT_BUILT },
  { "enable_alltoall", "boolean", true, doc = "MindSpore's: ranks may use all-to-all" .. NOT_BUILT },
}, { auto_parallel_search_mode = "search_mode" }, {
  mode = "mode belongs to ms.set_context; the parallel mode is parallel_mode",
  device_target = "device_target belongs to ms.set_context",
  enable_ssl = "enable_ssl belongs to ms.set_ps_context",
})
M.fields = group.fields

-- Modes in which a rank runs the recipe on its own batches.
local local_view = { data_parallel = true, hybrid_parallel = true }

-- Modes in which the recipe is written for the global batch and the compiler shards it.
local global_view = { semi_auto_parallel = true, auto_parallel = true }

--- Whether the ranks train one network.
---@return boolean
function M.together()
  local mode = settings.get(group, "parallel_mode")
  return core.options.ranks > 1 and (local_view[mode] or global_view[mode]) or false
end

local function in_global_view() return core.options.ranks > 1 and global_view[settings.get(group, "parallel_mode")] end

--- Pipeline stages; 1 where nothing is sharded over ranks.
---@return integer
function M.stages() return in_global_view() and settings.get(group, "pipeline_stages") or 1 end

-- Ranks that have one stage, or all.
local function stage_ranks() return math.max(1, math.floor(core.options.ranks / M.stages())) end

-- A strategy is searched for.
local function searches() return in_global_view() and settings.get(group, "parallel_mode") == "auto_parallel" end

local function fuses() return (settings.get(group, "comm_fusion") or {}).openstate ~= false end

-- comm_fusion.allreduce, or the older all_reduce_fusion_config, as core.build_train takes them.
local function bucket_rule()
  local rule = (settings.get(group, "comm_fusion") or {}).allreduce
  local segments = settings.get(group, "all_reduce_fusion_config")
  if rule and segments then
    notice "all_reduce_fusion_config has no effect beside comm_fusion"
  end
  if not fuses() then return { bucket_bytes = 1 } end
  if not rule then return { segments = segments } end
  if rule.mode == "size" then return { bucket_bytes = rule.config * 2 ^ 20 } end
  return { segments = rule.mode == "index" and rule.config or nil }
end

-- Bytes of the messages in which slices travel, 0: no limit; nil: each alone.
local function slice_bytes(kind)
  local rule = (settings.get(group, "comm_fusion") or {})[kind]
  if not rule or not fuses() then return nil end
  return rule.mode == "size" and rule.config * 2 ^ 20 or 64 * 2 ^ 20
end

-- What of an optimizer is sharded over the ranks: 1 its state, 2 sums of gradients too, 3 the parameters too.
local function optimizer_level(config)
  if config.optimizer_level then return tonumber(config.optimizer_level:sub(-1)) end
  return config.gradient_accumulation_shard ~= false and 2 or 1
end

--- How the traced step is sharded over the ranks, for core.build_train; nil where each rank has its own.
---@return table?
function M.shard()
  if not in_global_view() then return nil end
  local by_name, strategies = settings.get(group, "strategy") or {}, {}
  for i, name in ipairs(errors.names(by_name)) do
    strategies[i] = { name = name, strategy = strategy.text(name, by_name[name]) }
  end
  local function file_of(key)
    local path = (settings.get(group, "strategy_ckpt_config") or {})[key] or ""
    return path ~= "" and path or settings.get(group, "strategy_ckpt_" .. key)
  end
  local dataset = settings.get(group, "dataset_strategy")
  local config = settings.get(group, "parallel_optimizer_config") or {}
  local buckets = bucket_rule()
  return {
    strategies = strategies,
    stages = M.stages(),
    feeds = dataset == "data_parallel" and stage_ranks() or 1,
    dataset = type(dataset) == "table" and strategy.text("dataset_strategy", dataset) or nil,
    bucket_bytes = buckets.bucket_bytes, segments = buckets.segments,
    scatter_bytes = slice_bytes "reducescatter", gather_bytes = slice_bytes "allgather",
    fp32_sync = settings.get(group, "gradient_fp32_sync"),
    optimizer_level = optimizer_level(config),
    search = searches() and settings.get(group, "search_mode") or nil,
    memory_bytes = settings.get(group, "device_memory") and bytes_of(settings.get(group, "device_memory")) or nil,
    load_file = file_of "load_file",
    save_file = file_of "save_file",
    optimizer_bytes = settings.get(group, "enable_parallel_optimizer")
      and (config.parallel_optimizer_threshold or 64) * 2 ^ 10 or nil,
  }
end

--- Tells the datasets which rows of a global batch are this rank's: when the context or the ranks change.
function M.set_feed()
  local shard = M.shard()
  local divided = M.together() and not (shard and shard.feeds == 1)
  -- All stages read the same rows: the first needs the data, the last the labels.
  local feeds = divided and stage_ranks() or 1
  core.set_feed(feeds, core.options.rank % feeds)
end

--- Ranks that would each go through a whole dataset by themselves go through their part of it from now on.
function M.share_samples()
  if M.together() or core.options.ranks == 1 then return end
  group.given.parallel_mode = "data_parallel"
  M.set_feed()
end

-- Both keys say what a rank reads; by a list of shards it reads the whole batch.
local function check_full_batch(values)
  if type(values) ~= "table" then return end
  local full, dataset = values.full_batch, values.dataset_strategy
  if full == true and dataset == "data_parallel" or full == false and dataset == "full_batch" then
    errors.fail_at({ "parallel", "full_batch" }, "set_auto_parallel_context: full_batch = %s and dataset_strategy = %s "
      .. "contradict each other: leave one of them out", full, errors.show(dataset))
  end
end

--- Sets keys of the parallel context; before the network is compiled.
---@param ... table { parallel_mode = ms.ParallelMode.DATA_PARALLEL, gradients_mean = true, ... }
function M.set_auto_parallel_context(...)
  local values = ...
  check_full_batch(values)
  settings.set(group, ...)
  if values.sharding_propagation ~= nil then
    notice "set_auto_parallel_context: sharding_propagation is deprecated, use search_mode"
    group.given.search_mode = values.sharding_propagation and "sharding_propagation" or nil
  end
  local full, dataset = values.full_batch, values.dataset_strategy
  if full ~= nil and dataset == nil then group.given.dataset_strategy = full and "full_batch" or nil end
  if full == nil and dataset ~= nil then group.given.full_batch = dataset == "full_batch" or nil end
  M.set_feed()
end

args.describe(M.set_auto_parallel_context, group.fields)

--- The value of a key of the parallel context. device_num and global_rank read as this job's when they are not set.
---@param key string
function M.get_auto_parallel_context(...)
  local key = arity.take("get_auto_parallel_context", 1, ...)
  local v = settings.get(group, key)
  if v == nil and key == "device_num" then return core.options.ranks end
  if v == nil and key == "global_rank" then return core.options.rank end
  return v
end

--- Sets every key of the parallel context back to its default.
function M.reset_auto_parallel_context(...)
  arity.take("reset_auto_parallel_context", 0, ...)
  settings.reset(group)
  M.set_feed()
end

--- The keys that were set, as the C++ side takes them.
---@return table<string, any>
function M.given() return group.given end

local function field_default(key)
  for _, field in ipairs(group.fields) do
    if field[1] == key then return field[3] end
  end
end

--- Whether rank 0's parameters are everybody's before the first step.
---@return boolean
function M.broadcasts() return M.together() and not in_global_view() and settings.get(group, "parameter_broadcast") end

-- Who shares the slices of a parameter: all ranks, or neighbours in groups of optimizer_weight_shard_size.
local function shard_rule(world)
  local config = settings.get(group, "parallel_optimizer_config") or {}
  local size = settings.get(group, "optimizer_weight_shard_size")
  if size == -1 then size = #world end
  if #world % size ~= 0 then
    errors.fail_at({ "parallel", "optimizer_weight_shard_size" },
      "set_auto_parallel_context: optimizer_weight_shard_size = %d does not divide %d ranks", size, #world)
  end
  local place, mine, replicas = core.options.rank % size, {}, {}
  for i = 1, size do mine[i] = world[core.options.rank - place + i] end
  for first = 0, #world - 1, size do replicas[#replicas + 1] = world[first + place + 1] end
  return {
    ranks = mine, place = place, replicas = replicas, accumulate = config.gradient_accumulation_shard ~= false,
    threshold = (config.parallel_optimizer_threshold or 64) * 2 ^ 10,
    scatter_bytes = slice_bytes "reducescatter", gather_bytes = slice_bytes "allgather",
  }
end

--- How gradients are combined over the ranks, for core.build_train; nil where each rank's are its own.
---@return table?
function M.aggregation()
  if not M.together() or in_global_view() then return nil end
  local rule = bucket_rule()
  rule.ranks = ranks.members "world"
  rule.mean = settings.get(group, "gradients_mean")
  rule.fp32_sync = settings.get(group, "gradient_fp32_sync")
  if settings.get(group, "enable_parallel_optimizer") then
    rule.shards = shard_rule(rule.ranks)
  end
  return rule
end

local function outside_global_view() return not in_global_view() end
local function local_mode() return local_view[settings.get(group, "parallel_mode")] end
local function saves_all(config) return in_global_view() and config.only_trainable_params ~= false end
local function level_in_global_view(config) return in_global_view() or not config.optimizer_level end

-- Keys that act when there are several ranks, some with certain values only; the others are checked, kept, and refused
-- at train.
local built = {
  device_num = true, global_rank = true, parallel_mode = true, search_mode = true, gradients_mean = true,
  sharding_propagation = true,
  gradient_fp32_sync = true, parameter_broadcast = true, all_reduce_fusion_config = true,
  comm_fusion = true, enable_parallel_optimizer = true, parallel_optimizer_config = level_in_global_view,
  dataset_strategy = function(v) return not local_mode() or v == "data_parallel" end, full_batch = true,
  strategy = in_global_view,
  optimizer_weight_shard_size = outside_global_view, optimizer_weight_shard_aggregated_save = true,
  strategy_ckpt_load_file = in_global_view, strategy_ckpt_save_file = in_global_view, strategy_ckpt_config = saves_all,
  device_memory = searches,
}

-- Keys of data parallel training, and why they change nothing where ranks keep parts.
local without_effect = {
  gradients_mean = "gradients are those of the global batch",
  parameter_broadcast = "ranks that begin with other values are an error",
}

-- Keys that say which ranks there are, and not how they train together.
local of_ranks = { parallel_mode = true, device_num = true, global_rank = true }

-- They do not act on one rank, nor beside pipeline_stages.
local of_strategy_files = { "strategy_ckpt_load_file", "strategy_ckpt_save_file", "strategy_ckpt_config" }

-- What is wrong with pipeline_stages.
local function stage_problems(lines, world)
  local stages = settings.get(group, "pipeline_stages")
  if stages == 1 then return end
  if not in_global_view() then
    lines[#lines + 1] = ("pipeline_stages = %d needs parallel_mode semi_auto_parallel or auto_parallel, got %s"):format(
      stages, settings.get(group, "parallel_mode"))
  elseif world % stages ~= 0 then
    lines[#lines + 1] = ("pipeline_stages = %d does not divide the job's %d ranks: each stage has as many; start %d "
      .. "ranks"):format(stages, world, math.ceil(world / stages) * stages)
  end
  for _, key in ipairs(of_strategy_files) do
    if in_global_view() and group.given[key] then
      lines[#lines + 1] = ("%s is not built yet with pipeline_stages: leave it out; strategies may be given with "
        .. "cell:shard"):format(key)
    end
  end
end

-- Says which keys act on ranks that train together, where each trains by itself.
local function notice_alone(world)
  local idle, given = {}, group.given
  for _, key in ipairs(errors.names(given)) do
    if not of_ranks[key] and given[key] ~= field_default(key) then idle[#idle + 1] = key end
  end
  notice(("parallel_mode = stand_alone: %d ranks train, each by itself; data_parallel lets them train together%s")
    :format(world, #idle > 0 and "; without effect: " .. table.concat(idle, ", ") or ""))
end

-- Says which keys act with enable_parallel_optimizer alone, where it is not set.
local function notice_unsharded()
  if settings.get(group, "enable_parallel_optimizer") then return end
  for _, kind in ipairs { "allgather", "reducescatter" } do
    if slice_bytes(kind) then
      notice(("comm_fusion.%s has no effect without enable_parallel_optimizer: no slices travel"):format(kind))
    end
  end
  for _, key in ipairs { "optimizer_weight_shard_size", "parallel_optimizer_config" } do
    if group.given[key] and group.given[key] ~= field_default(key) then
      notice(key .. " has no effect without enable_parallel_optimizer")
    end
  end
end

local function is_built(key, v)
  local acts = built[key]
  if type(acts) == "function" then return acts(v) end
  return acts
end

local function not_built(key, value, mode)
  if key == "dataset_strategy" then
    return ("dataset_strategy = %s needs parallel_mode semi_auto_parallel or auto_parallel: in %s each rank reads its "
      .. "rows of the batch; leave it out, and full_batch too"):format(errors.show(value), mode)
  end
  if key == "grad_accumulation_step" then
    return ("grad_accumulation_step = %d: give it as accumulate_steps, in a recipe's train or to model:train"):format(
      value)
  end
  if key == "parallel_optimizer_config" then
    return ("%s: optimizer_level needs parallel_mode semi_auto_parallel or auto_parallel, got %s: leave it out"):format(
      key, mode)
  end
  if not in_global_view() and built[key] then
    return ("%s needs parallel_mode semi_auto_parallel or auto_parallel, got %s: leave it out"):format(key, mode)
  end
  return ("%s = %s is not built yet%s: leave it out"):format(key, errors.show(value),
    in_global_view() and " in " .. mode or "")
end

--- What is set and cannot run, one line each. One rank alone: everything is without effect, which one notice says.
---@param world integer ranks of the job
---@return string[]
function M.not_runnable(world)
  local lines, given = {}, group.given
  local mode, started = settings.get(group, "parallel_mode"), core.started_ranks()
  if world == 1 and started > 1 then
    local how = "call ms.communication.init() before set_auto_parallel_context"
    if mode ~= "stand_alone" then return { ("%d ranks were started and have not joined: %s"):format(started, how) } end
    notice(("%d ranks were started and have not joined: each trains by itself; to train together, %s"):format(started,
      how))
    return lines
  end
  if given.device_num and given.device_num ~= world then
    lines[1] = ("device_num = %d, but the job has %d rank(s): leave it out, or start %d"):format(
      given.device_num, world, given.device_num)
  end
  if given.global_rank and given.global_rank ~= core.options.rank then
    lines[#lines + 1] = ("global_rank = %d, but this is rank %d: leave it out"):format(
      given.global_rank, core.options.rank)
  end
  if world == 1 then
    if mode ~= "stand_alone" then notice(("parallel_mode = %s has no effect on one rank"):format(mode)) end
    for _, key in ipairs(of_strategy_files) do
      if given[key] and given[key] ~= field_default(key) then
        notice(("%s has no effect on one rank: nothing is sharded"):format(key))
      end
    end
    return lines
  end
  if mode == "stand_alone" then
    notice_alone(world)
  else
    notice_unsharded()
    if given.search_mode and given.search_mode ~= field_default "search_mode" and not searches() then
      notice(("search_mode has no effect in %s: auto_parallel searches for strategies"):format(mode))
    end
  end
  if local_view[mode] and strategy.holder then
    notice(("%s has no effect in %s: semi_auto_parallel and auto_parallel shard operators"):format(strategy.holder,
      mode))
  end
  for _, key in ipairs(errors.names(without_effect)) do
    if in_global_view() and given[key] then
      notice(("%s has no effect in %s: %s"):format(key, mode, without_effect[key]))
    end
  end
  stage_problems(lines, world)
  for _, key in ipairs(errors.names(given)) do
    if key ~= "pipeline_stages" and given[key] ~= field_default(key) and not is_built(key, given[key]) then
      lines[#lines + 1] = not_built(key, given[key], mode)
    end
  end
  return lines
end

--- f(...); an error of the parallel context's values in it, "parallel: KEY: ...", gets the recipe's line of that key.
---@param f function
function M.at_key(f, ...)
  local results = { pcall(f, ...) }
  if results[1] then return unpack(results, 2) end
  local problem = results[2]
  local key = type(problem) == "string" and problem:match "^parallel: ([%w_]+): "
  local place = key and not core.where() and errors.place { "parallel", key }
  error(place and place .. ": " .. problem or problem, 0)
end

--- Raises when something is set that cannot run.
---@param what string "train", for the message
function M.check_runnable(what)
  local lines = M.not_runnable(core.options.ranks)
  if #lines == 0 then return end
  errors.fail_at({ "parallel" }, "%s: the parallel context: %s", what, table.concat(lines, "; "))
end

--- Says that parameters which are each rank's own are not, where the ranks have parts of one network.
---@param parameters Parameter[]
---@param names string[] of the parameters
function M.report_layerwise(parameters, names)
  for i, p in ipairs(parameters) do
    if p.layerwise_parallel and in_global_view() then
      notice(("layerwise_parallel of %s has no effect in %s: the ranks have parts of one network; in data_parallel and "
        .. "hybrid_parallel each has its own values"):format(names[i], settings.get(group, "parallel_mode")))
      return
    end
  end
end

--- Raises on pipeline stages, for what makes its steps one by one.
---@param what string "TrainOneStepCell", for the message
function M.check_one_stage(what)
  if M.stages() > 1 then errors.fail("%s: pipeline_stages = %d: train with ms.Model", what, M.stages()) end
end

return M
