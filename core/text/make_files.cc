#include "core/text/make_files.h"

#include <dirent.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/base/input_file.h"
#include "core/files/token_file.h"
#include "core/text/format.h"
#include "core/text/tokenizer.h"
#include "core/text/train_bpe.h"
#include "core/text/train_word_piece.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

// Makes sure that there is no such folder, or nothing in it.
Status CheckNewFolder(const std::string& out) {
  if (IsFile(out)) return absl::InvalidArgumentError(absl::StrCat("-o: '", out, "' is a file; expected a new folder"));
  if (DIR* folder = opendir(out.c_str()); folder != nullptr) {
    bool empty = true;
    while (const dirent* entry = readdir(folder)) {
      const std::string name = entry->d_name;
      empty = empty && (name == "." || name == "..");
    }
    closedir(folder);
    if (!empty) return absl::InvalidArgumentError(absl::StrCat("-o: '", out, "' is not empty; expected a new folder"));
  }
  return absl::OkStatus();
}

StatusOr<std::string> ReadText(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, std::numeric_limits<int64_t>::max()));
  const size_t wrong = FindInvalidUtf8(text);
  if (wrong == std::string::npos) return text;
  const auto byte = static_cast<uint8_t>(text[wrong]);
  return absl::DataLossError(
      absl::StrCat(path, ": not UTF-8 at byte ", wrong, " (0x", absl::Hex(byte, absl::kZeroPad2), ")"));
}

Status CopyFiles(const std::vector<std::string>& files, const std::string& out) {
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadTokenizerFile(file));
    RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(out, "/", file.substr(file.rfind('/') + 1)), bytes));
  }
  return absl::OkStatus();
}

// The first line that begins at `wanted` or behind it; the text's end where none does.
size_t LineFrom(absl::string_view text, int64_t wanted) {
  if (wanted <= 0) return 0;
  if (wanted >= static_cast<int64_t>(text.size())) return text.size();
  const size_t feed = text.find('\n', static_cast<size_t>(wanted) - 1);
  return feed == absl::string_view::npos ? text.size() : feed + 1;
}

// The first word that begins there, with the blank before it, else the first character.
size_t WordFrom(absl::string_view text, int64_t wanted) {
  auto at = static_cast<size_t>(std::clamp<int64_t>(wanted, 0, static_cast<int64_t>(text.size())));
  if (const size_t blank = text.find(' ', at); blank != text.npos) return blank;
  while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) ++at;
  return at;
}

}  // namespace

StatusOr<std::string> TrainOnTexts(const std::vector<absl::string_view>& texts, const TrainOptions& options) {
  const auto train = [&](auto trainer) -> StatusOr<std::string> {
    for (size_t i = 0; i < texts.size(); ++i)
      RETURN_IF_ERROR(Annotate(trainer.Add(texts[i]), absl::StrCat("text ", i + 1)));
    return trainer.Train(options.vocab_size, options.special);
  };
  return options.word_piece ? train(WordPieceTrainer(options.lowercase)) : train(BpeTrainer());
}

StatusOr<int64_t> TrainTokenizer(const std::vector<std::string>& files, const TrainOptions& options,
                                 const std::string& out) {
  RETURN_IF_ERROR(CheckNewFolder(out));
  std::vector<std::string> texts;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(std::string text, ReadText(file));
    texts.push_back(std::move(text));
  }
  ASSIGN_OR_RETURN(const std::string json, TrainOnTexts({texts.begin(), texts.end()}, options));
  RETURN_IF_ERROR(MakeFolders(out));
  RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(out, "/tokenizer.json"), json));
  ASSIGN_OR_RETURN(const auto made, Tokenizer::Open(out));
  return made->vocab_size();
}

StatusOr<TokenizeReport> TokenizeFiles(const std::vector<std::string>& files, const std::string& tokenizer_path,
                                       const TokenizeOptions& options, const std::string& out) {
  RETURN_IF_ERROR(CheckNewFolder(out));
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Open(tokenizer_path));
  const int32_t end = options.end_of_text.empty() ? -1 : tokenizer->IdOf(options.end_of_text);
  if (end < 0 && !options.end_of_text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--end-of-text: ", tokenizer_path, " has no token ", QuotedToken(options.end_of_text)));
  }
  int64_t bytes = 0;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const auto opened, InputFile::Open(file));
    bytes += opened->size();
  }
  EncodeOptions plain;
  plain.add_special_tokens = plain.parse_special_tokens = false;
  PieceCache cache;
  std::vector<int32_t> train, val;
  int64_t left = bytes - std::llround(static_cast<double>(bytes) * options.test_fraction);  // bytes to train on
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const std::string text, ReadText(file));
    size_t cut = options.test_fraction == 0 ? text.size() : LineFrom(text, left);
    // Of the last text a part is left to test with.
    if (options.test_fraction > 0 && &file == &files.back() && cut == text.size()) cut = WordFrom(text, left);
    left -= static_cast<int64_t>(text.size());
    RETURN_IF_ERROR(Annotate(tokenizer->Encode(text.substr(0, cut), plain, &cache, &train), file));
    RETURN_IF_ERROR(Annotate(tokenizer->Encode(absl::string_view(text).substr(cut), plain, &cache, &val), file));
    if (end >= 0) (cut == text.size() ? train : val).push_back(end);
  }
  if (options.test_fraction > 0 && val.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--test-fraction: ", options.test_fraction, " of ", bytes,
                     " bytes leaves no text for val.bin; give a larger fraction, or --test-fraction 0 for no val.bin"));
  }
  TokenizeReport report;
  report.width = TokenWidth(tokenizer->vocab_size());
  report.train = static_cast<int64_t>(train.size());
  report.val = static_cast<int64_t>(val.size());
  RETURN_IF_ERROR(MakeFolders(out));
  RETURN_IF_ERROR(WriteTokenFile(absl::StrCat(out, "/train.bin"), train, report.width));
  if (options.test_fraction > 0) RETURN_IF_ERROR(WriteTokenFile(absl::StrCat(out, "/val.bin"), val, report.width));
  RETURN_IF_ERROR(CopyFiles(tokenizer->parts().files, out));
  return report;
}

}  // namespace mslua::text
