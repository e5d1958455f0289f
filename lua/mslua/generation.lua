--- net:generate: continues sequences of token ids. Two graphs are compiled, for the prompts and for one more token;
--- both choose the next token. Keys and values of earlier tokens stay in memory, which the graphs change in place and
--- no checkpoint has.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local evaluating = require "mslua.evaluating"
local kv_cache = require "mslua.kv_cache"
local ops = require "mslua.ops"
local wrap = require "mslua.nn.wrap"
local Cell = require "mslua.cell"

-------------------------------------------------------------------------------------------------------------- sampling

-- Scores [n, v] of which those of the tokens `seen`, int32 [n, c], are made smaller: divided by `penalty` above 0,
-- multiplied by it below (Keskar et al., 2019).
local function penalised(scores, seen, penalty)
  local n, v = unpack(scores.shape)
  local rows = ops.reshape(ops.iota { size = n }, { n, 1 }) * v
  local ids = ops.reshape(seen + rows, { -1 })
  local counts = ops.scatter_sum(ids, ops.cast(ops.greater_equal(ids, 0), "float32"), { size = n * v })
  local smaller = ops.select(ops.greater(scores, 0), scores / penalty, scores * penalty)
  return ops.select(ops.greater(ops.reshape(counts, { n, v }), 0), smaller, scores)
end

-- A smaller temperature, top_p or repetition_penalty has no place in float32 beside the numbers it is combined with.
local LEAST = 1e-30

-- The token that u, float32 [n, 1] in [0, 1), draws from scores, float32 [n, v], of which rows have the tokens `seen`
-- (nil: they do not matter): int32 [n].
local function draw(scores, u, how, seen)
  local n, v = unpack(scores.shape)
  if seen then scores = penalised(scores, seen, math.max(how.repetition_penalty, LEAST)) end
  if how.temperature < LEAST then return ops.argmax(scores, 2) end
  scores = scores / how.temperature
  local ids
  if how.top_k > 0 and how.top_k < v then
    scores, ids = ops.top_k(scores, how.top_k)
  elseif how.top_p < 1 then
    scores, ids = ops.sort(scores, { descending = true })
  end
  local p = ops.softmax(scores)
  local width = p.shape[2]
  local kept
  if how.top_p < 1 then
    kept = ops.less(ops.cumsum(p, { exclusive = true }), math.max(how.top_p, LEAST)):astype "float32"
    p = p * kept
  end
  local sums = ops.cumsum(p)
  local total = ops.reduce_max(sums, 2, true)
  local at = ops.reduce_sum(ops.less_equal(sums, u * total):astype "float32", 2, true)
  -- Rounding may make u * total the total itself.
  at = ops.minimum(at, kept and ops.reduce_sum(kept, 2, true) - 1 or width - 1):astype "int32"
  if ids then at = ops.gather_d(ids, at, 2) end
  return ops.reshape(at, { n })
end

local UNDEFINED = -1  -- in place of a token: the logits have none

-- The token that u draws from logits [n, 1, v], as `draw`; UNDEFINED where logits are NaN or infinite.
local function choose(logits, u, how, seen)
  local n, v = logits.shape[1], logits.shape[3]
  local scores = ops.reshape(logits, { n, v }):astype "float32"
  -- A network may exclude tokens by logits of -inf.
  local defined = ops.less(ops.reduce_sum(scores, 2), math.huge)
  return ops.select(defined, draw(scores, u, how, seen), UNDEFINED)
end

---------------------------------------------------------------------------------------------------------------- graphs

local Generator = {}
Generator.__index = Generator

-- Graphs of a network for n rows, which have at most `most` tokens: the caches have no place for more.
local function generator(net, n, most, how)
  return setmetatable({
    net = net, n = n, how = how, graphs = {}, cache = { block = math.min(most, net.block), entries = {} },
  }, Generator)
end

-- The graph of t new tokens of each row.
function Generator:graph(t, prefill)
  local key = prefill and t or 0
  if self.graphs[key] then return self.graphs[key] end
  local cache, n = self.cache, self.n
  local function forward(ids, start, count, u, seen)
    cache.start, cache.count, cache.prefill = start, count, prefill
    local logits = kv_cache.with(cache, self.net, ids)
    if #logits.shape ~= 3 or logits.shape[1] ~= n or logits.shape[2] ~= 1 then
      errors.fail("generate: %s gives %s, expected logits [n, 1, v] of the last token: it does not use mslua.kv_cache",
        self.net.class_name, errors.show(logits.shape))
    end
    local vocab, size = self.how.vocab, logits.shape[3]
    if vocab and vocab < size then
      logits = ops.select(ops.less(ops.iota { size = size }, vocab), logits, -math.huge)
    end
    return choose(logits, u, self.how, seen)
  end
  local inputs = {
    { name = "ids", dtype = "int32", shape = { n, t } }, { name = "start", dtype = "int32", shape = { n } },
    { name = "count", dtype = "int32", shape = { n } }, { name = "u", dtype = "float32", shape = { n, 1 } },
  }
  if self.seen then inputs[5] = { name = "seen", dtype = "int32", shape = { n, self.seen.size } } end
  local graph = evaluating(core.trace, forward, inputs)
  self.graphs[key] = graph
  return graph
end

local function int32(list) return core.tensor(list, "int32") end

-- Remembers the tokens of each row, where they are penalised. `size`: the most that a row will have.
function Generator:remember(rows, size)
  self.seen = { size = size, known = {}, lists = {}, counts = {} }
  for r, row in ipairs(rows) do
    self.seen.known[r], self.seen.lists[r], self.seen.counts[r] = {}, {}, 0
    for _, id in ipairs(row) do self:see(r, id) end
    -- Places that are free repeat a token.
    for i = self.seen.counts[r] + 1, size do self.seen.lists[r][i] = row[1] end
  end
end

function Generator:see(r, id)
  local seen = self.seen
  if not seen or seen.known[r][id] then return end
  seen.known[r][id], seen.counts[r] = true, seen.counts[r] + 1
  seen.lists[r][seen.counts[r]] = id
end

-- Runs a graph on these inputs and the tokens that are remembered.
function Generator:run(graph, ids, start, count, u)
  if not self.seen then return graph:run(ids, start, count, u):totable() end
  return graph:run(ids, start, count, u, int32(self.seen.lists)):totable()
end

-- Computes the newest counts[r] tokens of each row r from the beginning: the next token of each.
function Generator:prefill(rows, counts, u)
  local longest, t = 1, 1
  for _, count in ipairs(counts) do longest = math.max(longest, count) end
  while t < longest do t = t * 2 end
  t = math.min(t, self.cache.block)
  local ids, start = {}, {}
  for r, row in ipairs(rows) do
    start[r], ids[r] = 0, {}
    for i = 1, t do ids[r][i] = i <= counts[r] and row[#row - counts[r] + i] or 0 end
  end
  self.behind = counts
  return self:run(self:graph(t, true), int32(ids), int32(start), int32(counts), u)
end

-- One more token of each row.
function Generator:step(rows, u)
  local ids, one = {}, {}
  for r, row in ipairs(rows) do ids[r], one[r] = { row[#row] }, 1 end
  local next_ids = self:run(self:graph(1, false), int32(ids), int32(self.behind), int32(one), u)
  for r in ipairs(rows) do self.behind[r] = self.behind[r] + 1 end
  return next_ids
end

-- How many of the newest tokens of each row its next window has, when a row has filled its own; nil: none has.
function Generator:window()
  local counts, full = {}, false
  for r, behind in ipairs(self.behind) do
    local ends = behind >= self.cache.block
    full = full or ends
    counts[r] = ends and math.max(1, math.floor(self.cache.block / 2)) or behind + 1
  end
  return full and counts or nil
end

-------------------------------------------------------------------------------------------------------------- generate

local fields = {
  { "count", "integer", 128, min = 1, doc = "the most tokens that are added" },
  { "temperature", "number", 1, min = 0, doc = "logits are divided by it; 0: the most likely token each time" },
  { "top_k", "integer", 0, min = 0, doc = "tokens are drawn from so many of the most likely ones; 0: from all" },
  { "top_p", "number", 1, above = 0, max = 1,
    doc = "tokens are drawn from the fewest that have this probability together" },
  { "repetition_penalty", "number", 1, above = 0, doc = "above 1: tokens that the row has already are less likely" },
  { "seed", "integer", 1, min = 0, doc = "the same seed draws the same tokens" },
  { "stop_ids", "integers", {}, doc = "a row ends at one of these ids" },
  { "vocab", "integer", min = 1,
    doc = "only ids below it are drawn, of a tokenizer that has fewer tokens than the network; default: all" },
  { "on_token", "function", doc = "on_token(row, id) is called for each token; a row ends where it gives true" },
}
local bind = args.signature("generate", fields)

local function check_prompts(net, rows, vocab)
  for r, row in ipairs(rows) do
    if type(row) ~= "table" then
      errors.fail("generate: prompt %d: expected a list of token ids as the first one, got %s", r, errors.show(row))
    end
    if #row == 0 then errors.fail("generate: prompt %d is empty, expected one token or more", r) end
    if #row > net.block then
      errors.fail("generate: prompt %d has %d tokens, the network takes at most block = %d", r, #row, net.block)
    end
    for i, id in ipairs(row) do
      if type(id) ~= "number" or id ~= math.floor(id) or id < 0 or (vocab and id >= vocab) then
        errors.fail("generate: prompt %d, token %d: expected an id from 0 to %s, got %s", r, i,
          vocab and vocab - 1 or "the vocabulary's last", errors.show(id))
      end
    end
  end
end

local M = { fields = fields }

-- The draws of rows `own`: float32 [count, #own, 1], uniform. They follow from `seed` alone, whatever seed the program
-- has; those of a row are the same for any number of rows, and begin with the same numbers for any count.
local function draws_of(count, own, seed)
  local numbers = {}
  for k, row in ipairs(own) do
    local stream = row == 1 and "generate" or "generate/" .. row
    for i, draw in ipairs(core.rand({ count }, "float32", stream, seed):totable()) do
      numbers[(i - 1) * #own + k] = draw
    end
  end
  return ops.reshape(core.tensor(numbers, "float32"), { count, #own, 1 })
end

--- Continues rows `own` (default: all) of `rows`, lists of token ids, each as with all of them: gives their lists by
--- the rows' numbers. `how`: the arguments of net:generate.
---@param net table a Cell, or a wrapper of one
---@param rows integer[][]
---@param how table
---@param own? integer[]
---@return table<integer, integer[]>
function M.continue(net, rows, how, own)
  local a = bind(how)
  net = wrap.unwrap(net)
  if not own then
    own = {}
    for r in ipairs(rows) do own[r] = r end
  end
  if not net.block then
    errors.fail("generate: %s has no field block, the most tokens of a sequence: it does not generate", net.class_name)
  end
  check_prompts(net, rows, net.config and net.config.vocab)
  if #own == 0 then return {} end
  local stops, longest = {}, 0
  for _, id in ipairs(a.stop_ids) do stops[id] = true end
  for _, row in ipairs(rows) do longest = math.max(longest, #row) end
  local texts, lengths, out, ended, left = {}, {}, {}, {}, #own
  for k, r in ipairs(own) do
    -- unpack gives fewer values than a long prompt has.
    texts[k], out[r] = table.move(rows[r], 1, #rows[r], 1, {}), table.move(rows[r], 1, #rows[r], 1, {})
    lengths[k] = #rows[r]
  end
  local run = generator(net, #own, longest + a.count, a)
  if a.repetition_penalty ~= 1 then run:remember(texts, longest + a.count) end
  local draws = draws_of(a.count, own, a.seed)
  for i = 1, a.count do
    local found
    local window = i == 1 and lengths or run:window()
    if window then
      found = run:prefill(texts, window, draws[i])
    else
      found = run:step(texts, draws[i])
    end
    for k, id in ipairs(found) do
      if id == UNDEFINED then
        if not ended[k] then
          core.fail_diverged("generate: prompt %d: the logits of token %d are NaN or infinite, so that it has no "
            .. "probability: give weights that are finite", own[k], #out[own[k]] + 1)
        end
        id = 0
      end
      table.insert(texts[k], id)
      run:see(k, id)
      if not ended[k] then
        table.insert(out[own[k]], id)
        if stops[id] or (a.on_token and a.on_token(own[k], id)) then
          ended[k], left = true, left - 1
        end
      end
    end
    if left == 0 then break end
  end
  return out
end

--- Continues sequences: `ids` is a list of token ids, or a list of such lists, of unequal lengths too; gives the same
--- with up to `count` tokens behind. temperature: of the softmax, 0 takes the most likely token; top_k: from so many of
--- the most likely (0: all); top_p: from the fewest that have this probability together; repetition_penalty: above 1,
--- tokens that the row has already are less likely, a logit above 0 is divided by it and one below multiplied; the same
--- seed draws the same; only ids below `vocab` are drawn.
--- A row ends at one of stop_ids, or where on_token(row, id) gives true. Past the network's block the newest half of it
--- is computed again, and tokens before it are forgotten. (ids, count = 128, temperature = 1, top_k = 0, top_p = 1,
--- repetition_penalty = 1, seed = 1, stop_ids, vocab, on_token)
---@param ids integer[]|integer[][]
---@return integer[]|integer[][]
function Cell:generate(ids, ...)
  local a = bind(...)
  if type(ids) ~= "table" or #ids == 0 then
    errors.fail("generate: expected a list of token ids, or a list of lists, got %s", errors.show(ids))
  end
  local many = type(ids[1]) == "table"
  local out = M.continue(self, many and ids or { ids }, a)
  return many and out or out[1]
end

return M
