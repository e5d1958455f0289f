-- The seconds since this machine was started: a clock that runs while the process waits.
return function()
  local file = assert(io.open "/proc/uptime")
  local seconds = file:read "*n"
  file:close()
  return seconds
end
