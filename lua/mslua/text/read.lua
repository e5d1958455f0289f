--- Texts of files: lines, and records of CSV files with texts in them. Files may be packed by gzip.
local args = require "mslua.args"
local core = require "mslua.core"
local errors = require "mslua.errors"

local M = {}

local bind_lines = args.signature("lines", {
  { "path", "string", required = true, doc = "a file of UTF-8, also packed by gzip" },
})

--- The lines of a text file, without their ends. A file that is not UTF-8 is an error with the byte's place. (path)
---@return string[]
function M.lines(...)
  local text, list = core.read_text(bind_lines(...).path), {}
  for line in text:gmatch "([^\n]*)\n?" do list[#list + 1] = line:gsub("\r$", "") end
  list[#list] = nil  -- what gmatch finds behind the last line
  return list
end

local bind_records = args.signature("csv_records", {
  { "path", "string", required = true, doc = "a file of UTF-8, also packed by gzip" },
  { "separator", "string", ",", check = function(s)
    if #s ~= 1 or s == '"' or s == "\n" then return ("expected one character, got %q"):format(s) end
  end, doc = "the character between two fields" },
})

-- The field of a record that begins at byte `at`, and the place behind it; nil where its quote does not end.
local function field(text, at, separator)
  if text:sub(at, at) ~= '"' then
    local stop = text:find("[" .. separator:gsub("%W", "%%%0") .. "\r\n]", at) or #text + 1
    return text:sub(at, stop - 1), stop
  end
  local from, parts = at + 1, {}
  while true do
    local quote = text:find('"', from, true)
    if not quote then return nil end
    parts[#parts + 1] = text:sub(from, quote - 1)
    if text:sub(quote + 1, quote + 1) ~= '"' then return table.concat(parts, '"'), quote + 1 end
    from = quote + 2
  end
end

--- The records of a CSV file, a list of lists of texts: fields may be quoted, with "" for a quote and line breaks
--- inside. All records have as many fields as the first. (path, separator = ",")
---@return string[][]
function M.csv_records(...)
  local a = bind_records(...)
  local text, records, at, line = core.read_text(a.path), {}, 1, 1
  local function fail(...) errors.fail("%s:%d: %s", a.path, line, string.format(...)) end
  while at <= #text do
    local record, begin = {}, at
    while true do
      local value, behind = field(text, at, a.separator)
      if not value then fail "the quote is not closed" end
      record[#record + 1] = value
      local next_char = text:sub(behind, behind)
      at = behind + 1
      if next_char == "\r" and text:sub(at, at) == "\n" then next_char, at = "\n", at + 1 end
      if next_char == "\n" or next_char == "" then break end
      if next_char ~= a.separator then
        fail("column %d: expected '%s' or the end of the line behind a quote, got %q", #record, a.separator, next_char)
      end
    end
    if not (#record == 1 and record[1] == "" and text:sub(begin, begin) ~= '"') then
      if records[1] and #record ~= #records[1] then
        fail("expected %d columns as in the first record, got %d", #records[1], #record)
      end
      records[#records + 1] = record
    end
    local _, breaks = text:sub(begin, at - 1):gsub("\n", "")
    line = line + breaks
  end
  return records
end

return M
