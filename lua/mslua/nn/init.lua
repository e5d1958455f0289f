--- ms.nn: cells, losses, optimizers and learning rates.
local nn = {}

nn.Cell = require "mslua.cell"
nn.Dense = require "mslua.nn.dense"
nn.Conv2d = require "mslua.nn.conv2d"
nn.Conv2dTranspose = require "mslua.nn.conv2d_transpose"
nn.Upsample = require "mslua.nn.upsample"
nn.Embedding = require "mslua.nn.embedding"
nn.Dropout = require "mslua.nn.dropout"
nn.Flatten = require "mslua.nn.flatten"
nn.MultiheadAttention = require "mslua.nn.attention"

local function take(module, ...)
  for _, name in ipairs { ... } do nn[name] = assert(module[name], name) end
end

take(require "mslua.containers", "CellList", "SequentialCell")
take(require "mslua.nn.norm", "BatchNorm1d", "BatchNorm2d", "GroupNorm", "LayerNorm", "RMSNorm")
take(require "mslua.nn.pooling", "MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d")
take(require "mslua.nn.activation", "ReLU", "ReLU6", "LeakyReLU", "ELU", "GELU", "SiLU", "Sigmoid", "Tanh",
  "HSigmoid", "HSwish", "Mish", "Softplus", "PReLU", "Softmax", "LogSoftmax", "Identity")
take(require "mslua.nn.loss", "Loss", "MSELoss", "L1Loss", "SmoothL1Loss", "BCELoss", "BCEWithLogitsLoss",
  "SoftmaxCrossEntropyWithLogits", "CrossEntropyLoss")
for name, made in pairs(require("mslua.optimizer").classes) do nn[name] = made end
take(require "mslua.schedules", "cosine_decay_lr", "polynomial_decay_lr", "step_decay_lr", "piecewise_constant_lr",
  "exponential_decay_lr", "natural_exp_decay_lr", "inverse_decay_lr",
  "one_cycle_lr", "warmup_lr")
take(require "mslua.nn.wrap", "WithLossCell", "TrainOneStepCell", "PipelineCell")
nn.ClipByNorm = require "mslua.nn.clip"

return require("mslua.namespace").strict("ms.nn", nn)
