--- BLEU of translations (Papineni et al., 2002) as sacreBLEU computes it: the tokens of mteval-v13a, n-grams of 1 to 4,
--- smoothing "exp" of orders without a match, one reference a sentence. Its signature there is
--- nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp.
local args = require "mslua.args"
local errors = require "mslua.errors"

local M = {}

local ORDERS = 4

-- The white space of Unicode beside ASCII's, at which words end too.
local SPACES = { "\194\133", "\194\160", "\225\154\128", "\226\128\168", "\226\128\169", "\226\128\175", "\226\129\159",
  "\227\128\128" }
for last = 0x80, 0x8a do SPACES[#SPACES + 1] = "\226\128" .. string.char(last) end

local ENTITIES = { ["&quot;"] = '"', ["&amp;"] = "&", ["&lt;"] = "<", ["&gt;"] = ">" }

--- The tokens of a sentence by mteval-v13a: punctuation and symbols of ASCII are tokens of their own, but a period or a
--- comma between digits is not.
---@param line string
---@return string[]
function M.tokens(line)
  line = line:gsub("<skipped>", ""):gsub("%-\n", ""):gsub("\n", " ")
  if line:find("&", 1, true) then
    for _, name in ipairs { "&quot;", "&amp;", "&lt;", "&gt;" } do line = line:gsub(name, ENTITIES[name]) end
  end
  line = " " .. line .. " "
  line = line:gsub("[{-~[-` -&(-+:-@/]", " %0 ")  -- five ranges of ASCII and the slash
  line = line:gsub("([^0-9])([%.,])", "%1 %2 "):gsub("([%.,])([^0-9])", " %1 %2"):gsub("([0-9])(%-)", "%1 %2 ")
  if line:find "[\194\225-\227]" then
    for _, space in ipairs(SPACES) do line = line:gsub(space, " ") end
  end
  local tokens = {}
  -- Python's split also ends words at the separators 1c to 1f.
  for token in line:gmatch "[^%s\28-\31]+" do tokens[#tokens + 1] = token end
  return tokens
end

-- How often the tokens have each n-gram of every order: counts[n][n-gram].
local function n_grams(tokens)
  local counts = {}
  for n = 1, ORDERS do
    local of_order = {}
    for i = 1, #tokens - n + 1 do
      local gram = table.concat(tokens, " ", i, i + n - 1)
      of_order[gram] = (of_order[gram] or 0) + 1
    end
    counts[n] = of_order
  end
  return counts
end

local bind = args.signature("bleu", {
  { "hypotheses", "strings", required = true, doc = "the translations" },
  { "references", "strings", required = true, doc = "the right translation of each, as many as hypotheses" },
})

--- BLEU of a list of translations and one of their references, from 0 to 100; and the precisions of 1- to 4-grams in
--- percent, the brevity penalty, and the numbers of tokens: `ms.text.bleu(translated, references)`. It is sacreBLEU's
--- corpus_bleu with its defaults. (hypotheses, references)
---@return number score
---@return {precisions: number[], brevity_penalty: number, length: integer, reference_length: integer}
function M.bleu(...)
  local a = bind(...)
  if #a.hypotheses ~= #a.references or #a.hypotheses == 0 then
    errors.fail("bleu: expected as many hypotheses as references and at least one, got %d and %d", #a.hypotheses,
      #a.references)
  end
  local matches, totals, length, reference_length = { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, 0, 0
  for i, hypothesis in ipairs(a.hypotheses) do
    local given, wanted = M.tokens(hypothesis), M.tokens(a.references[i])
    length, reference_length = length + #given, reference_length + #wanted
    local counts, most = n_grams(given), n_grams(wanted)
    for n = 1, ORDERS do
      for gram, count in pairs(counts[n]) do
        totals[n] = totals[n] + count
        matches[n] = matches[n] + math.min(count, most[n][gram] or 0)
      end
    end
  end
  local penalty = length >= reference_length and 1 or length > 0 and math.exp(1 - reference_length / length) or 0
  local precisions, sum, smooth = { 0, 0, 0, 0 }, 0, 1
  for n = 1, ORDERS do
    if totals[n] > 0 then
      if matches[n] == 0 then smooth = smooth * 2 end
      precisions[n] = 100 * (matches[n] == 0 and 1 / (smooth * totals[n]) or matches[n] / totals[n])
    end
  end
  local any = matches[1] + matches[2] + matches[3] + matches[4] > 0
  for n = 1, ORDERS do sum = sum + math.log(precisions[n]) end
  local score = any and penalty * math.exp(sum / ORDERS) or 0
  return score, { precisions = precisions, brevity_penalty = penalty, length = length,
    reference_length = reference_length }
end

return M
