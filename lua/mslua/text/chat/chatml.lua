--- ChatML: <|im_start|>role, the message, <|im_end|>.
local M = {}

local BODY = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
  .. "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
local DEFAULT = "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"

local function escaped(text) return (text:gsub("\n", "\\n")) end

M.ends = { "<|im_end|>" }
M.jinja = { BODY, escaped(BODY), DEFAULT .. BODY, DEFAULT .. escaped(BODY) }

function M.render(messages, chat)
  for _, message in ipairs(messages) do
    chat.template "<|im_start|>"
    chat.text(message.role .. "\n" .. message.content)
    chat.template "<|im_end|>\n"
  end
  if chat.add_generation_prompt then chat.template "<|im_start|>assistant\n" end
end

return M
