-- What `mslua lr-find` says of a curve of losses.
local check = require "check"
local lr_find = require "mslua.lr_find"

-- The points of losses, with noise of this deviation.
local function points(losses, noise, seed)
  local found, mean = {}, 0
  math.randomseed(seed)
  for i, loss in ipairs(losses) do
    local sum = -6
    for _ = 1, 12 do sum = sum + math.random() end
    loss = loss + noise * sum
    mean = 0.9 * mean + 0.1 * loss
    found[i] = { lr = lr_find.rate(i - 1, #losses), loss = loss, smoothed = mean / (1 - 0.9 ^ i) }
  end
  return found
end

local function curve(f)
  local losses = {}
  for i = 1, 100 do losses[i] = f(i) end
  return losses
end

check.case("noise gives no suggestion", function()
  for seed = 1, 20 do check.equal(lr_find.middle(points(curve(function() return 0.7 end), 0.03, seed)), nil) end
end)

check.case("a fall gives its middle", function()
  local losses = curve(function(i) return i <= 50 and 1 or i <= 80 and 1 - 0.02 * (i - 50) or 0.4 + 0.2 * (i - 80) end)
  for seed = 1, 5 do
    local lr = lr_find.middle(points(losses, 0.03, seed))
    assert(lr and lr > lr_find.rate(58, 100) and lr < lr_find.rate(72, 100), tostring(lr))
  end
  assert(lr_find.middle(points(losses, 0, 1)))
end)

check.case("few points give no suggestion", function()
  check.equal(lr_find.middle(points({ 3, 2, 1 }, 0, 1)), nil)
  check.equal(lr_find.middle(points({ 10, 9, 8, 7, 6, 5, 4, 3, 2 }, 0, 1)), nil)
end)

check.done()
