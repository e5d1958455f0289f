--- Files as samples of a recipe, for `mslua predict`: the operations on columns of its evaluation data, on another
--- source, in the order of the files.
local core = require "mslua.core"
local derive = require "mslua.dataset.derive"
local errors = require "mslua.errors"
local notice = require "mslua.notice"
local text_source = require "mslua.text_source"

local M = {}

local of_columns = { map = true, call = true, code = true, project = true, rename = true }

local function opened(source, ops, made_at)
  return core.dataset(derive.resolve { source = source, ops = ops, made_at = made_at })
end

local function changed(source, changes)
  local made = {}
  for key, v in pairs(source) do made[key] = v end
  for key, v in pairs(changes) do made[key] = v end
  return made
end

-- The transforms of training's data without those that draw random numbers; `left_out` gets their kinds.
local function without_random(transforms, left_out)
  local kept, found = derive.without_random(transforms)
  if found.random_resized_crop then
    errors.fail_at({ "dataset" }, "predict: the recipe has no eval_dataset, and the data of its training crops at "
      .. "random sizes: give it an eval_dataset, which says what is done to a file")
  end
  for kind in pairs(found) do left_out[kind] = true end
  return kept
end

-- An operation without the columns that are missing; nil where it is of those alone. What it makes of them is missing
-- too.
local function of_present(op, missing)
  local columns = op.inputs or op.columns
  if not columns then return op end
  local outputs, here, names = op.outputs or op.names, {}, {}
  for i, column in ipairs(columns) do
    if not missing[column] then here[#here + 1], names[#names + 1] = column, outputs and outputs[i] end
  end
  -- A function of some that are there and some that are not is an error when the dataset is opened.
  if #here == #columns or (#here > 0 and op.inputs) then return op end
  for i, output in ipairs(outputs or {}) do
    if #here == 0 or missing[columns[i]] then missing[output] = true end
  end
  return #here > 0 and changed(op, { columns = here, names = outputs and names }) or nil
end

-- The operations on columns alone, but for those on `missing` columns; and the size of a batch. `drawn`: random
-- transforms stay.
local function operations(spec, missing, drawn)
  local ops, batch, left_out = {}, nil, {}
  for _, op in ipairs(spec.ops) do
    if op.kind == "batch" then
      batch = op
    elseif of_columns[op.kind] then
      op = of_present(op, missing)
      if op then
        op = changed(op, {})
        op.made = nil  -- of the recipe's source
        if op.transforms and not drawn then op.transforms = without_random(op.transforms, left_out) end
        ops[#ops + 1] = op
      end
    end
  end
  if next(left_out) then
    notice(("note: the recipe has no eval_dataset: of the data of its training these are left out: %s")
      :format(table.concat(errors.names(left_out), ", ")))
  end
  return ops, batch
end

local function write(bytes)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(bytes)
  file:close()
  return path
end

local function read(path)
  local file, problem = io.open(path, "rb")
  local bytes = file and file:read "*a"
  if not bytes then errors.fail("predict: cannot read %s", problem or path) end
  file:close()
  return bytes
end

-- The columns of a source, as its reader gives them.
local function columns_of(source) return core.dataset({ source = source, ops = {} }):schema() end

-- What a picture's shape is after some transforms; nil where they take no pictures.
local function shape_after(transforms, height, width, channels)
  local picture = core.zeros({ 1, height, width, channels }, "uint8")
  local found, shape = pcall(function()
    return core.dataset({
      source = { kind = "numpy_slices", data = { { name = "image", value = picture } } },
      ops = { { kind = "map", columns = { "image" }, transforms = transforms } },
    }):schema()[1].shape
  end)
  return found and table.concat(shape, ",") or nil
end

-- Whether pictures of any size have one size after some transforms: two have.
local function fixes_size(transforms, channels)
  local one = shape_after(transforms, 31, 47, channels)
  return one ~= nil and one == shape_after(transforms, 64, 52, channels)
end

-- Pictures take the place of samples whose first column is one. They have the size of those, unless `ops`, which `spec`
-- is made of, gives them one.
local function pictures(ops, columns, files)
  local image, zeros = columns[1], {}
  for i = 2, #columns do
    zeros[columns[i].name] = ("%s[%s]"):format(columns[i].dtype, table.concat(columns[i].shape, ","))
  end
  local source = {
    kind = "pictures", dataset_files = files, channels = image.shape[3], column_name = image.name, zeros = zeros,
  }
  for _, op in ipairs(ops) do
    if op.transforms and fixes_size(op.transforms, source.channels) then return source end
  end
  local function size(n) return n > 0 and n or nil end
  source.height, source.width = size(image.shape[1]), size(image.shape[2])
  return source
end

-- Files of records; the name of the label's column where they have none.
local function records(spec, files)
  local label = spec.source.label
  local source = changed(spec.source, {
    dataset_files = files, categories_from = spec.source.categories_from or spec.source.dataset_files,
  })
  if not label then return source end
  local plain = changed(spec.source, {
    dataset_files = files, columns = {}, column_type = "category", categories_from = files, pack = false,
  })
  plain.label, plain.crosses = nil, nil
  for _, column in ipairs(columns_of(plain)) do
    if column.name == label then return source end
  end
  source.columns = changed(source.columns or {}, {})
  source.columns[label], source.label = "skip", nil
  return source, label
end

-- Bytes of a token, by the format of a TextDataset.
local bytes_of = { characters = 1, uint16 = 2, uint32 = 4 }

-- Ids as a file of format uint32 has them.
local function uint32(ids)
  local words = {}
  for i, id in ipairs(ids) do
    words[i] = string.char(id % 256, math.floor(id / 256) % 256, math.floor(id / 65536) % 256,
      math.floor(id / 16777216))
  end
  return table.concat(words)
end

-- The end of a text, as long as a window of the recipe; what follows it is predicted. A window's labels reach one token
-- further, for which the last one stands. Where tokens are no characters and there is no tokenizer, a file has ids.
local function text(spec, tokenizer, file, temporary)
  local format, bytes = spec.source.format, read(file)
  if format ~= "characters" and tokenizer then
    bytes, format = uint32((tokenizer:encode { text = bytes, add_special_tokens = false })), "uint32"
  end
  local width = bytes_of[format]
  if not width then
    errors.fail("predict: %s: there is no tokenizer for it: give one to the recipe (tokenizer = ...), or to the folder "
      .. "of its data", file)
  end
  if #bytes < width or #bytes % width ~= 0 then
    errors.fail("predict: %s: expected at least one token%s, got %d bytes", file,
      width > 1 and (" of %s bytes"):format(width == 2 and "two" or "four") or "", #bytes)
  end
  local block = math.min(spec.source.block, #bytes / width)
  local path = write(bytes:sub(-block * width) .. bytes:sub(-width))
  temporary[path] = temporary[file] or file
  local from = width == 1 and (spec.source.characters_from or spec.source.dataset_files) or nil
  if type(from) == "table" then
    from = write(table.concat(text_source.characters(spec.source)))
    temporary[from] = temporary[path]
  end
  return changed(spec.source, {
    dataset_files = path, usage = "all", format = format, block = block, stride = block, characters_from = from,
  })
end

-- An error where a file that is to have CSV rows of `count` numbers begins as JSON does.
local function check_rows(files, count, temporary)
  for _, path in ipairs(files) do
    local file = io.open(path, "rb")
    local start = file and file:read(256) or ""
    if file then file:close() end
    if start:find "^%s*[%[{]" then
      errors.fail("predict: %s: expected CSV rows of %d number%s without a header, one line for each sample, such as "
        .. "0.5,1,...; got JSON: write the numbers alone, with commas between them (JSON lines are read where the "
        .. "recipe's data is a JsonlDataset)", temporary[path] or path, count, count == 1 and "" or "s")
    end
  end
end

-- Rows of numbers, as many as a sample of the source's first column has, or, where the source gives `batches`, a row of
-- it; and the operations that make that column of them.
local function numbers(base, columns, files, batches, temporary)
  local x = columns[1]
  if #columns > 2 or x.dtype ~= "float32" then
    errors.fail("predict: %s gives %d columns, the first %s%s: predict takes pictures, text, records of CSV and JSON "
      .. "lines, and CSV rows where one column of float32 is all that the network takes", base.class_name, #columns,
      x.dtype, errors.show(x.shape))
  end
  local names, count, shape = {}, 1, { unpack(x.shape, batches and 2 or 1) }
  for _, size in ipairs(shape) do
    if size < 1 then
      errors.fail("predict: column '%s' has samples of several shapes, and a CSV row says none: give them one shape",
        x.name)
    end
    count = count * size
  end
  check_rows(files, count, temporary)
  for i = 1, count do names[i] = "x" .. i end
  local source = {
    kind = "csv", dataset_files = files, column_names = names, column_type = "float", pack = true,
  }
  local packed = columns_of(source)[1].name
  local ops = { { kind = "rename", columns = { packed }, names = { x.name } } }
  if #shape ~= 1 then
    ops[2] = { kind = "call", inputs = { x.name }, f = function(row) return row:reshape(shape) end }
  end
  return source, ops
end

-- The padding of a batch, with the longest bucket's length for -1.
local function padding_of(batch)
  if not batch or not batch.boundaries then return batch and batch.padding end
  local padding = {}
  for i, column in ipairs(batch.padding) do
    local shape = {}
    for d, size in ipairs(column.shape) do shape[d] = size == -1 and batch.boundaries[#batch.boundaries] - 1 or size end
    padding[i] = { name = column.name, shape = shape, value = column.value }
  end
  return padding
end

-- A dataset of all samples. The operations leave their number as it is. `temporary`: files that have another name for
-- the user.
local function part(source, ops, batch, has_label, made_at, temporary)
  local files = core.dataset { source = source, ops = {}, ragged = true }  -- a function of map knows none
  local size = math.min(batch and batch.size or files:length(), files:length())
  if size == 0 then errors.fail("predict: the files have no sample") end
  ops[#ops + 1] = { kind = "batch", size = size, drop_remainder = false, padding = padding_of(batch) }
  local made = opened(source, ops, made_at)
  local columns = made:schema()
  return {
    dataset = made, size = size, columns = columns, inputs = math.max(1, #columns - (has_label and 1 or 0)),
    name = function(i)
      local place = files:place(i)
      return temporary[place] or place:gsub("^(.*)(:%d+)$", function(path, line)
        return temporary[path] and temporary[path] .. line
      end)
    end,
  }
end

--- The files as datasets of the recipe's inputs, with the recipe's operations, batched as its data is.
---@param base mslua.Dataset the recipe's data
---@param drawn boolean random transforms stay
---@param tokenizer? mslua.Tokenizer of texts
---@param paths string[] "-": what stands on stdin
---@param temporary table<string, string> files that are made, with the user's names: the caller removes them at the end
---@return {dataset: table, size: integer, columns: table[], inputs: integer, name: fun(i: integer): string}[] parts
function M.open(base, drawn, tokenizer, paths, temporary)
  local made_at, spec, beside = rawget(base, "made_at"), derive.flattened(base.spec)
  local absent = {}  -- columns that no file gives
  for _, other in ipairs(beside) do
    for _, column in ipairs(core.dataset(derive.resolve(other)):schema()) do absent[column.name] = true end
  end
  local files = {}
  for i, path in ipairs(paths) do
    files[i] = path
    if path == "-" then
      if next(temporary) then errors.fail "predict: - stands for stdin, which can be read once" end
      files[i] = write(io.read "*a")
      temporary[files[i]] = "-"
    else
      local file, problem = io.open(path, "rb")
      if not file then errors.fail("predict: cannot read %s", problem) end
      file:close()
    end
  end
  local kind = spec.source.kind
  if kind == "text" then
    local parts = {}
    for i, file in ipairs(files) do
      local source = text(spec, tokenizer, file, temporary)
      local ops, batch = operations(spec, absent, drawn)
      parts[i] = part(source, ops, batch, true, made_at, temporary)
      parts[i].name = function() return paths[i] end
    end
    return parts
  end
  if kind == "csv" or kind == "jsonl" then
    local source, without = records(spec, files)
    if without then absent[without] = true end
    local ops, batch = operations(spec, absent, drawn)
    return { part(source, ops, batch, spec.source.label ~= nil and not without, made_at, temporary) }
  end
  local columns = columns_of(spec.source)
  if kind ~= "generator" and kind ~= "numpy_slices" then
    local image = columns[1]
    if image.dtype == "uint8" and #image.shape == 3 then
      local ops, batch = operations(spec, absent, drawn)
      return { part(pictures(ops, columns, files), ops, batch, true, made_at, temporary) }
    end
  end
  local whole = base:open():schema()
  for i = 2, #columns do absent[columns[i].name] = true end
  local ops, batch = operations(spec, absent, drawn)
  if not batch and #ops > 0 then
    errors.fail_at({ "dataset" }, "predict: %s gives batches, and what %s does to them cannot be done to a row: give "
      .. "samples, and call batch", base.class_name, ops[1].kind == "call" and "map" or ops[1].kind)
  end
  local source, first = numbers(base, columns, files, not batch, temporary)
  local all = table.move(ops, 1, #ops, #first + 1, first)
  local made = part(source, all, batch or { size = whole[1].shape[1] }, false, made_at, temporary)
  -- Operations may make the label of the input.
  if #made.columns > 1 and #made.columns == #whole then made.inputs = #made.columns - 1 end
  return { made }
end

return M
