--- net:translate: the most likely target of each source, by a network of an encoder and a decoder. Two graphs are
--- compiled for each length of sources, of the first token and of one more; keys and values stay in memory, as
--- generation keeps them. A step computes the best continuations of all beams, and Lua keeps their tokens and scores.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local evaluating = require "mslua.evaluating"
local kv_cache = require "mslua.kv_cache"
local ops = require "mslua.ops"
local wrap = require "mslua.nn.wrap"
local Cell = require "mslua.cell"

local NEVER = -1e30  -- the score of a beam that is not there

-- The 2 k best continuations of each sentence's k beams: values, tokens and beams, from 0, each [n, 2 k]; and whether
-- the sentence's logits are numbers, bool [n].
local function best(logits, scores, n, k)
  local v = logits.shape[3]
  local likely = ops.log_softmax(ops.reshape(ops.cast(logits, "float32"), { n * k, v }), -1)
  local sums = ops.reshape(likely + ops.reshape(scores, { n * k, 1 }), { n, k * v })
  local values, places = ops.top_k(sums, math.min(2 * k, k * v))
  local place = ops.cast(places, "float64")
  local beams = ops.floor((place + 0.5) / v)
  -- A network may exclude tokens by logits of -inf.
  local defined = ops.less(ops.reduce_sum(sums, 2), math.huge)
  return values, ops.cast(place - beams * v, "int32"), ops.cast(beams, "int32"), defined
end

---------------------------------------------------------------------------------------------------------------- graphs

local Translator = {}
Translator.__index = Translator

-- Of n sentences of s tokens with k beams each.
local function translator(net, n, s, k)
  return setmetatable({
    net = net, n = n, s = s, k = k, graphs = {}, cache = { block = net.block, entries = {}, beams = k },
  }, Translator)
end

function Translator:graph(first)
  if self.graphs[first] then return self.graphs[first] end
  local cache, n, k, s = self.cache, self.n, self.k, self.s
  local function forward(source, ids, start, scores, parents)
    cache.start, cache.prefill, cache.parents = start, first, not first and parents or nil
    cache.count = ops.cast(ops.greater_equal(start, 0), "int32")  -- one token of each row
    local logits = kv_cache.with(cache, self.net, source, ids)
    if #logits.shape ~= 3 or logits.shape[1] ~= n * k or logits.shape[2] ~= 1 then
      errors.fail("translate: %s gives %s, expected logits [n, 1, v] of the last token: it does not use mslua.kv_cache",
        self.net.class_name, errors.show(logits.shape))
    end
    return best(logits, scores, n, k)
  end
  local graph = evaluating(core.trace, forward, {
    { name = "source", dtype = "int32", shape = { n, s } }, { name = "ids", dtype = "int32", shape = { n * k, 1 } },
    { name = "start", dtype = "int32", shape = { n * k } }, { name = "scores", dtype = "float32", shape = { n, k } },
    { name = "parents", dtype = "int32", shape = { n * k } },
  })
  self.graphs[first] = graph
  return graph
end

local function int32(list) return core.tensor(list, "int32") end

--- The targets of n sources, lists of ids that are padded to s. `numbers`: those of the sources, for messages.
function Translator:run(sources, numbers, a)
  local n, k, most = self.n, self.k, math.min(a.max_tokens, self.net.block)
  local source, ids, start, parents, scores, beams, ended = {}, {}, {}, {}, {}, {}, {}
  for i = 1, n do
    source[i], scores[i], beams[i], ended[i] = {}, {}, {}, {}
    local row = sources[i] or sources[1]  -- the last group may have fewer
    for j = 1, self.s do source[i][j] = row[j] or self.net.config.pad end
    for b = 1, k do
      local r = (i - 1) * k + b
      ids[r], start[r], parents[r], scores[i][b], beams[i][b] = { a.begin }, 0, r - 1, b == 1 and 0 or NEVER, {}
    end
  end
  source = int32(source)
  for step = 1, most do
    local values, tokens, from, defined = self:graph(step == 1):run(source, int32(ids), int32(start),
      core.tensor(scores, "float32"), int32(parents))
    values, tokens, from, defined = values:totable(), tokens:totable(), from:totable(), defined:totable()
    local open = 0
    for i = 1, n do
      if not defined[i] and sources[i] and #ended[i] < k then
        core.fail_diverged("translate: sources[%d]: the logits of token %d of the target are NaN or infinite, so that "
          .. "it has no probability: give weights that are finite", numbers[i], step)
      end
      local longer, kept = {}, 0
      local collects = #ended[i] < k  -- other sentences of the batch may be open longer
      for c = 1, #values[i] do
        local before, token, value = beams[i][from[i][c] + 1], tokens[i][c], values[i][c]
        if token == a.stop then
          if collects and c <= k and value > NEVER / 2 then
            table.insert(ended[i], { ids = before, score = value / step ^ a.length_penalty })
          end
        elseif kept < k then
          kept = kept + 1
          local r = (i - 1) * k + kept
          longer[kept] = table.move(before, 1, #before, 1, {})
          table.insert(longer[kept], token)
          ids[r], parents[r], scores[i][kept], start[r] = { token }, (i - 1) * k + from[i][c], value, step
        end
      end
      for b = kept + 1, k do  -- a vocabulary of fewer words than beams
        local r = (i - 1) * k + b
        longer[b], ids[r], parents[r], scores[i][b], start[r] = {}, { a.stop }, (i - 1) * k, NEVER, step
      end
      beams[i] = longer
      if #ended[i] < k and sources[i] then open = open + 1 end
    end
    if open == 0 then break end
  end
  local results = {}
  for i = 1, #sources do
    -- A sentence without an end is the best of those that were cut off.
    local found = ended[i][1] or { ids = beams[i][1], score = NEVER }
    for _, hypothesis in ipairs(ended[i]) do
      if hypothesis.score > found.score then found = hypothesis end
    end
    results[i] = found.ids
  end
  return results
end

------------------------------------------------------------------------------------------------------------- translate

local bind = args.signature("translate", {
  { "sources", "list", required = true, doc = "lists of token ids" },
  { "begin", "integer", required = true, min = 0, doc = "the id that a target begins behind" },
  { "stop", "integer", required = true, min = 0, doc = "the id that a target ends before" },
  { "beams", "integer", 4, min = 1, doc = "targets of a sentence that are followed at once" },
  { "length_penalty", "number", 1, min = 0, doc = "the best target's log probability is over length ^ length_penalty" },
  { "max_tokens", "integer", 256, min = 1, doc = "the most tokens of a target; at most the network's block" },
  { "batch_size", "integer", 32, min = 1, doc = "sentences that are computed together" },
})

local function check_sources(net, sources, vocab)
  for i, row in ipairs(sources) do
    if type(row) ~= "table" or #row == 0 then
      errors.fail("translate: sources[%d]: expected a list of token ids, got %s", i, errors.show(row))
    elseif #row > net.block then
      errors.fail("translate: sources[%d] has %d tokens, the network takes at most block = %d", i, #row, net.block)
    end
    for j, id in ipairs(row) do
      if type(id) ~= "number" or id ~= math.floor(id) or id < 0 or id >= vocab then
        errors.fail("translate: sources[%d], token %d: expected an id from 0 to %d, got %s", i, j, vocab - 1,
          errors.show(id))
      end
    end
  end
end

local STEP = 8  -- sources are padded to a multiple of so many tokens

--- The most likely target of each source, a list of lists of token ids, by a network of sources and targets such as
--- mslua.models.transformer: `net:translate { sources = { ids, ... }, begin = 1, stop = 2 }`. A target begins behind
--- the token `begin` and ends before `stop`. beams: so many targets of a sentence are followed at once (1: the most
--- likely token each time); the best has the highest log probability over length ^ length_penalty. max_tokens: of a
--- target, at most the network's block. batch_size: sentences that are computed together. (sources, begin, stop,
--- beams = 4, length_penalty = 1, max_tokens = 256, batch_size = 32)
---@return integer[][]
function Cell:translate(...)
  local a, net = bind(...), wrap.unwrap(self)
  local vocab = net.config and net.config.vocab
  if not net.block or not vocab or not net.config.pad then
    errors.fail("translate: %s has no fields block, config.vocab and config.pad: it does not translate",
      net.class_name)
  end
  check_sources(net, a.sources, vocab)
  for _, name in ipairs { "begin", "stop" } do
    if a[name] >= vocab then
      errors.fail("translate: %s: expected an id from 0 to %d, got %d", name, vocab - 1, a[name])
    end
  end
  -- Compiled graphs and their memory are used again.
  local made = rawget(net, "_translators") or {}
  rawset(net, "_translators", made)
  local order, results = {}, {}
  for i in ipairs(a.sources) do order[i] = i end
  table.sort(order, function(x, y)
    local p, q = #a.sources[x], #a.sources[y]
    if p == q then return x < y end
    return p < q
  end)
  local n = math.min(a.batch_size, #order)
  for first = 1, #order, n do
    local group, numbers = {}, {}
    for i = first, math.min(first + n - 1, #order) do
      group[#group + 1], numbers[#numbers + 1] = a.sources[order[i]], order[i]
    end
    local s = math.min(math.ceil(#group[#group] / STEP) * STEP, net.block)
    local key = ("%d %d %d"):format(n, s, a.beams)
    made[key] = made[key] or translator(net, n, s, a.beams)
    for i, target in ipairs(made[key]:run(group, numbers, a)) do results[numbers[i]] = target end
  end
  return results
end
