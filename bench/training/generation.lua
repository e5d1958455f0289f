-- Tokens of a network in a folder as Hugging Face has it, each alone and with its whole window again:
--   OMP_NUM_THREADS=1 mslua run bench/training/generation.lua FOLDER [float32|bfloat16] [TOKENS]
-- Processor time: divide the parameters' bytes by that of a token for the rate at which memory is read.
local core = require "mslua.core"
local ms = require "mslua"

local folder, dtype, tokens = unpack(core.options.args)
local net = ms.from_pretrained(folder, dtype or "float32")
net:set_train(false)
local prompt = {}
for i = 1, tonumber(tokens or 512) do prompt[i] = i end

local function least_time(repeats, f)
  local least = math.huge
  for _ = 1, repeats do
    local begun = os.clock()
    f()
    least = math.min(least, os.clock() - begun)
  end
  return least
end

local ids = ms.Tensor({ prompt }, ms.int32)
net(ids)  -- compiles
local window = least_time(3, function() return net(ids)[1][#prompt][1] end)

local times, last = {}, nil
net:generate(prompt, {
  count = 40, temperature = 0,
  on_token = function()
    local now = os.clock()
    times[#times + 1], last = last and now - last, now
  end,
})
table.remove(times, 1)  -- it compiled
table.sort(times)
local token, bytes = times[math.ceil(#times / 2)], 0
for _, p in ipairs(net:get_parameters()) do
  local elements = 1
  for _, d in ipairs(p.shape) do elements = elements * d end
  bytes = bytes + elements * (p.dtype == "bfloat16" and 2 or 4)
end
print(("a token: median %.1f ms, least %.1f, %.1f GB/s; %d tokens again: %.0f ms, %.1f times a token"):format(
  token * 1e3, times[1] * 1e3, bytes / times[1] * 1e-9, #prompt, window * 1e3, window / token))
