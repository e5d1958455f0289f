-- net:generate: tokens with the cache are those without it; windows, draws, ends, bad input.
local ms = require "mslua"
local check = require "check"
local GPT, Llama = require "gpt", require "llama"

ms.set_seed(3)

-- Larger weights, so that the most likely token is clear.
local function widen(net)
  for _, p in ipairs(net:get_parameters()) do
    if #p.shape == 2 then p.value = ms.randn(p.shape, "float32", p.name) * 0.5 end
  end
  return net
end

local nets = {
  widen(GPT { vocab = 19, block = 12, layers = 2, heads = 2, dim = 16 }),
  widen(Llama { vocab = 19, block = 12, layers = 2, heads = 4, kv_heads = 2, dim = 16, hidden = 24 }),
}
local prompts = { { 1, 2, 3 }, { 4, 5, 6, 7, 8, 9, 10 }, { 11 } }

-- The most likely tokens, each from the whole window again; past the block from its newest half.
local function without_cache(net, prompt, count)
  net:set_train(false)
  local ids, window = { unpack(prompt) }, { unpack(prompt) }
  for _ = 1, count do
    if #window > net.block then window = { unpack(window, #window - net.block / 2 + 1) } end
    local logits = net(ms.Tensor({ window }, ms.int32))[1][#window]:totable()
    local best = 1
    for i = 2, #logits do
      if logits[i] > logits[best] then best = i end
    end
    ids[#ids + 1], window[#window + 1] = best - 1, best - 1
  end
  return ids
end

for _, net in ipairs(nets) do
  check.case(net.class_name .. ": prompts of unequal lengths, past the block", function()
    local found = net:generate(prompts, { count = 30, temperature = 0 })
    for r, prompt in ipairs(prompts) do check.equal(found[r], without_cache(net, prompt, 30)) end
  end)

  check.case(net.class_name .. ": one prompt gives what it gives among others", function()
    local among = net:generate(prompts, { count = 30, temperature = 0 })
    check.equal(net:generate(prompts[2], { count = 30, temperature = 0 }), among[2])
  end)
end

local net = nets[1]

check.case("a penalty of tokens that are there", function()
  -- By hand: the tokens of the row have smaller logits, whether they stand in the prompt or were generated.
  local function penalised(prompt, penalty, count)
    net:set_train(false)
    local ids, seen = { unpack(prompt) }, {}
    for _, id in ipairs(prompt) do seen[id] = true end
    for _ = 1, count do
      local logits = net(ms.Tensor({ ids }, ms.int32))[1][#ids]:totable()
      local best
      for i, v in ipairs(logits) do
        if seen[i - 1] then logits[i] = v > 0 and v / penalty or v * penalty end
        if not best or logits[i] > logits[best] then best = i end
      end
      ids[#ids + 1], seen[best - 1] = best - 1, true
    end
    return ids
  end
  for _, penalty in ipairs { 1.3, 0.7, 1e6 } do
    local found = net:generate(prompts, { count = 5, temperature = 0, repetition_penalty = penalty })
    for r, prompt in ipairs(prompts) do check.equal(found[r], penalised(prompt, penalty, 5)) end
  end
  check.fails_here("above 0, got 0", function() net:generate({ 1 }, { repetition_penalty = 0 }) end)
end)

check.case("draws", function()
  local how = { count = 20, temperature = 1, seed = 5 }
  check.equal(net:generate(prompts, how), net:generate(prompts, how))
  assert(table.concat(net:generate(prompts[1], { count = 20, seed = 6 }), " ")
    ~= table.concat(net:generate(prompts[1], { count = 20, seed = 5 }), " "), "the seed has no effect")
  local greedy = net:generate(prompts[1], { count = 8, temperature = 0 })
  check.equal(net:generate(prompts[1], { count = 8, top_k = 1 }), greedy)
  check.equal(net:generate(prompts[1], { count = 8, top_p = 1e-6 }), greedy)
  check.equal(net:generate(prompts[1], { count = 8, top_k = 3, top_p = 1e-6 }), greedy)
  -- Numbers that float32 does not have.
  check.equal(net:generate(prompts[1], { count = 8, temperature = 1e-39 }), greedy)
  check.equal(net:generate(prompts[1], { count = 8, top_p = 1e-50 }), greedy)
  check.equal(#net:generate(prompts[1], { count = 8, repetition_penalty = 1e-50 }),
    #net:generate(prompts[1], { count = 8, repetition_penalty = 1e-3 }))
end)

-- Draws of the next token have the softmax's frequencies, limited by top_k and top_p.
check.case("frequencies of draws", function()
  local logits = net(ms.Tensor({ { 1, 2, 3 } }, ms.int32))[1][3]:totable()
  local n, rows = 2000, {}
  for r = 1, n do rows[r] = { 1, 2, 3 } end
  local function expect(how, keep)
    local order, sum, p = {}, 0, {}
    for i = 1, #logits do order[i] = i end
    table.sort(order, function(a, b) return logits[a] > logits[b] end)
    for place, i in ipairs(order) do p[i] = math.exp(logits[i] / 4) end
    for _, v in ipairs(p) do sum = sum + v end
    local before, kept = 0, 0
    for place, i in ipairs(order) do
      p[i] = p[i] / sum
      local stays = keep(place, before)
      before = before + p[i]
      p[i] = stays and p[i] or 0
      kept = kept + p[i]
    end
    how.count, how.temperature, how.seed = 1, 4, 9
    local seen = {}
    for _, row in ipairs(net:generate(rows, how)) do seen[row[4]] = (seen[row[4]] or 0) + 1 / n end
    for i, v in ipairs(p) do
      check.near(seen[i - 1] or 0, v / kept, v > 0 and 0.05 or 0)
    end
  end
  expect({}, function() return true end)
  expect({ top_k = 5 }, function(place) return place <= 5 end)
  expect({ top_p = 0.6 }, function(_, before) return before < 0.6 end)
end)

check.case("a seed draws the same whatever the program's seed, and however many rows there are", function()
  local how = { count = 12, temperature = 1, seed = 5 }
  local alone = net:generate(prompts[1], how)
  check.equal(net:generate({ prompts[1], prompts[1], prompts[2] }, how)[1], alone)
  ms.set_seed(17)
  check.equal(net:generate(prompts[1], how), alone)
  ms.set_seed(3)
end)

-- Lua's stack has no place for so many values.
check.case("a seed draws the same however many tokens are asked for", function()
  local net = nets[1]
  local few, many = net:generate(prompts, { count = 2, seed = 4 }), net:generate(prompts, { count = 6, seed = 4 })
  for r, ids in ipairs(few) do check.equal({ unpack(many[r], 1, #ids) }, ids) end
end)

check.case("a long prompt, and many prompts", function()
  local long, ids, rows = GPT { vocab = 5, block = 8400, layers = 1, heads = 1, dim = 2 }, {}, {}
  for i = 1, 8300 do ids[i] = i % 5 end
  check.equal(#long:generate(ids, { count = 2, temperature = 0 }), 8302)
  for r = 1, 8300 do rows[r] = { 1 } end
  check.equal(#net:generate(rows, { count = 1, temperature = 0 }), 8300)
end)

check.case("where texts end", function()
  local all = net:generate(prompts[1], { count = 10, temperature = 0 })
  local found = net:generate(prompts[1], { count = 10, temperature = 0, stop_ids = { all[6] } })
  local first = 4
  while all[first] ~= all[6] do first = first + 1 end
  check.equal(#found, first)
  local seen = {}
  net:generate(prompts[1], { count = 10, on_token = function(row, id)
    seen[#seen + 1] = row .. ":" .. id
    return #seen == 3
  end })
  check.equal(#seen, 3)
end)

check.case("only ids of the vocabulary are drawn", function()
  local ids = nets[1]:generate({ 1, 2 }, { count = 40, temperature = 9, vocab = 4 })
  for _, id in ipairs(ids) do assert(id < 4, id) end
  check.equal(nets[1]:generate({ 1, 2 }, { count = 5, vocab = 19 }), nets[1]:generate({ 1, 2 }, { count = 5 }))
  check.fails_here("generate: prompt 2: expected a list of token ids as the first one, got 3", function()
    nets[1]:generate { { 1, 2 }, 3 }
  end)
end)

check.case("logits that are NaN are an error, in each way of choosing", function()
  local broken = GPT { vocab = 19, block = 12, layers = 1, heads = 2, dim = 16 }
  local table_of = broken.tokens.embedding_table
  local rows = table_of.value:totable()
  rows[8][3] = 0 / 0
  table_of.value = ms.Tensor(rows, ms.float32)
  local problem = "generate: prompt 1: the logits of token 3 are NaN or infinite"
  for _, how in ipairs { { temperature = 0 }, {}, { top_k = 3 }, { top_p = 0.5 }, { repetition_penalty = 1.2 } } do
    check.fails_here(problem, function() broken:generate({ 1, 2 }, how) end)
  end
end)

check.case("caches are in no list of parameters", function()
  local before = #net:get_parameters()
  net:generate(prompts[1], { count = 2 })
  check.equal(#net:get_parameters(), before)
end)

check.case("bad input", function()
  check.fails_here("prompt 1 has 13 tokens, the network takes at most block = 12", function()
    net:generate({ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 })
  end)
  check.fails_here("prompt 2 is empty", function() net:generate { { 1 }, {} } end)
  check.fails_here("prompt 1, token 2: expected an id from 0 to 18, got 19", function() net:generate { 1, 19 } end)
  check.fails_here("top_p: expected a number, above 0 and at most 1, got 0", function()
    net:generate({ 1 }, { top_p = 0 })
  end)
  check.fails_here("Dense has no field block", function() ms.nn.Dense(2, 2):generate { 1 } end)
end)

check.done()
