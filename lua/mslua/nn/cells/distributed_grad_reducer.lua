--- nn.DistributedGradReducer: gradients of all ranks, for loops of one's own.
local args = require "mslua.args"
local errors = require "mslua.errors"
local ops = require "mslua.ops"
local parallel_context = require "mslua.parallel_context"
local ranks = require "mslua.ranks"
local Cell = require "mslua.cell"

local DistributedGradReducer = Cell:extend "DistributedGradReducer"
DistributedGradReducer._takes_any = true
local bind = args.signature("DistributedGradReducer", {
  { "parameters", "list", required = true, doc = "the parameters whose gradients it gets, in their order" },
  { "mean", "boolean", doc = "divide the sums by degree; default: gradients_mean of set_auto_parallel_context" },
  { "degree", "integer", min = 1, doc = "what the sums are divided by; default: the number of the group's ranks" },
  { "group", "string", "world", doc = "a group of ms.communication.create_group; \"world\": all ranks" },
})

--- The sums of gradients over the ranks, or their means, for an optimizer that is called with what ms.value_and_grad
--- gives: `optimizer(reducer(gradients))`. In ms.Model and nn.TrainOneStepCell they are added anyway. Alone, a rank
--- gets its own gradients. (parameters, mean, degree, group = "world")
function DistributedGradReducer:init(...)
  local a = bind(...)
  self.count, self.mean, self.degree, self.group = #a.parameters, a.mean, a.degree, a.group
  if self.mean == nil then self.mean = parallel_context.get_auto_parallel_context "gradients_mean" end
end

--- gradients: a list with a tensor for each of the parameters; gives such a list.
function DistributedGradReducer:construct(gradients)
  if type(gradients) ~= "table" or #gradients ~= self.count then
    errors.fail("DistributedGradReducer: expected a list of %d gradients, one for each of parameters, got %s",
      self.count, type(gradients) == "table" and ("%d"):format(#gradients) or errors.show(gradients))
  end
  if not ranks.joined() then return gradients end
  local degree, sums = self.degree or #ranks.members(self.group), {}
  for i, gradient in ipairs(gradients) do
    local sum = ops.all_reduce(gradient, "sum", self.group)
    sums[i] = self.mean and sum / degree or sum
  end
  return sums
end

return DistributedGradReducer
