--- Keys and values of the tokens that a network has seen: what generation keeps, so that a new token is computed alone.
---
--- A network that generates asks for positions, attends and picks its last row by the functions of this file. Without a
--- cache in use they do what training needs.
local core = require "mslua.core"
local errors = require "mslua.errors"
local ops = require "mslua.ops"

local M = {}

---@class mslua.KvCache
---@field block integer tokens of a row that it holds
---@field start Value int32 [n]: how many tokens each row has behind it
---@field count Value int32 [n]: how many of the new tokens of each row count
---@field prefill boolean whether the new tokens are the first
---@field entries table<Cell, {key: Parameter, value: Parameter}>
---@field parents Value? int32 [n]: each row continues the tokens of that row, from 0; nil: its own
---@field beams integer? how many rows of the cache belong to a row of what `keep` makes; default 1
---@field kept table<Cell, Parameter[]>? what `keep` holds

local current  -- mslua.KvCache?, while a graph of generation is traced

--- Runs f(...) with a cache in use.
---@param cache mslua.KvCache
function M.with(cache, f, ...)
  local before = current
  current = cache
  local results = { pcall(f, ...) }
  current = before
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2)
end

-- The memory of a cell's keys and values, made at its first call.
local function entry_of(cell, k, v)
  local entry = current.entries[cell]
  if not entry then
    local number = current.made or 0
    local function state(name, of)
      local shape = of.shape
      return core.state {
        name = ("cache.%d.%s"):format(number, name), dtype = of.dtype, init = "zeros",
        shape = { shape[1], shape[2], current.block, shape[4] },
      }
    end
    entry = { key = state("key", k), value = state("value", v) }
    current.entries[cell], current.made = entry, number + 1
  end
  return entry
end

--- Positions of t new tokens, from 0: int32 [t], or [n, t] with a cache.
function M.positions(t)
  local steps = ops.iota { size = t }
  if not current then return steps end
  return ops.reshape(current.start, { -1, 1 }) + ops.reshape(steps, { 1, t })
end

--- Causal attention of q [n, h, t, d] over keys and values [n, g, t, d] and those in the cache.
---@param cell Cell whose keys and values they are
function M.attend(cell, q, k, v, how)
  if not current then return ops.scaled_dot_product_attention(q, k, v, how) end
  if not (how and how.causal) then
    errors.fail("%s: generation needs causal attention", cell.class_name)
  end
  local entry = entry_of(cell, k, v)
  local keys, values = entry.key, entry.value
  if current.parents then keys, values = ops.gather(keys, current.parents), ops.gather(values, current.parents) end
  keys = ops.update_slice(keys, k, current.start, { axis = 3 })
  values = ops.update_slice(values, v, current.start, { axis = 3 })
  core.assign(entry.key, keys)
  core.assign(entry.value, values)
  -- Tokens that fill up shorter prompts stand behind theirs: no token that counts sees them.
  if current.prefill then return ops.scaled_dot_product_attention(q, k, v, how) end
  return ops.scaled_dot_product_attention(q, keys, values, {
    scale = how.scale, key_lengths = current.start + current.count,
  })
end

-- x [n, ..] with each row `beams` times, one after another.
local function repeated(x, beams)
  if beams == 1 then return x end
  local shape, wide = x.shape, { x.shape[1], beams }
  for i = 2, #shape do wide[i + 1] = shape[i] end
  x = ops.broadcast_to(ops.expand_dims(x, 2), wide)
  table.remove(wide, 1)
  wide[1] = shape[1] * beams
  return ops.reshape(x, wide)
end

--- What `make` gives, a list of values that do not depend on the tokens that are generated, such as an encoder's result
--- and its projections. With a cache they are computed with the first tokens and kept for those that follow.
---@param cell Cell whose values they are
---@param make fun(): Value[]
---@param once? boolean the values have a row for each row of the cache already
---@return Value[]
function M.keep(cell, make, once)
  if not current then return make() end
  current.kept = current.kept or {}
  if not current.prefill then return (assert(current.kept[cell], "kv_cache.keep: the first tokens come first")) end
  local values, states = make(), current.kept[cell] or {}
  for i, value in ipairs(values) do
    value = repeated(value, once and 1 or current.beams or 1)
    values[i] = value
    if not states[i] then
      local number = current.made or 0
      current.made = number + 1
      states[i] = core.state { name = ("cache.%d.kept"):format(number), dtype = value.dtype, init = "zeros",
        shape = value.shape }
    end
    core.assign(states[i], value)
  end
  current.kept[cell] = states
  return values
end

--- Whether a cache is in use whose first tokens have been computed.
function M.continues() return current ~= nil and not current.prefill end

--- x [n, t, d], or with a cache the row [n, 1, d] of each sequence's last token.
function M.last(x)
  if not current then return x end
  return ops.slice_at(x, current.count - 1, { size = 1, axis = 2 })
end

return M
