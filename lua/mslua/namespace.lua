--- Tables of names that users read: a name that is not there is an error which says where it is, or what was meant.
local core = require "mslua.core"
local errors = require "mslua.errors"

local M = {}

-- Old or foreign homes -> the right name.
local moved = {
  ["ms.context"] = "ms.set_context, ms.set_auto_parallel_context and their get_ and reset_ are in ms itself",
  ["ms.train"] = "Model, callbacks and checkpoints are in ms itself: ms.Model, ms.LossMonitor, ms.ModelCheckpoint",
  ["ms.common"] = "its names are in ms itself: ms.Parameter, ms.initializer, ms.Tensor, ms.float32",
  ["ms.mstype"] = "element types are in ms itself: ms.float32, ms.int32",
  ["ms.dtype"] = "element types are in ms itself: ms.float32, ms.int32",
  ["ms.amp"] = 'amp = "bf16" or "f16" of ms.Model, or of train in a recipe; ms.DynamicLossScaleManager',
  ["ms.numpy"] = "ms.zeros, ms.ones, ms.full, ms.arange, ms.rand, ms.randn and the operators of ms.ops",
  ["ms.data"] = "ms.dataset",
  ["ms.optim"] = "optimizers are in ms.nn: ms.nn.Momentum",
  ["ms.init"] = "ms.communication.init",
  ["ms.get_rank"] = "ms.communication.get_rank",
  ["ms.get_group_size"] = "ms.communication.get_group_size",
  ["ms.breakpoint"] = "ms.run.breakpoint",
  ["ms.communication.management"] = "its names are in ms.communication itself",
  ["ms.nn.Parameter"] = "ms.Parameter",
  ["ms.nn.ConvTranspose2d"] = "ms.nn.Conv2dTranspose",
  ["ms.nn.Linear"] = "ms.nn.Dense",
  ["ms.nn.Sequential"] = "ms.nn.SequentialCell",
  ["ms.nn.ModuleList"] = "ms.nn.CellList",
  ["ms.nn.Module"] = "ms.nn.Cell",
  ["ms.nn.AdaFactor"] = "ms.nn.Adafactor",
  ["ms.no_grad"] = "gradients are computed where ms.grad or ms.value_and_grad asks for them, and in training",
  ["ms.class"] = 'cells are made by ms.nn.Cell:extend "Name"',
  ["ms.ops.mean"] = "ms.ops.reduce_mean(x, axis), or x:mean(axis)",
  ["ms.ops.sum"] = "ms.ops.reduce_sum(x, axis), or x:sum(axis)",
  ["ms.ops.prod"] = "ms.ops.reduce_prod(x, axis)",
  ["ms.ops.topk"] = "ms.ops.top_k(x, k)",
  ["ms.ops.interpolate"] = "ms.nn.Upsample, or ms.ops.resize_bilinear or ms.ops.resize_nearest",
  ["ms.ops.flip"] = "ms.ops.reverse(x, axis)",
  ["ms.ops.gather_elements"] = "ms.ops.gather_d(x, index, axis)",
  ["ms.ops.cat"] = "ms.ops.concat({x, y}, axis)",
  ["ms.ops.permute"] = "ms.ops.transpose(x, perm)",
  ["ms.ops.BatchMatMul"] = "ms.ops.MatMul, which multiplies batches of matrices too",
  ["ms.ops.bmm"] = "ms.ops.matmul, which multiplies batches of matrices too",
  ["ms.ops.standard_normal"] = "ms.ops.random_normal { shape = {2, 3} }, or ms.randn {2, 3}",
  ["ms.ops.ones"] = "ms.ones",
  ["ms.ops.zeros"] = "ms.zeros",
  ["ms.ops.arange"] = "ms.arange",
  ["ms.zeros_like"] = "ms.ops.zeros_like(x)",
  ["ms.ones_like"] = "ms.ops.ones_like(x)",
  ["ms.ops.eye"] = "ms.eye",
  ["ms.ops.full"] = "ms.full",
  ["ms.ops.rand"] = "ms.rand",
  ["ms.ops.randn"] = "ms.randn",
  ["ms.ops.unsqueeze"] = "ms.ops.expand_dims(x, axis)",
  ["ms.ops.flatten"] = "x:reshape(-1), or ms.nn.Flatten",
  ["ms.ops.unbind"] = "ms.ops.unstack(x, axis)",
  ["ms.ops.narrow"] = "ms.ops.strided_slice(x, first, last + 1)",
  ["ms.ops.index_select"] = "ms.ops.gather(x, index, axis)",
  ["ms.ops.index_add"] = "ms.ops.scatter_add(x, index, updates)",
  ["ms.ops.masked_select"] = "a result has the same shape in every step: ms.ops.select or ms.ops.masked_fill",
  ["ms.ops.nonzero"] = "a result has the same shape in every step: ms.ops.select or ms.ops.masked_fill",
  ["ms.ops.unique"] = "a result has the same shape in every step: ms.ops.sort(x) brings equal elements together",
  ["ms.ops.clamp"] = "ms.ops.clip(x, min, max)",
  ["ms.ops.ReduceOp.AVG"] = "ops.ReduceOp.SUM, and divide the result by ms.communication.get_group_size()",
  ["ms.ops.ReduceOp.MEAN"] = "ops.ReduceOp.SUM, and divide the result by ms.communication.get_group_size()",
  ["ms.ops.mod"] = "ms.ops.floor_mod(x, y), or ms.ops.fmod(x, y) with the sign of x",
  ["ms.ops.remainder"] = "ms.ops.floor_mod(x, y)",
  ["ms.ops.floor_divide"] = "ms.ops.floor_div(x, y)",
  ["ms.ops.trunc_div"] = "ms.ops.truncate_div(x, y)",
  ["ms.ops.truncate_mod"] = "ms.ops.fmod(x, y)",
  ["ms.ops.arctan2"] = "ms.ops.atan2(y, x)",
  ["ms.ops.ArgMaxWithValue"] = "ms.ops.max(x, axis), which gives the value and its place",
  ["ms.ops.ArgMinWithValue"] = "ms.ops.min(x, axis), which gives the value and its place",
  ["ms.ops.scatter_reduce"] = "ms.ops.unsorted_segment_sum, unsorted_segment_max or unsorted_segment_min",
  ["ms.ops.segment_sum"] = "ms.ops.unsorted_segment_sum(x, segment_ids, num_segments)",
  ["ms.ops.segment_max"] = "ms.ops.unsorted_segment_max(x, segment_ids, num_segments)",
  ["ms.ops.segment_min"] = "ms.ops.unsorted_segment_min(x, segment_ids, num_segments)",
  ["ms.ops.true_divide"] = "ms.ops.div(x, y)",
  ["ms.ops.ReduceAny"] = "ms.ops.any(x, axis)",
  ["ms.ops.ReduceAll"] = "ms.ops.all(x, axis)",
  ["ms.ops.L2Normalize"] = "x / ms.ops.maximum(ms.ops.norm(x, axis, 2, true), 1e-12)",
  ["ms.ops.cosine_embedding_loss"] = "ms.nn.CosineEmbeddingLoss()(x, y, target)",
  ["ms.ops.triplet_margin_loss"] = "ms.nn.TripletMarginLoss()(anchor, positive, negative)",
  ["ms.ops.margin_ranking_loss"] = "ms.nn.MarginRankingLoss()(x1, x2, target)",
  ["ms.ops.hinge_embedding_loss"] = "ms.nn.HingeEmbeddingLoss()(x, target)",
  ["ms.ops.soft_margin_loss"] = "ms.nn.SoftMarginLoss()(x, target)",
  ["ms.ops.multi_margin_loss"] = "ms.nn.MultiMarginLoss()(x, target)",
  ["ms.ops.multilabel_soft_margin_loss"] = "ms.nn.MultiLabelSoftMarginLoss()(x, target)",
  ["ms.ops.gaussian_nll_loss"] = "ms.nn.GaussianNLLLoss()(x, target, var)",
  ["ms.ops.BiasAdd"] = "x + bias; of images x + ms.ops.reshape(bias, {-1, 1, 1})",
  ["ms.ops.AddN"] = "x + y + z, or a loop over the list",
  ["ms.ops.SquaredDifference"] = "ms.ops.square(x - y)",
  ["ms.ops.L2Loss"] = "ms.ops.reduce_sum(ms.ops.square(x)) / 2",
  ["ms.ops.SigmoidCrossEntropyWithLogits"] = "ms.ops.binary_cross_entropy_with_logits(x, y)",
  ["ms.ops.Eye"] = "ms.eye",
  ["ms.ops.Fill"] = "ms.full",
  ["ms.ops.Ones"] = "ms.ones",
  ["ms.ops.Zeros"] = "ms.zeros",
  ["ms.ops.LinSpace"] = "ms.arange(0, steps, 1, ms.float32) * ((stop - start) / (steps - 1)) + start",
  ["ms.ops.Flatten"] = "ms.nn.Flatten",
  ["ms.ops.Slice"] = "ms.ops.strided_slice(x, first, last + 1)",
  ["ms.ops.Pack"] = "ms.ops.stack({x, y}, axis)",
  ["ms.ops.Unpack"] = "ms.ops.unstack(x, axis)",
  ["ms.ops.MirrorPad"] = 'ms.ops.pad(x, { low = {..}, high = {..}, mode = "reflect" }), or mode = "symmetric"',
  ["ms.ops.Mod"] = "ms.ops.floor_mod(x, y), or ms.ops.fmod(x, y) with the sign of x",
  ["ms.ops.Rint"] = "ms.ops.round(x)",
  ["ms.ops.Inv"] = "ms.ops.reciprocal(x)",
  ["ms.ops.Assign"] = "ms.ops.assign(p, x), or p.value = x",
  ["ms.ops.detach"] = "ms.ops.stop_gradient(x)",
  ["ms.ops.view"] = "x:reshape(...)",
  ["ms.ops.linear"] = "ms.nn.Dense, or ms.ops.matmul(x, w, { transpose_b = true }) + bias",
  ["ms.ops.embedding"] = "ms.nn.Embedding, or ms.ops.gather(table, ids, 1)",
  ["ms.ops.mm"] = "ms.ops.matmul(x, y)",
  ["ms.ops.randint"] = "ms.ops.cast(ms.rand(shape) * n, ms.int32)",
  ["ms.ops.conv1d"] = "ms.nn.Conv1d",
  ["ms.manual_seed"] = "ms.set_seed(seed)",
  ["ms.nn.CosineAnnealingLR"] = "learning_rate = ms.nn.cosine_decay_lr { ... } of an optimizer",
  ["ms.nn.StepLR"] = "learning_rate = ms.nn.step_decay_lr { ... } of an optimizer",
  ["ms.ops.TensorScatterUpdate"] = "ms.ops.update_slice, or ms.ops.tensor_scatter_add of the difference",
  ["ms.ops.Rank"] = "#x.shape",
  ["ms.ops.rank"] = "#x.shape",
  ["ms.ops.amax"] = "ms.ops.reduce_max(x, axis)",
  ["ms.ops.amin"] = "ms.ops.reduce_min(x, axis)",
  ["ms.ops.eq"] = "ms.ops.equal(x, y)",
  ["ms.ops.ne"] = "ms.ops.not_equal(x, y)",
  ["ms.ops.lt"] = "ms.ops.less(x, y)",
  ["ms.ops.le"] = "ms.ops.less_equal(x, y)",
  ["ms.ops.gt"] = "ms.ops.greater(x, y)",
  ["ms.ops.ge"] = "ms.ops.greater_equal(x, y)",
  ["ms.ops.mv"] = "ms.ops.matmul(x, y)",
  ["ms.ops.tensordot"] = 'ms.ops.einsum("abc,bcd->ad", x, y)',
  ["ms.ops.kron"] = 'ms.ops.einsum("ab,cd->acbd", x, y) and a reshape',
  ["ms.ops.bincount"] = "ms.ops.unsorted_segment_sum of ones: (ms.ones {n}, x, num_segments)",
  ["ms.ops.tanhshrink"] = "x - ms.ops.tanh(x)",
  ["ms.ops.threshold"] = "ms.ops.select(ms.ops.greater(x, threshold), x, value)",
  ["ms.ops.hardsigmoid"] = "ms.ops.hsigmoid(x)",
  ["ms.ops.hardswish"] = "ms.ops.hswish(x)",
  ["ms.ops.relu6"] = "ms.ops.hardtanh(x, 0, 6)",
  ["ms.ops.ReLU6"] = "ms.ops.hardtanh(x, 0, 6) or ms.nn.ReLU6()",
  ["ms.ops.clip_by_norm"] = "ms.nn.ClipByNorm()(x, clip_norm)",
  ["ms.ops.clip_by_value"] = "ms.ops.clip(x, min, max)",
  ["ms.ops.linspace"] = "ms.arange(0, steps, 1, ms.float32) * ((stop - start) / (steps - 1)) + start",
  ["ms.ops.randperm"] = "the second result of ms.ops.sort(ms.rand { n })",
  ["ms.ops.bernoulli"] = "ms.ops.cast(ms.ops.less(ms.rand(x.shape), x), ms.float32)",
  ["ms.ops.exp2"] = "ms.ops.exp(x * math.log(2))",
  ["ms.ops.dot"] = "ms.ops.matmul(x, y)",
  ["ms.ops.cdist"] = "ms.ops.norm(ms.ops.expand_dims(x, 2) - ms.ops.expand_dims(y, 1), { 3 })",
  ["ms.ops.median"] = "the middle of ms.ops.sort(x, axis)",
  ["ms.ops.quantile"] = "a place of ms.ops.sort(x, axis)",
  ["ms.ops.vmap"] = "operators take batches: put the dimension in front, or compute row by row",
  ["ms.autograd"] = "a cell with a method bprop has gradients of its own; ms.grad and ms.value_and_grad compute them",
  ["ms.ops.stop_grad"] = "ms.ops.stop_gradient(x)",
  ["ms.vmap"] = "operators take batches: put the dimension in front, or compute row by row",
  ["ms.ops.GradOperation"] = "ms.grad(f, positions, weights), or ms.value_and_grad",
  ["ms.ops.HyperMap"] = "a loop over the list",
  ["ms.ops.Map"] = "a loop over the list",
  ["ms.ops.composite"] = "ms.grad and ms.value_and_grad; a loop over a list in place of HyperMap",
  ["ms.ops.scan"] = "a loop: each of its steps becomes a part of the graph; nn.LSTM, nn.GRU and nn.RNN for recurrences",
  ["ms.ops.uniform"] = "ms.ops.random_uniform { shape = {2, 3} }, or ms.rand {2, 3}",
  ["ms.ops.normal"] = "ms.ops.random_normal { shape = {2, 3} }, or ms.randn {2, 3}",
  ["ms.ops.normalize"] = "x / ms.ops.maximum(ms.ops.norm(x, axis, 2, true), 1e-12)",
  ["ms.ms_function"] = "ms.value_and_grad and ms.nn.TrainOneStepCell compile what they call",
  ["ms.ParameterTuple"] = "a list of parameters: { net.weight, net.bias }, or net:trainable_params()",
  ["ms.stop_gradient"] = "ms.ops.stop_gradient(x)",
  ["ms.linspace"] = "ms.arange(0, steps, 1, ms.float32) * ((stop - start) / (steps - 1)) + start",
  ["ms.jvp"] = "ms.grad, which derives backwards: ms.grad of (f(x) * v):sum() gives v times the Jacobian",
  ["ms.vjp"] = "ms.grad of (f(x) * v):sum() gives v times the Jacobian",
  ["ms.nn.TrainOneStepWithLossScaleCell"] = "ms.nn.TrainOneStepCell; loss scales are for ms.Model and recipes: "
    .. "loss_scale_manager",
  ["ms.nn.Metric"] = "metrics are names or functions: ms.Model(net, { loss_fn = loss, metrics = { \"top1\" } })",
  ["ms.nn.PixelShuffle"] = "ms.ops.pixel_shuffle(x, upscale_factor)",
  ["ms.nn.PixelUnshuffle"] = "ms.ops.pixel_unshuffle(x, downscale_factor)",
  ["ms.nn.CosineSimilarity"] = "ms.ops.cosine_similarity(x1, x2, axis)",
  ["ms.nn.PairwiseDistance"] = "ms.ops.pairwise_distance(x1, x2)",
  ["ms.jit"] = "ms.value_and_grad and ms.nn.TrainOneStepCell compile what they call",
  ["ms.nn.ZeroPad2d"] = "ms.ops.pad(x, { low = {0, 0, top, left}, high = {0, 0, bottom, right} })",
  ["ms.nn.ConstantPad2d"] = "ms.ops.pad, with low, high and value",
  ["ms.nn.ReflectionPad1d"] = 'ms.ops.pad, with low, high and mode = "reflect"',
  ["ms.nn.ReflectionPad2d"] = 'ms.ops.pad, with low, high and mode = "reflect"',
  ["ms.nn.ReplicationPad2d"] = 'ms.ops.pad, with low, high and mode = "replicate"',
  ["ms.nn.Pad"] = "ms.ops.pad, with low, high and mode",
  ["ms.nn.LocalResponseNorm"] = "ms.nn.LRN((size - 1) / 2, k, alpha / size, beta)",
  ["ms.nn.HShrink"] = "ms.ops.hardshrink(x, lambd)",
  ["ms.nn.SoftShrink"] = "ms.ops.softshrink(x, lambd)",
  ["ms.nn.Tanhshrink"] = "x - ms.ops.tanh(x)",
  ["ms.nn.Threshold"] = "ms.ops.select(ms.ops.greater(x, threshold), x, value)",
  ["ms.nn.Softmin"] = "ms.ops.softmin(x, axis)",
  ["ms.nn.MAELoss"] = "ms.nn.L1Loss",
  ["ms.nn.RMSELoss"] = "the root of ms.nn.MSELoss: ms.ops.sqrt(loss(x, y))",
  ["ms.nn.EmbeddingLookup"] = "ms.nn.Embedding",
  ["ms.nn.Norm"] = "ms.ops.norm(x, axis)",
  ["ms.nn.MatMul"] = "ms.ops.matmul(x, y)",
  ["ms.nn.Tril"] = "ms.ops.tril(x)",
  ["ms.nn.Triu"] = "ms.ops.triu(x)",
  ["ms.nn.WithEvalCell"] = "ms.Model, whose eval computes loss and metrics",
  ["ms.nn.Accuracy"] = 'the metric "top1": ms.Model(net, { loss_fn = loss, metrics = { "top1" } })',
  ["ms.nn.Unfold"] = "ms.ops.unfold",
  ["ms.nn.OneHot"] = "ms.ops.one_hot",
  ["ms.nn.ResizeBilinear"] = "ms.nn.Upsample, or ms.ops.resize_bilinear",
  ["ms.nn.Transformer"] = "ms.nn.TransformerEncoder and ms.nn.TransformerDecoder",
  ["ms.nn.SyncBatchNorm"] = "ms.nn.BatchNorm2d; with semi_auto_parallel its statistics are those of all ranks",
  ["ms.nn.ForwardValueAndGrad"] = "ms.value_and_grad",
  ["ms.load_distributed_checkpoint"] = "ms.load_checkpoint reads what any number of ranks has written",
  ["ms.merge_sliced_parameter"] = "ms.load_checkpoint reads what any number of ranks has written",
  ["ms.dataset.ParquetDataset"] = "convert the file: pandas.read_parquet(...).to_csv(...), then ms.dataset.CsvDataset",
  ["ms.dataset.ArrowDataset"] = "convert the file: pandas.read_feather(...).to_csv(...), then ms.dataset.CsvDataset",
  ["ms.dataset.WeightedRandomSampler"] = "ds:weighted(weights, num_samples, replacement)",
  ["ms.dataset.DatasetCache"] = "ds:cache() keeps samples in memory, ds:cache(folder) in files",
  ["ms.dataset.vision.MixUp"] = "ms.dataset.vision.MixUpBatch, after batch",
  ["ms.dataset.vision.CutMix"] = "ms.dataset.vision.CutMixBatch, after batch",
  ["ms.dataset.vision.ToTensor"] = "ms.dataset.vision.Rescale(1 / 255, 0) and HWC2CHW",
  ["ms.dataset.vision.Invert"] = "ms.dataset.vision.RandomInvert(1)",
  ["ms.dataset.vision.Equalize"] = "ms.dataset.vision.RandomEqualize(1)",
  ["ms.dataset.vision.AutoContrast"] = "ms.dataset.vision.RandomAutoContrast(1)",
  ["ms.dataset.vision.RandomSharpness"] = "ms.dataset.vision.RandomAdjustSharpness(degree, prob)",
  ["ms.dataset.vision.RandomColorAdjust"] = "ms.dataset.vision.ColorJitter",
  ["ms.nn.optim"] = "optimizers are in ms.nn itself: ms.nn.Momentum",
  ["ms.dataset.transforms.c_transforms"] = "its names are in ms.dataset.transforms itself",
  ["ms.dataset.transforms.py_transforms"] = "its names are in ms.dataset.transforms itself",
  ["ms.dataset.vision.c_transforms"] = "its names are in ms.dataset.vision itself",
  ["ms.dataset.vision.py_transforms"] = "its names are in ms.dataset.vision itself",
}

local names = setmetatable({}, { __mode = "k" })  -- table -> "ms.nn"

--- The name of a table that M.strict has made; nil for any other value.
---@param t any
---@return string?
function M.name_of(t) return type(t) == "table" and names[t] or nil end

--- Raises when a function of a module was called with a colon: its first argument is the module.
---@param name string of the function
function M.check_dot(name, ...)
  local module = M.name_of((...))
  if not module then return end
  local short = module:match "[%w_]+$"
  errors.fail("%s: the first argument is the module %s: call with a dot, %s.%s(...), not %s:%s(...)", name, module,
    short, name, short, name)
end

--- What to write where a tensor has no method of that name: the function of ms.ops; nil: there is none.
---@param name string
---@return string?
function M.function_for(name)
  local full, ops = "ms.ops." .. name, package.loaded["mslua.ops"]
  if moved[full] then return moved[full] end
  return ops and rawget(ops, name) and full .. "(x, ...)" or nil
end

-- The known name that is meant. Short names that differ in a letter, and names that begin with another one, are other
-- names: gamma is no lgamma, svd no std.
local function near(key, known)
  local text = core.did_you_mean(key, known)
  local name = text:match "'(.-)'"
  if not name or name:lower() == key:lower() then return text end
  return #key > 3 and name:sub(1, 1):lower() == key:sub(1, 1):lower() and text or ""
end

--- Makes reading an unknown name of a table of choices an error.
---@param name string "ms.ParallelMode"
---@param t table
---@return table t
function M.choices(name, t)
  return setmetatable(t, {
    __index = function(_, key)
      local full = name .. "." .. tostring(key)
      if moved[full] then errors.fail("there is no %s: %s", full, moved[full]) end
      errors.fail("there is no %s%s", full, near(tostring(key), errors.names(t)))
    end,
  })
end

--- The same of a module.
---@param name string "ms.nn"
---@param t table
---@return table t
function M.strict(name, t)
  names[t] = name
  M.choices(name, t)
  getmetatable(t).__module = name  -- for operators, whose arguments are read in C++
  return t
end

return M
