--- Optimizers: what updates the parameters, as numbers; the update itself is part of the compiled step.
local args = require "mslua.args"
local arity = require "mslua.arity"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local parallel_context = require "mslua.parallel_context"
local parameter = require "mslua.parameter"
local pattern = require "mslua.pattern"
local schedules = require "mslua.schedules"

local M = {}

---@class mslua.Optimizer
---@field kind string of core.optimizers
---@field learning_rate number|number[]|mslua.Schedule|function as it was given, or assigned
---@field schedule mslua.Schedule of the learning rate; nil when lr_function is set
---@field lr_function? fun(step: integer, epoch: integer): number called between steps
---@field parameters Parameter[] those that `params` lists
---@field numbers table<string, any> momentum, nesterov, beta1, ... as core.build_train takes them
---@field history OptimizerHistory its steps and updates: a second training with it continues
---@field wrapper? table what changes gradients before: its kind and settings
---@field is_wrapped? fun(p: Parameter): boolean which parameters that concerns
local Optimizer = class.Object:extend "Optimizer"
M.Optimizer = Optimizer

--- What users of other libraries call, and what does it here; for messages.
Optimizer.elsewhere = {
  step = "opt(gradients)",
  zero_grad = "gradients are results of ms.value_and_grad: nothing adds up that would have to be zeroed",
  state_dict = "ms.save_checkpoint(opt, FILE)",
  load_state_dict = "ms.load_param_into_net(opt, ms.load_checkpoint(FILE))",
  get_lr = "opt.learning_rate",
  param_groups = "opt.learning_rate, opt.parameters",
  trainable_params = "opt.parameters",
}

args.kind("optimizer", function(v) return class.is(v, Optimizer) end, "an optimizer such as nn.Momentum {...}")

--- A list of parameters, a Lua pattern on their names or a predicate, as a predicate; `name` begins messages.
---@param name string
---@param v table|string|function
---@return fun(p: Parameter): boolean
local function selector(name, v)
  if type(v) == "function" then return v end
  if type(v) == "string" then return function(p) return pattern.find(name .. ": params", p.name, v) end end
  local set = {}
  for i, p in ipairs(v) do
    if not parameter.is(p) then
      errors.fail("%s: params[%d]: expected a Parameter or a group { params = ..., weight_decay = ... }, got %s",
        name, i, errors.show(p))
    elseif set[p] then
      errors.fail("%s: params[%d]: parameter '%s' is listed twice", name, i, p.name)
    end
    set[p] = true
  end
  return function(p) return set[p] or false end
end

M.selector = selector

-- What is wrong with a number, or numbers, of which none may be infinite.
local function check_finite(v)
  for _, number in ipairs(type(v) == "table" and v or { v }) do
    if number == math.huge or number == -math.huge then return ("expected a finite number, got %g"):format(number) end
  end
end

local group_fields = {
  { "params", "list|function|string", required = true },
  { "weight_decay", "number", min = 0, check = check_finite },
  { "lr", "number", min = 0, check = check_finite },
}

-- The groups, selectors made; one group when there are none.
local function groups_of(name, params)
  if type(params) ~= "table" or type(params[1]) ~= "table" or getmetatable(params[1]) then
    return { { select = params and selector(name, params) or function() return true end,
      list = type(params) == "table" and params or nil } }
  end
  local groups = {}
  for i, group in ipairs(params) do
    if type(group) ~= "table" or getmetatable(group) then
      errors.fail("%s: params[%d]: expected a group { params = ..., weight_decay = ... }, as params[1] is one, got %s",
        name, i, errors.show(group))
    end
    local a = args.check(group_fields, group, function(what) errors.fail("%s: params[%d]: %s", name, i, what) end)
    groups[i] = { select = selector(name, a.params), weight_decay = a.weight_decay, lr = a.lr,
      list = type(a.params) == "table" and a.params or nil, pattern = type(a.params) == "string" and a.params or nil }
  end
  return groups
end

-- The parameters that gradients without a list of their own belong to: those that `params` lists, in its order.
local function listed(self, otherwise)
  local list = {}
  for _, group in ipairs(self.groups) do
    if not group.list then
      errors.fail("%s: which parameters it updates is not known: give the optimizer params = net:trainable_params(), "
        .. "or %s", self.class_name, otherwise)
    end
    for _, p in ipairs(group.list) do list[#list + 1] = p end
  end
  return list
end

-- The library's fields of an optimizer lie in a table of their own: assigning to one that training has read already
-- would have no effect.
local function own(self) return rawget(self, "_own") end

local rate_names = { learning_rate = true, lr = true }

function Optimizer.__index(self, key)
  local fields = own(self)
  local v = fields and fields[key]
  if v ~= nil then return v end
  if fields and rate_names[key] then return fields.rate.given end
  if fields and (key == "schedule" or key == "lr_function") then return fields.rate[key] end
  if key == "parameters" and fields then
    return { unpack(fields.update and fields.update.parameters
      or listed(self, "save and load the nn.TrainOneStepCell that it is in")) }
  end
  return class.lookup(self, key)
end

-- Takes a learning rate as users give it. The rates of groups are shares of the first value.
local function set_rate(rate, v)
  rate.given, rate.schedule, rate.lr_function = v, nil, nil
  if type(v) == "function" then
    rate.lr_function = v
  else
    rate.schedule = schedules.of(v)
    rate.first = rate.first or rate.schedule.value
  end
end

-- A learning rate that is assigned: from the next step on.
local function assign_rate(self, key, v)
  local fields = own(self)
  local rate = fields.rate
  local problem = v == nil and "expected a value, got nil" or args.problem(rate.field, v)
  if problem then errors.fail("%s.%s: %s", self.class_name, key, problem) end
  if rate.trains then
    errors.fail("%s.%s cannot be assigned while ms.Model trains: give learning_rate a schedule, such as "
      .. "nn.cosine_decay_lr {...}, or a function of the step", self.class_name, key)
  end
  set_rate(rate, v)
  -- Steps by hand ask for a number that is assigned, so that the next one needs no new step.
  rate.current = rate.current or function() return rate.given end
end

function Optimizer:__newindex(key, v)
  if own(self) and rate_names[key] then return assign_rate(self, key, v) end
  if M.classes[self.class_name] ~= getmetatable(self) then return rawset(self, key, v) end
  errors.fail("%s.%s cannot be assigned: of an optimizer only learning_rate can; make another one", self.class_name,
    tostring(key))
end

--- The schedule or the function of the learning rate, for steps by hand: others than before where it was assigned.
---@return mslua.Schedule? schedule
---@return function? lr_function
---@package
function Optimizer:rates_by_hand()
  local rate = self.rate
  self:check_free "step"
  if rate.current and type(rate.given) == "number" then return nil, rate.current end
  return rate.schedule, rate.lr_function
end

--- Fails where a Model trains with it now.
---@param what string begins the message
---@package
function Optimizer:check_free(what)
  if not self.rate.trains then return end
  errors.fail("%s: a model:train that has not ended trains with this %s: give each training an optimizer of its own",
    what, self.class_name)
end

--- Runs f() as a training of a Model with the optimizers.
---@param list mslua.Optimizer[]
---@param f function
---@package
function M.while_training(list, f)
  local function set(trains)
    for _, optimizer in ipairs(list) do optimizer.rate.trains = trains end
  end
  set(true)
  local ok, problem = pcall(f)
  set(nil)
  if not ok then error(problem, 0) end
end

--- Gives it the history of others, with which it makes updates.
---@package
function Optimizer:share_history(history) own(self).history = history end

-- One gradient for each parameter, of its shape and type.
local function check_gradients(self, gradients, parameters)
  if core.kind(gradients) and #parameters == 1 then gradients = { gradients } end
  if not args.is_list(gradients) or #gradients ~= #parameters then
    errors.fail("%s: expected a list of %d gradients, one for each parameter, got %s", self.class_name, #parameters,
      args.is_list(gradients) and #gradients or errors.show(gradients))
  end
  for i, p in ipairs(parameters) do
    local g = gradients[i]
    if not parameter.is(p) then errors.fail("%s: parameters[%d]: expected a Parameter, got %s", self.class_name, i,
      errors.show(p)) end
    local shape = core.kind(g) == "Tensor" and g.shape
    if not shape or shape ~= p.shape or g.dtype ~= p.dtype then
      errors.fail("%s: gradient %d: expected %s%s, the type of parameter '%s', got %s", self.class_name, i, p.dtype,
        errors.show(p.shape), p.name, errors.show(g))
    end
  end
  return gradients
end

-- The graph of an update of those of the parameters that training changes.
local function update_graph(self, parameters)
  local bound, spec = self:bind_list(parameters)
  if #bound ~= #parameters then
    errors.fail("%s: %d of the %d parameters are in no group of params", self.class_name, #parameters - #bound,
      #parameters)
  end
  local trained = {}
  for _, p in ipairs(parameters) do
    if p.requires_grad then trained[#trained + 1] = p end
  end
  if #trained == 0 then return nil end
  for _, group in ipairs(spec.groups) do
    local rest = {}
    for _, p in ipairs(group.params) do
      if p.requires_grad then rest[#rest + 1] = p end
    end
    group.params = rest
  end
  return core.build_update { name = self.class_name, inputs = {}, parameters = trained, optimizer = spec }
end

-- The parameters of its updates, and their step where they have one.
local function update_of(self, parameters)
  local update = self.update
  if not update then
    if parallel_context.shard() then
      errors.fail("%s: parameters are sharded over ranks here: train with ms.Model or nn.TrainOneStepCell",
        self.class_name)
    elseif self.loss_scale ~= 1 then
      errors.fail("%s: loss_scale = %g is for ms.Model: divide the gradients instead", self.class_name,
        self.loss_scale)
    end
    return { parameters = parameters, trained = {} }
  end
  local same = #update.parameters == #parameters
  for i, p in ipairs(parameters) do same = same and update.parameters[i] == p end
  if same then return update end
  errors.fail("%s: its update was compiled for other parameters: make one optimizer for each list of parameters",
    self.class_name)
end

-- Makes the step again where requires_grad of a parameter or what gives the learning rate has changed.
local function refresh(self, update)
  local schedule, lr_function = self:rates_by_hand()
  local same = update.made and update.schedule == schedule and update.lr_function == lr_function
  for i, p in ipairs(update.parameters) do
    same = same and update.trained[i] == p.requires_grad
    update.trained[i] = p.requires_grad
  end
  if same then return end
  local graph = update_graph(self, update.parameters)
  update.step = graph and core.stepper {
    graph = graph, schedule = schedule, lr_function = lr_function, history = self.history,
  }
  update.made, update.schedule, update.lr_function = true, schedule, lr_function
end

-- Those of the gradients whose parameters are trained.
local function trained_of(gradients, update)
  local rest = {}
  for i, g in ipairs(gradients) do
    if update.trained[i] then rest[#rest + 1] = g end
  end
  return rest
end

--- `opt(gradients)`: one update of the parameters that `params` lists, in their order; `opt(gradients, parameters)` of
--- these. What ms.value_and_grad gives for a list of weights fits. The learning rate's schedule and the optimizer's
--- state go one step ahead, as in a training step. A parameter whose requires_grad is false stays as it is, and so does
--- its state. Gradients of other ranks are not added: nn.DistributedGradReducer adds them.
---@param gradients Tensor[]
---@param parameters? Parameter[] the same ones at each call
function Optimizer:__call(...)
  local gradients, parameters = arity.take(self.class_name, 2, ...)
  if core.is_tracing() then errors.fail("%s: an update cannot be part of a network", self.class_name) end
  parameters = parameters or listed(self, "call it with two lists, opt(gradients, parameters)")
  if not args.is_list(parameters) then
    errors.fail("%s: parameters: expected a list, got %s", self.class_name, errors.show(parameters))
  end
  gradients = check_gradients(self, gradients, parameters)
  local update = update_of(self, parameters)
  refresh(self, update)
  own(self).update = update
  if update.step then update.step(unpack(trained_of(gradients, update))) end
end

--- The name of the steps and updates that an optimizer has made, beside its state.
M.HISTORY = "optimizer.history"

-- An error where no rank has the whole state.
local function check_whole_state(self, instead)
  if parallel_context.shard() then
    errors.fail("%s: parameters are sharded over ranks here: %s", self.class_name, instead)
  end
  local aggregation = parallel_context.aggregation()
  if aggregation and aggregation.shards then
    errors.fail("%s: its state is sharded over ranks here (enable_parallel_optimizer): %s", self.class_name, instead)
  end
end

--- What save_checkpoint writes of an optimizer: its state by name, "moments.fc.weight", and M.HISTORY.
---@param parameters? Parameter[] default: those that it updates
---@return table<string, Parameter|Tensor>
---@package
function Optimizer:saved_state(parameters)
  check_whole_state(self, "ms.Model's checkpoints save its state")
  parameters = parameters or self.parameters
  update_graph(self, (self:bind_list(parameters)))  -- makes the state that no update has made yet
  local values = core.optimizer_states(self.history, parameters)
  values[M.HISTORY] = core.tensor({ core.optimizer_counts(self.history) }, "float64")
  return values
end

-- The names among `values` of state that another optimizer keeps for these parameters, averages (train.ema) left out.
local function state_of_others(parameters, values, states)
  local names, surplus = {}, {}
  for i, p in ipairs(parameters) do names[i] = p.name end
  local _, known = core.match_names(names, errors.names(values))
  for _, name in ipairs(errors.names(known)) do
    if states[name] == nil and not name:find "^ema%." then surplus[#surplus + 1] = name end
  end
  return surplus
end

--- Restores what saved_state gave; gives the names of the state that `values` does not have, which are an error where
--- `strict`. Nothing changes before it is known that all fits.
---@param values table<string, Tensor>
---@param strict boolean
---@param parameters? Parameter[] default: those that it updates
---@return string[] missing
---@package
function Optimizer:restore_state(values, strict, parameters)
  check_whole_state(self, "ms.Model resumes with its state")
  if self.rate.trains then
    errors.fail("%s: its state cannot be loaded while ms.Model trains with it: end model:train first", self.class_name)
  end
  local counts, missing, found = values[M.HISTORY]:totable(), {}, {}
  local _, made = core.optimizer_counts(self.history)
  parameters = parameters or self.parameters
  update_graph(self, parameters)
  local states = core.optimizer_states(self.history, parameters)
  for _, name in ipairs(errors.names(states)) do
    local v, held = values[name], states[name]
    if v == nil then
      if counts[2] > 0 or made > 0 then missing[#missing + 1] = name end
    elseif v.dtype ~= held.dtype or v.shape ~= held.shape then
      errors.fail("load_param_into_net: %s is %s%s here and %s%s in the checkpoint", name, held.dtype,
        errors.show(held.shape), v.dtype, errors.show(v.shape))
    else
      found[held] = v
    end
  end
  if strict and #missing > 0 then
    errors.fail("load_param_into_net: not in the checkpoint: %s (strict_load = false loads what fits)",
      table.concat(missing, ", "))
  end
  local surplus = strict and state_of_others(parameters, values, states) or {}
  if #surplus > 0 then
    errors.fail("load_param_into_net: %s has no state %s: was it another optimizer's? (strict_load = false loads what "
      .. "fits)", self.class_name, table.concat(surplus, ", "))
  end
  core.set_optimizer_counts(self.history, unpack(counts))
  for held, v in pairs(found) do held.value = core.kind(v) == "Parameter" and v.value or v end
  return missing
end

function Optimizer:__tostring() return self.class_name end

local function check_rate(v)
  if type(v) == "number" and (v < 0 or v == math.huge) then
    return ("expected a finite number, at least 0, got %g"):format(v)
  end
  if args.is_list(v) then return args.problem({ "", "numbers", min = 0, check = check_finite }, v) end
end

-- Numbers of a list: as many as there are settings.
local function check_count(n)
  return function(v)
    if #v ~= n then return ("expected %d numbers, got %d"):format(n, #v) end
    return check_finite(v)
  end
end

local checks = { rate = check_rate, number = check_finite, weight_decay = check_finite, loss_scale = check_finite }

-- kind of a field in C++ -> kinds of mslua.args
local field_kinds = {
  params = "list|function|string", rate = "number|list|schedule|function", number = "number", numbers = "numbers",
  boolean = "boolean", weight_decay = "number", loss_scale = "number", optimizer = "optimizer",
  filter = "list|function|string",
}

-- Whether a default is to be given, or none is needed.
local function is_required(f)
  return f.default == nil and f.kind ~= "params" and f.kind ~= "filter"
end

-- Fields as mslua.args has them, of a definition's fields.
local function fields_of(info)
  local fields = {}
  for i, f in ipairs(info.fields) do
    fields[i] = {
      f.name, field_kinds[f.kind], f.default, required = is_required(f), min = f.min, above = f.above, max = f.max,
      below = f.below, doc = f.doc, check = f.kind == "numbers" and check_count(#f.settings) or checks[f.kind],
    }
  end
  return fields
end

-- The settings among checked arguments, by their names in C++; an error where they do not go together.
local function settings_of(info, a)
  local settings = {}
  for _, f in ipairs(info.fields) do
    for i, setting in ipairs(f.settings) do
      local v = a[f.name]
      if f.kind == "numbers" then v = v[i] end
      settings[setting] = v
    end
  end
  local problem = core.optimizer_problem(info.kind, settings)
  if problem then errors.fail("%s: %s", info.class, problem) end
  return settings
end

-- The parameters without any of `words` in their names.
local function without(words)
  return function(p)
    for _, word in ipairs(words) do
      if p.name:find(word, 1, true) then return false end
    end
    return true
  end
end

-- Sets up an optimizer that makes updates.
local function init_update(self, info, a)
  local fields = own(self)
  fields.kind, fields.loss_scale, fields.numbers, fields.weight_decay = info.kind, a.loss_scale or 1,
    settings_of(info, a), a.weight_decay or 0
  fields.rate = {}
  for _, field in ipairs(fields_of(info)) do
    if field[1] == "learning_rate" then fields.rate.field = field end
  end
  set_rate(fields.rate, a.learning_rate)
  fields.groups, fields.history = groups_of(info.class, a.params), core.optimizer_history()
end

-- Sets up an optimizer that changes the gradients of another.
local function init_wrapper(self, info, a)
  local inner = a.optimizer
  if inner.wrapper then
    errors.fail("%s: optimizer: expected an optimizer that makes the update, such as nn.Momentum {...}, got %s",
      info.class, tostring(inner))
  end
  local fields = own(self)
  for _, key in ipairs { "kind", "loss_scale", "numbers", "weight_decay", "rate", "groups", "history" } do
    fields[key] = inner[key]
  end
  fields.wrapper = settings_of(info, a)
  fields.wrapper.kind = info.kind
  for _, f in ipairs(info.fields) do
    if f.kind == "filter" then
      fields.is_wrapped = a[f.name] ~= nil and selector(info.class, a[f.name]) or without(f.words)
    end
  end
end

--- name -> class, of each definition in core/optim.
---@type table<string, table>
M.classes = {}
for _, info in ipairs(core.optimizers()) do
  local bind, made = args.signature(info.class, fields_of(info)), Optimizer:extend(info.class)
  local init = info.wraps and init_wrapper or init_update
  function made:init(...)
    rawset(self, "_own", {})
    init(self, info, bind(...))
  end
  made.doc = info.doc
  M.classes[info.class] = made
end

-- Groups whose parameters are all wrapped, or none: those do not decay.
local function split(groups, is_wrapped)
  local halves = {}
  for _, group in ipairs(groups) do
    local wrapped, rest = { params = {}, wrapped = true }, { params = {}, wrapped = false, weight_decay = 0 }
    wrapped.weight_decay, wrapped.lr_scale, rest.lr_scale = group.weight_decay, group.lr_scale, group.lr_scale
    for _, p in ipairs(group.params) do table.insert((is_wrapped(p) and wrapped or rest).params, p) end
    halves[#halves + 1], halves[#halves + 2] = wrapped, rest
  end
  return halves
end

--- The parameters of a network that this optimizer updates, and its description for core.build_train.
---@param net Cell
---@return Parameter[] parameters in the network's order
---@return table optimizer
---@package
function Optimizer:bind(net)
  local own = {}
  for _, p in ipairs(net:get_parameters()) do own[p] = true end
  if not next(own) then
    errors.fail_at({ "network" }, "%s: the network %s has no parameters: assign cells to fields of self in function "
      .. "%s:init()", self.class_name, net.class_name, net.class_name)
  end
  for _, group in ipairs(self.groups) do
    for i, p in ipairs(group.list or {}) do
      if not own[p] then
        errors.fail_at({ "optimizer" }, "%s: params: parameter '%s', item %d of its list, is not of the network that "
          .. "is trained, %s: make it one of its cells' parameters, or leave it out", self.class_name, p.name, i,
          net.class_name)
      end
    end
  end
  return self:bind_list(net:trainable_params())
end

--- The same of a list of parameters.
---@param parameters Parameter[]
---@return Parameter[] parameters in the list's order
---@return table optimizer
function Optimizer:bind_list(parameters)
  local trained, groups = {}, {}
  for i in ipairs(self.groups) do groups[i] = { params = {} } end
  for _, p in ipairs(parameters) do
    local own
    for i, group in ipairs(self.groups) do
      if own and group.list and group.select(p) then
        errors.fail_at({ "optimizer" }, "%s: params[%d] lists parameter '%s', which params[%d] has: one group updates "
          .. 'a parameter; give the group of the rest params = ""', self.class_name, i, p.name, own)
      elseif not own and group.select(p) then
        own = i
        trained[#trained + 1] = p
        table.insert(groups[i].params, p)
      end
    end
  end
  if #parameters == 0 then
    errors.fail_at({ "optimizer" }, "%s: no parameter to train: none of the network has requires_grad = true",
      self.class_name)
  elseif #trained == 0 then
    errors.fail_at({ "optimizer" }, "%s: no parameter to train: params selects none of the network's %s",
      self.class_name, errors.counted(#parameters, "parameter"))
  end
  for i, group in ipairs(self.groups) do
    groups[i].weight_decay = group.weight_decay
    -- A pattern that fits no name is a mistake, but "" is the rest, and there may be none.
    if group.pattern and group.pattern ~= "" and #groups[i].params == 0 then
      errors.fail_at({ "optimizer" }, "%s: params[%d]: no parameter that is left has '%s' in its name",
        self.class_name, i, group.pattern)
    end
    if group.lr then
      local first = self.rate.first
      if not first or first == 0 then
        errors.fail_at({ "optimizer" }, "%s: params[%d]: lr, a share of learning_rate, needs one %s", self.class_name,
          i, first and "above 0" or "that is no function")
      end
      groups[i].lr_scale = group.lr / first
    end
  end
  local spec = { kind = self.kind, weight_decay = self.weight_decay, groups = groups, wrapper = self.wrapper,
    history = self.history }
  for key, v in pairs(self.numbers) do spec[key] = v end
  if self.wrapper then spec.groups = split(groups, self.is_wrapped) end
  return trained, spec
end

return M
