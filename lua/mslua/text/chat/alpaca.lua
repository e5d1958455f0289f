--- Alpaca's: instructions and responses under headings. It has one form for all, and no Jinja text of its own.
local errors = require "mslua.errors"

local M = {}

M.ends = {}
M.jinja = {}

local INTRODUCTION = "Below is an instruction that describes a task. Write a response that appropriately completes the "
  .. "request."
local HEADINGS = { user = "### Instruction:\n", assistant = "### Response:\n" }

-- A system message stands in the place of the introduction.
function M.render(messages, chat)
  local first = 1
  if messages[1].role == "system" then
    chat.text(messages[1].content)
    first = 2
  else
    chat.template(INTRODUCTION)
  end
  for i = first, #messages do
    local message = messages[i]
    local heading = HEADINGS[message.role]
    if not heading then
      errors.fail("chat: messages[%d]: the template alpaca has roles user and assistant, and system for the first "
        .. "message; got %s", i, errors.show(message.role))
    end
    chat.template("\n\n" .. heading)
    chat.text(message.content)
    if message.role == "assistant" then chat.template(chat.roles.eos or "") end
  end
  if chat.add_generation_prompt then chat.template "\n\n### Response:\n" end
end

return M
