--- The operators between ranks, with MindSpore's arguments: a group's name instead of its ranks, `root_rank`, `sr_tag`.
--- Ranks are numbers of the world, from 0.
local args = require "mslua.args"
local core = require "mslua.core"
local dtypes = require "mslua.dtypes"
local errors = require "mslua.errors"
local ranks = require "mslua.ranks"

local reductions = { "sum", "prod", "max", "min" }
local group = { "group", "string", "world", doc = "a group of ms.communication.create_group; \"world\": all ranks" }
local op = { "op", "string", "sum", choices = reductions, doc = "how the ranks' elements become one" }
local axis = { "axis", "integer", 1, doc = "the axis that ranks have parts of, from 1" }
local sr_tag = { "sr_tag", "integer", required = true, min = 0,
  doc = "a number to check the message by: messages come in the order in which they are sent, and a Receive whose "
    .. "sr_tag is not the next message's is an error" }

-- class -> its arguments in order, and the operator's attributes made of them and of the group's ranks.
local classes = {
  AllReduce = { { op, group }, function(a) return { op = a.op } end },
  AllGather = { { group, axis }, function(a) return { axis = a.axis } end },
  ReduceScatter = { { op, group, axis }, function(a) return { op = a.op, axis = a.axis } end },
  Broadcast = {
    { { "root_rank", "integer", required = true, min = 0,
      doc = "the rank whose tensor all get, by its number in the world" }, group },
    function(a) return { root = a.root_rank } end },
  AlltoAll = {
    { { "split_count", "integer", required = true, min = 1, doc = "parts of the tensor, as many as the group's ranks" },
      { "split_dim", "integer", required = true, doc = "the axis that is split, from 1" },
      { "concat_dim", "integer", required = true, doc = "the axis along which the ranks' parts are joined, from 1" },
      group },
    function(a, members)
      if a.split_count ~= #members then
        errors.fail("AlltoAll: split_count is %d, but the group '%s' has %d rank(s)", a.split_count, a.group, #members)
      end
      return { split_axis = a.split_dim, concat_axis = a.concat_dim }
    end },
  Send = {
    { sr_tag, { "dest_rank", "integer", required = true, min = 0,
      doc = "the rank that receives, by its number in the world" }, group },
    function(a) return { tag = a.sr_tag, peer = a.dest_rank } end },
  Receive = {
    { sr_tag, { "src_rank", "integer", required = true, min = 0,
      doc = "the rank that sends, by its number in the world" },
      { "shape", "integers", required = true, min = 0, doc = "the shape of what it sends" },
      { "dtype", "string", required = true, choices = errors.names(dtypes), doc = "its type" }, group },
    function(a) return { tag = a.sr_tag, peer = a.src_rank } end },
}

--- Gives the classes of ms.ops their constructors and calls, and the functions theirs.
---@param ops table ms.ops under construction
---@param Operator table their base class
return function(ops, Operator)
  for name, description in pairs(classes) do
    local class, bind, attributes = ops[name], args.signature(name, description[1]), description[2]

    function class:init(...)
      self.attrs = {}
      self.arguments = bind(...)
    end

    -- The group is looked up when it is used: the ranks may be joined after the operator was made.
    function class:__call(...)
      if not ranks.joined() then errors.fail("%s: call ms.communication.init() first", name) end
      if core.is_global() then
        errors.fail("%s: in a network of semi_auto_parallel or auto_parallel tensors are those of all ranks together, "
          .. "which its operators exchange by themselves: leave it out, or use data_parallel or stand_alone", name)
      end
      local members = ranks.members(self.arguments.group)
      if not ranks.place(members, core.options.rank) then
        errors.fail("%s: rank %d is not in the group '%s' of ranks {%s}", name, core.options.rank, self.arguments.group,
          table.concat(members, ", "))
      end
      local attrs = attributes(self.arguments, members)
      attrs.group = members
      for key, v in pairs(self.attrs) do attrs[key] = v end
      return Operator.__call({ name = self.name, class_name = name, attrs = attrs }, ...)
    end

    function class:add_prim_attr(key, value)
      Operator.add_prim_attr(self, key, value)
      if key == "fusion" and (name == "AllReduce" or name == "AllGather" or name == "ReduceScatter") then
        self.attrs.fusion, self.attrs._fusion = value, nil
      end
      return self
    end

    ops[class.name] = function(x, ...) return class(...)(x) end
  end

  -- In a graph the operator needs an operand, for its type; here the arguments say the type.
  local Receive = ops.Receive
  Receive.function_name, Receive.operands_optional = "receive", true
  Receive.doc = "What another rank sends. The class may be called with a tensor x of that shape and type, whose values "
    .. "are not used: the message is received after x is computed."
  local receive = Receive.__call
  function Receive:__call(x)
    local shape, dtype = self.arguments.shape, self.arguments.dtype
    if x and (x.dtype ~= dtype or table.concat(x.shape, ",") ~= table.concat(shape, ",")) then
      errors.fail("Receive: x is %s%s, and what is received %s%s", x.dtype, errors.show(x.shape), dtype,
        errors.show(shape))
    end
    return receive(self, x or core.zeros(shape, dtype))
  end
  ops.recv = nil
  function ops.receive(...) return Receive(...)() end
end
