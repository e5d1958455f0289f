--- LeNet-5 as a judge of drawn digits: how sure it is of each, and how evenly the ten digits are drawn.
local args = require "mslua.args"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local LeNet5 = require "mslua.models.lenet"

local CLASSES = 10
local SURE = 0.9
-- Of the pixels that recipes/lenet_mnist.lua trains on.
local MEAN, DEVIATION = 0.1307, 0.3081

local Judge = nn.Cell:extend "DigitJudge"

local bind = args.signature("DigitJudge", { { "checkpoint", "string", "" } })

--- checkpoint: one of recipes/lenet_mnist.lua, whose weights stay as they are; empty: the judge is to be trained.
function Judge:init(...)
  local a = bind(...)
  self.lenet = LeNet5(CLASSES)
  self.trained = a.checkpoint ~= ""
  if not self.trained then return end
  ms.load_param_into_net(self.lenet, ms.load_checkpoint(a.checkpoint))
  for _, p in ipairs(self.lenet:get_parameters()) do p.requires_grad = false end
end

--- Pictures [n, 1, 32, 32] between -1 and 1 give logits [n, 10].
function Judge:construct(pictures) return self.lenet(((pictures + 1) / 2 - MEAN) / DEVIATION) end

--- The step of a recipe that trains the judge on real digits; nothing where it is trained.
---@param rate number of Momentum
function Judge:step(rate)
  if self.trained then return nil end
  local cross_entropy = nn.CrossEntropyLoss()
  return {
    name = "judge", loss = function(_, pictures, labels) return cross_entropy(self(pictures), labels) end,
    optimizer = nn.Momentum { learning_rate = rate, momentum = 0.9 },
    params = self.lenet:get_parameters(),
  }
end

--- What a recipe's eval takes: `confident`, the share of pictures of whose digit the judge is sure with more than 0.9;
--- `entropy`, that of the ten digits among the pictures, in nats: ln 10 = 2.303 where all come as often.
function Judge:metrics()
  return {
    confident = function(pictures)
      return ops.cast(ops.greater(ops.reduce_max(ops.softmax(self(pictures), -1), { -1 }), SURE), "float32")
    end,
    entropy = {
      rows = function(pictures) return ops.one_hot(ops.argmax(self(pictures), -1), CLASSES) end,
      finish = function(sums, samples)
        local entropy = 0
        for _, count in ipairs(sums.value) do
          if count > 0 then entropy = entropy - count / samples * math.log(count / samples) end
        end
        return entropy
      end,
    },
  }
end

return Judge
