--- Files as samples of a recipe, for `mslua predict`: the operations on columns of its evaluation data, on another
--- source, in the order of the files.
local core = require "mslua.core"
local derive = require "mslua.dataset.derive"
local errors = require "mslua.errors"
local text_source = require "mslua.text_source"

local M = {}

local of_columns = { map = true, call = true, code = true, project = true, rename = true }
-- Transforms after which all pictures have one size.
local fixes_size = { resize = true, center_crop = true, random_crop = true, random_resized_crop = true }

local function opened(source, ops, made_at)
  return core.dataset(derive.resolve { source = source, ops = ops, made_at = made_at })
end

local function changed(source, changes)
  local made = {}
  for key, v in pairs(source) do made[key] = v end
  for key, v in pairs(changes) do made[key] = v end
  return made
end

-- The operations on columns alone, but for those on the column `without`; and the size of a batch.
local function operations(spec, without)
  local ops, batch = {}, nil
  for _, op in ipairs(spec.ops) do
    if op.kind == "batch" then
      batch = op
    elseif of_columns[op.kind] then
      local columns = op.inputs or op.columns
      if not (without and columns and columns[1] == without) then
        op = changed(op, {})
        op.made = nil  -- of the recipe's source
        ops[#ops + 1] = op
      end
    end
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

-- Pictures take the place of samples whose first column is one.
local function pictures(spec, columns, files)
  local image, zeros, resized = columns[1], {}, false
  for i = 2, #columns do
    zeros[columns[i].name] = ("%s[%s]"):format(columns[i].dtype, table.concat(columns[i].shape, ","))
  end
  for _, op in ipairs(spec.ops) do
    for _, transform in ipairs(op.transforms or {}) do resized = resized or fixes_size[transform.kind] end
  end
  local function size(n) return not resized and n > 0 and n or nil end
  return {
    kind = "pictures", dataset_files = files, channels = image.shape[3], height = size(image.shape[1]),
    width = size(image.shape[2]), column_name = image.name, zeros = zeros,
  }
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

-- The end of a text, as long as a window of the recipe; what follows it is predicted. A window's labels reach one token
-- further, for which the last one stands.
local function text(spec, file, temporary)
  local width = bytes_of[spec.source.format]
  if not width then
    errors.fail("predict: %s: text with format = \"%s\" is not predicted: give \"uint16\" or \"uint32\" in the recipe",
      file, spec.source.format)
  end
  local bytes = read(file)
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
    dataset_files = path, usage = "all", block = block, stride = block, characters_from = from,
  })
end

-- Rows of numbers, as many as a sample of the network's only input has.
local function numbers(base, columns, files)
  local x = columns[1]
  if #columns > 2 or x.dtype ~= "float32" then
    errors.fail("predict: %s gives %d columns, the first %s%s: predict takes pictures, text, records of CSV and JSON "
      .. "lines, and CSV rows where one column of float32 is all that the network takes", base.class_name, #columns,
      x.dtype, errors.show(x.shape))
  end
  local names, count = {}, 1
  for i = 2, #x.shape do count = count * x.shape[i] end
  for i = 1, count do names[i] = "x" .. i end
  return {
    kind = "csv", dataset_files = files, column_names = names, column_type = "float", pack = true,
  }
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

-- A dataset of all samples. `temporary`: files that have another name for the user.
local function part(source, ops, batch, has_label, made_at, temporary)
  local all = opened(source, ops, made_at)
  local size = math.min(batch and batch.size or all:length(), all:length())
  if size == 0 then errors.fail("predict: the files have no sample") end
  ops[#ops + 1] = { kind = "batch", size = size, drop_remainder = false, padding = padding_of(batch) }
  local made = opened(source, ops, made_at)
  local columns = made:schema()
  return {
    dataset = made, size = size, columns = columns, inputs = #columns - (has_label and 1 or 0),
    name = function(i)
      local place = made:place(i)
      return temporary[place] or place:gsub("^(.*)(:%d+)$", function(path, line)
        return temporary[path] and temporary[path] .. line
      end)
    end,
  }
end

--- The files as datasets of the recipe's inputs, with the recipe's operations, batched as its data is.
---@param base mslua.Dataset the recipe's data
---@param paths string[] "-": what stands on stdin
---@param temporary table<string, string> files that are made, with the user's names: the caller removes them at the end
---@return {dataset: table, size: integer, columns: table[], inputs: integer, name: fun(i: integer): string}[] parts
function M.open(base, paths, temporary)
  local spec, made_at = derive.flattened(base.spec), rawget(base, "made_at")
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
      local source = text(spec, file, temporary)
      local ops, batch = operations(spec)
      parts[i] = part(source, ops, batch, true, made_at, temporary)
      parts[i].name = function() return paths[i] end
    end
    return parts
  end
  if kind == "csv" or kind == "jsonl" then
    local source, without = records(spec, files)
    local ops, batch = operations(spec, without)
    return { part(source, ops, batch, spec.source.label ~= nil and not without, made_at, temporary) }
  end
  if kind ~= "generator" and kind ~= "numpy_slices" and kind ~= "zip" then
    local columns = columns_of(spec.source)
    local image = columns[1]
    if image.dtype == "uint8" and #image.shape == 3 then
      local ops, batch = operations(spec)
      return { part(pictures(spec, columns, files), ops, batch, true, made_at, temporary) }
    end
  end
  local columns = base:open():schema()
  return { part(numbers(base, columns, files), {}, { size = columns[1].shape[1] }, false, made_at, temporary) }
end

return M
