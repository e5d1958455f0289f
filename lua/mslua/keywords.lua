--- The words that Lua keeps for itself: none of them is a name.
return { "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not",
  "or", "repeat", "return", "then", "true", "until", "while" }
