--- ms.recipe: one table that says what to train on what and how. Strict: an unknown key anywhere is an error at its
--- line.
local arity = require "mslua.arity"
local args = require "mslua.args"
local callbacks = require "mslua.callbacks"
local class = require "mslua.class"
local context = require "mslua.context"
local core = require "mslua.core"
local dtypes = require "mslua.dtypes"
local errors = require "mslua.errors"
local files = require "mslua.files"
local frames = require "mslua.frames"
local literal = require "mslua.literal"
local locate = require "mslua.locate"
local metric_names = require "mslua.metrics"
local parallel_context = require "mslua.parallel_context"
local params = require "mslua.params"
local several = require "mslua.steps"
local shared = require "mslua.train_fields"
local text_source = require "mslua.text_source"
require "mslua.text.tokenizer"

local M = {}

local checkpoint = {
  { "prefix", "string", doc = callbacks.prefix_doc .. "; default: the recipe's name" },
  { "directory", "string", doc = callbacks.directory_doc },
}
for _, field in ipairs(callbacks.checkpoint_fields) do checkpoint[#checkpoint + 1] = field end

local train = {
  { "epochs", "integer", min = 1, doc = "how often to go through the dataset; default: once, without steps" },
  { "steps", "integer", min = 1, doc = "how many steps to make, in place of epochs" },
  { "dataset_sink_mode", "boolean", true, doc = shared.sink_doc },
  shared.amp,
  { "loss_scale", "loss_scale", doc = shared.loss_scale_doc },
  { "histograms", "table", nil, fields = callbacks.histogram_fields,
    doc = "records histograms of parameters and gradients, as ms.Histograms; default: none" },
  { "early_stopping", "table", nil, fields = callbacks.early_stopping_fields,
    doc = "ends training where a number no longer improves, as ms.EarlyStopping; default: at its end" },
  { "reduce_lr_on_plateau", "table", nil, fields = callbacks.plateau_fields,
    doc = "reduces the learning rate where a number no longer improves, as ms.ReduceLROnPlateau; default: never" },
}
for i, field in ipairs(shared.step) do table.insert(train, i + 3, field) end

local eval = {
  shared.metrics, callbacks.every_epochs, callbacks.every_steps,
}

--- What `mslua verify` compares: limits of the last epoch's mean loss and of the last evaluation. NAME_above and
--- NAME_below with the name of one of eval.metrics belong here too (take_limits).
local expect = {
  { "loss_below", "number", doc = "the mean loss of the last epoch is below it" },
  { "eval_loss_below", "number", doc = "the loss of the last evaluation is below it" },
  { "top1_above", "number", min = 0, max = 1, doc = "top1 of the last evaluation, a fraction, is above it" },
}

--- How few and how many ranks the job may continue with when workers go and come.
local elastic = {
  { "min", "integer", required = true, min = 1, doc = "the fewest ranks that the job continues with" },
  { "max", "integer", required = true, min = 1, doc = "the most ranks" },
}

-- What is wrong with the types of a batch's columns.
local function inputs_problem(list)
  if #list == 0 then return "expected a type for each column of a batch, got {}" end
  for i, input in ipairs(list) do
    local where = ("%d: expected {dtype = ms.float32, shape = {32, 3, 32, 32}}, "):format(i)
    if type(input) ~= "table" then return where .. "got " .. errors.show(input) end
    for key in pairs(input) do
      if key ~= "dtype" and key ~= "shape" then return where .. "got the key " .. errors.show(key) end
    end
    if not dtypes[input.dtype] then return where .. "got dtype " .. errors.show(input.dtype) end
    if args.problem({ "shape", "integers", min = 1 }, input.shape) then
      return where .. "got shape " .. errors.show(input.shape)
    end
  end
end

M.fields = {
  { "name", "string", required = true, check = function(name)
    if not name:match "^[%w_%-%.]+$" then return ("expected letters, digits, '_', '-' and '.', got %q"):format(name) end
  end, doc = "name of run folders and checkpoints: letters, digits, '_', '-' and '.'" },
  { "doc", "string", "", doc = "one line for `mslua recipes ls`" },
  { "seed", "integer", min = 0, doc = "seed of weights, shuffling and dropout; default: ms.set_seed's, else 1" },
  { "dataset", "dataset|function", required = true,
    doc = "the batches to train on, or a function that makes the dataset when it is needed" },
  { "eval_dataset", "dataset|function", doc = "the batches to evaluate on; default: no evaluations" },
  { "input", "list", check = inputs_problem,
    doc = "the types of a batch's columns, {{dtype = ms.float32, shape = {32, 784}}, ...}, so that `mslua plan` and "
      .. "`mslua graph` need no data" },
  { "network", "function|cell", required = true, doc = "a function that makes the network, or the network" },
  { "weights", "string", doc = "a folder of published weights of the network's family, which training starts from" },
  { "tokenizer", "tokenizer|function",
    doc = "the tokenizer of the network's texts, whose files go with checkpoints and exports; default: that of the "
      .. "folder which a TextDataset reads" },
  { "loss", "loss", doc = shared.loss_doc },
  { "labels", "strings", doc = "names of the classes from number 0 on, for predictions; default: the numbers" },
  { "optimizer", "optimizer|function",
    doc = "the optimizer, or a function of the steps in an epoch that makes it; needed without steps" },
  shared.steps, shared.callbacks,
  { "train", "table", {}, fields = train, doc = "how to train" },
  { "eval", "table", {}, fields = eval, doc = "what evaluations measure, and when they are made" },
  { "context", "table", doc = "keys of ms.set_context" },
  { "parallel", "table", doc = "keys of ms.set_auto_parallel_context" },
  { "elastic", "table", nil, fields = elastic,
    doc = "numbers of ranks that a cluster's job may continue with; default: as many as it begins with" },
  { "checkpoint", "table", nil, fields = checkpoint,
    doc = "when to save checkpoints and what to keep, as ms.CheckpointConfig; default: no checkpoints" },
  { "samples", "table", nil, fields = callbacks.sample_fields,
    doc = "pictures that the network draws after epochs, as ms.SampleImages; default: none" },
  { "expect", "table", nil, fields = expect,
    doc = "what `mslua verify` checks; also NAME_above and NAME_below of a metric" },
}

------------------------------------------------------------------------------------------------------------ overrides

local function field_of(fields, name)
  for _, field in ipairs(fields) do
    if field[1] == name then return field end
  end
end

-- The fields of the tables that other files describe.
local elsewhere = { parallel = parallel_context.fields, context = context.fields }

-- The field a path such as "train.epochs" names, or nothing and what is wrong. `whole`: it is given a table, so it may
-- be one that has fields.
local function leaf(values, path, whole)
  local fields, field, prefix = M.fields, nil, ""
  -- Limits of metrics and losses that the recipe has named.
  local limit = path:match "^expect%.(.+)$"
  local given = limit and type(values.expect) == "table" and values.expect[limit]
  if type(given) == "number" then return { limit, "number" } end
  for part in path:gmatch "[^.]+" do
    if not fields then return nil, (": %s is not a table"):format(field[1]) end
    field = field_of(fields, part)
    if not field then
      local known = args.names_of(fields)
      for i, name in ipairs(known) do known[i] = prefix .. name end
      return nil, core.did_you_mean(prefix .. part, known)
    end
    fields, prefix = field.fields or elsewhere[part], prefix .. part .. "."
  end
  if fields and not whole then
    return nil, (": it is a table, set a key of it such as %s.%s"):format(path, fields[1][1])
  end
  return field
end

local function is_table_text(text) return text:find "^%s*{" ~= nil end

local read_as = { integer = "number", number = "number", boolean = "boolean", string = "string", integers = "table",
  numbers = "table", strings = "table", list = "table", table = "table" }

-- Text of the command line as the first of the field's kinds that takes it: "{...}" is a table where the field takes
-- one.
local function read_leaf(field, text)
  local settable, found, hint = false, nil, nil
  for kind in field[2]:gmatch "[^|]+" do
    local as = read_as[kind]
    settable = settable or as ~= nil
    local v, problem
    if as then v, problem = literal.read(text, as) end
    if v ~= nil and (found == nil or as == "table") then found = v end
    hint = hint or problem
  end
  -- A text in braces that is no table is taken for no string.
  if hint then return nil, settable, hint end
  return found, settable
end

local function put(values, path, v)
  local parts = {}
  for part in path:gmatch "[^.]+" do parts[#parts + 1] = part end
  for i = 1, #parts - 1 do
    local inner = values[parts[i]]
    if inner == nil then
      inner = {}
      values[parts[i]] = inner
    end
    values = inner
  end
  values[parts[#parts]] = v
end

local function each_leaf(fields, prefix, visit)
  for _, field in ipairs(fields) do
    local inner = field.fields or elsewhere[field[1]]
    -- A table can be set whole too, but for the recipe's own.
    if not inner or prefix ~= "" then visit(prefix .. field[1], field) end
    if inner then each_leaf(inner, prefix .. field[1] .. ".", visit) end
  end
end

local function set_text(values, field, path, text, origin, origins)
  local v, settable, hint = read_leaf(field, text)
  if not settable then
    params.usage_error("%s cannot be set from text (%s): give the recipe a parameter", path, origin)
  end
  local problem = args.problem(field, v == nil and text or v)
  if hint then params.usage_error("%s: expected a table, got '%s' (%s)%s", path, text, origin, hint) end
  if problem then params.usage_error("%s: %s (%s)", path, problem, origin) end
  put(values, path, v)
  origins[path] = origin
end

local function copy(t)
  if type(t) ~= "table" or getmetatable(t) then return t end
  local c = {}
  for key, v in pairs(t) do c[key] = copy(v) end
  return c
end

-- Presets, environment and command line on top of what the recipe says; gives where each leaf came from.
local function apply_overrides(values)
  local state, origins = params.state(), {}
  params.check_preset()
  for _, path in ipairs(errors.names(state.base.leaves or {})) do
    put(values, path, copy(state.base.leaves[path]))
    origins[path] = "config"
  end
  for _, entry in ipairs(state.leaves) do
    local path, v, origin = unpack(entry)
    local field, problem = leaf(values, path, type(v) == "table")
    if not field then params.usage_error("%s: unknown key '%s'%s", origin, path, problem) end
    put(values, path, v)
    origins[path] = origin
  end
  each_leaf(M.fields, "", function(path, field)
    local variable = params.variable(path)
    local text = path:find(".", 1, true) and os.getenv(variable)
    if text then set_text(values, field, path, text, variable, origins) end
  end)
  local declared = state.defaults or {}
  for _, pair in ipairs(core.options.overrides) do
    local key, text = pair[1], pair[2]
    if declared[key] == nil then
      local field, problem = leaf(values, key, is_table_text(text))
      if not field then
        local known = errors.names(declared)
        if not key:find(".", 1, true) and problem:sub(1, 1) ~= ":" then
          for _, f in ipairs(M.fields) do known[#known + 1] = f[1] end
          problem = core.did_you_mean(key, known)
        end
        params.usage_error("unknown parameter '%s'%s", key, problem)
      end
      set_text(values, field, key, text, "command line", origins)
    end
  end
  return origins
end

--- The paths of the recipe's table that a variable of the environment can set: "train.epochs".
---@return string[]
function M.leaves()
  local paths = {}
  each_leaf(M.fields, "", function(path)
    if path:find(".", 1, true) then paths[#paths + 1] = path end
  end)
  return paths
end

---------------------------------------------------------------------------------------------------------------- recipe

local sources = {}

-- Reads the files of the modules that `source` requires by name, and of those that they require; gives {path, source}
-- by name. `own` has the paths of the recipe itself.
local function read_modules(source, path, own)
  local modules, rest = {}, { source }
  while #rest > 0 do
    for name in table.remove(rest):gmatch "require%s*%(?%s*[\"']([^\"'\n]+)[\"']" do
      local found = not modules[name] and package.searchpath(name, path)
      local text = found and not own[found] and M.source(found)
      if text then
        modules[name] = { found, text }
        rest[#rest + 1] = text
      end
    end
  end
  return modules
end

-- Where the recipe of a written configuration is (Recipe:config_text), read without running any of it; {} for another
-- file.
local function base_of(source)
  local head, base = source:match '^require%("mslua%.params"%)%.resolved ([^\n]*)', {}
  if not head then return base end
  base.from, base.folders = head:match 'from = "([^"]*)"', {}
  for folder in (head:match '^{folders = {([^}]*)}' or ""):gmatch '"([^"]*)"' do
    base.folders[#base.folders + 1] = folder
  end
  return base
end

--- Reads a recipe's file, and those of the modules that it requires by name, for a process that will not be able to
--- open files any more.
---@param path string
function M.read_ahead(path)
  sources[path] = M.source(path)
  if not sources[path] then return end
  local base, own = base_of(sources[path]), { [path] = true, ["./" .. path] = true }
  for _, recipe in ipairs(params.recipes_of(path, base)) do own[recipe], own["./" .. recipe] = true, true end
  local modules = read_modules(sources[path], params.path_of(path, base), own)
  -- Where the loader of files is: behind the library.
  table.insert(package.loaders, 4, function(name)
    local module = modules[name]
    if module then return assert(loadstring(module[2], "@" .. module[1])) end
  end)
end

--- The text of a recipe: of a file, or of the library's recipe of that name.
---@param path string
---@return string? source, string? problem
function M.source(path)
  local text = core.library_recipe(path) or sources[path]
  if text then return text end
  local file, problem = io.open(path, "rb")
  if not file then return nil, problem end
  text = file:read "*a"
  file:close()
  return text
end

-- The file and line of a key: `return ms.recipe {...}` leaves no frame on the stack. Nil where the file does not say.
local function place(path)
  local file = core.options.file
  local source = file and M.source(file)
  local line = source and locate.line(source, "recipe", path)
  return line and ("%s:%d"):format(file, line)
end

-- Raises at the line of the key.
local function report(problem, path)
  local at = place(path)
  local inside = #path > 1 and table.concat(path, ".", 1, #path - 1) .. ": " or ""
  -- `return ms.recipe(values)` is a tail call, which leaves no line.
  if not at and not core.where() then at = core.options.file end
  if at then error(("%s: recipe: %s%s"):format(at, inside, problem), 0) end
  errors.fail("recipe: %s%s", inside, problem)
end

-- A key that belongs into one of the recipe's tables.
local function check_places(values)
  for _, key in ipairs(errors.names(values)) do
    for _, outer in ipairs(field_of(M.fields, key) and {} or M.fields) do
      local inner = outer.fields or elsewhere[outer[1]]
      if inner and field_of(inner, key) then
        report(("unknown key '%s': it belongs to %s = { %s = ... }"):format(key, outer[1], key), { key })
      end
    end
  end
end

---@class mslua.Recipe
local Recipe = class.Object:extend "Recipe"
Recipe.__index = Recipe
M.Recipe = Recipe

local function set_contexts(recipe)
  if recipe.context then context.set_context(recipe.context) end
  if not recipe.parallel then return end
  if next(parallel_context.given()) then
    report("parallel: set_auto_parallel_context was called too: say it in one place", { "parallel" })
  end
  if next(recipe.parallel) then parallel_context.set_auto_parallel_context(recipe.parallel) end
end

-- Takes the limits of metrics and of the steps' losses out of `expect`: a list of {name of the result, "above" or
-- "below", limit, key = its key in `expect`}.
local function take_limits(values)
  local expects = {}
  for _, field in ipairs(expect) do expects[field[1]] = true end
  local metrics, losses, limits = {}, {}, {}
  for _, step in ipairs(type(values.steps) == "table" and values.steps or {}) do
    if type(step) == "table" then losses[tostring(step.name) .. "_loss"] = true end
  end
  for key, name in pairs(type(values.eval) == "table" and type(values.eval.metrics) == "table" and values.eval.metrics
    or {}) do
    metrics[type(key) == "string" and key or name] = true
  end
  if type(values.expect) ~= "table" then return limits end
  local rest = {}
  for _, key in ipairs(errors.names(values.expect)) do
    local limit = values.expect[key]
    local name, side = tostring(key):match "^(.+)_(%l+)$"
    local found = metrics[name] and "eval_" .. name or losses[name] and name
    if key == "top1_above" and not metrics.top1 then
      report('top1_above: eval.metrics has no top1: add it, eval = { metrics = { "top1" } }', { "expect", key })
    end
    if (side == "above" or side == "below") and found and not expects[key] then
      if type(limit) ~= "number" then
        report(("%s: expected a number, got %s"):format(key, errors.show(limit)), { "expect", key })
      end
      limits[#limits + 1] = { found, side, limit, key = key }
    elseif (side == "above" or side == "below") and metric_names.is_known(name) and not expects[key] then
      report(("%s: eval.metrics has no %s: add it, eval = { metrics = { %q } }"):format(key, name, name),
        { "expect", key })
    else
      rest[key] = limit
    end
  end
  values.expect = rest
  return limits
end

-- Each step has a loss and an optimizer; without steps the recipe has an optimizer.
local function check_steps(recipe)
  if not recipe.steps then
    if recipe.optimizer ~= nil then return end
    report("optimizer is missing: expected an optimizer such as nn.Momentum {...} or a function, or steps = {...}", {})
  end
  for _, key in ipairs { "loss", "optimizer" } do
    if recipe[key] ~= nil then report(("%s and steps: each step has its own %s"):format(key, key), { key }) end
  end
  if recipe.train.loss_scale then
    report("loss_scale and steps: several steps have no loss scale", { "train", "loss_scale" })
  end
  if recipe.train.amp == "f16" then
    report(several.NO_F16, { "train", "amp" })
  end
  recipe.steps = several.check(recipe.steps, true, function(problem) report("steps: " .. problem, { "steps" }) end)
end

--- What to train on what and how: a recipe's file ends with `return ms.recipe {...}`. Checks the table, fills in
--- defaults, applies presets, environment and command line, and sets the contexts.
---@param values table
---@return mslua.Recipe
function M.recipe(...)
  local values = arity.take("recipe", 1, ...)
  if type(values) ~= "table" then errors.fail("recipe: expected a table, got %s", errors.show(values)) end
  values = copy(values)
  local origins = apply_overrides(values)
  for _, name in ipairs { "parallel", "context" } do
    if type(values[name]) == "table" then
      args.check(elsewhere[name], values[name], report, { name })
    end
  end
  check_places(values)
  local limits = take_limits(values)
  local recipe = setmetatable(args.check(M.fields, values, report), Recipe)
  recipe.limits = limits
  check_steps(recipe)
  local t = recipe.train
  local from_file = { epochs = not origins["train.epochs"], steps = not origins["train.steps"] }
  if t.epochs and t.steps and from_file.epochs ~= from_file.steps then  -- what was set later counts
    t[from_file.epochs and "epochs" or "steps"] = nil
  end
  if t.epochs and t.steps then
    report(("epochs = %d and steps = %d: give one of them; max_steps ends training of some epochs early")
      :format(t.epochs, t.steps), { "train", "steps" })
  end
  if not t.steps then t.epochs = t.epochs or 1 end
  if not args.is_list(recipe.callbacks) then recipe.callbacks = { recipe.callbacks } end
  recipe.origins = origins
  -- Whether checkpoints are saved after each step because nobody said when.
  recipe.saves_each_step = values.checkpoint ~= nil and values.checkpoint.save_checkpoint_steps == nil
  errors.place = place
  recipe.seed = core.options.seed or recipe.seed or core.seed()  -- which ms.set_seed may have said
  set_contexts(recipe)
  return recipe
end

args.describe(M.recipe, M.fields)

-- Where the numbers of random tensors without a stream of their own begin in what a function makes. Verbs do not make
-- the same parts of a recipe, nor in one order, and each part is the same for all of them.
local draws_from = { eval_dataset = 2 ^ 40, network = 2 ^ 41 }

-- A value that may be given as a function, so that it is made when it is needed.
local function checked(recipe, name, kinds, ...)
  local v = recipe[name]
  if type(v) == "function" then
    local drawn, from = core.random_numbers(), draws_from[name]
    if from then core.number_random(from) end
    v = frames.call(v, ...)
    if from then core.number_random(drawn) end
  end
  local problem = v ~= nil and args.problem({ name, kinds }, v) or (v == nil and "the function gave nothing")
  if problem then report(("%s: %s"):format(name, problem), { name }) end
  return v
end

--- Epochs to train, and where to stop; nil: at their end. `steps` is an epoch's number of them.
---@param steps integer
---@return integer epochs, integer? max_steps
function Recipe:length(steps)
  local t = self.train
  if not t.steps then return t.epochs, t.max_steps end
  return math.ceil(t.steps / steps), math.min(t.steps, t.max_steps or t.steps)
end

--- The network; made at the first call.
function Recipe:make_network()
  if not self.made_network then self.made_network = checked(self, "network", "cell") end
  return self.made_network
end

--- The training data, or that of evaluation; nil when there is none.
---@param name "dataset"|"eval_dataset"
function Recipe:make_dataset(name)
  if self[name] == nil then return nil end
  return checked(self, name, "dataset")
end

--- The tokenizer that goes with the network: the recipe's, else that of the folder which a TextDataset reads; nil:
--- there is none.
---@param dataset? mslua.Dataset
function Recipe:make_tokenizer(dataset)
  if self.tokenizer then return checked(self, "tokenizer", "tokenizer") end
  return text_source.tokenizer_of(dataset)
end

--- The columns of a batch as `input` describes them, as a dataset's schema() does; nil when the recipe has none.
---@return {name: string, dtype: string, shape: integer[]}[]|nil
function Recipe:columns()
  if not self.input then return nil end
  local columns = {}
  for i, input in ipairs(self.input) do
    local name = #self.input == 2 and (i == 1 and "data" or "label") or "column" .. i
    columns[i] = { name = name, dtype = input.dtype, shape = input.shape }
  end
  return columns
end

--- The optimizer; a function gets the number of steps in an epoch, which schedules need.
---@param steps integer
function Recipe:make_optimizer(steps) return checked(self, "optimizer", "optimizer", steps) end

--- The steps, with their optimizers made; a function gets the number of steps in an epoch, which schedules need.
---@param steps integer
---@return table[]
function Recipe:make_steps(steps)
  local list = {}
  for i, step in ipairs(self.steps) do
    local made = step.optimizer
    if type(made) == "function" then made = frames.call(made, steps) end
    local problem = args.problem({ "optimizer", "optimizer" }, made)
    if problem then report(("steps: %s: %s"):format(step.name, problem), { "steps" }) end
    list[i] = { name = step.name, loss = step.loss, optimizer = made, params = step.params }
  end
  return list
end

-- What a written configuration begins with.
local function head_of(base) return ('require("mslua.params").resolved %s '):format(literal.write(base)) end

--- The text of the recipe that runs, without what a written configuration begins with; nil: no file runs.
---@return string?
function M.text()
  local source, head = core.options.file and M.source(core.options.file), head_of(params.state().base)
  if source and source:sub(1, #head) == head then return source:sub(#head + 1) end  -- its values are in `base`
  return source
end

-- The file of the recipe as it is seen from the current folder. Of a written configuration: of the recipe that the
-- configuration came from.
local function file_of_recipe()
  local config, base = core.options.file, params.state().base
  if not base.from or core.library_recipe(base.from) then return base.from or config end
  for _, path in ipairs(params.recipes_of(config, base)) do
    if files.is_file(path) then return path end
  end
  return base.from
end

--- The value of an override's path, such as "train.epochs" or "expect.f1_above".
---@param path string
---@return any
function Recipe:value_at(path)
  for _, limit in ipairs(self.limits) do
    if path == "expect." .. limit.key then return limit[3] end
  end
  local v = self
  for part in path:gmatch "[^.]+" do v = v[part] end
  return v
end

--- The text of a file that trains exactly this again: what was overridden on its first line, then the recipe.
---@return string
function Recipe:config_text()
  local leaves = { seed = self.seed }
  for path in pairs(self.origins) do leaves[path] = self:value_at(path) end
  local origins = {}  -- for who reads the file
  for name, origin in pairs(params.state().origins) do origins[name] = origin end
  for path, origin in pairs(self.origins) do origins[path] = origin end
  local base = {
    params = params.state().values, leaves = leaves, from = file_of_recipe(), name = self.name, origins = origins,
  }
  return head_of(base) .. (M.text() or "")
end

return M
