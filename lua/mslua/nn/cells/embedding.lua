--- nn.Embedding: a row of a table for each id.
local args = require "mslua.args"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"

local Embedding = Cell:extend "Embedding"

local bind = args.signature("Embedding", {
  { "vocab_size", "integer", required = true, min = 1 },
  { "embedding_size", "integer", required = true, min = 1 },
  { "embedding_table", "any", "normal" },
})

--- A trained table with a row for each id: `nn.Embedding(vocab_size, embedding_size)`. embedding_table says how it is
--- initialised.
function Embedding:init(...)
  local a = bind(...)
  self.vocab_size, self.embedding_size = a.vocab_size, a.embedding_size
  self:parameter("embedding_table", { a.vocab_size, a.embedding_size }, a.embedding_table)
  self.op = ops.Gather { axis = 1 }
end

--- ids int32 [..] from 0 give [.., embedding_size].
function Embedding:construct(ids) return self.op(self.embedding_table, ids) end

function Embedding:extra() return ("%d x %d"):format(self.vocab_size, self.embedding_size) end

return Embedding
