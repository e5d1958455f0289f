// The parts that a tokenizer is made of. Text passes through them in this order:
//
//   Normalizer     text -> text                      lower case, normal forms
//   PreTokenizer   text -> pieces                    words; no token reaches over the end of a piece
//   Model          piece -> ids
//   PostProcessor  ids of one or two texts -> ids    [CLS] and [SEP]
//   Decoder        tokens -> bytes of text           one token after the other
//
// Each part is immutable and any thread may call it, a DecoderRun excepted. All text is valid UTF-8 unless said
// otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "core/text/vocabulary.h"

namespace mslua::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual Status Apply(std::string* text) const = 0;
};

// A piece of text; `first`: nothing of the user's text lies before it.
struct Piece {
  absl::string_view text;
  bool first = false;
};
using PieceSink = absl::FunctionRef<Status(Piece)>;

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Gives the parts of `piece` to `out` in their order; their memory is valid during the call of `out` only.
  virtual Status Split(Piece piece, PieceSink out) const = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of a piece.
  virtual Status Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

// Tokens, and for each to which of two texts it belongs as BERT's segment ids say it.
struct Encoding {
  std::vector<int32_t> ids, types;
};

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  // `second` is null for a single text.
  virtual Encoding Join(std::vector<int32_t> first, const std::vector<int32_t>* second) const = 0;
};

// One text being decoded.
class DecoderRun {
 public:
  virtual ~DecoderRun() = default;
  // What `token` adds to the text: bytes, of which a character may be unfinished.
  virtual std::string Push(std::string token) = 0;
  // What was held back until the end was known.
  virtual std::string Finish() { return ""; }
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual std::unique_ptr<DecoderRun> Start() const = 0;
};

// A decoder whose result for a token depends on the token, and on whether it is the first one.
class TokenDecoder : public Decoder {
 public:
  virtual std::string Decode(std::string token, bool first) const = 0;
  std::unique_ptr<DecoderRun> Start() const override;
};

}  // namespace mslua::text
