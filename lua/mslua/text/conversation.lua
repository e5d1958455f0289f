--- A conversation with a network, as `mslua chat` leads it: messages by the chat template, answers token by token.
local chat = require "mslua.text.chat"
local class = require "mslua.class"
local errors = require "mslua.errors"

local Conversation = class.Object:extend "Conversation"

---@class mslua.ConversationOptions
---@field template? string as for Tokenizer:chat
---@field system? string the first message, of the role system
---@field count integer tokens of an answer at most
---@field vocab? integer as for net:generate
---@field stop_ids integer[] ids that end an answer, beside those of the template
---@field temperature number as for net:generate, as the fields below
---@field top_k integer
---@field top_p number
---@field repetition_penalty number?
---@field seed integer

--- `options` as ConversationOptions.
function Conversation:init(net, tokenizer, options)
  self.net, self.tokenizer, self.options = net, tokenizer, options
  self.stop_ids = { unpack(options.stop_ids) }
  for _, id in ipairs(chat.ends(tokenizer, options.template)) do table.insert(self.stop_ids, id) end
  self:start(options.system)
end

--- Forgets all messages; `system` is the first one from now on, nil: there is none.
function Conversation:start(system)
  self.system, self.answers = system, 0
  self.messages = system and { { role = "system", content = system } } or {}
end

-- The ids of the messages. Where they leave too little of the network's block for an answer, the oldest messages of the
-- two sides are forgotten; gives how many.
function Conversation:ids()
  local first, forgotten = self.system and 2 or 1, 0
  local kept = math.min(self.options.count, math.floor(self.net.block / 4))
  while true do
    local ids = self.tokenizer:chat { messages = self.messages, template = self.options.template }
    if #ids + kept <= self.net.block then return ids, forgotten end
    if #self.messages - first < 2 then
      errors.fail("chat: the message has %d tokens with what the template adds, and the network takes %d, of which %d "
        .. "are kept for the answer", #ids, self.net.block, kept)
    end
    for _ = 1, 2 do table.remove(self.messages, first) end
    forgotten = forgotten + 2
  end
end

--- The answer to what the user says. on_text is called with each piece of it that is complete. A message that has no
--- answer, because of an error, is forgotten.
---@param text string
---@param on_text fun(piece: string)
---@return string answer
---@return { forgotten: integer, truncated: boolean, tokens: integer } about messages forgotten before it; whether no
--- token ended it; its length
function Conversation:say(text, on_text)
  local before, answers = { unpack(self.messages) }, self.answers
  table.insert(self.messages, { role = "user", content = text })
  local answered, answer, about = pcall(self.answer, self, on_text)
  if not answered then
    self.messages, self.answers = before, answers
    error(answer, 0)
  end
  table.insert(self.messages, { role = "assistant", content = answer })
  return answer, about
end

function Conversation:answer(on_text)
  local ids, forgotten = self:ids()
  local more, pieces, tokens, ended = self.tokenizer:stream(), {}, 0, false
  local stops = {}
  for _, id in ipairs(self.stop_ids) do stops[id] = true end
  local function add(piece)
    if piece == "" then return end
    pieces[#pieces + 1] = piece
    on_text(piece)
  end
  local count = math.min(self.options.count, self.net.block - #ids)
  self.answers = self.answers + 1
  self.net:generate(ids, {
    count = count, temperature = self.options.temperature, top_k = self.options.top_k, top_p = self.options.top_p,
    repetition_penalty = self.options.repetition_penalty, vocab = self.options.vocab,
    seed = self.options.seed + self.answers - 1,
    on_token = function(_, id)
      ended = stops[id] or false
      tokens = tokens + 1
      if not ended then add(more(id)) end
      return ended
    end,
  })
  add(more())
  return table.concat(pieces), { forgotten = forgotten, truncated = not ended, tokens = tokens }
end

return Conversation
