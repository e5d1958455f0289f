--- Normalisation: nn.BatchNorm1d BatchNorm2d BatchNorm3d GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d
--- LayerNorm RMSNorm.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local Cell = require "mslua.cell"
local convolution = require "mslua.nn.convolution"

local M = {}

-- The arguments gamma_init and beta_init for parameters of the shape that `shape` names.
local function gamma_init(shape)
  return { "gamma_init", "initializer", "ones", doc = "the initial gamma " .. shape .. ", the factor" }
end
local function beta_init(shape)
  return { "beta_init", "initializer", "zeros", doc = "the initial beta " .. shape .. ", the shift" }
end

local function eps_field(name, default)
  return { name, "number", default, above = 0, doc = "added to the variance, so that its root is never 0" }
end

local affine = { "affine", "boolean", true,
  doc = "true: gamma and beta are trained; false: they keep their initial values" }
local num_features = { "num_features", "integer", required = true, min = 1, doc = "the number c of channels of x" }

M.BatchNorm2d = Cell:extend "BatchNorm2d"

local batch_fields = {
  num_features, eps_field("eps", 1e-5),
  { "momentum", "number", 0.9, min = 0, max = 1,
    doc = "the weight of the old running statistics, as in MindSpore; PyTorch's momentum is 1 minus this" },
  affine, gamma_init "[c]", beta_init "[c]",
  { "moving_mean_init", "initializer", "zeros", doc = "the initial running mean [c]" },
  { "moving_var_init", "initializer", "ones", doc = "the initial running variance [c]" },
  { "use_batch_statistics", "boolean", doc = "true: the batch's statistics in evaluation too; false: the running ones "
    .. "in training too, which then stay as they are; default: the batch's in training alone" },
}
M.BatchNorm2d._bind = args.signature("BatchNorm2d", batch_fields)

--- Batch normalization: each channel of [n, c, h, w] to mean 0 and variance 1 over the batch, then times gamma plus
--- beta (Ioffe and Szegedy, 2015). Running statistics: moving = momentum * moving + (1 - momentum) * batch's; the
--- running variance is unbiased; of one value a channel it is 0. With MindSpore's momentum: 0.9 is PyTorch's 0.1. To
--- train the rest of a network with fixed statistics set use_batch_statistics = false, also of a cell that is there:
--- `bn.use_batch_statistics = false`.
---@param ... any num_features, eps, momentum, affine, gamma_init, beta_init, moving_mean_init, moving_var_init,
---  use_batch_statistics
function M.BatchNorm2d:init(...)
  local a = self._bind(...)
  local shape = { a.num_features }
  self.eps, self.momentum, self.num_features = a.eps, a.momentum, a.num_features
  self.use_batch_statistics = a.use_batch_statistics
  self:parameter("gamma", shape, a.gamma_init, { requires_grad = a.affine })
  self:parameter("beta", shape, a.beta_init, { requires_grad = a.affine })
  self:state("moving_mean", shape, a.moving_mean_init)
  self:state("moving_variance", shape, a.moving_var_init)
end

-- Of images, whatever the class.
local function normalize(self, x)
  local training, of_batch = core.training(), self.use_batch_statistics
  if of_batch == nil then of_batch = training end
  local y, mean, variance = ops.batch_norm.all(x, self.gamma, self.beta, self.moving_mean, self.moving_variance, {
    training = of_batch, momentum = 1 - self.momentum, eps = self.eps,
  })
  if training and of_batch then
    core.assign(self.moving_mean, mean)
    core.assign(self.moving_variance, variance)
  end
  return y
end

function M.BatchNorm2d:construct(x)
  convolution.check_rank("BatchNorm2d", x, { "n", "c", "h", "w" })
  return normalize(self, x)
end

function M.BatchNorm2d:extra() return tostring(self.num_features) end

M.BatchNorm1d = M.BatchNorm2d:extend "BatchNorm1d"
M.BatchNorm1d._bind = args.signature("BatchNorm1d", batch_fields)

--- Batch normalization of [n, c] or [n, c, length], as BatchNorm2d.
function M.BatchNorm1d:construct(x)
  local shape = x.shape
  if #shape ~= 2 and #shape ~= 3 then
    errors.fail("BatchNorm1d: x: expected [n, c] or [n, c, l], got %s", errors.show(shape))
  end
  return (ops.reshape(normalize(self, ops.reshape(x, { shape[1], shape[2], shape[3] or 1, 1 })), shape))
end

M.BatchNorm3d = M.BatchNorm2d:extend "BatchNorm3d"
M.BatchNorm3d._bind = args.signature("BatchNorm3d", batch_fields)

--- Batch normalization of [n, c, d, h, w], as BatchNorm2d.
function M.BatchNorm3d:construct(x)
  convolution.check_rank("BatchNorm3d", x, { "n", "c", "d", "h", "w" })
  local shape = x.shape
  local n, c, d, h, w = unpack(shape)
  return (ops.reshape(normalize(self, ops.reshape(x, { n, c, d, h * w })), shape))
end

M.GroupNorm = Cell:extend "GroupNorm"

local bind_group = args.signature("GroupNorm", {
  { "num_groups", "integer", required = true, min = 1, doc = "the number of groups; it divides num_channels" },
  { "num_channels", "integer", required = true, min = 1, doc = "the number c of channels of x" },
  eps_field("eps", 1e-5), affine, gamma_init "[c]", beta_init "[c]",
})

--- Group normalization: groups of channels of each image of [n, c, h, w] (Wu and He, 2018). (num_groups, num_channels,
--- eps = 1e-5, affine = true)
function M.GroupNorm:init(...)
  local a = bind_group(...)
  if a.num_channels % a.num_groups ~= 0 then
    errors.fail("GroupNorm: num_groups = %d does not divide num_channels = %d", a.num_groups, a.num_channels)
  end
  self.num_groups, self.eps, self.num_channels = a.num_groups, a.eps, a.num_channels
  self:parameter("gamma", { a.num_channels }, a.gamma_init, { requires_grad = a.affine })
  self:parameter("beta", { a.num_channels }, a.beta_init, { requires_grad = a.affine })
end

function M.GroupNorm:construct(x)
  return (ops.group_norm(x, self.gamma, self.beta, { groups = self.num_groups, eps = self.eps }))
end

function M.GroupNorm:extra() return ("%d groups, %d channels"):format(self.num_groups, self.num_channels) end

for name, dims in pairs {
  InstanceNorm1d = { "n", "c", "l" }, InstanceNorm2d = { "n", "c", "h", "w" },
  InstanceNorm3d = { "n", "c", "d", "h", "w" },
} do
  local InstanceNorm = M.GroupNorm:extend(name)
  local bind = args.signature(name, {
    num_features, eps_field("eps", 1e-5), affine, gamma_init "[c]", beta_init "[c]",
  })
  InstanceNorm.doc = ("Instance normalization: each channel of each sample of [%s] to mean 0 and variance 1, then "
    .. "times gamma plus beta (Ulyanov et al., 2016), in training and in evaluation alike. affine = false keeps gamma "
    .. "and beta as they begin."):format(table.concat(dims, ", "))
  function InstanceNorm:init(...)
    local a = bind(...)
    self.num_groups, self.num_channels, self.eps = a.num_features, a.num_features, a.eps
    self:parameter("gamma", { a.num_features }, a.gamma_init, { requires_grad = a.affine })
    self:parameter("beta", { a.num_features }, a.beta_init, { requires_grad = a.affine })
  end
  function InstanceNorm:construct(x)
    convolution.check_rank(name, x, dims)
    return M.GroupNorm.construct(self, x)
  end
  function InstanceNorm:extra() return tostring(self.num_channels) end
  M[name] = InstanceNorm
end

-- The trailing dimensions that are normalised together: a list, of a number too.
local function trailing(name, shape)
  if type(shape) == "number" then return { shape } end
  if #shape == 0 then
    errors.fail("%s: normalized_shape: expected the last dimension or dimensions, e.g. {128}, got {}", name)
  end
  return shape
end

-- normalise(x, gamma, beta) over one dimension, of x whose last dimensions are those of the cell.
local function over_trailing(self, x, normalise)
  local dims = self.normalized_shape
  if #dims == 1 then return normalise(x, self.gamma, self.beta) end
  local shape, flat, width = x.shape, {}, 1
  for i, size in ipairs(dims) do
    if shape[#shape - #dims + i] ~= size then
      errors.fail("%s: x: expected the last dimensions %s, got %s", self.class_name, errors.show(dims),
        errors.show(shape))
    end
    width = width * size
  end
  for d = 1, #shape - #dims do flat[d] = shape[d] end
  flat[#flat + 1] = width
  local y = normalise(ops.reshape(x, flat), ops.reshape(self.gamma, { width }),
    self.beta and ops.reshape(self.beta, { width }))
  return (ops.reshape(y, shape))
end

local function shown_dims(self) return table.concat(self.normalized_shape, "x") end

local normalized_shape = { "normalized_shape", "integer|integers", required = true, min = 1,
  doc = "the sizes of the last dimensions of x, which are normalised together: 128 or {h, w}" }

M.LayerNorm = Cell:extend "LayerNorm"

local bind_layer = args.signature("LayerNorm", {
  normalized_shape, eps_field("epsilon", 1e-5), gamma_init "of normalized_shape", beta_init "of normalized_shape",
})

--- Layer normalization: the last dimension to mean 0 and variance 1, then times gamma plus beta (Ba et al., 2016).
--- normalized_shape {h, w}: the last two dimensions together, and so on; gamma and beta have this shape.
--- (normalized_shape, epsilon = 1e-5)
function M.LayerNorm:init(...)
  local a = bind_layer(...)
  self.normalized_shape, self.epsilon = trailing("LayerNorm", a.normalized_shape), a.epsilon
  self:parameter("gamma", self.normalized_shape, a.gamma_init)
  self:parameter("beta", self.normalized_shape, a.beta_init)
end

function M.LayerNorm:construct(x)
  return over_trailing(self, x, function(rows, gamma, beta)
    return (ops.layer_norm(rows, gamma, beta, { eps = self.epsilon }))
  end)
end
M.LayerNorm.extra = shown_dims

M.RMSNorm = Cell:extend "RMSNorm"

local bind_rms = args.signature("RMSNorm", {
  normalized_shape,
  { "epsilon", "number", 1e-6, above = 0, doc = "added to the mean of the squares, so that its root is never 0" },
  gamma_init "of normalized_shape",
})

--- RMS normalization: the last dimension to unit root mean square, then times gamma (Zhang and Sennrich, 2019).
--- normalized_shape as of nn.LayerNorm. (normalized_shape, epsilon = 1e-6)
function M.RMSNorm:init(...)
  local a = bind_rms(...)
  self.normalized_shape, self.epsilon = trailing("RMSNorm", a.normalized_shape), a.epsilon
  self:parameter("gamma", self.normalized_shape, a.gamma_init)
end

function M.RMSNorm:construct(x)
  return over_trailing(self, x, function(rows, gamma)
    return (ops.rms_norm(rows, gamma, { eps = self.epsilon }))
  end)
end
M.RMSNorm.extra = shown_dims

return M
