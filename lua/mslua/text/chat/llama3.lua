--- Llama 3's: headers with the role around each message.
local M = {}

local BODY = "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
  .. "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}"
  .. "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
local PROMPT = "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"

-- In some files a line end is written as an escape of Jinja.
local function escaped(text) return (text:gsub("\n", "\\n")) end

M.ends = { "<|eot_id|>" }
M.jinja = { BODY .. PROMPT, escaped(BODY .. PROMPT) }

local function trim(text) return (text:gsub("^%s+", ""):gsub("%s+$", "")) end

function M.render(messages, chat)
  chat.template(chat.roles.bos or "<|begin_of_text|>")
  for _, message in ipairs(messages) do
    chat.template "<|start_header_id|>"
    chat.text(message.role)
    chat.template "<|end_header_id|>\n\n"
    chat.text(trim(message.content))
    chat.template "<|eot_id|>"
  end
  if chat.add_generation_prompt then chat.template "<|start_header_id|>assistant<|end_header_id|>\n\n" end
end

return M
