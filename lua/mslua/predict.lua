--- `mslua predict R FILE...`: what the network gives for files; for a classifier the likeliest classes.
local class = require "mslua.class"
local core = require "mslua.core"
local derive = require "mslua.dataset.derive"
local errors = require "mslua.errors"
local BCELoss = require "mslua.nn.loss.bce"
local BCEWithLogitsLoss = require "mslua.nn.loss.bce_with_logits"
local literal = require "mslua.literal"
local metrics = require "mslua.metrics"
local notice = require "mslua.notice"
local ops = require "mslua.ops"
local sample_files = require "mslua.sample_files"
local text_source = require "mslua.text_source"

local M = {}

local DEFAULT_TOP = 5

local of_classes = { top1 = true, top5 = true, accuracy = true }

-- Whether the network's last dimension holds a number for each class.
local function classifies(recipe)
  if recipe.labels then return true end
  for _, name in ipairs(recipe.eval.metrics) do
    if of_classes[name] then return true end
  end
  return class.is(recipe.loss, class.Object) and recipe.loss.of_classes == true
end

-- The names of the classes; nil: their numbers from 0 are all that is known.
local function names_of(recipe, base, tokenizer, count)
  if recipe.labels then
    metrics.check_labels(recipe.labels, count)
    return recipe.labels
  end
  local source = derive.flattened(base.spec).source
  local folders = source.kind == "image_folder" and base:get_class_names()
  if folders and #folders == count then return folders end
  if source.kind ~= "text" then return nil end
  if source.format == "characters" then return text_source.characters(source) end
  return tokenizer and setmetatable({}, { __index = function(_, i)
    if i > tokenizer.vocab_size then return nil end  -- the network may have more rows
    local text = tokenizer:decode { i - 1 }
    return text ~= "" and text or tokenizer:token_of(i - 1)
  end })
end

-- The tokenizer of a recipe's texts; nil: there is none.
local function tokenizer_of(recipe, base)
  local folder = core.options.file:match "^(.*/)config%.lua$"  -- a run's
  if folder and text_source.has_tokenizer(folder) then return text_source.of_folder(folder).tokenizer end
  return recipe:make_tokenizer(base)
end

-- Probabilities of classes of which one is so; nil: there are none, as a logit is NaN, or the largest is infinite.
local function softmax(logits)
  local largest, sum, probabilities = -math.huge, 0, {}
  for _, x in ipairs(logits) do
    if x ~= x then return nil end
    largest = math.max(largest, x)
  end
  if math.abs(largest) == math.huge then return nil end
  for _, x in ipairs(logits) do sum = sum + math.exp(x - largest) end
  for i, x in ipairs(logits) do probabilities[i] = math.exp(x - largest) / sum end
  return probabilities
end

-- The probabilities of the classes by what a network gives for a sample; nil: there are none. For losses of two classes
-- one number is the second one's, several are those of classes that do not exclude each other: logits, of BCELoss
-- probabilities.
local function probabilities_of(recipe, values)
  local given, logits = class.is(recipe.loss, BCELoss), class.is(recipe.loss, BCEWithLogitsLoss)
  if not given and not logits and #values > 1 then return softmax(values) end
  local probabilities = {}
  for i, x in ipairs(values) do
    if x ~= x then return nil end
    probabilities[i] = given and x or 1 / (1 + math.exp(-x))
  end
  return #values > 1 and probabilities or { 1 - probabilities[1], probabilities[1] }
end

-- The k likeliest classes: {class from 0, probability}, in order; of equal ones the first.
local function likeliest(probabilities, k)
  local order, found = {}, {}
  for i in ipairs(probabilities) do order[i] = i end
  table.sort(order, function(a, b)
    if probabilities[a] == probabilities[b] then return a < b end
    return probabilities[a] > probabilities[b]
  end)
  for i = 1, math.min(k, #order) do
    found[i] = { class = order[i] - 1, probability = probabilities[order[i]] }
  end
  return found
end

-- A line that keeps the place of a sample whose results are NaN.
local function print_undefined(name)
  local text = literal.json_string(name)
  print(core.options.json and ('{"file": %s, "class": null, "label": null, "top": []}'):format(text) or name .. "  nan")
end

local function label_of(names, id) return names and names[id + 1] or tostring(id) end

local function print_classes(name, found, names)
  if core.options.json then
    local words = {}
    for i, f in ipairs(found) do
      words[i] = ('{"class": %d, "label": %s, "probability": %s}'):format(f.class,
        literal.json_string(label_of(names, f.class)), literal.json_number(f.probability))
    end
    print(('{"file": %s, "class": %d, "label": %s, "top": [%s]}'):format(literal.json_string(name), found[1].class,
      literal.json_string(label_of(names, found[1].class)), table.concat(words, ", ")))
  else
    local words = {}
    for i, f in ipairs(found) do
      local label = label_of(names, f.class)
      words[i] = ("%s %.1f%%"):format(label:find "^%s*$" and literal.json_string(label) or label, 100 * f.probability)
    end
    print(name .. "  " .. table.concat(words, "  "))
  end
end

local function print_numbers(name, values)
  local words = {}
  for i, v in ipairs(values) do words[i] = core.options.json and literal.json_number(v) or ("%.6g"):format(v) end
  if core.options.json then
    print(('{"file": %s, "output": [%s]}'):format(literal.json_string(name), table.concat(words, ", ")))
  else
    print(name .. "  " .. table.concat(words, " "))
  end
end

-- All numbers of nested lists.
local function flat(v, into)
  if type(v) ~= "table" then
    into[#into + 1] = v
  else
    for _, item in ipairs(v) do flat(item, into) end
  end
  return into
end

-- Numbers, of which some may be NaN.
local function has_nan(values)
  for _, v in ipairs(values) do
    if v ~= v then return true end
  end
  return false
end

-- What classifies has a number for each class in the last dimension: of a sample, or of each place of a sequence.
local function check_output(output, rows, classes)
  local shape = core.kind(output) and output.shape
  if not shape or shape[1] ~= rows then
    errors.fail_at({ "network" }, "predict: a prediction has a row for each sample of a batch, of %d here, the network "
      .. "gives %s", rows, errors.show(output))
  end
  if classes and #shape > 3 then
    errors.fail_at({ "network" }, "predict: the network gives classes for each place of a sample, %s, and predict "
      .. "prints those of a whole sample: `mslua eval` measures it, and a program for `mslua run` can call it",
      errors.show(output))
  end
end

-- A tensor with `rows` rows, zeros behind its own.
local function filled(x, rows, shape)
  local missing = rows - x.shape[1]
  if missing > 0 then
    local tail = { missing, unpack(x.shape, 2) }
    x = ops.concat({ x, core.zeros(tail, x.dtype) }, 1)
  end
  return ops.reshape(x, shape)
end

-- Prints the results of one part; gives the number of rows whose results are NaN.
local function run_part(recipe, base, tokenizer, part, model)
  local graph = model:predict_graph(part)
  local classes, taken, undefined = classifies(recipe), 0, 0
  local names, top = nil, core.options.top or DEFAULT_TOP
  if not classes and core.options.top then
    error(("%s: --top has no effect: the recipe has neither labels, nor the metric top1, nor a loss of classes")
      :format(core.options.file), 0)
  end
  local next_batch = part.dataset:iterator(1)
  local function columns_of_next()
    local columns = { next_batch() }
    return columns[1] and columns
  end
  for columns in columns_of_next do
    local rows, inputs = columns[1].shape[1], {}
    for i, spec in ipairs(graph:inputs()) do
      if spec.kind == "data" then inputs[#inputs + 1] = filled(columns[#inputs + 1], part.size, spec.shape) end
    end
    local output = graph:run(unpack(inputs))
    check_output(output, part.size, classes)
    local count = #output.shape > 1 and output.shape[#output.shape] or 1
    if classes then names = names or names_of(recipe, base, tokenizer, math.max(count, 2)) end
    output = output:totable()
    for row = 1, rows do
      local values = output[row]
      -- Of a sequence the last position: what comes next.
      while classes and type(values) == "table" and type(values[1]) == "table" do values = values[#values] end
      local name = part.name(taken + row)
      values = flat(values, {})
      local probabilities = classes and probabilities_of(recipe, values)
      if probabilities then
        print_classes(name, likeliest(probabilities, top), names)
      elseif classes then
        print_undefined(name)
      else
        print_numbers(name, values)
      end
      if not probabilities and (classes or has_nan(values)) then undefined = undefined + 1 end
    end
    taken = taken + rows
  end
  return undefined
end

--- Prints a line for each sample of the files; gives the exit code.
---@param recipe mslua.Recipe
---@param base mslua.Dataset its evaluation data, or that of training
---@param model mslua.Model with its weights
---@return integer
function M.run(recipe, base, model)
  local temporary = {}
  local good, result = pcall(function()
    local undefined, tokenizer = 0, tokenizer_of(recipe, base)
    local parts = sample_files.open(base, recipe.eval_dataset ~= nil, tokenizer, core.options.args, temporary)
    for _, part in ipairs(parts) do
      undefined = undefined + run_part(recipe, base, tokenizer, part, model)
    end
    return undefined
  end)
  for path, name in pairs(temporary) do
    os.remove(path)
    if type(result) == "string" then result = result:gsub(path, function() return name end) end
  end
  if not good then error(result, 0) end
  if result == 0 then return 0 end
  notice(("warning: the results of %d samples are NaN"):format(result))
  return 7
end

return M
