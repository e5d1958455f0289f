--- Activations of ms.ops that are made of other operators. The cells of nn call them.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local fused = require "mslua.fused"

args.kind("operand", function(v) return core.kind(v) ~= nil end, "a tensor")

local x = { "x", "operand", required = true, doc = "the tensor" }
local lambd = { "lambd", "number", 0.5, min = 0, doc = "elements from -lambd to lambd become 0" }
local axis = { "axis", "integer", -1, doc = "the axis, from 1; -1: the last" }

--- Gives ms.ops the functions.
---@param ops table ms.ops under construction
return function(ops)
  local bind_leaky_relu = args.signature("leaky_relu", {
    x, { "alpha", "number", 0.2, min = 0, doc = "the slope where x is 0 or less; PyTorch's default is 0.01" },
  })

  local leaky_relu = fused(function(t, alpha) return (ops.select(ops.greater(t, 0), t, t * alpha)) end)

  --- x where it is above 0, alpha x elsewhere. PyTorch's default of alpha is 0.01. (x, alpha = 0.2)
  function ops.leaky_relu(...)
    local a = bind_leaky_relu(...)
    return leaky_relu(a.x, a.alpha)
  end

  local bind_elu = args.signature("elu", {
    x, { "alpha", "number", 1, min = 0, doc = "the factor of exp(x) - 1; the result is at least -alpha" },
  })

  local elu = fused(function(t, alpha)
    return (ops.select(ops.greater(t, 0), t, ops.expm1(ops.minimum(t, 0)) * alpha))
  end)

  --- x where it is above 0, alpha (exp(x) - 1) elsewhere. (x, alpha = 1)
  function ops.elu(...)
    local a = bind_elu(...)
    return elu(a.x, a.alpha)
  end

  local bind_selu = args.signature("selu", { x })

  local selu = fused(function(t)
    local scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    return (ops.select(ops.greater(t, 0), t * scale, ops.expm1(ops.minimum(t, 0)) * (scale * alpha)))
  end)

  --- ELU with the two numbers that keep mean 0 and variance 1 from layer to layer (Klambauer et al., 2017): 1.0507 x
  --- where x is above 0, 1.7581 (exp(x) - 1) elsewhere. (x)
  function ops.selu(...) return selu(bind_selu(...).x) end

  local bind_celu = args.signature("celu", {
    x, { "alpha", "number", 1, above = 0, doc = "the factor of exp(x / alpha) - 1; the result is at least -alpha" },
  })

  local celu = fused(function(t, alpha)
    return (ops.select(ops.greater(t, 0), t, ops.expm1(ops.minimum(t, 0) / alpha) * alpha))
  end)

  --- x where it is above 0, alpha (exp(x / alpha) - 1) elsewhere (Barron, 2017). (x, alpha = 1)
  function ops.celu(...)
    local a = bind_celu(...)
    return celu(a.x, a.alpha)
  end

  local bind_logsigmoid = args.signature("logsigmoid", { x })

  local logsigmoid = fused(function(t) return -ops.softplus(-t) end)

  --- log(1 / (1 + exp(-x))), exact for every x. (x)
  function ops.logsigmoid(...) return logsigmoid(bind_logsigmoid(...).x) end

  local bind_softsign = args.signature("softsign", { x })

  local softsign = fused(function(t) return t / (ops.abs(t) + 1) end)

  --- x / (1 + abs(x)). (x)
  function ops.softsign(...) return softsign(bind_softsign(...).x) end

  local bind_glu = args.signature("glu", { x, axis })

  local glu = fused(function(t, along)
    local left, right = ops.split(t, along, 2)
    return left * ops.sigmoid(right)
  end)

  --- a sigmoid(b) of the two halves a and b of x along an axis, whose size is even (Dauphin et al., 2017).
  --- (x, axis = -1)
  function ops.glu(...)
    local a = bind_glu(...)
    local shape = a.x.shape
    local size = shape[a.axis < 0 and #shape + 1 + a.axis or a.axis]
    if not size or size % 2 ~= 0 then
      errors.fail("GLU: x: expected an even size along axis %d, got %s", a.axis, errors.show(shape))
    end
    return glu(a.x, a.axis)
  end

  local bind_prelu = args.signature("prelu", {
    x, { "weight", "operand", required = true,
      doc = "the slopes where x is 0 or less: one for all elements, or one for each channel of x [n, channel, ...]" },
  })

  local prelu = fused(function(t, weight) return (ops.select(ops.greater(t, 0), t, t * weight)) end)

  --- x where it is above 0, weight x elsewhere: weight has one number, or one for each channel of x [n, channel, ...].
  --- (x, weight)
  function ops.prelu(...)
    local a = bind_prelu(...)
    local sizes, channels, shape = a.x.shape, 1, {}
    for _, size in ipairs(a.weight.shape) do channels = channels * size end
    for d = 1, #sizes do shape[d] = 1 end
    if channels ~= 1 then
      local channel = math.min(2, #sizes)
      if sizes[channel] ~= channels then
        errors.fail("PReLU: x: expected %d channels, [n, %d, ...], got %s", channels, channels, errors.show(sizes))
      end
      shape[channel] = channels
    end
    return prelu(a.x, ops.reshape(a.weight, shape))
  end

  local bind_softmin = args.signature("softmin", { x, axis })

  --- softmax of -x along an axis. (x, axis = -1)
  function ops.softmin(...)
    local a = bind_softmin(...)
    return (ops.softmax(-a.x, a.axis))
  end

  local bind_hardshrink = args.signature("hardshrink", { x, lambd })

  local hardshrink = fused(function(t, edge) return (ops.select(ops.less_equal(ops.abs(t), edge), 0, t)) end)

  --- x where its absolute value is above lambd, 0 elsewhere. (x, lambd = 0.5)
  function ops.hardshrink(...)
    local a = bind_hardshrink(...)
    return hardshrink(a.x, a.lambd)
  end

  local bind_softshrink = args.signature("softshrink", { x, lambd })

  local softshrink = fused(function(t, edge)
    return (ops.select(ops.less_equal(ops.abs(t), edge), 0, t - ops.sign(t) * edge))
  end)

  --- x - lambd where x is above lambd, x + lambd where it is below -lambd, 0 elsewhere. (x, lambd = 0.5)
  function ops.softshrink(...)
    local a = bind_softshrink(...)
    return softshrink(a.x, a.lambd)
  end
end
