-- Reads pictures as trainings do: mslua run jpeg_folder.lua -- crop|cache|arrays PATH WORKERS EPOCHS
-- Prints the images per second of each epoch. PATH is a folder of JPEGs; for `arrays`, a .npy file of pictures of 224
-- pixels.
local ms = require "mslua"
local vision = ms.dataset.vision
local kind, path, workers, epochs = ...

local mean, std = { 0.485, 0.456, 0.406 }, { 0.229, 0.224, 0.225 }
local chain = {
  vision.RandomHorizontalFlip(), vision.Rescale(1 / 255, 0), vision.Normalize(mean, std), vision.HWC2CHW(),
}
local options = { shuffle = kind ~= "cache", num_parallel_workers = tonumber(workers) }
local ds
if kind == "arrays" then
  ds = ms.dataset.NumpyDataset(path, options):rename({ "x" }, { "image" })
else
  ds = ms.dataset.ImageFolderDataset(path, options)
end
if kind == "cache" then
  ds = ds:map { operations = vision.Resize { 224, 224 }, input_columns = "image" }:cache():shuffle(4096)
elseif kind == "crop" then
  table.insert(chain, 1, vision.RandomResizedCrop(224))
end
ds = ds:map { operations = chain, input_columns = "image" }:batch(32)

local function now()
  local file = assert(io.open "/proc/uptime")
  local seconds = file:read "*n"
  file:close()
  return seconds
end

local batches = ds:get_dataset_size()
for _ = 1, tonumber(epochs) do
  local seen, begun = 0, now()
  local left = batches
  for image in ds:create_tuple_iterator(1) do
    seen, left = seen + image.shape[1], left - 1
  end
  assert(left == 0)
  print(("%.1f"):format(seen / (now() - begun)))
end
