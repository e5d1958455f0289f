-- Writes what transforms make of pictures as PNG files: mslua run transforms.lua -- PICTURES OUT JOBS
-- PICTURES is a .npy file of uint8 [n, h, w, 3] or float32 [n, h, w, 3], or a folder of images. Of each picture a file
-- OUT/NAME_INDEX.png is a grid of one column; float32 pictures are coordinates, from 0 to 1. JOBS is a Lua table of
-- {NAME, CLASS, {arguments}}.
local ms = require "mslua"
local vision = ms.dataset.vision
local pictures, out, jobs = ...

ms.set_seed(7)
for _, job in ipairs(assert(loadstring("return " .. jobs))()) do
  local name, class, arguments = unpack(job)
  local ds
  if pictures:find "%.npy$" then
    ds = ms.dataset.NumpyDataset(pictures):rename({ "x" }, { "image" })
  else
    ds = ms.dataset.ImageFolderDataset(pictures, { shuffle = false }):project { "image" }
  end
  if class then ds = ds:map { operations = vision[class](arguments), input_columns = "image" } end
  local index = 0
  for x in ds:map { operations = vision.HWC2CHW(), input_columns = "image" }:batch(100):create_tuple_iterator(1) do
    ms.image.write(("%s/%s_%d.png"):format(out, name, index), x, { columns = 1, padding = 0 })
    index = index + 1
  end
end
