-- Losses: numbers of their formulas, gradients where a naive formula has none, what a mean counts.
local check = require "check"
local ms = require "mslua"
local nn = ms.nn

local x = ms.Tensor { { 0.5, -2 }, { 0, 3 } }
local y = ms.Tensor { { 1, 0 }, { 0, 1 } }

local function values(t) return #t.shape == 0 and t:item() or t:totable() end

check.case("elementwise losses", function()
  check.near(values(nn.L1Loss()(x, y)), (0.5 + 2 + 0 + 2) / 4, 1e-6)
  check.near(values(nn.SmoothL1Loss(1)(x, y)), { { 0.125, 1.5 }, { 0, 1.5 } }, 1e-6)
  check.near(values(nn.SmoothL1Loss(4, "sum")(x, y)), (0.25 + 4 + 0 + 4) / 8, 1e-6)
  local p = ms.Tensor { { 0.25, 0.5 }, { 0, 1 } }
  local log = math.log
  check.near(values(nn.BCELoss { reduction = "none" }(p, y)), { { -log(0.25), -log(0.5) }, { 0, 0 } }, 1e-6)
  check.near(values(nn.BCELoss(ms.Tensor { 2, 0 }, "sum")(p, y)), -2 * log(0.25), 1e-6)
  check.equal(tostring(nn.BCELoss { reduction = "none" }(ms.Tensor { -0.5, 1.5 }, ms.Tensor { 1, 0 })),
    "[nan, nan]")
  check.near(values(nn.BCELoss()(p, 1 - y)), -(log(0.75) + log(0.5) + 2 * log(1e-12)) / 4, 1e-5)
  check.near(values(nn.BCEWithLogitsLoss "none"(x, y)),
    { { log(1 + math.exp(-0.5)), log(1 + math.exp(-2)) }, { log(2), log(1 + math.exp(-3)) } }, 1e-6)
  check.near(values(nn.BCEWithLogitsLoss { pos_weight = ms.Tensor { 3, 1 }, weight = ms.Tensor { 1, 0 } }(x, y)),
    (3 * log(1 + math.exp(-0.5)) + log(2)) / 4, 1e-6)
  check.near(values(nn.BCEWithLogitsLoss "sum"(x * 100, y)), 0 + 0 + log(2) + 0, 1e-6)
end)

check.case("a logit of 0 has the gradient of its label", function()
  local loss = nn.BCEWithLogitsLoss "sum"
  local gradient = ms.grad(function(z) return loss(z, y) end)(ms.zeros { 2, 2 })
  check.near(values(gradient), { { -0.5, 0.5 }, { 0.5, -0.5 } }, 1e-6)
end)

check.case("rows of a sum are sums", function()
  check.near(values(nn.MSELoss "sum":rows(x, y)), { 0.25 + 4, 4 }, 1e-6)
  check.near(values(nn.MSELoss():rows(x, y)), { 2.125, 2 }, 1e-6)
end)

check.case("cross entropy counts the labels that have a loss", function()
  local logits = ms.Tensor { { 1, 2, 3 }, { 3, 2, 1 }, { 0, 0, 0 } }
  local ids = ms.Tensor({ 2, -100, 0 }, ms.int32)
  local a, c = 0.407606, math.log(3)
  check.near(values(nn.CrossEntropyLoss()(logits, ids)), (a + c) / 2, 1e-5)
  check.near(values(nn.CrossEntropyLoss "sum"(logits, ids)), a + c, 1e-5)
  check.near(values(nn.CrossEntropyLoss { ignore_index = 0 }(logits, ms.Tensor({ 2, 0, 0 }, ms.int32))), a, 1e-5)
  check.near(values(nn.CrossEntropyLoss()(logits, ms.full({ 3 }, -100, ms.int32))), 0, 0)
  check.fails("CrossEntropyLoss: ignore_index is 0, and the labels are probabilities of the classes",
    nn.CrossEntropyLoss { ignore_index = 0 }, logits, ms.ops.softmax(logits))
  local rows = nn.CrossEntropyLoss():rows(logits:reshape(1, 3, 3), ids:reshape(1, 3))
  check.near(values(rows), { (a + c) / 2 }, 1e-5)
  -- A tenth of the label in equal parts on all classes: the mean of -log p is a + 1 in the first row.
  local smooth = nn.CrossEntropyLoss { label_smoothing = 0.1 }
  check.near(values(smooth(logits, ids)), (0.9 * a + 0.1 * (a + 1) + c) / 2, 1e-5)
end)

------------------------------------------------------------------------------- formulas in plain numbers, and gradients

-- A tensor as a list of all its numbers.
local function flat(t) return ms.ops.cast(ms.ops.reshape(t, { -1 }), "float64"):totable() end

-- The gradient of f by each of `inputs`, float64, beside the differences of f.
local function check_gradient(name, f, inputs)
  for k, input in ipairs(inputs) do
    local got = flat(ms.grad(f, k)(unpack(inputs)))
    local numbers, shape = flat(input), input.shape
    for i = 1, #numbers do
      local function moved(by)
        local list = { unpack(numbers) }
        list[i] = list[i] + by
        local changed = { unpack(inputs) }
        changed[k] = ms.ops.reshape(ms.Tensor(list, "float64"), shape)
        return f(unpack(changed)):item()
      end
      local wanted = (moved(1e-6) - moved(-1e-6)) / 2e-6
      if math.abs(got[i] - wanted) > 1e-6 * math.max(1, math.abs(wanted)) then
        error(("%s: gradient %d of input %d is %.9g, differences give %.9g"):format(name, i, k, got[i], wanted), 2)
      end
    end
  end
end

local function reduced(rows_, reduction)
  if reduction == "none" then return rows_ end
  local sum = 0
  for _, v in ipairs(rows_) do sum = sum + v end
  return reduction == "sum" and sum or sum / #rows_
end

local function f64(list) return ms.Tensor(list, "float64") end
local log_p = f64 { { -0.1, -2.5, -1 }, { -3, -0.2, -0.9 } }
local ids = ms.Tensor({ 2, 0 }, ms.int32)

-- For each reduction: the loss by its formula, of one number each; in every float type; and the rows.
local function check_loss(make, inputs, wanted, reductions)
  for _, reduction in ipairs(reductions or { "none", "sum", "mean" }) do
    for dtype, tolerance in pairs { float64 = 1e-12, float32 = 2e-6, float16 = 5e-3, bfloat16 = 4e-2 } do
      local given = {}
      for i, t in ipairs(inputs) do given[i] = t.dtype == "float64" and ms.ops.cast(t, dtype) or t end
      local got = flat(make(reduction)(unpack(given)))
      check.near(#got == 1 and got[1] or got, reduced(wanted, reduction), tolerance * 4)
    end
  end
end

check.case("KLDivLoss", function()
  local y = { { 0.2, 0.5, 0.3 }, { 0, 1, 0.25 } }
  local wanted, sum = {}, 0
  for i, row in ipairs(y) do
    for j, v in ipairs(row) do
      wanted[#wanted + 1] = v == 0 and 0 or v * (math.log(v) - log_p:totable()[i][j])
      sum = sum + wanted[#wanted]
    end
  end
  check_loss(function(r) return nn.KLDivLoss(r) end, { log_p, f64(y) }, wanted)
  check.near(nn.KLDivLoss "batchmean"(log_p, f64(y)):item(), sum / 2, 1e-12)
  check.near(values(nn.KLDivLoss "batchmean":rows(log_p, f64(y))),
    { wanted[1] + wanted[2] + wanted[3], wanted[4] + wanted[5] + wanted[6] }, 1e-12)
  check_gradient("KLDivLoss", function(a, b) return nn.KLDivLoss "sum"(a, b) end,
    { log_p, f64 { { 0.2, 0.5, 0.3 }, { 0.1, 1, 0.25 } } })
  check_gradient("KLDivLoss with a label of 0", function(a) return nn.KLDivLoss "batchmean"(a, f64(y)) end, { log_p })
end)

check.case("losses that are not reduced have the shape of the labels", function()
  local logits, labels = ms.randn({ 4, 2, 3 }, ms.float32, "l"), ms.ones({ 4, 2 }, ms.int32)
  local shares = ms.ones { 4, 2, 3 } / 3
  local weight = ms.Tensor { 1, 2, 3 }
  for _, make in ipairs { nn.CrossEntropyLoss { reduction = "none" }, nn.NLLLoss { reduction = "none" },
    nn.CrossEntropyLoss { reduction = "none", weight = weight }, nn.FocalLoss { reduction = "none" },
    nn.SoftmaxCrossEntropyWithLogits { sparse = true } } do
    check.equal(make(logits, labels).shape, { 4, 2 })
    check.equal(make(logits:reshape(8, 3), labels:reshape(8)):totable(), flat(make(logits, labels)))
    check.equal(make(logits[{ {}, { 1, 1 } }], labels[{ {}, { 1, 1 } }]).shape, { 4, 1 })
  end
  check.equal(nn.SoftmaxCrossEntropyWithLogits()(logits, shares).shape, { 4, 2 })
  check.equal(nn.FocalLoss { reduction = "none" }(logits, shares).shape, { 4, 2, 3 })
end)

-- PyTorch's losses of these.
local out, signs = f64 { { 0.5, -2, 1 }, { 0, 3, -1 } }, f64 { { 1, -1, 1 }, { -1, 1, -1 } }
local counts = f64 { { 0, 1, 2 }, { 3, 0, 7 } }
local class_weight = f64 { 0.5, 1, 2 }

check.case("HingeEmbeddingLoss and SoftMarginLoss", function()
  check_loss(function(r) return nn.HingeEmbeddingLoss(1.5, r) end, { out, signs }, { 0.5, 3.5, 1, 1.5, 3, 2.5 })
  check_loss(function(r) return nn.SoftMarginLoss(r) end, { out, signs },
    { 0.47407698418, 0.126928011043, 0.313261687518, 0.69314718056, 0.0485873515737, 0.313261687518 })
  check_gradient("HingeEmbeddingLoss", function(x_) return nn.HingeEmbeddingLoss()(x_, signs) end, { out })
  -- 0 is no label.
  local losses = nn.HingeEmbeddingLoss(1, "none")(out, f64 { { 1, 0, 1 }, { 0.5, 1, -1 } }):totable()
  check.equal({ losses[1][1], losses[1][2] ~= losses[1][2], losses[2][1] ~= losses[2][1], losses[2][3] },
    { 0.5, true, true, 2 })
  check_gradient("SoftMarginLoss", function(x_) return nn.SoftMarginLoss()(x_, signs) end, { out })
end)

check.case("MultiLabelSoftMarginLoss", function()
  local labels, wanted = f64 { { 1, 0, 1 }, { 0, 1, 0 } }, { 0.330163292723, 0.340561438963 }
  local function make(r) return nn.MultiLabelSoftMarginLoss(class_weight, r) end
  local function log1p_exp(v) return math.log(1 + math.exp(v)) end
  check_loss(function(r) return nn.MultiLabelSoftMarginLoss { reduction = r } end, { out, labels },
    { (log1p_exp(-0.5) + log1p_exp(-2) + log1p_exp(-1)) / 3, (math.log(2) + log1p_exp(-3) + log1p_exp(-1)) / 3 })
  check.near(flat(make "none"(out, labels)), wanted, 1e-11)
  check.near(values(make "mean":rows(out, labels)), wanted, 1e-11)
  check_gradient("MultiLabelSoftMarginLoss", function(x_) return make "sum"(x_, labels) end, { out })
  check.fails("MultiLabelSoftMarginLoss: weight: expected 3 numbers, one for each class",
    function() nn.MultiLabelSoftMarginLoss(f64 { 1 })(out, labels) end)
end)

check.case("MultiMarginLoss", function()
  check_loss(function(r) return nn.MultiMarginLoss { reduction = r } end, { out, ids }, { 1 / 6, 4 / 3 })
  local function squared(r) return nn.MultiMarginLoss(2, 0.5, r, class_weight) end
  check.near(flat(squared "none"(out, ids)), { 0, 2.04166666667 }, 1e-11)
  check.near(values(squared "mean":rows(out, ids)), { 0, 2.04166666667 }, 1e-11)
  check_gradient("MultiMarginLoss", function(x_) return squared "mean"(x_, ids) end, { out })
  check.near(values(nn.MultiMarginLoss { weight = ms.ops.cast(class_weight, "bfloat16") }(ms.ops.cast(out, "float32"),
    ids)), values(nn.MultiMarginLoss { weight = class_weight }(out, ids)), 1e-6)
  check.fails("gather_d: the label of record 2 is 3",
    function() nn.MultiMarginLoss()(out, ms.Tensor({ 2, 3 }, ms.int32)) end)
  check.fails("MultiMarginLoss: expected outputs [n, classes], got {3}",
    function() nn.MultiMarginLoss()(f64 { 1, 2, 3 }, ms.Tensor({ 1 }, ms.int32)) end)
end)

check.case("MarginRankingLoss", function()
  local other = f64 { { 1, -2, 0.5 }, { -1, 3, 0 } }
  local wanted = { 0.8, 0.3, 0, 1.3, 0.3, 0 }
  local function make(r) return nn.MarginRankingLoss(0.3, r) end
  check_loss(make, { out, other, signs }, wanted)
  check.near(make()({ out, other }, signs):item(), make()(out, other, signs):item(), 0)
  check.near(values(make "sum":rows({ out, other }, signs)), { 1.1, 1.6 }, 1e-12)
  check_gradient("MarginRankingLoss", function(a, b) return make "sum"(a, b, signs) end, { out, other })
  check.fails("MarginRankingLoss: expected two tensors", function() make()(out, other) end)
  check.fails("MarginRankingLoss: expected a label of shape [2, 3]", function() make()(out, ids, signs) end)
end)

check.case("CTCLoss", function()
  local ops = ms.ops
  local outputs = ops.sin(ops.reshape(ms.arange(0, 140, 1, ms.float64) * 0.37, { 7, 4, 5 }))
  local labels = ms.Tensor({ { 1, 2, 2 }, { 3, 3, 1 }, { 4, 1, -1 }, { -1, -1, -1 } }, ms.int32)
  local inputs, lengths = ms.Tensor({ 7, 6, 4, 5 }, ms.int32), ms.Tensor({ 3, 3, 2, 0 }, ms.int32)
  local function loss_of(x_, options, ...) return nn.CTCLoss(options)(ops.log_softmax(x_, -1), labels, ...) end
  -- PyTorch's.
  local wanted = { 7.41549103131, 6.36055323606, 3.64253267967, 8.15062603591 }
  check.near(flat(loss_of(outputs, { reduction = "none" }, inputs, lengths)), wanted, 1e-10)
  check.near(flat(loss_of(outputs, { reduction = "none" }, inputs)), wanted, 1e-10)
  check.near(loss_of(outputs, { reduction = "sum" }, inputs):item(), 25.569202983, 1e-9)
  check.near(loss_of(outputs, {}, inputs, lengths):item(), 3.64097678288, 1e-10)
  local gradient = ms.grad(function(x_) return loss_of(x_, {}, inputs) end)(outputs)
  check.near({ ops.abs(gradient):sum():item(), (gradient * outputs):sum():item() }, { 3.67851606206, 0.159208839658 },
    1e-10)
  check_gradient("CTCLoss", function(x_) return loss_of(x_, {}) end, { outputs })
  check.near(loss_of(ops.cast(outputs, "float16"), {}, inputs):item(), 3.641, 5e-3)
  -- Three outputs are too few for 3, 3 and 1.
  local short = ms.Tensor({ 7, 3, 4, 5 }, ms.int32)
  check.equal(flat(loss_of(outputs, { reduction = "none" }, short))[2], math.huge)
  check.equal(flat(loss_of(outputs, { reduction = "none", zero_infinity = true }, short))[2], 0)
  local of_short = ms.grad(function(x_) return loss_of(x_, { reduction = "sum" }, short) end)(outputs)
  check.equal(ops.abs(of_short[{ {}, { 2, 2 } }]):max():item(), 0)
  -- Another blank, no labels at all, and one output.
  local last = ops.concat({ outputs[{ {}, {}, { 2, 5 } }], outputs[{ {}, {}, { 1, 1 } }] }, 3)
  local log_p = ops.log_softmax(last, -1)
  check.near(nn.CTCLoss(4)(log_p, ops.where(ops.greater(labels, 0), labels - 1, labels), inputs):item(), 3.64097678288,
    1e-10)
  check.near(flat(nn.CTCLoss(0, "none")(log_p[{ { 1, 1 } }], labels * 0 - 1)), flat(-log_p[{ { 1, 1 }, {}, { 1, 1 } }]),
    1e-12)
  local long = ms.Tensor({ 7, 6, 8, 5 }, ms.int32)
  check.fails_here("CTCLoss: input_lengths: expected 1 to 7, got 8", function() loss_of(outputs, {}, long) end)
  check.fails_here("CTCLoss: label_lengths: expected 0 to 3, got 7",
    function() loss_of(outputs, {}, inputs, inputs) end)
  check.fails_here("CTCLoss: labels: expected 0 to 4, got 9", function() nn.CTCLoss()(log_p, labels + 5) end)
  check.fails_here("CTCLoss: blank: expected one of 5 classes, 0 to 4, got 5",
    function() nn.CTCLoss(5)(log_p, labels) end)
  -- Traced, the operator that reads the user's numbers checks them.
  local function traced(labels_, lengths_)
    ms.grad(function(x_) return nn.CTCLoss()(x_, labels_ + 0, lengths_ + 0) end)(log_p)
  end
  check.fails("expected 0 to 4", traced, labels + 5, inputs)
  check.fails("expected 0 to 6", traced, labels, long)
  check.fails("CTCLoss: labels: expected ids [4, s], got", nn.CTCLoss(), log_p, lengths)
  check.fails("CTCLoss: input_lengths: expected [4] integers from 1 to 7", loss_of, outputs, {}, labels)
end)

check.case("PoissonNLLLoss", function()
  check_loss(function(r) return nn.PoissonNLLLoss { reduction = r } end, { out, counts },
    { math.exp(0.5), math.exp(-2) + 2, math.exp(1) - 2, 1, math.exp(3), math.exp(-1) + 7 })
  check.near(flat(nn.PoissonNLLLoss { full = true, reduction = "none" }(out, counts)),
    { 1.6487212707, 2.13533528324, 1.37008831306, 2.76408154354, 20.0855369232, 15.8811440923 }, 1e-10)
  local linear = nn.PoissonNLLLoss { log_input = false, full = true, reduction = "none" }
  check.near(flat(linear(ms.ops.abs(out), counts)),
    { 0.5, 1.30685281444, 1.6518064646, 57.0261237754, 3, 9.51326458112 }, 1e-9)
  check_gradient("PoissonNLLLoss", function(x_) return nn.PoissonNLLLoss { full = true }(x_, counts) end, { out })
end)

check.case("GaussianNLLLoss", function()
  local var = f64 { { 0.5, 1e-9, 1 }, { 2, 3, 0.1 } }
  local one = f64 { { 0.5 }, { 2 } }
  check.near(flat(nn.GaussianNLLLoss { full = true, reduction = "none" }(out, counts, var)),
    { 0.822364942925, 4499994.01118, 1.4189385332, 3.51551212348, 2.96824467754, 319.767645987 }, 1e-5)
  check.near(flat(nn.GaussianNLLLoss { reduction = "none" }(out, counts, one)),
    { -0.09657359028, 8.65342640972, 0.65342640972, 2.59657359028, 2.59657359028, 16.3465735903 }, 1e-10)
  check.near(nn.GaussianNLLLoss()({ out, one }, counts):item(), nn.GaussianNLLLoss()(out, counts, one):item(), 0)
  -- The gradient of a variance below eps is that of eps.
  local gradient = ms.grad(function(v) return nn.GaussianNLLLoss()(out, counts, v) end)(var)
  check.near(flat(gradient), { 0.0833333333333, -749999916667, 0, -0.145833333333, -0.0555555555556, -532.5 }, 1)
  check_gradient("GaussianNLLLoss", function(x_, v) return nn.GaussianNLLLoss()(x_, counts, v) end, { out, one })
  check.fails("GaussianNLLLoss: expected means, labels and variances", function() nn.GaussianNLLLoss()(out, counts) end)
  check.fails("GaussianNLLLoss: expected a label of shape [2, 3]",
    function() nn.GaussianNLLLoss()(out, counts, f64 { { 1, 2 }, { 3, 4 } }) end)
end)

check.case("SpanLoss points at the first and the last token", function()
  local logits = f64 { { { 1, 0 }, { 2, 0.5 }, { -1, 3 } }, { { 0, 0 }, { 1, 1 }, { 0.5, -2 } } }
  local function cross(x, label)
    local sum = 0
    for _, v in ipairs(x) do sum = sum + math.exp(v) end
    return math.log(sum) - x[label + 1]
  end
  local first = { cross({ 1, 2, -1 }, 1), cross({ 0, 1, 0.5 }, 0) }
  local last = { cross({ 0, 0.5, 3 }, 2), cross({ 0, 1, -2 }, 2) }
  local spans = ms.Tensor({ { 1, 2 }, { 0, 2 } }, ms.int32)
  local wanted = { (first[1] + last[1]) / 2, (first[2] + last[2]) / 2 }
  check_loss(function(r) return nn.SpanLoss(r) end, { logits, spans }, wanted)
  local halves, counts = nn.SpanLoss():rows(logits, spans)
  check.near(values(ms.ops.reduce_sum(halves, 2)), wanted, 1e-12)
  check.near(values(counts:reshape(4)), { 1, 1, 1, 1 }, 0)
  check_gradient("SpanLoss", function(x) return nn.SpanLoss()(x, spans) end, { logits })
  -- Answers that were cut off do not count, each side by itself.
  local cut = ms.Tensor({ { 1, 3 }, { -1, 2 } }, ms.int32)
  check.near(nn.SpanLoss()(logits, cut):item(), (first[1] + last[2]) / 2, 1e-12)
  check.near(nn.SpanLoss()(logits, ms.Tensor({ { 7, 3 }, { -1, -5 } }, ms.int32)):item(), 0, 0)
  check.fails_here("expected logits [n, t, 2], got {2, 3}", function()
    nn.SpanLoss()(f64 { { 1, 2, 3 }, { 1, 2, 3 } }, spans)
  end)
  check.fails_here("expected [2, 2], the first and the last token of each answer, got {2}", function()
    nn.SpanLoss()(logits, ids)
  end)
end)

check.case("a loss that defines rows is trained on what evaluations measure", function()
  local x, y = f64 { { 1, 2 }, { 3, 4 } }, f64 { { 0, 0 }, { 0, 0 } }
  local ds = ms.dataset.NumpySlicesDataset({ x, y }, { "x", "y" }):batch(2)
  -- The loss, what it reduces to and what an evaluation gives.
  local function both(base, rows, wanted)
    local Mine = base:extend "Mine"
    function Mine:rows(output) return rows(output) end
    check.near(Mine()(x, y):item(), wanted, 1e-12)
    check.near(ms.Model(nn.Identity(), { loss_fn = Mine() }):eval(ds).loss, wanted, 1e-6)
    return Mine
  end
  local function sums(output) return output:sum(2) end
  for _, base in ipairs { nn.Loss, nn.MSELoss, nn.BCELoss, nn.CrossEntropyLoss, nn.L1Loss } do both(base, sums, 5) end
  local Weighted = both(nn.Loss, function(output) return output:sum(2), f64 { 1, 10 } end, (3 + 70) / 11)
  both(nn.Loss, function(output) return output, f64 { { 1, 0 }, { 3, 1 } } end, (1 + 9) / 4 + 4)
  both(nn.Loss, function(output) return output:sum(2), f64 { 0, 0 } end, 0)
  local weighted = Weighted()
  weighted.reduction = "none"
  check.equal(values(weighted(x, y)), { 3, 70 })
  weighted.reduction = "sum"
  check.equal(weighted(x, y):item(), 73)
  local Wide = nn.Loss:extend "Wide"
  function Wide:rows(output) return output end
  check.fails_here("Wide:rows: expected the loss of each row, [n], or with their weights as the second result [n, k], "
    .. "got {2, 2}", function() Wide()(x, y) end)
  local Cubes = nn.MSELoss:extend "Cubes"
  function Cubes:each(output) return output * output * output end
  check.equal(Cubes()(x, y):item(), 25)
end)

check.case("CrossEntropyLoss takes probabilities of the classes", function()
  local x = f64 { { 1, -2, 0.5 }, { 0.2, 0.3, -0.1 } }
  local shares = f64 { { 0.7, 0, 0.3 }, { 0.1, 0.1, 0.8 } }
  local function wanted(weight, smoothing)
    local sums = {}
    for i, row in ipairs(values(ms.ops.log_softmax(x, -1))) do
      sums[i] = 0
      for c, log_p in ipairs(row) do
        sums[i] = sums[i] - weight[c] * (values(shares)[i][c] * (1 - smoothing) + smoothing / 3) * log_p
      end
    end
    return sums
  end
  for _, case in ipairs { { { 1, 1, 1 }, 0 }, { { 1, 1, 1 }, 0.2 }, { { 2, 0.5, 1 }, 0.1 } } do
    local options = { weight = f64(case[1]), label_smoothing = case[2], reduction = "none" }
    local each = wanted(unpack(case))
    check.near(values(nn.CrossEntropyLoss(options)(x, shares)), each, 1e-12)
    options.reduction = "mean"
    check.near(nn.CrossEntropyLoss(options)(x, shares):item(), (each[1] + each[2]) / 2, 1e-12)
    check.near(values(nn.CrossEntropyLoss(options):rows(x, shares)), each, 1e-12)
    check.near(ms.ops.cross_entropy(x, shares, options):item(), (each[1] + each[2]) / 2, 1e-12)
  end
  check.near(nn.CrossEntropyLoss()(x, ms.ops.one_hot(ms.Tensor({ 2, 0 }, ms.int32), 3)):item(),
    nn.CrossEntropyLoss()(x, ms.Tensor({ 2, 0 }, ms.int32)):item(), 1e-6)
  check.equal(nn.CrossEntropyLoss { reduction = "none" }(x:reshape(1, 2, 3), shares:reshape(1, 2, 3)).shape, { 1, 2 })
  check.fails_here("CrossEntropyLoss: expected ids of classes, int32 or int64, got float64[2]: ops.cast(labels, "
    .. "ms.int32), where they are ids", function() nn.CrossEntropyLoss()(x, f64 { 0, 1 }) end)
  check.fails_here("SoftmaxCrossEntropyWithLogits: expected ids of classes, int32 or int64, got uint8[2]: ops.cast("
    .. "labels, ms.int32)", function()
    nn.SoftmaxCrossEntropyWithLogits { sparse = true }(x, ms.Tensor({ 0, 1 }, ms.uint8))
  end)
end)

check.case("CrossEntropyLoss with weights is NLLLoss of log_softmax", function()
  local logits, weight = f64 { { 1, 2, 0.5 }, { -1, 0.25, 2 } }, f64 { 2, 0.5, 1 }
  for _, r in ipairs { "mean", "sum", "none" } do
    for _, labels in ipairs { ms.Tensor({ 0, 1 }, ms.int32), ms.Tensor({ 1, 2 }, ms.int32) } do
      local options = { weight = weight, label_smoothing = 0.1, ignore_index = 2, reduction = r }
      check.near(values(nn.CrossEntropyLoss(options)(logits, labels)),
        values(nn.NLLLoss(options)(ms.ops.log_softmax(logits, -1), labels)), 1e-12)
    end
  end
  local narrow = ms.ops.cast(weight, "bfloat16")
  check.near(values(nn.CrossEntropyLoss { weight = narrow }(ms.ops.cast(logits, "float32"),
    ms.Tensor { { 0.5, 0.5, 0 }, { 0, 0, 1 } })), values(nn.CrossEntropyLoss { weight = weight }(logits,
    f64 { { 0.5, 0.5, 0 }, { 0, 0, 1 } })), 1e-6)
  check.fails_here("expected 3 numbers, one for each class",
    function() nn.CrossEntropyLoss { weight = f64 { 1, 2 } }(logits, ms.Tensor({ 0, 1 }, ms.int32)) end)
  check.fails_here("one number for each class",
    function() nn.CrossEntropyLoss { weight = f64 { { 1, 2, 3 } } } end)
end)

check.case("NLLLoss", function()
  check_loss(function(r) return nn.NLLLoss { reduction = r } end, { log_p, ids }, { 1, 3 })
  local weight = f64 { 0.5, 1, 2 }
  check.near(values(nn.NLLLoss { weight = weight, reduction = "none" }(log_p, ids)), { 2, 1.5 }, 1e-12)
  check.near(nn.NLLLoss { weight = weight }(log_p, ids):item(), 3.5 / 2.5, 1e-12)
  check.near(nn.NLLLoss { ignore_index = 0 }(log_p, ids):item(), 1, 1e-12)
  check.equal(nn.NLLLoss()(log_p, ms.full({ 2 }, -100, ms.int32)):item(), 0)
  -- label_smoothing is CrossEntropyLoss's.
  local logits = f64 { { 1, 2, 3 }, { 3, -2, 1 } }
  local labels = ms.Tensor({ 2, -100 }, ms.int32)
  for _, r in ipairs { "mean", "sum" } do
    check.near(nn.NLLLoss { label_smoothing = 0.3, reduction = r }(ms.ops.log_softmax(logits, -1), labels):item(),
      nn.CrossEntropyLoss { label_smoothing = 0.3, reduction = r }(logits, labels):item(), 1e-12)
  end
  local infinite = f64 { { -0.1, -math.huge, -1 }, { -3, -0.2, -0.9 } }
  check.near(nn.NLLLoss()(infinite, ids):item(), 2, 1e-12)
  check.near(values(nn.NLLLoss():rows(log_p:reshape(1, 2, 3), ids:reshape(1, 2))), { 2 }, 1e-12)
  check_gradient("NLLLoss", function(a) return nn.NLLLoss { weight = weight, label_smoothing = 0.2 }(a, ids) end,
    { log_p })
  check.fails_here("weight: expected 3 numbers, one for each class",
    function() nn.NLLLoss { weight = f64 { 1, 2 } }(log_p, ids) end)
end)

check.case("a label that is no class is named with its record", function()
  local x, labels = ms.rand { 2, 2, 3 }, ms.Tensor({ { 0, 1 }, { 3, -100 } }, ms.int32)
  local weight = ms.ones { 3 }
  for _, loss in ipairs {
    nn.CrossEntropyLoss(), nn.CrossEntropyLoss { weight = weight }, nn.CrossEntropyLoss { label_smoothing = 0.1 },
    nn.CrossEntropyLoss { weight = weight, label_smoothing = 0.1 }, nn.NLLLoss(), nn.NLLLoss { weight = weight },
    nn.FocalLoss(), nn.FocalLoss { weight = weight },
  } do
    local text = "the label of record 3 is 3, expected 0 to 2 for 3 classes"
    check.fails(text, function() loss(x, labels) end)
    check.fails(text, function() ms.grad(function(logits) return loss(logits, labels) end)(x) end)
  end
end)

check.case("HuberLoss", function()
  local a, b = f64 { { 0.5, -3 }, { 2.5, 0 } }, f64 { { 0, 1 }, { 2, 2 } }
  check_loss(function(r) return nn.HuberLoss(r, 1.5) end, { a, b }, { 0.125, 1.5 * 3.25, 0.125, 1.5 * 1.25 })
  check.near(nn.HuberLoss()(a, b):item(), (0.125 + 3.5 + 0.125 + 1.5) / 4, 1e-12)
  check_gradient("HuberLoss", function(x_, y_) return nn.HuberLoss("sum", 1.5)(x_, y_) end, { a, b })
end)

check.case("the gradient at an infinite difference is the largest one", function()
  for _, loss in ipairs { nn.HuberLoss { reduction = "sum" }, nn.SmoothL1Loss { reduction = "sum" } } do
    local x = ms.Tensor { 1 / 0, -1 / 0, 5, 0.5, 0 }
    local value, gradient = ms.value_and_grad(function(v) return loss(v, ms.zeros { 5 }) end, 1)(x)
    check.equal(value:item(), 1 / 0)
    check.equal(gradient:totable(), { 1, -1, 1, 0.5, 0 })
  end
end)

check.case("DiceLoss", function()
  local a, b = f64 { { 0.5, 0.25, 1 }, { 0, 0.75, 0.5 } }, f64 { { 1, 0, 1 }, { 0, 1, 1 } }
  local squares = 0.25 + 0.0625 + 1 + 0.5625 + 0.25
  check.near(nn.DiceLoss()(a, b):item(), 1 - 2 * (0.5 + 1 + 0.75 + 0.5) / (squares + 4 + 1e-5), 1e-12)
  check.near(values(nn.DiceLoss(0.5):rows(a, b)),
    { 1 - 2 * 1.5 / (1.3125 + 2 + 0.5), 1 - 2 * 1.25 / (0.8125 + 2 + 0.5) }, 1e-12)
  check.equal(nn.DiceLoss()(ms.zeros { 2, 2 }, ms.zeros { 2, 2 }):item(), 1)
  check_gradient("DiceLoss", function(x_, y_) return nn.DiceLoss()(x_, y_) end, { a, b })
end)

check.case("FocalLoss", function()
  local logits = { { 1, 2, -0.5 }, { 0.25, -1, 0.5 } }
  local function p(i, j)
    local sum = 0
    for _, v in ipairs(logits[i]) do sum = sum + math.exp(v) end
    return math.exp(logits[i][j]) / sum
  end
  local function term(i, j, gamma) return -(1 - p(i, j)) ^ gamma * math.log(p(i, j)) end
  check_loss(function(r) return nn.FocalLoss { reduction = r } end, { f64(logits), ids },
    { term(1, 3, 2), term(2, 1, 2) })
  local weight = f64 { 0.5, 1, 2 }
  check_loss(function(r) return nn.FocalLoss { weight = weight, gamma = 0.5, reduction = r } end, { f64(logits), ids },
    { 2 * term(1, 3, 0.5), 0.5 * term(2, 1, 0.5) })
  local shares, wanted = { { 0, 0.25, 1 }, { 1, 0, 0.5 } }, {}
  for i = 1, 2 do
    for j = 1, 3 do wanted[#wanted + 1] = shares[i][j] * term(i, j, 2) end
  end
  check_loss(function(r) return nn.FocalLoss { reduction = r } end, { f64(logits), f64(shares) }, wanted)
  check.near(nn.FocalLoss { gamma = 0 }(f64(logits), ids):item(), nn.CrossEntropyLoss()(f64(logits), ids):item(), 1e-12)
  for _, gamma in ipairs { 0, 0.5, 1, 2 } do
    check_gradient("FocalLoss", function(a) return nn.FocalLoss { gamma = gamma, weight = weight }(a, ids) end,
      { f64(logits) })
    -- A row that is certain has the loss 0, and a gradient that is a number.
    local certain = ms.grad(function(a) return nn.FocalLoss { gamma = gamma }(a, ids) end)
    check.near(flat(certain(f64 { { 0, 0, 900 }, { 900, 0, 0 } })), { 0, 0, 0, 0, 0, 0 }, 1e-12)
  end
end)

check.case("CosineEmbeddingLoss", function()
  local a, b = f64 { { 1, 2 }, { -1, 0.5 }, { 3, 1 } }, f64 { { 2, 1 }, { 1, 2 }, { 1, 1 } }
  local label = ms.Tensor({ 1, -1, -1 }, ms.int32)
  local cos = { 4 / 5, 0, 4 / math.sqrt(20) }
  check_loss(function(r) return nn.CosineEmbeddingLoss(0.25, r) end, { a, b, label }, { 0.2, 0, cos[3] - 0.25 })
  check.near(nn.CosineEmbeddingLoss()({ a, b }, label):item(), (0.2 + cos[3]) / 3, 1e-9)
  check_gradient("CosineEmbeddingLoss", function(x_, y_) return nn.CosineEmbeddingLoss(0.25)(x_, y_, label) end,
    { a, b })
  check.equal(nn.CosineEmbeddingLoss()(a * 0, b, label):item(), 1 / 3)
  local unknown = nn.CosineEmbeddingLoss(0, "none")(a, b, label * 0):totable()
  check.equal(unknown[1] ~= unknown[1], true)
  check.fails_here("expected two tensors and a label", function() nn.CosineEmbeddingLoss()(a, b) end)
end)

check.case("TripletMarginLoss", function()
  local x_, near, far = { { 1, 2 }, { 0, -1 } }, { { 1.5, 1 }, { 2, 1 } }, { { -1, 0.5 }, { 0.5, -1.5 } }
  local function distance(a, b, p)
    local sum = 0
    for i = 1, 2 do sum = sum + math.abs(a[i] - b[i] + 1e-6) ^ p end
    return sum ^ (1 / p)
  end
  for _, p in ipairs { 1, 2, 3 } do
    for _, swap in ipairs { false, true } do
      local wanted = {}
      for i = 1, 2 do
        local away = distance(x_[i], far[i], p)
        if swap then away = math.min(away, distance(near[i], far[i], p)) end
        wanted[i] = math.max(0, distance(x_[i], near[i], p) - away + 1.5)
      end
      local function make(r) return nn.TripletMarginLoss { p = p, swap = swap, margin = 1.5, reduction = r } end
      check_loss(make, { f64(x_), f64(near), f64(far) }, wanted)
      check_gradient("TripletMarginLoss", function(a, b, c) return make "sum"(a, b, c) end,
        { f64(x_), f64(near), f64(far) })
    end
  end
  for _, p in ipairs { 2, 3 } do  -- a distance of 0 has a gradient of 0
    local gradient = ms.grad(nn.TripletMarginLoss { p = p })(f64 { { 0 } }, f64 { { 1e-6 } }, f64 { { 0.5 } })
    assert(math.abs(gradient:item() - 1) < 1e-12, gradient)
  end
  check.fails_here("expected three tensors", function() nn.TripletMarginLoss()(f64(x_), f64(near)) end)
end)

check.case("a label that a loss would broadcast, or take in another order, is an error", function()
  local x, turned = ms.rand { 2, 6, 5 }, ms.zeros({ 6, 2 }, ms.int32)
  for name, case in pairs {
    CrossEntropyLoss = { nn.CrossEntropyLoss(), x, turned, { "[2, 6]", "int32[6, 2]" } },
    NLLLoss = { nn.NLLLoss(), x, turned, { "[2, 6]", "int32[6, 2]" } },
    FocalLoss = { nn.FocalLoss(), x, turned, { "[2, 6]", "int32[6, 2]" } },
    SoftmaxCrossEntropyWithLogits = { nn.SoftmaxCrossEntropyWithLogits(), x, ms.rand { 6, 2, 5 },
      { "[2, 6, 5]", "float32[6, 2, 5]" } },
    L1Loss = { nn.L1Loss(), ms.rand { 4, 1 }, ms.rand { 4 }, { "[4, 1]", "float32[4]" } },
    HuberLoss = { nn.HuberLoss(), ms.rand { 4, 1 }, ms.rand { 4 }, { "[4, 1]", "float32[4]" } },
    SmoothL1Loss = { nn.SmoothL1Loss(), ms.rand { 4, 1 }, ms.rand { 4 }, { "[4, 1]", "float32[4]" } },
    BCELoss = { nn.BCELoss(), ms.rand { 4, 1 }, ms.rand { 4 }, { "[4, 1]", "float32[4]" } },
    BCEWithLogitsLoss = { nn.BCEWithLogitsLoss(), ms.rand { 4, 1 }, ms.rand { 4 }, { "[4, 1]", "float32[4]" } },
    KLDivLoss = { nn.KLDivLoss(), ms.rand { 4, 1 }, ms.rand { 4 }, { "[4, 1]", "float32[4]" } },
    DiceLoss = { nn.DiceLoss(), ms.rand { 4, 6 }, ms.rand { 6, 4 }, { "[4, 6]", "float32[6, 4]" } },
  } do
    local loss, output, label, text = unpack(case)
    local wanted, got = unpack(text)
    local message = ("%s: expected a label of shape %s for float32[%s], got %s"):format(name, wanted,
      table.concat(output.shape, ", "), got)
    check.fails(message, function() loss(output, label) end)
    check.fails(message, function() loss:rows(output, label) end)
  end
  local pixels, mask = ms.rand { 2, 3, 4, 5 }, ms.zeros({ 2, 1, 3, 4 }, ms.int32)
  check.equal(nn.CrossEntropyLoss()(pixels, mask):item(),
    nn.CrossEntropyLoss()(pixels, ms.ops.reshape(mask, { 2, 3, 4 })):item())
  check.fails("TripletMarginLoss: expected a label of shape [4, 3] for float32[4, 3], got float32[3]",
    function() nn.TripletMarginLoss()(ms.rand { 4, 3 }, ms.rand { 4, 3 }, ms.rand { 3 }) end)
  check.fails("CosineEmbeddingLoss: expected a label of shape [4] for float32[4, 3], got int32[4, 1]",
    function() nn.CosineEmbeddingLoss()(ms.rand { 4, 3 }, ms.rand { 4, 3 }, ms.ones({ 4, 1 }, ms.int32)) end)
end)

check.case("a weight does not make losses more", function()
  local output, label = ms.Tensor { { 1 }, { 2 }, { 3 }, { 4 } }, ms.Tensor { { 1 }, { 0 }, { 1 }, { 0 } }
  local four = ms.Tensor { 1, 2, 3, 4 }
  local expected = ": expected a shape that broadcasts to the losses' [4, 1], got float32[4]"
  for text, make in pairs {
    ["BCEWithLogitsLoss: weight"] = function(r) return nn.BCEWithLogitsLoss { weight = four, reduction = r } end,
    ["BCEWithLogitsLoss: pos_weight"] = function(r)
      return nn.BCEWithLogitsLoss { pos_weight = four, reduction = r }
    end,
    ["BCELoss: weight"] = function(r) return nn.BCELoss { weight = four, reduction = r } end,
  } do
    for _, r in ipairs { "none", "sum", "mean" } do
      check.fails_here(text .. expected, function() make(r)(output, label) end)
      check.fails_here(text .. expected, function() make(r):rows(output, label) end)
    end
  end
  check.fails_here("got float32[1, 4, 1]",
    function() nn.BCELoss { weight = four:reshape(1, 4, 1) }(label, label) end)
  local log = math.log
  local weight = ms.Tensor { { 1 }, { 2 } }
  check.near(values(nn.BCELoss { weight = weight, reduction = "none" }(ms.full({ 2, 2 }, 0.5), y)),
    { { log(2), log(2) }, { 2 * log(2), 2 * log(2) } }, 1e-6)
end)

check.case("dimensions of 1 in labels, and a single row of logits", function()
  local logits, weight = f64 { { 1, 2, 0.5 }, { -1, 0.25, 2 } }, f64 { 2, 0.5, 1 }
  local labels, shares = ms.Tensor({ 2, 0 }, ms.int32), f64 { { 0.2, 0.3, 0.5 }, { 0.1, 0.8, 0.1 } }
  for _, r in ipairs { "mean", "sum", "none" } do
    for _, loss in ipairs { nn.CrossEntropyLoss { reduction = r }, nn.NLLLoss { reduction = r },
      nn.CrossEntropyLoss { weight = weight, reduction = r }, nn.NLLLoss { weight = weight, reduction = r },
      nn.FocalLoss { reduction = r }, nn.FocalLoss { weight = weight, reduction = r },
      nn.SoftmaxCrossEntropyWithLogits { sparse = true, reduction = r } } do
      local wanted = values(loss(logits, labels))
      check.equal(values(loss(logits, labels:reshape(2, 1))), wanted)
      check.equal(values(loss(logits, labels:reshape(1, 2))), wanted)
      check.equal(flat(loss(logits:reshape(2, 1, 3), labels:reshape(2, 1))), flat(loss(logits, labels)))
      check.equal(flat((loss:rows(logits, labels:reshape(2, 1)))), flat((loss:rows(logits, labels))))
      local first = loss(logits[{ { 1, 1 } }], labels[{ { 1, 1 } }])
      check.equal(flat(loss(logits[1], ms.ops.reshape(labels[{ { 1, 1 } }], {}))), flat(first))
      check.equal(flat(loss(logits[1], labels[{ { 1, 1 } }])), flat(first))
    end
    for _, loss in ipairs { nn.FocalLoss { reduction = r }, nn.SoftmaxCrossEntropyWithLogits { reduction = r } } do
      check.equal(values(loss(logits, shares:reshape(2, 1, 3))), values(loss(logits, shares)))
      check.equal(flat((loss:rows(logits, shares:reshape(2, 1, 3)))), flat((loss:rows(logits, shares))))
      check.equal(flat(loss(logits[1], shares[1])), flat(loss(logits[{ { 1, 1 } }], shares[{ { 1, 1 } }])))
    end
  end
  check.fails_here("FocalLoss: expected a label of shape [2, 3] for float64[2, 3], got float64[2, 1, 2]",
    function() nn.FocalLoss()(logits, f64 { { { 1, 2 } }, { { 3, 4 } } }) end)
  check.fails_here("CrossEntropyLoss: expected logits [.., classes], got float32[]",
    function() nn.CrossEntropyLoss()(ms.Tensor(1), ms.Tensor(0, ms.int32)) end)
end)

check.case("a number is a label of all elements", function()
  for _, name in ipairs { "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss",
    "KLDivLoss", "DiceLoss" } do
    local loss, output = nn[name](), ms.Tensor { { 0.25, 0.5 }, { 0.75, 0.1 } }
    check.near(values(loss(output, 1)), values(loss(output, ms.ones { 2, 2 })), 1e-6)
    check.near(values((loss:rows(output, 1))), values((loss:rows(output, ms.ones { 2, 2 }))), 1e-6)
  end
end)

check.case("what is no output, or no label", function()
  for name, loss in pairs(nn) do
    if name:find "Loss$" and name ~= "Loss" then
      for _, given in ipairs { { nil, y }, { x, nil }, { x, "a" }, { x, { 1 } }, { 3, x } } do
        check.fails_here(name .. ": expected ", function() loss()(given[1], given[2]) end)
      end
    end
  end
  check.fails_here("CrossEntropyLoss: weight: expected 3 numbers, one for each class", function()
    nn.CrossEntropyLoss { weight = f64 { 1, 2 } }(log_p, ids)
  end)
  check.fails_here("CrossEntropyLoss: expected a label of shape [2] for float64[2, 3], got int32[3]", function()
    nn.CrossEntropyLoss { weight = f64 { 1, 2, 3 } }(log_p, ms.zeros({ 3 }, ms.int32))
  end)
end)

check.case("TripletMarginLoss of a network that gives a table", function()
  local a, b, c = f64 { { 1, 2 }, { 0, -1 } }, f64 { { 1.5, 1 }, { 2, 1 } }, f64 { { -1, 0.5 }, { 0.5, -1.5 } }
  for _, r in ipairs { "mean", "sum", "none" } do
    local loss = nn.TripletMarginLoss { reduction = r }
    check.equal(values(loss({ a, b, c })), values(loss(a, b, c)))
    check.equal(values(loss({ a, b, c }, ms.zeros { 2 })), values(loss(a, b, c)))
    check.equal(values(loss:rows { a, b, c }), values(nn.TripletMarginLoss { reduction = "none" }(a, b, c)))
  end
  local Three = nn.Cell:extend "Three"
  function Three:init() self.fc = nn.Dense(2, 2) end
  function Three:construct(...)
    local given = { ... }
    for i, v in ipairs(given) do given[i] = self.fc(v) end
    return given
  end
  local columns = {}
  for i, v in ipairs { a, b, c } do columns[i] = ms.ops.cast(v, "float32") end
  columns[4] = ms.zeros { 2 }
  local data = ms.dataset.NumpySlicesDataset(columns, { "a", "p", "n", "y" }):batch(2)
  local net = Three()
  local model = ms.Model(net, { loss_fn = nn.TripletMarginLoss(), optimizer = nn.SGD { learning_rate = 0.1 },
    metrics = {} })
  local before = net.fc.weight.value:totable()
  model:train(1, data)
  assert(net.fc.weight.value:totable()[1][1] ~= before[1][1])
  check.near(model:eval(data).loss, nn.TripletMarginLoss()(net(unpack(columns, 1, 3))):item(), 1e-6)
  check.fails("expected three tensors", function() nn.TripletMarginLoss():rows(a) end)
  check.fails("expected two tensors and a label", function() nn.CosineEmbeddingLoss():rows(a, b) end)
end)

check.done()
