-- Reads a data set from end to end: mslua run read_rate.lua -- npz|tar PATH WORKERS. Prints its bytes, the seconds that
-- opening it takes, and those of reading.
local ms = require "mslua"
local now = require "uptime"
local kind, path, workers = ...

local options = { num_parallel_workers = tonumber(workers) }
local ds
if kind == "npz" then
  ds = ms.dataset.NumpyDataset(path, options)
else
  options.image = "ppm"
  ds = ms.dataset.TarDataset(path, options)
end
ds = ds:batch(32, { drop_remainder = true })

local begun = now()
ds:get_dataset_size()
local opened, bytes = now(), 0
for x in ds:create_tuple_iterator(1) do bytes = bytes + x.size end
print(("%.0f %.2f %.2f"):format(bytes, opened - begun, now() - opened))
