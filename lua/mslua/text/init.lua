--- ms.text: tokenizers.
local M = {}

M.Tokenizer = require "mslua.text.tokenizer"

return require("mslua.namespace").strict("ms.text", M)
