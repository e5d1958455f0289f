-- Tests of the recipe's parts: mslua run recipe_test.lua
local ms = require "mslua"
local recipe = require "recipe"

local function test(name, f)
  f()
  print("passed: " .. name)
end

local function first_batch() return recipe.dataset():create_tuple_iterator()() end

test("a batch has points and labels", function()
  local x, label = first_batch()
  assert(x.dtype == ms.float32 and #x.shape == 2 and x.shape[2] == 2, "x is not float32 [batch, 2]")
  assert(label.dtype == ms.int32 and label.shape[1] == x.shape[1], "label is not int32 [batch]")
end)

test("the network gives a score for each class", function()
  local x = first_batch()
  local y = recipe.network()(x)
  assert(y.shape[1] == x.shape[1] and y.shape[2] == 2, "the network's output is not [batch, 2]")
end)

test("every parameter has a gradient", function()
  local net = recipe.network()
  local x, label = first_batch()
  local step = ms.value_and_grad(function(a, b) return recipe.loss(net(a), b) end, nil, net:trainable_params())
  local _, gradients = step(x, label)
  for i, gradient in ipairs(gradients) do
    assert(ms.ops.abs(gradient):sum():item() > 0, net:trainable_params()[i].name .. " gets no gradient")
  end
end)
