-- Runs every Lua form of docs/howto/from_mindspore.md, in order, in one environment; a note that begins with `error:`
-- names what a row must fail with.
local check = require "check"

local document = ...
local folder = (os.getenv "TEST_TMPDIR" or "/tmp") .. "/from_mindspore"
os.execute(("mkdir -p '%s'"):format(folder))

-- A CIFAR-10 folder of 16 records in the true format.
local function make_cifar()
  local file = assert(io.open(folder .. "/data_batch_1.bin", "wb"))
  for i = 0, 15 do file:write(string.char(i % 10), string.rep(string.char(i * 16), 3072)) end
  file:close()
end
make_cifar()

local environment = setmetatable({ folder = folder }, { __index = _G })
environment.os = setmetatable({ getenv = function(name) return name == "DATA_PATH" and folder or os.getenv(name) end },
  { __index = os })

local function run(name, code, wanted)
  check.case(name, function()
    -- Later rows use what earlier ones define.
    local text = code:gsub("^local function ", "function "):gsub("^local ", ""):gsub("\nlocal function ", "\nfunction ")
    local chunk = loadstring(text, "@" .. name)
    if not chunk then chunk = assert(loadstring("return " .. text, "@" .. name)) end
    setfenv(chunk, environment)
    if wanted then check.fails(wanted, chunk) else chunk() end
  end)
end

local rows, line_number, block = 0, 0, nil
for line in io.lines(document) do
  line_number = line_number + 1
  if block then
    if line == "```" then
      run("line " .. line_number, table.concat(block, "\n"))
      block = nil
    else
      block[#block + 1] = line
    end
  elseif line == "```lua" then
    block = {}
  elseif line:match "^| `" or line:match "^| .* | `" then
    local code, note = line:match "^| .- | `(.-)` | (.*)|$"
    if not code then error(("%s:%d: a row without a Lua form"):format(document, line_number), 0) end
    rows = rows + 1
    run("line " .. line_number, code, note:match "^error: `(.-)`")
  end
end

check.case("the page has its rows", function()
  if rows < 100 then error("only " .. rows) end
end)
check.done()
