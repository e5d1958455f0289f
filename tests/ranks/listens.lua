-- Prints the addresses other than 127.0.0.1 and ::1 on which this rank listens.
local ms = require "mslua"
ms.communication.init()
local pid = io.open("/proc/self/stat"):read "*n"
local own, found = {}, {}
for line in io.popen("ls -l /proc/" .. pid .. "/fd"):lines() do
  local inode = line:match "socket:%[(%d+)%]"
  if inode then own[inode] = true end
end
for _, family in ipairs { "tcp", "tcp6" } do
  for line in io.lines("/proc/self/net/" .. family) do
    local address, state, inode = line:match "^%s*%d+: (%x+:%x+) %S+ (%x%x) %S+ %S+ %S+%s+%d+%s+%d+ (%d+)"
    local loopback = address and (address:find "^0100007F:" or address:find "^0+1000000:")
    if state == "0A" and own[inode] and not loopback then found[#found + 1] = address end
  end
end
local listed = #found == 0 and "no" or table.concat(found, " ")
print(("rank %d listens beyond this host: %s"):format(ms.communication.get_rank(), listed))
