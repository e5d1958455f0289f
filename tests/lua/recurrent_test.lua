-- Recurrent cells: formulas by hand, states that are carried, lengths, dropout, arguments. tests/golden/cells.lua
-- compares them with PyTorch.
local ms = require "mslua"
local core = require "mslua.core"
local check = require "check"
local nn, ops = ms.nn, ms.ops

local function x_of(shape) return ms.randn(shape, "float32", "x") end
local function part(x, from, to)
  return ops.strided_slice(x, { from, 1, 1 }, { to + 1, x.shape[2] + 1, x.shape[3] + 1 })
end

check.case("one unit by hand", function()
  local sigmoid = function(v) return 1 / (1 + math.exp(-v)) end
  local x = ms.Tensor { { { 0.5 } }, { { -1 } } }
  local rnn, gru, lstm = nn.RNN(1, 1), nn.GRU(1, 1), nn.LSTM(1, 1)
  for _, net in ipairs { rnn, gru, lstm } do
    for _, p in ipairs(net:get_parameters()) do core.assign(p, ms.full(p.shape, 0.3)) end
  end
  local h = math.tanh(0.3 * 0.5 + 0.6)
  check.near(rnn(x):totable(), { { { h } }, { { math.tanh(-0.3 + 0.6 + 0.3 * h) } } }, 1e-6)
  local g = sigmoid(0.3 * 0.5 + 0.6)
  h = (1 - g) * math.tanh(0.3 * 0.5 + 0.3 + g * 0.3)
  check.near(gru(x):totable()[1][1][1], h, 1e-6)
  check.near(lstm(x):totable()[1][1][1], g * math.tanh(g * math.tanh(0.3 * 0.5 + 0.6)), 1e-6)
end)

for _, name in ipairs { "LSTM", "GRU", "RNN" } do
  check.case(name .. " carries its state over calls", function()
    local net, x = nn[name](3, 4, { num_layers = 2 }), x_of { 6, 2, 3 }
    local whole, last = net(x)
    local first, state = net(part(x, 1, 2))
    local second, final = net(part(x, 3, 6), state)
    check.near(ops.concat({ first, second }, 1):totable(), whole:totable(), 1e-6)
    if name == "LSTM" then last, final = last[2], final[2] end
    check.near(final:totable(), last:totable(), 1e-6)
  end)

  check.case(name .. " takes as many steps of a row as seq_length says", function()
    local net, x = nn[name](3, 4, { bidirectional = true }), x_of { 5, 2, 3 }
    local y = net(x, nil, ms.Tensor({ 2, 5 }, ms.int32))
    local short = ops.strided_slice(x, { 1, 1, 1 }, { 3, 2, 4 })
    check.near(ops.strided_slice(y, { 1, 1, 1 }, { 3, 2, 9 }):totable(), net(short):totable(), 1e-6)
    check.equal(ops.strided_slice(y, { 3, 1, 1 }, { 6, 2, 9 }):abs():sum():item(), 0)
    check.fails("lengths[1] is 6, expected 0 to 5", function() net(x, nil, ms.Tensor({ 6, 5 }, ms.int32)) end)
  end)

  check.case(name .. " reads nothing behind the last step of a row", function()
    local net = nn[name](2, 1, { num_layers = 2, bidirectional = true, batch_first = true })
    local lengths = ms.Tensor({ 2, 5 }, ms.int64)
    local results = ms.value_and_grad(function(x) return (net(x, nil, lengths) ^ 2):sum() end, 1,
      net:trainable_params())
    local function numbers(x)
      local value, of_x, of_weights = results(x)
      local all = { value:item(), of_x:totable() }
      for _, g in ipairs(of_weights) do all[#all + 1] = g:totable() end
      return all
    end
    local x = x_of { 2, 5, 2 }:totable()
    for step = 3, 5 do x[1][step] = { 0, 0 } end
    local wanted = numbers(ms.Tensor(x))
    for _, other in ipairs { 7, 0 / 0, -math.huge } do
      for step = 3, 5 do x[1][step] = { other, 0 } end
      check.equal(numbers(ms.Tensor(x)), wanted)
    end
  end)

  check.case(name .. "Cell is a step of " .. name, function()
    ms.set_seed(3)
    local net, step, x = nn[name](3, 4), nn[name .. "Cell"](3, 4), x_of { 2, 5, 3 }
    for _, p in ipairs(step:get_parameters()) do core.assign(p, net:parameters_dict()[p.name .. "_l0"].value) end
    local y = net(x)
    local rows = ops.reshape(part(x, 1, 1), { 5, 3 })
    local h, c = step(rows)
    check.near(h:totable(), ops.reshape(part(y, 1, 1), { 5, 4 }):totable(), 1e-6)
    h = step(ops.reshape(part(x, 2, 2), { 5, 3 }), c and { h, c } or h)
    check.near(h:totable(), ops.reshape(part(y, 2, 2), { 5, 4 }):totable(), 1e-6)
  end)

  check.case(name .. " says what is wrong with its arguments", function()
    local net = nn[name](3, 4)
    check.fails(name .. ": x: expected [t, n, 3], got {2, 5, 4}", function() net(x_of { 2, 5, 4 }) end)
    check.fails(name .. ": seq_length: expected [5]", function() net(x_of { 2, 5, 3 }, nil, ms.ones { 4 }) end)
    check.fails("num_layers of 2 or more", function() nn[name](3, 4, { dropout = 0.5 }) end)
  end)
end

check.case("given states are those that the cell has", function()
  local x = x_of { 2, 5, 3 }
  check.fails("LSTM: hx: expected the states {h, c}", function() nn.LSTM(3, 4)(x, ms.ones { 1, 5, 4 }) end)
  check.fails("GRU: hx: expected [1, 5, 4], got {5, 4}", function() nn.GRU(3, 4)(x, ms.ones { 5, 4 }) end)
  check.fails("GRUCell: hx: expected [5, 4]", function() nn.GRUCell(3, 4)(x_of { 5, 3 }, ms.ones { 5, 3 }) end)
end)

check.case("relu as nonlinearity", function()
  local net = nn.RNN(3, 4, { nonlinearity = "relu" })
  check.equal(ops.less(net(x_of { 6, 2, 3 }), 0):astype(ms.float32):sum():item(), 0)
  check.fails("expected one of", function() nn.RNN(3, 4, { nonlinearity = "gelu" }) end)
end)

check.case("dropout acts between layers, in training", function()
  local net, x = nn.LSTM(3, 4, { num_layers = 2, dropout = 0.5 }), x_of { 6, 2, 3 }
  net:set_train(false)
  local first = net(x):totable()
  check.equal(net(x):totable(), first)
  net:set_train(true)
  if math.abs(net(x):sum():item() - ms.Tensor(first):sum():item()) < 1e-6 then error "no dropout" end
  net:set_train(false)
end)

check.done()
