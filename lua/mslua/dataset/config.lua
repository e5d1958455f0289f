--- ms.dataset.config: what holds for all datasets (mindspore.dataset.config).
local arity = require "mslua.arity"
local args = require "mslua.args"

local M = {}

local workers

local bind = args.signature("set_num_parallel_workers", {
  { "num", "integer", required = true, min = 1, max = 256, doc = "threads of each dataset" },
})

--- The number of threads that read and transform samples, for datasets that do not say num_parallel_workers and are
--- opened from now on. (num)
function M.set_num_parallel_workers(...) workers = bind(...).num end

--- What set_num_parallel_workers has set; nil: the rank's cores less one, from 1 to 8.
---@return integer?
function M.get_num_parallel_workers(...)
  arity.take("get_num_parallel_workers", 0, ...)
  return workers
end

return require("mslua.namespace").strict("ms.dataset.config", M)
