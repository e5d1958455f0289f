-- params and recipe: merging, precedence, written configurations, and every refusal with its file and line.
local check = require "check"
local core = require "mslua.core"
local verbs = require "mslua.verbs"
local params = require "mslua.params"
local parallel_context = require "mslua.parallel_context"

local folder = os.getenv "TEST_TMPDIR" or "/tmp"
local path = folder .. "/made_recipe.lua"

local head = [[
local ms = require "mslua"
local p = ms.params { epochs = 5, lr = 0.2, flag = true, name = "a", betas = {0.9, 0.99}, data_path = "",
  presets = { smoke = { epochs = 1, ["train.accumulate_steps"] = 2 } } }
local Net = ms.nn.Cell:extend "Net"
]]

local function body(extra, train)
  return head .. ([[
return ms.recipe {
  name = "made",
  dataset = function() return ms.dataset.NumpySlicesDataset({ms.ones {4, 2}, ms.ones {4, 2}}):batch(2) end,
  network = function() return Net() end,
  optimizer = ms.nn.Momentum { learning_rate = p.lr, momentum = 0.9 },
  train = { %s },
  %s
}
]]):format(train or "epochs = p.epochs", extra or "")
end

-- Loads a recipe's text as a verb does, with overrides "key=value" and a preset.
local function load(text, overrides, preset)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  core.options.verb, core.options.file, core.options.preset = "train", path, preset
  core.options.overrides = {}
  for i, override in ipairs(overrides or {}) do core.options.overrides[i] = { override:match "^(.-)=(.*)$" } end
  params.resolved {}
  parallel_context.reset_auto_parallel_context()
  return verbs.load()
end

check.case("the recipe's own values and defaults", function()
  local r = load(body())
  check.equal(r.train.epochs, 5)
  check.equal(r.train.dataset_sink_mode, true)
  check.equal(r.seed, 1)
  check.equal(r.optimizer.schedule.value, 0.2)
end)

check.case("the seed: the command line's, the recipe's, that of set_seed", function()
  local said = body():gsub("\nlocal p = ", "\nms.set_seed(7)%0", 1)
  check.equal(load(said).seed, 7)
  check.equal(load((said:gsub("name = \"made\",", "%0 seed = 3,"))).seed, 3)
  check.equal(load(said, { "seed=9" }).seed, 9)
  core.set_seed(1)
end)

check.case("preset, then command line", function()
  check.equal(load(body(), {}, "smoke").train.epochs, 1)
  check.equal(load(body(), {}, "smoke").train.accumulate_steps, 2)
  check.equal(load(body(), { "epochs=7" }, "smoke").train.epochs, 7)
  local r = load(body(), { "lr=1e-3", "train.epochs=9", "train.dataset_sink_mode=false", "seed=4" })
  check.equal({ r.optimizer.schedule.value, r.train.epochs, r.train.dataset_sink_mode, r.seed }, { 1e-3, 9, false, 4 })
  load(body(), { "parallel.parallel_mode=data_parallel", "parallel.all_reduce_fusion_config={20,35}" })
  check.equal(parallel_context.get_auto_parallel_context "all_reduce_fusion_config", { 20, 35 })
end)

check.case("a written configuration is the same training", function()
  local r = load(body(), { "lr=0.5", "train.epochs=3", "betas={0.5,0.6}", "seed=8" }, "smoke")
  local again = load(r:config_text())
  check.equal({ again.optimizer.schedule.value, again.train.epochs, again.train.accumulate_steps, again.seed },
    { 0.5, 3, 2, 8 })
  check.equal(load(r:config_text(), { "lr=0.25" }).optimizer.schedule.value, 0.25)
end)

check.case("a written configuration of a written configuration has the values of both", function()
  local first = load(load(body(), { "lr=0.5", "train.epochs=3" }):config_text(), { "train.epochs=4" })
  local text = first:config_text()
  local second = load(text)
  check.equal({ second.optimizer.schedule.value, second.train.epochs }, { 0.5, 4 })
  check.equal(second:config_text():match "\n.*", text:match "\n.*")
end)

check.case("a written configuration names the places of its recipe", function()
  local function recipes_of(config, folders)
    return params.recipes_of(config, { from = "r/c.lua", folders = folders })
  end
  local folders = { "../..", "/data/u" }
  check.equal(recipes_of("runs/a/config.lua", folders), { "r/c.lua", "/data/u/r/c.lua", "r/c.lua" })
  check.equal(recipes_of("../p/runs/a/config.lua", folders), { "../p/r/c.lua", "/data/u/r/c.lua", "r/c.lua" })
  check.equal(recipes_of("config.lua", folders), { "../../r/c.lua", "/data/u/r/c.lua", "r/c.lua" })
  check.equal(recipes_of("runs/a/config.lua"), { "r/c.lua" })
end)

check.case("a key at the wrong place, one callback", function()
  check.fails("unknown key 'accumulate_steps': it belongs to train = { accumulate_steps = ... }",
    function() load(body "accumulate_steps = 2,") end)
  check.fails("unknown key 'gradients_mean': it belongs to parallel",
    function() load(body "gradients_mean = true,") end)
  check.equal(#load(body "callbacks = ms.LossMonitor(),").callbacks, 1)
end)

check.case("mistakes on the command line", function()
  local function bad(message, ...)
    local overrides, preset = { ... }, nil
    check.fails("made_recipe: " .. message, function() load(body(), overrides, preset) end)
  end
  bad("unknown parameter 'epohcs' (did you mean 'epochs'?)", "epohcs=3")
  bad("unknown parameter 'train.epocs' (did you mean 'train.epochs'?)", "train.epocs=3")
  bad("unknown parameter 'train': it is a table, set a key of it such as train.epochs", "train=3")
  bad("unknown parameter 'name.x'", "name.x=3")
  bad("parameter 'epochs': expected a number such as 5, got 'abc'", "epochs=abc")
  bad("parameter 'flag': expected a boolean such as true, got '1'", "flag=1")
  bad("parameter 'betas': expected a list such as {0.9, 0.99}, got '{true}'", "betas={true}")
  bad("train.epochs: expected an integer, at least 1, got 0", "train.epochs=0")
  bad('train.epochs: expected an integer, at least 1, got "x"', "train.epochs=x")
  bad("dataset cannot be set from text", "dataset=x")
  bad('parallel.parallel_mode: expected one of "stand_alone"', "parallel.parallel_mode=x")
  check.fails("made_recipe: unknown preset 'smok' (did you mean 'smoke'?); it has: smoke",
    function() load(body(), {}, "smok") end)
  check.fails("made_recipe: unknown preset 'smoke': the recipe has none; `presets = { smoke = {...} }` of ms.params",
    function() load("local p = require 'mslua'.params { a = 1 }", {}, "smoke") end)
end)

local function bad_file(line, message, text)
  check.fails(("%s:%d: %s"):format(path, line, message), function() load(text) end)
end

check.case("mistakes in the file name its line", function()
  bad_file(10, "recipe: train: unknown key 'epohcs' (did you mean 'epochs'?)", body("", "epohcs = 3"))
  bad_file(10, "recipe: train: epochs: expected an integer, at least 1, got 0.5", body("", "epochs = 0.5"))
  bad_file(11, "recipe: unknown key 'losss' (did you mean 'loss'?)", body "losss = 3")
  bad_file(11, "recipe: parallel: parallel_mode: expected one of", body "parallel = { parallel_mode = 'x' }")
  bad_file(11, "recipe: checkpoint: keep_checkpoint_max: expected an integer, at least 0, got -1",
    body "checkpoint = { keep_checkpoint_max = -1 }")
  bad_file(12, "recipe: expect: unknown key 'los'", body "expect = {\n    los = 3 }")
  bad_file(5, "recipe: dataset is missing", head .. "return ms.recipe { name = 'x' }")
  bad_file(5, "params: no parameter 'lrr' (did you mean 'lr'?)", head .. "local x = p.lrr")
  bad_file(5, "params: lr cannot be assigned", head .. "p.lr = 3")
  bad_file(1, "params: presets.a: unknown parameter 'x'",
    "local p = require 'mslua'.params { presets = { a = { x = 1 } } }")
  check.fails("'=' expected", function() load "local x y" end)
  check.fails("a recipe ends with `return ms.recipe {...}`", function() load "return 3" end)
  check.fails("the function gave nothing", function()
    load((body():gsub("return Net%(%)", ""))):make_network()
  end)
end)

check.case("the parallel context is said in one place", function()
  check.fails("say it in one place", function()
    load((body "parallel = { gradients_mean = true }":gsub("\n", '\nms.set_auto_parallel_context { device_num = 1 }\n',
      1)))
  end)
end)

check.case("recipes check names what is decided while tracing", function()
  local found = require("mslua.check").check([[
function Net:construct(x, mask)
  local t = { x = 1 }
  if self.training and x.shape[1] == 3 then t.x = 2 end
  if mask then x = x * mask end
  if mask == nil then return x end
  while not x do end
  for i = 1, 3 do if x == i then return i end end
  return function() return 3 == x end
end
function Net:other(x) if x then return x end end
]])
  local lines = {}
  for i, entry in ipairs(found) do lines[i] = entry.line end
  check.equal(lines, { 4, 6, 7, 8 })
  check.equal(found[1].text:match "^if mask is decided while tracing", "if mask is decided while tracing")
end)

os.remove(path)
check.case("parameters are shown with their values", function()
  load(head .. 'assert(tostring(p):find("epochs = 5", 1, true), tostring(p))\n' .. body():sub(#head + 1))
end)

check.done()
