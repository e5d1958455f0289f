--- ms.nn: cells, losses, optimizers and learning rates.
local core = require "mslua.core"

local nn = {}

nn.Cell = require "mslua.cell"
nn.Dense = require "mslua.nn.dense"
nn.LoRA = require "mslua.nn.lora"
nn.Conv2d = require "mslua.nn.conv2d"
nn.Conv2dTranspose = require "mslua.nn.conv2d_transpose"
nn.Upsample = require "mslua.nn.upsample"
nn.Embedding = require "mslua.nn.embedding"
nn.Dropout = require "mslua.nn.dropout"
nn.DropPath = require "mslua.nn.drop_path"
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
take(require "mslua.nn.recurrent", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")
take(require "mslua.nn.transformer", "TransformerEncoderLayer", "TransformerDecoderLayer", "TransformerEncoder",
  "TransformerDecoder")
nn.Loss = require("mslua.nn.loss").Loss
for _, name in ipairs(core.library_modules "mslua.nn.loss.") do
  local loss = require(name)
  nn[loss.class_name] = loss
end
for name, made in pairs(require("mslua.optimizer").classes) do nn[name] = made end
for name, make in pairs(require("mslua.schedules").functions) do nn[name] = make end
take(require "mslua.nn.wrap", "WithLossCell", "TrainOneStepCell", "PipelineCell")
nn.ClipByNorm = require "mslua.nn.clip"

return require("mslua.namespace").strict("ms.nn", nn)
