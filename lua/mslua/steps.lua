--- Trainings of several steps: each has its loss, its optimizer and its parameters, and all are made, in turn, on every
--- batch. They are compiled as one graph.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local optimizer = require "mslua.optimizer"
local parallel_context = require "mslua.parallel_context"

local M = {}

M.NO_F16 = 'amp = "f16" and steps: f16 needs a loss scale, and several steps have none: use amp = "bf16"'

local function check_name(name)
  if not name:match "^[%a][%w_]*$" then return ("expected letters, digits and '_', got %q"):format(name) end
end

-- Of one step; `of_recipe`: its optimizer may be a function of the steps per epoch.
local function fields(of_recipe)
  return {
    { "name", "string", required = true, check = check_name },
    { "loss", "function", required = true },
    { "optimizer", of_recipe and "optimizer|function" or "optimizer", required = true },
    { "params", "list|function|string" },
  }
end

--- The steps of a list, checked; `fail` reports what is wrong.
---@param list table
---@param of_recipe boolean
---@param fail fun(problem: string)
---@return table[]
function M.check(list, of_recipe, fail)
  local steps, names = {}, {}
  if #list == 0 then fail "expected at least one step, got {}" end
  for i, step in ipairs(list) do
    local function report(problem) fail(("%d: %s"):format(i, problem)) end
    if type(step) ~= "table" or getmetatable(step) then
      report('expected { name = "generator", loss = function(net, ...) ... end, optimizer = ..., params = '
        .. '"^generator%." }, got ' .. errors.show(step))
    end
    steps[i] = args.check(fields(of_recipe), step, report)
    if names[step.name] then report(("there are two steps '%s'"):format(step.name)) end
    names[step.name] = true
  end
  return steps
end

-- The parameters that a step's `params` selects, or all.
local function selected(step, parameters)
  if step.params == nil then return parameters end
  local selects, list = optimizer.selector("steps: " .. step.name, step.params), {}
  for _, p in ipairs(parameters) do
    if selects(p) then list[#list + 1] = p end
  end
  if #list == 0 then
    errors.fail_at({ "steps" }, "steps: %s: params selects none of the network's %s", step.name,
      errors.counted(#parameters, "parameter"))
  end
  return list
end

local function check_mode()
  if parallel_context.shard() then
    errors.fail_at({ "steps" }, "train: steps go with data_parallel ranks, not with parallel_mode = %q or pipeline "
      .. "stages", parallel_context.get_auto_parallel_context "parallel_mode")
  end
end

--- The steps of a network as core.build_steps takes them: `common` is what they share. And their rates, for
--- core.trainer.
---@param net Cell
---@param steps table[]
---@param common table
---@param forward_of fun(step: table): function
---@return table[] list
---@return table[] rates
function M.bind(net, steps, common, forward_of)
  check_mode()
  local list, rates, parameters = {}, {}, net:trainable_params()
  for i, step in ipairs(steps) do
    local opt, input = step.optimizer, "lr." .. step.name
    if opt.loss_scale ~= 1 then
      errors.fail_at({ "steps" }, "steps: %s: %s has loss_scale = %g: steps have none", step.name, opt.class_name,
        opt.loss_scale)
    end
    local trained, spec = opt:bind_list(selected(step, parameters))
    for _, group in ipairs(spec.groups) do group.lr = input end
    local entry = { name = step.name, forward = forward_of(step), parameters = trained, optimizer = spec }
    for key, v in pairs(common) do entry[key] = v end
    list[i] = entry
    rates[i] = { input = input, schedule = opt.schedule, lr_function = opt.lr_function }
  end
  return list, rates
end

--- Gives the optimizers of the steps one history: they make as many updates.
---@param steps table[]
---@return OptimizerHistory
function M.share_history(steps)
  local history = core.optimizer_history()
  for _, step in ipairs(steps) do step.optimizer:share_history(history) end
  return history
end

return M
