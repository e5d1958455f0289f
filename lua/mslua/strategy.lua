--- Strategies: the number of shards of each dimension of each tensor.
local args = require "mslua.args"
local errors = require "mslua.errors"

local M = {
  holder = nil,  -- who was given the first one: "MatMul:shard", "ms.shard"
}

local function counts_text(what, counts)
  local problem = args.problem({ "", "integers", check = function(list)
    for _, n in ipairs(list) do
      if n < 1 then return ("expected numbers of shards of at least 1, got %d"):format(n) end
    end
  end }, counts)
  if problem then return nil, ("%s: %s"):format(what, problem) end
  return "(" .. table.concat(counts, ",") .. ")"
end

--- {{2, 4}, {4, 1}} as the graph keeps it: "((2,4),(4,1))"; or nil and what is wrong.
---@param what string for the message
---@param strategy integer[][]
---@return string?, string?
function M.text(what, strategy)
  if not args.is_list(strategy) or #strategy == 0 then
    return nil, ("%s: expected a list with the numbers of shards of each tensor, such as {{2, 4}, {4, 1}}, got %s")
      :format(what, errors.show(strategy))
  end
  local parts = {}
  for i, counts in ipairs(strategy) do
    local text, problem = counts_text(("%s, tensor %d"):format(what, i), counts)
    if problem then return nil, problem end
    parts[i] = text
  end
  return "(" .. table.concat(parts, ",") .. ")"
end

return M
