--- Losses as functions of ms.ops: each calls its cell.
local args = require "mslua.args"
local loss = require "mslua.nn.loss"
local nn_loss = "mslua.nn.loss."

local output = { "input", "operand", required = true, doc = "the output of the network" }
local target = { "target", "operand|number", required = true,
  doc = "the labels, of the output's shape; a number stands for that label everywhere" }
local ids = { "target", "operand", required = true, doc = "the ids of the classes, int32 [..]" }
local logits = { "input", "operand", required = true, doc = "logits [.., classes]" }

-- Calls the cell with the bound arguments, of which the first two are operands.
local function call(file, a)
  local input, label = a.input, a.target
  a.input, a.target = nil, nil
  return require(nn_loss .. file)(a):construct(input, label)
end

--- Gives ms.ops the functions.
---@param ops table ms.ops
return function(ops)
  local bind_cross = args.signature("cross_entropy", {
    logits,
    { "target", "operand", required = true,
      doc = "the ids of the classes, int32 [..], or their probabilities, [.., classes]" },
    loss.class_weight, loss.ignore_index, loss.reduction "mean", loss.label_smoothing,
  })

  --- nn.CrossEntropyLoss as a function: -log softmax(input)[target], of ids or probabilities. Classes are the last
  --- axis, where MindSpore and PyTorch have the second. (input, target, weight, ignore_index = -100, reduction =
  --- "mean", label_smoothing = 0)
  function ops.cross_entropy(...) return call("cross_entropy", bind_cross(...)) end

  local bind_nll = args.signature("nll_loss", {
    { "input", "operand", required = true, doc = "logarithms of probabilities [.., classes]" }, ids, loss.class_weight,
    loss.ignore_index, loss.reduction "mean", loss.label_smoothing,
  })

  --- nn.NLLLoss as a function: -input[target] of logarithms of probabilities. Classes are the last axis, where
  --- MindSpore and PyTorch have the second. (input, target, weight, ignore_index = -100, reduction = "mean",
  --- label_smoothing = 0)
  function ops.nll_loss(...) return call("nll", bind_nll(...)) end

  local bind_bce = args.signature("binary_cross_entropy", {
    output, target, loss.element_weight, loss.reduction "mean",
  })

  --- nn.BCELoss as a function, of probabilities. (input, target, weight, reduction = "mean")
  function ops.binary_cross_entropy(...) return call("bce", bind_bce(...)) end

  local bind_logits = args.signature("binary_cross_entropy_with_logits", {
    output, target, loss.element_weight,
    { "pos_weight", "tensor", doc = "[classes], the factor of each class's part for the label 1; default: 1 each" },
    loss.reduction "mean",
  })

  --- nn.BCEWithLogitsLoss as a function, of logits. (input, target, weight, pos_weight, reduction = "mean")
  function ops.binary_cross_entropy_with_logits(...) return call("bce_with_logits", bind_logits(...)) end

  local bind_kl = args.signature("kl_div", {
    { "input", "operand", required = true, doc = "logarithms of probabilities" }, target,
    { "reduction", "string", "mean", choices = { "mean", "batchmean", "sum", "none" },
      doc = '"mean": the mean of the elements\' losses; "batchmean": their sum divided by the number of rows; "sum": '
        .. 'their sum; "none": the losses themselves' },
  })

  --- nn.KLDivLoss as a function: target (log(target) - input). (input, target, reduction = "mean")
  function ops.kl_div(...) return call("kl_div", bind_kl(...)) end

  local bind_l1 = args.signature("l1_loss", { output, target, loss.reduction "mean" })

  --- nn.L1Loss as a function: the absolute difference. (input, target, reduction = "mean")
  function ops.l1_loss(...) return call("l1", bind_l1(...)) end

  local bind_smooth = args.signature("smooth_l1_loss", {
    output, target,
    { "beta", "number", 1, above = 0, doc = "the difference from which on the loss is linear" }, loss.reduction "none",
  })

  --- nn.SmoothL1Loss as a function. The default of reduction is "none", as in MindSpore; in PyTorch it is "mean".
  --- (input, target, beta = 1, reduction = "none")
  function ops.smooth_l1_loss(...) return call("smooth_l1", bind_smooth(...)) end

  local bind_huber = args.signature("huber_loss", {
    output, target, loss.reduction "mean",
    { "delta", "number", 1, above = 0, doc = "the largest difference whose square counts" },
  })

  --- nn.HuberLoss as a function. (input, target, reduction = "mean", delta = 1)
  function ops.huber_loss(...) return call("huber", bind_huber(...)) end
end
