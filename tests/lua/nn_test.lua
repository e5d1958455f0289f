-- Cells compute what their definitions say; numbers by hand, or by PyTorch where they are given to six digits.
local check = require "check"
local core = require "mslua.core"
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops

local function values(t) return t:totable() end

check.case("Dense", function()
  local fc = nn.Dense(2, 1, { weight_init = ms.Tensor { { 2, 3 } }, bias_init = ms.Tensor { 1 } })
  check.equal(values(fc(ms.Tensor { { 1, 1 }, { 0, 2 } })), { { 6 }, { 7 } })
  check.equal(values(fc(ms.Tensor { { { 1, 1 }, { 0, 2 } } })), { { { 6 }, { 7 } } })
  check.equal(#nn.Dense(2, 1, { has_bias = false }):get_parameters(), 1)
  check.fails_here("Dense: in_channels is 2, the last dimension of x is 3: x is {4, 3}",
    function() fc(ms.ones { 4, 3 }) end)
  check.fails_here("Dense: in_channels is 2, the last dimension of x is missing: x is {}",
    function() fc(ms.ones {}) end)
  check.fails_here("w is a parameter: convert x with :astype(ms.float32), or the column of the dataset with "
    .. "TypeCast(ms.float32)", function() fc(ms.ones({ 4, 2 }, ms.float64)) end)
end)

check.case("initial weights lie in their range and depend on seed and name only", function()
  local function weight()
    ms.set_seed(5)
    return values(nn.Dense(4, 3).weight.value)
  end
  local first = weight()
  for _, row in ipairs(first) do
    for _, v in ipairs(row) do
      if math.abs(v) > 0.5 then error("outside +-1/sqrt(4): " .. v) end
    end
  end
end)

check.case("Conv2d", function()
  local x = ms.Tensor({ { { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 } } } })
  local function conv(options)
    options.weight_init = "ones"
    return values(nn.Conv2d(1, 1, 2, options)(x))
  end
  check.equal(conv { pad_mode = "valid" }, { { { { 12, 16 }, { 24, 28 } } } })
  check.equal(conv { pad_mode = "valid", stride = 2 }, { { { { 12 } } } })
  check.equal(conv { pad_mode = "pad", padding = 1, stride = 2 }, { { { { 1, 5 }, { 11, 28 } } } })
  local biased = nn.Conv2d(1, 2, 1, { weight_init = "ones", has_bias = true, bias_init = ms.Tensor { 0, 10 } })
  check.equal(values(biased(x))[1][2][1], { 11, 12, 13 })
  check.fails_here("group = 2 does not divide", function() nn.Conv2d(3, 4, 1, { group = 2 }) end)
  check.fails_here("Conv2d: kernel_size: expected one number or 2, got", function() nn.Conv2d(1, 1, { 3, 3, 3 }) end)
  check.fails_here("Conv2d: stride: expected one number or 2, got",
    function() nn.Conv2d(1, 1, 3, { stride = { 1, 2, 3 } }) end)
  check.fails_here("Conv2dTranspose: of images of size {2, 2} the result would have size {0, 0}, expected at least 1",
    function() nn.Conv2dTranspose(1, 1, 3, { pad_mode = "pad", padding = 2 })(ms.ones { 1, 1, 2, 2 }) end)
  check.fails_here("Conv2dTranspose: dilation: expected one number or 2, got",
    function() nn.Conv2dTranspose(1, 1, 3, { dilation = { 1, 1, 1 } }) end)
  check.fails_here("Upsample: scale_factor: expected one number or 2, got", function() nn.Upsample { 2, 3, 4 } end)
  local size = { 3 }
  nn.Conv2d(1, 1, size)
  check.equal(#size, 1)
end)

check.case("Conv2dTranspose", function()
  local x = ms.Tensor({ 1, 2, 3, 4 }, ms.float32, { 1, 1, 2, 2 })
  local double = nn.Conv2dTranspose(1, 1, 2, { stride = 2, pad_mode = "valid", weight_init = "ones" })
  check.equal(values(double(x))[1][1], { { 1, 1, 2, 2 }, { 1, 1, 2, 2 }, { 3, 3, 4, 4 }, { 3, 3, 4, 4 } })
  -- The middle of every 3x3 kernel lies on a pixel of x; output_padding adds the last row and column.
  local more = nn.Conv2dTranspose(1, 1, 3, {
    stride = 2, pad_mode = "pad", padding = 1, output_padding = 1, weight_init = "ones",
    has_bias = true, bias_init = 10,
  })
  check.equal(values(more(x))[1][1],
    { { 11, 13, 12, 12 }, { 14, 20, 16, 16 }, { 13, 17, 14, 14 }, { 13, 17, 14, 14 } })
  check.equal(nn.Conv2dTranspose(4, 6, 3, { stride = 2, group = 2 })(ms.ones { 2, 4, 5, 7 }).shape, { 2, 6, 10, 14 })
  -- It is the transpose: the gradient by x of sum(y * T(x)) is the convolution of y.
  local conv = nn.Conv2d(1, 1, 2, { stride = 2, pad_mode = "valid", weight_init = double.weight.value })
  local y = ms.randn { 1, 1, 4, 4 }
  check.near(values(ms.grad(function(v) return ops.reduce_sum(double(v) * y) end)(x)), values(conv(y)), 1e-5)
  check.fails_here("Conv2dTranspose: x: expected [n, c, h, w], got {2, 2}", function() double(ms.ones { 2, 2 }) end)
  check.fails("padding is 1 but pad_mode is 'same': say pad_mode = 'pad'",
    function() nn.Conv2dTranspose(1, 1, 3, { padding = 1 }) end)
  check.fails("output_padding: expected less than the stride",
    function() nn.Conv2dTranspose(1, 1, 2, { stride = 2, output_padding = 1 }) end)
end)

check.case("convolutions of sequences and volumes", function()
  local x = ms.Tensor { { { 1, 2, 3, 4 } } }
  local function conv(options)
    options.weight_init = "ones"
    return values(nn.Conv1d(1, 1, 2, options)(x))[1][1]
  end
  check.equal(conv { pad_mode = "valid" }, { 3, 5, 7 })
  check.equal(conv {}, { 3, 5, 7, 4 })
  check.equal(conv { pad_mode = "pad", padding = { 1, 0 }, stride = 2 }, { 1, 5 })
  check.equal(conv { pad_mode = "pad", padding = 1, has_bias = true, bias_init = 10 }, { 11, 13, 15, 17, 14 })
  check.equal(nn.Conv1d(4, 6, 3, { group = 2 }).weight.shape, { 6, 2, 3 })
  local up = nn.Conv1dTranspose(1, 1, 2, { stride = 2, pad_mode = "valid", weight_init = "ones" })
  check.equal(values(up(x))[1][1], { 1, 1, 2, 2, 3, 3, 4, 4 })
  check.equal(nn.Conv1dTranspose(4, 6, 3, { stride = 2 })(ms.ones { 2, 4, 5 }).shape, { 2, 6, 10 })
  local v = ms.ones { 1, 1, 3, 3, 3 }
  local center = values(nn.Conv3d(1, 1, 3, { weight_init = "ones" })(v))[1][1]
  check.equal({ center[1][1][1], center[2][1][1], center[2][2][1], center[2][2][2] }, { 8, 12, 18, 27 })
  local strided = nn.Conv3d(2, 4, { 3, 1, 2 }, { stride = { 2, 1, 1 }, pad_mode = "valid" })
  check.equal(strided(ms.ones { 2, 2, 7, 3, 4 }).shape, { 2, 4, 3, 3, 3 })
  check.fails_here("Conv1d: x: expected [n, c, l], got {1, 1, 2, 2}",
    function() nn.Conv1d(1, 1, 2)(ms.ones { 1, 1, 2, 2 }) end)
  check.fails_here("Conv1d: padding is 1 but pad_mode is 'same': say pad_mode = 'pad'",
    function() nn.Conv1d(1, 1, 2, { padding = 1 }) end)
  check.fails_here("Conv3d: padding: expected 1, 3 or 6 numbers, got {1, 2}",
    function() nn.Conv3d(1, 1, 2, { pad_mode = "pad", padding = { 1, 2 } }) end)
  check.fails_here("Conv3d: stride: expected one number or 3, got {1, 2}",
    function() nn.Conv3d(1, 1, 2, { stride = { 1, 2 } }) end)
  check.fails_here("Conv3d: a kernel of depth 4 does not fit into 3 planes",
    function() nn.Conv3d(1, 1, { 4, 1, 1 }, { pad_mode = "valid" })(v) end)
end)

check.case("windows over sequences and volumes", function()
  local x = ms.Tensor { { { 1, 5, 2, 4, 3 } } }
  check.equal(values(nn.MaxPool1d(2)(x)), { { { 5, 4 } } })
  check.equal(values(nn.MaxPool1d(2, { ceil_mode = true })(x)), { { { 5, 4, 3 } } })
  check.equal(values(nn.AvgPool1d(2, 1)(x)), { { { 3, 3.5, 3, 3.5 } } })
  check.near(values(nn.AvgPool1d(3, { stride = 2, pad_mode = "pad", padding = 1, count_include_pad = false })(x)),
    { { { 3, 11 / 3, 3.5 } } }, 1e-6)
  check.equal(values(nn.AdaptiveMaxPool1d(2)(x)), { { { 5, 4 } } })
  check.near(values(nn.AdaptiveAvgPool1d(2)(x)), { { { 8 / 3, 3 } } }, 1e-6)
  local v = ms.arange(8):astype(ms.float32):reshape(1, 1, 2, 2, 2)
  check.equal(values(nn.MaxPool3d(2)(v)), { { { { { 7 } } } } })
  check.equal(values(nn.AvgPool3d(2)(v)), { { { { { 3.5 } } } } })
  check.equal(values(nn.MaxPool3d({ 1, 2, 2 })(v)), { { { { { 3 } }, { { 7 } } } } })
  check.fails_here("MaxPool1d: x: expected [n, c, l]", function() nn.MaxPool1d(2)(v) end)
end)

check.case("adaptive windows of sizes that do not divide, and of the input's size", function()
  local x = ms.arange(10):astype(ms.float32):reshape(1, 1, 2, 5)
  check.equal(values(nn.AdaptiveAvgPool2d { 1, 2 }(x)), { { { { 3.5, 5.5 } } } })
  check.equal(values(nn.AdaptiveMaxPool2d { 1, 2 }(x)), { { { { 7, 9 } } } })
  check.equal(values(nn.AdaptiveMaxPool2d { -1, 1 }(x)), { { { { 4 }, { 9 } } } })
  check.equal(values(nn.AdaptiveAvgPool2d { 1, -1 }(x)), { { { { 2.5, 3.5, 4.5, 5.5, 6.5 } } } })
  check.equal(nn.AdaptiveAvgPool2d(7)(x).shape, { 1, 1, 7, 7 })
  local ties = ms.zeros { 1, 1, 2, 4 }
  check.equal(values(ms.grad(function(t) return ops.reduce_sum(nn.AdaptiveMaxPool2d { 1, 2 }(t)) end)(ties)),
    { { { { 1, 0, 1, 0 }, { 0, 0, 0, 0 } } } })
  check.fails_here("output_size: expected one or two sizes of at least 1, or -1 for the input's, got 0",
    function() nn.AdaptiveAvgPool2d(0) end)
  check.fails_here("output_size: expected one or two sizes", function() nn.AdaptiveMaxPool2d { 1, 2, 3 } end)
end)

check.case("normalisation of instances, volumes and several dimensions", function()
  local x = ms.Tensor { { { 1, 3 }, { 2, 6 } } }
  check.near(values(nn.InstanceNorm1d(2)(x)), { { { -1, 1 }, { -1, 1 } } }, 1e-5)
  check.near(values(nn.InstanceNorm2d(2)(ops.reshape(x, { 1, 2, 1, 2 }))), { { { { -1, 1 } }, { { -1, 1 } } } }, 1e-5)
  check.equal(#nn.InstanceNorm1d(2, { affine = false }):trainable_params(), 0)
  check.fails_here("InstanceNorm2d: x: expected [n, c, h, w]", function() nn.InstanceNorm2d(2)(x) end)
  local both = nn.LayerNorm { 2, 2 }
  check.equal(both.gamma.shape, { 2, 2 })
  local mean, deviation = 3, math.sqrt((4 + 0 + 1 + 9) / 4 + 1e-5)
  check.near(values(both(x)), { { { (1 - mean) / deviation, 0 }, { (2 - mean) / deviation, (6 - mean) / deviation } } },
    1e-6)
  check.fails_here("LayerNorm: x: expected the last dimensions {2, 2}, got {2, 2, 3}",
    function() both(ms.ones { 2, 2, 3 }) end)
  check.fails_here("normalized_shape: expected the last dimension or dimensions",
    function() nn.LayerNorm { normalized_shape = {} } end)
  local root = math.sqrt((1 + 9 + 4 + 36) / 4 + 1e-6)
  check.near(values(nn.RMSNorm { 2, 2 }(x)), { { { 1 / root, 3 / root }, { 2 / root, 6 / root } } }, 1e-6)
end)

check.case("Upsample repeats pixels", function()
  local x = ms.Tensor({ 1, 2 }, ms.float32, { 1, 1, 1, 2 })
  check.equal(values(nn.Upsample { 2, 3 }(x))[1][1], { { 1, 1, 1, 2, 2, 2 }, { 1, 1, 1, 2, 2, 2 } })
  check.equal(values(ms.grad(function(v) return ops.reduce_sum(nn.Upsample(2)(v)) end)(x))[1][1], { { 4, 4 } })
  local large = ms.Tensor({ 2 ^ 24 + 1, -7 }, ms.int32, { 1, 1, 1, 2 })
  check.equal(values(nn.Upsample { 1, 2 }(large))[1][1], { { 2 ^ 24 + 1, 2 ^ 24 + 1, -7, -7 } })
  check.equal(values(nn.Upsample { 1, 2 }(ops.greater(x, 1)))[1][1], { { false, false, true, true } })
  check.equal(values(nn.Upsample({ 1, 2 }, "bilinear")(x))[1][1], { { 1, 1.25, 1.75, 2 } })
  check.fails('align_corners is for mode "bilinear"', nn.Upsample, 2, { align_corners = true })
end)

check.case("one matrix multiplies every row of a batch", function()
  local x, w = ms.arange(12):astype(ms.float32):reshape(2, 2, 3), ms.Tensor { { 1, 0 }, { 0, 1 }, { 1, 1 } }
  local want = { { { 2, 3 }, { 8, 9 } }, { { 14, 15 }, { 20, 21 } } }
  check.equal(values(ops.matmul(x, w)), want)
  check.equal(values(x:matmul(ops.transpose(w, { 2, 1 }), { transpose_b = true })), want)
end)

check.case("random numbers of a network are others at every step", function()
  local Noise, Losses = nn.Cell:extend "Noise", ms.Callback:extend "Losses"
  function Noise:init() self.fc = nn.Dense(2, 2) end
  function Noise:construct(x)
    return ops.reduce_sum(ops.stop_gradient(self.fc(x)) * 0 + ms.randn(x.shape) + ms.rand { 4, 2 } + self.fc.bias * 0)
  end
  function Losses:on_train_step_end(context) self.seen[context.loss] = true end
  local losses = Losses()
  losses.seen = {}
  local data = ms.dataset.NumpySlicesDataset(ms.ones { 12, 2 }):batch(4)
  ms.Model(Noise(), { optimizer = nn.SGD() }):train(1, data, { callbacks = losses })
  local n = 0
  for _ in pairs(losses.seen) do n = n + 1 end
  check.equal(n, 3)
end)

check.case("training takes whole batches: no row is made up", function()
  local Add, Losses = nn.Cell:extend "Add", ms.Callback:extend "Losses"
  function Add:init() self.w = self:parameter("w", { 1 }, "zeros") end
  function Add:construct(x) return self.w + x end
  function Losses:on_train_step_end(context) table.insert(self.seen, context.loss) end
  local x = ms.arange(10, 18):astype(ms.float32):reshape(8, 1)
  local function train(ds)
    local losses = Losses()
    losses.seen = {}
    local model = ms.Model(Add(), { loss_fn = nn.MSELoss(), optimizer = nn.SGD { learning_rate = 0 } })
    model:train(1, ds, { callbacks = losses })
    return losses.seen, model
  end
  local ds = ms.dataset.NumpySlicesDataset { x, x * 0 }
  local two = { (100 + 121 + 144) / 3, (169 + 196 + 225) / 3 }
  local seen, model = train(ds:batch(3))
  check.near(seen, two, 1e-4)
  check.equal(ds:batch(3):get_dataset_size(), 3)
  check.near(model:eval(ds:batch(3)).loss, (365 + 590 + 256 + 289) / 8, 1e-3)
  check.near(train(ds:batch(3, true)), two, 1e-4)
  check.equal(#train(ds:batch(4)), 2)
  check.equal(#train(ds:batch(3):repeat_(2)), 4)
  check.fails_here("train: training takes whole batches, and the dataset has none of 9 rows",
    function() train(ds:batch(9)) end)
  -- Of several ranks' batch, what the dataset has is compared with the rows of all.
  core.set_feed(3, 0)
  check.fails_here("train: training takes whole batches, and the dataset has none of 12 rows (4 rows x 3 ranks that "
    .. "share a batch): it has 8; make the batch smaller or start fewer ranks",
    function() ds:batch(4):whole_batches "train" end)
  core.set_feed(1, 0)
end)

check.case("pools", function()
  local x = ms.Tensor({ { { { 1, 2 }, { 3, 4 } } } })
  check.equal(values(nn.MaxPool2d(2)(x)), { { { { 4 } } } })
  check.equal(values(nn.AvgPool2d(2)(x)), { { { { 2.5 } } } })
  check.equal(values(nn.AdaptiveAvgPool2d(1)(x)), { { { { 2.5 } } } })
  check.equal(values(nn.Flatten()(x)), { { 1, 2, 3, 4 } })
end)

check.case("pools with ceil_mode and without the padding, as PyTorch's", function()
  local x = ops.reshape(ms.arange(1, 21):astype "float32", { 1, 1, 4, 5 })
  check.equal(values(nn.MaxPool2d(2, { ceil_mode = true })(x)), { { { { 7, 9, 10 }, { 17, 19, 20 } } } })
  check.equal(values(nn.MaxPool2d({ 3, 2 }, 2, { ceil_mode = true })(x)), { { { { 12, 14, 15 }, { 17, 19, 20 } } } })
  -- The last window would begin in the padding behind the image: there is none.
  check.equal(values(nn.MaxPool2d(3, 3, { pad_mode = "pad", padding = 1, ceil_mode = true })(x)),
    { { { { 7, 10 }, { 17, 20 } } } })
  check.equal(values(nn.AvgPool2d(2, { ceil_mode = true })(x)), { { { { 4, 6, 7.5 }, { 14, 16, 17.5 } } } })
  local padded = { pad_mode = "pad", padding = 1, ceil_mode = true }
  check.near(values(nn.AvgPool2d(3, 2, padded)(x)),
    { { { { 16 / 9, 33 / 9, 28 / 9 }, { 69 / 9, 117 / 9, 87 / 9 }, { 33 / 6, 54 / 6, 39 / 6 } } } }, 1e-6)
  padded.count_include_pad = false
  check.near(values(nn.AvgPool2d(3, 2, padded)(x)), { { { { 4, 5.5, 7 }, { 11.5, 13, 14.5 }, { 16.5, 18, 19.5 } } } },
    1e-5)
  padded.ceil_mode = false
  check.near(values(nn.AvgPool2d(3, 2, padded)(x)), { { { { 4, 5.5, 7 }, { 11.5, 13, 14.5 } } } }, 1e-5)
  local fine = nn.AvgPool2d(3, 2, padded)(x:astype "float64")
  check.near(values(fine)[1][1][1], { 4, 5.5, 7 }, 1e-12)
  padded.ceil_mode = true
  check.near(values(nn.AvgPool2d(3, 2, padded)(x:astype "float64"))[1][1][3], { 16.5, 18, 19.5 }, 1e-12)
  check.fails_here("ceil_mode", function() nn.MaxPool2d(2, { pad_mode = "same", ceil_mode = true }) end)
end)

check.case("BatchNorm2d: statistics of the batch in training, running ones otherwise", function()
  local bn, x = nn.BatchNorm2d(1, { eps = 1e-5 }), ms.Tensor({ { { { 0, 2 } } }, { { { 4, 6 } } } })
  bn:set_train(true)
  check.near(values(bn(x)), { { { { -1.341640, -0.447213 } } }, { { { 0.447213, 1.341640 } } } }, 1e-5)
  check.near(values(bn.moving_mean.value), { 0.3 }, 1e-6)                -- 0.9 * 0 + 0.1 * 3
  check.near(values(bn.moving_variance.value), { 0.9 + 20 / 30 }, 1e-6)  -- unbiased: 20 / 3
  bn:set_train(false)
  check.near(values(bn(ms.full({ 1, 1, 1, 1 }, 0.3))), { { { { 0 } } } }, 1e-6)
end)

check.case("BatchNorm: use_batch_statistics", function()
  local running = { moving_mean_init = 1, moving_var_init = 4, eps = 1e-12 }
  running.use_batch_statistics = false
  local fixed = nn.BatchNorm1d(1, running)
  local x, y = ms.Tensor { { 3 }, { 7 } }, ms.Tensor { { 0 }, { 1 } }
  check.near(fixed:set_train()(x):totable(), { { 1 }, { 3 } }, 1e-5)
  local step = nn.TrainOneStepCell(nn.WithLossCell(fixed, nn.MSELoss()), nn.SGD { learning_rate = 0.1 })
  -- The gradient of gamma is the mean of 2 (z - y) z, of beta that of 2 (z - y), z = (x - 1) / 2.
  check.near(step(x, y):item(), (1 + 4) / 2, 1e-5)
  check.near(fixed.gamma.value:totable(), { 1 - 0.1 * (1 * 1 + 2 * 3) }, 1e-5)
  check.near(fixed.beta.value:totable(), { -0.1 * (1 + 2) }, 1e-5)
  check.equal({ fixed.moving_mean.value:totable(), fixed.moving_variance.value:totable() }, { { 1 }, { 4 } })
  fixed.use_batch_statistics = nil
  fixed(x)
  check.near(fixed.moving_mean.value:totable(), { 1 * 0.9 + 5 * 0.1 }, 1e-5)
  local of_batch = nn.BatchNorm1d(1, { use_batch_statistics = true })
  check.near(of_batch(x):totable(), { { -1 }, { 1 } }, 1e-4)
  check.equal(of_batch.moving_mean.value:totable(), { 0 })
end)

check.case("TrainOneStepCell takes batches of one size", function()
  local step = nn.TrainOneStepCell(nn.WithLossCell(nn.Dense(3, 1), nn.MSELoss()), nn.SGD { learning_rate = 0.1 })
  step(ms.ones { 4, 3 }, ms.ones { 4, 1 })
  check.fails("is f32[2,3], it was made for f32[4,3]: ds:batch(n, true) leaves out a last batch with fewer rows", step,
    ms.ones { 2, 3 }, ms.ones { 2, 1 })
end)

check.case("BatchNorm1d: of columns, of rows of numbers", function()
  local norm = nn.BatchNorm1d(2):set_train()
  check.near(values(norm(ms.Tensor { { 1, 10 }, { 3, 10 } })), { { -1, 0 }, { 1, 0 } }, 1e-4)
  check.equal(norm(ms.ones { 3, 2, 5 }).shape, { 3, 2, 5 })
  norm:set_train(false)
end)

check.case("LayerNorm, RMSNorm, GroupNorm", function()
  local x = ms.Tensor { { 1, 3 } }
  check.near(values(nn.LayerNorm { 2 }(x)), { { -1, 1 } }, 1e-4)
  check.near(values(nn.RMSNorm(2)(x)), { { 1 / math.sqrt(5), 3 / math.sqrt(5) } }, 1e-5)
  local y = values(nn.GroupNorm(1, 2)(ms.Tensor { { { { 1 } }, { { 3 } } } }))
  check.near({ y[1][1][1][1], y[1][2][1][1] }, { -1, 1 }, 1e-4)
  check.fails_here("does not divide", function() nn.GroupNorm(2, 3) end)
end)

check.case("Embedding and activations", function()
  local table_of = nn.Embedding(3, 2, { embedding_table = ms.Tensor { { 0, 1 }, { 2, 3 }, { 4, 5 } } })
  check.equal(values(table_of(ms.Tensor({ { 2, 0 } }, ms.int32))), { { { 4, 5 }, { 0, 1 } } })
  local x = ms.Tensor { -1, 2 }
  check.equal(values(nn.ReLU()(x)), { 0, 2 })
  check.near(values(nn.GELU { approximate = false }(x)), { -0.158655, 1.954500 }, 1e-5)
  check.near(values(nn.GELU()(x)), { -0.158808, 1.954598 }, 1e-5)
  check.near(values(nn.SiLU()(x)), { -0.268941, 1.761594 }, 1e-5)
  check.near(values(nn.Softmax()(x)), { 0.0474259, 0.952574 }, 1e-5)
  check.near(values(nn.LogSoftmax()(x)), { -3.048587, -0.048587 }, 1e-5)
end)

check.case("activations with a number", function()
  local x = ms.Tensor { -2, 0, 1, 9 }
  check.near(values(nn.ReLU6()(x)), { 0, 0, 1, 6 }, 0)
  check.near(values(nn.LeakyReLU()(x)), { -0.4, 0, 1, 9 }, 1e-6)
  check.near(values(nn.ELU(2)(x)), { 2 * (math.exp(-2) - 1), 0, 1, 9 }, 1e-6)
  check.equal(nn.Identity()(x), x)
  check.near(values(nn.SELU()(x)), { -1.520166, 0, 1.050701, 9.456309 }, 1e-5)
  check.near(values(nn.CELU(0.5)(x)), { 0.5 * (math.exp(-4) - 1), 0, 1, 9 }, 1e-6)
  check.near(values(nn.LogSigmoid()(x)), { -2.126928, -0.693147, -0.313262, -0.000123 }, 1e-6)
  check.near(values(nn.Softsign()(x)), { -2 / 3, 0, 0.5, 0.9 }, 1e-6)
  check.near(values(nn.Hardtanh()(x)), { -1, 0, 1, 1 }, 0)
  check.near(values(nn.Hardtanh(-3, 4)(x)), { -2, 0, 1, 4 }, 0)
  check.near(values(nn.GLU()(x)), { -2 / (1 + math.exp(-1)), 0 }, 1e-6)
  check.fails_here("min_val: expected less than max_val = 1, got 2", function() nn.Hardtanh(2) end)
  check.fails_here("GLU: x: expected an even size along axis -1, got {3}", function() nn.GLU()(ms.ones { 3 }) end)
end)

check.case("Dropout2d takes whole channels", function()
  local drop, x = nn.Dropout2d { p = 0.25 }, ms.ones { 40, 10, 2, 3 }
  check.equal(drop(x), x)
  drop:set_train(true)
  local zeros = 0
  for _, image in ipairs(values(drop(x))) do
    for _, channel in ipairs(image) do
      local first = channel[1][1]
      check.near(channel, { { first, first, first }, { first, first, first } }, 0)
      if first ~= 0 then check.near(first, 4 / 3, 1e-6) end
      zeros = zeros + (first == 0 and 1 or 0)
    end
  end
  if zeros < 60 or zeros > 140 then error("expected about 100 of 400 channels, got " .. zeros) end
  check.fails_here("Dropout1d: x: expected [n, c, l]", function() nn.Dropout1d()(x) end)
  drop:set_train(false)
end)

check.case("Dropout acts in training only", function()
  local drop, x = nn.Dropout { p = 0.5 }, ms.ones { 1000 }
  drop:set_train(true)
  local zeros = 0
  for _, v in ipairs(values(drop(x))) do
    if v == 0 then zeros = zeros + 1 elseif v ~= 2 then error("not scaled: " .. v) end
  end
  if zeros < 400 or zeros > 600 then error("zeros: " .. zeros) end
  drop:set_train(false)
  check.equal(values(drop(x)), values(x))
end)

check.case("DropPath drops whole rows, in training only", function()
  local drop, x = nn.DropPath(0.25), ms.ones { 1000, 3, 2 }
  drop:set_train(true)
  local dropped, rows = 0, values(ops.reshape(drop(x), { 1000, 6 }))
  for _, row in ipairs(rows) do
    local first = row[1]
    for k = 2, 6 do check.equal(row[k], first) end
    if first == 0 then dropped = dropped + 1 else check.near(first, 4 / 3, 1e-6) end
  end
  if dropped < 190 or dropped > 310 then error("rows dropped: " .. dropped) end
  drop:set_train(false)
  check.equal(values(drop(x)), values(x))
  check.fails("drop_prob", function() nn.DropPath(1) end)
end)

check.case("losses", function()
  local logits, labels = ms.Tensor { { 1, 2, 3 }, { 3, 2, 1 } }, ms.Tensor({ 2, 2 }, ms.int32)
  local rows = { 0.407606, 2.407606 }
  check.near(nn.CrossEntropyLoss()(logits, labels):item(), 1.407606, 1e-5)
  check.near(values(nn.SoftmaxCrossEntropyWithLogits { sparse = true }(logits, labels)), rows, 1e-5)
  local probabilities = ms.Tensor { { 0, 0, 1 }, { 0, 0, 1 } }
  check.near(values(nn.SoftmaxCrossEntropyWithLogits()(logits, probabilities)), rows, 1e-5)
  local expand = require "softmax_cross_entropy_expand"
  check.near(expand(true)(logits, labels):item(), 1.407606, 1e-5)
  check.near(expand()(logits, probabilities):item(), 1.407606, 1e-5)
  check.near(nn.MSELoss()(ms.Tensor { { 1, 2 } }, ms.Tensor { { 0, 4 } }):item(), 2.5, 1e-6)
  check.near(values(nn.MSELoss():rows(ms.Tensor { { 1, 2 } }, ms.Tensor { { 0, 4 } })), { 2.5 }, 1e-6)
  local deep = nn.CrossEntropyLoss()(ops.reshape(logits, { 1, 2, 3 }), ops.reshape(labels, { 1, 2 }))
  check.near(deep:item(), 1.407606, 1e-5)
end)

check.case("grad and value_and_grad", function()
  local function f(x, w) return ops.reduce_sum(x * x * w) end
  local x, w = ms.Tensor { 1, 2 }, ms.Tensor { 3, 5 }
  check.equal(values(ms.grad(f)(x, w)), { 6, 20 })
  check.equal(values(ms.grad(f, 2)(x, w)), { 1, 4 })
  local value, both = ms.value_and_grad(f, { 1, 2 })(x, w)
  check.equal({ value:item(), values(both[1]), values(both[2]) }, { 23, { 6, 20 }, { 1, 4 } })
  local fc = nn.Dense(2, 1, { weight_init = "ones", has_bias = false })
  local function loss(input) return ops.reduce_sum(fc(input)) end
  local _, by_weight = ms.value_and_grad(loss, { weights = fc:trainable_params() })(ms.Tensor { { 1, 2 } })
  check.equal(values(by_weight[1]), { { 1, 2 } })
end)

check.case("the library's networks", function()
  local function count(net)
    local n = 0
    for _, p in ipairs(net:trainable_params()) do n = n + p.size end
    return n
  end
  local resnet, GPT, LeNet5 = require "resnet", require "gpt", require "lenet"
  check.equal(count(resnet.resnet50()), 23528522)
  check.equal(count(resnet.resnet18 { stem = "cifar" }), 11173962)
  local MobileNetV2 = require "mobilenetv2"
  check.equal(count(MobileNetV2()), 3504872)
  check.equal(count(MobileNetV2 { classes = 10, width = 0.5, stem = "cifar" }), 700490)
  check.equal(MobileNetV2 { classes = 10, width = 0.25 }(ms.ones { 2, 3, 64, 64 }).shape, { 2, 10 })
  check.equal(MobileNetV2 { classes = 7, width = 0.25, stem = "cifar" }(ms.ones { 2, 3, 32, 32 }).shape, { 2, 7 })
  check.fails("unknown key 'num_classes'", function() MobileNetV2 { num_classes = 3 } end)
  check.fails("width", function() MobileNetV2 { width = 0 } end)
  check.fails("stem", function() MobileNetV2 { stem = "small" } end)
  check.equal(count(LeNet5(10)), 61706)
  check.equal(count(GPT { vocab = 65, block = 64, layers = 4, heads = 4, dim = 128, dropout = 0 }), 809856)
  check.equal(resnet.resnet18 { stem = "cifar", width = 8 }(ms.ones { 2, 3, 32, 32 }).shape, { 2, 10 })
  check.equal(LeNet5(10)(ms.ones { 2, 1, 32, 32 }).shape, { 2, 10 })
  local gpt = GPT { vocab = 7, block = 8, layers = 1, heads = 2, dim = 8, dropout = 0 }
  check.equal(gpt(ms.zeros({ 3, 8 }, ms.int32)).shape, { 3, 8, 7 })
  local ids = gpt:generate({ 1, 2 }, 3, { top_k = 1 })
  check.equal(#ids, 5)
  check.fails("at most block = 8", function() gpt(ms.zeros({ 1, 9 }, ms.int32)) end)
  check.fails("unknown key 'classes'", function() resnet.resnet50 { classes = 3 } end)
end)

check.case("the library's networks take positional arguments, as the tutorials give them", function()
  local resnet, GPT, LeNet5 = require "resnet", require "gpt", require "lenet"
  local Expand = require "softmax_cross_entropy_expand"
  local net = resnet.resnet50(32, 10)
  check.equal(net.fc.weight.shape, { 10, 2048 })
  -- The tutorials' values: Xavier's limit for the weights, scales from a uniform distribution around 0.
  local limit = math.sqrt(6 / (10 + 2048))
  local weights = ops.abs(net.fc.weight.value):max():item()
  check.equal(weights <= limit and weights > 0.95 * limit, true)
  check.equal(ops.abs(net.bn1.gamma.value):max():item() <= 0.07, true)
  check.fails("num_classes is missing: call resnet50(batch_size, num_classes)", function() resnet.resnet50(10) end)
  check.fails("width", function() resnet.resnet50 { width = 0 } end)
  check.equal(LeNet5(7, 3)(ms.ones { 2, 3, 32, 32 }).shape, { 2, 7 })
  check.equal(LeNet5 { num_classes = 7 }(ms.ones { 2, 1, 32, 32 }).shape, { 2, 7 })
  check.equal(GPT(7, 8, 1, 2, 8, 0)(ms.zeros({ 3, 8 }, ms.int32)).shape, { 3, 8, 7 })
  local logits, rows, ids = ms.Tensor { { 1, 2 }, { 3, 1 } }, ms.Tensor { { 0, 1 }, { 1, 0 } },
    ms.Tensor({ 1, 0 }, ms.int32)
  local want = Expand(true)(logits, ids):item()
  for _, dense in ipairs { Expand(), Expand(false), Expand { sparse = false } } do
    check.equal(dense(logits, rows):item(), want)
  end
  check.equal(Expand { sparse = true }(logits, ids):item(), want)
end)

check.case("initializers have MindSpore's names too", function()
  for _, names in ipairs { { "XavierUniform", "xavier_uniform" }, { "Zero", "zeros" }, { "One", "ones" },
    { "HeNormal", "he_normal" }, { "Normal", "normal" }, { "TruncatedNormal", "truncated_normal" } } do
    local drawn = {}
    for i, name in ipairs(names) do
      ms.set_seed(5)
      drawn[i] = values(nn.Dense(3, 2, { weight_init = name, has_bias = false }).weight.value)
    end
    check.equal(drawn[1], drawn[2])
  end
  check.fails("unknown initializer 'XavierUnifrom' (did you mean 'xavier_uniform'?)",
    function() nn.Dense(3, 2, { weight_init = "XavierUnifrom" }) end)
end)

check.case("a causal network does not see what follows", function()
  local GPT = require "gpt"
  local gpt = GPT { vocab = 5, block = 4, layers = 2, heads = 2, dim = 8, dropout = 0 }
  local a, b = gpt(ms.Tensor({ { 0, 1, 2, 3 } }, ms.int32)), gpt(ms.Tensor({ { 0, 1, 4, 4 } }, ms.int32))
  check.near(values(a[1][2]), values(b[1][2]), 1e-6)
end)

check.case("windows over tensors without elements", function()
  check.equal(nn.MaxPool1d(2)(ms.zeros { 2, 0, 2 }).shape, { 2, 0, 1 })
  check.equal(nn.MaxPool2d(2)(ms.zeros { 2, 0, 4, 6 }).shape, { 2, 0, 2, 3 })
  check.equal(nn.MaxPool2d(2)(ms.zeros({ 0, 3, 4, 6 }, ms.bfloat16)).shape, { 0, 3, 2, 3 })
  check.equal(nn.MaxPool2d(2, { ceil_mode = true })(ms.zeros { 1, 0, 3, 3 }).shape, { 1, 0, 2, 2 })
  check.equal(nn.MaxPool3d(2)(ms.zeros { 2, 0, 2, 4, 4 }).shape, { 2, 0, 1, 2, 2 })
  for _, Pool in ipairs { nn.MaxPool3d, nn.AvgPool3d } do
    check.fails_here("does not fit", function() Pool(2)(ms.zeros { 2, 1, 0, 4, 4 }) end)
  end
  check.equal(ms.grad(function(x) return ops.reduce_sum(nn.MaxPool2d(2)(x)) end)(ms.zeros { 2, 0, 4, 4 }).shape,
    { 2, 0, 4, 4 })
end)

check.case("kernels, strides and paddings of another number of numbers", function()
  check.fails_here("MaxPool2d: kernel_size: expected one number or 2, got {}",
    function() nn.MaxPool2d { kernel_size = {} } end)
  check.fails_here("MaxPool2d: kernel_size: expected one number or 2, got {1, 2, 3}",
    function() nn.MaxPool2d { 1, 2, 3 } end)
  check.fails_here("AvgPool2d: stride: expected one number or 2", function() nn.AvgPool2d(2, { 1, 2, 3 }) end)
  check.fails_here("AvgPool2d: padding is 1 but pad_mode is 'valid': say pad_mode = 'pad'",
    function() nn.AvgPool2d(2, { padding = 1 }) end)
  check.fails_here("Conv2d: padding is 1 but pad_mode is 'same': say pad_mode = 'pad'",
    function() nn.Conv2d(1, 1, 2, { padding = 1 }) end)
  check.fails_here("Conv2d: padding: expected 1, 2 or 4 numbers, got {1, 2, 3}",
    function() nn.Conv2d(1, 1, 2, { pad_mode = "pad", padding = { 1, 2, 3 } }) end)
end)

check.case("PReLU has a slope for each channel of x", function()
  local slopes = nn.PReLU(3, 0.5)
  check.equal(values(slopes(ms.full({ 2, 3 }, -1))), { { -0.5, -0.5, -0.5 }, { -0.5, -0.5, -0.5 } })
  check.equal(slopes(ms.ones { 3 }).shape, { 3 })
  for _, shape in ipairs { { 2, 1, 2 }, { 2, 2 }, { 1 }, {} } do
    check.fails_here("PReLU: x: expected 3 channels, [n, 3, ...], got ", function() slopes(ms.ones(shape)) end)
  end
end)

check.case("the gradient at the borders of a range", function()
  local x = ms.Tensor { -1, 0, 0.5, 6, 7, 0 / 0 }
  local function slope(f)
    local list = values(ms.grad(function(v) return ops.reduce_sum(f(v)) end)(x))
    return { unpack(list, 1, 5) }, list[6]
  end
  local inside, of_nan = slope(nn.ReLU6())
  check.equal(inside, { 0, 0, 1, 0, 0 })
  check.equal(of_nan, 1)
  check.equal(slope(nn.Hardtanh(0, 7)), { 0, 0, 1, 1, 0 })
  check.equal(slope(nn.Hardtanh(-1, 0.5)), { 0, 1, 0, 0, 0 })
  check.equal(slope(function(v) return ops.clip(v, 0, 6) end), { 0, 1, 1, 1, 0 })
  check.equal(values(nn.Hardtanh(-1, 5)(x))[3], 0.5)
  check.fails_here("min_val is 2 and max_val is 1, expected min_val < max_val", function() ops.hardtanh(x, 2, 1) end)
end)

check.case("an empty batch leaves the running statistics as they are", function()
  local norm, x = nn.BatchNorm1d(2):set_train(), ms.zeros { 0, 2 }
  check.equal(norm(x).shape, { 0, 2 })
  check.equal({ values(norm.moving_mean.value), values(norm.moving_variance.value) }, { { 0, 0 }, { 1, 1 } })
  local gradients = ms.grad(function(v) return ops.reduce_sum(norm(v)) end, nil, norm:trainable_params())(x)
  check.equal({ values(gradients[1]), values(gradients[2]) }, { { 0, 0 }, { 0, 0 } })
  check.equal(nn.BatchNorm2d(2):set_train()(ms.zeros { 2, 2, 0, 3 }).shape, { 2, 2, 0, 3 })
  -- Of one row the variance is 0.
  check.near(values(norm(ms.ones { 1, 2 })), { { 0, 0 } }, 0)
  check.near({ values(norm.moving_mean.value), values(norm.moving_variance.value) }, { { 0.1, 0.1 }, { 0.9, 0.9 } },
    1e-6)
  norm:set_train(false)
  check.fails_here("BatchNorm1d: x: expected [n, c] or [n, c, l], got {2, 3, 2, 2}",
    function() nn.BatchNorm1d(3)(ms.ones { 2, 3, 2, 2 }) end)
end)

check.case("a table of an initializer is given by name, and takes no place of an argument before it", function()
  local initializer = { "normal", sigma = 0.5 }
  check.fails_here('Embedding: argument 3: expected named values alone in the last table, got "normal" in it; '
    .. 'a table as embedding_table is written {embedding_table = {"normal", sigma = 0.5}}',
    function() nn.Embedding(12, 8, initializer) end)
  check.fails_here('Dense: argument 3', function() nn.Dense(12, 8, { 4, has_bias = false }) end)
  check.equal(nn.Embedding(12, 8, { embedding_table = initializer }).embedding_table.shape, { 12, 8 })
  check.equal(nn.Dense({ 4, 3, has_bias = false }).weight.shape, { 3, 4 })
end)

check.case("methods that are defined with a dot", function()
  local Gate = nn.Cell:extend "Gate"
  function Gate.construct(x) return x end
  check.fails_here("its method is defined with a dot: write a colon, as in function Net:construct(x)",
    function() Gate()(ms.ones { 2 }) end)
  local Sized = nn.Cell:extend "Sized"
  function Sized.init(n) return n end
  check.fails_here("its method is defined with a dot", function() Sized(3) end)
end)

check.case("a tensor takes no place of a parameter or a cell", function()
  local net = nn.SequentialCell { nn.Dense(2, 3) }
  check.fails_here("Dense.weight is a parameter: weight.value = x gives it a value; ms.Parameter(x) is another "
    .. "parameter", function() net[1].weight = ms.ones { 3, 2 } end)
  net[1].weight.value = ms.full({ 3, 2 }, 2)
  check.equal(net[1].weight.value:totable(), { { 2, 2 }, { 2, 2 }, { 2, 2 } })
  local Twice = nn.Cell:extend "Twice"
  function Twice:init() self.fc = nn.Dense(2, 2) end
  function Twice:construct(x)
    self.fc = self.fc(x)
    return self.fc
  end
  check.fails_here("Twice.fc is a cell, Dense: a tensor is assigned to another field, or to a local variable",
    function() Twice()(ms.ones { 1, 2 }) end)
  net[1].bias = nil
  check.equal(#net:get_parameters(), 1)
  net[1].weight = ms.Parameter(ms.zeros { 3, 2 })
  check.equal(net[1].weight.value:totable(), { { 0, 0 }, { 0, 0 }, { 0, 0 } })
end)

check.case("errors of batch normalization name the class", function()
  for _, name in ipairs { "BatchNorm1d", "BatchNorm2d", "BatchNorm3d" } do
    check.fails_here(name .. ": unknown key 'dtype'", function() nn[name](24, { dtype = "float64" }) end)
  end
end)

check.case("ClipByNorm keeps what is within the limit, whatever the limit is", function()
  local clip = nn.ClipByNorm()
  check.equal(clip(ms.ones { 2 }, math.huge):totable(), { 1, 1 })
  check.equal(clip(ms.ones { 2 } * 1e10, 1e30):totable(), (ms.ones { 2 } * 1e10):totable())
  check.equal(clip(ms.zeros { 2 }, 0):totable(), { 0, 0 })
  check.near(clip(ms.Tensor { 3, 4 }, 1):totable(), { 0.6, 0.8 }, 1e-6)
  check.equal(clip(ms.Tensor { 3, 4 }, 0):totable(), { 0, 0 })
  check.fails("ClipByNorm: clip_norm: expected a number of at least 0, got -1", clip, ms.ones { 2 }, -1)
end)

check.case("cells say what is wrong with their own channels and dimensions", function()
  check.fails("Conv3d: x: expected 3 channels, the second dimension, got {1, 2, 3, 3, 3}", nn.Conv3d(3, 4, 2),
    ms.ones { 1, 2, 3, 3, 3 })
  check.fails("Conv1dTranspose: x: expected 3 channels", nn.Conv1dTranspose(3, 4, 2), ms.ones { 1, 2, 3 })
  check.fails("BatchNorm2d: x: expected [n, c, h, w], got {2, 3}", nn.BatchNorm2d(3), ms.ones { 2, 3 })
  check.fails("Flatten: x: expected [n, ...]", nn.Flatten(), ms.Tensor(3))
  check.fails("MoE: x: expected [.., 4], got {4, 5}", nn.MoE { 4, 8, 2 }, ms.ones { 4, 5 })
end)

check.case("AdaptiveMaxPool2d has second gradients where sizes divide", function()
  local pool = nn.AdaptiveMaxPool2d(1)
  local function first(v) return ms.grad(function(t) return ops.square(pool(t)):sum() end)(v) end
  local x = ms.Tensor { { { { 1, 2 }, { 5, 3 } } } }
  check.equal(values(first(x)), { { { { 0, 0 }, { 10, 0 } } } })
  check.equal(values(ms.grad(function(v) return first(v):sum() end)(x)), { { { { 0, 0 }, { 2, 0 } } } })
end)

check.done()
