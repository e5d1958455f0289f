-- A function of workers that takes as many microseconds a sample as it is told, as an augmentation of a user would.
local microseconds = ...

return function(x)
  local stop = os.clock() + microseconds * 1e-6
  while os.clock() < stop do end
  return x
end
