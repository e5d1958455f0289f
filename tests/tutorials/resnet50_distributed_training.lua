-- The tutorials' resnet50_distributed_training.py, line by line.
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local vision, transforms = ms.dataset.vision, ms.dataset.transforms
local resnet50 = require("resnet").resnet50

local function create_dataset(data_path, repeat_num, batch_size)
  repeat_num, batch_size = repeat_num or 1, batch_size or 32
  local resize_height = 224
  local resize_width = 224
  local rescale = 1.0 / 255.0
  local shift = 0.0

  -- get rank_id and rank_size
  local rank_id = ms.communication.get_rank()
  local rank_size = ms.communication.get_group_size()
  local data_set = ms.dataset.Cifar10Dataset(data_path, { num_shards = rank_size, shard_id = rank_id })

  -- define map operations
  local random_crop_op = vision.RandomCrop({ 32, 32 }, { 4, 4, 4, 4 })
  local random_horizontal_op = vision.RandomHorizontalFlip()
  local resize_op = vision.Resize { resize_height, resize_width }
  local rescale_op = vision.Rescale(rescale, shift)
  local normalize_op = vision.Normalize({ 0.4465, 0.4822, 0.4914 }, { 0.2010, 0.1994, 0.2023 })
  local changeswap_op = vision.HWC2CHW()
  local type_cast_op = transforms.TypeCast(ms.int32)

  local c_trans = { random_crop_op, random_horizontal_op, resize_op, rescale_op, normalize_op, changeswap_op }

  -- apply map operations on images
  data_set = data_set:map { operations = type_cast_op, input_columns = "label" }
  data_set = data_set:map { operations = c_trans, input_columns = "image" }

  -- apply shuffle, batch and repeat operations
  data_set = data_set:shuffle(10)
  data_set = data_set:batch(batch_size, { drop_remainder = true })
  return data_set:repeat_(repeat_num)
end

local SoftmaxCrossEntropyExpand = nn.Cell:extend "SoftmaxCrossEntropyExpand"

function SoftmaxCrossEntropyExpand:init(sparse)
  self.exp = ops.Exp()
  self.sum = ops.ReduceSum { keep_dims = true }
  self.onehot = ops.OneHot()
  self.on_value = ms.Tensor(1.0, ms.float32)
  self.off_value = ms.Tensor(0.0, ms.float32)
  self.div = ops.Div()
  self.log = ops.Log()
  self.sum_cross_entropy = ops.ReduceSum { keep_dims = false }
  self.mul = ops.Mul()
  self.mul2 = ops.Mul()
  self.mean = ops.ReduceMean { keep_dims = false }
  self.sparse = sparse
  self.max = ops.ReduceMax { keep_dims = true }
  self.sub = ops.Sub()
end

function SoftmaxCrossEntropyExpand:construct(logit, label)
  local logit_max = self.max(logit, -1)
  local exp = self.exp(self.sub(logit, logit_max))
  local exp_sum = self.sum(exp, -1)
  local softmax_result = self.div(exp, exp_sum)
  if self.sparse then label = self.onehot(label, logit.shape[2], self.on_value, self.off_value) end
  local softmax_result_log = self.log(softmax_result)
  local loss = self.sum_cross_entropy(self.mul(softmax_result_log, label), -1)
  loss = self.mul2(-1.0, loss)
  return self.mean(loss, -1)
end

ms.set_context { mode = ms.GRAPH_MODE, device_target = "CPU" }
ms.set_auto_parallel_context { parallel_mode = ms.ParallelMode[os.getenv "PARALLEL_MODE" or "DATA_PARALLEL"],
  gradients_mean = true }
ms.set_ps_context { enable_ssl = false }
ms.communication.init()

local epoch_size = 10
local loss_cb = ms.LossMonitor()
local dataset = create_dataset(os.getenv "DATA_PATH")
local batch_size = 32
local num_classes = 10
local net = resnet50(batch_size, num_classes)
local loss = SoftmaxCrossEntropyExpand(true)
local trainable = {}
for _, p in ipairs(net:get_parameters()) do
  if p.requires_grad then trainable[#trainable + 1] = p end
end
local opt = nn.Momentum(trainable, 0.01, 0.9)
local ckpt_callback = ms.ModelCheckpoint { prefix = "resnet", directory = "ckpt", config = ms.CheckpointConfig() }
local model = ms.Model(net, { loss_fn = loss, optimizer = opt })
model:train(epoch_size, dataset, { callbacks = { loss_cb, ckpt_callback }, dataset_sink_mode = true })
