--- The loss of answers that are a part of a text, as in SQuAD.
local args = require "mslua.args"
local errors = require "mslua.errors"
local loss = require "mslua.nn.loss"
local CrossEntropyLoss = require "mslua.nn.loss.cross_entropy"
local ops = require "mslua.ops"

local SpanLoss = loss.Loss:extend "SpanLoss"

local bind = args.signature("SpanLoss", { loss.reduction "mean" })

--- The loss of a network that points at the first and the last token of an answer, such as Bert with head "qa": logits
--- [n, t, 2] and int32 [n, 2], the numbers of the first and the last token from 0. It is half the cross entropy of the
--- first tokens and half that of the last. A number outside 0 to t - 1, of an answer that was cut off, has no loss and
--- does not count in the mean. (Hugging Face's loss of BertForQuestionAnswering, where a number below 0 stands for 0.)
--- (reduction = "mean")
function SpanLoss:init(...)
  self.reduction = bind(...).reduction
  self.cross = CrossEntropyLoss { reduction = self.reduction, ignore_index = -1 }
end

-- f(logits [n, t], labels [n]) of the first tokens, and of the last.
function SpanLoss:_both(logits, spans, f)
  loss.check_logits("SpanLoss", logits, spans)
  local n, t = logits.shape[1], logits.shape[2]
  if #logits.shape ~= 3 or logits.shape[3] ~= 2 then
    errors.fail("SpanLoss: expected logits [n, t, 2], got %s", errors.show(logits.shape))
  elseif #spans.shape ~= 2 or spans.shape[1] ~= n or spans.shape[2] ~= 2 then
    errors.fail("SpanLoss: expected [%d, 2], the first and the last token of each answer, got %s", n,
      errors.show(spans.shape))
  end
  local function side(k)
    local label = ops.reshape(ops.strided_slice(spans, { 1, k }, { n + 1, k + 1 }), { n })
    label = ops.maximum(ops.select(ops.less(label, t), label, -1), -1)
    return f(ops.reshape(ops.strided_slice(logits, { 1, 1, k }, { n + 1, t + 1, k + 1 }), { n, t }), label)
  end
  return side(1), side(2)
end

function SpanLoss:construct(logits, spans)
  local first, last = self:_both(logits, spans, function(x, label) return self.cross:construct(x, label) end)
  return (first + last) * 0.5
end

function SpanLoss:rows(logits, spans)
  local first, last = self:_both(logits, spans, function(x, label) return { self.cross:rows(x, label) } end)
  if self.reduction == "sum" then return (first[1] + last[1]) * 0.5 end
  return ops.stack({ first[1], last[1] }, 2) * 0.5, ops.stack({ first[2], last[2] }, 2)
end

return SpanLoss
