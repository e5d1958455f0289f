--- nn.WithLossCell, TrainOneStepCell, PipelineCell: a network with its loss, one training step of it, its
--- micro-batches.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"
local parallel_context = require "mslua.parallel_context"
local Cell = require "mslua.cell"

local M = {}

M.WithLossCell = Cell:extend "WithLossCell"
local bind_loss = args.signature("WithLossCell", {
  { "backbone", "cell", required = true }, { "loss_fn", "loss", required = true },
})

--- `nn.WithLossCell(net, loss)`: called with the data and then the label, gives the loss.
function M.WithLossCell:init(...)
  local a = bind_loss(...)
  self.backbone, self.loss_fn = a.backbone, a.loss_fn
end

function M.WithLossCell:construct(...)
  local columns, n = { ... }, select("#", ...)
  if n < 2 then errors.fail("WithLossCell: expected data and label, got %d argument(s)", n) end
  return self.loss_fn(self.backbone(unpack(columns, 1, n - 1)), columns[n])
end

M.TrainOneStepCell = Cell:extend "TrainOneStepCell"
local bind_step = args.signature("TrainOneStepCell", {
  { "network", "cell", required = true }, { "optimizer", "optimizer", required = true },
})

--- `nn.TrainOneStepCell(net_with_loss, optimizer)`: called with a batch's columns, makes one step, gives the loss.
function M.TrainOneStepCell:init(...)
  local a = bind_step(...)
  self.network, self.optimizer = a.network, a.optimizer
  rawset(self, "step", false)
end

--- Compiled at the first call, for the types of its columns; later calls must have the same.
function M.TrainOneStepCell:construct(...)
  if core.is_tracing() then errors.fail "TrainOneStepCell: a training step cannot be part of a network" end
  if not rawget(self, "step") then
    local inputs = {}
    for i, column in ipairs { ... } do inputs[i] = { name = "x" .. i, dtype = column.dtype, shape = column.shape } end
    parallel_context.check_runnable "TrainOneStepCell"
    local parameters, spec = self.optimizer:bind(self.network)
    local graph = core.build_train {
      name = self.network.class_name, forward = self.network, inputs = inputs, parameters = parameters,
      optimizer = spec, aggregate = parallel_context.aggregation(),
    }
    rawset(self, "step", core.stepper {
      graph = graph, schedule = self.optimizer.schedule, lr_function = self.optimizer.lr_function,
      broadcast = parallel_context.broadcasts(),
    })
  end
  return rawget(self, "step")(...)
end

M.PipelineCell = Cell:extend "PipelineCell"
local bind_pipeline = args.signature("PipelineCell", {
  { "network", "cell", required = true }, { "micro_size", "integer", required = true, min = 1 },
})

--- `nn.PipelineCell(net_with_loss, micro_size)`: a batch goes through the stages in micro_size parts. Stages are not
--- built yet: with one part the cell is its network, with more a call is an error.
function M.PipelineCell:init(...)
  local a = bind_pipeline(...)
  self.network, self.micro_size = a.network, a.micro_size
end

function M.PipelineCell:construct(...)
  if self.micro_size > 1 then
    errors.fail("PipelineCell: micro_size = %d: stages are not built yet; train = { accumulate_steps = %d } cuts a "
      .. "batch", self.micro_size, self.micro_size)
  end
  return self.network(...)
end

return M
