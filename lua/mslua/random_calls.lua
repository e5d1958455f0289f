--- How often math.random was called: a function of samples that calls it makes others in a training that resumes.
local random, calls = math.random, 0

function math.random(...)
  calls = calls + 1
  return random(...)
end

---@return integer
return function() return calls end
