--- nn.WithLossCell, TrainOneStepCell, PipelineCell: a network with its loss, one training step of it, its
--- micro-batches.
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local notice = require "mslua.notice"
local parallel_context = require "mslua.parallel_context"
local Cell = require "mslua.cell"

local M = {}

local function only(network, ...)
  local n = select("#", ...)
  if n ~= 1 then
    errors.fail("%s: expected one output for the loss, construct returned %d: return a table of them, which a loss of "
      .. "your own gets as its first argument, or have the network give the loss", network.class_name, n)
  end
  return (...)
end

--- What a network gives a loss or metrics for these inputs: one value.
---@param network Cell
function M.output(network, ...) return only(network, network(...)) end

--- What a network predicts for these inputs by its method `predict`: one value.
---@param network Cell
function M.prediction(network, ...)
  local function one(...)
    local n = select("#", ...)
    if n ~= 1 then errors.fail("%s: predict(x) gives one tensor, it returned %d values", network.class_name, n) end
    return (...)
  end
  return one(network:predict(...))
end

local MOST_SHOWN = 8

--- Names, once, the parameters that no gradient reaches.
---@param idle string[]
function M.report_idle(idle)
  if #idle == 0 then return end
  local shown = table.concat(idle, ", ", 1, math.min(#idle, MOST_SHOWN))
  local what = #idle == 1 and "it" or "them"
  notice(("warning: no gradient reaches %s%s: the loss does not depend on %s, and only weight decay, or FTRL, changes "
    .. "%s"):format(shown, #idle > MOST_SHOWN and (" and %d more"):format(#idle - MOST_SHOWN) or "", what, what))
end

M.WithLossCell = Cell:extend "WithLossCell"
M.WithLossCell.transparent = { backbone = true }
local bind_loss = args.signature("WithLossCell", {
  { "backbone", "cell", required = true, doc = "the network; it gets all columns of a batch but the last" },
  { "loss_fn", "loss", required = true, doc = "the loss of (output of the network, last column)" },
})

--- A network and its loss as one cell, `nn.WithLossCell(net, loss)`: called with the data and then the label, gives the
--- loss.
function M.WithLossCell:init(...)
  local a = bind_loss(...)
  self.backbone, self.loss_fn = a.backbone, a.loss_fn
end

function M.WithLossCell:construct(...)
  local columns, n = { ... }, select("#", ...)
  if n < 2 then errors.fail("WithLossCell: expected data and label, got %d argument(s)", n) end
  return self.loss_fn(M.output(self.backbone, unpack(columns, 1, n - 1)), columns[n])
end

M.TrainOneStepCell = Cell:extend "TrainOneStepCell"
M.TrainOneStepCell.transparent = { network = true }
local bind_step = args.signature("TrainOneStepCell", {
  { "network", "cell", required = true, doc = "a network that gives its loss, such as nn.WithLossCell(net, loss)" },
  { "optimizer", "optimizer", required = true, doc = "it updates the parameters of the network that it selects" },
})

--- A training step, `nn.TrainOneStepCell(net_with_loss, optimizer)`: called with a batch's columns, makes one step,
--- gives the loss.
function M.TrainOneStepCell:init(...)
  local a = bind_step(...)
  self.network, self.optimizer = a.network, a.optimizer
  rawset(self, "step", false)
end

local MANY = 20
local times = setmetatable({}, { __mode = "k" })  -- cell -> field -> how often a step was compiled again for it

local function compiled_again(cell, field)
  local of_cell = times[cell] or {}
  times[cell] = of_cell
  of_cell[field] = (of_cell[field] or 0) + 1
  if of_cell[field] == MANY then
    notice(("note: the training step was compiled %d times since %s.%s changes: a number that changes "
      .. "often is faster as an argument of the step, or as a state, self:state(name, {}, value), whose .value is "
      .. "assigned"):format(MANY, cell.class_name, field))
  end
end

-- The compiled step for batches of these columns.
local function compile(self, columns)
  local inputs = {}
  for i, column in ipairs(columns) do
    if core.kind(column) ~= "Tensor" then
      errors.fail("TrainOneStepCell: argument %d: expected a tensor, got %s: each column of a batch is an argument, a "
        .. "number is one as ms.Tensor(x)", i, errors.show(column))
    end
    inputs[i] = { name = "x" .. i, dtype = column.dtype, shape = column.shape }
  end
  parallel_context.check_runnable "TrainOneStepCell"
  parallel_context.check_one_stage "TrainOneStepCell"
  local own = self.optimizer.loss_scale
  if own ~= 1 then
    errors.fail("TrainOneStepCell: %s has loss_scale = %g, which only divides gradients: train with ms.Model and "
      .. "loss_scale_manager = ms.FixedLossScaleManager(%g), or leave it out", self.optimizer.class_name, own, own)
  end
  self:_as_root()
  local parameters, spec = self.optimizer:bind(self.network)
  if core.options.verb == "run" and core.options.max_steps then
    errors.fail "TrainOneStepCell: --max-steps stops model:train; a loop of your own ends by itself"
  end
  local graph, idle = core.build_train {
    name = self.network.class_name, forward = self.network, inputs = inputs, parameters = parameters,
    network = self.network:get_parameters(), optimizer = spec, accumulate = M.micro_batches(self.network, inputs),
    heed_cells = M.unwrap(self.network):_heeds_parts(), aggregate = parallel_context.aggregation(),
    shard = parallel_context.shard(),
  }
  M.report_idle(idle)
  local schedule, lr_function = self.optimizer:rates_by_hand()
  return core.stepper {
    graph = graph, schedule = schedule, lr_function = lr_function, history = self.optimizer.history,
    broadcast = parallel_context.broadcasts(), together = parallel_context.together(),
  }
end

--- A function that says whether requires_grad of one of the network's parameters, a field of one of its cells, or what
--- gives the optimizer's learning rate, has changed since now.
---@param network Cell
---@param optimizer mslua.Optimizer
---@return fun(): boolean
function M.watch_trained(network, optimizer)
  local parameters, trained = network:get_parameters(), {}
  local schedule, lr_function = optimizer:rates_by_hand()
  for i, p in ipairs(parameters) do trained[i] = p.requires_grad end
  local changed = network:_watch()
  return function()
    local cell, field = changed()
    if cell then
      compiled_again(cell, field)
      return true
    end
    for i, p in ipairs(parameters) do
      if p.requires_grad ~= trained[i] then return true end
    end
    local next_schedule, next_function = optimizer:rates_by_hand()
    return next_schedule ~= schedule or next_function ~= lr_function
  end
end

--- Compiled at the first call, for the types of its columns; later calls must have the same. It is compiled again where
--- requires_grad of a parameter or a field of a cell has changed, or the optimizer's learning rate was assigned for the
--- first time.
function M.TrainOneStepCell:construct(...)
  if core.is_tracing() then errors.fail "TrainOneStepCell: a training step cannot be part of a network" end
  if not rawget(self, "step") or rawget(self, "has_changed")() then
    rawset(self, "step", compile(self, { ... }))
    rawset(self, "has_changed", M.watch_trained(self.network, self.optimizer))
  end
  return rawget(self, "step")(...)
end

M.PipelineCell = Cell:extend "PipelineCell"
M.PipelineCell.transparent = { network = true }
local bind_pipeline = args.signature("PipelineCell", {
  { "network", "cell", required = true, doc = "the network, with its loss or without" },
  { "micro_size", "integer", required = true, min = 1,
    doc = "micro-batches of a batch, at least as many as pipeline stages; it divides the rows of a batch" },
})

--- A network that trains in micro-batches, `nn.PipelineCell(network, micro_size)`: in training a batch goes through the
--- network, with its loss or without, in micro_size parts, one pipeline stage after the other; loss and gradients are
--- the parts' means. The network of a Model; without pipeline stages of a TrainOneStepCell too. Parameters have the
--- names that they have without it. What is asked of a network beside its call, as net:generate, ms.save_pretrained,
--- ms.save_adapter and `weights` of a recipe do, is asked of the network within.
function M.PipelineCell:init(...)
  local a = bind_pipeline(...)
  self.network, self.micro_size = a.network, a.micro_size
  rawset(self, "splits", false)
end

function M.PipelineCell:construct(...)
  if self.micro_size > 1 and core.is_tracing() and core.training() and not rawget(self, "splits") then
    errors.fail("PipelineCell: the batch is not split into micro-batches here: "
      .. "give the cell itself to ms.Model or nn.TrainOneStepCell")
  end
  return self.network(...)
end

--- The first of these columns whose rows do not go into `parts` equal parts, and how many rows it has; else nil.
---@param columns {name: string, shape: integer[]}[]
---@param parts integer
---@return string?, integer?
function M.uneven(columns, parts)
  for _, column in ipairs(columns) do
    local rows = column.shape[1] or 1
    if rows % parts ~= 0 then return column.name, rows end
  end
end

local network_key = { "network" }

--- In how many parts a batch of these columns goes through `network`: 1 where it is no PipelineCell.
---@param network Cell
---@param columns {name: string, shape: integer[]}[]
---@return integer
function M.micro_batches(network, columns)
  local stages = parallel_context.stages()
  if not class.is(network, M.PipelineCell) then
    if stages > 1 then
      errors.fail_at({ "parallel", "pipeline_stages" }, "train: pipeline_stages = %d: the network passes micro-batches "
        .. "from stage to stage: nn.PipelineCell(network, micro_size)", stages)
    end
    return 1
  end
  local n = network.micro_size
  if n < stages then
    errors.fail_at(network_key, "PipelineCell: micro_size = %d is less than pipeline_stages = %d: some stages would "
      .. "never work at the same time", n, stages)
  end
  local name, rows = M.uneven(columns, n)
  if name then
    errors.fail_at(network_key, "PipelineCell: micro_size = %d does not divide the batch of column '%s', %d rows", n,
      name, rows)
  end
  rawset(network, "splits", true)
  return n
end

-- The field of its network, by what a wrapper's call computes: a class that extends a wrapper and has a construct of
-- its own may compute anything.
local wrapped = {
  [M.WithLossCell.construct] = "backbone", [M.TrainOneStepCell.construct] = "network",
  [M.PipelineCell.construct] = "network",
}

--- The network in a wrapper, as `net` in nn.PipelineCell(nn.WithLossCell(net, loss), 4); any other cell itself. With
--- `field` the outermost of these cells that has the field; where none has it, the network.
---@param cell Cell
---@param field? string
---@return Cell network
---@return boolean bare whether it is without a loss that the wrapper adds
function M.unwrap(cell, field)
  local bare = false
  while not (field and cell[field] ~= nil) do
    local key = wrapped[cell.construct]
    if not key then break end
    bare = bare or key == "backbone"
    cell = cell[key]
  end
  return cell, bare
end

return M
