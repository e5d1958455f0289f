--- ResNet as torchvision and timm name it, with the config.json of timm: `architecture` says how deep it is. Sizes and
--- the stem come from the tensors.
local rows = {}

-- A normalisation: its scale, shift and running statistics.
local function add_norm(name, ours)
  rows[#rows + 1] = { name .. ".weight", ours .. ".gamma" }
  rows[#rows + 1] = { name .. ".bias", ours .. ".beta" }
  rows[#rows + 1] = { name .. ".running_mean", ours .. ".moving_mean" }
  rows[#rows + 1] = { name .. ".running_var", ours .. ".moving_variance" }
  rows[#rows + 1] = { name .. ".num_batches_tracked", nil, "ignored" }
end

local function add(name, ours, norm, our_norm)
  rows[#rows + 1] = { name .. ".weight", ours .. ".weight" }
  add_norm(norm, our_norm or norm)
end

add("conv1", "conv1", "bn1")
for stage = 1, 4 do
  local block = ("layer%d.#."):format(stage)
  for i = 1, 3 do add(block .. "conv" .. i, block .. "conv" .. i, block .. "bn" .. i) end
  add(block .. "downsample.0", block .. "down_conv", block .. "downsample.1", block .. "down_bn")
end
rows[#rows + 1] = { "fc.weight", "fc.weight" }
rows[#rows + 1] = { "fc.bias", "fc.bias" }

---@type mslua.Family
return {
  model_type = "resnet", rows = rows, heads = { "^fc%." },
  architectures = { "resnet18", "resnet34", "resnet50", "resnet101", "resnet152" },
  network = function(c, has, refuse)
    local stem, head = has "conv1.weight", has "fc.weight"
    if not stem then refuse("architecture", "a network with conv1.weight") end
    return require "mslua.models.resnet"[c.architecture] {
      num_classes = head and head[1], width = stem[1], stem = stem[3] == 3 and "cifar" or "imagenet",
    }
  end,
  config = function(net)
    local fc = net.fc
    return { architecture = net.config.architecture, num_classes = fc.out_channels, num_features = fc.in_channels }
  end,
}
