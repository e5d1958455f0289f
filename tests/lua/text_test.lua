-- ms.text: BLEU, lines and CSV records of files, tokenizers that are trained.
local ms = require "mslua"
local check = require "check"
local bleu = require "mslua.text.bleu"

local function file(name, bytes)
  local path = (os.getenv "TEST_TMPDIR" or "/tmp") .. "/text_test_" .. name
  local f = assert(io.open(path, "wb"))
  f:write(bytes)
  f:close()
  return path
end

check.case("the characters of a text", function()
  local characters = require "mslua.text_source".characters
  -- The last one is beyond what is read at once.
  local long = file("long.txt", ("ba"):rep(2 ^ 19) .. "c")
  check.equal(table.concat(characters { dataset_files = { long, file("empty.txt", "") } }), "abc")
  local folder = os.getenv "TEST_TMPDIR" or "/tmp"
  check.fails("there is no text at '" .. folder .. "'", characters, { dataset_files = folder })
  check.fails("there is no text at 'none.txt'", characters, { dataset_files = "none.txt" })
end)

check.case("tokens of mteval-v13a", function()
  local function tokens(line) return table.concat(bleu.tokens(line), "|") end
  check.equal(tokens "Hello, world! It's 3.5% (or 1,000) of e.g. 5-6.",
    "Hello|,|world|!|It's|3.5|%|(|or|1,000|)|of|e|.|g|.|5|-|6|.")
  check.equal(tokens "&quot;A&amp;B&quot; &lt;x&gt; well-known [a] {b} c/d",
    '"|A|&|B|"|<|x|>|well-known|[|a|]|{|b|}|c|/|d')
  check.equal(tokens "Größe\194\160ist  „gut“.", "Größe|ist|„gut“|.")
  check.equal(tokens "ein 2.Mann, 2,", "ein|2|.|Mann|,|2|,")
  check.equal(tokens "", "")
end)

check.case("BLEU by hand", function()
  -- 5 of 6 words, 3 of 5 pairs, 1 of 4 triples, none of 3 quadruples, which counts as half of one.
  local score, about = ms.text.bleu({ "the cat sat on the mat" }, { "the cat is on the mat" })
  check.near(score, 100 * (5 / 6 * 3 / 5 * 1 / 4 * 1 / 6) ^ 0.25, 1e-9)
  check.near(score, 37.991784, 1e-6)
  check.near(about.precisions, { 500 / 6, 60, 25, 100 / 6 }, 1e-9)
  check.near(about.brevity_penalty, 1, 0)
  -- A short translation is penalised; counts are of the corpus, not means of sentences.
  check.near((ms.text.bleu({ "a b c d e" }, { "a b c d f g" })), 100 * math.exp(-0.2) * 0.2 ^ 0.25, 1e-9)
  local two = ms.text.bleu({ "a b c d e", "the cat sat on the mat" }, { "a b c d f g", "the cat is on the mat" })
  check.near(two, 100 * math.exp(1 - 12 / 11) * (9 / 11 * 6 / 9 * 3 / 7 * 1 / 5) ^ 0.25, 1e-9)
  -- A repeated word counts as often as the reference has it.
  check.near(select(2, ms.text.bleu({ "the the the the" }, { "the cat" })).precisions[1], 25, 1e-9)
  check.near((ms.text.bleu({ "ein Mann geht ." }, { "ein Mann geht." })), 100, 1e-9)
  check.near((ms.text.bleu({ "the cat" }, { "the cat sat on" })), 0, 0)
  check.near((ms.text.bleu({ "x y z" }, { "a b c" })), 0, 0)
  check.fails_here("got 1 and 2", function() ms.text.bleu({ "a" }, { "a", "b" }) end)
end)

check.case("lines", function()
  check.equal(ms.text.lines(file("lines", "a\r\n\nb")), { "a", "", "b" })
  check.equal(ms.text.lines(file("lines", "a\nb\n")), { "a", "b" })
  check.equal(ms.text.lines(file("lines", "")), {})
  local path = file("packed", "ein\nzwei\n")
  os.execute("gzip -kf " .. path)
  check.equal(ms.text.lines(path .. ".gz"), { "ein", "zwei" })
  check.fails("not UTF-8 at byte 3 (0xff)", function() ms.text.lines(file("bad", "abc\255")) end)
  check.fails("nowhere", function() ms.text.lines "/nowhere" end)
end)

check.case("CSV records", function()
  local text = '"3","Wall St. Bears","a ""quoted"" word, a \\ and\nanother line"\n1,x,\r\n'
  check.equal(ms.text.csv_records(file("csv", text)),
    { { "3", "Wall St. Bears", 'a "quoted" word, a \\ and\nanother line' }, { "1", "x", "" } })
  check.equal(ms.text.csv_records(file("csv", "a;b\nc;d"), ";"), { { "a", "b" }, { "c", "d" } })
  check.equal(ms.text.csv_records(file("csv", 'a\n""\n\nb\n')), { { "a" }, { "" }, { "b" } })
  check.fails("csv:3: expected 2 columns as in the first record, got 3",
    function() ms.text.csv_records(file("csv", '"a\nb",c\n1,2,3\n')) end)
  check.fails("csv:2: the quote is not closed", function() ms.text.csv_records(file("csv", 'a,b\n"c,d\n')) end)
  check.fails("csv:1: column 1: expected ',' or the end of the line behind a quote, got \"x\"",
    function() ms.text.csv_records(file("csv", '"a"x,b\n')) end)
  check.fails_here("expected one character", function() ms.text.csv_records("x", ",,") end)
end)

check.case("a tokenizer that is trained", function()
  local texts = { "the cat sat on the mat", "the dog saw the cat" }
  local bpe = ms.text.Tokenizer.train { texts = texts, vocab_size = 262, special = { "<pad>" } }
  check.equal(bpe.vocab_size, 262)
  check.equal(bpe:id_of "<pad>", 261)
  check.equal(bpe:decode(bpe:encode "the Katze sat"), "the Katze sat")
  assert(#bpe:encode "the cat" < 7, "no pair is joined")
  local pieces = ms.text.Tokenizer.train { texts = texts, vocab_size = 50, kind = "wordpiece" }
  check.equal({ pieces:id_of "[PAD]", pieces:id_of "[UNK]", pieces:id_of "[CLS]", pieces:id_of "[SEP]",
    pieces:id_of "[MASK]" }, { 0, 1, 2, 3, 4 })
  local ids = pieces:encode "The CAT"
  check.equal({ ids[1], ids[#ids], pieces:decode(ids) }, { 2, 3, "the cat" })
  -- Saved, it is the same.
  local folder = (os.getenv "TEST_TMPDIR" or "/tmp") .. "/text_test_folder"
  os.execute("mkdir -p " .. folder)
  pieces:save(folder)
  check.equal(ms.text.Tokenizer(folder):encode "the dog sat", pieces:encode "the dog sat")
  check.fails("expected a vocabulary of 257", function() ms.text.Tokenizer.train { texts = texts, vocab_size = 3 } end)
  check.fails("not UTF-8 at byte 1", function() ms.text.Tokenizer.train { texts = "a\255", vocab_size = 300 } end)
end)

check.done()
