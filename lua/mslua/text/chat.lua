--- Chat templates: how a conversation is written as one text. A file of mslua/text/chat is a template: `render`, and
--- the Jinja texts of tokenizer_config.json that mean the same.
local core = require "mslua.core"
local errors = require "mslua.errors"

local M = {}

---@class mslua.ChatTemplate
---@field jinja string[] texts of chat_template that mean this template
---@field render fun(messages: {role: string, content: string}[], chat: mslua.Chat) calls chat.template and chat.text
---@field ends string[] tokens after which an answer is over, as the vocabulary writes them

---@class mslua.Chat what a template's `render` gets beside the messages
---@field template fun(text: string) appends text of the template, in which special tokens are tokens
---@field text fun(text: string) appends what a message says
---@field roles table<string, string> "bos" -> "<s>", as the tokenizer's configuration has them; others are nil
---@field add_generation_prompt boolean whether the text ends where the answer begins

local templates = {}  -- "chatml" -> its module
for _, module in ipairs(core.library_modules "mslua.text.chat.") do
  templates[module:match "[^.]+$"] = require(module)
end

local function known_names() return table.concat(errors.names(templates), ", ") end

-- The text without spaces around lines: files differ in them.
local function squeezed(jinja) return (jinja:gsub("%s*\n%s*", "\n"):gsub("^%s+", ""):gsub("%s+$", "")) end

local function recognized(jinja)
  for _, name in ipairs(errors.names(templates)) do
    for _, text in ipairs(templates[name].jinja) do
      if squeezed(text) == squeezed(jinja) then return templates[name] end
    end
  end
end

local function from_file(path)
  local chunk, problem = loadfile(path)
  if not chunk then errors.fail("chat: template: %s", problem) end
  local found = chunk()
  if type(found) == "function" then return { render = found, ends = {} } end
  if type(found) == "table" and type(found.render) == "function" and type(found.ends) == "table" then return found end
  errors.fail("chat: template: %s: expected the file to return function(messages, chat), or a table of such a "
    .. "function `render` and a list `ends` of tokens that end an answer; got %s", path, errors.show(found))
end

local function find(tokenizer, template)
  if template and template:find "%.lua$" then return from_file(template) end
  if template then
    return templates[template] or errors.fail("chat: template: expected %s or a .lua file, got %s%s", known_names(),
      errors.show(template), core.did_you_mean(template, errors.names(templates)))
  end
  if tokenizer.chat_template == "" then
    errors.fail('chat: %s has no chat_template in tokenizer_config.json; give one: template = "chatml" (known are %s), '
      .. "or template = FILE.lua; on the command line --template", tokenizer.path, known_names())
  end
  return recognized(tokenizer.chat_template) or errors.fail(
    "chat: the chat_template of %s is not built (known are %s). Write it as a Lua file that returns function(messages, "
    .. "chat), and give template = \"FILE.lua\" (--template FILE.lua). It is:\n%s", tokenizer.path, known_names(),
    tokenizer.chat_template)
end

local function check_messages(messages)
  if #messages == 0 then errors.fail "chat: messages: expected at least one message, got {}" end
  for i, message in ipairs(messages) do
    if type(message) ~= "table" or type(message.role) ~= "string" or type(message.content) ~= "string" then
      errors.fail("chat: messages[%d]: expected { role = \"user\", content = \"...\" }, got %s", i,
        errors.show(message))
    end
  end
end

--- The text of a conversation in parts: those of the template, and what messages say.
---@param tokenizer table
---@param messages {role: string, content: string}[]
---@param template? string a known name or a .lua file; nil: the tokenizer's own
---@param add_generation_prompt boolean
---@return {text: string, template: boolean}[]
function M.render(tokenizer, messages, template, add_generation_prompt)
  check_messages(messages)
  local parts = {}
  local function add(of_template)
    return function(text)
      if type(text) ~= "string" then
        errors.fail("chat.%s: expected a text, got %s%s", of_template and "template" or "text", errors.show(text),
          text == nil and of_template and "; chat.roles has only what the tokenizer's files say: write "
          .. '`chat.roles.eos or "..."`' or "")
      end
      local last = parts[#parts]
      if last and last.template == of_template then
        last.text = last.text .. text
      elseif text ~= "" then
        parts[#parts + 1] = { text = text, template = of_template }
      end
    end
  end
  find(tokenizer, template).render(messages, { template = add(true), text = add(false), roles = tokenizer.roles,
    add_generation_prompt = add_generation_prompt })
  return parts
end

--- The ids of the tokens that end an answer. An error where the vocabulary does not have them: spelled out, they are
--- not what the network has learned, and no answer would end.
---@param tokenizer table
---@param template? string as for render
---@return integer[]
function M.ends(tokenizer, template)
  local ids = {}
  for _, token in ipairs(find(tokenizer, template).ends) do
    ids[#ids + 1] = tokenizer:id_of(token) or errors.fail("chat: the tokenizer %s has no token %s, with which answers "
      .. "end in the template %s: give the template that the network was trained with", tokenizer.path, token,
      template or "of tokenizer_config.json")
  end
  return ids
end

return M
