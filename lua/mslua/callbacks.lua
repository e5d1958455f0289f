--- What happens beside training: ms.Callback and the ready ones. LossMonitor, TimeMonitor, ModelCheckpoint,
--- EvalCallback, EarlyStopping and ReduceLROnPlateau run in C++; a callback of your own runs at the safe points between
--- steps whose methods it defines.
local arity = require "mslua.arity"
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local image = require "mslua.image"
local parallel_context = require "mslua.parallel_context"

local M = {}

--- Base class of callbacks. A subclass defines any of: on_train_begin, on_train_epoch_begin, on_train_step_begin,
--- on_train_step_end, on_train_epoch_end, on_train_end. Each takes one table: epoch from 1, step (of the epoch, from 1;
--- 0 in on_train_begin and on_train_epoch_begin), global_step (steps that are done in all epochs), steps_per_epoch,
--- epochs, loss (after a step), losses (of each of several steps, by its name), lr (from the first step on), folder
--- (of the run), metrics (what was measured: loss, the mean of an epoch's steps, and behind an evaluation eval_loss
--- and eval_ with each metric's name), and stop(). stop() in on_train_step_end or on_train_epoch_end ends training
--- there. In on_train_epoch_begin it ends training after the first step, in on_train_step_begin before the step, but
--- after the first one of an epoch. Ranks that train together stop after the same step when one of them calls it; on
--- the others on_train_step_begin may be called once more.
---@class mslua.Callback
local Callback = class.Object:extend "Callback"
Callback.__index = Callback
M.Callback = Callback
args.kind("callback", function(v) return class.is(v, Callback) end, "a callback such as ms.LossMonitor()")

--- A callback's methods, and the names the trainer has for them.
local hooks = {
  on_train_begin = "begin", on_train_epoch_begin = "epoch_begin", on_train_step_begin = "step_begin",
  on_train_step_end = "step_end", on_train_epoch_end = "epoch_end", on_train_end = "finish",
}

-- What a context has, of which loss, lr and folder may be missing.
local context_fields = {
  "epoch", "epochs", "folder", "global_step", "loss", "losses", "lr", "metrics", "step", "steps_per_epoch", "stop",
}

-- The metatable of contexts of a class's callbacks: a name that contexts do not have is an error.
local function strict(class_name)
  return {
    __index = function(_, name)
      for _, field in ipairs(context_fields) do
        if name == field then return nil end
      end
      errors.fail("%s: the context has no '%s'%s; it has %s", class_name, tostring(name),
        core.did_you_mean(tostring(name), context_fields), table.concat(context_fields, ", "))
    end,
  }
end

-- A method that nobody would call, or not with the context.
local function check_methods(self)
  local class_of = getmetatable(self)
  while class_of ~= Callback do
    for name, f in pairs(class_of) do
      if hooks[name] and type(f) == "function" and arity.parameters(f) == 1 and arity.has_dot(f) then
        errors.fail("%s.%s is defined with a dot: write function %s:%s(%s)", self.class_name, name, self.class_name,
          name, arity.parameter_name(f, 1))
      end
      if type(name) == "string" and name:find "^on_" and not hooks[name] then
        errors.fail("%s.%s is no method of a callback%s; they are %s", self.class_name, name,
          core.did_you_mean(name, errors.names(hooks)), table.concat(errors.names(hooks), ", "))
      end
    end
    class_of = class_of.super
  end
end

--- Adds this callback to a trainer's description; ready ones replace it.
---@param spec table core.trainer's
---@package
function Callback:add_to(spec)
  check_methods(self)
  local found, context_type = false, strict(self.class_name)
  for method, hook in pairs(hooks) do
    local f = self[method]
    if f then
      found = true
      local earlier = spec.hooks[hook]
      spec.hooks[hook] = function(context)
        if earlier then earlier(context) end
        local lr = context.lr
        f(self, setmetatable(context, context_type))
        if context.lr ~= lr then
          errors.fail("%s.%s: the context's lr tells the learning rate, and assigning it has no effect: give the "
            .. "optimizer learning_rate = function(step, epoch) return ... end", self.class_name, method)
        end
      end
    end
  end
  if not found then
    errors.fail("%s defines no method of a callback: %s", self.class_name, table.concat(errors.names(hooks), ", "))
  end
end

local bind_loss = args.signature("LossMonitor", {
  { "per_print_times", "integer", 1, min = 0, unit = "steps",
    doc = "a line is printed every so many steps of the training; 0: none" },
})

--- Prints `epoch: 1 step: 156, loss is 2.0084016` every per_print_times steps; 0: never.
M.LossMonitor = Callback:extend "LossMonitor"
function M.LossMonitor:init(...) self.every = bind_loss(...).per_print_times end
function M.LossMonitor:add_to(spec)
  if spec.loss_every then errors.fail "LossMonitor: there are two: one per_print_times a training" end
  spec.loss_every = self.every
end

--- What `--log-every epoch` asks for: `epoch: 3, mean loss is 0.041` at the end of each epoch. Not for users.
M.EpochLossMonitor = Callback:extend "EpochLossMonitor"
function M.EpochLossMonitor:add_to(spec) spec.loss_every = "epoch" end

local bind_time = args.signature("TimeMonitor", {
  { "data_size", "integer", min = 1, unit = "steps",
    doc = "the steps that an epoch's time is divided by; default: the dataset's" },
})

--- Prints an epoch's time and a step's. data_size: steps to divide by, when they are not the dataset's.
M.TimeMonitor = Callback:extend "TimeMonitor"
function M.TimeMonitor:init(...) self.data_size = bind_time(...).data_size end
function M.TimeMonitor:add_to(spec)
  spec.time_every, spec.time_steps = 1, self.data_size
end

M.checkpoint_fields = {
  { "save_checkpoint_steps", "integer", 1, min = 0, unit = "steps",
    doc = "a checkpoint is saved every so many steps; 0: save_checkpoint_seconds says when" },
  { "save_checkpoint_seconds", "integer", 0, min = 0, unit = "seconds",
    doc = "with save_checkpoint_steps = 0: a checkpoint is saved every so many seconds; 0: only at the end" },
  { "keep_checkpoint_max", "integer", 5, min = 0,
    doc = "so many of the newest checkpoints are kept; 0: keep_checkpoint_per_n_minutes says which" },
  { "keep_checkpoint_per_n_minutes", "integer", 0, min = 0, unit = "minutes",
    doc = "with keep_checkpoint_max = 0: the first checkpoint after each so many minutes and the newest are kept; 0: "
      .. "all are kept" },
  { "integrated_save", "boolean", true,
    doc = "where ranks hold shards: true: one file of whole tensors; false: each rank's shards are a file" },
  { "async_save", "boolean", false,
    doc = "true: training waits only until the tensors are copied, and the checkpoint is written beside it" },
  { "exception_save", "boolean", false,
    doc = "a checkpoint is saved after an error too; not where ranks write a checkpoint together" },
}

--- When to save and what to keep. save_checkpoint_steps beats save_checkpoint_seconds, keep_checkpoint_max beats
--- keep_checkpoint_per_n_minutes; 0 turns one off, all four 0 is an error.
M.CheckpointConfig = class.Object:extend "CheckpointConfig"
M.CheckpointConfig.__index = M.CheckpointConfig
args.kind("checkpoint_config", function(v) return class.is(v, M.CheckpointConfig) end, "ms.CheckpointConfig {...}")

local bind_config = args.signature("CheckpointConfig", M.checkpoint_fields)

function M.CheckpointConfig:init(...)
  local a = bind_config(...)
  for _, name in ipairs(args.names_of(M.checkpoint_fields)) do self[name] = a[name] end
  if a.save_checkpoint_steps == 0 and a.save_checkpoint_seconds == 0 and a.keep_checkpoint_max == 0
    and a.keep_checkpoint_per_n_minutes == 0 then
    errors.fail("CheckpointConfig: save_checkpoint_steps, save_checkpoint_seconds, keep_checkpoint_max and "
      .. "keep_checkpoint_per_n_minutes are all 0: one must be above 0")
  end
  if a.save_checkpoint_steps > 0 then self.save_checkpoint_seconds = 0 end
  if a.keep_checkpoint_max > 0 then self.keep_checkpoint_per_n_minutes = 0 end
end

--- The meanings of the keys of ModelCheckpoint that a recipe's `checkpoint` has too.
M.prefix_doc = "the first part of a checkpoint's name, `<prefix>-<epoch>_<step>.ckpt`"
M.directory_doc = "the folder of the checkpoints; default: ckpt in the run folder"

M.ModelCheckpoint = Callback:extend "ModelCheckpoint"

local function check_prefix(prefix)
  if prefix == "" or prefix:find "/" then return ("expected a name without '/', got %q"):format(prefix) end
end

local bind_checkpoint = args.signature("ModelCheckpoint", {
  { "prefix", "string", "CKP", check = check_prefix, doc = M.prefix_doc },
  { "directory", "string", doc = M.directory_doc },
  { "config", "checkpoint_config", doc = "when to save and what to keep; default: ms.CheckpointConfig()" },
})

--- Saves `<directory>/<prefix>-<epoch>_<step>.ckpt` as `config` says. (prefix = "CKP", directory = the run folder's
--- ckpt, config)
function M.ModelCheckpoint:init(...)
  local a = bind_checkpoint(...)
  self.prefix, self.directory, self.config = a.prefix, a.directory, a.config or M.CheckpointConfig()
end

function M.ModelCheckpoint:add_to(spec)
  if spec.checkpoint then errors.fail "ModelCheckpoint: there are two: one prefix, directory and config a training" end
  local c = self.config
  spec.checkpoint = {
    prefix = self.prefix, directory = self.directory,
    steps = c.save_checkpoint_steps, seconds = c.save_checkpoint_seconds,
    keep_max = c.keep_checkpoint_max, keep_minutes = c.keep_checkpoint_per_n_minutes, integrated = c.integrated_save,
    async = c.async_save, exception_save = c.exception_save,
  }
end

--- When evaluations are made.
M.every_epochs = { "every_epochs", "integer", 1, min = 0, unit = "epochs",
  doc = "an evaluation is made after every so many epochs; 0: none for epochs" }
M.every_steps = { "every_steps", "integer", 0, min = 0, unit = "steps",
  doc = "an evaluation is made after every so many steps too; 0: none for steps" }

M.EvalCallback = Callback:extend "EvalCallback"

local bind_eval = args.signature("EvalCallback", {
  { "dataset", "dataset", required = true, doc = "the batches that are evaluated" },
  M.every_epochs, M.every_steps,
})

--- Evaluates on `dataset` and prints `eval: epoch 3, loss 0.91, top1 68.2%`, every so many epochs, and steps. (dataset,
--- every_epochs = 1, every_steps = 0)
function M.EvalCallback:init(...)
  local a = bind_eval(...)
  self.dataset, self.every_epochs, self.every_steps = a.dataset, a.every_epochs, a.every_steps
end

function M.EvalCallback:add_to(spec, model)
  if spec.eval then
    errors.fail "EvalCallback: there are two, and a recipe's eval_dataset is one: one dataset a training"
  end
  spec.eval = model:eval_spec(self.dataset, true)
  spec.eval.every_epochs, spec.eval.every_steps = self.every_epochs, self.every_steps
end

-- What is watched as the trainer has it: with the mode that "auto" means.
local function watch(a)
  local mode = a.mode
  if mode == "auto" then
    mode = "max"
    for _, smaller in ipairs { "loss$", "perplexity$", "mae$", "mse$" } do
      if a.monitor:find(smaller) then mode = "min" end
    end
  end
  return { monitor = a.monitor, min_delta = a.min_delta, patience = a.patience, mode = mode }
end

M.EarlyStopping = Callback:extend "EarlyStopping"

local monitor = { "monitor", "string", "eval_loss",
  doc = 'the number that is watched: "loss" (of data parallel ranks the mean of theirs), or "eval_" and the name of a '
    .. 'metric, "eval_top1"' }
local mode = { "mode", "string", "auto", choices = { "auto", "min", "max" },
  doc = '"min": less is better; "max": more is better; "auto": "min" of a name that ends in loss, perplexity, mae or '
    .. 'mse, else "max"' }
local function min_delta(default)
  return { "min_delta", "number", default, min = 0, doc = "a change of this size or less is no improvement" }
end

M.early_stopping_fields = {
  monitor, min_delta(0),
  { "patience", "integer", 0, min = 0, unit = "epochs",
    doc = "training ends after so many epochs without an improvement; 0 is 1" },
  mode,
}

local bind_stop = args.signature("EarlyStopping", M.early_stopping_fields)

--- Ends training when `monitor` ("loss", or "eval_" and a metric's name) has not improved by more than min_delta for
--- patience epochs; an epoch without an evaluation is judged at the next one. mode "auto": smaller is better
--- for losses, greater for the rest. NaN is no improvement.
function M.EarlyStopping:init(...) self.spec = watch(bind_stop(...)) end

function M.EarlyStopping:add_to(spec)
  if spec.early_stopping then errors.fail "EarlyStopping: there are two: one monitor and patience a training" end
  spec.early_stopping = self.spec
end

M.ReduceLROnPlateau = Callback:extend "ReduceLROnPlateau"

M.plateau_fields = {
  monitor,
  { "factor", "number", 0.1, above = 0, below = 1, doc = "a reduction multiplies the learning rate by it" },
  { "patience", "integer", 10, min = 1, unit = "epochs",
    doc = "the learning rate is reduced after so many epochs without an improvement" },
  mode, min_delta(1e-4),
  { "cooldown", "integer", 0, min = 0, unit = "epochs", doc = "so many epochs after a reduction do not count" },
  { "min_lr", "number", 0, min = 0, doc = "the learning rate is not reduced below it" },
}

local bind_plateau = args.signature("ReduceLROnPlateau", M.plateau_fields)

--- Multiplies the learning rate by `factor` at the end of an epoch when `monitor` has not improved by more than
--- min_delta for `patience` epochs, and again after as many; the `cooldown` epochs after a reduction do not count. The
--- rate of the optimizer's schedule is multiplied, and not reduced below min_lr; a later training with the optimizer
--- continues with what it was reduced to. mode as EarlyStopping's. (MindSpore's, with its defaults.)
function M.ReduceLROnPlateau:init(...)
  local a = bind_plateau(...)
  self.spec = watch(a)
  self.spec.factor, self.spec.cooldown, self.spec.min_lr = a.factor, a.cooldown, a.min_lr
end

function M.ReduceLROnPlateau:add_to(spec)
  if spec.plateau then errors.fail "ReduceLROnPlateau: there are two: one monitor and factor a training" end
  spec.plateau = self.spec
end

M.Histograms = Callback:extend "Histograms"

M.histogram_fields = {
  { "every_steps", "integer", 100, min = 1, unit = "steps", doc = "histograms are recorded every so many steps" },
  { "parameters", "boolean", true, doc = "true: those of the parameters that are trained" },
  { "gradients", "boolean", false,
    doc = "true: those of their gradients; each step then keeps all gradients to its end" },
}

local bind_histograms = args.signature("Histograms", M.histogram_fields)

--- Records histograms of the parameters that are trained, and of their gradients, every so many steps, as
--- ms.summary.histogram does: `parameters/NAME` and `gradients/NAME`. Gradients are those of the batch, before clipping
--- and without the loss scale; with them each step keeps all gradients to its end. (every_steps = 100, parameters =
--- true, gradients = false)
function M.Histograms:init(...)
  local a = bind_histograms(...)
  if not a.parameters and not a.gradients then errors.fail "Histograms: parameters and gradients are both false" end
  self.spec = { every_steps = a.every_steps, parameters = a.parameters, gradients = a.gradients }
  self.needs_gradients = a.gradients
end

function M.Histograms:add_to(spec)
  if spec.histograms then errors.fail "Histograms: there are two: give one of them" end
  spec.histograms = self.spec
end

M.sample_fields = {
  { "images", "function", required = true, doc = "images(net) gives the pictures, [n, c, h, w]; it is compiled" },
  { "every_epochs", "integer", 1, min = 1, unit = "epochs", doc = "pictures are written after every so many epochs" },
}
for _, field in ipairs(require "mslua.image_fields") do M.sample_fields[#M.sample_fields + 1] = field end

M.SampleImages = Callback:extend "SampleImages"

local bind_samples = args.signature("SampleImages", M.sample_fields)

--- Writes what the network draws: `images(net)` gives pictures [n, c, h, w], which go to samples/epoch_<n>.png in the
--- run folder as ms.image.write does. The function is compiled, as an evaluation is; random numbers with a stream's
--- name, `ms.randn({64, 100}, ms.float32, "samples")`, are the same after each epoch. (images, every_epochs = 1, low =
--- 0, high = 1, columns = 8, padding = 2)
function M.SampleImages:init(...) self.options = bind_samples(...) end

function M.SampleImages:add_to(spec, model)
  if parallel_context.shard() then
    errors.fail_at({ "samples" }, "SampleImages: each rank has a part of the network here, and draws nothing alone: "
      .. "leave it out of this training, samples = p.draws and { ... } or nil with draws = false in ms.params; then "
      .. "`mslua sample RECIPE OUT.png draws=true` draws on one rank")
  end
  self.model, self.graph = model, nil
  Callback.add_to(self, spec)
end

function M.SampleImages:on_train_epoch_end(context)
  local o = self.options
  local writes = not parallel_context.together() or core.options.rank == 0
  if not context.folder or not writes or context.epoch % o.every_epochs ~= 0 then return end
  self.graph = self.graph or self.model:sample_graph(o.images)
  image.write(("%s/samples/epoch_%d.png"):format(context.folder, context.epoch), self.graph:run(), {
    low = o.low, high = o.high, columns = o.columns, padding = o.padding,
  })
end

--- Puts the files of a tokenizer into the run folder and into each checkpoint, so that weights and tokenizer stay
--- together. Not for users.
M.SaveTokenizer = Callback:extend "SaveTokenizer"
function M.SaveTokenizer:init(tokenizer) self.tokenizer = tokenizer end
function M.SaveTokenizer:add_to(spec)
  spec.companions = self.tokenizer:contents()
  Callback.add_to(self, spec)
end
function M.SaveTokenizer:on_train_begin(context)
  if context.folder and core.options.rank == 0 then self.tokenizer:save(context.folder) end
end

return M
