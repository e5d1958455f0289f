-- Masks, lengths and grouped heads of attention, against products and a softmax; rotary positions; caches.
local ms = require "mslua"
local check = require "check"
local nn, ops = ms.nn, ms.ops

local q, k, v = ms.randn({ 2, 4, 3, 8 }, "float32", "q"), ms.randn({ 2, 2, 5, 8 }, "float32", "k"),
  ms.randn({ 2, 2, 5, 6 }, "float32", "v")

-- Head h of a row by hand; sees(r, h, i, j) says whether query i sees key j.
local function by_hand(qs, ks, vs, sees)
  local heads, group, out = #qs[1], #qs[1] / #ks[1], {}
  for r = 1, #qs do
    out[r] = {}
    for h = 1, heads do
      out[r][h] = {}
      local g = math.floor((h - 1) / group) + 1
      for i, query in ipairs(qs[r][h]) do
        local e, sum, y = {}, 0, {}
        for j, key in ipairs(ks[r][g]) do
          local s = 0
          for l = 1, #query do s = s + query[l] * key[l] end
          e[j] = sees(r, h, i, j) and math.exp(s / math.sqrt(#query)) or 0
          sum = sum + e[j]
        end
        for c = 1, #vs[1][1][1] do
          y[c] = 0
          for j = 1, #e do y[c] = y[c] + (sum > 0 and e[j] / sum * vs[r][g][j][c] or 0) end
        end
        out[r][h][i] = y
      end
    end
  end
  return out
end

local function expect(got, sees)
  check.near(got:totable(), by_hand(q:totable(), k:totable(), v:totable(), sees), 1e-5)
end

check.case("grouped heads", function()
  expect(ops.scaled_dot_product_attention(q, k, v), function() return true end)
  expect(ops.scaled_dot_product_attention(q, k, v, { causal = true }), function(_, _, i, j) return j <= i + 2 end)
end)

check.case("a negative scale", function()
  local all = ops.greater(ms.ones { 3, 5 }, 0)
  for _, dtype in ipairs { "float32", "float64", "bfloat16" } do
    local function cast(x) return ops.cast(x, ms[dtype]) end
    local near = dtype == "bfloat16" and 2e-2 or 1e-5
    local function results(options)
      local function loss(a, b, c)
        return ops.reduce_sum(ops.cast(ops.scaled_dot_product_attention(cast(a), cast(b), cast(c), options), ms.float32)
          * ms.arange(6, "float32"))
      end
      local value, gradients = ms.value_and_grad(loss, { 1, 2, 3 })(q, k, v)
      return ops.cast(ops.scaled_dot_product_attention(cast(q), cast(k), cast(v), options), ms.float32), value,
        gradients
    end
    local y, value, gradients = results { scale = -0.6 }
    local y2, value2, gradients2 = results { scale = -0.6, attn_mask = all }
    check.near(y:totable(), y2:totable(), near)
    check.near(y:totable(), ops.cast(ops.masked_attention(cast(q), cast(k), cast(v), all, { scale = -0.6 }),
      ms.float32):totable(), near)
    check.near(value:item(), value2:item(), 50 * near)
    for i = 1, 3 do check.near(gradients[i]:totable(), gradients2[i]:totable(), 20 * near) end
  end
end)

check.case("products of 16 bits do not overflow below a mask", function()
  local x = ops.cast(ms.ones { 1, 1, 2, 128 } * 30, ms.float16)
  local w = ops.cast(ms.Tensor { { { { 1, 2 }, { 3, 4 } } } }, ms.float16)
  local y = ops.scaled_dot_product_attention(x, x, w, { attn_mask = ops.greater(ms.ones { 2, 2 }, 0) })
  check.near(ops.cast(y, ms.float32):totable(), { { { { 2, 3 }, { 2, 3 } } } }, 1e-2)
end)

check.case("without keys every query gets zeros", function()
  for _, dtype in ipairs { "float32", "float64", "bfloat16" } do
    local query, none = ms.ones({ 1, 1, 2, 2 }, dtype), ms.zeros({ 1, 1, 0, 2 }, dtype)
    check.equal(ops.scaled_dot_product_attention(query, none, none):totable(), { { { { 0, 0 }, { 0, 0 } } } })
    local gradient = ms.grad(function(x)
      return ops.reduce_sum(ops.cast(ops.scaled_dot_product_attention(x, none, none), ms.float32))
    end)(query)
    check.equal(gradient:totable(), { { { { 0, 0 }, { 0, 0 } } } })
  end
end)

check.case("vectors of length 0 score alike", function()
  local none = ms.zeros { 1, 1, 2, 0 }
  local values = ms.Tensor { { { { 1, 2 }, { 3, 4 } } } }
  local function attend(x) return ops.scaled_dot_product_attention(none, none, x) end
  check.equal(attend(values):totable(), { { { { 2, 3 }, { 2, 3 } } } })
  local gradient = ms.grad(function(x) return ops.reduce_sum(attend(x)) end)(values)
  check.equal(gradient:totable(), { { { { 1, 1 }, { 1, 1 } } } })
end)

check.case("lengths of keys", function()
  local lengths = ms.Tensor({ 5, 2 }, ms.int32)
  expect(ops.scaled_dot_product_attention(q, k, v, { key_lengths = lengths }),
    function(r, _, _, j) return j <= (r == 1 and 5 or 2) end)
  expect(ops.scaled_dot_product_attention(q, k, v, { key_lengths = lengths, causal = true }),
    function(r, _, i, j) return j <= (r == 1 and 5 or 2) and j <= i + 2 end)
end)

local square = ms.Tensor({ { 1, 0, 1, 0, 1 }, { 0, 0, 0, 0, 0 }, { 0, 1, 0, 0, 0 } }, ms.int32)
local rows = square:totable()

check.case("a bool mask; a query that sees no key gets zeros", function()
  expect(ops.scaled_dot_product_attention(q, k, v, { attn_mask = ops.greater(square, 0) }),
    function(_, _, i, j) return rows[i][j] == 1 end)
end)

check.case("an additive mask, with lengths", function()
  local mask = (square:astype "float32" - 1) * 1e9
  expect(ops.scaled_dot_product_attention(q, k, v, { attn_mask = mask[1]:reshape(1, 5) }),
    function(_, _, _, j) return rows[1][j] == 1 end)
  expect(ops.scaled_dot_product_attention(q, k, v, {
    attn_mask = mask[1]:reshape(1, 5), key_lengths = ms.Tensor({ 4, 3 }, ms.int32),
  }), function(r, _, _, j) return rows[1][j] == 1 and j <= (r == 1 and 4 or 3) end)
end)

-- Gradients by q, k and v of the sum of attention, plain or causal.
local function gradients(q_, k_, v_, causal)
  return ms.grad(function(a, b, c)
    local y = ops.scaled_dot_product_attention(a, b, c, { causal = causal })
    return ops.reduce_sum(ops.cast(y, "float32"))
  end, { 1, 2, 3 })(q_, k_, v_)
end

check.case("scores far apart: one probability is 1, the others are 0, however large the scores are", function()
  for _, dtype in ipairs { "float32", "bfloat16" } do
    for _, size in ipairs { { 3, 5 }, { 64, 32 }, { 100, 20 }, { 64, 64 } } do
      local t, d = unpack(size)
      -- The second key's scores are the highest.
      local weight = ops.select(ops.equal(ops.iota { size = t }, 1), 1.5, 0.5)
      local keys = ops.cast((ms.rand({ t, d }, "float32", "keys") * 0.25 + 1) * weight:reshape(t, 1), dtype)
      local values = ms.rand({ 1, t, d }, dtype, "values")
      for _, factor in ipairs { 1e2, 1.1e4, 4.437e7, 1e9, 1e13 } do
        local queries = ops.cast(ms.rand({ 1, t, d }, "float32", "queries") + 1, dtype) * factor
        local y = ops.scaled_dot_product_attention(queries, keys:reshape(1, t, d), values)
        local wanted = ops.broadcast_to(values[{ {}, { 2, 2 } }], { 1, t, d })
        check.near(y:totable(), wanted:totable(), dtype == "float32" and 1e-6 or 1e-2)
        local by = gradients(queries, keys:reshape(1, t, d), values)
        local sums = by[3]:sum(3):reshape(t):totable()
        check.near(sums[2], t * d, 1e-6 * t * d)
        sums[2] = 0
        check.near(sums, ms.zeros({ t }):totable(), 0)
        -- The difference of two sums of the same products, times a query.
        check.near((by[2] * (1 / factor)):totable(), ms.zeros({ 1, t, d }):totable(), 1e-5 * t)
      end
    end
  end
end)

check.case("a key that is NaN makes the gradients of what is attended with it NaN", function()
  for _, dtype in ipairs { "float32", "bfloat16" } do
    for _, size in ipairs { { 2, 4 }, { 64, 32 }, { 100, 20 } } do
      local t, d = unpack(size)
      local nan = ops.select(ops.equal(ops.iota { size = t }, t - 1), 0 / 0, 1):reshape(1, t, 1)
      local queries, values = ms.randn({ 1, t, d }, dtype, "queries"), ms.randn({ 1, t, d }, dtype, "values")
      local keys = ops.cast(ms.randn({ 1, t, d }, "float32", "keys") * nan, dtype)
      for _, causal in ipairs { false, true } do
        local y = ops.cast(ops.scaled_dot_product_attention(queries, keys, values, { causal = causal }), "float32")
        local count = ops.cast(ops.isnan(y), "float32"):sum():item()
        check.equal(count, causal and d or t * d)
        local by_value = ops.cast(gradients(queries, keys, values, causal)[3], "float32")
        check.equal(ops.cast(ops.isnan(by_value), "float32"):sum():item(), t * d)
      end
    end
  end
end)

check.case("what does not fit", function()
  check.fails("does not broadcast to the scores", ops.scaled_dot_product_attention, q, k, v,
    { attn_mask = ops.greater(ms.ones { 4, 5 }, 0) })
  for _, lengths_ in ipairs { { 6, 3 }, { -1, 3 } } do
    check.fails_here(("scaled_dot_product_attention: key_lengths: expected 0 to 5, got %d"):format(lengths_[1]),
      function() ops.scaled_dot_product_attention(q, k, v, { key_lengths = ms.Tensor(lengths_, ms.int32) }) end)
    check.fails(("is %d, expected 0 to 5"):format(lengths_[1]), ms.grad(function(q_)
      return ops.reduce_sum(ops.scaled_dot_product_attention(q_, k, v,
        { key_lengths = ms.Tensor(lengths_, ms.int32) }))
    end), q)
  end
  check.fails("expected int32 [2]", ops.scaled_dot_product_attention, q, k, v, { key_lengths = ms.ones { 3 } })
  check.fails("expected a number that divides", ops.scaled_dot_product_attention, q, ms.ones { 2, 3, 5, 8 },
    ms.ones { 2, 3, 5, 8 })
  check.fails("q has 0 heads and k has 2", ops.scaled_dot_product_attention, ms.ones { 2, 0, 3, 8 }, k, v,
    { attn_mask = ms.ones { 3, 5 } })
  check.fails("unknown key 'mask'", ops.scaled_dot_product_attention, q, k, v, { mask = square })
end)

check.case("rotary positions keep norms, and products depend on distances alone", function()
  local x, y = ms.randn({ 1, 1, 1, 8 }, "float32", "x"), ms.randn({ 1, 1, 1, 8 }, "float32", "y")
  for _, mode in ipairs { "halves", "interleaved" } do
    local function at(a, b)
      local function turn(t, p)
        return ops.rotary_position_embedding(t, ms.Tensor({ p }, ms.int32), { mode = mode })
      end
      return (turn(x, a) * turn(y, b)):sum():item()
    end
    check.near(at(7, 3), at(14, 10), 1e-4)
    check.near(at(5, 5), (x * y):sum():item(), 1e-4)
    assert(math.abs(at(7, 3) - at(7, 4)) > 1e-3, "positions have no effect")
  end
  local both = ops.rotary_position_embedding(ms.ones { 2, 1, 2, 4 }, ms.Tensor({ { 0, 1 }, { 5, 6 } }, ms.int32))
  check.near(both[1][1][1]:totable(), { 1, 1, 1, 1 }, 0)
  check.near(both[2][1][2]:totable(), { math.cos(6) - math.sin(6), math.cos(0.06) - math.sin(0.06),
    math.cos(6) + math.sin(6), math.cos(0.06) + math.sin(0.06) }, 1e-5)
end)

check.case("MultiheadAttention: cross-attention and masks", function()
  local cell = nn.MultiheadAttention(8, 2)
  local x, memory = ms.randn({ 2, 3, 8 }, "float32", "mx"), ms.randn({ 2, 4, 8 }, "float32", "mm")
  check.near(cell(x, x, x):totable(), cell(x):totable(), 1e-6)
  check.near(cell(x, memory):totable(), cell(x, memory, memory):totable(), 1e-6)
  check.near(cell(x, memory, memory * 1):totable(), cell(x, memory):totable(), 1e-5)
  -- A padded key is as if it were not there.
  local padded = ops.greater(ms.Tensor({ { 0, 0, 0, 1 }, { 0, 0, 0, 1 } }, ms.int32), 0)
  local short = ops.strided_slice(memory, { 1, 1, 1 }, { 3, 4, 9 })
  check.near(cell(x, memory, { key_padding_mask = padded }):totable(), cell(x, short):totable(), 1e-5)
  -- attn_mask: true where a query must not see a key, as PyTorch has it.
  local above = ops.less(ops.reshape(ms.arange(3), { 3, 1 }), ops.reshape(ms.arange(3), { 1, 3 }))
  local causal = nn.MultiheadAttention(8, 2, { causal = true })
  local plain = nn.MultiheadAttention(8, 2)
  ms.load_param_into_net(plain, (function()
    local values = {}
    for _, p in ipairs(causal:get_parameters()) do values[p.name] = p.value end
    return values
  end)())
  check.near(plain(x, x, x, { attn_mask = above }):totable(), causal(x):totable(), 1e-5)
  check.fails("unknown argument 'mask'", cell, x, x, x, { mask = padded })
  check.fails("key_padding_mask: expected bool [2, 4]", cell, x, memory, { key_padding_mask = above })
end)

check.case("attention takes its mask, or causal, by position", function()
  local q, k = ms.randn({ 2, 4, 3, 8 }, "float32", "pq"), ms.randn({ 2, 2, 3, 8 }, "float32", "pk")
  local mask = ops.less_equal(ops.reshape(ms.arange(3), { 1, 3 }), ops.reshape(ms.arange(3), { 3, 1 }))
  for _, keys in ipairs { q * 0.5, k } do
    local wanted = ops.scaled_dot_product_attention(q, keys, keys, { causal = true }):totable()
    check.near(ops.scaled_dot_product_attention(q, keys, keys, true):totable(), wanted, 1e-6)
    check.near(ops.scaled_dot_product_attention(q, keys, keys, mask):totable(), wanted, 1e-5)
    check.near(ops.scaled_dot_product_attention(q, keys, keys, nil, nil, true):totable(), wanted, 1e-6)
    check.fails("one argument too many: 3", ops.scaled_dot_product_attention, q, keys, keys, true, 0.5, 3)
  end
end)

check.case("layers of transformers take masks in order or by name", function()
  local x, memory = ms.randn({ 3, 2, 8 }, "float32", "tx"), ms.randn({ 4, 2, 8 }, "float32", "tm")
  local above = ops.less(ops.reshape(ms.arange(3), { 3, 1 }), ops.reshape(ms.arange(3), { 1, 3 }))
  local padded = ops.greater(ms.Tensor({ { 0, 0, 0, 1 }, { 0, 0, 1, 1 } }, ms.int32), 0)
  local encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, { dropout = 0 }), 2)
  local decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, { dropout = 0 }), 2)
  check.equal(encoder(x, { src_mask = above }):totable(), encoder(x, above):totable())
  check.equal(encoder(memory, { src_key_padding_mask = padded }):totable(), encoder(memory, nil, padded):totable())
  check.equal(decoder(x, memory, { tgt_mask = above, memory_key_padding_mask = padded }):totable(),
    decoder(x, memory, above, nil, nil, padded):totable())
  check.equal(decoder(x, memory, above, { memory_key_padding_mask = padded }):totable(),
    decoder(x, memory, above, nil, nil, padded):totable())
  check.fails("TransformerEncoderLayer: unknown argument 'mask', expected src_mask, src_key_padding_mask", encoder, x,
    { mask = above })
end)

check.case("slices at places that are known when the step runs", function()
  local x = ms.zeros { 2, 3, 1 }
  local y = ops.update_slice(x, ms.ones { 2, 1, 1 }, ms.Tensor({ 0, 2 }, ms.int32))
  check.equal(y:reshape(2, 3):totable(), { { 1, 0, 0 }, { 0, 0, 1 } })
  local found = ops.slice_at(y, ms.Tensor({ 0, 1 }, ms.int32), { size = 2 })
  check.equal(found:reshape(2, 2):totable(), { { 1, 0 }, { 0, 1 } })
  check.fails("start[2] is 3", ops.update_slice, x, ms.ones { 2, 1, 1 }, ms.Tensor({ 0, 3 }, ms.int32))
end)

check.case("a key that one of two masks hides gets no weight", function()
  local x = ms.randn({ 2, 3, 8 }, "float32", "both")
  local hides = { { { 0, 1, 0 }, { 1, 1, 1 }, { 0, 0, 1 } }, { { 1, 1, 0 }, { 0, 0, 0 }, { 1, 0, 1 } } }
  local hidden = ops.greater(ms.Tensor(hides), 0)
  local padded = ops.greater(ms.Tensor({ { 0, 0, 1 }, { 1, 0, 1 } }, ms.int32), 0)
  for _, causal in ipairs { false, true } do
    local cell = nn.MultiheadAttention(8, 2, { causal = causal })
    local function loss(masks) return function(v) return ops.reduce_sum(cell(v, masks) * x) end end
    local wanted = { attn_mask = hidden, key_padding_mask = padded }
    for _, least in ipairs { -math.huge, -3.4e38 } do
      local floats = ops.select(hidden, least, ms.zeros { 2, 3, 3 })
      local masks = { attn_mask = floats, key_padding_mask = padded }
      if least == -math.huge then
        check.near(cell(x, masks):totable(), cell(x, wanted):totable(), 1e-6)
        check.near(ms.grad(loss(masks))(x):totable(), ms.grad(loss(wanted))(x):totable(), 1e-5)
      end
      -- What a hidden key holds does not matter.
      local other = ops.select(ops.reshape(padded, { 2, 3, 1 }), x + 5, x)
      check.near(cell(x, other, masks):totable(), cell(x, x, masks):totable(), 1e-6)
    end
  end
  local floats = ops.select(ops.greater(square, 0), 0, ms.full({ 3, 5 }, -math.huge))
  for _, causal in ipairs { false, true } do
    expect(ops.scaled_dot_product_attention(q, k, v, {
      attn_mask = floats, key_lengths = ms.Tensor({ 4, 2 }, ms.int32), causal = causal,
    }), function(r, _, i, j) return rows[i][j] == 1 and j <= (r == 1 and 4 or 2) and (not causal or j <= i + 2) end)
  end
end)

check.case("causal attention does not see what follows, whatever its floats are", function()
  local last = ms.Tensor { { -3e38, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 } }
  local x = ms.randn({ 1, 1, 3, 4 }, "float32", "follows")
  local later = ops.concat(ops.strided_slice(x, { 1, 1, 1 }, { 2, 2, 2 }), ms.ones { 1, 1, 2, 4 } * 7, 3)
  local function first(v)
    return ops.scaled_dot_product_attention(x, v, v, { causal = true, attn_mask = last })[1][1][1]:totable()
  end
  check.near(first(later), first(x), 1e-6)
end)

check.done()
