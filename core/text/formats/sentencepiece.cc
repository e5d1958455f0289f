// SentencePiece's tokenizer.model: a protocol buffer with the pieces, their scores, and how text is normalized.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/folder.h"
#include "core/json/json.h"
#include "core/text/bpe.h"
#include "core/text/charsmap.h"
#include "core/text/config.h"
#include "core/text/format.h"
#include "core/text/parts.h"
#include "core/text/protobuf.h"
#include "core/text/unicode.h"
#include "core/text/unigram.h"

namespace mslua::text {
namespace {

constexpr char kSpace[] = "\u2581";

enum PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct Proto {
  struct Piece {
    std::string text;
    float score = 0;
    int64_t type = kNormal;
  };
  std::vector<Piece> pieces;
  int64_t model = 1;
  bool byte_fallback = false, space_as_suffix = false;
  std::string bos = "<s>", eos = "</s>";
  std::string charsmap;
  bool add_dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;
};

Status ReadPiece(absl::string_view bytes, Proto* proto) {
  ProtoReader fields(bytes);
  Proto::Piece piece;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, fields.Next());
    if (!more) break;
    if (fields.field() == 1) piece.text = std::string(fields.bytes());
    if (fields.field() == 2) piece.score = fields.number();
    if (fields.field() == 3) piece.type = fields.integer();
  }
  const std::string which = absl::StrCat("piece ", proto->pieces.size(), ", ", QuotedToken(piece.text));
  if (piece.text.empty() || FindInvalidUtf8(piece.text) != absl::string_view::npos)
    return absl::DataLossError(absl::StrCat(which, ": expected a text in UTF-8"));
  if (!std::isfinite(piece.score)) return absl::DataLossError(absl::StrCat(which, ": its score is not finite"));
  if (piece.type < kNormal || piece.type > kByte || piece.type == kUnused)
    return absl::InvalidArgumentError(absl::StrCat(which, ": pieces of type ", piece.type, " are not built"));
  proto->pieces.push_back(std::move(piece));
  return absl::OkStatus();
}

// trainer_spec and normalizer_spec.
Status ReadSpec(absl::string_view bytes, bool trainer, Proto* proto) {
  ProtoReader fields(bytes);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, fields.Next());
    if (!more) return absl::OkStatus();
    const int field = fields.field();
    if (trainer) {
      if (field == 3) proto->model = fields.integer();
      if (field == 24) proto->space_as_suffix = fields.integer() != 0;
      if (field == 35) proto->byte_fallback = fields.integer() != 0;
      if (field == 46) proto->bos = std::string(fields.bytes());
      if (field == 47) proto->eos = std::string(fields.bytes());
      continue;
    }
    if (field == 2) proto->charsmap = std::string(fields.bytes());
    if (field == 3) proto->add_dummy_prefix = fields.integer() != 0;
    if (field == 4) proto->remove_extra_spaces = fields.integer() != 0;
    if (field == 5) proto->escape_spaces = fields.integer() != 0;
  }
}

StatusOr<Proto> ReadProto(absl::string_view bytes) {
  Proto proto;
  ProtoReader fields(bytes);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, fields.Next());
    if (!more) break;
    if (!fields.is_bytes() || fields.field() > 3) continue;
    if (fields.field() == 1)
      RETURN_IF_ERROR(ReadPiece(fields.bytes(), &proto));
    else
      RETURN_IF_ERROR(ReadSpec(fields.bytes(), fields.field() == 2, &proto));
  }
  if (proto.pieces.empty()) return absl::DataLossError("it has no pieces: this is no SentencePiece model");
  if (proto.model != 1 && proto.model != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("models of type ", proto.model, " are not built; built are 1 (unigram), 2 (BPE)"));
  }
  if (proto.space_as_suffix) return absl::InvalidArgumentError("treat_whitespace_as_suffix is not built");
  if (!proto.escape_spaces) return absl::InvalidArgumentError("escape_whitespaces = false is not built");
  return proto;
}

// Replacements of the table, then spaces.
class SentencePieceNormalizer : public Normalizer {
 public:
  SentencePieceNormalizer(absl::optional<Charsmap> map, bool remove_extra_spaces)
      : map_(std::move(map)), remove_extra_spaces_(remove_extra_spaces) {}

  Status Apply(std::string* text) const override {
    std::string mapped;
    for (absl::string_view rest = *text; !rest.empty();) {
      const auto found = map_.has_value() ? map_->Find(rest, /*longest=*/true) : absl::nullopt;
      const size_t bytes = found.has_value() ? found->bytes : CharBytes(rest[0]);
      const absl::string_view part = found.has_value() ? found->text : rest.substr(0, bytes);
      mapped.append(part.data(), part.size());
      rest.remove_prefix(bytes);
    }
    std::string out;
    const size_t end = mapped.find_last_not_of(' ');  // npos: spaces only
    for (size_t k = 0; k < mapped.size(); ++k) {
      const bool outside = end == std::string::npos || k > end;
      const bool extra = remove_extra_spaces_ && (k == 0 || mapped[k - 1] == ' ' || outside);
      if (mapped[k] != ' ')
        out.push_back(mapped[k]);
      else if (!extra)
        out += kSpace;
    }
    *text = std::move(out);
    return absl::OkStatus();
  }

 private:
  const absl::optional<Charsmap> map_;
  const bool remove_extra_spaces_;
};

// A space before the first word of the text.
class DummyPrefix : public PreTokenizer {
 public:
  Status Split(Piece piece, PieceSink out) const override {
    if (!piece.first) return out(piece);
    return out({absl::StrCat(kSpace, piece.text), true});
  }
};

bool BeginsAsProto(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  return file != nullptr && std::fgetc(file.get()) == 0x0a;
}

std::vector<std::string> Find(const std::string& path) {
  for (const std::string& file : {path, absl::StrCat(path, "/tokenizer.model"), absl::StrCat(path, "/spiece.model")}) {
    if (absl::EndsWith(file, ".model") && IsFile(file) && BeginsAsProto(file)) return {file};
  }
  return {};
}

StatusOr<std::unique_ptr<Model>> MakeModel(const Proto& proto) {
  Vocabulary vocabulary;
  std::vector<double> scores;
  std::vector<bool> matched;
  std::vector<int32_t> order;  // normal pieces
  int32_t unknown = -1;
  for (const Proto::Piece& piece : proto.pieces) {
    const auto id = static_cast<int32_t>(scores.size());
    RETURN_IF_ERROR(vocabulary.Add(piece.text, id));
    if (piece.type == kUnknown) unknown = id;
    if (piece.type == kNormal) order.push_back(id);
    scores.push_back(piece.score);
    matched.push_back(piece.type == kNormal);
  }
  if (proto.model == 1)
    return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), unknown, proto.byte_fallback, matched);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  std::vector<Merges::Result> ranks;
  for (const int32_t id : order) {
    const bool same = !ranks.empty() && scores[id] == scores[ranks.back().id];
    ranks.push_back({same ? ranks.back().rank : static_cast<int32_t>(ranks.size()), id});
  }
  Merges merges;
  merges.AddSplits(vocabulary, ranks, /*characters=*/true);
  BpeSettings settings;
  settings.unknown = unknown;
  settings.fuse_unknown = true;
  settings.byte_fallback = proto.byte_fallback;
  return std::make_unique<Bpe>(std::move(vocabulary), std::move(merges), settings);
}

Json DecoderOf(const Proto& proto) {
  Json parts = {{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}}};
  if (proto.add_dummy_prefix) parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", parts}};
}

// <s> before and </s> behind the text, as the configuration asks.
Json PostProcessorOf(const TokenizerConfig& config, const Proto& proto, const Vocabulary& vocabulary) {
  if (!config.add_bos && !config.add_eos) return nullptr;
  const auto token = [](const std::string& name, int type) {
    return Json{{"SpecialToken", {{"id", name}, {"type_id", type}}}};
  };
  Json single = Json::array(), pair = Json::array(), special = Json::object();
  for (const auto& [name, add] : {std::make_pair(proto.bos, config.add_bos), std::make_pair(proto.eos, config.add_eos)})
    if (add) special[name] = {{"id", name}, {"ids", Json::array({vocabulary.Find(name)})}};
  for (int type = 0; type < 2; ++type) {
    Json text = Json::array();
    if (config.add_bos) text.push_back(token(proto.bos, type));
    text.push_back({{"Sequence", {{"id", type == 0 ? "A" : "B"}, {"type_id", type}}}});
    if (config.add_eos) text.push_back(token(proto.eos, type));
    if (type == 0) single = text;
    pair.insert(pair.end(), text.begin(), text.end());
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

StatusOr<TokenizerParts> Read(const std::vector<std::string>& files) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadTokenizerFile(files[0]));
  ASSIGN_OR_RETURN(const TokenizerConfig config, ReadConfig(FolderOf(files[0])));
  if (!config.tokenizer_class.empty() && config.tokenizer_class != "LlamaTokenizer" &&
      config.tokenizer_class != "GemmaTokenizer") {
    return absl::InvalidArgumentError(
        absl::StrCat("a SentencePiece model of a ", config.tokenizer_class,
                     " is not built; built are those of LlamaTokenizer, GemmaTokenizer. Save its tokenizer.json"));
  }
  ASSIGN_OR_RETURN(const Proto proto, ReadProto(bytes));
  TokenizerParts parts;
  ASSIGN_OR_RETURN(parts.model, MakeModel(proto));
  for (size_t id = 0; id < proto.pieces.size(); ++id) {
    const Proto::Piece& piece = proto.pieces[id];
    if (piece.type != kControl && piece.type != kUnknown && piece.type != kUserDefined) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = piece.text;
    token.special = piece.type != kUserDefined;
    parts.added.push_back(std::move(token));
  }
  absl::optional<Charsmap> map;
  if (!proto.charsmap.empty()) {
    ASSIGN_OR_RETURN(map, Charsmap::Read(proto.charsmap));
  }
  parts.normalizer = std::make_unique<SentencePieceNormalizer>(std::move(map), proto.remove_extra_spaces);
  if (proto.add_dummy_prefix) parts.pre_tokenizer = std::make_unique<DummyPrefix>();
  ASSIGN_OR_RETURN(parts.decoder, ReadDecoder(DecoderOf(proto), "decoder"));
  const Json post = PostProcessorOf(config, proto, parts.model->vocabulary());
  ASSIGN_OR_RETURN(parts.post_processor, ReadPostProcessor(post, "post_processor"));
  AddTokens(config.added, &parts);
  return parts;
}

}  // namespace

MSLUA_TOKENIZER_FORMAT(sentencepiece) { return {"SentencePiece's tokenizer.model", 4, Find, Read}; }

}  // namespace mslua::text
