--- ms.summary: what a recipe records of a running training, from callbacks and metrics.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"

local M = {}

local function name_of(scalar)
  return { "name", "string", required = true, check = function(name)
    local problem = core.summary_problem(name, scalar)
    if problem ~= "" then return problem end
  end, doc = 'what the records are called, "samples/digits"' .. (scalar and "; no key of metrics.jsonl" or "") }
end

local name_field = name_of(false)
local step_field = { "step", "integer", min = 0, doc = "the place on the axis; default: the training's step" }

-- Values of a network that is traced have no numbers yet.
local function check_place(what)
  if core.is_tracing() then
    errors.fail("summary.%s: the network is traced here, and has no numbers yet: call it in a callback", what)
  end
end

local bind_scalar = args.signature("summary.scalar", {
  name_of(true), { "value", "any_number|tensor", required = true, doc = "a number, or a tensor of one" }, step_field,
})

--- Records a number, a curve of `mslua report` and TensorBoard: `ms.summary.scalar("temperature", 0.5)` in a callback.
--- value is a number or a tensor of one; step, the training's where it is left out, its place on the axis. Of several
--- ranks the first records, here and in the other functions of ms.summary; a run without a folder records nothing.
function M.scalar(...)
  check_place "scalar"
  local a = bind_scalar(...)
  local value = a.value
  if type(value) ~= "number" then
    if value.size ~= 1 then
      errors.fail("summary.scalar: %s: expected a number or a tensor of one, got %s%s", a.name, value.dtype,
        errors.show(value.shape))
    end
    value = core.tensor(value, "float64", {}):item()
  end
  core.summary_scalar(a.name, value, a.step or -1)
end

local bind_histogram = args.signature("summary.histogram", {
  name_field, { "value", "tensor", required = true, doc = "the values to count" }, step_field,
})

--- Records how the values of a tensor are distributed: `ms.summary.histogram("logits", x)` in a callback. Values that
--- are NaN or infinite are counted apart, and said. (name, value, step = the training's)
function M.histogram(...)
  check_place "histogram"
  local a = bind_histogram(...)
  core.summary_histogram(a.name, a.value, a.step or -1)
end

local bind_text = args.signature("summary.text", {
  name_field, { "text", "string", required = true, doc = "the text" }, step_field,
})

--- Records a text, such as what a model generates: `ms.summary.text("sample", "To be")` in a callback. (name, text,
--- step = the training's)
function M.text(...)
  check_place "text"
  local a = bind_text(...)
  core.summary_text(a.name, a.text, a.step or -1)
end

local image_fields = {
  name_field,
  { "x", "tensor", required = true, doc = "[h, w], [c, h, w] or [n, c, h, w], with 1 or 3 channels" }, step_field,
}
for _, field in ipairs(require "mslua.image_fields") do image_fields[#image_fields + 1] = field end
local bind_image = args.signature("summary.image", image_fields)

--- Records a picture, `ms.summary.image("digits", x)` in a callback; it is also a file of the run folder,
--- `summaries/digits_STEP.png`. x and the arguments behind step are those of ms.image.write; NaN is black. (name, x,
--- step = the training's, low = 0, high, columns = 8, padding = 2)
function M.image(...)
  check_place "image"
  local a = bind_image(...)
  core.summary_image(a.name, a.x, a.step or -1, {
    low = a.low, high = a.high or (a.x.dtype == "uint8" and 255 or 1), columns = a.columns, padding = a.padding,
  })
end

return require("mslua.namespace").strict("ms.summary", M)
