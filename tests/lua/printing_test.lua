-- set_printoptions: digits, edges, columns, notation, defaults, bad values.
local check = require "check"
local ms = require "mslua"

check.case("tensors are written with the digits that were asked for", function()
  local x = ms.Tensor({ 1 / 3, 2.5, -10 }, ms.float64)
  check.equal(tostring(x), "[  0.33333333,   2.5       , -10.        ]")
  ms.set_printoptions { precision = 3 }
  check.equal(tostring(x), "[  0.333,   2.5  , -10.   ]")
  check.equal(tostring(ms.Tensor(1 / 3)), "0.333")
  ms.set_printoptions { precision = 0 }
  check.equal(tostring(x), "[  0.,   2., -10.]")
  check.equal(tostring(ms.Tensor(1e-7)), "1.e-07")
  check.equal(ms.get_printoptions "precision", 0)
  ms.reset_printoptions()
  check.equal(tostring(ms.Tensor(1 / 3, ms.float64)), "0.33333333")
end)

check.case("the notation is the user's, or the elements'", function()
  local x = ms.Tensor { 0.5, 0.00001 }
  check.equal(tostring(x), "[5.e-01, 1.e-05]")
  ms.set_printoptions { sci_mode = false }
  check.equal(tostring(x), "[0.5    , 0.00001]")
  ms.set_printoptions { sci_mode = true }
  check.equal(tostring(ms.Tensor { 0.5, 2 }), "[5.e-01, 2.e+00]")
  ms.reset_printoptions()
end)

check.case("large tensors are written by their edges", function()
  ms.set_printoptions { threshold = 4, edgeitems = 1 }
  check.equal(tostring(ms.arange(9)), "[0, ..., 8]")
  check.equal(tostring(ms.arange(4)), "[0, 1, 2, 3]")
  check.equal(tostring(ms.zeros { 3, 3 }), "[[0., ..., 0.],\n ...,\n [0., ..., 0.]]")
  ms.reset_printoptions()
  check.equal(tostring(ms.arange(9)), "[0, 1, 2, 3, 4, 5, 6, 7, 8]")
end)

check.case("lines have the columns that were asked for", function()
  ms.set_printoptions { linewidth = 20 }
  check.equal(tostring(ms.arange(10)), "[0, 1, 2, 3, 4, 5,\n 6, 7, 8, 9]")
  ms.reset_printoptions()
  check.equal(ms.get_printoptions "linewidth", nil)
end)

check.case("values that make no sense change nothing", function()
  check.fails_here("set_printoptions: edgeitems: expected an integer, at least 1, got 0",
    function() ms.set_printoptions { precision = 2, edgeitems = 0 } end)
  check.equal(ms.get_printoptions "precision", 8)
  check.fails_here("set_printoptions: linewidth: expected an integer, at least 20, got 3",
    function() ms.set_printoptions { linewidth = 3 } end)
  check.fails_here("set_printoptions: unknown key 'digits'", function() ms.set_printoptions { digits = 2 } end)
end)

check.done()
