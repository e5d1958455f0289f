--- ms.Model: a network with its loss, optimizer and metrics; train, eval and predict (mindspore.train.Model).
local args = require "mslua.args"
local arity = require "mslua.arity"
local callbacks = require "mslua.callbacks"
local class = require "mslua.class"
local core = require "mslua.core"
local dtype_flag = require "mslua.dtype_flag"
local errors = require "mslua.errors"
local evaluating = require "mslua.evaluating"
local frames = require "mslua.frames"
local loss_scale = require "mslua.loss_scale"
local metrics = require "mslua.metrics"
local notice = require "mslua.notice"
local ops = require "mslua.ops"
local optimizers = require "mslua.optimizer"
local parallel_context = require "mslua.parallel_context"
local samples = require "mslua.samples"
local several = require "mslua.steps"
local shared = require "mslua.train_fields"
local shared_parameters = require "mslua.shared_parameters"
local wrap = require "mslua.nn.wrap"

---@class mslua.Model
local Model = class.Object:extend "Model"
Model.__index = class.lookup
-- What users of other libraries call, and what does it here.
Model.elsewhere = {
  fit = "model:train(epochs, dataset)",
  evaluate = "model:eval(dataset)",
  parameters = "model.network:get_parameters()",
  state_dict = "ms.save_checkpoint(model.network, path)",
  save = "ms.save_checkpoint(model.network, path)",
  load = "ms.load_param_into_net(model.network, ms.load_checkpoint(path))",
}

local bind = args.signature("Model", {
  { "network", "cell", required = true, doc = "the network" },
  { "loss_fn", "loss", doc = shared.loss_doc },
  { "optimizer", "optimizer", doc = "it updates the parameters; training needs it" },
  shared.metrics, shared.amp,
  { "loss_scale_manager", "loss_scale", doc = shared.loss_scale_doc },
  shared.steps,
})

--- A network with its loss, optimizer and metrics: `ms.Model(net, {loss_fn = loss, optimizer = opt, metrics =
--- {"top1"}})`. Without loss_fn the network gives the loss. A network that has a method predict(x) is exported, and
--- used by `mslua predict`, as that, and by its construct otherwise. steps, a list of {name =, loss = function(net,
--- columns...), optimizer =, params = "^generator%."}, stands instead of loss_fn and optimizer: each batch makes all of
--- the steps, in their order.
--- amp "bf16" or "f16": matrix products, convolutions and what follows them compute in bfloat16 or float16; norms of
--- rows, sums, losses and parameters stay f32. In f16 the loss has a scale, or small gradients would become 0.
function Model:init(...)
  local a = bind(...)
  self.network, self.loss_fn, self.optimizer = a.network, a.loss_fn, a.optimizer
  self.network:_as_root()
  self.metrics = metrics.list(a.metrics, a.loss_fn, not a.loss_fn and not a.steps)
  self.amp, self.loss_scale = dtype_flag[a.amp], a.loss_scale_manager
  if not a.steps then
    if a.amp == "f16" and not self.loss_scale then self.loss_scale = loss_scale.DynamicLossScaleManager(2 ^ 16) end
    return
  end
  if a.amp == "f16" then errors.fail("Model: %s", several.NO_F16) end
  if a.loss_fn or a.optimizer or a.loss_scale_manager then
    errors.fail "Model: steps: each has its loss and its optimizer: leave out loss_fn, optimizer, loss_scale_manager"
  end
  self.steps = several.check(a.steps, false, function(problem) errors.fail("Model: steps: %s", problem) end)
  self.history = several.share_history(self.steps)
end

-- The shapes that batches have, as core.dataset's shapes() gives them; each with at least two columns where there is a
-- loss.
local function shapes_of(self, dataset, what)
  local shapes, batched = dataset:open():shapes(), dataset:open():batch_size()
  local columns = shapes[1].columns
  local key = { what == "eval" and "eval_dataset" or "dataset" }
  for _, column in ipairs(columns) do
    if not batched and #column.shape == 0 then
      errors.fail_at(key, "%s: the dataset has no batch, '%s' is one number: call ds:batch(n)", what, column.name)
    end
  end
  if self.loss_fn and #columns < 2 then
    errors.fail_at(key, "%s: the dataset gives one column, '%s'; a loss needs data and label", what, columns[1].name)
  end
  if #shapes > 1 and parallel_context.shard() then
    errors.fail_at(key, "%s: bucket_batch_by_length goes with data_parallel ranks, not with parallel_mode = %q or "
      .. "pipeline stages: use padded_batch", what, parallel_context.get_auto_parallel_context "parallel_mode")
  end
  return shapes
end

-- One graph of what `build` gives for the columns of each shape, and what else it gives for the first.
local function of_shapes(shapes, build)
  local graphs, shares, rest = {}, {}, {}
  for i, shape in ipairs(shapes) do
    local results = { build(shape.columns) }
    graphs[i], shares[i] = results[1], shape.share
    if i == 1 then rest = results end
  end
  return #shapes == 1 and graphs[1] or core.of_shapes(graphs, shares), unpack(rest, 2)
end

-- The results of what gives the loss, checked: `who` names it.
local function check_loss(who, loss, ...)
  local shape = core.kind(loss) and loss.shape
  if not shape then
    errors.fail("%s: expected a loss, one float number, got %s: does it end in a return?", who, errors.show(loss))
  elseif #shape > 0 then
    errors.fail("%s: expected a loss, one float number, got %s%s: reduce it, with ops.reduce_mean(x) or another "
      .. "reduction", who, loss.dtype, errors.show(shape))
  end
  return loss, ...
end

-- The loss that a network gives for all columns of a batch.
local function loss_of_network(network, ...)
  arity.check(network.class_name, "no loss is given (loss of a recipe, loss_fn of ms.Model), so the network gets "
    .. "all columns of a batch and gives the loss", network.construct, 1, ...)
  return check_loss(network.class_name, network(...))
end

-- What the compiled step computes: all columns to the network, or the last one to the loss.
local function forward_of(self)
  local network, loss_fn = self.network, self.loss_fn
  if not loss_fn then
    return function(...) return loss_of_network(network, ...) end
  end
  local is_function = type(loss_fn) == "function"
  local who = is_function and "the loss function" or loss_fn.class_name
  -- The library's losses have no line of the recipe but the one that asks for them.
  local line = frames.of_library(is_function and loss_fn or loss_fn.construct) and errors.place { "loss" }
  return function(...)
    local columns, n = { ... }, select("#", ...)
    local output = wrap.output(network, unpack(columns, 1, n - 1))
    if line then core.at(line) end
    return check_loss(who, loss_fn(output, columns[n]))
  end
end

local train_fields = {
  { "epoch", "integer", required = true, min = 1, doc = "how often to go through the dataset" },
  { "train_dataset", "dataset", required = true, doc = "the batches; a last, smaller one is left out" },
  shared.callbacks,
  { "dataset_sink_mode", "boolean", false, doc = shared.sink_doc },
}
for _, field in ipairs(shared.step) do train_fields[#train_fields + 1] = field end
for _, field in ipairs {
  { "name", "string", doc = "name of the run folder; default: the network's class" },
  { "config", "string", doc = "the text of config.lua in the run folder; default: none" },
} do
  train_fields[#train_fields + 1] = field
end
local bind_train = args.signature("train", train_fields)

local function loss_scale_of(self)
  local spec, own = self.loss_scale and self.loss_scale.spec, self.optimizer.loss_scale
  if own ~= 1 and not (spec and spec.kind == "fixed" and spec.value == own) then
    errors.fail_at({ "optimizer" }, "train: %s has loss_scale = %g, which only divides gradients: "
      .. "give loss_scale_manager = ms.FixedLossScaleManager(%g) too", self.optimizer.class_name, own, own)
  end
  return spec
end

local accumulate_key = { "train", "accumulate_steps" }

-- In how many parts a batch is gone through.
local function micro_batches(self, accumulate, columns)
  local parts = wrap.micro_batches(self.network, columns)
  if parts > 1 and accumulate > 1 then
    errors.fail_at(accumulate_key, "train: accumulate_steps = %d and PipelineCell's micro_size = %d: give one of them",
      accumulate, parts)
  end
  local name, rows = wrap.uneven(columns, accumulate)
  if name then
    errors.fail_at(accumulate_key, "train: accumulate_steps = %d does not divide the batch of column '%s', %d rows",
      accumulate, name, rows)
  end
  return parts * accumulate
end

-- What the compiled step of several computes.
local function forward_of_step(self, step)
  return function(...) return check_loss(("steps: %s"):format(step.name), step.loss(self.network, ...)) end
end

-- The graph of a step, and of the optimizers what the trainer needs.
local function build(self, common, name)
  if self.steps then
    local list, rates = several.bind(self.network, self.steps, common, function(step)
      return forward_of_step(self, step)
    end)
    local graph, idle = errors.at(errors.place { "steps" }, core.build_steps, name, list)
    return graph, idle, { rates = rates, history = self.history }
  end
  local optimizer = self.optimizer
  common.name, common.forward = name, forward_of(self)
  common.parameters, common.optimizer = optimizer:bind(self.network)
  common.shard = parallel_context.shard()
  local graph, idle = parallel_context.at_key(core.build_train, common)
  return graph, idle, { schedule = optimizer.schedule, lr_function = optimizer.lr_function,
    history = optimizer.history }
end

--- The compiled training step, and what the trainer needs beside it (core.trainer). Without a.train_dataset the columns
--- are a.columns, as a dataset's schema gives them, and only the graph is of use.
---@return table spec
---@package
function Model:train_spec(a)
  local shapes = a.columns and { { columns = a.columns, share = 1 } } or shapes_of(self, a.train_dataset, "train")
  local scale = not self.steps and loss_scale_of(self) or nil
  local full_names = self.network:_as_root()
  local parameters, names = self.network:get_parameters(), {}
  for i, p in ipairs(parameters) do names[i] = full_names[p] end
  parallel_context.report_layerwise(parameters, names)
  if a.clip_norm and a.clip_value then
    errors.fail_at({ "train", "clip_norm" }, "train: clip_norm and clip_value: give one of them")
  end
  local clip
  if a.clip_norm then clip = { kind = "norm", value = a.clip_norm } end
  if a.clip_value then clip = { kind = "value", value = a.clip_value } end
  local graph, idle, rates = of_shapes(shapes, function(columns)
    return build(self, {
      inputs = columns, network = parameters, accumulate = micro_batches(self, a.accumulate_steps or 1, columns),
      clip = clip, grad_norm = a.grad_norm or false, gradients = a.gradients or false, ema = a.ema,
      loss_scale = scale ~= nil, amp = self.amp, aggregate = parallel_context.aggregation(),
      heed_cells = wrap.unwrap(self.network):_heeds_parts(),
    }, self.network.class_name)
  end)
  wrap.report_idle(idle)
  self.averages = a.ema and rates.history
  return {
    name = a.name or self.network.class_name, graph = graph, epochs = a.epoch,
    dataset = a.train_dataset and a.train_dataset:open(),
    max_steps = a.max_steps, metrics_limit = a.metrics_limit, parameters = parameters, names = names,
    schedule = rates.schedule, lr_function = rates.lr_function, rates = rates.rates, history = rates.history,
    loss_scale = scale, sink = a.dataset_sink_mode, hooks = {},
    seed = core.seed(), together = parallel_context.together(), broadcast = parallel_context.broadcasts(),
  }
end

-- What updates the parameters: the optimizer, or those of the steps.
local function optimizers_of(self)
  local list = { self.optimizer }
  for _, step in ipairs(self.steps or {}) do list[#list + 1] = step.optimizer end
  return list
end

-- A number that a callback watches and that nothing measures would be missed at the first evaluation only.
local function check_monitor(spec, callback, watch)
  local monitor = watch and watch.monitor
  if not monitor then return end
  local known = { "loss" }
  for _, rate in ipairs(spec.rates or {}) do known[#known + 1] = rate.input:sub(#"lr." + 1) .. "_loss" end
  for _, m in ipairs(spec.eval and spec.eval.metrics or {}) do known[#known + 1] = "eval_" .. m.name end
  local never = spec.eval and spec.eval.every_epochs == 0 and spec.eval.every_steps == 0
  if never and monitor:find "^eval_" then
    errors.fail_at({ "callbacks" }, "%s: monitor: '%s' is never measured: every_epochs and every_steps of the "
      .. "evaluation are 0", callback, monitor)
  end
  for _, name in ipairs(known) do
    if name == monitor then return end
  end
  errors.fail_at({ "callbacks" }, "%s: monitor: nothing called '%s' is measured%s; there are %s%s", callback, monitor,
    core.did_you_mean(monitor, known), table.concat(known, ", "),
    spec.eval and "" or ", and metrics of an evaluation with eval_dataset")
end

-- Says, once, that the compiled step does not see what a callback has assigned to a field of the network.
local function report_changed_fields(network, hooks)
  local changed, said = network:_watch(), false
  for name, hook in pairs(hooks) do
    hooks[name] = function(context)
      hook(context)
      if said then return end
      local cell, field = changed()
      if not cell or field == "training" then return end
      said = true
      notice(("warning: %s.%s has changed while ms.Model trains, whose compiled step has its earlier value: for a "
        .. "number that changes, self:state(name, {}, value), and assign its .value"):format(cell.class_name, field))
    end
  end
end

-- A list of rates that ends before the training was made for fewer epochs or larger batches.
local function report_short_rates(optimizers, steps)
  for _, optimizer in ipairs(optimizers) do
    local given = optimizer.learning_rate
    if args.is_list(given) and #given < steps then
      notice(("note: %s: learning_rate has %d numbers and the training %d steps: those that follow have the last one")
        :format(optimizer.class_name, #given, steps))
    end
  end
end

--- Trains. (epoch, train_dataset, {callbacks = {...}, dataset_sink_mode = false, accumulate_steps = 1, clip_norm =,
--- clip_value =, grad_norm = record the gradients' norm, ema = decay of averages of the parameters, max_steps =,
--- metrics_limit =, name = of the run folder, config = text of its config.lua}). With ema the step keeps an average of
--- each parameter over its updates, divided by the sum of its weights (optax.ema with debias), which evaluations use.
---@return table trainer core.trainer's object, after its run
function Model:train(...)
  class.check_self(self, Model, "a Model", "model:train(epoch, dataset)")
  local a = bind_train(...)
  local used = optimizers_of(self)
  if #used == 0 then
    errors.fail "train: the Model has no optimizer: ms.Model(net, {loss_fn =, optimizer =})"
  end
  for _, optimizer in ipairs(used) do optimizer:check_free "train" end
  parallel_context.check_runnable "train"
  a.train_dataset = a.train_dataset:whole_batches "train"
  local most = core.options.verb == "run" and core.options.max_steps
  if most then a.max_steps = math.min(a.max_steps or most, most) end
  Model.trained = true
  local list = args.is_list(a.callbacks) and a.callbacks or { a.callbacks }
  for _, callback in ipairs(list) do
    -- Of the step that is compiled next.
    a.gradients = a.gradients or class.is(callback, callbacks.Histograms) and callback.needs_gradients
  end
  local spec = self:train_spec(a)
  for i, callback in ipairs(list) do
    local problem = args.problem({ "", "callback" }, callback)
    if problem then errors.fail_at({ "callbacks" }, "train: callbacks[%d]: %s", i, problem) end
    errors.at(not core.where() and errors.place { "callbacks" } or nil, callback.add_to, callback, spec, self)
  end
  report_short_rates(used, math.min(a.max_steps or math.huge, a.epoch * a.train_dataset:steps()))
  check_monitor(spec, "EarlyStopping", spec.early_stopping)
  check_monitor(spec, "ReduceLROnPlateau", spec.plateau)
  spec.config = a.config
  report_changed_fields(self.network, spec.hooks)
  local trainer = core.trainer(spec)
  optimizers.while_training(used, function() trainer:run() end)
  return trainer
end

-- A tensor as "float32{4, 2}", anything else as it is.
local function described(v) return core.kind(v) and v.dtype .. errors.show(v.shape) or errors.show(v) end

-- The key of a recipe that a metric is measured by.
local function place_of(metric)
  return (metric == "loss" or metric == "perplexity") and { "loss" } or { "eval", "metrics" }
end

-- How the rows of a batch get a number each, of a metric that gave one for all.
local function how_by_row(self, metric)
  if metric ~= "loss" and metric ~= "perplexity" then return "give one number a row" end
  if not self.loss_fn then return "give the network a method rows(...) of the columns, the loss of each row" end
  return ("%s a method rows(output, label), the loss of each row"):format(
    type(self.loss_fn) == "function" and "make the loss a cell, which can have" or "give the loss")
end

-- What a metric gave for n rows: one number each, or one for all. With weights of one shape: one or more each.
local function check_rows(name, values, weights, n)
  local shape = core.kind(values) and values.shape
  if not shape or #shape > (weights and 2 or 1) or (#shape > 0 and shape[1] ~= n) then
    local column = shape and #shape == 2 and shape[1] == n and shape[2] == 1
    errors.fail_at(place_of(name), "metrics: %s: expected a tensor with a number for each of the %d rows, got %s%s",
      name, n, described(values), column and ": x:squeeze(2) takes the second dimension away" or "")
  end
  local same = weights == nil or (#shape > 0 and core.kind(weights) and #weights.shape == #shape)
  for d = 1, weights and same and #shape or 0 do same = same and weights.shape[d] == shape[d] end
  if not same then
    errors.fail_at(place_of(name), "metrics: %s: expected weights of the shape of the rows' values, %s, got %s", name,
      described(values), described(weights))
  end
end

-- Of what a metric gave, the sums over the rows of the dataset: of the values, and of the weights where there are any.
local function summed(self, m, values, weights, n, dataset)
  check_rows(m.name, values, weights, n)
  if #values.shape == 0 and not dataset:open():full_batches() then
    errors.fail_at(place_of(m.name), "eval: %s is one number for the whole batch, and the last batch has fewer rows: "
      .. "%s, or batch the dataset with drop_remainder = true", m.name, how_by_row(self, m.name))
  end
  return metrics.mean_sums(values, weights, n)
end

-- The rows' losses of a network that gives its own loss, and their weights if it gives these; or the rows' mean.
local function own_loss(network, ...)
  local measured, bare = wrap.unwrap(network, "rows")
  if measured.rows and not bare then return measured:rows(...) end  -- a bare network's are of another loss
  return (loss_of_network(network, ...))
end

-- A metric that is computed from the network reads its parameters as they are.
local function check_computed(self, m)
  if m.compute and self.averages then
    errors.fail_at({ "eval", "metrics" }, "metrics: %s.compute sees the parameters, and an evaluation with train.ema "
      .. "is of their averages: leave one of them out", m.name)
  elseif m.compute and parallel_context.shard() then
    errors.fail_at({ "eval", "metrics" }, "metrics: %s.compute runs on each rank by itself, and ranks have parts of "
      .. "the parameters: train data parallel, or leave it out", m.name)
  end
end

-- Of an output that has several numbers a row.
local function check_labels(self, output)
  local shape = self.labels and core.kind(output) == "Value" and output.shape
  if shape and #shape == 2 and shape[2] > 1 then metrics.check_labels(self.labels, shape[2]) end
end

--- The compiled evaluation on a dataset. of_training: with what says which samples are the worst.
---@return {graph: Graph, dataset: Dataset, metrics: {name: string, kind: string}[]}
---@package
function Model:eval_spec(dataset, of_training)
  if #self.metrics == 0 then
    errors.fail_at({ "eval_dataset" }, "eval: a training of several steps has no loss to evaluate: give metrics of "
      .. "what the network makes of all columns but the last")
  end
  self.network:_as_root()
  local names, shown, matrices, finishes, reads_output = {}, {}, {}, false, false
  for _, m in ipairs(self.metrics) do
    check_computed(self, m)
    if m.kind == "matrix" then
      matrices[#matrices + 1] = m.name
    else
      shown[#shown + 1] = { name = m.name, kind = m.kind }
    end
    finishes = finishes or m.finish ~= nil or m.compute ~= nil or m.map ~= nil
    reads_output = reads_output or m.rows ~= nil or m.sums ~= nil
  end
  local function forward(...)
    local columns, n = { ... }, select("#", ...)
    local rows = columns[n].shape[1]
    local sums = {}
    for i = #names, 1, -1 do names[i] = nil end
    local function add(name, sum) names[#names + 1], sums[#sums + 1] = name, sum end
    local function add_mean(m, values, weights)
      local sum, divisor = summed(self, m, values, weights, rows, dataset)
      add(m.name, sum)
      if divisor then
        add(metrics.weights_name(m.name), divisor)
        finishes = true
      end
      return values
    end
    local output = reads_output and wrap.output(self.network, unpack(columns, 1, n - 1)) or nil
    check_labels(self, output)
    local loss
    for _, m in ipairs(self.metrics) do
      local values
      if m.own_loss then
        values = add_mean(m, own_loss(self.network, ...))
      elseif m.rows then
        values = add_mean(m, m.rows(output, columns[n]))
      elseif m.sums then
        local parts = metrics.sums_of(m, output, columns[n], rows)
        for _, part in ipairs(errors.names(parts)) do add(m.name .. "/" .. part, parts[part]) end
      end
      if m.name == "loss" then loss = values end
    end
    if of_training then samples.outputs(self, add, rows, loss, output, columns[n]) end
    -- Of steps whose metrics are all computed from the network.
    if #sums == 0 then add("rows", ops.reduce_sum(ops.cast(core.valid_mask(rows), "float32"))) end
    return unpack(sums)
  end
  local graph = of_shapes(shapes_of(self, dataset, "eval"), function(columns)
    return parallel_context.at_key(core.build_eval, {
      name = self.network.class_name .. ".eval", forward = forward, inputs = columns, outputs = names, amp = self.amp,
      shard = parallel_context.shard(), history = self.averages,
    })
  end)
  return { graph = graph, dataset = dataset:open(), metrics = shown, matrices = matrices, labels = self.labels or {},
    samples = of_training and samples.form(dataset) or nil,
    finish = finishes and function(sums, samples)
      return metrics.finish(self.metrics, sums, samples, self.network)
    end or nil }
end

local bind_eval = args.signature("eval", {
  { "valid_dataset", "dataset", required = true, doc = "the batches; all samples count" },
})

--- Metrics on a dataset: { loss = 0.91, top1 = 0.682 }; of the averages of the parameters, where train kept them.
---@return table<string, number>
function Model:eval(...)
  class.check_self(self, Model, "a Model", "model:eval(dataset)")
  return self:run_eval(self:eval_spec(bind_eval(...).valid_dataset))
end

--- Runs what eval_spec has compiled.
---@return table<string, number>
---@package
function Model:run_eval(spec)
  local sums, samples = core.evaluate(spec.graph, spec.dataset, parallel_context.together())
  return metrics.finish(self.metrics, sums, samples, self.network)
end

--- Gives the network's parameters the averages that train's `ema` has kept, for predict, save_checkpoint and export.
--- Training that follows starts from there.
function Model:use_averages()
  class.check_self(self, Model, "a Model", "model:use_averages()")
  if not self.averages then errors.fail "use_averages: there are none: model:train(epoch, dataset, {ema = 0.999})" end
  for _, p in ipairs(self.network:trainable_params()) do core.use_average(p, self.averages) end
end

--- The compiled network on batches of these columns, without loss. `plain`: as it is written, in float32, for one
--- device.
---@param part {columns: table[], inputs: integer}
---@param plain? boolean
---@param own_rows? integer of the recipe's batches, where the columns have another number: a reshape to it is an error
---@return Graph
---@package
function Model:predict_graph(part, plain, own_rows)
  self.network:_as_root()
  local network, bare = wrap.unwrap(self.network, "predict")
  local predicts = network.predict ~= nil
  if not predicts and not bare and not self.loss_fn and not self.steps then
    errors.fail_at({ "network" }, "%s: the network gives its own loss: a prediction is what a network gives its loss, "
      .. "loss = nn.MSELoss() in the recipe, or what its method predict(x) gives", core.options.verb)
  end
  local predict = predicts and wrap.prediction or wrap.output
  return core.build_eval {
    name = self.network.class_name .. ".predict", outputs = { "output" },
    forward = function(...)
      local output = predict(network, ...)
      if type(output) == "table" and not core.kind(output) then
        errors.fail_at({ "network" }, "%s: %s gives a table of outputs, a prediction is one tensor%s",
          core.options.verb, network.class_name,
          predicts and " of its method predict" or ": give the network a method predict(x) for it")
      end
      check_labels(self, output)
      return output
    end,
    inputs = { unpack(part.columns, 1, part.inputs) }, amp = not plain and self.amp or nil,
    shard = not plain and parallel_context.shard() or nil, own_rows = own_rows,
  }
end

--- The compiled pictures that `images(network)` gives, of the averages where train kept them.
---@param images fun(network: Cell): Value
---@return Graph
---@package
function Model:sample_graph(images)
  self.network:_as_root()
  local name = self.network.class_name .. ".samples"
  local function forward()
    local x = images(self.network)
    local shape = core.kind(x) and x.shape
    if not shape or #shape ~= 4 then
      errors.fail_at({ "samples", "images" }, "samples: images: expected pictures [n, c, h, w], got %s", errors.show(x))
    end
    return x
  end
  return core.build_eval { name = name, outputs = { "images" }, inputs = {}, forward = forward, amp = self.amp,
    history = self.averages }
end

-- The network's output where the ranks keep parts of its parameters: they compute it together.
local function predict_together(self, shard, ...)
  local given, n, columns, tensors = { ... }, select("#", ...), {}, {}
  for i = 1, n do
    if core.kind(given[i]) == "Tensor" then
      tensors[#tensors + 1] = given[i]
      columns[#tensors] = { name = "x" .. #tensors, dtype = given[i].dtype, shape = given[i].shape }
    end
  end
  core.check_same("predict", tensors)
  self.network:_as_root()
  local function forward(...)
    local inputs, arguments, k = { ... }, {}, 0
    for i = 1, n do
      if core.kind(given[i]) == "Tensor" then
        k = k + 1
        arguments[i] = inputs[k]
      else
        arguments[i] = given[i]
      end
    end
    return self.network(unpack(arguments, 1, n))
  end
  local graph = core.build_eval { name = self.network.class_name .. ".predict", inputs = columns, forward = forward,
    shard = shard }
  return graph:run(unpack(tensors))
end

-- Products of parameters and rows, about, from which on a prediction is compiled: less takes longer to trace than to
-- compute.
local WORTH_COMPILING = 2 ^ 24

local function worth_compiling(self, ...)
  if self.predicts_eagerly or core.is_tracing() then return false end
  local elements, rows = self.parameter_elements, 0
  if not elements then
    elements = 0
    for _, p in ipairs(self.network:get_parameters()) do
      local size = 1
      for _, n in ipairs(p.shape) do size = size * n end
      elements = elements + size
    end
    self.parameter_elements = elements
  end
  for i = 1, select("#", ...) do
    local x = select(i, ...)
    if core.kind(x) == "Tensor" and x.size > 0 then
      local shape = x.shape
      rows = math.max(rows, x.dtype:find "int" and x.size or x.size / (shape[#shape] or 1))
    end
  end
  return elements * rows >= WORTH_COMPILING
end

--- The network's output for inputs, without training behaviour. A network that computes much is traced at each call
--- and runs compiled, unless it reads numbers of its values (x:item()). Where ranks keep parts of the parameters, each
--- gives the same inputs, and each gets the whole output.
function Model:predict(...)
  class.check_self(self, Model, "a Model", "model:predict(x)")
  local shard = parallel_context.shard()
  if shard and shared_parameters.any(self.network:get_parameters()) then return predict_together(self, shard, ...) end
  if not worth_compiling(self, ...) then return evaluating(self.network, ...) end
  self.compiled = self.compiled or core.compiled(self.network)
  local ok, results = pcall(evaluating, self.compiled, ...)
  if ok then return unpack(results) end
  -- A network that reads numbers of its values cannot be traced; another error comes again.
  local function remember(...)
    self.predicts_eagerly = true
    return ...
  end
  return remember(evaluating(self.network, ...))
end

return Model
