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
  local rows = nn.CrossEntropyLoss():rows(logits:reshape(1, 3, 3), ids:reshape(1, 3))
  check.near(values(rows), { (a + c) / 2 }, 1e-5)
  -- A tenth of the label in equal parts on all classes: the mean of -log p is a + 1 in the first row.
  local smooth = nn.CrossEntropyLoss { label_smoothing = 0.1 }
  check.near(values(smooth(logits, ids)), (0.9 * a + 0.1 * (a + 1) + c) / 2, 1e-5)
end)

check.done()
