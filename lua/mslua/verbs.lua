--- What the commands do with a recipe: `mslua train R` runs verbs.train(), and so on. Each gives the exit code.
local callbacks = require "mslua.callbacks"
local class = require "mslua.class"
local core = require "mslua.core"
local convert = require "mslua.convert"
local dtype_flag = require "mslua.dtype_flag"
local errors = require "mslua.errors"
local files = require "mslua.files"
local generation = require "mslua.generation"
local globals = require "mslua.globals"
local image = require "mslua.image"
local literal = require "mslua.literal"
local notice = require "mslua.notice"
local ops = require "mslua.ops"
local checkpoint = require "mslua.checkpoint"
local params = require "mslua.params"
local parallel_context = require "mslua.parallel_context"
local pretrained = require "mslua.pretrained"
local text_source = require "mslua.text_source"
local wrap = require "mslua.nn.wrap"
local recipes = require "mslua.recipe"
local Model = require "mslua.model"

local M = {}

--- Runs the recipe's file, or the library's recipe of that name.
---@return mslua.Recipe
function M.load()
  local file = core.options.file
  local source, problem = recipes.source(file)
  local chunk
  if source then chunk, problem = loadstring(source, "@" .. file) end
  if not chunk then error(problem, 0) end
  globals.check_reads(file)
  local recipe = chunk()
  if not class.is(recipe, recipes.Recipe) then
    error(("%s: a recipe ends with `return ms.recipe {...}`, this file gave %s: add that line, or start a script with "
      .. "mslua run %s"):format(file, type(recipe), file), 0)
  end
  core.set_seed(recipe.seed)
  params.check_environment(recipes.leaves())
  return recipe
end

--- The recipe's configuration as text, which is what a run folder keeps of it.
---@return string
function M.config() return M.load():config_text() end

--- After `mslua run`: what the command line asked for and the script did not do is an error.
---@param result any what the script returned
function M.after_script(result)
  local flags, state = core.options, params.state()
  local function fail(format, ...) error(flags.file .. ": " .. format:format(...), 0) end
  if class.is(result, recipes.Recipe) then
    fail("the file gives a recipe, and `mslua run` does not train one: mslua train %s", flags.file)
  end
  if not state.defaults then
    local first = flags.overrides[1]
    if first then
      fail("%s=%s has no effect: the script declares no parameters with ms.params (an argument of the script stands "
        .. "behind --)", first[1], first[2])
    elseif flags.preset then
      fail("--preset %s has no effect: the script declares no parameters with ms.params", flags.preset)
    end
  end
  if flags.max_steps and not Model.trained then
    fail("--max-steps %d has no effect: the script did not call model:train", flags.max_steps)
  end
  params.check_environment()
end

-- Of an epoch whose data nobody has seen: schedules want a number, and the graph does not depend on it.
local STEPS_WITHOUT_DATA = 1000

-- `steps`: in an epoch of training; nil: the model will not train.
local function model_of(recipe, steps)
  local model = Model(recipe:make_network(), {
    loss_fn = recipe.loss, optimizer = steps and not recipe.steps and recipe:make_optimizer(steps) or nil,
    steps = recipe.steps and recipe:make_steps(steps or STEPS_WITHOUT_DATA),
    metrics = recipe.eval.metrics, amp = recipe.train.amp, loss_scale_manager = recipe.train.loss_scale,
  })
  model.labels = recipe.labels
  return model
end

-- The recipe's own callbacks, and those that its tables and the command line ask for.
local function callbacks_of(recipe, dataset, eval_dataset)
  local list, flags = {}, core.options
  local every = flags.log_every or 1
  for _, callback in ipairs(recipe.callbacks) do
    local prints = class.is(callback, callbacks.LossMonitor)
    -- --log-every replaces the recipe's LossMonitor.
    if not prints or not flags.log_every then list[#list + 1] = callback end
    if prints and not flags.log_every then every = nil end
  end
  if every == "epoch" then
    list[#list + 1] = callbacks.EpochLossMonitor()
  elseif every then
    list[#list + 1] = callbacks.LossMonitor(every)
  end
  local c = recipe.checkpoint
  if c and not flags.fast_dev_run then
    local config = {}
    for _, field in ipairs(callbacks.checkpoint_fields) do config[field[1]] = c[field[1]] end
    list[#list + 1] = callbacks.ModelCheckpoint {
      prefix = c.prefix or recipe.name, directory = c.directory, config = callbacks.CheckpointConfig(config),
    }
  end
  if eval_dataset then
    list[#list + 1] = callbacks.EvalCallback {
      dataset = eval_dataset, every_epochs = recipe.eval.every_epochs, every_steps = recipe.eval.every_steps,
    }
  end
  local histograms = recipe.train.histograms
  if histograms and next(histograms) then list[#list + 1] = callbacks.Histograms(histograms) end
  local stopping = recipe.train.early_stopping
  if stopping then list[#list + 1] = callbacks.EarlyStopping(stopping) end
  if recipe.samples then list[#list + 1] = callbacks.SampleImages(recipe.samples) end
  local tokenizer = recipe:make_tokenizer(dataset)
  if tokenizer then list[#list + 1] = callbacks.SaveTokenizer(tokenizer) end
  local plateau = recipe.train.reduce_lr_on_plateau
  if plateau then list[#list + 1] = callbacks.ReduceLROnPlateau(plateau) end
  return list
end

-- Whether checkpoints of a network leave parameters out.
local function leaves_out(network)
  return #network:get_parameters(function(p) return not p.saved end) > 0
end

-- Gives the network the weights that the recipe's `weights` and --init-from name, where it has them; says which they
-- are.
local function start_from(recipe, network)
  local flags = core.options
  if recipe.weights and (not flags.resume or leaves_out(network)) then
    pretrained.load_into(network, recipe.weights)
    if core.speaks() then io.stderr:write(("mslua: starting from the weights of %s\n"):format(recipe.weights)) end
  end
  if not flags.init_from then return end
  if flags.resume then
    params.usage_error("--init-from and --resume: give one of them; --resume also restores the optimizer and the place "
      .. "in the data")
  end
  local values, path, _, unsaved = core.load_named(flags.init_from, recipe.name,
    recipe.checkpoint and recipe.checkpoint.directory, parallel_context.together())
  if core.speaks() then io.stderr:write(("mslua: starting from the weights of %s\n"):format(path)) end
  checkpoint.start_from(network, values, path)
  if leaves_out(network) then core.compare_unsaved(unsaved, network:get_parameters(), path) end
end

-- Says what is saved where the recipe does not say it.
local function say_what_is_saved(recipe)
  local c = recipe.checkpoint
  if core.options.fast_dev_run then return end
  if not c then
    notice "note: no checkpoints are saved: the recipe has no checkpoint = {...}"
  elseif recipe.saves_each_step then
    notice(("note: a checkpoint is saved after every step, the newest %d are kept: the recipe's checkpoint does "
      .. "not set save_checkpoint_steps"):format(c.keep_checkpoint_max))
  end
end

-- Says what of `eval` does nothing.
local function say_what_is_measured(recipe)
  if recipe.eval_dataset == nil and #recipe.eval.metrics > 0 then
    notice "note: eval has no effect: the recipe has no eval_dataset"
  end
end

-- What the recipe says of a step, for Model.
local function step_options(recipe)
  local t = recipe.train
  return {
    dataset_sink_mode = t.dataset_sink_mode, accumulate_steps = t.accumulate_steps, clip_norm = t.clip_norm,
    clip_value = t.clip_value, grad_norm = t.grad_norm, ema = t.ema, name = recipe.name,
  }
end

-- Trains as the recipe and the flags say.
local function train(recipe)
  local flags = core.options
  if recipe.elastic then core.allow_ranks(recipe.elastic.min, recipe.elastic.max) end
  local dataset, eval_dataset = recipe:make_dataset "dataset", recipe:make_dataset "eval_dataset"
  dataset = dataset:whole_batches "train"
  say_what_is_saved(recipe)
  say_what_is_measured(recipe)
  if flags.overfit then dataset = dataset:take(flags.overfit) end
  if flags.fast_dev_run and eval_dataset then eval_dataset = eval_dataset:take(flags.fast_dev_run) end
  local size = dataset:steps()
  local epochs, most = recipe:length(size)
  local model = model_of(recipe, size)
  start_from(recipe, model.network)
  local a = step_options(recipe)
  a[1], a[2] = epochs, dataset
  a.callbacks = callbacks_of(recipe, dataset, eval_dataset)
  local limit = flags.fast_dev_run or flags.max_steps
  a.max_steps = limit and math.min(limit, most or limit) or most
  a.metrics_limit, a.config = recipe.train.metrics_limit, recipe:config_text()
  return model:train(a)
end

-- Flags that do not go together. Nothing is saved by --fast-dev-run; with --resume, --out says where to resume from.
local function check_train_flags()
  local flags = core.options
  if not flags.fast_dev_run then return end
  if flags.max_steps then
    params.usage_error("--fast-dev-run=%d and --max-steps %d: both say how many steps to make: give one of them",
      flags.fast_dev_run, flags.max_steps)
  end
  if flags.out and not flags.resume then
    notice(("note: --out %s has no effect: --fast-dev-run saves nothing"):format(flags.out))
  end
end

-- The run folder whose config.lua the recipe is, with "/" at its end; nil: it is another file.
local function own_run()
  local folder = params.state().base and ("/" .. core.options.file):match "^(.*/)config%.lua$"
  return folder and folder:sub(2)
end

--- `mslua train R`.
function M.train()
  check_train_flags()
  local recipe, flags = M.load(), core.options
  -- `train RUN/config.lua --resume` continues that run.
  local run = (flags.resume == "last" or flags.resume == "best") and not flags.out and own_run()
  if run and files.is_file(run .. "lock") then flags.out = run == "" and "." or run:sub(1, -2) end
  train(recipe)
  return 0
end

-- Refuses what `expect` says of evaluations where none is made.
local function check_evaluated(recipe)
  local needs = recipe.expect.eval_loss_below and "eval_loss_below" or recipe.expect.top1_above and "top1_above"
  for _, limit in ipairs(recipe.limits) do
    local metric = limit[1]:match "^eval_(.+)$"
    needs = needs or metric and ("%s_%s"):format(metric, limit[2])
  end
  for _, callback in ipairs(recipe.callbacks) do
    if class.is(callback, callbacks.EvalCallback) then return end
  end
  if needs and not recipe.eval_dataset then
    errors.fail_at({ "expect", needs }, "expect: %s is of an evaluation, and the recipe has no eval_dataset: add one",
      needs)
  end
end

--- `mslua verify R`: trains and compares with the recipe's expect; 8 when it is not met.
function M.verify()
  local recipe = M.load()
  if #recipe.limits == 0 and (not recipe.expect or not next(recipe.expect)) then
    error(("%s: the recipe has no expect"):format(core.options.file), 0)
  end
  check_evaluated(recipe)
  local found, code = train(recipe):metrics(), 0
  local checks = {
    { "loss", "below", recipe.expect.loss_below },
    { "eval_loss", "below", recipe.expect.eval_loss_below },
    { "eval_top1", "above", recipe.expect.top1_above },
  }
  for _, limit in ipairs(recipe.limits) do checks[#checks + 1] = limit end
  for _, check in ipairs(checks) do
    local name, side, limit = unpack(check, 1, 3)
    if limit then
      local v = found[name]
      local met = v ~= nil and ((side == "below" and v < limit) or (side == "above" and v > limit))
      local line
      if core.options.json then
        line = ('{"name": "%s", "expected": "%s", "limit": %s, "value": %s, "met": %s}'):format(name, side,
          literal.json_number(limit), v and literal.json_number(v) or "null", met)
      else
        local shown = v and ("%.6g"):format(v) or "none"
        line = ("expect: %s %s %g: %s %s"):format(name, side, limit, shown, met and "met" or "NOT MET")
      end
      if core.speaks() then print(line) end
      if not met then code = 8 end
    end
  end
  return code
end

local DIVERGED = 7  -- the exit code (core/base/exit_code.h)

-- "loss 0.91, top1 68.2%"
local function line_of(metrics, found)
  local words = {}
  for _, m in ipairs(metrics) do
    local v = found[m.name]
    if v ~= v then
      words[#words + 1] = m.name .. " NaN"
    elseif m.kind ~= "matrix" then
      words[#words + 1] = m.kind == "percent" and ("%s %.1f%%"):format(m.name, 100 * v)
        or ("%s %.4g"):format(m.name, v)
    end
  end
  return table.concat(words, ", ")
end

-- A table of counts, a row for each class that rows of the dataset have and a column for each that they were given.
local function print_matrix(name, counts, labels)
  local function label(i) return tostring(labels and labels[i] or i - 1) end
  local width, head = 1, 0
  for i, row in ipairs(counts) do
    head = math.max(head, #label(i))
    for _, v in ipairs(row) do width = math.max(width, #("%.0f"):format(v)) end
  end
  width = math.max(width, head)
  print(("%s: a row for each class of the labels, a column for each predicted class"):format(name))
  local line = { (" "):rep(head) }
  for i = 1, #counts do line[#line + 1] = ("%" .. width .. "s"):format(label(i)) end
  print("  " .. table.concat(line, " "))
  for i, row in ipairs(counts) do
    line = { ("%-" .. head .. "s"):format(label(i)) }
    for _, v in ipairs(row) do line[#line + 1] = ("%" .. width .. ".0f"):format(v) end
    print("  " .. table.concat(line, " "))
  end
end

-- A number, or a list of lists of numbers, as JSON.
local function json_of(v)
  if type(v) ~= "table" then return literal.json_number(v) end
  local items = {}
  for i, item in ipairs(v) do items[i] = json_of(item) end
  return "[" .. table.concat(items, ", ") .. "]"
end

-- Where `last` and `best` are for who only reads them: where the run saved them whose config.lua the recipe is, else in
-- the recipe's own directory; nil: in the last run.
local function checkpoint_directory(recipe)
  local own, run = recipe.checkpoint and recipe.checkpoint.directory, own_run()
  local recorded = run and core.recorded_checkpoints(run == "" and "." or run:sub(1, -2))
  return recorded or own or run and run .. "ckpt" or nil
end

-- The seed with which load_as_trained has read the recipe; nil: it has not, or the command line gives one.
local seed_of_data

-- Gives the network the weights that --ckpt names, and says which they are; gives their step.
local function load_weights(recipe, network)
  local flags = core.options
  if recipe.weights and leaves_out(network) then pretrained.load_into(network, recipe.weights) end
  local values, path, step, unsaved, seed = core.load_named(flags.ckpt, recipe.name, checkpoint_directory(recipe),
    parallel_context.together())
  -- The newest checkpoint, which said the seed, may be damaged and another one be loaded.
  if seed_of_data and step > 0 and seed ~= seed_of_data then
    error(("%s: %s was trained with seed %d, and the samples are those of seed %d: give --ckpt %s"):format(flags.verb,
      path, seed, seed_of_data, path), 0)
  end
  if core.speaks() then
    io.stderr:write(("mslua: %s: weights of %s%s\n"):format(flags.verb, path,
      step > 0 and (", step %d"):format(step) or ""))
  end
  if checkpoint.use_averages(values) and core.speaks() then
    io.stderr:write(("mslua: %s: the averages of the parameters (train.ema)\n"):format(flags.verb))
  end
  checkpoint.give(network, values, path, flags.partial, flags.verb == "eval" and " (--partial loads what fits)"
    or "; give the key=value overrides and the --preset of the training")
  core.compare_unsaved(unsaved, network:get_parameters(), path)
  return step
end

-- The recipe, as the training that saved --ckpt has read it: with that training's seed, unless the command line gives
-- one, seed=7. So what the recipe draws for its datasets, as the parts of a split, and for its network is the same.
-- `shares`: ranks share the samples of its datasets.
local function load_as_trained(shares)
  local recipe, flags = M.load(), core.options
  if shares then parallel_context.share_samples() end
  local given = recipe.origins.seed and recipe.origins.seed ~= "config"  -- a run's config.lua has it anyway
  local seed = not given and core.seed_of(flags.ckpt, recipe.name, checkpoint_directory(recipe),
    parallel_context.together())
  seed_of_data = not given and (seed or recipe.seed) or nil
  if not seed or seed == recipe.seed then return recipe end
  if core.speaks() then
    io.stderr:write(("mslua: %s: seed %d, with which the checkpoint was trained; seed=%d takes the recipe's\n")
      :format(flags.verb, seed, recipe.seed))
  end
  flags.seed = seed
  core.set_seed(seed)
  parallel_context.reset_auto_parallel_context()
  recipe = M.load()
  if shares then parallel_context.share_samples() end
  return recipe
end

--- `mslua eval R`: metrics on eval_dataset, of the weights in `--ckpt PATH`. Several ranks share the samples. 7 when a
--- metric is NaN.
function M.eval()
  local recipe = load_as_trained(true)
  local dataset = recipe:make_dataset "eval_dataset"
  if not dataset then error(("%s: the recipe has no eval_dataset"):format(core.options.file), 0) end
  local model = model_of(recipe)
  -- Before the values come: a rank that has parts of parameters takes its parts of them.
  local spec = model:eval_spec(dataset)
  load_weights(recipe, model.network)
  local found = model:run_eval(spec)
  local undefined = {}
  for _, m in ipairs(model.metrics) do
    if found[m.name] ~= found[m.name] then undefined[#undefined + 1] = m.name end
  end
  local code = #undefined == 0 and 0 or DIVERGED
  if not core.speaks() then return code end
  if core.options.json then
    local words = {}
    for i, m in ipairs(model.metrics) do words[i] = ('"%s": %s'):format(m.name, json_of(found[m.name])) end
    print("{" .. table.concat(words, ", ") .. "}")
  else
    print("eval: " .. line_of(model.metrics, found))
    for _, m in ipairs(model.metrics) do
      if m.kind == "matrix" then print_matrix(m.name, found[m.name], recipe.labels) end
    end
  end
  if code ~= 0 then
    io.stderr:write(("mslua: error: eval: %s %s NaN\n"):format(table.concat(undefined, ", "),
      #undefined == 1 and "is" or "are"))
  end
  return code
end

-- The recipe's model with its weights, and the data that says what samples are.
local function for_inference(recipe)
  local base = recipe:make_dataset "eval_dataset" or recipe:make_dataset "dataset"
  local model = model_of(recipe)
  model.network:_as_root()
  load_weights(recipe, model.network)
  return model, base
end

--- `mslua predict R FILE...`: what the network gives for files. 7 when results are NaN.
function M.predict()
  local recipe = load_as_trained(true)
  local model, base = for_inference(recipe)
  return require("mslua.predict").run(recipe, base, model)
end

--- `mslua sample R OUT.png`: what the recipe's samples draw.
function M.sample()
  local recipe = load_as_trained()
  local s = recipe.samples
  if not s then error(("%s: the recipe has no samples = { images = ... }"):format(core.options.file), 0) end
  local model = model_of(recipe)
  local graph = model:sample_graph(s.images)
  load_weights(recipe, model.network)
  image.write(core.options.args[1], graph:run(), { low = s.low, high = s.high, columns = s.columns,
    padding = s.padding })
  return 0
end

--- `mslua export R OUT.onnx`.
function M.export()
  local recipe = load_as_trained()
  local model = model_of(recipe)
  model.network:_as_root()
  return require("mslua.export").run(recipe, model, function() return load_weights(recipe, model.network) end)
end

-- A list of ids out of a number, a list or nil.
local function ids_of(v) return type(v) == "table" and v or { v } end

-- The id of the token that ends a text, as a tokenizer's files say; none: they do not say.
local function end_of(tokenizer)
  local token = tokenizer and tokenizer.roles and tokenizer.roles.eos
  return ids_of(token and tokenizer:id_of(token))
end

-- The ids that end a text of a folder as Hugging Face has it: those of generation_config.json go before config.json's,
-- which go before the tokenizer's own.
local function ends_of_folder(folder, config, tokens)
  local path = folder .. "/generation_config.json"
  local of_generation = files.is_file(path) and core.read_json(path)
  local eos = type(of_generation) == "table" and of_generation.eos_token_id
  if not eos then eos = config.eos_token_id end
  if eos then return ids_of(eos) end
  return end_of(tokens and tokens.tokenizer)
end

-- The network to generate with, its tokens (nil: none known), and the ids that end a text.
local function generating()
  local flags, given = core.options, core.options.file
  local run = files.is_folder(flags.file) and not pretrained.is_folder(flags.file) and convert.config_of(flags.file)
  if run then  -- a run folder, or a checkpoint in one
    if not flags.ckpt_given then flags.ckpt = flags.file end
    flags.file = run
  elseif files.is_folder(flags.file) then
    if flags.ckpt_given then
      params.usage_error("--ckpt is for a recipe, %s is a folder with its weights", flags.file)
    end
    local first = flags.overrides[1]
    if first or flags.preset then
      params.usage_error("%s has no effect: %s is a folder with weights and not a recipe",
        first and first[1] .. "=" .. first[2] or "--preset " .. flags.preset, flags.file)
    end
    local net = pretrained.from_pretrained(flags.file, dtype_flag[flags.dtype])
    local tokens = not flags.ids and text_source.has_tokenizer(flags.file) and text_source.of_folder(flags.file) or nil
    return net, tokens, ends_of_folder(flags.file, net.pretrained.config, tokens)
  end
  if flags.dtype_given then
    params.usage_error("--dtype is for a folder as Hugging Face has it: %s says the types of its matrices", flags.file)
  end
  local recipe = load_as_trained()
  local net = recipe:make_network()
  net:_as_root()
  load_weights(recipe, net)
  net = wrap.unwrap(net)
  local folder, tokenizer = run and run:match "^(.*)/", nil
  if run and text_source.has_tokenizer(given) then folder = given end  -- a checkpoint has its own
  if folder and text_source.has_tokenizer(folder) then
    tokenizer = (net.translation or not flags.ids) and text_source.of_folder(folder).tokenizer
  else
    tokenizer = recipe.tokenizer and (net.translation or not flags.ids) and recipe:make_tokenizer()
      or net.translation and net.translation.tokenizer
  end
  if tokenizer then
    return net, {
      tokenizer = tokenizer, vocab = tokenizer.vocab_size,
      encode = function(s) return (tokenizer:encode { text = s, add_special_tokens = false }) end,
      decode = function(ids) return tokenizer:decode(ids) end,
    }, net.translation and { net.translation.stop } or end_of(tokenizer)
  end
  local tokens = not flags.ids and text_source.of_dataset(recipe:make_dataset "dataset") or nil
  return net, tokens, end_of(tokens and tokens.tokenizer)
end

-- What generating gives, where the tokens are the network's.
local function checked_generating()
  local net, tokens, stop_ids = generating()
  local most = net.config and net.config.vocab
  if tokens and most and tokens.vocab > most then
    params.usage_error("%s has a tokenizer of another vocabulary, %d tokens, than the network, which takes ids from 0 "
      .. "to %d: give the one that it was trained with, or token ids with --ids", core.options.file, tokens.vocab,
      most - 1)
  end
  return net, tokens, stop_ids
end

-- Prints the translation of a prompt by a network of an encoder and a decoder.
local function translate(net, tokens, prompt)
  local flags, how = core.options, net.translation
  if flags.temperature ~= 1 or flags.top_k ~= 0 or flags.top_p ~= 1 or flags.repetition_penalty ~= 1 or flags.stop
    or flags.texts ~= 1 then
    params.usage_error("%s translates by beam search: --temperature, --top-k, --top-p, --repetition-penalty, --stop "
      .. "and --texts have no effect", flags.file)
  end
  local ids = net:translate {
    sources = { prompt }, begin = how.begin, stop = how.stop, beams = how.beams, length_penalty = how.length_penalty,
    max_tokens = flags.max_new,
  }[1]
  local text = tokens.decode(ids)
  if flags.json then
    print(('{"prompt_ids": [%s], "ids": [%s], "text": %s}'):format(table.concat(prompt, ", "), table.concat(ids, ", "),
      literal.json_string(text)))
  else
    print(text)
  end
  return 0
end

-- The prompt as ids.
local function prompt_ids(tokens)
  local flags, given = core.options, {}
  for _, name in ipairs { "prompt", "prompt_file", "ids" } do
    if flags[name] then given[#given + 1] = "--" .. name:gsub("_", "-") end
  end
  if #given ~= 1 then
    params.usage_error("give one of --prompt, --prompt-file and --ids, got %s",
      #given == 0 and "none" or table.concat(given, ", "))
  end
  if flags.ids then
    local ids = {}
    for word in (flags.ids .. ","):gmatch "([^,]*)," do
      ids[#ids + 1] = word:match "^%s*(%d+)%s*$" and tonumber(word)
        or params.usage_error("--ids: expected token ids such as 1,2,3, got '%s'", flags.ids)
    end
    return ids
  end
  if not tokens then
    params.usage_error("there is no tokenizer with %s: give token ids with --ids", flags.file)
  end
  local text = flags.prompt
  if flags.prompt_file == "-" then
    text = io.read "*a"
  elseif flags.prompt_file then
    local file, problem = io.open(flags.prompt_file, "rb")
    text = file and file:read "*a"
    if file then file:close() end
    if not text then params.usage_error("--prompt-file: %s", problem or flags.prompt_file .. " cannot be read") end
  end
  return tokens.encode(text)
end

local function check_sampling()
  local top_p = core.options.top_p
  if top_p <= 0 or top_p > 1 then
    params.usage_error("--top-p: expected a number above 0 and at most 1, got %g", top_p)
  end
  local penalty = core.options.repetition_penalty
  if penalty <= 0 then params.usage_error("--repetition-penalty: expected a number above 0, got %g", penalty) end
end

-- The ids that all ranks drew, by text, on each of them. `drawn` has those of texts rank + 1, rank + 1 + ranks and so
-- on, each at most `most`.
local function gathered(drawn, texts, most)
  local ranks, mine = core.options.ranks, {}
  for k = 1, math.ceil(texts / ranks) do
    local ids = drawn[core.options.rank + 1 + (k - 1) * ranks] or {}
    mine[k] = table.move(ids, 1, #ids, 2, { #ids })
    for i = #ids + 2, most + 1 do mine[k][i] = 0 end
  end
  local all = {}
  for rank, lists in ipairs(ops.AllGather()(core.tensor({ mine }, "int32")):totable()) do
    for k, list in ipairs(lists) do
      local ids = {}
      for i = 1, list[1] do ids[i] = list[i + 1] end
      all[rank + (k - 1) * ranks] = ids
    end
  end
  return all
end

-- The ids that end a text: also that of --stop where it names a special token, which has no text.
local function with_stop(stop_ids, tokens)
  local stop = core.options.stop
  local id = stop and tokens.tokenizer and tokens.tokenizer.special_tokens[stop]
  return id and { id, unpack(stop_ids) } or stop_ids
end

-- Up to --max-new ids behind `prompt` for each of --texts texts, which ranks share.
local function draw_texts(net, tokens, prompt, stop_ids)
  local flags, ranks = core.options, core.options.ranks
  local rows, drawn, own = {}, {}, {}
  for r = 1, flags.texts do rows[r], drawn[r] = prompt, {} end
  for r = core.options.rank + 1, flags.texts, ranks do own[#own + 1] = r end
  generation.continue(net, rows, {
    count = flags.max_new, temperature = flags.temperature, top_k = flags.top_k, top_p = flags.top_p,
    repetition_penalty = flags.repetition_penalty, seed = flags.draws_seed,
    stop_ids = with_stop(stop_ids, tokens), vocab = tokens and tokens.vocab,
    on_token = function(r, id)
      table.insert(drawn[r], id)
      return flags.stop and tokens.decode(drawn[r]):find(flags.stop, 1, true) ~= nil
    end,
  }, own)
  return ranks == 1 and drawn or gathered(drawn, flags.texts, flags.max_new)
end

-- The text of tokens behind those of a prompt, whose text is `before`: by itself it may lack a space.
local function text_after(tokens, prompt, before, drawn)
  local all = { unpack(prompt) }
  for _, id in ipairs(drawn) do all[#all + 1] = id end
  local text = tokens.decode(all)
  return text:sub(1, #before) == before and text:sub(#before + 1) or tokens.decode(drawn)
end

--- `mslua generate RECIPE|DIR`: texts that continue a prompt.
function M.generate()
  local flags = core.options
  check_sampling()
  if flags.ranks > 1 and flags.prompt_file == "-" then
    params.usage_error "--prompt-file -: ranks have no standard input: give the text as a file, or leave out -n"
  end
  local net, tokens, stop_ids = checked_generating()
  if flags.stop and not tokens then params.usage_error "--stop is a text, and there is no tokenizer" end
  local prompt = prompt_ids(tokens)
  if net.translation then
    if flags.ranks > 1 then params.usage_error("%s translates one text: leave out -n", flags.file) end
    return translate(net, tokens, prompt)
  end
  local drawn = draw_texts(net, tokens, prompt, stop_ids)
  if not core.speaks() then return 0 end
  local before = tokens and tokens.decode(prompt)
  for r = 1, flags.texts do
    local text = tokens and text_after(tokens, prompt, before, drawn[r])
    local at = flags.stop and text:find(flags.stop, 1, true)
    if at then text = text:sub(1, at - 1) end
    if flags.json then
      print(('{"prompt_ids": [%s], "ids": [%s]%s}'):format(table.concat(prompt, ", "), table.concat(drawn[r], ", "),
        text and (', "prompt": %s, "text": %s'):format(literal.json_string(before), literal.json_string(text)) or ""))
    else
      print(text and before .. text or table.concat(prompt, ",") .. "," .. table.concat(drawn[r], ","))
    end
  end
  return 0
end

local CHAT_HELP = [[
  .system TEXT   begin again, with TEXT as the system message; without TEXT, with none
  .reset         begin again
  .help          this
  .quit          leave, as Ctrl-D does; Ctrl-C ends an answer]]

--- `mslua chat RECIPE|DIR`: a function that takes a line of the user and prints the answer; false: leave.
---@return fun(line: string): boolean
function M.chat()
  local flags = core.options
  check_sampling()
  local net, tokens, stop_ids = checked_generating()
  if not tokens or not tokens.tokenizer then
    params.usage_error("%s has no tokenizer with special tokens, so that messages have no roles; to continue text: "
      .. "mslua generate", flags.file)
  end
  local talk = require "mslua.text.conversation"(net, tokens.tokenizer, {
    template = flags.template, system = flags.system, count = flags.max_new, stop_ids = stop_ids,
    temperature = flags.temperature, top_k = flags.top_k, top_p = flags.top_p,
    repetition_penalty = flags.repetition_penalty, seed = flags.draws_seed, vocab = tokens.vocab,
  })
  return function(line)
    local command, rest = line:match "^%.(%S*)%s*(.-)%s*$"
    if command == "quit" then return false end
    if command == "help" then
      print(CHAT_HELP)
    elseif command == "reset" then
      talk:start(talk.system)
    elseif command == "system" then
      talk:start(rest ~= "" and rest or nil)
    elseif command then
      params.usage_error("unknown command .%s (.help lists them)", command)
    elseif line:find "%S" then
      local answer, about = talk:say(line, function(piece)
        if not flags.json then
          io.write(piece)
          io.flush()
        end
      end)
      if flags.json then
        print(('{"answer": %s, "tokens": %d, "truncated": %s, "forgotten": %d}'):format(literal.json_string(answer),
          about.tokens, about.truncated, about.forgotten))
      else
        print()
      end
      if about.forgotten > 0 then
        io.stderr:write(("mslua: note: the %d oldest messages are forgotten: the network takes %d tokens\n"):format(
          about.forgotten, net.block))
      end
    end
    return true
  end
end

--- `mslua editor DIR`: the texts of the files, by their names.
function M.editor() return require("mslua.editor").files() end

--- `mslua ckpt merge-lora BASE ADAPTER OUT`.
function M.merge_lora()
  return convert.merge_lora(core.options.file, core.options.args[1], core.options.args[2])
end

--- `mslua ckpt convert A B --to hf|safetensors|peft`.
function M.convert()
  return convert.convert(core.options.file, core.options.args[1], core.options.to)
end

--- `mslua ckpt show DIR` of a folder as Hugging Face has it.
function M.show_folder()
  for _, t in ipairs(pretrained.describe(core.options.file)) do
    if core.options.json then
      print(('{"tensor": %s, "type": %s, "parameter": %s}'):format(literal.json_string(t.name),
        literal.json_string(t.type), t.ours and literal.json_string(t.ours) or "null"))
    else
      print(("  %-52s %-22s %s"):format(t.name, t.type, t.ours or "(not of this family)"))
    end
  end
  return 0
end

-- The training step of a recipe, and what core.trainer needs beside it; of `columns`, when they are given, the graph.
local function train_spec(recipe, columns)
  local dataset = not columns and recipe:make_dataset "dataset" or nil
  local size = dataset and dataset:steps() or STEPS_WITHOUT_DATA
  local a = step_options(recipe)
  a.train_dataset, a.columns, a.epoch, a.dataset_sink_mode = dataset, columns, recipe:length(size), false
  return model_of(recipe, size):train_spec(a)
end

--- `mslua graph R`: the training step's graph, of one of several ranks with -n.
function M.graph()
  local recipe = M.load()
  if core.options.ranks > 1 then parallel_context.check_runnable "graph" end
  return train_spec(recipe, recipe:columns()).graph
end

--- `mslua prof R`: where the time of a step goes.
function M.prof()
  local flags = core.options
  if flags.steps_only and flags.trace then
    params.usage_error "--steps-only times whole steps alone, and --trace writes the operators of one: leave one out"
  end
  core.trainer(train_spec(M.load())):profile {
    steps = flags.steps, steps_only = flags.steps_only, json = flags.json, trace = flags.trace,
  }
  return 0
end

--- `mslua lr-find R`: nothing is saved.
function M.lr_find()
  local recipe, steps = M.load(), core.options.steps
  if recipe.steps then errors.fail_at({ "steps" }, "lr-find: each of several steps has a learning rate of its own") end
  local dataset = recipe:make_dataset("dataset"):whole_batches "train"
  local size = dataset:steps()
  local a = step_options(recipe)
  a.train_dataset, a.epoch, a.dataset_sink_mode = dataset, math.ceil(steps / size), false
  return require("mslua.lr_find").run(model_of(recipe, size):train_spec(a), steps)
end

-- Whether checkpoints are written while training continues.
local function saves_beside_training(recipe)
  local config = recipe.checkpoint
  for _, callback in ipairs(recipe.callbacks) do
    if callback.add_to == callbacks.ModelCheckpoint.add_to then config = callback.config end
  end
  return config ~= nil and config.async_save
end

--- `mslua plan R -n N`: whether checkpoints are written while training continues, and the graph of rank 0 of N; where
--- the job has one rank and the recipe another device_num, that.
function M.plan()
  local recipe = M.load()
  local asked = parallel_context.given().device_num
  if core.options.ranks == 1 and asked and asked > 1 and not core.options.ranks_given then return asked end
  parallel_context.check_runnable "plan"
  return saves_beside_training(recipe), train_spec(recipe, recipe:columns()).graph
end

--- `mslua recipes check R`: traces its training step, and names lines that are decided while tracing; 2 when there are
--- any.
function M.check()
  M.graph()
  local found = require("mslua.check").check(assert(recipes.source(core.options.file)))
  for _, entry in ipairs(found) do print(("%s:%d: %s"):format(core.options.file, entry.line, entry.text)) end
  if #found == 0 then print(core.options.file .. ": ok") end
  return #found == 0 and 0 or 2
end

--- `mslua repl R`: what is in scope: recipe, net, dataset, eval_dataset, loss, model, and m, whose m:step() trains by
--- hand; each made when it is first named.
---@return table scope
function M.scope()
  local recipe = M.load()
  local make = {
    recipe = function() return recipe end,
    net = function() return recipe:make_network() end,
    dataset = function() return recipe:make_dataset "dataset" end,
    eval_dataset = function() return recipe:make_dataset "eval_dataset" end,
    loss = function() return recipe.loss end,
    model = function(scope) return model_of(recipe, scope.dataset:steps()) end,
    m = function(scope) return require("mslua.by_hand")(scope.model, scope.dataset) end,
  }
  local scope = setmetatable({}, {
    __index = function(scope, name)
      local v = make[name] and make[name](scope)
      rawset(scope, name, v)
      return v
    end,
  })
  local names = {}
  for name in pairs(make) do names[#names + 1] = name end
  require("mslua.complete").scope = { names = names, get = function(name) return scope[name] end }
  return scope
end

--- For the completion of the shell: the recipe's presets, parameters and leaves, a line "preset\tNAME\t" or
--- "parameter\tNAME\tVALUE" each. A recipe that cannot be made, for want of data, has its parameters all the same.
---@return string lines
function M.words()
  local made, recipe = pcall(M.load)
  local state, lines = params.state(), {}
  for _, name in ipairs(state.presets or {}) do lines[#lines + 1] = ("preset\t%s\t"):format(name) end
  for _, name in ipairs(errors.names(state.defaults or {})) do
    lines[#lines + 1] = ("parameter\t%s\t%s"):format(name, literal.write(state.defaults[name]))
  end
  for _, path in ipairs(made and recipes.leaves() or {}) do lines[#lines + 1] = ("parameter\t%s\t"):format(path) end
  return table.concat(lines, "\n")
end

--- `mslua recipes show R`: every parameter and leaf, with where its value came from.
function M.show()
  local recipe = M.load()
  local state = params.state()
  print(recipe.name .. (recipe.doc ~= "" and ": " .. recipe.doc or ""))
  local names = {}
  for name in pairs(state.values) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    print(("  %-24s %-24s %s"):format(name, literal.write(state.values[name]), state.origins[name]))
  end
  local paths = {}
  for path in pairs(recipe.origins) do paths[#paths + 1] = path end
  table.sort(paths)
  for _, path in ipairs(paths) do
    local v = recipe:value_at(path)
    print(("  %-24s %-24s %s"):format(path, literal.write(v) or tostring(v), recipe.origins[path]))
  end
  return 0
end

return M
