-- Compares scalar functions at NaN, infinities, zeros and halves, and optimizers over some steps, with PyTorch's:
-- mslua run functions.lua functions.json
-- tools/golden/functions.py wrote the file, from the same initial values and gradients.
local core = require "mslua.core"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

-- JSON of numbers, plain strings, booleans, lists and objects, as a Lua table.
local function read_json(file)
  local text = assert(io.open(file, "rb")):read "*a"
  text = text:gsub("[%[%]]", { ["["] = "{", ["]"] = "}" }):gsub('("[^"]*")%s*:', "[%1]=")
  return assert(loadstring("return " .. text))()
end

local golden = read_json(core.options.args[1])
local failures, compared = {}, 0

local named = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }
local function number(word) return named[word] or assert(tonumber(word), word) end

-- Where mslua differs on purpose: the sign of NaN is NaN, so that it is not lost. relu gives 0 for -0.
local differs = { sign = { nan = "nan" }, relu = { ["-0.0"] = "0.0" } }

local function same(a, b, tolerance)
  if a ~= a or b ~= b then return a ~= a and b ~= b end
  if a == 0 and b == 0 then return 1 / a == 1 / b end
  return a == b or math.abs(a - b) <= tolerance * math.max(math.abs(b), 1e-30)
end

local inputs = {}
for i, word in ipairs(golden.inputs) do inputs[i] = number(word) end

local function check_function(case, reference)
  ms.set_context { reference_kernels = reference }
  local x, f = ms.Tensor(inputs, case.dtype), ops[case["function"]]
  local y
  if case.pairs then
    local n = golden.paired
    x = ops.strided_slice(x, { 1 }, { n + 1 })
    y = f(ops.broadcast_to(ops.reshape(x, { n, 1 }), { n, n }), ops.broadcast_to(ops.reshape(x, { 1, n }), { n, n }))
  else
    y = f(x)
  end
  y = ops.reshape(ops.cast(y, "float64"), { -1 }):totable()
  local tolerance = case.dtype == "float64" and 1e-13 or 2e-6
  local i = 0
  for word in case.values:gmatch "%S+" do
    i = i + 1
    local given = case.pairs and ("%s, %s"):format(golden.inputs[math.floor((i - 1) / golden.paired) + 1],
      golden.inputs[(i - 1) % golden.paired + 1]) or golden.inputs[i]
    local wanted = (differs[case["function"]] or {})[given] or word
    compared = compared + 1
    -- Below the least normal number a result may be 0; the sign of a zero of two operands is not compared.
    local got, want = y[i], number(wanted)
    local tiny = case.dtype == "float64" and 2.3e-308 or 1.2e-38
    local both_tiny = math.abs(want) < tiny and math.abs(got) < tiny and (case.pairs or want ~= 0)
    if not both_tiny and not same(got, want, tolerance) then
      failures[#failures + 1] = ("%s of %s (%s%s): expected %s, got %.17g"):format(case["function"], given, case.dtype,
        reference and ", reference kernel" or "", wanted, got)
    end
  end
end

for _, case in ipairs(golden.functions) do
  check_function(case, true)
  check_function(case, false)
end
ms.set_context { reference_kernels = false }

core.set_seed(golden.seed)
local worst = 0
for index, case in ipairs(golden.optimizers) do
  for dtype, tolerance in pairs { float64 = 1e-13, float32 = 1e-6 } do
    local w = ms.Parameter(core.randn(golden.shape, "float32", "w"):astype(dtype), ("w%d.%s"):format(index, dtype))
    local options = { params = { w } }
    for key, v in pairs(case.options) do options[key] = v end
    local update = nn[case.optimizer](options)
    for step, wanted in ipairs(case.after) do
      update({ core.randn(golden.shape, "float32", "gradient." .. step):astype(dtype) }, { w })
      local got = ops.reshape(ops.cast(w.value, "float64"), { -1 }):totable()
      for i, v in ipairs(wanted) do
        local difference = math.abs(got[i] - v) / math.max(1, math.abs(v))
        if dtype == "float32" then worst = math.max(worst, difference) end
        if not (difference <= tolerance) then
          failures[#failures + 1] = ("%s, case %d, %s, step %d: expected %.12g within %g, got %.12g"):format(
            case.optimizer, index, dtype, step, v, tolerance, got[i])
          break
        end
      end
    end
  end
end

print(("%d values of functions, %d optimizers, largest difference in float32 %.3g"):format(compared,
  #golden.optimizers, worst))
if #failures > 0 then error(table.concat(failures, "\n"), 0) end
