// Text for language models: characters, or tokens that another program made (nanoGPT's .bin files).
#include <array>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/input_file.h"
#include "core/data/file.h"
#include "core/data/reader.h"

namespace mslua::data {
namespace {

// Which bytes of 0..255 occur in the file.
StatusOr<std::array<bool, 256>> BytesOf(const InputFile& file) {
  std::array<bool, 256> seen{};
  std::vector<uint8_t> piece(size_t{1} << 20);
  for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(piece.size())) {
    const int64_t n = std::min<int64_t>(piece.size(), file.size() - at);
    RETURN_IF_ERROR(file.Read(at, n, piece.data()));
    for (int64_t k = 0; k < n; ++k) seen[piece[k]] = true;
  }
  return seen;
}

// The file that holds a usage. *whole: it holds that usage alone.
StatusOr<std::string> FileOf(const Text& source, bool* whole) {
  *whole = false;
  std::vector<std::string> tried;
  if (!IsFolder(source.path)) {
    tried = {source.path};
  } else if (source.format == Text::Format::kCharacters) {
    tried = {absl::StrCat(source.path, "/input.txt")};
  } else {
    *whole = true;
    tried = {absl::StrCat(source.path, source.usage == Usage::kTest ? "/val.bin" : "/train.bin")};
    if (source.usage == Usage::kAll) {
      return absl::InvalidArgumentError(absl::StrCat("TextDataset: usage all needs a single file, '", source.path,
                                                     "' is a folder with train.bin and val.bin"));
    }
  }
  if (IsFile(tried[0])) return tried[0];
  return absl::NotFoundError(absl::StrCat(
      "TextDataset: no file '", tried[0],
      "'; give a text file, download 'tinyshakespeare' (input.txt) from https://github.com/karpathy/char-rnn, or "
      "make a stand-in: mslua data make text ",
      source.path));
}

class TextReader : public Reader {
 public:
  static StatusOr<std::unique_ptr<Reader>> Open(const Text& source) {
    if (source.block < 1 || source.stride < 0 || !(source.test_fraction >= 0 && source.test_fraction < 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("TextDataset: expected block >= 1, stride >= 0 and 0 <= test_fraction < 1, got block ",
                       source.block, ", stride ", source.stride, ", test_fraction ", source.test_fraction));
    }
    auto reader = std::make_unique<TextReader>();
    bool whole = false;
    ASSIGN_OR_RETURN(const std::string path, FileOf(source, &whole));
    ASSIGN_OR_RETURN(reader->file_, InputFile::Open(path));
    reader->width_ = source.format == Text::Format::kUint16 ? 2 : 1;
    if (reader->file_->size() % reader->width_ != 0) {
      return absl::DataLossError(absl::StrCat("TextDataset: ", path, " has ", reader->file_->size(),
                                              " bytes, expected pairs (uint16 tokens)"));
    }
    if (reader->width_ == 1) {
      ASSIGN_OR_RETURN(const auto seen, BytesOf(*reader->file_));
      int32_t id = 0;
      for (int byte = 0; byte < 256; ++byte) reader->ids_[byte] = seen[byte] ? id++ : -1;
    }
    const int64_t tokens = reader->file_->size() / reader->width_;
    const int64_t train = whole ? tokens : std::llround(std::floor(tokens * (1 - source.test_fraction)));
    int64_t begin = 0, end = tokens;
    if (!whole && source.usage == Usage::kTrain) end = train;
    if (!whole && source.usage == Usage::kTest) begin = train;
    if (end - begin < source.block + 1) {
      return absl::InvalidArgumentError(absl::StrCat("TextDataset: ", path, " has ", end - begin,
                                                     " tokens in this part, a window of block ", source.block,
                                                     " needs ", source.block + 1));
    }
    reader->begin_ = begin;
    reader->block_ = source.block;
    reader->stride_ = source.stride > 0 ? source.stride : source.block;
    reader->vocab_size_ = source.vocab_size;
    reader->size_ = (end - begin - source.block - 1) / reader->stride_ + 1;
    reader->columns_ = {{"x", {DType::kI32, {source.block}}}, {"y", {DType::kI32, {source.block}}}};
    return StatusOr<std::unique_ptr<Reader>>(std::move(reader));
  }

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    const int64_t first = begin_ + i * stride_, n = block_ + 1;
    buffers->bytes.resize(static_cast<size_t>(n * width_));
    buffers->ints.resize(static_cast<size_t>(n));
    RETURN_IF_ERROR(file_->Read(first * width_, n * width_, buffers->bytes.data()));
    const uint8_t* bytes = buffers->bytes.data();
    for (int64_t k = 0; k < n; ++k) {
      const int32_t token = width_ == 1 ? ids_[bytes[k]] : bytes[2 * k] | bytes[2 * k + 1] << 8;
      if (token < 0 || (width_ == 2 && vocab_size_ > 0 && token >= vocab_size_)) {
        return absl::DataLossError(
            absl::StrCat(file_->path(), ", token ", first + k, ": ",
                         width_ == 1 ? std::string("the file has changed while it was read")
                                     : absl::StrCat(token, ", expected 0..", vocab_size_ - 1, " (vocab_size)")));
      }
      buffers->ints[k] = token;
    }
    row[0] = RawColumn{buffers->ints.data(), columns_[0].type};
    row[1] = RawColumn{buffers->ints.data() + 1, columns_[1].type};
    return absl::OkStatus();
  }

  std::string Where(int64_t i) const override { return absl::StrCat(file_->path(), ", token ", begin_ + i * stride_); }

 private:
  std::unique_ptr<InputFile> file_;
  int64_t width_ = 1;  // bytes of a token
  int64_t begin_ = 0, block_ = 0, stride_ = 0, vocab_size_ = 0;
  std::array<int32_t, 256> ids_{};
};

}  // namespace

StatusOr<std::unique_ptr<Reader>> OpenText(const Text& source) { return TextReader::Open(source); }

StatusOr<std::string> TextVocabulary(const std::string& path) {
  Text source;
  source.path = path;
  bool whole = false;
  ASSIGN_OR_RETURN(const std::string file_path, FileOf(source, &whole));
  ASSIGN_OR_RETURN(const auto file, InputFile::Open(file_path));
  ASSIGN_OR_RETURN(const auto seen, BytesOf(*file));
  std::string vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    if (seen[byte]) vocabulary.push_back(static_cast<char>(byte));
  }
  return vocabulary;
}

}  // namespace mslua::data
