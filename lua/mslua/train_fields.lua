--- The arguments that ms.Model, model:train and recipes have in common.
local M = {}

--- How a step is made and what is recorded of it.
M.step = {
  { "accumulate_steps", "integer", 1, min = 1,
    doc = "a batch is computed in so many micro-batches, whose mean gradients make one update; it divides the batch's "
      .. "rows" },
  { "clip_norm", "number", above = 0,
    doc = "gradients are scaled so that the L2 norm of all of them is at most this; default: no limit" },
  { "clip_value", "number", above = 0,
    doc = "each element of a gradient is limited to +-clip_value; not with clip_norm; default: no limit" },
  { "grad_norm", "boolean", false, doc = "true: the L2 norm of all gradients is recorded, as it is with clip_norm" },
  { "ema", "number", above = 0, below = 1,
    doc = "the decay of exponential averages of the parameters, which evaluations use; default: no averages" },
  { "max_steps", "integer", min = 1, doc = "training ends after so many steps, counted from its beginning" },
  { "metrics_limit", "integer", min = 1,
    doc = "so many records of metrics.jsonl have the first interval, as many more have twice it, and so on; default: "
      .. "10000" },
}

M.amp = { "amp", "string", choices = { "bf16", "f16" },
  doc = '"bf16" or "f16": matrix products and convolutions compute in bfloat16 or float16, parameters stay float32; '
    .. "default: all float32" }
M.metrics = { "metrics", "table|list", {},
  doc = 'what evaluations measure: names, {"top1"}, and functions, {"top1", error = function(output, label) ... end}; '
    .. 'where there is a loss function, "loss" is always measured' }
M.steps = { "steps", "list",
  doc = "several steps on each batch, {{name =, loss =, optimizer =, params =}, ...}, each with its own loss and "
    .. "optimizer; default: one step" }
M.callbacks = { "callbacks", "callback|list", {}, doc = "a callback, or a list of them" }

--- The meanings of arguments whose names or defaults differ.
M.loss_doc = "a cell or a function of (output, label); default: the network gives the loss"
M.loss_scale_doc = "multiplies the loss and divides the gradients; default: none; with amp = \"f16\": "
  .. "ms.DynamicLossScaleManager(65536)"
M.sink_doc = "of MindSpore's scripts; no effect: batches are always fetched ahead"

return M
