--- `pairs` of mslua's Lua states: the keys come in the same order in each process. LuaJIT's own order depends on random
--- numbers, so that a network that is built or computed in a loop of pairs would be another one on each rank, and after
--- a start from a checkpoint.
---
--- Numbers come first, then strings, each in rising order (strings by their bytes), then false and true. Keys of other
--- types, which have no order, come last. As with Lua's own, a loop may change or remove fields that are there.
local next, own, rawget, sort, type = next, pairs, rawget, table.sort, type

local CLASSES = { number = 1, string = 2, boolean = 3 }

local function is_before(a, b)
  local class, other = CLASSES[type(a)], CLASSES[type(b)]
  if class ~= other then return class < other end
  if class == 3 then return b and not a end
  return a < b
end

--- An iterator of a table's keys and values, the table, and nil, as Lua's pairs.
---@param t table
---@return fun(): any, any
---@return table t
---@return nil
return function(t)
  if type(t) ~= "table" then return own(t) end  -- the error of Lua's own
  local keys, n, others, is_list = {}, 0, nil, true
  for key in next, t do
    if CLASSES[type(key)] then
      n = n + 1
      keys[n] = key
      is_list = is_list and key == n
    else
      others = others or {}
      others[#others + 1] = key
    end
  end
  if not is_list then sort(keys, is_before) end
  for i = 1, others and #others or 0 do keys[n + i] = others[i] end
  local at = 0
  return function()
    while true do
      at = at + 1
      local key = keys[at]
      if key == nil then return nil end
      local value = rawget(t, key)
      if value ~= nil then return key, value end
    end
  end, t, nil
end
