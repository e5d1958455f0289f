-- set_context, set_auto_parallel_context, set_ps_context: every key, its range, its error.
local check = require "check"
local core = require "mslua.core"
local ms = require "mslua"
local set, get, reset = ms.set_auto_parallel_context, ms.get_auto_parallel_context, ms.reset_auto_parallel_context

check.case("legal values are kept, and reset gives back the defaults", function()
  local legal = {
    device_num = { 1, 4096 }, global_rank = { 0, 4095 }, gradients_mean = { true,
      false }, gradient_fp32_sync = { false },
    parallel_mode = ms.ParallelMode.MODE_LIST, loss_repeated_mean = { false }, parameter_broadcast = { true },
    search_mode = { "dynamic_programming", "recursive_programming", "sharding_propagation" },
    all_reduce_fusion_config = { { 20, 35 }, { 1 } }, enable_parallel_optimizer = { true },
    parallel_optimizer_config = { { gradient_accumulation_shard = true }, { parallel_optimizer_threshold = 0 } },
    comm_fusion = {
      { allreduce = { mode = "auto" } }, { allreduce = { mode = "size", config = 32 } },
      { allreduce = { mode = "index", config = { 20, 35 } } },
      { allgather = { mode = "size", config = 16 },
        reducescatter = { mode = "size", config = 0 } }, { openstate = false },
    },
    full_batch = { false, true },
    dataset_strategy = { "data_parallel", "full_batch", { { 1, 1, 1, 8 }, { 8 } }, { { 8, 1 }, { 1 } } },
    pipeline_stages = { 1, 4 }, grad_accumulation_step = { 2 }, optimizer_weight_shard_size = { -1, 2 },
    enable_alltoall = { false }, strategy_ckpt_save_file = { "s.json" }, group_ckpt_save_file = { "g" },
    communi_parallel_mode = { "no_group_parallel" }, strategy_ckpt_config = { { save_file = "x",
      only_trainable_params = false } },
    optimizer_weight_shard_aggregated_save = { true },
  }
  for key, values in pairs(legal) do
    for _, v in ipairs(values) do
      set { [key] = v }
      check.equal(get(key), v)
    end
  end
  reset()
  check.equal(get "parallel_mode", "stand_alone")
  check.equal(get "search_mode", "dynamic_programming")
  check.equal(get "gradient_fp32_sync", true)
  check.equal(get "pipeline_stages", 1)
  check.equal(get "dataset_strategy", "data_parallel")
  check.equal(get "device_num", 1)
  check.equal(get "global_rank", 0)
end)

local illegal = {
  { { device_num = 0 }, "at least 1 and at most 4096, got 0" }, { { device_num = 4097 }, "got 4097" },
  { { device_num = "8" }, 'got "8"' }, { { device_num = true }, "got true" }, { { device_num = 1.5 }, "got 1.5" },
  { { global_rank = -1 }, "at least 0" }, { { global_rank = 4096 }, "at most 4095" },
  { { gradients_mean = 1 }, "true or false" }, { { parallel_mode = "auto" }, '"auto_parallel", got "auto"' },
  { { parallel_mode = "data_paralel" }, "did you mean 'data_parallel'?" },
  { { search_mode = "x" }, '"sharding_propagation"' },
  { { all_reduce_fusion_config = {} }, "at least one index" }, { { all_reduce_fusion_config = { 20, 20 } },
    "ascending" },
  { { all_reduce_fusion_config = { 35, 20 } }, "ascending" }, { { all_reduce_fusion_config = { true } },
    "list of integers" },
  { { all_reduce_fusion_config = 20 }, "list of integers" }, { { all_reduce_fusion_config = { -1 } }, "from 0" },
  { { comm_fusion = { allreduced = {} } }, "did you mean 'allreduce'?" }, { { comm_fusion = { allreduce = {} } },
    "mode is missing" },
  { { comm_fusion = { allreduce = { mode = "auto", config = 3 } } }, "takes none" },
  { { comm_fusion = { allreduce = { mode = "size" } } }, "(MB), got nil" },
  { { comm_fusion = { allreduce = { mode = "size", config = -1 } } }, "at least 0" },
  { { comm_fusion = { allreduce = { mode = "index", config = {} } } }, "at least one index" },
  { { comm_fusion = { allgather = { mode = "index", config = { 1 } } } }, 'expected one of "auto", "size"' },
  { { comm_fusion = 3 }, "expected a table" },
  { { parallel_optimizer_config = { threshold = 1 } }, "unknown key 'threshold'" },
  { { parallel_optimizer_config = { parallel_optimizer_threshold = -1 } }, "at least 0" },
  { { strategy_ckpt_load_file = "./" }, "this is a folder" }, { { strategy_ckpt_load_file = "/no/file" },
    "no strategy file" },
  { { strategy_ckpt_save_file = "/" }, "is a folder" },
  { { dataset_strategy = { { 1, 1, 4, 2 }, { 1 } } }, "only one dimension" },
  { { dataset_strategy = { { 1, 1, 1, 1 }, { 8 } } }, "it must have the most" }, { { dataset_strategy = "half" },
    '"full_batch"' },
  { { dataset_strategy = {} }, "an entry for each input" }, { { pipeline_stages = 0 }, "at least 1" },
  { { pipeline_stages = true }, "got true" }, { { optimizer_weight_shard_size = 1 }, "above 1" },
  { { paralel_mode = "x" }, "did you mean 'parallel_mode'?" }, { { device_target = "CPU" },
    "belongs to ms.set_context" },
  { { mode = 0 }, "the parallel mode is parallel_mode" }, { "auto_parallel", "one table of named values" },
}

check.case("illegal values are errors at the caller's line", function()
  for _, row in ipairs(illegal) do check.fails_here(row[2], function() set(row[1]) end) end
end)

check.case("a call with one illegal value sets nothing", function()
  reset()
  check.fails("device_num", function() set { parallel_mode = "data_parallel", device_num = 0 } end)
  check.equal(get "parallel_mode", "stand_alone")
end)

check.case("older names", function()
  set { auto_parallel_search_mode = "recursive_programming" }
  check.equal(get "search_mode", "recursive_programming")
  check.equal(get "auto_parallel_search_mode", "recursive_programming")
  set { sharding_propagation = true }
  check.equal(get "search_mode", "sharding_propagation")
  set { full_batch = true }
  check.equal(get "dataset_strategy", "full_batch")
  check.fails_here("did you mean 'search_mode'?", function() get("serch_mode") end)
  set { dataset_strategy = "data_parallel" }
  check.equal(get "full_batch", false)
  set { full_batch = false, dataset_strategy = { { 2, 1 } } }
  check.equal(get "dataset_strategy", { { 2, 1 } })
  for _, both in ipairs { { true, "data_parallel" }, { false, "full_batch" } } do
    check.fails_here("contradict each other", function()
      set { full_batch = both[1], dataset_strategy = both[2] }
    end)
  end
  reset()
end)

check.case("names that the tables of choices do not have", function()
  check.fails_here("there is no ms.ParallelMode.DATAPARALLEL (did you mean 'DATA_PARALLEL'?)", function()
    set { parallel_mode = ms.ParallelMode.DATAPARALLEL }
  end)
  check.fails_here("there is no ms.ops.ReduceOp.AVG: ops.ReduceOp.SUM, and divide", function()
    return ms.ops.ReduceOp.AVG
  end)
end)

check.case("operators that are called one by one follow the context at once", function()
  local a, b = ms.rand({ 64, 64 }, "float32", "a"), ms.rand({ 64, 64 }, "float32", "b")
  local fast = ms.ops.matmul(a, b)
  ms.set_context { reference_kernels = true }
  local plain = ms.ops.matmul(a, b)
  ms.set_context { reference_kernels = false }
  check.equal(ms.ops.all(ms.ops.equal(ms.ops.matmul(a, b), fast)):item(), true)
  check.equal(ms.ops.all(ms.ops.equal(plain, fast)):item(), false)
end)

check.case("set_context", function()
  ms.set_context { mode = ms.GRAPH_MODE, device_target = "CPU", device_id = 1, save_graphs = 2, save_graphs_path = "g" }
  check.equal(ms.get_context "save_graphs", 2)
  check.equal(ms.get_context "device_id", 1)
  ms.set_context { save_graphs = false, device_id = 0 }
  ms.set_context { gpu_config = { matmul_allow_tf32 = true } }
  check.equal(ms.get_context("gpu_config").matmul_allow_tf32, true)
  ms.set_context { gpu_config = { conv_allow_tf32 = true } }
  check.equal(ms.get_context("gpu_config").matmul_allow_tf32, true)
  check.equal({ core.options.conv_allow_tf32, core.options.matmul_allow_tf32 }, { true, true })
  ms.set_context { gpu_config = { conv_allow_tf32 = false, matmul_allow_tf32 = false } }
  check.equal({ core.options.conv_allow_tf32, core.options.matmul_allow_tf32 }, { false, false })
  check.fails_here("did you mean 'conv_allow_tf32'?", function()
    ms.set_context({ gpu_config = { conv_alow_tf32 = true } })
  end)
  check.fails_here("expected true or false", function()
    ms.set_context({ gpu_config = { matmul_allow_tf32 = "tf32" } })
  end)
  check.fails_here("Ascend devices are not supported", function() ms.set_context({ device_target = "Ascend" }) end)
  check.fails_here("expected CPU or GPU", function() ms.set_context({ device_target = "cpu" }) end)
  check.fails_here("expected one of 0, 1", function() ms.set_context({ mode = 3 }) end)
  check.fails_here("0 (none), 1 (final graph)", function() ms.set_context({ save_graphs = 4 }) end)
  check.fails_here("belongs to ms.set_auto_parallel_context", function() ms.set_context({ parallel_mode = "x" }) end)
  check.fails_here("did you mean 'device_target'?", function() ms.set_context({ device_taget = "CPU" }) end)
end)

check.case("set_ps_context", function()
  ms.set_ps_context { enable_ssl = false, client_password = "secret" }
  check.equal(ms.get_ps_context "client_password", "***")
  check.fails_here("no file", function() ms.set_ps_context({ config_file_path = "/no/config.json" }) end)
  check.fails_here("unknown key 'ssl'", function() ms.set_ps_context({ ssl = true }) end)
  check.fails_here("true or false", function() ms.set_ps_context({ enable_ssl = 1 }) end)
  ms.set_ps_context { enable_ssl = true }
  check.fails_here("enable_ssl = true needs config_file_path", function() ms.communication.init() end)
  ms.reset_ps_context()
  check.equal(ms.get_ps_context "enable_ssl", false)
  check.equal(ms.get_ps_context "client_password", "")
end)

check.case("communication before init, and back ends that are not there", function()
  check.fails_here("call ms.communication.init() first", function() ms.communication.get_rank() end)
  check.fails_here("call ms.communication.init() first", function() ms.communication.get_group_size() end)
  check.fails_here("Ascend", function() ms.communication.init("hccl") end)
  check.fails_here("CUDA devices", function() ms.communication.init("nccl") end)
  check.fails_here("expected one of", function() ms.communication.init("gloo") end)
end)

check.case("keys of the channel stay as they are where ranks have joined", function()
  ms.set_ps_context { client_password = "secret" }
  ms.communication.init()
  check.fails_here("set_ps_context: client_password: the ranks have joined already",
    function() ms.set_ps_context({ client_password = "other" }) end)
  check.equal(ms.get_ps_context "client_password", "***")
end)

check.done()
