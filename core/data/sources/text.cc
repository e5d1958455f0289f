// Text for language models: characters, or tokens that another program made (nanoGPT's .bin files).
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/input_file.h"
#include "core/data/file.h"
#include "core/data/sources/define.h"
#include "core/data/stand_in.h"

namespace mslua::data {
namespace {

// The fields; core/data/sources' declaration below says what they mean.
struct Text {
  explicit Text(const Fields& fields)
      : path(fields.String("dataset_files")),
        block(fields.Int("block")),
        uint16(fields.String("format") == "uint16"),
        usage(UsageOf(fields)),
        test_fraction(fields.Number("test_fraction")),
        stride(fields.Has("stride") ? fields.Int("stride") : block),
        vocab_size(fields.Has("vocab_size") ? fields.Int("vocab_size") : 0),
        characters_from(fields.String("characters_from")) {}

  std::string path;
  int64_t block;
  bool uint16;
  Usage usage;
  double test_fraction;
  int64_t stride;
  int64_t vocab_size;           // 0: not checked
  std::string characters_from;  // empty: the file itself
};

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

// The file at `path`, or input.txt in the folder.
std::string CharactersFile(const std::string& path) { return IsFolder(path) ? absl::StrCat(path, "/input.txt") : path; }

// Which bytes occur in characters_from; those that occur in the file at `path`, `seen`, must be among them.
StatusOr<std::array<bool, 256>> KnownBytes(const std::string& path, const Text& source,
                                           const std::array<bool, 256>& seen) {
  const std::string from = CharactersFile(source.characters_from);
  if (!IsFile(from)) return absl::NotFoundError(absl::StrCat("TextDataset: characters_from: no file '", from, "'"));
  ASSIGN_OR_RETURN(const auto file, InputFile::Open(from));
  ASSIGN_OR_RETURN(const auto known, BytesOf(*file));
  for (int byte = 0; byte < 256; ++byte) {
    if (!seen[byte] || known[byte]) continue;
    const std::string shown = byte > ' ' && byte < 127 ? absl::StrCat("'", std::string(1, static_cast<char>(byte)), "'")
                                                       : absl::StrCat("byte ", byte);
    return absl::DataLossError(absl::StrCat("TextDataset: ", path, " has the character ", shown,
                                            ", which does not occur in ", from, " (characters_from)"));
  }
  return known;
}

// The file that holds a usage. *whole: it holds that usage alone.
StatusOr<std::string> FileOf(const Text& source, bool* whole) {
  *whole = false;
  std::vector<std::string> tried;
  if (!IsFolder(source.path)) {
    tried = {source.path};
  } else if (!source.uint16) {
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
  return absl::NotFoundError(
      absl::StrCat("TextDataset: no file '", tried[0],
                   "'; give a text file, download 'tinyshakespeare' (input.txt) from "
                   "https://github.com/karpathy/char-rnn, or make a stand-in: mslua data make text ",
                   source.path));
}

class TextReader : public Reader {
 public:
  static StatusOr<std::unique_ptr<Reader>> Open(const Text& source) {
    auto reader = std::make_unique<TextReader>();
    bool whole = false;
    ASSIGN_OR_RETURN(const std::string path, FileOf(source, &whole));
    ASSIGN_OR_RETURN(reader->file_, InputFile::Open(path));
    reader->width_ = source.uint16 ? 2 : 1;
    if (reader->file_->size() % reader->width_ != 0) {
      return absl::DataLossError(absl::StrCat("TextDataset: ", path, " has ", reader->file_->size(),
                                              " bytes, expected pairs (uint16 tokens)"));
    }
    if (reader->width_ == 1) {
      ASSIGN_OR_RETURN(auto seen, BytesOf(*reader->file_));
      if (!source.characters_from.empty()) {
        ASSIGN_OR_RETURN(seen, KnownBytes(path, source, seen));
      }
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
    reader->stride_ = source.stride;
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

// input.txt: speeches of a small grammar, options.train + options.test characters.
Status Make(const std::string& path, const MakeOptions& options) {
  static constexpr const char* kNames[] = {"ADRIAN", "BEATRIX", "CLEON", "DIANA", "EGEON", "FLORA"};
  static constexpr const char* kSubjects[] = {"the king", "my lord", "a good friend", "the old queen", "thy brother"};
  static constexpr const char* kVerbs[] = {"loves", "hath seen", "doth follow", "will never leave", "fears"};
  static constexpr const char* kObjects[] = {"the crown", "this quiet night", "her gentle heart", "the northern sea",
                                             "a winter's tale"};
  static constexpr const char* kEnds[] = {".", "!", "?", ", and so do I.", "; what then?"};
  const auto pick = [](SampleDraws* draws, const auto& list) {
    return list[StandInBelow(draws, static_cast<int>(std::size(list)))];
  };
  RETURN_IF_ERROR(PrepareStandIn(path, {"input.txt"}, options));
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(absl::StrCat(path, "/input.txt")));
  int64_t left = options.train + options.test;
  for (int64_t speech = 0; left > 0; ++speech) {
    SampleDraws draws = StandInDraws(options.seed, "make/text", speech);
    std::string text = absl::StrCat(pick(&draws, kNames), ":\n");
    for (int lines = 1 + StandInBelow(&draws, 4); lines > 0; --lines) {
      std::string line = absl::StrCat(pick(&draws, kSubjects), " ", pick(&draws, kVerbs), " ", pick(&draws, kObjects),
                                      pick(&draws, kEnds), "\n");
      line[0] = static_cast<char>(line[0] - 'a' + 'A');
      text += line;
    }
    text += "\n";
    text.resize(std::min<size_t>(text.size(), static_cast<size_t>(left)));
    left -= static_cast<int64_t>(text.size());
    RETURN_IF_ERROR(file->Write(text.data(), text.size()));
  }
  return file->Commit();
}

std::vector<FieldDef> TextFields() {
  FieldDef block{"block", FieldType::kInt, "tokens of a sample", 64};
  block.limits = AtLeast(1);
  block.unit = "tokens";
  FieldDef stride{"stride", FieldType::kInt, "tokens between the begins of two windows (default: block)"};
  stride.limits = AtLeast(1);
  stride.unit = "tokens";
  FieldDef format{"format", FieldType::kString, "what a token is", "characters"};
  format.choices = {"characters", "uint16"};
  FieldDef fraction{"test_fraction", FieldType::kNumber, "the end of a single file that is the test part", 0.1};
  fraction.limits = Fraction();
  FieldDef vocabulary{"vocab_size", FieldType::kInt, "uint16 only: a token that is not below it is an error"};
  vocabulary.limits = AtLeast(1);
  return {
      PathField("dataset_files", "a file, or a folder with input.txt (characters) or train.bin and val.bin (uint16)"),
      UsageField(),
      block,
      stride,
      format,
      fraction,
      vocabulary,
      {"characters_from", FieldType::kString,
       "characters only: the file, or folder with input.txt, whose characters have the ids (default: dataset_files)"}};
}

}  // namespace

MSLUA_SOURCE(text) {
  SourceDef def("text", "TextDataset");
  def.title = "text";
  def.doc =
      "Windows of a text for next-token prediction: x int32 [block], y int32 [block], y being x moved on by one. "
      "`stride` tokens lie between two windows (default: block). format \"characters\": bytes, ids in order of their "
      "values; \"uint16\": tokens.";
  def.fields = TextFields();
  def.open = [](const Fields& fields) { return TextReader::Open(Text(fields)); };
  def.fits = [](const std::string& path) { return IsFile(path) || IsFile(path + "/input.txt"); };
  def.expects = "a text (file, or folder with input.txt)";
  def.order = 3;
  def.inspect = {{"block", 1}};
  def.make = Make;
  return def;
}

}  // namespace mslua::data
