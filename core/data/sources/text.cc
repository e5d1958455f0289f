// Text for language models: characters, or tokens that another program made (nanoGPT's .bin files).
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/base/input_file.h"
#include "core/data/sources/define.h"
#include "core/data/stand_in.h"
#include "core/files/token_file.h"

namespace mslua::data {
namespace {

// The fields; core/data/sources' declaration below says what they mean.
struct Text {
  explicit Text(const Fields& fields)
      : paths(fields.Strings("dataset_files")),
        block(fields.Int("block")),
        format(fields.String("format")),
        characters(format == "characters"),
        usage(UsageOf(fields)),
        test_fraction(fields.Number("test_fraction")),
        stride(fields.Has("stride") ? fields.Int("stride") : block),
        rows(fields.Int("rows")),
        vocab_size(fields.Has("vocab_size") ? fields.Int("vocab_size") : 0),
        characters_from(fields.String("characters_from")) {}

  std::vector<std::string> paths;
  int64_t block;
  std::string format;
  bool characters;
  Usage usage;
  double test_fraction;
  int64_t stride;
  int64_t rows;
  int64_t vocab_size;           // 0: not checked
  std::string characters_from;  // empty: the file itself
};

// Marks the bytes of 0..255 that occur in the file.
Status MarkBytes(const InputFile& file, std::array<bool, 256>* seen) {
  std::vector<uint8_t> piece(size_t{1} << 20);
  for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(piece.size())) {
    const int64_t n = std::min<int64_t>(piece.size(), file.size() - at);
    RETURN_IF_ERROR(file.Read(at, n, piece.data()));
    for (int64_t k = 0; k < n; ++k) (*seen)[piece[k]] = true;
  }
  return absl::OkStatus();
}

// The file at `path`, or input.txt in the folder.
std::string CharactersFile(const std::string& path) { return IsFolder(path) ? absl::StrCat(path, "/input.txt") : path; }

// Which bytes occur in characters_from; those that occur in the file at `path`, `seen`, must be among them.
StatusOr<std::array<bool, 256>> KnownBytes(const std::string& path, const Text& source,
                                           const std::array<bool, 256>& seen) {
  const std::string from = CharactersFile(source.characters_from);
  if (!IsFile(from)) return absl::NotFoundError(absl::StrCat("TextDataset: characters_from: no file '", from, "'"));
  ASSIGN_OR_RETURN(const auto file, InputFile::Open(from));
  std::array<bool, 256> known{};
  RETURN_IF_ERROR(MarkBytes(*file, &known));
  for (int byte = 0; byte < 256; ++byte) {
    if (!seen[byte] || known[byte]) continue;
    const std::string shown = byte > ' ' && byte < 127 ? absl::StrCat("'", std::string(1, static_cast<char>(byte)), "'")
                                                       : absl::StrCat("byte ", byte);
    return absl::DataLossError(absl::StrCat("TextDataset: ", path, " has the character ", shown,
                                            ", which does not occur in ", from, " (characters_from)"));
  }
  return known;
}

// The files that hold a usage. *whole: they hold that usage alone.
StatusOr<std::vector<std::string>> FilesOf(const Text& source, bool* whole) {
  *whole = false;
  std::vector<std::string> files = source.paths;
  if (files.empty())
    return absl::InvalidArgumentError("TextDataset: dataset_files: expected at least one file, got {}");
  if (files.size() == 1 && IsFolder(files[0])) {
    *whole = !source.characters;
    const char* const name = source.characters              ? "/input.txt"
                             : source.usage == Usage::kTest ? "/val.bin"
                                                            : "/train.bin";
    if (*whole && source.usage == Usage::kAll) {
      return absl::InvalidArgumentError(
          absl::StrCat("TextDataset: usage all needs files, '", files[0], "' is a folder with train.bin and val.bin"));
    }
    files[0] += name;
  }
  for (const std::string& file : files) {
    if (IsFile(file)) continue;
    return absl::NotFoundError(
        absl::StrCat("TextDataset: no file '", file,
                     "'; give a text file, download 'tinyshakespeare' (input.txt) from "
                     "https://github.com/karpathy/char-rnn, or make a stand-in: mslua data make text ",
                     source.paths[0]));
  }
  return files;
}

// One of the files, which are one text, each behind the one before.
struct TextFile {
  std::unique_ptr<InputFile> file;
  int64_t offset = 0;  // bytes before the first token
  int64_t begin = 0;   // tokens of the files before it
  int64_t tokens = 0;
};

// Opens a file of tokens. *width: bytes of a token, 0 where it is not known yet.
StatusOr<TextFile> OpenTokens(const std::string& path, const std::string& format, int64_t* width) {
  TextFile opened;
  ASSIGN_OR_RETURN(opened.file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const auto header, ReadTokenHeader(*opened.file));
  const auto type_of = [](int64_t bytes) { return bytes == 2 ? "uint16" : "uint32"; };
  if (!header.has_value() && format == "tokens") {
    return absl::DataLossError(absl::StrCat("TextDataset: ", path,
                                            " has no header of llm.c that tells how wide its tokens are; give format = "
                                            "\"uint16\" or \"uint32\", or make it with mslua data tokenize"));
  }
  if (*width == 0) *width = header->width;
  if (header.has_value() && header->width != *width) {
    return absl::InvalidArgumentError(
        absl::StrCat("TextDataset: ", path, " holds ", type_of(header->width), " tokens, expected ", type_of(*width)));
  }
  opened.offset = header.has_value() ? TokenFileHeader::kBytes : 0;
  const int64_t bytes = opened.file->size() - opened.offset;
  if (bytes % *width != 0) {
    return absl::DataLossError(absl::StrCat("TextDataset: ", path, " has ", bytes, " bytes, expected ",
                                            *width == 2 ? "pairs" : "fours", " (", type_of(*width), " tokens)"));
  }
  opened.tokens = bytes / *width;
  return opened;
}

class TextReader : public Reader {
 public:
  static StatusOr<std::unique_ptr<Reader>> Open(const Text& source) {
    auto reader = std::make_unique<TextReader>();
    bool whole = false;
    ASSIGN_OR_RETURN(const std::vector<std::string> paths, FilesOf(source, &whole));
    RETURN_IF_ERROR(reader->OpenFiles(paths, source));
    const int64_t tokens = reader->files_.back().begin + reader->files_.back().tokens;
    const int64_t train = whole ? tokens : std::llround(std::floor(tokens * (1 - source.test_fraction)));
    int64_t begin = 0, end = tokens;
    if (!whole && source.usage == Usage::kTrain) end = train;
    if (!whole && source.usage == Usage::kTest) begin = train;
    if (end - begin < source.block + 1) {
      const std::string more =
          paths.size() > 1 ? absl::StrCat(" and ", paths.size() - 1, " more files have ") : " has ";
      return absl::InvalidArgumentError(absl::StrCat("TextDataset: ", paths[0], more, end - begin,
                                                     " tokens in this part, a window of block ", source.block,
                                                     " needs ", source.block + 1));
    }
    reader->begin_ = begin;
    reader->block_ = source.block;
    reader->stride_ = source.stride;
    reader->vocab_size_ = source.vocab_size;
    const int64_t windows = (end - begin - source.block - 1) / reader->stride_ + 1;
    reader->rows_ = source.rows;
    reader->size_ = windows / source.rows * source.rows;
    if (reader->size_ == 0) {
      return absl::InvalidArgumentError(absl::StrCat("TextDataset: ", paths[0], " has ", windows,
                                                     " windows in this part, rows = ", source.rows,
                                                     " needs one for each"));
    }
    reader->columns_ = {{"x", {DType::kI32, {source.block}}}, {"y", {DType::kI32, {source.block}}}};
    return StatusOr<std::unique_ptr<Reader>>(std::move(reader));
  }

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    const int64_t first = FirstToken(i), n = block_ + 1;
    buffers->bytes.resize(static_cast<size_t>(n * width_));
    buffers->ints.resize(static_cast<size_t>(n));
    uint8_t* const bytes = buffers->bytes.data();
    for (int64_t k = 0; k < n;) {  // the part of the window that each file has
      const TextFile& file = FileOf(first + k);
      const int64_t at = first + k - file.begin, count = std::min(n - k, file.tokens - at);
      RETURN_IF_ERROR(file.file->Read(file.offset + at * width_, count * width_, bytes + k * width_));
      k += count;
    }
    for (int64_t k = 0; k < n; ++k) {
      const int64_t token = TokenAt(bytes + k * width_);
      if (token < 0 || token > std::numeric_limits<int32_t>::max() ||
          (width_ > 1 && vocab_size_ > 0 && token >= vocab_size_)) {
        return absl::DataLossError(absl::StrCat(Place(first + k), ": ", Problem(token)));
      }
      buffers->ints[k] = static_cast<int32_t>(token);
    }
    row[0] = RawColumn{buffers->ints.data(), columns_[0].type};
    row[1] = RawColumn{buffers->ints.data() + 1, columns_[1].type};
    return absl::OkStatus();
  }

  std::string Where(int64_t i) const override { return Place(FirstToken(i)); }

 private:
  // Of sample i: the next window of row i % rows.
  int64_t FirstToken(int64_t i) const { return begin_ + (i % rows_ * (size_ / rows_) + i / rows_) * stride_; }

  Status OpenFiles(const std::vector<std::string>& paths, const Text& source) {
    width_ = source.characters ? 1 : source.format == "uint16" ? 2 : source.format == "uint32" ? 4 : 0;
    std::array<bool, 256> seen{};
    for (const std::string& path : paths) {
      TextFile opened;
      if (source.characters) {
        ASSIGN_OR_RETURN(opened.file, InputFile::Open(path));
        opened.tokens = opened.file->size();
        RETURN_IF_ERROR(MarkBytes(*opened.file, &seen));
      } else {
        ASSIGN_OR_RETURN(opened, OpenTokens(path, source.format, &width_));
      }
      if (!files_.empty()) opened.begin = files_.back().begin + files_.back().tokens;
      files_.push_back(std::move(opened));
    }
    if (source.characters && !source.characters_from.empty()) {
      ASSIGN_OR_RETURN(seen, KnownBytes(paths[0], source, seen));
    }
    int32_t id = 0;
    for (int byte = 0; byte < 256; ++byte) ids_[byte] = seen[byte] ? id++ : -1;
    if (source.characters && source.vocab_size > 0 && id > source.vocab_size) {
      return absl::DataLossError(absl::StrCat("TextDataset: ", paths[0], " has ", id,
                                              " characters, expected at most vocab_size = ", source.vocab_size));
    }
    return absl::OkStatus();
  }

  const TextFile& FileOf(int64_t token) const {
    const auto after = std::upper_bound(files_.begin(), files_.end(), token,
                                        [](int64_t t, const TextFile& file) { return t < file.begin; });
    return *(after - 1);
  }
  std::string Place(int64_t token) const {
    const TextFile& file = FileOf(token);
    return absl::StrCat(file.file->path(), ", token ", token - file.begin);
  }
  int64_t TokenAt(const uint8_t* bytes) const {
    if (width_ == 1) return ids_[bytes[0]];
    const int64_t low = bytes[0] | bytes[1] << 8;
    return width_ == 2 ? low : low | static_cast<int64_t>(bytes[2] | bytes[3] << 8) << 16;
  }
  std::string Problem(int64_t token) const {
    if (width_ == 1) return "the file has changed while it was read";
    const int64_t most = vocab_size_ > 0 ? vocab_size_ - 1 : std::numeric_limits<int32_t>::max();
    return absl::StrCat(token, ", expected 0..", most, vocab_size_ > 0 ? " (vocab_size)" : "");
  }

  std::vector<TextFile> files_;  // at least one
  int64_t width_ = 1;            // bytes of a token
  int64_t begin_ = 0, block_ = 0, stride_ = 0, rows_ = 1, vocab_size_ = 0;
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
  FieldDef rows{"rows", FieldType::kInt,
                "parts of equal length that are read side by side: sample i is the next window of part i mod rows, so "
                "that each row of a batch of so many samples continues where it ended in the batch before",
                1};
  rows.limits = AtLeast(1);
  FieldDef format{"format", FieldType::kString, "what a token is", "characters"};
  format.choices = {"characters", "uint16", "uint32", "tokens"};
  FieldDef fraction{"test_fraction", FieldType::kNumber,
                    "the end of the text that is the test part; a folder with val.bin has it there", 0.1};
  fraction.limits = Fraction();
  FieldDef vocabulary{"vocab_size", FieldType::kInt, "of tokens: one that is not below it is an error"};
  vocabulary.limits = AtLeast(1);
  return {
      PathField("dataset_files",
                "a file, a list of files that are one text, or a folder with input.txt (characters) or train.bin and "
                "val.bin (tokens)",
                FieldType::kPaths),
      UsageField(),
      block,
      stride,
      format,
      fraction,
      vocabulary,
      rows,
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
      "values; \"uint16\" and \"uint32\": tokens; \"tokens\": tokens behind llm.c's header, which tells their "
      "width, as `mslua data tokenize` writes them.";
  def.fields = TextFields();
  def.open = [](const Fields& fields) { return TextReader::Open(Text(fields)); };
  def.fits = [](const std::string& path) {
    return IsFile(path) || IsFile(path + "/input.txt") || HasTokenHeader(path + "/train.bin");
  };
  def.expects = "a text (file, or folder with input.txt, or with the train.bin of mslua data tokenize)";
  def.order = 3;
  def.inspect = {{"block", 1}};
  def.inspect_at = [](const std::string& path) {
    const bool characters = IsFile(path + "/input.txt");
    const bool tokens = !characters && HasTokenHeader(IsFile(path) ? path : path + "/train.bin");
    return tokens ? FieldMap{{"format", "tokens"}} : FieldMap();
  };
  def.make = Make;
  return def;
}

}  // namespace mslua::data
