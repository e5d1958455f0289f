-- nn.MoE: what experts compute, their capacity, the balance loss, gradients, generation.
local core = require "mslua.core"
local ms = require "mslua"
local check = require "check"
local nn, ops = ms.nn, ms.ops
local MoeGPT = require "mslua.models.moe_gpt"

ms.set_seed(5)

local function make(how)
  local moe = nn.MoE(how)
  for _, p in ipairs(moe:get_parameters()) do p.value = ms.randn(p.shape, "float32", "moe_test." .. p.name) end
  return moe
end

local x = ms.randn({ 6, 4 }, "float32", "moe_test.x")

-- The result for a row of x with the experts of the router's choice, by their weights; `left` are the experts' places.
local function by_hand(moe, rows, left)
  local k, results = moe.top_k, {}
  local likely = ops.softmax(ops.matmul(rows, moe.router.weight.value, { transpose_b = true })):totable()
  local chosen = {}
  for i, p in ipairs(likely) do
    local order = {}
    for e = 1, moe.experts do order[e] = e end
    table.sort(order, function(a, b) return p[a] > p[b] end)
    chosen[i] = order
    results[i] = ms.zeros({ 1, moe.dim })
  end
  -- First choices come before second ones.
  for c = 1, k do
    for i, p in ipairs(likely) do
      local e, sum = chosen[i][c], 0
      for j = 1, k do sum = sum + p[chosen[i][j]] end
      left[e] = left[e] - 1
      if left[e] >= 0 then
        local row = ops.reshape(rows[i], { 1, moe.dim })
        local inner = ops.gelu(ops.matmul(row, moe.up.value[e]) + moe.up_bias.value[e])
        results[i] = results[i] + (ops.matmul(inner, moe.down.value[e]) + moe.down_bias.value[e]) * (p[e] / sum)
      end
    end
  end
  local list = {}
  for i, row in ipairs(results) do list[i] = row:totable()[1] end
  return list, chosen
end

local function places(moe, each)
  local left = {}
  for e = 1, moe.experts do left[e] = each end
  return left
end

check.case("each token is computed by the experts of its choice", function()
  for _, k in ipairs { 1, 2, 3 } do
    local moe = make { dim = 4, hidden = 5, experts = 3, top_k = k }
    moe:set_train(false)
    check.near((moe(x)):totable(), (by_hand(moe, x, places(moe, 100))), 1e-4)
  end
end)

check.case("what an expert has no place for adds nothing in training", function()
  local moe = make { dim = 4, hidden = 5, experts = 3, top_k = 2, capacity_factor = 0.5 }
  moe:set_train(true)
  local found = moe(x):totable()
  -- 0.5 * 2 * 6 / 3 places each.
  check.near(found, (by_hand(moe, x, places(moe, 2))), 1e-4)
end)

check.case("the balance loss", function()
  local moe = make { dim = 4, hidden = 5, experts = 4, top_k = 2 }
  moe.router.weight.value = ms.zeros { 4, 4 }
  -- Equal probabilities: of equals the first expert is everybody's first choice.
  local _, balance = moe(x)
  check.near(balance:item(), 1, 1e-5)
  moe = make { dim = 4, hidden = 5, experts = 4, top_k = 1 }
  local _, found = moe(x)
  local likely = ops.softmax(ops.matmul(x, moe.router.weight.value, { transpose_b = true }))
  local _, chosen = by_hand(moe, x, places(moe, 100))
  local mean, sum = ops.reduce_mean(likely, 1):totable(), 0
  for i = 1, 6 do sum = sum + mean[chosen[i][1]] / 6 end
  check.near(found:item(), 4 * sum, 1e-5)
end)

check.case("bad arguments", function()
  check.fails_here("top_k = 5 of experts = 4", function() nn.MoE { dim = 4, hidden = 5, experts = 4, top_k = 5 } end)
end)

check.case("tokens with the cache are those without it", function()
  local net = MoeGPT { vocab = 19, block = 12, layers = 2, heads = 2, dim = 16, hidden = 8, experts = 4 }
  for _, p in ipairs(net:get_parameters()) do
    if #p.shape >= 2 then p.value = ms.randn(p.shape, "float32", "moe_test.gpt." .. p.name) * 0.5 end
  end
  net:set_train(false)
  local prompts = { { 1, 2, 3 }, { 4, 5, 6, 7, 8 } }
  local found = net:generate(prompts, { count = 7, temperature = 0 })
  for r, prompt in ipairs(prompts) do
    local ids = { unpack(prompt) }
    for _ = 1, 7 do ids[#ids + 1] = ops.argmax(net(ms.Tensor({ ids }, ms.int32))[1][#ids], 1):item() end
    check.equal(found[r], ids)
  end
end)

check.done()
