-- net:translate: beams, with the cache as without it; padding changes nothing; bad input.
local ms = require "mslua"
local check = require "check"
local Transformer = require "mslua.models.transformer"

ms.set_seed(3)

local VOCAB, BEGIN, STOP = 13, 1, 2

-- Larger weights, so that results are clear; the table of words is apart from the output's, which must not repeat the
-- last token.
local net = Transformer { vocab = VOCAB, block = 12, layers = 2, heads = 2, dim = 16, hidden = 24, dropout = 0 }
for _, p in ipairs(net:get_parameters()) do
  if #p.shape == 2 then p.value = ms.randn(p.shape, "float32", p.name) * (p.name:find "tokens" and 0.3 or 0.7) end
end
net:set_train(false)
local sources = { { 3, 4, 5 }, { 6, 7, 8, 9, 10, 11, 12 }, { 5 }, { 9, 3, 9, 3 } }

-- Log probabilities of the token that follows, computed from the beginning, with the source as it is.
local function following(source, target)
  local logits = net(ms.Tensor({ source }, ms.int32), ms.Tensor({ target }, ms.int32))
  local last = ms.ops.log_softmax(logits)[1][#target]
  return last:totable()
end

local function without_cache(source, most)
  local ids, score = { BEGIN }, 0
  for _ = 1, most do
    local likely, best = following(source, ids), 1
    for i = 2, #likely do
      if likely[i] > likely[best] then best = i end
    end
    score = score + likely[best]
    if best - 1 == STOP then break end
    ids[#ids + 1] = best - 1
  end
  return { unpack(ids, 2) }, score
end

check.case("one beam is the most likely token each time", function()
  local found = net:translate { sources = sources, begin = BEGIN, stop = STOP, beams = 1, max_tokens = 9 }
  for i, source in ipairs(sources) do check.equal(found[i], (without_cache(source, 9))) end
end)

-- Beam search with lists, each target computed from the beginning: of the 2 k best continuations those that end and are
-- among the first k are kept, the first k others are followed, until k have ended.
local function beam_search(source, k, most, penalty)
  local beams, ended = { { ids = { BEGIN }, score = 0 } }, {}
  for step = 1, most do
    local all, longer = {}, {}
    for _, beam in ipairs(beams) do
      for i, likely in ipairs(following(source, beam.ids)) do
        all[#all + 1] = { before = beam, id = i - 1, score = beam.score + likely }
      end
    end
    table.sort(all, function(a, b) return a.score > b.score end)
    for rank = 1, math.min(2 * k, #all) do
      local c = all[rank]
      local ids = { unpack(c.before.ids) }
      ids[#ids + 1] = c.id
      if c.id ~= STOP then
        if #longer < k then longer[#longer + 1] = { ids = ids, score = c.score } end
      elseif rank <= k then
        ended[#ended + 1] = { ids = { unpack(ids, 2, #ids - 1) }, score = c.score / step ^ penalty }
      end
    end
    beams = longer
    if #ended >= k then break end
  end
  table.sort(ended, function(a, b) return a.score > b.score end)
  return ended[1] and ended[1].ids or { unpack(beams[1].ids, 2) }
end

check.case("beams with the cache are those without it", function()
  for _, how in ipairs { { 2, 1 }, { 3, 0.5 }, { 7, 1.5 } } do
    local found = net:translate { sources = sources, begin = BEGIN, stop = STOP, beams = how[1],
      length_penalty = how[2], max_tokens = 6 }
    for i, source in ipairs(sources) do check.equal(found[i], beam_search(source, how[1], 6, how[2])) end
  end
end)

check.case("a sentence among others, and a second time, is translated as alone", function()
  local how = { sources = sources, begin = BEGIN, stop = STOP, beams = 3, max_tokens = 9 }
  local together = net:translate(how)
  check.equal(net:translate(how), together)
  how.batch_size = 2
  check.equal(net:translate(how), together)
  for i, source in ipairs(sources) do
    how.sources = { source }
    check.equal(net:translate(how)[1], together[i])
  end
end)

check.case("a sentence that has its targets collects no more while others are open", function()
  local many = {}
  for i = 1, 40 do many[i] = { 3 + i % 5, 3 + i % 7, 3 + math.floor(i / 3) % 6 } end
  for _, penalty in ipairs { 0, 1, 2 } do
    local how = { sources = many, begin = BEGIN, stop = STOP, beams = 2, max_tokens = 12, length_penalty = penalty }
    local together = net:translate(how)
    how.batch_size = 1
    check.equal(net:translate(how), together)
  end
end)

check.case("padding of a source changes nothing", function()
  local plain = net(ms.Tensor({ { 3, 4, 5 } }, ms.int32), ms.Tensor({ { 1, 7 } }, ms.int32))
  local padded = net(ms.Tensor({ { 3, 4, 5, 0, 0 } }, ms.int32), ms.Tensor({ { 1, 7 } }, ms.int32))
  check.near(padded:totable(), plain:totable(), 1e-5)
end)

check.case("bad input", function()
  local function translate(how)
    return function()
      net:translate { sources = how.sources or sources, begin = how.begin or BEGIN, stop = how.stop or STOP }
    end
  end
  check.fails_here("sources[2]: expected a list of token ids, got {}", translate { sources = { { 3 }, {} } })
  check.fails_here("sources[1], token 2: expected an id from 0 to 12, got 13", translate { sources = { { 3, 13 } } })
  check.fails_here("has 13 tokens, the network takes at most block = 12",
    translate { sources = { { 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3 } } })
  check.fails_here("stop: expected an id from 0 to 12, got 99", translate { stop = 99 })
  check.fails_here("it does not translate", function()
    ms.nn.Dense(2, 2):translate { sources = sources, begin = 1, stop = 2 }
  end)
  check.fails("the target has 13 tokens, the network takes at most block = 12", function()
    net(ms.Tensor({ { 3 } }, ms.int32), ms.zeros({ 1, 13 }, ms.int32))
  end)
end)

check.case("logits that are NaN are an error", function()
  local broken = Transformer { vocab = VOCAB, block = 12, layers = 1, heads = 2, dim = 16, hidden = 24, dropout = 0 }
  for _, p in ipairs(broken:get_parameters()) do p.value = p.value * (0 / 0) end
  for beams = 1, 2 do
    check.fails_here("translate: sources[2]: the logits of token 1 of the target are NaN or infinite", function()
      broken:translate { sources = { { 3, 4, 5 }, { 6 } }, begin = BEGIN, stop = STOP, beams = beams }
    end)
  end
end)

check.done()
