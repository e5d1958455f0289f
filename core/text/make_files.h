// What `mslua data tokenizer` and `mslua data tokenize` write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua::text {

struct TrainOptions {
  int64_t vocab_size = 0;
  bool word_piece = false;           // else a byte-level BPE
  bool lowercase = true;             // of WordPiece: letters become small and lose their accents
  std::vector<std::string> special;  // tokens beside WordPiece's own
};

// Trains a tokenizer on texts; gives the text of its tokenizer.json.
StatusOr<std::string> TrainOnTexts(const std::vector<absl::string_view>& texts, const TrainOptions& options);
// Trains one on the text files and writes tokenizer.json into the new or empty folder `out`. Gives the size of the
// vocabulary.
StatusOr<int64_t> TrainTokenizer(const std::vector<std::string>& files, const TrainOptions& options,
                                 const std::string& out);

struct TokenizeOptions {
  // The end of the text, by bytes, from the begin of a line on, or of a word where no line begins there; 0: no val.bin.
  double test_fraction = 0.1;
  std::string end_of_text;  // a token behind each file; empty: none
};

struct TokenizeReport {
  int64_t train = 0, val = 0;  // tokens
  int64_t width = 2;           // bytes of a token
};

// Writes train.bin and val.bin (core/files/token_file.h) into the new or empty folder `out`, and copies the tokenizer's
// files there. A file is one text in memory, with its tokens. Errors name the file.
StatusOr<TokenizeReport> TokenizeFiles(const std::vector<std::string>& files, const std::string& tokenizer,
                                       const TokenizeOptions& options, const std::string& out);

}  // namespace mslua::text
