--- Training by hand in the REPL: `m = by_hand(model, dataset)`, then `m:step()` as often as one likes.
local args = require "mslua.args"
local class = require "mslua.class"
local core = require "mslua.core"
local errors = require "mslua.errors"
local parallel_context = require "mslua.parallel_context"
local wrap = require "mslua.nn.wrap"

local COUNT = { "n", "integer", min = 1 }

---@class mslua.ByHand
---@field model mslua.Model
---@field network Cell
---@field steps integer steps made so far
---@field loss Tensor of the last step
local ByHand = class.Object:extend "ByHand"
ByHand.__index = ByHand

function ByHand:init(model, dataset)
  self.model, self.network, self.dataset, self.steps = model, model.network, dataset:whole_batches "step", 0
end

local function next_batch(self)
  local batch = self.batches and { self.batches() } or {}
  if batch[1] == nil then
    self.batches = self.dataset:create_tuple_iterator()
    batch = { self.batches() }
    if batch[1] == nil then errors.fail "step: the dataset has no whole batch" end
  end
  return batch
end

--- Makes `n` training steps (default 1) on the next batches and gives the last loss. The step is compiled at the first
--- call, with the schedule of the recipe's optimizer, and again where requires_grad of a parameter has changed.
---@param n? integer
---@return Tensor loss
function ByHand:step(n)
  local problem = n ~= nil and args.problem(COUNT, n)
  if problem then errors.fail("step: %s", problem) end
  if not self.train_step or self.has_changed() then
    if self.model.steps then errors.fail "step: several steps are made by train only" end
    if not self.model.optimizer then errors.fail "step: the Model has no optimizer" end
    parallel_context.check_one_stage "step"
    local spec = self.model:train_spec { train_dataset = self.dataset, epoch = 1, dataset_sink_mode = false }
    if spec.loss_scale then errors.fail "step: a loss scale is managed by train only" end
    local schedule, lr_function = self.model.optimizer:rates_by_hand()
    self.train_step = core.stepper {
      graph = spec.graph, schedule = schedule, lr_function = lr_function, history = spec.history,
      broadcast = spec.broadcast, together = spec.together,
    }
    self.has_changed = wrap.watch_trained(self.network, self.model.optimizer)
  end
  for _ = 1, n or 1 do
    -- Ranks that step together stop after the same step.
    if core.options.ranks > 1 and core.stop_together() then error("interrupted", 0) end
    self.loss = self.train_step(unpack(next_batch(self)))
    self.steps = self.steps + 1
  end
  return self.loss
end

function ByHand:__tostring()
  return ("%s by hand, step %d%s"):format(self.network.class_name, self.steps,
    self.loss and (", loss %.6g"):format(self.loss:item()) or "")
end

return ByHand
