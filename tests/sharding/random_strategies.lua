--- Random networks with random strategies: what random_strategies.cc runs on one rank and on several.
--
-- The chunk is a function of the seed and of { alone, perturb, folder, describe }: it draws the case of that seed, the
-- same one on every rank, and trains it. All numbers of a case come from its seed; an operator draws its strategy when
-- it is first called, since the sizes of its operands are known then.
-- Letters of shapes: b rows of the global batch, t tokens, f features, c channels, h and w of images.
local core = require "mslua.core"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

------------------------------------------------------------------------------------------------------------- drawing

-- Park and Miller's generator: exact in Lua's numbers.
local Random = {}
Random.__index = Random
local function random_of(seed)
  local r = setmetatable({ x = (seed * 48271 + 11) % 2147483647 }, Random)
  if r.x == 0 then r.x = 1 end
  for _ = 1, 8 do r:next() end
  return r
end
function Random:next()
  self.x = self.x * 16807 % 2147483647
  return self.x
end
function Random:int(n) return self:next() % n + 1 end  -- 1..n
function Random:chance(percent) return self:int(100) <= percent end
function Random:of(list) return list[self:int(#list)] end

local function divisors(n)
  local list = {}
  for d = 1, n do
    if n % d == 0 then list[#list + 1] = d end
  end
  return list
end

local function gcd(a, b) return b == 0 and a or gcd(b, a % b) end

---------------------------------------------------------------------------------------------------------------- cases

-- What a seed stands for. `rowwise`: ranks have batches of their own, so rows must not meet.
local function draw_case(seed)
  local r = random_of(seed)
  local c = { seed = seed, r = r, parallel = {}, train = {} }
  local kind = r:int(100)
  c.kind = kind <= 40 and "semi" or kind <= 54 and "level" or kind <= 74 and "pipeline" or kind <= 87 and "auto"
    or "local"
  c.ranks = r:of { 2, 3, 4, 4, 6, 8 }
  c.stages = 1
  if c.kind == "pipeline" then
    c.ranks = r:of { 2, 4, 4, 6, 8, 3 }
    c.stages = c.ranks == 3 and 3 or c.ranks == 8 and r:of { 2, 4 } or 2
    c.parallel.pipeline_stages = c.stages
  end
  c.mesh = c.ranks / c.stages
  c.dtype = r:chance(82) and "float64" or "float32"
  c.density = r:of { 0, 30, 60, 90 }
  c.rowwise = c.kind == "local"
  local p = c.parallel
  if c.kind == "local" then
    p.parallel_mode, p.gradients_mean = r:of { "data_parallel", "data_parallel", "hybrid_parallel" }, true
  else
    local searched = c.kind == "auto" or (c.kind ~= "semi" and r:chance(25))
    p.parallel_mode = searched and "auto_parallel" or "semi_auto_parallel"
    if searched then
      p.search_mode = r:of { "dynamic_programming", "recursive_programming", "sharding_propagation" }
      c.density = r:of { 0, 0, 15, 40 }
    elseif c.kind == "semi" then
      c.density = r:of { 30, 60, 90 }
    end
  end

  -- Rows of the global batch and how often it is divided.
  local feeds = "data_parallel"
  if c.kind ~= "local" then feeds = r:of { "data_parallel", "data_parallel", "full_batch", "columns" } end
  c.batch = r:of { 24, 24, 48, 48, 12 * c.mesh }
  if feeds ~= "data_parallel" and r:chance(30) then c.batch = r:of { 10, 18, 20, 30 } end
  if feeds == "data_parallel" and c.batch % c.mesh ~= 0 then c.batch = 24 end
  c.feed = feeds == "data_parallel" and c.batch / c.mesh or c.batch
  c.micros = 1
  if c.kind == "pipeline" then
    local parts = {}
    for _, d in ipairs(divisors(c.feed)) do
      if d >= c.stages and d <= 8 then parts[#parts + 1] = d end
    end
    if #parts == 0 then
      c.batch, c.feed, parts = 48, feeds == "data_parallel" and 48 / c.mesh or 48, { c.stages == 4 and 4 or c.stages }
    end
    c.micros = r:of(parts)
  elseif r:chance(35) then
    local parts = {}
    for _, d in ipairs(divisors(c.feed)) do
      if d <= 6 then parts[#parts + 1] = d end
    end
    c.train.accumulate_steps = r:of(parts)
    c.micros = c.train.accumulate_steps
  end
  c.feeds = feeds
  c.steps = r:of { 3, 3, 4, 5 }
  if r:chance(15) then c.train.clip_norm = r:of { 0.05, 0.3, 1 } end
  if not c.train.clip_norm and r:chance(6) then c.train.clip_value = 0.01 end
  c.scale = r:chance(6)
  c.evaluates = r:chance(20)

  if c.kind == "level" or (c.kind ~= "semi" and r:chance(20)) or (c.kind == "semi" and r:chance(8)) then
    p.enable_parallel_optimizer = true
    p.parallel_optimizer_config = { parallel_optimizer_threshold = 1 }
    if c.kind == "local" then
      p.parallel_optimizer_config.gradient_accumulation_shard = r:chance(50)
      local sizes = divisors(c.ranks)
      if r:chance(40) then p.optimizer_weight_shard_size = sizes[r:int(#sizes - 1) + 1] end
    else
      p.parallel_optimizer_config.optimizer_level = r:of { "level1", "level2", "level3" }
    end
  end
  if r:chance(45) then
    local fusion = {}
    if r:chance(60) then
      fusion.allreduce = r:of { { mode = "auto" }, { mode = "size", config = 0 }, { mode = "size", config = 1 },
        { mode = "index", config = { 2, 5 } }, { mode = "index", config = { 1, 3, 7 } } }
    end
    if p.enable_parallel_optimizer or c.kind ~= "local" then
      if r:chance(70) then fusion.allgather = r:of { { mode = "auto" }, { mode = "size", config = 1 } } end
      if r:chance(70) then
        fusion.reducescatter = r:of { { mode = "auto" }, { mode = "size", config = 1 }, { mode = "size", config = 0 } }
      end
    end
    if r:chance(8) then fusion.openstate = false end
    if next(fusion) then p.comm_fusion = fusion end
  elseif r:chance(15) then
    p.all_reduce_fusion_config = r:of { { 2 }, { 1, 4 } }
  end
  c.fusion_ids = r:chance(25)
  c.whole_state = r:chance(25)  -- some parameters have parallel_optimizer = false
  c.input = r:of { "flat", "flat", "seq", "tokens", "tokens", "image" }
  c.layers = 4 + r:int(6)
  c.loss = r:of { "mse", "mse", "cross_entropy", "own", "l1" }
  c.integrated = not r:chance(30)
  return c
end

------------------------------------------------------------------------------------------------------- operator sites

-- A rule "i k, k j -> i j" as lists of letters; `!h` must be whole, a `1` is no factor.
local function parse_rule(text)
  local function tensors(side)
    local list = {}
    for part in (side .. ","):gmatch "([^,]*)," do
      local dims = {}
      for word in part:gmatch "%S+" do dims[#dims + 1] = word end
      list[#list + 1] = dims
    end
    return list
  end
  local left, right = text:match "^(.-)%->(.*)$"
  return tensors(left), tensors(right)
end

-- A place where the network calls an operator; with a strategy of its own where the case draws one.
local function site_maker(c, alone)
  local count = 0
  return function(prim, rule)
    count = count + 1
    local r = random_of(c.seed * 1009 + count * 7919)
    local strategic = not alone and c.kind ~= "local" and rule ~= nil and r:chance(c.density)
    local name, pinned = prim.class_name, false
    return function(...)
      if strategic and not pinned then
        pinned = true
        local inputs, outputs = parse_rule(rule)
        local sizes, whole, letters = {}, {}, {}
        local operands = { ... }
        if type(operands[1]) == "table" and not core.kind(operands[1]) then operands = operands[1] end
        for i, dims in ipairs(inputs) do
          for d, letter in ipairs(dims) do
            local plain = letter:gsub("!", "")
            if letter ~= plain then whole[plain] = true end
            if plain ~= "1" and not sizes[plain] then
              sizes[plain] = operands[i].shape[d]
              letters[#letters + 1] = plain
            end
          end
        end
        for i = #letters, 2, -1 do
          local k = r:int(i)
          letters[i], letters[k] = letters[k], letters[i]
        end
        local left, cuts = c.mesh, { ["1"] = 1 }
        for _, letter in ipairs(letters) do
          cuts[letter] = 1
          if not whole[letter] then
            local d = r:of(divisors(gcd(sizes[letter], left)))
            cuts[letter], left = d, left / d
          end
        end
        local strategy = {}
        for i, dims in ipairs(inputs) do
          strategy[i] = {}
          for d, letter in ipairs(dims) do strategy[i][d] = cuts[letter:gsub("!", "")] end
        end
        local result
        if r:chance(15) and #outputs == 1 then
          result, left = { {} }, c.mesh
          for d, letter in ipairs(outputs[1]) do
            local plain = letter:gsub("!", "")
            local cut = sizes[plain] and r:of(divisors(gcd(sizes[plain], left))) or 1
            result[1][d], left = cut, left / cut
          end
        end
        prim:shard(strategy, result)
        c.strategies = (c.strategies or 0) + 1
        if c.describes then
          local function text(list)
            local parts = {}
            for i, cut in ipairs(list) do parts[i] = table.concat(cut, ",") end
            return table.concat(parts, "; ")
          end
          c.lines[#c.lines + 1] = ("  %s %s%s"):format(name, text(strategy), result and " -> " .. text(result) or "")
        end
      end
      return prim(...)
    end
  end
end

--------------------------------------------------------------------------------------------------------------- layers

-- Builders: (cell, c, shape) -> construct(x) and the shape that it gives; nil where the shape does not suit. c.r draws,
-- c.site makes operators, c.param parameters.
local any, flat, seq, image = {}, {}, {}, {}

local letters_of = { [2] = "a b", [3] = "a b d", [4] = "a b d e" }
local function same(shape, operands)
  local dims, list = letters_of[#shape], {}
  for i = 1, operands do list[i] = dims end
  return table.concat(list, ", ") .. " -> " .. dims
end
local function with_last(shape, n)
  local list = { unpack(shape) }
  list[#list] = n
  return list
end

-- A product with bias, by operators of its own.
function flat.dense(cell, c, shape)
  local out = c.r:of { 8, 12, 16, 24, 32, 6, 10 }
  local transposed = c.r:chance(50)
  local w = c.param(cell, "w", transposed and { out, shape[2] } or { shape[2], out }, 1 / math.sqrt(shape[2]))
  local b = c.param(cell, "b", { out }, 0.1)
  local names = transposed and "i k, j k -> i j" or "i k, k j -> i j"
  local multiply = c.site(ops.MatMul { transpose_b = transposed }, names)
  local add = c.site(ops.Add(), "i j, j -> i j")
  return function(x) return add(multiply(x, w), b) end, { shape[1], out }
end

function any.dense_cell(cell, c, shape)
  if #shape == 4 then return nil end
  local out = c.r:of { 8, 12, 16, 24 }
  local has_bias = c.r:chance(60)
  cell.fc = nn.Dense(shape[#shape], out, { has_bias = has_bias, activation = c.r:chance(40) and nn.Tanh() or nil })
  return function(x) return cell.fc(x) end, with_last(shape, out)
end

-- x x^T x: every row meets every other.
function flat.gram(cell, c, shape)
  if c.rowwise then return nil end
  local first = c.site(ops.MatMul { transpose_b = true }, "i k, j k -> i j")
  local second = c.site(ops.MatMul(), "i k, k j -> i j")
  return function(x) return second(first(x, x) * (1 / (shape[1] * shape[2])), x) + x end, shape
end

function flat.gram_of_features(cell, c, shape)
  if c.rowwise then return nil end
  local first = c.site(ops.MatMul { transpose_a = true }, "k i, k j -> i j")
  local second = c.site(ops.MatMul(), "i k, k j -> i j")
  return function(x) return second(x, first(x, x)) * (1 / (shape[1] * shape[2])) + x end, shape
end

function flat.statistics_over_rows(cell, c, shape)
  if c.rowwise then return nil end
  local mean, sub = c.site(ops.ReduceMean { keep_dims = true }, nil), c.site(ops.Sub(), "a b, 1 b -> a b")
  return function(x) return sub(x, mean(x, { 1 })) end, shape
end

function flat.batch_norm(cell, c, shape)
  if c.rowwise then return nil end
  cell.bn = nn.BatchNorm1d(shape[2])
  return function(x) return cell.bn(x) end, shape
end

function flat.product_of_parameters(cell, c, shape)
  local inner, out = c.r:of { 4, 6, 8 }, c.r:of { 8, 12, 16 }
  local u, v = c.param(cell, "u", { shape[2], inner }, 0.3), c.param(cell, "v", { inner, out }, 0.3)
  local product, multiply = c.site(ops.MatMul(), "i k, k j -> i j"), c.site(ops.MatMul(), nil)
  return function(x) return multiply(x, product(u, v)) end, { shape[1], out }
end

-- A parameter times itself.
function flat.gram_of_a_parameter(cell, c, shape)
  local u = c.param(cell, "u", { shape[2], c.r:of { 6, 8, 12 } }, 0.3)
  local gram, multiply = c.site(ops.MatMul { transpose_b = true }, "i k, j k -> i j"), c.site(ops.MatMul(), nil)
  return function(x) return multiply(x, gram(u, u)) + x end, shape
end

-- One weight for two products.
function flat.tied(cell, c, shape)
  local f = shape[2]
  local w = c.param(cell, "w", { f, f }, 1 / math.sqrt(f))
  local first, second = c.site(ops.MatMul(), "i k, k j -> i j"), c.site(ops.MatMul { transpose_b = true }, nil)
  local tanh = c.site(ops.Tanh(), "a b -> a b")
  return function(x) return second(tanh(first(x, w)), w) end, shape
end

function flat.to_tokens(cell, c, shape)
  local t = c.r:of { 2, 4, 3 }
  if shape[2] % t ~= 0 or shape[2] / t < 3 then return nil end
  return function(x) return ops.reshape(x, { -1, t, shape[2] / t }) end, { shape[1], t, shape[2] / t }
end

function flat.to_image(cell, c, shape)
  if shape[2] % 16 ~= 0 then return nil end
  return function(x) return ops.reshape(x, { -1, shape[2] / 16, 4, 4 }) end, { shape[1], shape[2] / 16, 4, 4 }
end

function seq.attention(cell, c, shape)
  local heads = c.r:of { 1, 2, 4 }
  if shape[3] % heads ~= 0 then return nil end
  cell.attn = nn.MultiheadAttention(shape[3], heads, { causal = c.r:chance(50) })
  return function(x) return cell.attn(x) end, shape
end

-- One value as query, key and value.
function seq.attention_of_one_value(cell, c, shape)
  local heads = c.r:of { 1, 2 }
  if shape[3] % heads ~= 0 then return nil end
  local d = shape[3] / heads
  local causal = c.r:chance(40)
  local attend = c.site(ops.ScaledDotProductAttention { causal = causal },
    ("n g %s !d, n g !s !d, n g !s !d -> n g t !d, n g t"):format(causal and "!t" or "t"))
  return function(x)
    local y = ops.transpose(ops.reshape(x, { -1, shape[2], heads, d }), { 1, 3, 2, 4 })
    y = (attend(y, y, y))
    return ops.reshape(ops.transpose(y, { 1, 3, 2, 4 }), { -1, shape[2], shape[3] })
  end, shape
end

-- Each token has a weight of its own.
function seq.products_per_token(cell, c, shape)
  local out = c.r:of { 6, 8, 12 }
  local w = c.param(cell, "w", { shape[2], shape[3], out }, 1 / math.sqrt(shape[3]))
  local multiply = c.site(ops.MatMul(), "t i k, t k j -> t i j")
  return function(x)
    return ops.transpose(multiply(ops.transpose(x, { 2, 1, 3 }), w), { 2, 1, 3 })
  end, { shape[1], shape[2], out }
end

-- Tokens times tokens of the same row.
function seq.batch_gram(cell, c, shape)
  local first, second = c.site(ops.MatMul { transpose_b = true }, "n i k, n j k -> n i j"),
    c.site(ops.MatMul(), "n i k, n k j -> n i j")
  local softmax = c.site(ops.Softmax(), "a b !d -> a b !d")
  return function(x) return second(softmax(first(x, x)), x) end, shape
end

function seq.mean_of_tokens(cell, c, shape)
  local reduce = c.site(c.r:of { ops.ReduceMean, ops.ReduceSum, ops.ReduceMax }(), "a b d -> a d")
  return function(x) return reduce(x, { 2 }) end, { shape[1], shape[3] }
end

function seq.flatten(cell, c, shape)
  local f = shape[2] * shape[3]
  return function(x) return ops.reshape(x, { -1, f }) end, { shape[1], f }
end

function seq.positions(cell, c, shape)
  local table_of = c.param(cell, "positions", { shape[2], shape[3] }, 0.2)
  local gather, add = c.site(ops.Gather { axis = 1 }, "!v f, t -> t f"), c.site(ops.Add(), "a b d, 1 b d -> a b d")
  return function(x)
    return add(x, ops.reshape(gather(table_of, ms.arange(shape[2])), { 1, shape[2], shape[3] }))
  end, shape
end

function seq.shift_of_tokens(cell, c, shape)
  local pad = c.site(ops.Pad { low = { 0, 1, 0 } }, nil)
  return function(x)
    local y = ops.strided_slice(x, { begin = { 1, 1, 1 }, end_ = { x.shape[1] + 1, shape[2], shape[3] + 1 } })
    return x + pad(y)
  end, shape
end

function image.conv(cell, c, shape)
  local out, kernel = c.r:of { 4, 6, 8, 12 }, c.r:of { 1, 2, 3 }
  local w = c.param(cell, "w", { out, shape[2], kernel, kernel }, 1 / (kernel * math.sqrt(shape[2])))
  local conv = c.site(ops.Conv2D { pad_mode = "same" }, "n c !h !w, o c !y !x -> n o !h !w")
  return function(x) return conv(x, w) end, { shape[1], out, shape[3], shape[4] }
end

function image.conv_cell(cell, c, shape)
  local group = c.r:of { 1, 1, 2 }
  if shape[2] % group ~= 0 then group = 1 end
  local out, stride = c.r:of { 4, 8, 12 }, shape[3] % 2 == 0 and shape[3] > 2 and c.r:of { 1, 2 } or 1
  cell.conv = nn.Conv2d(shape[2], out, 3, { stride = stride, group = group, has_bias = c.r:chance(50) })
  return function(x) return cell.conv(x) end, { shape[1], out, shape[3] / stride, shape[4] / stride }
end

function image.batch_norm(cell, c, shape)
  if c.rowwise then return nil end
  cell.bn = nn.BatchNorm2d(shape[2])
  return function(x) return cell.bn(x) end, shape
end

function image.group_norm(cell, c, shape)
  local groups = c.r:of { 1, 2 }
  if shape[2] % groups ~= 0 then groups = 1 end
  cell.gn = nn.GroupNorm(groups, shape[2])
  return function(x) return cell.gn(x) end, shape
end

function image.pool(cell, c, shape)
  if shape[3] % 2 ~= 0 or shape[3] < 4 then return nil end
  local pool = c.site(c.r:of { ops.MaxPool, ops.AvgPool } { kernel_size = 2, stride = 2 }, "n c !h !w -> n c !p !q")
  return function(x) return pool(x) end, { shape[1], shape[2], shape[3] / 2, shape[4] / 2 }
end

function image.adaptive_pool(cell, c, shape)
  cell.pool = nn.AdaptiveAvgPool2d(1)
  return function(x) return ops.reshape(cell.pool(x), { -1, shape[2] }) end, { shape[1], shape[2] }
end

function image.flatten(cell, c, shape)
  local f = shape[2] * shape[3] * shape[4]
  if f > 400 then return nil end
  return function(x) return ops.reshape(x, { -1, f }) end, { shape[1], f }
end

function image.to_tokens(cell, c, shape)
  local t = shape[3] * shape[4]
  if t > 36 then return nil end
  return function(x)
    return ops.transpose(ops.reshape(x, { -1, shape[2], t }), { 1, 3, 2 })
  end, { shape[1], t, shape[2] }
end

function any.activation(cell, c, shape)
  local f = c.site(c.r:of { ops.ReLU, ops.Tanh, ops.Sigmoid, ops.SiLU, ops.GeLU }(), same(shape, 1))
  return function(x) return f(x) end, shape
end

function any.times_itself(cell, c, shape)
  local multiply = c.site(ops.Mul(), same(shape, 2))
  local tanh = c.site(ops.Tanh(), same(shape, 1))
  return function(x)
    local y = tanh(x)
    return multiply(y, y) + x
  end, shape
end

function any.binary_of_one_value(cell, c, shape)
  local f = c.site(c.r:of { ops.Add, ops.Maximum, ops.Minimum, ops.Mul }(), same(shape, 2))
  return function(x) return ops.tanh(f(x, x)) end, shape
end

function any.gate(cell, c, shape)
  local sigmoid, multiply = c.site(ops.Sigmoid(), same(shape, 1)), c.site(ops.Mul(), same(shape, 2))
  return function(x) return multiply(x, sigmoid(x)) end, shape
end

function any.scale(cell, c, shape)
  local last = shape[#shape]
  local dims = letters_of[#shape]
  local one = c.r:chance(30)
  local p = c.param(cell, "p", one and { 1 } or { last }, 0.5)
  local multiply = c.site(ops.Mul(), ("%s, %s -> %s"):format(dims, one and "1" or dims:match "%a$", dims))
  return function(x) return multiply(x, p) + x end, shape
end

function any.layer_norm(cell, c, shape)
  if #shape == 4 then return nil end
  cell.ln = nn.LayerNorm(shape[#shape])
  return function(x) return cell.ln(x) end, shape
end

function any.layer_norm_site(cell, c, shape)
  if #shape == 4 then return nil end
  local dims = letters_of[#shape]
  local last = dims:match "%a$"
  local whole = dims:gsub(last .. "$", "!" .. last)
  local gamma, beta = c.param(cell, "gamma", { shape[#shape] }, 1), c.param(cell, "beta", { shape[#shape] }, 0.1)
  local norm = c.site(ops.LayerNorm { eps = 1e-5 }, ("%s, !%s, !%s -> %s"):format(whole, last, last, whole))
  return function(x) return (norm(x, gamma, beta)) end, shape
end

-- One parameter is scale and shift.
function any.layer_norm_of_one_parameter(cell, c, shape)
  if #shape == 4 then return nil end
  local dims = letters_of[#shape]
  local last = dims:match "%a$"
  local whole = dims:gsub(last .. "$", "!" .. last)
  local gamma = c.param(cell, "gamma", { shape[#shape] }, 1)
  local norm = c.site(ops.LayerNorm { eps = 1e-5 }, ("%s, !%s, !%s -> %s"):format(whole, last, last, whole))
  return function(x) return (norm(x, gamma, gamma)) end, shape
end

function any.rms_norm(cell, c, shape)
  if #shape == 4 then return nil end
  cell.rms = nn.RMSNorm(shape[#shape])
  return function(x) return cell.rms(x) end, shape
end

function any.softmax(cell, c, shape)
  if #shape == 4 then return nil end
  local dims = letters_of[#shape]
  local whole = dims:gsub("(%a)$", "!%1")
  local f = c.site(c.r:of { ops.Softmax, ops.LogSoftmax }(), whole .. " -> " .. whole)
  return function(x) return f(x) * 0.5 + x end, shape
end

function any.concat(cell, c, shape)
  if #shape == 4 or shape[#shape] > 16 then return nil end
  local dims = letters_of[#shape]
  local whole = dims:gsub("(%a)$", "!%1")
  local one_value, three = c.r:chance(60), c.r:chance(30)
  local rule = three and ("%s, %s, %s -> %s"):format(whole, whole, whole, whole)
    or ("%s, %s -> %s"):format(whole, whole, whole)
  local join = c.site(ops.Concat { axis = #shape }, rule)
  return function(x)
    local y = one_value and x or ops.tanh(x)
    return join(three and { x, y, x } or { x, y })
  end, with_last(shape, shape[#shape] * (three and 3 or 2))
end

function any.split(cell, c, shape)
  if shape[#shape] % 2 ~= 0 or #shape == 4 or shape[#shape] < 6 then return nil end
  local dims = letters_of[#shape]
  local whole = dims:gsub("(%a)$", "!%1")
  local split = c.site(ops.Split { axis = #shape, output_num = 2 }, ("%s -> %s, %s"):format(whole, whole, whole))
  return function(x)
    local a, b = split(x)
    return a * ops.sigmoid(b)
  end, with_last(shape, shape[#shape] / 2)
end

function any.stack(cell, c, shape)
  if #shape == 4 then return nil end
  local dims = letters_of[#shape]
  local stack = c.site(ops.Stack { axis = 1 }, ("%s, %s -> s %s"):format(dims, dims, dims))
  return function(x) return ops.reduce_mean(stack({ x, x }), { 1 }) + x end, shape
end

function any.several_uses(cell, c, shape)
  local tanh, add, multiply = c.site(ops.Tanh(), same(shape, 1)), c.site(ops.Add(), same(shape, 2)),
    c.site(ops.Mul(), same(shape, 2))
  return function(x)
    local y = tanh(x)
    return add(multiply(y, x), y) - ops.sigmoid(y) * x
  end, shape
end

function any.select(cell, c, shape)
  local dims = letters_of[#shape]
  local choose = c.site(ops.Select(), ("%s, %s, %s -> %s"):format(dims, dims, dims, dims))
  return function(x) return choose(ops.greater(x, 0), x, x * 0.1) end, shape
end

function any.select_of_one_value(cell, c, shape)
  local dims = letters_of[#shape]
  local choose = c.site(ops.Select(), ("%s, %s, %s -> %s"):format(dims, dims, dims, dims))
  return function(x) return choose(ops.greater(x, 0), x, x) + ops.tanh(x) end, shape
end

function any.dropout(cell, c, shape)
  cell.drop = nn.Dropout { p = 0.25 }
  return function(x) return cell.drop(x) end, shape
end

function any.transposed_and_back(cell, c, shape)
  if #shape == 4 then return nil end
  local perm = #shape == 2 and { 2, 1 } or { 3, 1, 2 }
  local back = #shape == 2 and { 2, 1 } or { 2, 3, 1 }
  local f = c.site(ops.Tanh(), same(shape, 1))
  return function(x) return ops.transpose(f(ops.transpose(x, perm)), back) end, shape
end

local by_rank = { [2] = flat, [3] = seq, [4] = image }

-- The names of builders in one order everywhere.
local function names_of(builders)
  local names = {}
  for name in pairs(builders) do names[#names + 1] = name end
  table.sort(names)
  return names
end

------------------------------------------------------------------------------------------------------------- networks

local Layer = nn.Cell:extend "Layer"
function Layer:construct(x)
  local y = self.compute(x)
  if self.residual then y = y + x end
  return y
end

-- The layers, each (kind, cell, shape).
local function draw_layers(net, c)
  local r, f = c.r, nil
  local shape
  if c.input == "flat" then
    shape = { c.batch, r:of { 8, 12, 16, 24, 10 } }
  elseif c.input == "seq" then
    shape = { c.batch, r:of { 3, 4, 6, 8 }, r:of { 8, 12, 16, 6 } }
  elseif c.input == "tokens" then
    shape = { c.batch, r:of { 3, 4, 6, 8 } }
  else
    shape = { c.batch, r:of { 3, 4, 6 }, 8, 8 }
  end
  c.x_shape = { unpack(shape) }
  local function add(name, builder)
    local cell = Layer()
    local compute, out = builder(cell, c, shape)
    if not compute then return false end
    cell.compute = compute
    local same_shape = #out == #shape
    for d = 1, #out do same_shape = same_shape and out[d] == shape[d] end
    cell.residual = same_shape and c.input ~= "none" and name ~= "gram" and r:chance(25)
    if r:chance(12) then cell:recompute() end
    net["l" .. #c.kinds + 1] = cell
    c.kinds[#c.kinds + 1] = name
    c.shapes[#c.shapes + 1] = out
    shape = out
    return true
  end
  if c.input == "tokens" then
    c.vocab = r:of { 12, 16, 24 }
    local width = r:of { 8, 12, 16 }
    c.tied_table = r:chance(40)
    add("embedding", function(cell)
      if r:chance(50) then
        cell.embed = nn.Embedding(c.vocab, width)
        c.table = cell.embed.embedding_table
        return function(x) return cell.embed(x) end, { shape[1], shape[2], width }
      end
      local table_of = c.param(cell, "table", { c.vocab, width }, 0.3)
      c.table = table_of
      local gather = c.site(ops.Gather { axis = 1 }, c.tied_table and "!v !f, n t -> n t f" or "v f, n t -> n t f")
      return function(x) return gather(table_of, x) end, { shape[1], shape[2], width }
    end)
    c.width = width
  end
  while #c.kinds < c.layers do
    local builders = r:chance(45) and any or by_rank[#shape]
    local name = r:of(names_of(builders))
    add(name, builders[name])
  end
  -- Rows of the loss.
  if #shape == 4 then add("adaptive_pool", image.adaptive_pool) end
  if #shape == 3 then add("mean_of_tokens", seq.mean_of_tokens) end
  add("calm", function() return function(x) return ops.tanh(x) end, shape end)
  c.classes = r:of { 4, 5, 6, 8 }
  if c.tied_table and shape[2] == c.width then
    local head = c.site(ops.MatMul { transpose_b = true }, nil)
    c.classes = c.vocab
    add("tied_head", function() return function(x) return head(x, c.table) end, { shape[1], c.vocab } end)
  else
    add("head", function(cell)
      local w = c.param(cell, "w", { shape[2], c.classes }, 1 / math.sqrt(shape[2]))
      local multiply = c.site(ops.MatMul(), "i k, k j -> i j")
      return function(x) return multiply(x, w) end, { shape[1], c.classes }
    end)
  end
  -- Layers that take an earlier layer's result too.
  c.skips = {}
  for j = 2, #c.kinds do
    for i = 1, j - 2 do
      local a, b = c.shapes[i], c.shapes[j - 1]
      local equal = #a == #b
      for d = 1, #a do equal = equal and a[d] == b[d] end
      if equal and r:chance(15) then c.skips[j] = i end
    end
  end
  -- Stages in order; some may have no parameter.
  if c.kind == "pipeline" then
    local n, at = #c.kinds, 1
    for s = 0, c.stages - 1 do
      local last = s == c.stages - 1 and n or at + r:int(math.max(1, n - at - (c.stages - 1 - s))) - 1
      for i = at, last do
        if i == at or r:chance(80) then net["l" .. i].pipeline_stage = s end
      end
      at = last + 1
    end
  end
end

local Net = nn.Cell:extend "Net"
function Net:construct(x)
  local c, results = self.case, {}
  for i = 1, #c.kinds do
    if c.skips[i] then x = x + results[c.skips[i]] * 0.5 end
    x = self["l" .. i](x)
    results[i] = x
  end
  return x
end

----------------------------------------------------------------------------------------------------------------- run

local function optimizer_of(r)
  local rate = r:of { 0.001, 0.005 }
  return r:of {
    function() return nn.Momentum { learning_rate = rate, momentum = 0.9, weight_decay = 0.01 } end,
    function() return nn.Momentum { learning_rate = rate, momentum = 0.8, use_nesterov = true } end,
    function() return nn.SGD { learning_rate = rate } end,
    function() return nn.Adam { learning_rate = rate, eps = 1e-3 } end,
    function() return nn.Adam { learning_rate = rate, eps = 1e-3, use_amsgrad = true, use_nesterov = true } end,
    function() return nn.NAdam { learning_rate = rate, eps = 1e-3 } end,
    function() return nn.AdamWeightDecay { learning_rate = rate, eps = 1e-3, weight_decay = 0.05 } end,
    function() return nn.Lamb { learning_rate = rate, eps = 1e-3 } end,
  }()
end

local function loss_of(c)
  if c.loss == "mse" then return nn.MSELoss() end
  if c.loss == "l1" then return nn.SmoothL1Loss { beta = 0.3, reduction = "mean" } end
  if c.loss == "cross_entropy" then return nn.CrossEntropyLoss() end
  local sub, multiply = c.site(ops.Sub(), "a b, a b -> a b"), c.site(ops.Mul(), "a b, a b -> a b")
  return function(output, label)
    local d = sub(output, label)
    return ops.reduce_mean(multiply(d, d)) + ops.reduce_mean(ops.abs(d)) * 0.1
  end
end

local function data_of(c)
  local rows = c.batch * 2
  local x, y
  if c.input == "tokens" then
    x = (ms.rand({ rows, c.x_shape[2] }, "float32", "x") * (c.vocab - 0.01)):astype "int32"
  else
    local shape = { unpack(c.x_shape) }
    shape[1] = rows
    x = ms.randn(shape, c.dtype, "x")
  end
  if c.loss == "cross_entropy" then
    y = (ms.rand({ rows }, "float32", "y") * (c.classes - 0.01)):astype "int32"
  else
    y = ms.randn({ rows, c.classes }, c.dtype, "y")
  end
  return x, y
end

-- How columns of these shapes are sharded: one dimension of each, the widest column's most.
local function column_cuts(c, x, y)
  local r, shapes, cuts, widest = c.r, { x.shape, y.shape }, {}, 1
  if #shapes[2] > #shapes[1] then widest = 2 end
  local most = 1
  for _, i in ipairs { widest, 3 - widest } do
    cuts[i] = {}
    for d = 1, #shapes[i] do cuts[i][d] = 1 end
    local d = r:chance(60) and 1 or r:int(#shapes[i])
    local size = d == 1 and c.batch or shapes[i][d]
    local parts = {}
    for _, n in ipairs(divisors(gcd(size, c.mesh))) do
      if i == widest or n <= most then parts[#parts + 1] = n end
    end
    cuts[i][d] = r:of(parts)
    most = i == widest and cuts[i][d] or most
  end
  return cuts
end

local function describe(c)
  local function show(v)
    if type(v) ~= "table" then return tostring(v) end
    local keys, parts = {}, {}
    for k in pairs(v) do keys[#keys + 1] = k end
    table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
    for i, k in ipairs(keys) do parts[i] = (type(k) == "number" and "" or k .. "=") .. show(v[k]) end
    return "{" .. table.concat(parts, ",") .. "}"
  end
  local skips = {}
  for j, i in pairs(c.skips) do skips[#skips + 1] = i .. ">" .. j end
  table.sort(skips)
  return ("%s n=%d %s batch %d feed %s micros %d steps %d density %d %s train %s %s%s| %s%s"):format(
    c.kind, c.ranks, c.dtype, c.batch, c.feeds, c.micros, c.steps, c.density, c.loss, show(c.train), show(c.parallel),
    c.scale and " scale" or "", table.concat(c.kinds, " "), #skips > 0 and " skips " .. table.concat(skips, " ") or "")
end

--- Trains the case of a seed. Returns "ranks limit kind | description", then a line with the losses of this rank, then
--- one with the metrics.
return function(seed, how)
  local c = draw_case(seed)
  c.kinds, c.shapes, c.lines, c.describes = {}, {}, {}, how.describe
  if how.double then c.dtype = "float64" end
  local parameter, state = core.parameter, core.state
  local function typed(make)
    return function(spec)
      spec.dtype = c.dtype
      return make(spec)
    end
  end
  core.parameter, core.state = typed(parameter), typed(state)
  ms.set_seed(seed)
  c.site = site_maker(c, how.alone)
  c.param = function(cell, name, shape, sigma)
    return cell:parameter(name, shape, { "normal", sigma = sigma }, {
      parallel_optimizer = not (c.whole_state and c.r:chance(30)),
      comm_fusion = c.fusion_ids and c.r:int(3) - 1 or 1,
    })
  end
  local net = Net()
  rawset(net, "case", c)
  draw_layers(net, c)
  local optimizer, loss = optimizer_of(c.r), loss_of(c)
  local x, y = data_of(c)
  if c.feeds == "columns" then
    c.parallel.dataset_strategy = column_cuts(c, x, y)
  else
    c.parallel.dataset_strategy = c.feeds
  end
  if c.kind == "local" then c.parallel.dataset_strategy = nil end
  local head = ("%d %s %s | %s"):format(c.ranks, c.dtype == "float64" and "1e-10" or "1e-5", c.kind, describe(c))
  if not how.alone then ms.set_auto_parallel_context(c.parallel) end
  if how.perturb then
    for i, p in ipairs(net:get_parameters()) do
      p.value = p.value * (1 + (i % 2 == 0 and 1 or -1) * (c.dtype == "float64" and 4e-16 or 2e-7))
    end
  end
  core.options.out = how.folder
  core.options.log_every = 1000000
  local dataset = ms.dataset.NumpySlicesDataset({ x, y }, { column_names = { "x", "y" } })
  if seed % 3 == 0 then dataset = dataset:shuffle(2 * c.batch) end
  dataset = dataset:batch(how.alone and c.batch or c.feed, { drop_remainder = true })
  local losses = {}
  local Recorder = ms.Callback:extend "Recorder"
  function Recorder:on_train_step_end(s) losses[#losses + 1] = ("%.17g"):format(s.loss) end
  local evaluates = c.evaluates and type(loss) ~= "function"
  local model = ms.Model(c.kind == "pipeline" and nn.PipelineCell(net, c.micros) or net, {
    loss_fn = loss, optimizer = optimizer, metrics = evaluates and { "loss" } or nil,
    loss_scale_manager = c.scale and ms.FixedLossScaleManager(8) or nil,
  })
  c.train.callbacks = {
    Recorder(),
    ms.ModelCheckpoint { config = ms.CheckpointConfig {
      save_checkpoint_steps = c.steps, integrated_save = c.integrated, keep_checkpoint_max = 1,
    } },
  }
  c.train.max_steps = c.steps
  local trained, problem = pcall(model.train, model, 3, dataset, c.train)
  local metrics = ""
  if trained and evaluates then
    -- Its batches are those of the script, also where rows of a batch meet.
    local batches = ms.dataset.NumpySlicesDataset({ x, y }, { column_names = { "x", "y" } })
      :batch(c.feed, { drop_remainder = true })
    local ok, result = pcall(model.eval, model, batches)
    if ok then metrics = ("%.17g"):format(result.loss) else trained, problem = false, result end
  end
  if not trained then error(tostring(problem) .. "\n" .. head, 0) end
  return head .. "\n" .. table.concat(losses, " ") .. "\n" .. metrics .. "\n" .. table.concat(c.lines, "\n")
end
