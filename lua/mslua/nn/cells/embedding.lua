--- nn.Embedding, EmbeddingBag: rows of a table for ids, one by one or reduced over bags of them.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local Initializer = require "mslua.initializer"
local Parameter = require("mslua.parameter").Parameter

local M = {}

-- The table's parameter and the operator that reads it. Rows above vocab_size are never read. `zero_row`: a row that is
-- 0 at first; nil: none.
local function make_table(self, a, zero_row)
  self.vocab_size, self.embedding_size, self.padding_idx = a.vocab_size, a.embedding_size, a.padding_idx
  if a.padding_idx and a.padding_idx >= a.vocab_size then
    errors.fail("%s: padding_idx: expected an id below vocab_size = %d, got %d", self.class_name, a.vocab_size,
      a.padding_idx)
  end
  local height = math.ceil(a.vocab_size / a.multiple_of) * a.multiple_of
  local init = Initializer(a.embedding_table, { height, a.embedding_size })
  init.zero_row = zero_row
  self.embedding_table = Parameter(init, "embedding_table")
  self.op = ops.Gather { axis = 1, limit = height > a.vocab_size and a.vocab_size or 0 }
end

-- Of both cells.
local vocab_size, embedding_size, embedding_table =
  { "vocab_size", "integer", required = true, min = 1, doc = "the number of ids, which are 0 to vocab_size - 1" },
  { "embedding_size", "integer", required = true, min = 1, doc = "the size of a row of the table" },
  { "embedding_table", "initializer", "normal",
    doc = 'the initial table, a row for each id and for each that multiple_of adds; "normal" has mean 0 and standard '
      .. "deviation 0.01 (in PyTorch 1)" }
local multiple_of = { "multiple_of", "integer", 1, min = 1,
  doc = "the table has as many rows more as make its height a multiple of it, so that ranks can split the rows" }

M.Embedding = Cell:extend "Embedding"
local bind = args.signature("Embedding", {
  vocab_size, embedding_size, embedding_table, multiple_of,
  { "padding_idx", "integer", nil, min = 0,
    doc = "an id whose row begins at 0 and gets no gradient; default: none" },
})

--- A trained table with a row for each id: `nn.Embedding(vocab_size, embedding_size)`. embedding_table says how it is
--- initialised. `multiple_of = 24` adds rows that are never read, so that 2, 3, 4, 6, 8, 12 or 24 ranks can split them.
--- The row of the id `padding_idx` begins at 0, also where embedding_table is a tensor, and gets no gradient.
function M.Embedding:init(...)
  local a = bind(...)
  make_table(self, a, a.padding_idx)
end

--- ids int32 [..] from 0 give [.., embedding_size].
function M.Embedding:construct(ids)
  local rows = self.op(self.embedding_table, ids)
  if not self.padding_idx then return rows end
  local shape = ids.shape
  shape[#shape + 1] = 1
  local padded = ops.reshape(ops.equal(ids, self.padding_idx), shape)
  return ops.select(padded, ops.stop_gradient(rows), rows)
end

function M.Embedding:extra() return ("%d x %d"):format(self.vocab_size, self.embedding_size) end

M.EmbeddingBag = Cell:extend "EmbeddingBag"
local bind_bag = args.signature("EmbeddingBag", {
  vocab_size, embedding_size, embedding_table,
  { "mode", "string", "mean", choices = { "mean", "sum", "max" }, doc = "how the rows of a bag become one" },
  { "padding_idx", "integer", nil, min = 0, doc = "an id that does not count in its bag; default: none" },
  multiple_of,
})

--- A trained table whose rows are reduced over bags of ids, as PyTorch's: `nn.EmbeddingBag(vocab_size, embedding_size,
--- { mode = "sum" })`. mode is "mean" (default), "sum" or "max". Ids equal to padding_idx count for nothing; a bag
--- without other ids gives zeros. multiple_of as in nn.Embedding.
function M.EmbeddingBag:init(...)
  local a = bind_bag(...)
  make_table(self, a)
  self.mode = a.mode
end

-- Whether each id counts, as numbers of the table's type and the ids' shape; nil: all do.
local function counted(self, ids)
  if not self.padding_idx then return nil end
  return ops.not_equal(ids, self.padding_idx):astype(self.embedding_table.dtype)
end

-- Numbers that are known at once are checked at once.
local function check_offsets(ids, offsets)
  local list, n = core.kind(offsets) == "Tensor" and offsets:totable(), ids.shape[1]
  if not list then return end
  local before, fits = 0, #offsets.shape == 1 and (list[1] or n) == 0
  for _, offset in ipairs(fits and list or {}) do
    fits = fits and offset >= before and offset <= n
    before = offset
  end
  if not fits then
    errors.fail("EmbeddingBag: offsets: expected places from 0 on in ascending order, up to the number of ids = %d, "
      .. "got %s", n, errors.show(list))
  end
end

local function check_weights(self, ids, weights)
  if self.mode ~= "sum" then
    errors.fail('EmbeddingBag: per_sample_weights need mode "sum", got "%s"', self.mode)
  end
  local given = core.kind(weights) and weights.shape or weights
  if given ~= ids.shape then
    errors.fail("EmbeddingBag: per_sample_weights: expected the ids' shape %s, got %s", errors.show(ids.shape),
      errors.show(given))
  end
end

-- The number of the bag of each of the n ids: how many bags begin at or before its place, less one. -1, which no
-- operator takes, for every id where offsets are not in ascending order or go beyond the ids.
local function bags_of(ids, offsets)
  local n, bags = ids.shape[1], offsets.shape[1]
  local places = ops.iota { size = n, dtype = offsets.dtype }
  local begun = ops.less_equal(ops.reshape(offsets, { 1, bags }), ops.reshape(places, { n, 1 }))
  local bag = ops.reduce_sum(begun:astype "int32", { axis = 2 }) - 1
  local last = core.full({ 1 }, n, offsets.dtype)
  local ends = bags > 1 and ops.concat(ops.strided_slice(offsets, { 2 }, { bags + 1 }), last) or last
  local fits = ops.reduce_min(ops.cast(ops.less_equal(offsets, ends), "int32"), { keep_dims = true })
  return ops.select(ops.greater(fits, 0), bag, -1)
end

-- Sums or means of rows [n, d] that `add` adds up over bags; `weights` [n] or nil.
local function reduced(self, rows, weights, add, shape)
  local column = { unpack(shape) }
  column[#column + 1] = 1
  local sum = add(weights and rows * ops.reshape(weights, column) or rows)
  if self.mode == "sum" then return sum end
  local ones = weights or core.full(shape, 1, self.embedding_table.dtype)
  return sum / ops.maximum(add(ops.reshape(ones, column)), 1)
end

--- ids int32 [n, l] give [n, embedding_size], a bag a row; their offsets are nil. ids [l] go with `offsets` int32 [n],
--- where the first bag begins at 0 and each goes up to the next, and give the same; this form has no mode "max".
--- Offsets are in ascending order and at most l. With mode "sum", `per_sample_weights` of the ids' shape multiply the
--- rows.
function M.EmbeddingBag:construct(ids, offsets, per_sample_weights)
  local flat = #ids.shape == 1
  if not flat and #ids.shape ~= 2 then
    errors.fail("EmbeddingBag: ids: expected [n, l], or [l] with offsets, got %s", errors.show(ids.shape))
  elseif flat ~= (offsets ~= nil) then
    errors.fail("EmbeddingBag: offsets: expected %s", flat and "the place where each bag of ids [l] begins"
      or "none with ids [n, l], whose rows are the bags")
  elseif flat and self.mode == "max" then
    errors.fail('EmbeddingBag: mode "max" needs ids [n, l], got %s: pad the bags with a padding_idx',
      errors.show(ids.shape))
  elseif flat and (not core.kind(offsets) or #offsets.shape ~= 1) then
    errors.fail("EmbeddingBag: offsets: expected int32 [n], got %s", errors.show(offsets))
  end
  if per_sample_weights then check_weights(self, ids, per_sample_weights) end
  local rows, weights = self.op(self.embedding_table, ids), counted(self, ids)
  if per_sample_weights then weights = weights and weights * per_sample_weights or per_sample_weights end
  if self.mode == "max" then return self:largest(rows, weights) end
  local add
  if flat then
    check_offsets(ids, offsets)
    local bags = bags_of(ids, offsets)
    add = function(x) return ops.scatter_sum(bags, x, { size = offsets.shape[1] }) end
  else
    add = function(x) return ops.reduce_sum(x, { axis = 2 }) end
  end
  return reduced(self, rows, weights, add, ids.shape)
end

-- The largest of the rows [n, l, d] that count.
function M.EmbeddingBag:largest(rows, counts)
  if rows.shape[2] == 0 then return ops.reduce_sum(rows, { axis = 2 }) end  -- zeros
  if not counts then return ops.reduce_max(rows, { axis = 2 }) end
  local n, l = rows.shape[1], rows.shape[2]
  local keep = ops.greater(ops.reshape(counts, { n, l, 1 }), 0)
  local least = ops.reduce_max(ops.select(keep, rows, -math.huge), { axis = 2 })
  local any = ops.greater(ops.reduce_sum(counts, { axis = 2, keep_dims = true }), 0)
  return ops.select(any, least, 0)
end

function M.EmbeddingBag:extra()
  return ("%d x %d, %s"):format(self.vocab_size, self.embedding_size, self.mode)
end

return M
