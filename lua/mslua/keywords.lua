--- The words that Lua keeps for itself, which are no names: `list`, and `set`, in which each is true.
local list = { "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil",
  "not", "or", "repeat", "return", "then", "true", "until", "while" }
local set = {}
for _, word in ipairs(list) do set[word] = true end
return { list = list, set = set }
