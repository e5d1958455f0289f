--- Turns operations of datasets that core.dataset does not know into those that it knows, when a dataset is opened:
--- functions of Lua in map and filter, and the parts of split. A function in map becomes a source whose sample i is
--- made of sample i; filter and split become lists of the samples that stay. So shuffles, ranks and resumed trainings
--- find the same samples in the same places, as long as the functions depend on their arguments alone.
local core = require "mslua.core"
local errors = require "mslua.errors"
local files = require "mslua.files"
local literal = require "mslua.literal"
local params = require "mslua.params"
local random_calls = require "mslua.random_calls"

local M = {}

--- Whether a transform draws random numbers.
function M.is_random(transform) return transform.random or transform.kind:find "^random" ~= nil end

local of_columns = { map = true, project = true, rename = true }

-- A dataset of core with the operations on columns alone, whose sample i is that of the source.
local function columns_only(name, spec)
  local ops = {}
  for _, op in ipairs(spec.ops) do
    if op.kind == "code" and name == "map" then
      errors.fail("map: a function of Lua comes behind a file of Lua, %s: put the function in a file too, or call map "
        .. "with it before", op.file)
    end
    if op.kind == "code" then errors.fail("%s: call it before map with a file of Lua, %s", name, op.file) end
    if op.kind == "batch" then errors.fail("%s: the dataset is batched already: call %s before batch", name, name) end
    if of_columns[op.kind] then
      for _, transform in ipairs(op.transforms or {}) do
        if M.is_random(transform) and name == "map" then
          errors.fail("map: a function of Lua gives the same in every epoch, and a random transform comes before it: "
            .. "call map with the function before map with the random transform, or put the function in a file of Lua")
        elseif M.is_random(transform) then
          errors.fail("%s: a random transform comes before, and would be the same in every epoch: call map with it "
            .. "after %s", name, name)
        end
      end
      ops[#ops + 1] = op
    end
  end
  local opened = core.dataset { source = spec.source, ops = ops, ragged = true }
  if not opened:length() then
    errors.fail("%s: the source is an iterator, which gives no sample by its number: give GeneratorDataset a length "
      .. "and function(i)", name)
  end
  return opened
end

local function names_of(opened)
  local names = {}
  for i, column in ipairs(opened:schema()) do names[i] = column.name end
  return names
end

-- The places of `wanted` among `names`; nil gives the first.
local function places(name, names, wanted)
  local list = {}
  for i, column in ipairs(wanted or { names[1] }) do
    for k, known in ipairs(names) do
      if known == column then list[i] = k end
    end
    if not list[i] then
      errors.fail("%s: no column '%s'%s; there are %s", name, column, core.did_you_mean(column, names),
        table.concat(names, ", "))
    end
  end
  return list
end

local function pick(values, list)
  local chosen = {}
  for i, k in ipairs(list) do chosen[i] = values[k] end
  return unpack(chosen, 1, #list)
end

-- The results of the operation's function, which must not draw random numbers: a run that is resumed would get others.
local function pure(name, op, ...)
  local tensors, numbers = core.random_numbers(), random_calls()
  local results = { op.f(...) }
  if core.random_numbers() ~= tensors or random_calls() ~= numbers then
    errors.at(op.made_at, errors.fail, "%s: the function draws random numbers, which a resumed training would "
      .. 'not get again: use random transforms, or put the function into a file, operations = "augment.lua", which '
      .. "draws for each sample", name)
  end
  return results
end

-- The source of a function over columns.
local function called(spec, op)
  local base = columns_only("map", spec)
  local names = names_of(base)
  local inputs, outputs = places("map", names, op.inputs), op.outputs or op.inputs or { names[1] }
  local first, replaced, kept, columns = inputs[1], {}, {}, {}
  for _, k in ipairs(inputs) do replaced[k] = true end
  -- The results take the place of the first column that the function gets; with equal numbers, of each.
  local one_by_one = #outputs == #inputs
  for k, name in ipairs(names) do
    if replaced[k] and one_by_one then
      for i, input in ipairs(inputs) do
        if input == k then columns[#columns + 1], kept[#kept + 1] = outputs[i], -i end
      end
    elseif k == first then
      for i, output in ipairs(outputs) do columns[#columns + 1], kept[#kept + 1] = output, -i end
    elseif not replaced[k] then
      columns[#columns + 1], kept[#kept + 1] = name, k
    end
  end
  for i, name in ipairs(columns) do
    for j = 1, i - 1 do
      if columns[j] == name then errors.fail("map: two columns would have the name '%s': give output_columns", name) end
    end
  end
  return {
    kind = "generator", length = base:length(), column_names = columns, method = "map", user_function = op.f,
    source = function(i)
      local values = { base:row(i) }
      local results = pure("map", op, pick(values, inputs))
      for k = 1, math.max(#outputs, #results) do
        if results[k] == nil or k > #outputs then
          errors.at(op.made_at, errors.fail, "map: the function should give %s, one for each of %s, got %d",
            errors.counted(#outputs, "value"), table.concat(outputs, ", "), #results)
        end
      end
      local row = {}
      for c, k in ipairs(kept) do row[c] = k > 0 and values[k] or results[-k] end
      return unpack(row, 1, #kept)
    end,
  }
end

-- Which samples a predicate keeps.
local function filtered(spec, op)
  local base, samples = columns_only("filter", spec), {}
  local inputs = places("filter", names_of(base), op.inputs or names_of(base))
  for i = 1, base:length() do
    local keeps = pure("filter", op, pick({ base:row(i) }, inputs))[1]
    if core.kind(keeps) == "Tensor" then keeps = keeps:item() end
    if type(keeps) ~= "boolean" then
      errors.fail("filter: sample %d: the function should give true or false, got %s", i, errors.show(keeps))
    end
    if keeps then samples[#samples + 1] = i end
  end
  if #samples == 0 then errors.fail("filter: the function keeps none of the %d samples", base:length()) end
  return samples
end

-- The length of each sample of the source, as a tensor int32.
local function lengths_of(spec, op)
  local name, ops = "bucket_batch_by_length", {}
  for _, earlier in ipairs(spec.ops) do
    if of_columns[earlier.kind] or earlier.kind == "code" then ops[#ops + 1] = earlier end
    if earlier.kind == "batch" then errors.fail("%s: the dataset is batched already", name) end
  end
  local base = core.dataset { source = spec.source, ops = ops, ragged = true }
  if not base:length() then
    errors.fail("%s: the source is an iterator, which gives no sample by its number: give GeneratorDataset a length "
      .. "and function(i)", name)
  end
  local inputs, lengths = places(name, names_of(base), op.columns), {}
  for i = 1, base:length() do
    local length
    if op.f then
      length = pure(name, op, pick({ base:row(i) }, inputs))[1]
      if core.kind(length) == "Tensor" then length = length:item() end
    else
      length = select(inputs[1], base:row(i)).shape[1]
    end
    if type(length) ~= "number" or length < 0 or length % 1 ~= 0 or length >= 2 ^ 31 then
      errors.fail("%s: sample %d: expected a length, an integer of at least 0, got %s%s", name, i, errors.show(length),
        op.f and "" or (": column '%s' is one number"):format(op.columns[1]))
    end
    lengths[i] = length
  end
  return core.tensor(lengths, "int32")
end

-- The samples that are left after filters and earlier splits.
local function left(spec)
  local n = columns_only("split", spec):length()
  local lost, list = {}, {}
  for _, op in ipairs(spec.ops) do
    if op.kind == "keep" then
      local kept = {}
      for _, i in ipairs(op.samples) do kept[i] = true end
      for i = 1, n do lost[i] = lost[i] or not kept[i] end
    elseif op.argument then
      errors.fail("split: the dataset has %s: leave it out, and call %s on the parts", op.argument, op.kind)
    elseif not of_columns[op.kind] then
      errors.fail("split: call it before %s", op.kind)
    end
  end
  for i = 1, n do
    if not lost[i] then list[#list + 1] = i end
  end
  return list
end

-- In how many samples each part ends.
local function ends_of(sizes, n)
  local sum, ends, whole = 0, {}, true
  for _, size in ipairs(sizes) do
    sum, whole = sum + size, whole and size == math.floor(size)
  end
  if (whole and sum ~= n) or (not whole and math.abs(sum - 1) > 1e-6) then
    errors.fail("split: sizes: expected %s that add up to %s, got %s", whole and "numbers of samples" or "fractions",
      whole and n or 1, errors.show(sizes))
  end
  local so_far = 0
  for i, size in ipairs(sizes) do
    so_far = so_far + size
    ends[i] = i == #sizes and n or whole and so_far or math.floor(so_far * n + 0.5)
    if ends[i] == (ends[i - 1] or 0) then errors.fail("split: sizes[%d]: no sample for it out of %d", i, n) end
  end
  return ends
end

-- The samples of the list in an order that is drawn.
local function drawn(list)
  local draws, place, shuffled = core.rand({ #list }, "float64", "dataset/split"):totable(), {}, {}
  for i = 1, #list do place[i] = i end
  table.sort(place, function(a, b)
    if draws[a] == draws[b] then return a < b end
    return draws[a] < draws[b]
  end)
  for i, at in ipairs(place) do shuffled[i] = list[at] end
  return shuffled
end

-- The samples of one part, in order. All parts are of one draw, whatever seed is set between them.
local function part_of(spec, op)
  local list = left(spec)
  local ends, part = ends_of(op.sizes, #list), {}
  if op.randomize then
    op.shared.order = op.shared.order or drawn(list)
    list = op.shared.order
  end
  for i = (ends[op.part - 1] or 0) + 1, ends[op.part] do part[#part + 1] = list[i] end
  table.sort(part)
  return part
end

-- Where files of the user's line may lie, beside the current folder: beside the recipe that a written configuration
-- came from, then beside the file of the line.
local function folders_of_caller()
  local file, list = (core.where() or ""):match "^(.*):%d+$", {}
  local base = params.state().base
  if file and file == core.options.file and base.from and not core.library_recipe(base.from) then
    for _, recipe in ipairs(params.recipes_of(file, base)) do list[#list + 1] = recipe:match "^(.*/)" or "" end
  end
  list[#list + 1] = file and file:match "^(.*/)"
  return list
end

--- The description of a file of Lua that makes or changes samples: `into` with its path and the text of its arguments.
---@param what string for messages
---@param path string relative to the recipe's folder, or to the current one
---@param arguments any
---@param into table
---@return table into
function M.code(what, path, arguments, into)
  local found, first = path, nil
  for _, folder in ipairs(path:sub(1, 1) ~= "/" and folders_of_caller() or {}) do
    first = first or folder .. path
    if files.is_file(folder .. path) then
      found = folder .. path
      break
    end
  end
  if not files.is_file(found) then
    errors.fail("%s: no file '%s'%s; expected a file of Lua that returns a function", what, path,
      first and first ~= path and (", and no '%s'"):format(first) or "")
  end
  into.file, into.arguments = found, "nil"
  if arguments ~= nil then
    into.arguments = literal.write(arguments)
    if not into.arguments then
      errors.fail("%s: arguments: expected a number, string, boolean or a table of them, got %s", what,
        errors.show(arguments))
    end
  end
  return into
end

-- The source that is made of other datasets, which are opened.
local function of_parts(source)
  local parts = {}
  for p, spec in ipairs(source.parts) do
    if spec.num_shards then
      errors.fail("%s: dataset %d is sharded: leave num_shards out, ranks share the samples of the result", source.kind,
        p)
    end
    parts[p] = core.dataset(M.resolve(spec))
  end
  return { kind = source.kind, parts = parts, folder = source.folder }
end

local flattens = { cache = true, concat = true, zip = true }

--- The description whose samples a cached dataset, and the first of datasets behind or beside each other, has: one of
--- the source with all operations.
---@param spec table
---@return table spec
---@return table[] beside the descriptions of the datasets that give it further columns
function M.flattened(spec)
  if not flattens[spec.source.kind] then return spec, {} end
  local inner, beside = M.flattened(spec.source.parts[1])
  local ops = {}
  for _, op in ipairs(inner.ops) do ops[#ops + 1] = op end
  for _, op in ipairs(spec.ops) do ops[#ops + 1] = op end
  if spec.source.kind == "zip" then
    for i = 2, #spec.source.parts do beside[#beside + 1] = spec.source.parts[i] end
  end
  return { source = inner.source, ops = ops, num_parallel_workers = spec.num_parallel_workers }, beside
end

--- The transforms of training's data without those that draw random numbers. A random crop becomes that of the center.
---@param transforms table[]
---@return table[] kept
---@return table<string, boolean> left_out kinds of those that are not
function M.without_random(transforms)
  local kept, left_out = {}, {}
  for _, t in ipairs(transforms) do
    if t.kind == "random_crop" then
      kept[#kept + 1] = { kind = "center_crop", height = t.height, width = t.width }
    elseif not M.is_random(t) then
      kept[#kept + 1] = t
    end
    if M.is_random(t) then left_out[t.kind] = true end
  end
  return kept, left_out
end

--- The description as core.dataset takes it. What is found is kept beside the operation, for longer datasets.
---@param spec table
---@return table
function M.resolve(spec)
  local source = spec.source
  if source.parts then
    source.made = source.made or of_parts(source)
    source = source.made
  end
  local result = { source = source, num_shards = spec.num_shards, shard_id = spec.shard_id, ops = {},
    num_parallel_workers = spec.num_parallel_workers }
  for _, op in ipairs(spec.ops) do
    if op.kind == "call" then
      op.made = op.made or called(result, op)
      local ops = {}
      for _, earlier in ipairs(result.ops) do
        if not of_columns[earlier.kind] then ops[#ops + 1] = earlier end
      end
      result.source, result.ops = op.made, ops
    elseif op.kind == "filter" or op.kind == "part" then
      op.made = op.made or (op.kind == "filter" and filtered or part_of)(result, op)
      table.insert(result.ops, { kind = "keep", samples = op.made })
    elseif op.boundaries then
      op.made = op.made or errors.at(op.made_at, lengths_of, result, op)
      table.insert(result.ops, { kind = "batch", size = op.size, drop_remainder = op.drop_remainder,
        padding = op.padding, lengths = op.made, boundaries = op.boundaries, sizes = op.sizes })
    else
      table.insert(result.ops, op)
    end
  end
  return result
end

return M
