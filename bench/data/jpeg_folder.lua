-- Reads pictures as trainings do: mslua run jpeg_folder.lua -- crop|cache|arrays PATH WORKERS EPOCHS
-- Prints the images per second of each epoch. PATH is a folder of JPEGs; for `arrays`, a .npy file of pictures of 224
-- pixels.
local ms = require "mslua"
local now = require "uptime"
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

-- One iterator: its workers and its memory last over the epochs, as those of torch's persistent workers do.
local batches = ds:get_dataset_size()
local next_batch = tonumber(epochs) > 0 and ds:create_tuple_iterator(tonumber(epochs))
for _ = 1, tonumber(epochs) do
  local seen, begun = 0, now()
  for _ = 1, batches do seen = seen + next_batch().shape[1] end
  print(("%.1f"):format(seen / (now() - begun)))
end
