--- ms.text: tokenizers, texts of files, and how good a translation is.
local bleu = require "mslua.text.bleu"
local read = require "mslua.text.read"

local M = {}

M.Tokenizer = require "mslua.text.tokenizer"
M.lines = read.lines
M.csv_records = read.csv_records
M.bleu = bleu.bleu

return require("mslua.namespace").strict("ms.text", M)
