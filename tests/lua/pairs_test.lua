-- pairs gives the keys of a table in one order in each process: ranks build and compute the same network.
local ms = require "mslua"
local check = require "check"
local nn, ops = ms.nn, ms.ops

local function keys(t)
  local all = {}
  for key in pairs(t) do all[#all + 1] = tostring(key) end
  return table.concat(all, " ")
end

check.case("numbers come first, then strings, then booleans, each in rising order", function()
  local t = { "a", "b", [true] = 1, zeta = 1, [10] = 1, alpha = 1, [-1.5] = 1, [false] = 1, Beta = 1, [3] = 1 }
  check.equal(keys(t), "-1.5 1 2 3 10 Beta alpha zeta false true")
  check.equal(keys { 5, 6, 7 }, "1 2 3")
  check.equal(keys {}, "")
end)

check.case("keys without an order come last, each once", function()
  local key, other = {}, function() end
  local seen, last = {}, nil
  for k, v in pairs { [key] = 1, x = 2, [other] = 3, [1] = 4 } do seen[k], last = v, k end
  check.equal({ seen[key], seen.x, seen[other], seen[1] }, { 1, 2, 3, 4 })
  check.equal(type(last) == "string" or type(last) == "number", false)
end)

check.case("a loop may change and remove fields", function()
  local t, seen = { a = 1, b = 2, c = 3, d = 4 }, {}
  for key, v in pairs(t) do
    seen[#seen + 1] = key .. v
    if key == "a" then t.b, t.c, t.a = nil, 30, nil end
  end
  check.equal(table.concat(seen, " "), "a1 c30 d4")
  local values = setmetatable({ x = 1 }, { __index = function() return 7 end })
  local n = 0
  for key, v in pairs(values) do
    n = n + v
    values[key] = nil
  end
  check.equal(n, 1)
end)

check.case("what is no table is Lua's own error, at the line of the call", function()
  local _, problem = pcall(function() for _ in pairs(nil) do end end)
  check.equal(problem:match "pairs_test.lua:%d+: (.*)$", "bad argument #1 to 'pairs' (table expected, got nil)")
end)

check.case("a network built in a loop of pairs has its parameters in the order of the names", function()
  local Net = nn.Cell:extend "Net"
  function Net:init()
    local sizes = { gamma = 3, alpha = 1, delta = 4, beta = 2 }
    for name, n in pairs(sizes) do self[name] = nn.Dense(2, n, { has_bias = false }) end
  end
  function Net:construct(x)
    local sum = 0
    for _, cell in pairs { b = self.beta, a = self.alpha } do sum = sum + ops.reduce_sum(cell(x)) end
    return sum
  end
  local names = {}
  for i, p in ipairs(Net():get_parameters()) do names[i] = p.name end
  check.equal(table.concat(names, " "), "alpha.weight beta.weight delta.weight gamma.weight")
end)

check.done()
