--- AlexNet in the form of "One weird trick for parallelizing convolutional neural networks" (Krizhevsky, 2014).
--- Parameters have the names of torchvision's, but for gamma and beta.
local args = require "mslua.args"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local AlexNet = nn.Cell:extend "AlexNet"

local bind = args.signature("AlexNet", {
  { "classes", "integer", 1000, min = 1 }, { "width", "integer", 64, min = 1 }, { "hidden", "integer", 4096, min = 1 },
  { "dropout", "number", 0.5, min = 0, below = 1 },
})

-- Channels in parts of `width`, kernel, stride, padding, and whether a pool follows.
local stages = { { 1, 11, 4, 2, true }, { 3, 5, 1, 2, true }, { 6, 3, 1, 1 }, { 4, 3, 1, 1 }, { 4, 3, 1, 1, true } }

--- `AlexNet { classes = 1000 }`; width: channels of the first layer; hidden: width of the two dense layers.
function AlexNet:init(...)
  local c = bind(...)
  self.features = nn.SequentialCell {}
  local n_in = 3
  for _, stage in ipairs(stages) do
    local times, kernel, stride, padding, pools = unpack(stage)
    self.features:append(nn.Conv2d(n_in, times * c.width, kernel, {
      stride = stride, pad_mode = "pad", padding = padding, has_bias = true,
    }))
    self.features:append(nn.ReLU())
    if pools then self.features:append(nn.MaxPool2d(3, { stride = 2 })) end
    n_in = times * c.width
  end
  self.pool = nn.AdaptiveAvgPool2d(6)
  self.flat = n_in * 36
  self.classifier = nn.SequentialCell {
    nn.Dropout { p = c.dropout }, nn.Dense(self.flat, c.hidden), nn.ReLU(),
    nn.Dropout { p = c.dropout }, nn.Dense(c.hidden, c.hidden), nn.ReLU(),
    nn.Dense(c.hidden, c.classes),
  }
end

--- Pictures [n, 3, h, w] of 63 pixels or more give logits [n, classes].
function AlexNet:construct(x)
  x = self.pool(self.features(x))
  return self.classifier(ops.reshape(x, { x.shape[1], self.flat }))
end

return AlexNet
