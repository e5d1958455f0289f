--- nn.LoRA: low-rank adapters of Dense cells (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models").
local args = require "mslua.args"
local errors = require "mslua.errors"
local notice = require "mslua.notice"
local ops = require "mslua.ops"
local pattern_of_lua = require "mslua.pattern"
local Cell = require "mslua.cell"
local Dense = require "mslua.nn.cells.dense"
local Dropout = require "mslua.nn.cells.dropout"

local LoRA = Cell:extend "LoRA"

local adapted = setmetatable({}, { __mode = "k" })  -- parameter of an adapter -> true
local fixed = setmetatable({}, { __mode = "k" })    -- parameter that apply has fixed -> true

--- The adapter of a Dense cell, which LoRA.apply makes: x gives scale B A dropout(x) for the rows of x [n, in].
--- lora_A [rank, in] begins he_uniform, lora_B [out, rank] zero: a new adapter changes nothing.
---@param dense Cell
---@param rank integer
---@param scale number
---@param dropout number
function LoRA:init(dense, rank, scale, dropout)
  self.scale = scale
  self:parameter("lora_A", { rank, dense.in_channels }, { "he_uniform", negative_slope = math.sqrt(5) },
    { dtype = dense.weight.dtype })
  self:parameter("lora_B", { dense.out_channels, rank }, "zeros", { dtype = dense.weight.dtype })
  self.dropout = Dropout { p = dropout }
  adapted[self.lora_A], adapted[self.lora_B] = true, true
end

--- x [n, in] gives [n, out]; with `first` and `count`, those of the outputs, from 1.
function LoRA:construct(x, first, count)
  local b = self.lora_B
  if first then b = ops.strided_slice(b, { first, 1 }, { first + count, b.shape[2] + 1 }) end
  local low = ops.matmul(self.dropout(x), self.lora_A, { transpose_b = true })
  return ops.matmul(low, b, { transpose_b = true }) * self.scale
end

function LoRA:extra() return ("rank %d, scale %g"):format(self.lora_A.shape[1], self.scale) end

--- The Dense cells of a network, in order: a list of {path, cell}. A path is the weight's name without ".weight".
---@param net Cell
function LoRA.dense_cells(net)
  local list = {}
  net:get_parameters()  -- gives them their names
  net:_each_cell(function(cell)
    if getmetatable(cell) == Dense then
      list[#list + 1] = { path = cell.weight.name:gsub("%.?weight$", ""), cell = cell }
    end
  end)
  return list
end

local MOST_SHOWN = 20

local function paths_of(list)
  local paths = {}
  for i, entry in ipairs(list) do paths[i] = entry.path end
  if #paths <= MOST_SHOWN then return table.concat(paths, ", ") end
  return ("%s and %d more"):format(table.concat(paths, ", ", 1, MOST_SHOWN), #paths - MOST_SHOWN)
end

-- Whether one of the patterns in "q_proj|v_proj" is found in a name; `found` remembers which ones were.
local function fits(what, name, patterns, found)
  local any = false
  for pattern in patterns:gmatch "[^|]+" do
    if pattern_of_lua.find(what, name, pattern) then any, found[pattern] = true, true end
  end
  return any
end

-- Says which of the patterns have fitted nothing.
local function note_unused(what, patterns, found)
  for pattern in patterns:gmatch "[^|]+" do
    if not found[pattern] then notice(("%s: %q fits nothing"):format(what, pattern)) end
  end
end

local function check_patterns(patterns)
  if patterns:gsub("|", "") == "" then return 'expected a pattern such as "q_proj|v_proj", got ""' end
end

local function check_network(net, what)
  for _, entry in ipairs(LoRA.dense_cells(net)) do
    if entry.cell.lora then
      errors.fail("%s: %s of %s has an adapter already: LoRA.merge adds it to the weight", what, entry.path,
        net.class_name)
    end
  end
end

--- Gives a Dense cell its adapter.
---@param dense Cell
---@param rank integer
---@param scale number
---@param dropout number
function LoRA._attach(dense, rank, scale, dropout) dense.lora = LoRA(dense, rank, scale, dropout) end

--- Fixes all parameters of a network but those of adapters and those that `trained` is true of; checkpoints hold what
--- is not fixed.
---@param net Cell
---@param trained fun(p: Parameter): boolean
function LoRA._fix(net, trained)
  for _, p in ipairs(net:get_parameters()) do
    if p.requires_grad and not adapted[p] and not trained(p) then
      p.requires_grad, p.saved, fixed[p] = false, false, true
    end
  end
end

--- Whether a parameter is one of an adapter's.
function LoRA.is_adapter(p) return adapted[p] == true end

--- The cells of a network that have adapters: a list of {path, cell}.
function LoRA.cells(net)
  local list = {}
  for _, entry in ipairs(LoRA.dense_cells(net)) do
    if entry.cell.lora then list[#list + 1] = entry end
  end
  return list
end

local bind_apply = args.signature("LoRA.apply", {
  { "net", "cell", required = true, doc = "the network, without adapters" },
  { "rank", "integer", 8, min = 1, doc = "rows of A [rank, in] and columns of B [out, rank]" },
  { "alpha", "number", 16, above = 0, doc = "the adapter's result is multiplied by alpha / rank" },
  { "dropout", "number", 0, min = 0, below = 1, doc = "the probability of a zero in the adapter's input, in training" },
  { "targets", "string", required = true, check = check_patterns,
    doc = 'patterns of Lua for the paths of Dense cells, separated by "|"' },
  { "also_train", "string", check = check_patterns,
    doc = "the same for names of parameters that are trained and saved too; default: none" },
})

--- Adapters for the Dense cells of a network, which it gives back: `nn.LoRA.apply(net, { targets = "q_proj|v_proj" })`.
--- y becomes y + alpha / rank B A dropout(x); A [rank, in] and B [out, rank] are trained, all other parameters are
--- fixed and not in checkpoints, which hold the adapters, statistics of BatchNorm and a digest of the fixed values.
--- `targets`: patterns of Lua,
--- separated by "|", which are looked for in the paths of Dense cells; `also_train`: in the names of parameters that
--- are trained and saved too, such as those of a new head. (net, rank = 8, alpha = 16, dropout = 0, targets,
--- also_train)
---@return Cell
function LoRA.apply(...)
  local a = bind_apply(...)
  check_network(a.net, "LoRA.apply")
  local all, chosen, also, found = LoRA.dense_cells(a.net), {}, {}, {}
  for _, entry in ipairs(all) do
    if fits("LoRA.apply: targets", entry.path, a.targets, found) then chosen[#chosen + 1] = entry.cell end
  end
  if #chosen == 0 then
    errors.fail("LoRA.apply: targets: %q fits no Dense cell of %s%s", a.targets, a.net.class_name,
      #all > 0 and ", which has " .. paths_of(all) or ", which has none")
  end
  note_unused("LoRA.apply: targets", a.targets, found)
  if a.also_train then
    found = {}
    for _, p in ipairs(a.net:get_parameters()) do
      also[p] = fits("LoRA.apply: also_train", p.name, a.also_train, found) or nil
    end
    if not next(also) then
      errors.fail("LoRA.apply: also_train: %q fits no parameter of %s, such as %s", a.also_train, a.net.class_name,
        a.net:get_parameters()[1].name)
    end
    note_unused("LoRA.apply: also_train", a.also_train, found)
  end
  for _, dense in ipairs(chosen) do LoRA._attach(dense, a.rank, a.alpha / a.rank, a.dropout) end
  LoRA._fix(a.net, function(p) return also[p] ~= nil end)
  return a.net
end

local bind_merge = args.signature("LoRA.merge", {
  { "net", "cell", required = true, doc = "a network with adapters" },
})

--- Adds each adapter to its weight, W + scale B A, and removes it: the network computes the same as before and is an
--- ordinary one, all of whose parameters are trained and saved. Gives the network. (net)
---@return Cell
function LoRA.merge(...)
  local net = bind_merge(...).net
  local cells = LoRA.cells(net)
  if #cells == 0 then errors.fail("LoRA.merge: %s has no adapters", net.class_name) end
  for _, entry in ipairs(cells) do
    local dense, lora = entry.cell, entry.cell.lora
    dense.weight.value = dense.weight.value + ops.matmul(lora.lora_B.value, lora.lora_A.value) * lora.scale
    dense.lora = nil
  end
  for _, p in ipairs(net:get_parameters()) do
    if fixed[p] then p.requires_grad, p.saved, fixed[p] = true, true, nil end
  end
  return net
end

return LoRA
