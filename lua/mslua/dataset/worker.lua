--- The Lua state of a thread that makes samples: what a file of `map` or GeneratorDataset finds there. It has tensors,
--- operators and tokenizers. What the samples would make depend on more than their arguments, or what only the training
--- has, is an error that names it.
local core = require "mslua.core"
local errors = require "mslua.errors"
local random_calls = require "mslua.random_calls"

local M = {}

-- Names of ms that workers have, besides those of element types.
local kept = {
  "Tensor", "zeros", "ones", "full", "eye", "arange", "rand", "randn", "ops", "text", "print", "version",
}

local reason = "a file of workers makes samples in a Lua state of its own, which has tensors, ms.ops and ms.text"

-- ms as workers see it.
local function library()
  local ms, part = require "mslua", {}
  for name in pairs(require "mslua.dtypes") do part[name] = ms[name] end
  for _, name in ipairs(kept) do part[name] = ms[name] end
  return setmetatable(part, {
    __index = function(_, key)
      if rawget(ms, key) ~= nil then errors.fail("workers have no ms.%s: %s", key, reason) end
      return ms[key]  -- the error of a name that there is not
    end,
    __newindex = function(_, key) errors.fail("ms.%s cannot be set in a worker", tostring(key)) end,
  })
end

-- Functions of Lua that would end the training, or whose results differ from thread to thread.
local function close_standard_library()
  for owner, names in pairs {
    os = { exit = "it would end the training", execute = "workers start no programs" },
    io = { popen = "workers start no programs", read = "standard input is the training's" },
    math = { randomseed = "each sample has random numbers of its own, by the seed, the epoch and its place" },
  } do
    for name, why in pairs(names) do
      _G[owner][name] = function() errors.fail("workers have no %s.%s: %s", owner, name, why) end
    end
  end
end

-- Globals are errors: those of the recipe are not there, and new ones would be a thread's own.
local function close_globals()
  setmetatable(_G, {
    __index = function(_, key)
      errors.fail("workers have no global '%s': %s; `arguments` of map and GeneratorDataset gives it values", key,
        reason)
    end,
    __newindex = function(_, key)
      errors.fail("workers have no global '%s': write `local %s`", key, key)
    end,
  })
end

--- Runs a file and prepares what it gives to be called.
---@param chunk function the file, loaded
---@param path string for messages
---@param arguments string Lua text of the value that the file gets as `...`
---@return fun(key: number, ...: any): any call with the key of the random numbers
---@return fun(): boolean drawn whether the last call drew numbers of math.random
---@return integer? length of a file that gives { length =, get = }
function M.start(chunk, path, arguments)
  local seed, before = math.randomseed, 0
  package.loaded.mslua = library()
  close_standard_library()
  local value = assert(loadstring("return " .. arguments))()
  close_globals()
  seed(0)
  local f, length = chunk(value), nil
  if type(f) == "table" and not getmetatable(f) then f, length = f.get, f.length end
  if type(f) ~= "function" then
    error(("%s: the file should return a function, or { length = N, get = function(i) ... end }, got %s")
      :format(path, errors.show(f)), 0)
  end
  return function(key, ...)
    seed(key)
    before = random_calls()
    return f(...)
  end, function() return random_calls() > before end, length
end

return M
