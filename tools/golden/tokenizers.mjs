// Writes core/text/testdata: small tokenizers, and what Hugging Face's own reader makes of texts with them.
//
//   npm install --ignore-scripts --prefix DIR @huggingface/tokenizers@0.2.0
//   NODE_PATH=DIR/node_modules node tools/golden/tokenizers.mjs core/text/testdata
//
// The vocabularies come from the texts below: what occurs most often in them. U+0085 and U+FEFF are not in the texts, for
// JavaScript takes them as white space, or away, where the original in Rust does not.
import { createRequire } from "node:module";
import { mkdirSync, writeFileSync } from "node:fs";

const { Tokenizer } = createRequire(import.meta.url)("@huggingface/tokenizers");
const OUT = process.argv[2];

const PROSE = `The tokenizer splits text into pieces, and the pieces into tokens. A token is a number: the network never sees
the text. She didn't know what they'd say; we'll see whether it's true. The naïve café in Zürich costs 12.50 francs (or 14,75
dollars) in 2024. Der schnelle braune Fuchs springt über den faulen Hund. 東京は日本の首都です。 Всем привет, как дела?
for (int i = 0; i < 100; ++i) { total += values[i] * 0x1f; }  // the sum of all values
`;
const TEXTS = [
  "", " ", "\n", "Hello, world!", "  leading and trailing  ", "It's we'll I'VE don't 'S", "tabs\t\tand\r\nCRLF\r\n\r\n end",
  "naïve café ÀÉÎÕÜ ﬁ ① ½ Ⅷ", "e\u0301 a\u0308\u0301 o\u0302\u0323", "漢字とひらがな and 한국어", "👩‍👩‍👧‍👦 👍🏽 🇩🇪",
  "12345678901 3.14 1,000,000", "x\u00a0y\u3000z\u2003w\u200bv\u180eu", "__init__(self) -> None: # ok?", "Σςσ ẞß ǅ ÅÅ",
  "tokens<s>tokens</s> [CLS] [MASK]x [SEP]", "a [MASK] b", "<|endoftext|>text<|endoftext|>", "aaaaaaaaaaaaaaaaaaaaaaaa",
  "\u0000\u0001\u007f control", "ไทยไม่มีช่องว่าง", "the the the The THE tHe", "unaffable [UNK] \ufffd", PROSE,
];

// ---- Vocabularies

const count = (items) => {
  const counts = new Map();
  for (const item of items) counts.set(item, (counts.get(item) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
};
const bytesToChars = () => {
  const table = [];
  let next = 256;
  for (let b = 0; b < 256; b++) {
    const printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    table.push(String.fromCodePoint(printable ? b : next++));
  }
  return table;
};
const CHARS = bytesToChars();
const byteLevel = (text) => [...Buffer.from(text, "utf8")].map((b) => CHARS[b]).join("");

// Textbook byte-pair encoding over words: symbols, then merges.
const trainBpe = (words, symbols, size) => {
  const vocab = [...symbols], merges = [];
  let parts = count(words).map(([word, n]) => [[...word], n]);
  while (vocab.length < size) {
    const pairs = count(parts.flatMap(([p, n]) => p.slice(1).flatMap((s, i) => Array(n).fill(`${p[i]} ${s}`))));
    if (!pairs.length || pairs[0][1] < 2) break;
    const [left, right] = pairs[0][0].split(" ");
    merges.push([left, right]);
    if (!vocab.includes(left + right)) vocab.push(left + right);
    parts = parts.map(([p, n]) => {
      const joined = [];
      for (let i = 0; i < p.length; i++) {
        if (p[i] === left && p[i + 1] === right) joined.push(left + right), i++;
        else joined.push(p[i]);
      }
      return [joined, n];
    });
  }
  return { vocab, merges };
};
const idsOf = (tokens) => Object.fromEntries(tokens.map((t, i) => [t, i]));
const added = (id, content, extra = {}) =>
  ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...extra });

const GPT2 = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;
const CL100K = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" +
  "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const gpt2 = () => {
  const { vocab, merges } = trainBpe(PROSE.match(GPT2).map(byteLevel), CHARS, 400);
  const level = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true };
  return {
    added_tokens: [added(vocab.length, "<|endoftext|>")], normalizer: null, pre_tokenizer: level, post_processor: level,
    decoder: level, model: { type: "BPE", vocab: idsOf(vocab), merges: merges.map((m) => m.join(" ")) },
  };
};
const llama3 = () => {
  const base = gpt2();
  const split = { type: "Split", pattern: { Regex: CL100K }, behavior: "Isolated", invert: false };
  base.pre_tokenizer = { type: "Sequence", pretokenizers: [split,
    { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false }] };
  base.model.ignore_merges = true;
  base.model.merges = base.model.merges.map((m) => m.split(" "));
  base.added_tokens.push(added(base.added_tokens[0].id + 1, "<s>"));
  const bos = { SpecialToken: { id: "<s>", type_id: 0 } };
  base.post_processor = { type: "Sequence", processors: [base.post_processor, { type: "TemplateProcessing",
    single: [bos, { Sequence: { id: "A", type_id: 0 } }],
    pair: [bos, { Sequence: { id: "A", type_id: 0 } }, { Sequence: { id: "B", type_id: 1 } }],
    special_tokens: { "<s>": { id: "<s>", ids: [base.added_tokens[1].id], tokens: ["<s>"] } } }] };
  return base;
};
const llama2 = () => {
  const bytes = [...Array(256).keys()].map((b) => `<0x${b.toString(16).toUpperCase().padStart(2, "0")}>`);
  const text = PROSE.replaceAll(" ", "▁");
  const symbols = ["<unk>", "<s>", "</s>", ...bytes, ...new Set([..."▁abcdefghijklmnopqrstuvwxyzTHS.,'東京"])];
  const { vocab, merges } = trainBpe(text.match(/▁?[^▁]+/gu), symbols, 420);
  const known = new Set(vocab);
  return {
    added_tokens: ["<unk>", "<s>", "</s>"].map((t, i) => added(i, t)),
    normalizer: { type: "Sequence", normalizers: [{ type: "Prepend", prepend: "▁" },
      { type: "Replace", pattern: { String: " " }, content: "▁" }] },
    pre_tokenizer: null, post_processor: null,
    decoder: { type: "Sequence", decoders: [{ type: "Replace", pattern: { String: "▁" }, content: " " },
      { type: "ByteFallback" }, { type: "Fuse" }, { type: "Strip", content: " ", start: 1, stop: 0 }] },
    model: { type: "BPE", unk_token: "<unk>", fuse_unk: true, byte_fallback: true, vocab: idsOf(vocab),
      merges: merges.filter(([a, b]) => known.has(a) && known.has(b) && known.has(a + b)).map((m) => m.join(" ")) },
  };
};
const bert = () => {
  const words = PROSE.toLowerCase().normalize("NFD").replace(/\p{Mn}/gu, "").match(/[\p{L}\p{N}]+|[^\s\p{L}\p{N}]/gu);
  const chars = count(words.flatMap((w) => [...w])).map(([c]) => c);
  const ends = count(words.flatMap((w) => [2, 3].filter((n) => w.length > n).map((n) => "##" + w.slice(-n))));
  const vocab = [...new Set(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ...chars, ...chars.map((c) => "##" + c),
    ...count(words).map(([w]) => w).slice(0, 60), ...ends.map(([w]) => w).slice(0, 60)])];
  const id = (t) => vocab.indexOf(t);
  return {
    added_tokens: ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map((t, i) => added(i, t, { lstrip: t === "[MASK]" })),
    normalizer: { type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, strip_accents: null,
      lowercase: true },
    pre_tokenizer: { type: "BertPreTokenizer" },
    post_processor: { type: "BertProcessing", sep: ["[SEP]", id("[SEP]")], cls: ["[CLS]", id("[CLS]")] },
    decoder: { type: "WordPiece", prefix: "##", cleanup: true },
    model: { type: "WordPiece", unk_token: "[UNK]", continuing_subword_prefix: "##", max_input_chars_per_word: 100,
      vocab: idsOf(vocab) },
  };
};
const unigram = () => {
  const words = PROSE.normalize("NFKC").split(/\s+/u).filter(Boolean).map((w) => "▁" + w);
  const parts = count(words.flatMap((w) => {
    const chars = [...w], out = [];
    for (let i = 0; i < chars.length; i++) for (let n = 1; n <= 5 && i + n <= chars.length; n++) out.push(chars.slice(i, i + n).join(""));
    return out;
  }));
  const total = parts.reduce((sum, [, n]) => sum + n, 0);
  const vocab = [["<unk>", 0], ["</s>", 0], ...parts.filter(([p, n]) => n > 1 || [...p].length === 1)
    .map(([p, n], i) => [p, Math.log(n / total) - i * 1e-6])];
  const eos = { SpecialToken: { id: "</s>", type_id: 0 } };
  return {
    added_tokens: [added(0, "<unk>"), added(1, "</s>")], normalizer: { type: "NFKC" },
    pre_tokenizer: { type: "Sequence", pretokenizers: [{ type: "WhitespaceSplit" },
      { type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: true }] },
    post_processor: { type: "TemplateProcessing", single: [{ Sequence: { id: "A", type_id: 0 } }, eos],
      pair: [{ Sequence: { id: "A", type_id: 0 } }, eos, { Sequence: { id: "B", type_id: 0 } }, eos],
      special_tokens: { "</s>": { id: "</s>", ids: [1], tokens: ["</s>"] } } },
    decoder: { type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: true },
    model: { type: "Unigram", unk_id: 0, vocab },
  };
};

// ---- Files

mkdirSync(OUT, { recursive: true });
const expected = {};
for (const [name, make] of Object.entries({ gpt2, llama3, llama2, bert, unigram })) {
  const json = { version: "1.0", truncation: null, padding: null, ...make() };
  const tokenizer = new Tokenizer(structuredClone(json), {});
  expected[name] = TEXTS.map((text) => {
    const ids = tokenizer.encode(text).ids;
    return { ids, text: ids.length === 0 ? "" : tokenizer.decode(ids, { skip_special_tokens: true, clean_up_tokenization_spaces: false }) };
  });
  writeFileSync(`${OUT}/${name}.json`, JSON.stringify(json) + "\n");
}
writeFileSync(`${OUT}/expected.json`, JSON.stringify({ texts: TEXTS, expected }) + "\n");
