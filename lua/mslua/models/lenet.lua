--- LeNet-5 (LeCun et al., 1998) with rectifiers and largest-element pooling, as the tutorials have it.
local args = require "mslua.args"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local LeNet5 = nn.Cell:extend "LeNet5"

local bind = args.signature("LeNet5", {
  { "num_classes", "integer", 10, min = 1 }, { "channels", "integer", 1, min = 1 },
})

--- Images of 32x32 (28x28 padded by 2) with `channels` channels. (num_classes = 10, channels = 1)
function LeNet5:init(...)
  local a = bind(...)
  self.conv1 = nn.Conv2d(a.channels, 6, 5, { pad_mode = "valid", has_bias = true })
  self.conv2 = nn.Conv2d(6, 16, 5, { pad_mode = "valid", has_bias = true })
  self.pool = nn.MaxPool2d(2, 2)
  self.flatten = nn.Flatten()
  self.fc1 = nn.Dense(16 * 5 * 5, 120)
  self.fc2 = nn.Dense(120, 84)
  self.fc3 = nn.Dense(84, a.num_classes)
end

--- x [n, channels, 32, 32] gives logits [n, num_classes].
function LeNet5:construct(x)
  x = self.pool(ops.relu(self.conv1(x)))
  x = self.pool(ops.relu(self.conv2(x)))
  x = self.flatten(x)
  x = ops.relu(self.fc1(x))
  x = ops.relu(self.fc2(x))
  return self.fc3(x)
end

return LeNet5
