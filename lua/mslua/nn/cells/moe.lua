--- nn.MoE: a mixture of experts (Shazeer et al., 2017): each token is computed by the few dense layers that a router
--- chooses for it.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local Dense = require "mslua.nn.cells.dense"

local MoE = Cell:extend "MoE"

local bind = args.signature("MoE", {
  { "dim", "integer", required = true, min = 1, doc = "size of a token of x and of the result" },
  { "hidden", "integer", required = true, min = 1, doc = "size between the two layers of an expert" },
  { "experts", "integer", required = true, min = 1, doc = "the number of experts" },
  { "top_k", "integer", 2, min = 1, doc = "how many experts compute each token; at most experts" },
  { "capacity_factor", "number", 1.25, above = 0,
    doc = "in training an expert takes at most capacity_factor * top_k * tokens / experts tokens, and at least 1" },
  { "weight_init", "initializer", { "normal", sigma = 0.02 },
    doc = "the initial weights of the router and of the experts' first layers" },
  { "out_init", "initializer", doc = "the initial weights of the experts' second layers; default: weight_init" },
})

--- Experts, each two dense layers with the exact GELU between them, of which a router chooses top_k for each token: the
--- token's result is theirs, weighted by the router's probabilities over those chosen. `nn.MoE { dim = 128, hidden =
--- 256, experts = 8 }`. In training an expert takes at most capacity_factor * top_k * tokens / experts tokens, in the
--- order of the tokens, first choices before second ones; what it does not take adds nothing. Evaluation leaves no
--- token out. Each rank has all experts. weight_init, out_init (default weight_init): how the first and second layers
--- begin. (dim, hidden, experts, top_k = 2, capacity_factor = 1.25, weight_init, out_init)
function MoE:init(...)
  local a = bind(...)
  if a.top_k > a.experts then
    errors.fail("MoE: top_k = %d of experts = %d: expected at most as many", a.top_k, a.experts)
  end
  self.dim, self.hidden, self.experts, self.top_k, self.capacity_factor =
    a.dim, a.hidden, a.experts, a.top_k, a.capacity_factor
  self.router = Dense(a.dim, a.experts, { weight_init = a.weight_init, has_bias = false })
  self:parameter("up", { a.experts, a.dim, a.hidden }, a.weight_init)
  self:parameter("up_bias", { a.experts, 1, a.hidden }, "zeros")
  self:parameter("down", { a.experts, a.hidden, a.dim }, a.out_init or a.weight_init)
  self:parameter("down_bias", { a.experts, 1, a.dim }, "zeros")
end

-- The places of tokens in the memory of experts [experts * capacity]: chosen [k, tokens] experts give int32 [k *
-- tokens], the first choices first; a token without a place has the one behind all.
local function places_of(chosen, experts, capacity)
  local flat = ops.reshape(chosen, { -1 })
  local taken = ops.cast(ops.one_hot(flat, experts), "float32")
  local before = ops.reduce_sum(ops.cumsum(taken, { axis = 1, exclusive = true }) * taken, 2)
  local places, tokens = ops.cast(before, "int32"), chosen.shape[2]
  if capacity == tokens then
    -- Every token has a place. The number of tokens is no constant, so that the exported network takes any batch.
    return places + flat * (ops.reduce_max(ops.iota { size = tokens }) + 1)
  end
  return ops.select(ops.less(before, capacity), places + flat * capacity, experts * capacity)
end

--- x [.., dim] gives the same shape; and the balance loss (Fedus et al., 2021), which is 1 where experts get equal
--- shares of tokens and of probability, and up to `experts` where one gets all.
function MoE:construct(x)
  local shape, d, k, e = x.shape, self.dim, self.top_k, self.experts
  if shape[#shape] ~= d then errors.fail("MoE: x: expected [.., %d], got %s", d, errors.show(shape)) end
  local flat = ops.reshape(x, { -1, d })
  local n = flat.shape[1]
  local capacity = n
  if core.training() then capacity = math.min(n, math.max(1, math.ceil(self.capacity_factor * k * n / e))) end
  local likely = ops.softmax(ops.cast(self.router(flat), x.dtype == "float64" and x.dtype or "float32"))  -- [n, e]
  local weights, chosen = ops.top_k(likely, k)
  weights = weights / ops.reduce_sum(weights, 2, true)
  local first = ops.transpose(chosen, { 2, 1 })  -- [k, n]
  local places = places_of(first, e, capacity)
  -- Which token each place holds, from 1; 0: none.
  local numbers = ops.tile(ops.iota { size = n } + 1, { k })
  local held = ops.scatter_sum(places, numbers, { size = e * capacity + 1 })
  held = ops.strided_slice(held, { 1 }, { e * capacity + 1 })
  local input = ops.reshape(ops.gather(ops.pad(flat, { low = { 1, 0 } }), held), { e, capacity, d })
  local inner = ops.gelu(ops.matmul(input, self.up) + self.up_bias)
  local output = ops.reshape(ops.matmul(inner, self.down) + self.down_bias, { e * capacity, d })
  local each = ops.reshape(ops.gather(ops.pad(output, { high = { 1, 0 } }), places), { k, n, d })
  local shares = ops.cast(ops.reshape(ops.transpose(weights, { 2, 1 }), { k, n, 1 }), output.dtype)
  local y = ops.reshape(ops.reduce_sum(each * shares, 1), shape)
  local best = ops.reshape(ops.strided_slice(first, { 1, 1 }, { 2, n + 1 }), { n })
  local top = ops.cast(ops.one_hot(best, e), likely.dtype)
  local balance = ops.reduce_sum(ops.reduce_mean(top, 1) * ops.reduce_mean(likely, 1)) * e
  return y, balance
end

function MoE:extra()
  return ("%d experts, %d of them each, %d -> %d"):format(self.experts, self.top_k, self.dim, self.hidden)
end

return MoE
