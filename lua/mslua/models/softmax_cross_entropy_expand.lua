--- The tutorials' SoftmaxCrossEntropyExpand: cross entropy in small operators, each of which can be sharded.
local args = require "mslua.args"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local SoftmaxCrossEntropyExpand = nn.Loss:extend "SoftmaxCrossEntropyExpand"

local bind = args.signature("SoftmaxCrossEntropyExpand", { { "sparse", "boolean", false } })

--- `sparse`: labels are class ids [n]; else rows [n, classes]. The loss is the mean over n. (sparse = false)
function SoftmaxCrossEntropyExpand:init(...)
  self.reduction = "mean"
  self.exp = ops.Exp()
  self.sum = ops.ReduceSum { keep_dims = true }
  self.onehot = ops.OneHot()
  self.on_value = ms.Tensor(1.0, ms.float32)
  self.off_value = ms.Tensor(0.0, ms.float32)
  self.div = ops.RealDiv()
  self.log = ops.Log()
  self.sum_cross_entropy = ops.ReduceSum { keep_dims = false }
  self.mul = ops.Mul()
  self.mul2 = ops.Mul()
  self.mean = ops.ReduceMean { keep_dims = false }
  self.sparse = bind(...).sparse
  self.max = ops.ReduceMax { keep_dims = true }
  self.sub = ops.Sub()
end

--- The loss of each row, [n].
function SoftmaxCrossEntropyExpand:rows(logit, label)
  local logit_max = self.max(logit, -1)
  local exp = self.exp(self.sub(logit, logit_max))
  local exp_sum = self.sum(exp, -1)
  local softmax_result = self.div(exp, exp_sum)
  if self.sparse then
    label = self.onehot(label, ops.shape(logit)[2], self.on_value, self.off_value)
  end
  local softmax_result_log = self.log(softmax_result)
  local loss = self.sum_cross_entropy(self.mul(softmax_result_log, label), -1)
  return self.mul2(ops.scalar_to_array(-1.0), loss)
end

function SoftmaxCrossEntropyExpand:construct(logit, label)
  return self.mean(self:rows(logit, label), -1)
end

return SoftmaxCrossEntropyExpand
