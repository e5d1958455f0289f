#include "core/text/tokenizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

constexpr size_t kMostCachedPieces = 1 << 17;
constexpr size_t kLongestCachedPiece = 64;  // bytes

Status NotUtf8(absl::string_view text, size_t offset) {
  const auto byte = static_cast<uint8_t>(text[offset]);
  return absl::InvalidArgumentError(
      absl::StrCat("the text is not UTF-8 at byte ", offset, " (0x", absl::Hex(byte, absl::kZeroPad2), ")"));
}

}  // namespace

bool PieceCache::Find(absl::string_view piece, std::vector<int32_t>* ids) const {
  const auto found = ranges_.find(piece);
  if (found == ranges_.end()) return false;
  const auto begin = ids_.begin() + found->second.begin;
  if (found->second.size == 1) {  // most of them
    ids->push_back(*begin);
    return true;
  }
  ids->insert(ids->end(), begin, begin + found->second.size);
  return true;
}

void PieceCache::Add(absl::string_view piece, absl::Span<const int32_t> ids) {
  if (ranges_.size() >= kMostCachedPieces || piece.size() > kLongestCachedPiece) return;
  ranges_.emplace(piece, Range{static_cast<uint32_t>(ids_.size()), static_cast<uint32_t>(ids.size())});
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Make(TokenizerParts parts) {
  auto made = std::make_shared<Tokenizer>();
  made->parts_ = std::move(parts);
  std::vector<AddedToken>& added = made->parts_.added;
  std::sort(added.begin(), added.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  made->vocab_size_ = made->parts_.model->vocabulary().size();
  for (const AddedToken& token : added) {
    made->vocab_size_ = std::max(made->vocab_size_, int64_t{token.id} + 1);
    made->added_by_id_[token.id] = &token;
    made->added_by_content_[token.content] = token.id;
    std::string content = token.content;
    if (token.normalized && made->parts_.normalizer != nullptr)
      RETURN_IF_ERROR(made->parts_.normalizer->Apply(&content));
    (token.normalized ? made->normalized_ : made->raw_).Add(std::move(content), token);
  }
  RETURN_IF_ERROR(made->Check());
  return std::shared_ptr<const Tokenizer>(std::move(made));
}

Status Tokenizer::Check() const {
  const Vocabulary& vocabulary = parts_.model->vocabulary();
  for (const AddedToken& token : parts_.added) {
    const std::string* other = vocabulary.Token(token.id);
    if (added_by_id_.at(token.id) != &token || (other != nullptr && *other != token.content)) {
      return absl::DataLossError(absl::StrCat("added_tokens: id ", token.id, " of ", QuotedToken(token.content),
                                              " is that of another token too"));
    }
    const int32_t id = vocabulary.Find(token.content);
    if (id >= 0 && id != token.id) {
      return absl::DataLossError(absl::StrCat("added_tokens: ", QuotedToken(token.content), " has the id ", token.id,
                                              ", and ", id, " in the vocabulary"));
    }
  }
  if (parts_.post_processor == nullptr) return absl::OkStatus();
  const std::vector<int32_t> none;
  for (const std::vector<int32_t>* second : {static_cast<const std::vector<int32_t>*>(nullptr), &none}) {
    for (const int32_t id : parts_.post_processor->Join({}, second).ids) {
      if (TokenOf(id) == nullptr)
        return absl::DataLossError(absl::StrCat("post_processor: no token has the id ", id, " that it adds"));
    }
  }
  return absl::OkStatus();
}

const std::string* Tokenizer::TokenOf(int64_t id) const {
  if (id < 0 || id >= vocab_size_) return nullptr;
  const auto added = added_by_id_.find(static_cast<int32_t>(id));
  return added != added_by_id_.end() ? &added->second->content : parts_.model->vocabulary().Token(id);
}

int32_t Tokenizer::IdOf(absl::string_view token) const {
  const auto added = added_by_content_.find(token);
  return added != added_by_content_.end() ? added->second : parts_.model->vocabulary().Find(token);
}

bool Tokenizer::IsSpecial(int32_t id) const {
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() && added->second->special;
}

Status Tokenizer::EncodePieces(absl::string_view text, bool first, PieceCache* cache, std::vector<int32_t>* ids) const {
  const auto encode = [&](Piece piece) -> Status {
    if (piece.text.empty() || (cache != nullptr && cache->Find(piece.text, ids))) return absl::OkStatus();
    const size_t before = ids->size();
    RETURN_IF_ERROR(parts_.model->Tokenize(piece.text, ids));
    if (cache != nullptr) cache->Add(piece.text, absl::MakeConstSpan(*ids).subspan(before));
    return absl::OkStatus();
  };
  return parts_.pre_tokenizer == nullptr ? encode({text, first}) : parts_.pre_tokenizer->Split({text, first}, encode);
}

Status Tokenizer::EncodeText(absl::string_view text, bool first, bool with_special, PieceCache* cache,
                             std::vector<int32_t>* ids) const {
  std::string changed;
  if (parts_.normalizer != nullptr) {
    changed = std::string(text);
    RETURN_IF_ERROR(parts_.normalizer->Apply(&changed));
    text = changed;
  }
  const char* const begin = text.data();
  return normalized_.Split(text, with_special, [&](const AddedTokenFinder::Part& part) -> Status {
    if (part.token == nullptr) return EncodePieces(part.text, first && part.text.data() == begin, cache, ids);
    ids->push_back(part.token->id);
    return absl::OkStatus();
  });
}

Status Tokenizer::EncodePlain(absl::string_view text, bool with_special, PieceCache* cache,
                              std::vector<int32_t>* ids) const {
  const size_t wrong = FindInvalidUtf8(text);
  if (wrong != absl::string_view::npos) return NotUtf8(text, wrong);
  const char* const begin = text.data();
  return raw_.Split(text, with_special, [&](const AddedTokenFinder::Part& part) -> Status {
    if (part.token == nullptr) return EncodeText(part.text, part.text.data() == begin, with_special, cache, ids);
    ids->push_back(part.token->id);
    return absl::OkStatus();
  });
}

Status Tokenizer::Encode(absl::string_view text, const EncodeOptions& options, PieceCache* cache,
                         std::vector<int32_t>* ids) const {
  if (!options.add_special_tokens || parts_.post_processor == nullptr)
    return EncodePlain(text, options.parse_special_tokens, cache, ids);
  ASSIGN_OR_RETURN(const Encoding encoding, EncodePair(text, nullptr, options, cache));
  ids->insert(ids->end(), encoding.ids.begin(), encoding.ids.end());
  return absl::OkStatus();
}

StatusOr<Encoding> Tokenizer::EncodePair(absl::string_view first, const absl::string_view* second,
                                         const EncodeOptions& options, PieceCache* cache) const {
  std::vector<int32_t> a, b;
  RETURN_IF_ERROR(EncodePlain(first, options.parse_special_tokens, cache, &a));
  if (second != nullptr) RETURN_IF_ERROR(EncodePlain(*second, options.parse_special_tokens, cache, &b));
  if (options.add_special_tokens && parts_.post_processor != nullptr)
    return parts_.post_processor->Join(std::move(a), second == nullptr ? nullptr : &b);
  Encoding out;
  out.types.resize(a.size(), 0);
  out.types.resize(a.size() + b.size(), 1);
  out.ids = std::move(a);
  out.ids.insert(out.ids.end(), b.begin(), b.end());
  return out;
}

StatusOr<std::string> Tokenizer::Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const {
  // Not owned: the stream ends before this call does.
  DecodeStream stream(std::shared_ptr<const Tokenizer>(std::shared_ptr<const Tokenizer>(), this), skip_special_tokens);
  std::string text;
  for (size_t k = 0; k < ids.size(); ++k) {
    StatusOr<std::string> more = stream.Push(ids[k]);
    if (!more.ok()) return Annotate(more.status(), absl::StrCat("ids[", k + 1, "]"));
    text += *more;
  }
  return text + stream.Finish();
}

DecodeStream::DecodeStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {
  if (tokenizer_->parts().decoder != nullptr) run_ = tokenizer_->parts().decoder->Start();
}

std::string DecodeStream::WholeChars(std::string bytes) {
  waiting_ += bytes;
  const size_t whole = waiting_.size() - UnfinishedBytes(waiting_);
  std::string out = ReplaceInvalidUtf8(absl::string_view(waiting_).substr(0, whole));
  waiting_.erase(0, whole);
  return out;
}

StatusOr<std::string> DecodeStream::Push(int64_t id) {
  const std::string* token = tokenizer_->TokenOf(id);
  if (token == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("expected an id in 0..", tokenizer_->vocab_size() - 1,
                                                   id >= 0 && id < tokenizer_->vocab_size() ? ", that a token has" : "",
                                                   ", got ", id));
  }
  if (skip_special_tokens_ && tokenizer_->IsSpecial(static_cast<int32_t>(id))) return std::string();
  if (run_ != nullptr) return WholeChars(run_->Push(*token));
  return WholeChars(std::exchange(first_, false) ? *token : absl::StrCat(" ", *token));
}

std::string DecodeStream::Finish() {
  std::string text = run_ == nullptr ? "" : WholeChars(run_->Finish());
  text += ReplaceInvalidUtf8(waiting_);
  waiting_.clear();
  return text;
}

}  // namespace mslua::text
