--- ms.from_pretrained, ms.save_pretrained: networks in folders as Hugging Face has them, config.json and safetensors
--- files. A family of networks is a file of mslua/families.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local files = require "mslua.files"
local literal = require "mslua.literal"
local notice = require "mslua.notice"
local ops = require "mslua.ops"
local parameter = require "mslua.parameter"
local shared_parameters = require "mslua.shared_parameters"
local wrap = require "mslua.nn.wrap"
local LoRA = require "mslua.nn.lora"

local M = {}

-- The parameters that files have: not those of adapters.
local function parameters_of(net)
  return net:get_parameters(function(p) return not LoRA.is_adapter(p) end)
end

---@class mslua.Family
---@field model_type string of config.json; with `architectures` the family's name alone
---@field architectures? string[] files have timm's config.json, whose `architecture` is one of these
---@field prefix? string that names in files may begin with
---@field rows {[1]: string|string[], [2]: string, [3]: any}[] a tensor's name in files (the first is written), ours,
---  and how: nil: the same; "transposed"; {i, n}: part i of n of our rows; "tied": the file's may repeat it; "ignored".
---  # is the number of a layer. `tied_to`: the parameter that it may repeat where net.config.tied is true
---@field network fun(config: table, has: fun(name: string): integer[]?, fail: function): Cell
---@field config fun(net: Cell): table
---@field older? {[1]: string, [2]: string}[] patterns of names of old files, and what they are now
---@field heads? string[] patterns of our names that a file may lack

------------------------------------------------------------------------------------------------------------- families

local loaded

-- Family by model_type.
local function families()
  if loaded then return loaded end
  loaded = {}
  for _, name in ipairs(core.library_modules "mslua.families.") do
    local family = require(name)
    loaded[family.model_type] = family
  end
  return loaded
end

-- The family that a folder's config.json names.
local function family_of_config(config, fail)
  local known, timm = {}, {}
  for name, family in pairs(families()) do
    if not family.architectures then known[name] = family end
    for _, architecture in ipairs(family.architectures or {}) do timm[architecture] = family end
  end
  local by_name = config.model_type == nil and config.architecture ~= nil
  local found = by_name and timm[tostring(config.architecture)] or known[tostring(config.model_type)]
  if found then return found end
  if by_name then
    fail("config.json: architecture is %s, expected one of %s", errors.show(config.architecture),
      table.concat(errors.names(timm), ", "))
  end
  fail("config.json: model_type is %s, expected one of %s, or without it an architecture as timm has it, one of %s",
    errors.show(config.model_type), table.concat(errors.names(known), ", "), table.concat(errors.names(timm), ", "))
end

--- The family of a network, or an error that lists those that are known; and the network, without a wrapper.
---@param net Cell
---@param what string the function, for the message
---@param hint? string ends the message
---@return mslua.Family
---@return Cell
function M.family_of(net, what, hint)
  net = wrap.unwrap(net)
  local family = families()[net.family or ""]
  if not family then
    errors.fail("%s: %s is of no family with published files, expected one of %s%s", what, net.class_name,
      table.concat(errors.names(families()), ", "), hint or "")
  end
  return family, net
end

--------------------------------------------------------------------------------------------------------------- folders

local INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"

local function fail_of(dir)
  return function(format, ...) errors.fail("%s: " .. format, dir, ...) end
end

--- Whether a path is a folder in the form of Hugging Face.
---@param path string
function M.is_folder(path) return files.is_file(path .. "/config.json") end

local function read_config(dir, fail)
  if not files.is_folder(dir) then errors.fail("%s: there is no such folder; nothing is downloaded", dir) end
  if not files.is_file(dir .. "/config.json") then
    fail("no config.json: expected a folder with config.json and %s", SINGLE)
  end
  local config = core.read_json(dir .. "/config.json")
  if type(config) ~= "table" then fail("config.json: expected an object, got %s", errors.show(config)) end
  return config
end

-- The files that hold the tensors: shard -> names that the index lists, or the only file -> true.
local function shards_of(dir, fail)
  if files.is_file(dir .. "/" .. INDEX) then
    local index = core.read_json(dir .. "/" .. INDEX)
    local map = type(index) == "table" and index.weight_map
    if type(map) ~= "table" then fail("%s: expected an object weight_map", INDEX) end
    local shards = {}
    for _, name in ipairs(errors.names(map)) do
      local file = map[name]
      if type(file) ~= "string" or file:find "[/\\]" or file:find("..", 1, true) or file == "" then
        fail("%s: the shard of '%s' is %s, expected a file in this folder", INDEX, name, errors.show(file))
      end
      shards[file] = shards[file] or {}
      shards[file][name] = true
    end
    return shards
  elseif files.is_file(dir .. "/" .. SINGLE) then
    return { [SINGLE] = true }
  elseif files.is_file(dir .. "/pytorch_model.bin") then
    fail("pytorch_model.bin is a pickle, which may run any program and is not read: in Python, "
      .. "safetensors.torch.save_file(torch.load('pytorch_model.bin', weights_only=True), '%s', {'format': 'pt'})",
      SINGLE)
  end
  fail("no %s and no %s", SINGLE, INDEX)
end

--- The tensors of a folder: name -> {dtype, shape, from}; from:read(name) gives one.
---@return table<string, {dtype: string, shape: integer[], from: any}>
local function tensors_of(dir, fail)
  local found = {}
  local shards = shards_of(dir, fail)
  for _, file in ipairs(errors.names(shards)) do
    local listed = shards[file]
    if not files.is_file(dir .. "/" .. file) then fail("the shard %s, which %s lists, is missing", file, INDEX) end
    local from = core.open_weights(dir .. "/" .. file)
    local here = {}
    for _, t in ipairs(from:tensors()) do
      here[t.name] = true
      if found[t.name] then fail("the tensor '%s' is in two shards, one of them %s", t.name, file) end
      if listed ~= true and not listed[t.name] then
        fail("%s has the tensor '%s', which %s does not list there", file, t.name, INDEX)
      end
      found[t.name] = { dtype = t.dtype, shape = t.shape, from = from, name = t.name }
    end
    for name in pairs(listed == true and {} or listed) do
      if not here[name] then fail("%s lacks the tensor '%s', which %s lists there", file, name, INDEX) end
    end
  end
  return found
end

----------------------------------------------------------------------------------------------------------------- names

-- "h.#.ln_1.weight" as a pattern of Lua that captures the number.
local function pattern_of(name)
  return "^" .. name:gsub("[%-%.%[%]%(%)%+%*%?%^%$%%]", "%%%0"):gsub("#", "(%%d+)") .. "$"
end

-- The name in today's files, without the family's prefix.
local function plain(family, name)
  local prefix = family.prefix
  if prefix and name:sub(1, #prefix) == prefix then name = name:sub(#prefix + 1) end
  for _, change in ipairs(family.older or {}) do name = name:gsub(change[1], change[2]) end
  return name
end

-- The row of a file's name, and its layer.
local function row_of(family, name)
  for _, row in ipairs(family.rows) do
    for _, known in ipairs(type(row[1]) == "table" and row[1] or { row[1] }) do
      local from, _, layer = name:find(pattern_of(known))
      if from then return row, layer end
    end
  end
end

local function at_layer(name, layer) return (name:gsub("#", layer or "#")) end

--------------------------------------------------------------------------------------------------------------- reading

-- What the files say about each parameter: our name -> list of {tensor, how}; and names that no row fits.
local function plan(net, family, found)
  local parts, unknown = {}, {}
  for _, name in ipairs(errors.names(found)) do
    local row, layer = row_of(family, plain(family, name))
    if not row then
      unknown[#unknown + 1] = name
    elseif row[3] ~= "ignored" then
      local tied = row.tied_to and net.config.tied
      local ours = tied and row.tied_to or at_layer(row[2], layer)
      parts[ours] = parts[ours] or {}
      table.insert(parts[ours], { tensor = found[name], how = tied and "tied" or row[3] })
    end
  end
  return parts, unknown
end

local function shape_text(shape) return "[" .. table.concat(shape, ", ") .. "]" end

-- The shape that a tensor of a file has, of a parameter's.
local function file_shape(shape, how)
  if how == "transposed" then return { shape[2], shape[1] } end
  if type(how) ~= "table" then return shape end
  local part = { unpack(shape) }
  part[1] = part[1] / how[2]
  return part
end

-- What is wrong with the parts of a parameter; the tied one counts where there is no other.
local function parts_problem(p, list)
  local seen = {}
  for _, part in ipairs(list) do
    local wanted = shape_text(file_shape(p.shape, part.how))
    local t = part.tensor
    if shape_text(t.shape) ~= wanted then
      return ("%s is %s, expected %s"):format(t.name, shape_text(t.shape), wanted)
    end
    local key = type(part.how) == "table" and part.how[1] or part.how == "tied" and "tied" or 1
    if seen[key] then return ("%s and %s are the same tensor under two names"):format(seen[key], t.name) end
    seen[key] = t.name
  end
  local how = list[1].how
  if type(how) == "table" and #list ~= how[2] then
    return ("%s has %d of its %d parts"):format(p.name, #list, how[2])
  end
end

-- Gives a parameter its value, which is read when it gets memory: of ranks that share it each reads its part.
local function read_parts(p, list, fail)
  table.sort(list, function(a, b)
    local function place(part) return type(part.how) == "table" and part.how[1] or part.how == "tied" and 2 or 1 end
    return place(a) < place(b)
  end)
  local last, pieces = list[#list], {}
  if #list > 1 and last.how == "tied" then
    local first = list[1].tensor
    local ours = first.from:read(first.name):astype(p.dtype)
    local theirs = last.tensor.from:read(last.tensor.name):astype(p.dtype)
    if ops.reduce_max(ops.abs(ours - theirs)):item() ~= 0 then
      fail("%s differs from %s, and the network has one tensor for both (tie_word_embeddings)", last.tensor.name,
        first.name)
    end
    list = { list[1] }
  end
  for i, part in ipairs(list) do pieces[i] = { from = part.tensor.from, name = part.tensor.name } end
  core.read_when_made({ p }, pieces, list[1].how == "transposed")
end

local MOST_SHOWN = 12

local function listed(names)
  if #names <= MOST_SHOWN then return table.concat(names, ", ") end
  return ("%s and %d more"):format(table.concat(names, ", ", 1, MOST_SHOWN), #names - MOST_SHOWN)
end

local function fits_any(name, patterns)
  for _, pattern in ipairs(patterns or {}) do
    if name:find(pattern) then return true end
  end
  return false
end

-- Fills a network from the tensors found. `partial`: heads that the files lack, or have for other classes, keep their
-- initial values, and heads that the network lacks are left out; all are said.
local function fill(net, family, found, fail, partial)
  local parts, unknown = plan(net, family, found)
  local problems, missing, fresh, unused, resized = {}, {}, {}, {}, {}
  local values = net:parameters_dict()
  for name in pairs(parts) do
    if not values[name] then unused[#unused + 1] = name end
  end
  for _, p in ipairs(parameters_of(net)) do
    local list = parts[p.name]
    if not list then
      table.insert(partial and fits_any(p.name, family.heads) and fresh or missing, p.name)
    else
      local problem = parts_problem(p, list)
      if problem and partial and fits_any(p.name, family.heads) then
        resized[#resized + 1], parts[p.name] = problem, nil
      else
        problems[#problems + 1] = problem
      end
    end
  end
  table.sort(unused)
  local left = {}
  for _, name in ipairs(unused) do
    if not (partial and fits_any(name, family.heads)) then left[#left + 1] = name end
  end
  local function add(text, list)
    if #list > 0 then problems[#problems + 1] = text:format(listed(list)) end
  end
  add("not in the files: %s", missing)
  add("in the files and not in the network: %s", left)
  add("tensors that this family does not have: %s", unknown)
  if #problems > 0 then fail("%s", table.concat(problems, "; ")) end
  for _, p in ipairs(parameters_of(net)) do
    if parts[p.name] then read_parts(p, parts[p.name], fail) end
  end
  if #fresh > 0 then notice(("note: not in the files, initial values stay: %s"):format(listed(fresh))) end
  if #resized > 0 then notice(("note: of other sizes, initial values stay: %s"):format(table.concat(resized, "; "))) end
  if partial and #unused > 0 then notice(("note: not in the network, unused: %s"):format(listed(unused))) end
end

-- Family, its configuration and tensors of a folder.
local function open(dir)
  local fail = fail_of(dir)
  local config = read_config(dir, fail)
  return family_of_config(config, fail), config, tensors_of(dir, fail), fail
end

local function network_of(dir, family, config, found, fail)
  local plain_names = {}
  for name, t in pairs(found) do plain_names[plain(family, name)] = t.shape end
  local function refuse(key, known)
    fail("config.json: %s = %s is not supported%s", key, errors.show(config[key]),
      known and ", expected " .. known or "")
  end
  for key in pairs(family.required or {}) do
    if config[key] == nil then fail("config.json: no %s", key) end
  end
  local function has(name) return plain_names[name] end
  local made, net = pcall(family.network, config, has, refuse)
  if made then return net end
  if type(net) ~= "string" or net:find(dir, 1, true) then error(net, 0) end
  -- What the network's own class says of its arguments: behind the script's line, if there is one.
  local place, problem = net:match "^([^\n]-:%d+: )(.*)$"
  error(("%s%s: config.json: %s"):format(place or "", dir, problem or net), 0)
end

local bind_from = args.signature("from_pretrained", {
  { "folder", "string", required = true, doc = "a folder with config.json, and model.safetensors or its shards" },
  { "dtype", "string", "float32", choices = { "float32", "bfloat16" },
    doc = "the type of parameters of two dimensions and more, to which the files' are converted; in a 16-bit one "
      .. "products compute in it, other operators as in mixed precision; vectors are float32" },
})

--- The network of a folder as Hugging Face has it, with its weights: config.json, and model.safetensors or its shards.
--- A network in bfloat16 needs half the memory, and generates about twice as fast. (folder, dtype = "float32")
---@return Cell
function M.from_pretrained(...)
  local a = bind_from(...)
  local dir = a.folder
  local family, config, found, fail = open(dir)
  local net = parameter.in_type(a.dtype, function() return network_of(dir, family, config, found, fail) end)
  if a.dtype ~= "float32" then net:_compute_in(a.dtype) end
  fill(net, family, found, fail, false)
  net.pretrained, net.weights_folder = { folder = dir, config = config }, dir
  return net
end

-- Settings of networks that may differ from a folder's: those of training and of heads, and those that the shapes of
-- tensors show.
local FREE = { block = true, vocab = true, dropout = true, drop_path = true, head = true, classes = true,
  num_classes = true, pooler = true, tied = true }

-- Adds the settings of a network by their names, those of a table within as "rotary.base".
local function add_settings(config, prefix, settings)
  for _, name in ipairs(errors.names(config)) do
    local v = config[name]
    if type(v) == "table" then
      add_settings(v, prefix .. name .. ".", settings)
    elseif not FREE[name] then
      settings[prefix .. name] = v
    end
  end
  return settings
end

-- Whether two settings are equal. Files may have numbers that were rounded to float32.
local function same_setting(a, b)
  if type(a) ~= "number" or type(b) ~= "number" then return a == b end
  return math.abs(a - b) <= 1e-6 * math.max(math.abs(a), math.abs(b))
end

-- An error that lists the settings of a network that are others than those of a folder's network, with which the
-- folder's weights compute something else.
local function check_settings(net, from_folder, fail)
  local ours, theirs = add_settings(net.config, "", {}), add_settings(from_folder.config, "", {})
  local different = {}
  for _, name in ipairs(errors.names(theirs)) do
    if not same_setting(ours[name], theirs[name]) then
      different[#different + 1] = ("%s is %s in the network and %s in the folder"):format(name,
        errors.show(ours[name]), errors.show(theirs[name]))
    end
  end
  if #different == 0 then return end
  fail("config.json: %s: give the network the folder's values, or take ms.from_pretrained(folder) as the network",
    table.concat(different, "; "))
end

--- Gives a network the weights of a folder of its family, as start values: heads that the files lack keep their initial
--- values. Other settings than the folder's are an error.
---@param net Cell
---@param dir string
function M.load_into(net, dir)
  local family, network = M.family_of(net, "weights")
  local found_family, config, found, fail = open(dir)
  if found_family ~= family then
    fail("config.json: model_type is '%s', the network is of the family '%s'", found_family.model_type,
      family.model_type)
  end
  check_settings(network, network_of(dir, family, config, found, fail), fail)
  fill(network, family, found, fail, true)
  network.weights_folder = dir
end

--- What a folder's tensors are here: a list of {name, type, ours}, in order of names; ours is nil for one that no row
--- fits.
---@param dir string
function M.describe(dir)
  local family, _, found = open(dir)
  local list = {}
  for _, name in ipairs(errors.names(found)) do
    local row, layer = row_of(family, plain(family, name))
    local ours
    if row then
      local how = row[3]
      ours = how == "ignored" and "(ignored)" or at_layer(row[2], layer)
        .. (type(how) == "table" and (" (rows %d of %d)"):format(how[1], how[2]) or how and (" (%s)"):format(how) or "")
    end
    list[#list + 1] = { name = name, type = found[name].dtype .. shape_text(found[name].shape), ours = ours }
  end
  return list
end

--------------------------------------------------------------------------------------------------------------- writing

--- The tensors that files have of a parameter: a list of {name, how}, with `how` as in the rows of a family.
---@param family mslua.Family
---@param ours string the parameter's name
function M.names_in_files(family, ours)
  local list = {}
  for _, row in ipairs(family.rows) do
    local fits, _, layer = ours:find(pattern_of(row[2] or ""))
    if fits and row[3] ~= "ignored" and row[3] ~= "tied" then
      local first = type(row[1]) == "table" and row[1][1] or row[1]
      list[#list + 1] = { name = (row.bare and "" or family.prefix or "") .. at_layer(first, layer), how = row[3] }
    end
  end
  return list
end

--- The parameter that a tensor of files belongs to, and how; nil: no row fits it.
---@param family mslua.Family
---@param name string the tensor's
function M.name_of_file(family, name)
  local row, layer = row_of(family, plain(family, name))
  if row and row[3] ~= "ignored" then return at_layer(row[2], layer), row[3] end
end

-- The tensors that a parameter is in files: name -> tensor.
local function written(family, p, out)
  local list = M.names_in_files(family, p.name)
  local value = #list > 0 and p.value
  for _, entry in ipairs(list) do
    local how = entry.how
    if how == "transposed" then
      out[entry.name] = ops.transpose(value, { 2, 1 })
    elseif type(how) == "table" then
      out[entry.name] = ({ ops.split(value, 1, how[2]) })[how[1]]
    else
      out[entry.name] = value
    end
  end
  return #list > 0
end

-- JSON of tables, strings, numbers and booleans, keys in order. An empty table is an object.
local function json(v, indent)
  if type(v) == "string" then
    return literal.json_string(v)
  elseif type(v) == "number" then
    local short = ("%.14g"):format(v)
    return tonumber(short) == v and short or ("%.17g"):format(v)
  elseif type(v) ~= "table" then
    return tostring(v)
  end
  local inner, parts = indent .. "  ", {}
  if #v > 0 then
    for i, item in ipairs(v) do parts[i] = json(item, inner) end
    return "[" .. table.concat(parts, ", ") .. "]"
  end
  for _, key in ipairs(errors.names(v)) do
    parts[#parts + 1] = ("%s%s: %s"):format(inner, json(key, inner), json(v[key], inner))
  end
  if #parts == 0 then return "{}" end
  return "{\n" .. table.concat(parts, ",\n") .. "\n" .. indent .. "}"
end

--- Writes a table as JSON.
---@param path string
---@param value table
function M.write_json(path, value) core.write_file(path, json(value, "") .. "\n") end

-- Files that belong to a network and are copied as they are, beside those that the tokenizer is read from.
local COMPANIONS = { "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
  "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "generation_config.json", "preprocessor_config.json",
  "chat_template.jinja" }

--- Copies the tokenizer's files, and others that belong to a network, from one folder into another.
---@param from string
---@param to string
function M.copy_companions(from, to)
  local names = { unpack(COMPANIONS) }
  for _, path in ipairs(core.tokenizer_files(from)) do names[#names + 1] = path:match "[^/]*$" end
  for _, name in ipairs(names) do
    local file = io.open(from .. "/" .. name, "rb")
    if file then
      core.write_file(to .. "/" .. name, file:read "*a")
      file:close()
    end
  end
end

local SHARD_BYTES = 5e9

local bytes_of = { float64 = 8, float32 = 4, bfloat16 = 2, float16 = 2 }

-- Lists of names whose tensors have at most `most` bytes together, in order of names.
local function split(tensors, most)
  local shards, bytes, total = { {} }, 0, 0
  for _, name in ipairs(errors.names(tensors)) do
    local t = tensors[name]
    local size = t.size * (bytes_of[t.dtype] or 8)
    if bytes > 0 and bytes + size > most then
      shards[#shards + 1], bytes = {}, 0
    end
    table.insert(shards[#shards], name)
    bytes, total = bytes + size, total + size
  end
  return shards, total
end

-- Names of the shards that the index of a folder lists; {} where there is none.
local function listed_shards(dir)
  local names, path = {}, dir .. "/" .. INDEX
  local index = files.is_file(path) and core.read_json(path)
  local map = type(index) == "table" and index.weight_map
  for _, file in pairs(type(map) == "table" and map or {}) do
    if tostring(file):match "^model%-%d+%-of%-%d+%.safetensors$" then names[file] = true end
  end
  return names
end

-- Gives the names of the files.
local function write_tensors(dir, tensors, most)
  local shards, total = split(tensors, most)
  local map, written = {}, {}
  for i, names in ipairs(shards) do
    local file = #shards == 1 and SINGLE or ("model-%05d-of-%05d.safetensors"):format(i, #shards)
    local values = {}
    for _, name in ipairs(names) do values[name], map[name] = tensors[name], file end
    core.save_checkpoint(dir .. "/" .. file, values, { format = "pt" })
    written[file] = true
  end
  if #shards > 1 then
    M.write_json(dir .. "/" .. INDEX, { metadata = { total_size = total }, weight_map = map })
    written[INDEX] = true
  end
  return written
end

-- transformers reads the number of classes from the names of the labels. Those of the folder that the network came from
-- stay where there are as many.
local function name_labels(config)
  local classes, named = config.num_labels, 0
  config.num_labels = nil
  for _ in pairs(config.id2label or {}) do named = named + 1 end
  if not classes or named == classes then return end
  config.id2label, config.label2id = {}, {}
  for k = 0, classes - 1 do
    config.id2label[tostring(k)] = "LABEL_" .. k
    config.label2id["LABEL_" .. k] = k
  end
end

-- Writes the files of a network; `dtype` is that of its parameters. `beside`: as of M.save.
local function write_network(family, net, tensors, dtype, a, beside)
  if a.dtype then
    for name, t in pairs(tensors) do tensors[name] = t:astype(a.dtype) end
  end
  local config = family.config(net)
  local from = net.pretrained
  for key, v in pairs(from and from.config or {}) do
    if config[key] == nil then config[key] = v end
  end
  name_labels(config)
  if not family.architectures then
    local key = config.dtype ~= nil and "dtype" or "torch_dtype"  -- newer versions of transformers write `dtype`
    config.dtype, config.torch_dtype = nil, nil
    config.model_type, config[key] = family.model_type, a.dtype or dtype
  end
  local earlier, written = listed_shards(a.folder), nil
  earlier[INDEX], earlier[SINGLE] = true, true
  files.fill(a.folder, function(dir)
    M.write_json(dir .. "/config.json", config)
    written = write_tensors(dir, tensors, a.shard_bytes or SHARD_BYTES)
    if from then M.copy_companions(from.folder, dir) end
    if beside then M.copy_companions(beside, dir) end
  end)
  for file in pairs(earlier) do
    if not written[file] then os.remove(a.folder .. "/" .. file) end
  end
end

local bind_save = args.signature("save_pretrained", {
  { "net", "cell", required = true, doc = "a network of a published family, such as Llama or Bert" },
  { "folder", "string", required = true, doc = "the folder to write into; it exists" },
  { "dtype", "string", choices = { "float32", "float64", "float16", "bfloat16" },
    doc = "the type of the weights in the files; default: the parameters'" },
  { "shard_bytes", "integer", SHARD_BYTES, min = 1,
    doc = "the most bytes of tensors in a file; larger networks are several" },
})

--- Writes a network as Hugging Face has it: config.json and model.safetensors, or shards of at most shard_bytes; with
--- the tokenizer of the folder it came from. The folder must exist. dtype: of the files, default the parameters'. Where
--- ranks keep parts of the parameters, all of them call it, and of those that give one folder the first writes. (net,
--- folder, dtype, shard_bytes = 5e9)
function M.save_pretrained(...) M.save(bind_save(...)) end

--- save_pretrained with its arguments by name. `beside`: a folder whose tokenizer is copied too.
---@param a {net: Cell, folder: string, dtype?: string, shard_bytes?: integer}
---@param beside? string
function M.save(a, beside)
  local dir = a.folder
  local family, net = M.family_of(a.net, "save_pretrained", "; ms.save_checkpoint writes any network")
  if not files.is_folder(dir) then errors.fail("save_pretrained: there is no folder '%s'", dir) end
  if #LoRA.cells(net) > 0 then
    errors.fail("save_pretrained: %s has adapters: nn.LoRA.merge(net) adds them to the weights, "
      .. "ms.save_adapter(net, folder) writes them alone", net.class_name)
  end
  local parameters = a.net:get_parameters()  -- those of a wrapper's loss have no name in files, which is an error
  shared_parameters.write("save_pretrained", parameters, dir, function(writes)
    local tensors, nameless, dtype = {}, {}, nil
    for _, p in ipairs(parameters) do
      if not written(family, p, tensors) then nameless[#nameless + 1] = p.name end
      dtype = dtype or p.dtype
    end
    if #nameless > 0 then
      errors.fail("save_pretrained: files of the family '%s' have no name for %s", family.model_type, listed(nameless))
    end
    if writes then write_network(family, net, tensors, dtype, a, beside) end
  end)
end

return M
