// A tokenizer: text to ids of tokens and back.
//
//   ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Open("gpt2"));
//   std::vector<int32_t> ids;
//   RETURN_IF_ERROR(tokenizer->Encode("Hello", {}, nullptr, &ids));
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/text/added_tokens.h"
#include "core/text/part.h"

namespace mslua::text {

// The parts; null: there is none. A model must be there.
struct TokenizerParts {
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<Model> model;
  std::unique_ptr<PostProcessor> post_processor;
  std::unique_ptr<Decoder> decoder;
  std::vector<AddedToken> added;

  // From here on by the reader of a folder, not of a file.
  std::vector<std::string> files;            // the paths that were read, to be copied with a model
  std::map<std::string, std::string> roles;  // "bos" -> "<s>", from tokenizer_config.json
  std::string chat_template;                 // its Jinja text; empty: none
};

struct EncodeOptions {
  bool add_special_tokens = true;    // those of the post-processor
  bool parse_special_tokens = true;  // "<|endoftext|>" in the text is the token; else it is text
};

// Pieces and their ids, as one thread has found them: text repeats its words. Only for one tokenizer.
class PieceCache {
 public:
  // Appends the ids of the piece; false: not known.
  bool Find(absl::string_view piece, std::vector<int32_t>* ids) const;
  void Add(absl::string_view piece, absl::Span<const int32_t> ids);

 private:
  struct Range {
    uint32_t begin, size;
  };
  absl::flat_hash_map<std::string, Range> ranges_;
  std::vector<int32_t> ids_;
};

// Immutable; any thread may call.
class Tokenizer {
 public:
  // Reads a folder or a file of any format of core/text/formats. NOT_FOUND: nothing that is known lies there.
  // INVALID_ARGUMENT, DATA_LOSS: the file and what is wrong with it.
  static StatusOr<std::shared_ptr<const Tokenizer>> Open(const std::string& path);
  // The files that Open would read; empty: there is no tokenizer.
  static std::vector<std::string> FilesAt(const std::string& path);
  static StatusOr<std::shared_ptr<const Tokenizer>> Make(TokenizerParts parts);

  // Appends the ids of `text`. INVALID_ARGUMENT: the offset at which it is not UTF-8, or a character that the model has
  // no token for.
  Status Encode(absl::string_view text, const EncodeOptions& options, PieceCache* cache,
                std::vector<int32_t>* ids) const;
  // One text, or two as questions and answers are; with the text that each token belongs to.
  StatusOr<Encoding> EncodePair(absl::string_view first, const absl::string_view* second, const EncodeOptions& options,
                                PieceCache* cache) const;
  // The text of the ids. Bytes that are not UTF-8 become U+FFFD. INVALID_ARGUMENT: an id without a token, and its
  // place.
  StatusOr<std::string> Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const;

  // The highest id and 1: the rows that a table of embeddings needs.
  int64_t vocab_size() const { return vocab_size_; }
  // Null: no token has this id.
  const std::string* TokenOf(int64_t id) const;
  // -1: no such token.
  int32_t IdOf(absl::string_view token) const;
  bool IsSpecial(int32_t id) const;
  // By id.
  const std::vector<AddedToken>& added_tokens() const { return parts_.added; }
  const TokenizerParts& parts() const { return parts_; }

 private:
  Status Check() const;
  Status EncodeText(absl::string_view text, bool first, bool with_special, PieceCache* cache,
                    std::vector<int32_t>* ids) const;
  Status EncodePieces(absl::string_view text, bool first, PieceCache* cache, std::vector<int32_t>* ids) const;
  // Without the post-processor.
  Status EncodePlain(absl::string_view text, bool with_special, PieceCache* cache, std::vector<int32_t>* ids) const;

  TokenizerParts parts_;
  AddedTokenFinder raw_, normalized_;
  absl::flat_hash_map<int32_t, const AddedToken*> added_by_id_;
  absl::flat_hash_map<std::string, int32_t> added_by_content_;
  int64_t vocab_size_ = 0;
};

// Decodes token by token. Each call gives whole characters; a token's bytes wait until their character is complete. All
// results together are what Tokenizer::Decode gives. Used by one thread.
class DecodeStream {
 public:
  DecodeStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens);
  // INVALID_ARGUMENT: no token has this id.
  StatusOr<std::string> Push(int64_t id);
  // What is left at the end: an unfinished character is U+FFFD.
  std::string Finish();

 private:
  std::string WholeChars(std::string bytes);

  std::shared_ptr<const Tokenizer> tokenizer_;
  const bool skip_special_tokens_;
  std::unique_ptr<DecoderRun> run_;
  bool first_ = true;    // without a decoder: no token yet
  std::string waiting_;  // bytes of an unfinished character
};

}  // namespace mslua::text
