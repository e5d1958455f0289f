--- Swin Transformer (Liu et al., 2021): tiny, small, base. Parameters have the names of torchvision's, but for gamma
--- and beta.
-- Letters of shapes: n pictures, h x w patches, c channels, s the side of a window, t = s * s patches of a window.
local args = require "mslua.args"
local errors = require "mslua.errors"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local normal = { "truncated_normal", sigma = 0.02 }

local function dense(n_in, n_out, has_bias)
  return nn.Dense(n_in, n_out, { weight_init = normal, bias_init = "zeros", has_bias = has_bias ~= false })
end

-- Windows of [n, h, w, c] as [n * windows, t, c], and back.
local function to_windows(x, s)
  local n, h, w, c = unpack(x.shape)
  x = ops.transpose(ops.reshape(x, { n, h / s, s, w / s, s, c }), { 1, 2, 4, 3, 5, 6 })
  return ops.reshape(x, { n * h / s * w / s, s * s, c })
end

local function from_windows(x, s, n, h, w)
  local c = x.shape[3]
  x = ops.transpose(ops.reshape(x, { n, h / s, w / s, s, s, c }), { 1, 2, 4, 3, 5, 6 })
  return ops.reshape(x, { n, h, w, c })
end

-- For each pair of patches of a window, the row of the table of biases that belongs to their distance.
local function distances(s)
  local rows = {}
  for a = 0, s * s - 1 do
    for b = 0, s * s - 1 do
      local dy = math.floor(a / s) - math.floor(b / s) + s - 1
      rows[#rows + 1] = dy * (2 * s - 1) + a % s - b % s + s - 1
    end
  end
  return ms.Tensor(rows, ms.int32)
end

-- For windows of pictures that were shifted, [windows, 1, t, t]: -100 between patches that were no neighbours.
local function borders(h, w, s, shift_h, shift_w)
  local function part(at, size, shift) return at < size - s and 0 or at < size - shift and 1 or 2 end
  local values = {}
  for top = 0, h - s, s do
    for left = 0, w - s, s do
      local parts = {}
      for i = 0, s * s - 1 do
        parts[i] = 3 * part(top + math.floor(i / s), h, shift_h) + part(left + i % s, w, shift_w)
      end
      for a = 0, s * s - 1 do
        for b = 0, s * s - 1 do values[#values + 1] = parts[a] == parts[b] and 0 or -100 end
      end
    end
  end
  return ops.reshape(ms.Tensor(values), { h / s * w / s, 1, s * s, s * s })
end

-- Attention within windows, which are shifted by half of their side in every other block.
local Attention = nn.Cell:extend "SwinAttention"

function Attention:init(c, dim, heads, shifted)
  self.heads, self.side, self.shift = heads, c.window, shifted and math.floor(c.window / 2) or 0
  self.qkv, self.proj = dense(dim, 3 * dim), dense(dim, dim)
  self:parameter("relative_position_bias_table", { (2 * c.window - 1) ^ 2, heads }, normal)
  self.distances = distances(c.window)
  self.dropout, self.drop_weights = nn.Dropout { p = c.dropout }, nn.Dropout { p = c.attention_dropout }
end

-- Scores [windows, heads, t, t] of queries and keys, with what distances add.
function Attention:scores(q, k, mask, n)
  local t, heads, width = self.side ^ 2, self.heads, q.shape[4]
  local scores = ops.matmul(q * width ^ -0.5, k, { transpose_b = true })
  local bias = ops.reshape(ops.gather(self.relative_position_bias_table, self.distances), { t, t, heads })
  scores = scores + ops.reshape(ops.transpose(bias, { 3, 1, 2 }), { 1, heads, t, t })
  if not mask then return scores end
  local windows = q.shape[1]
  scores = ops.reshape(scores, { n, windows / n, heads, t, t }) + mask:astype(scores.dtype)
  return ops.reshape(scores, { windows, heads, t, t })
end

-- x [n, h, w, c], sizes that windows divide.
function Attention:construct(x)
  local n, h, w, c = unpack(x.shape)
  local s = self.side
  -- A picture of one window is not shifted.
  local shift_h, shift_w = s < h and self.shift or 0, s < w and self.shift or 0
  local shifted = shift_h + shift_w > 0
  if shifted then x = ops.roll(x, { shift = { -shift_h, -shift_w }, axis = { 2, 3 } }) end
  local rows = to_windows(x, s)
  local windows, t = rows.shape[1], s * s
  local qkv = ops.reshape(self.qkv(rows), { windows, t, 3, self.heads, c / self.heads })
  local parts = { ops.split(ops.transpose(qkv, { 3, 1, 4, 2, 5 }), { axis = 1, output_num = 3 }) }
  for i, part in ipairs(parts) do parts[i] = ops.reshape(part, { windows, self.heads, t, c / self.heads }) end
  local mask = shifted and borders(h, w, s, shift_h, shift_w)
  local weights = self.drop_weights(ops.softmax(self:scores(parts[1], parts[2], mask, n), -1))
  local y = ops.transpose(ops.matmul(weights, parts[3]), { 1, 3, 2, 4 })
  y = self.dropout(self.proj(ops.reshape(y, { windows, t, c })))
  y = from_windows(y, s, n, h, w)
  return shifted and ops.roll(y, { shift = { shift_h, shift_w }, axis = { 2, 3 } }) or y
end

local Block = nn.Cell:extend "SwinBlock"

function Block:init(c, dim, heads, shifted, drop_path)
  self.side = c.window
  self.norm1, self.attn = nn.LayerNorm(dim), Attention(c, dim, heads, shifted)
  self.norm2 = nn.LayerNorm(dim)
  self.mlp = nn.SequentialCell {
    dense(dim, 4 * dim), nn.GELU { approximate = false }, nn.Dropout { p = c.dropout }, dense(4 * dim, dim),
    nn.Dropout { p = c.dropout },
  }
  self.drop_path = nn.DropPath(drop_path)
end

-- Zeros behind the last rows and columns, up to sizes that windows divide.
function Block:attention(x)
  local n, h, w, c = unpack(x.shape)
  local high = { 0, -h % self.side, -w % self.side, 0 }
  if high[2] + high[3] == 0 then return self.attn(x) end
  local y = self.attn(ops.pad(x, { high = high }))
  return ops.strided_slice(y, { 1, 1, 1, 1 }, { n + 1, h + 1, w + 1, c + 1 })
end

function Block:construct(x)
  x = x + self.drop_path(self:attention(self.norm1(x)))
  return x + self.drop_path(self.mlp(self.norm2(x)))
end

-- Four neighbouring patches become one of twice the channels.
local Merging = nn.Cell:extend "SwinMerging"

function Merging:init(dim)
  self.norm, self.reduction = nn.LayerNorm(4 * dim), dense(4 * dim, 2 * dim, false)
end

function Merging:construct(x)
  local n, h, w, c = unpack(x.shape)
  if h % 2 + w % 2 > 0 then
    x = ops.pad(x, { high = { 0, h % 2, w % 2, 0 } })
    h, w = h + h % 2, w + w % 2
  end
  -- [n, h/2, 2, w/2, 2, c]: the column comes before the row in the order of the four.
  x = ops.transpose(ops.reshape(x, { n, h / 2, 2, w / 2, 2, c }), { 1, 2, 4, 5, 3, 6 })
  return self.reduction(self.norm(ops.reshape(x, { n, h / 2, w / 2, 4 * c })))
end

local Order = nn.Cell:extend "Order"
function Order:construct(x) return ops.transpose(x, { 1, 3, 4, 2 }) end

local Swin = nn.Cell:extend "Swin"

function Swin:init(c)
  if #c.depths ~= #c.heads then
    errors.fail("Swin: depths and heads: expected a number for each stage in both, got %d and %d", #c.depths, #c.heads)
  end
  self.features = nn.SequentialCell {
    nn.SequentialCell {
      nn.Conv2d(3, c.dim, c.patch, { stride = c.patch, pad_mode = "valid", has_bias = true }), Order(),
      nn.LayerNorm(c.dim),
    },
  }
  local count, made, dim = 0, 0, c.dim
  for _, depth in ipairs(c.depths) do count = count + depth end
  for stage, depth in ipairs(c.depths) do
    if dim % c.heads[stage] ~= 0 then
      errors.fail("Swin: heads: %d of stage %d do not divide its %d channels", c.heads[stage], stage, dim)
    end
    local row = nn.SequentialCell {}
    for i = 1, depth do
      row:append(Block(c, dim, c.heads[stage], i % 2 == 0, c.drop_path * made / math.max(1, count - 1)))
      made = made + 1
    end
    self.features:append(row)
    if stage < #c.depths then
      self.features:append(Merging(dim))
      dim = 2 * dim
    end
  end
  self.norm, self.head = nn.LayerNorm(dim), dense(dim, c.classes)
end

--- Pictures [n, 3, height, width] give logits [n, classes].
function Swin:construct(x) return self.head(ops.reduce_mean(self.norm(self.features(x)), { 2, 3 })) end

local M = {}

for name, shape in pairs {
  swin_t = { 96, { 2, 2, 6, 2 }, { 3, 6, 12, 24 }, 0.2 }, swin_s = { 96, { 2, 2, 18, 2 }, { 3, 6, 12, 24 }, 0.3 },
  swin_b = { 128, { 2, 2, 18, 2 }, { 4, 8, 16, 32 }, 0.5 },
} do
  local bind = args.signature(name, {
    { "classes", "integer", 1000, min = 1 }, { "patch", "integer", 4, min = 1 }, { "window", "integer", 7, min = 1 },
    { "dim", "integer", shape[1], min = 1 },
    { "depths", "integers", shape[2], min = 1 }, { "heads", "integers", shape[3], min = 1 },
    { "dropout", "number", 0, min = 0, below = 1 }, { "attention_dropout", "number", 0, min = 0, below = 1 },
    { "drop_path", "number", shape[4], min = 0, below = 1 },
  })
  --- `swin_t { classes = 1000 }`; depths, heads: blocks and heads of each stage, whose channels double from `dim` on;
  --- window: its side in patches; drop_path: the probability that a row skips a branch of the last block.
  M[name] = function(...) return Swin(bind(...)) end
end

return M
