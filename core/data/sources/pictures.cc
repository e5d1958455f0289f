// Picture files by name, for predictions.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/data/decode.h"
#include "core/data/file.h"
#include "core/data/sources/define.h"

namespace mslua::data {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

// "i32[2,3]" as a type; "i32[]" is one number.
StatusOr<TensorType> ReadType(const std::string& column, const std::string& text) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('[', 1));
  TensorType type;
  const auto dtype = ParseDType(parts.first);
  bool good = dtype.has_value() && absl::EndsWith(parts.second, "]");
  if (good) type.dtype = *dtype;
  for (const absl::string_view size : absl::StrSplit(absl::StripSuffix(parts.second, "]"), ',', absl::SkipEmpty())) {
    int64_t n = 0;
    good = good && absl::SimpleAtoi(size, &n) && n >= 1 && n <= kMaxFileBytes && type.elements() * n <= kMaxFileBytes;
    type.shape.push_back(n);
  }
  if (good) return type;
  return absl::InvalidArgumentError(
      absl::StrCat("PicturesDataset: zeros: ", column, ": expected a type such as i32[], got '", text, "'"));
}

class PicturesReader : public Reader {
 public:
  static StatusOr<std::unique_ptr<Reader>> Open(const Fields& fields) {
    auto reader = std::make_unique<PicturesReader>();
    reader->files_ = fields.Strings("dataset_files");
    if (reader->files_.empty()) {
      return absl::InvalidArgumentError("PicturesDataset: dataset_files: expected at least one file, got none");
    }
    reader->channels_ = fields.Int("channels");
    if (reader->channels_ == 2) return absl::InvalidArgumentError("PicturesDataset: channels: expected 1 or 3, got 2");
    const auto size = [&](const char* name) { return fields.Has(name) ? fields.Int(name) : -1; };
    reader->size_ = static_cast<int64_t>(reader->files_.size());
    reader->columns_ = {
        {fields.String("column_name"), {DType::kU8, {size("height"), size("width"), reader->channels_}}}};
    int64_t most = 0;
    for (const auto& [name, text] : fields.Texts("zeros")) {
      ASSIGN_OR_RETURN(const TensorType type, ReadType(name, text));
      reader->columns_.push_back({name, type});
      most = std::max(most, type.bytes());
    }
    reader->zeros_.resize(static_cast<size_t>(most));
    return StatusOr<std::unique_ptr<Reader>>(std::move(reader));
  }

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    const std::string& path = files_[i];
    RETURN_IF_ERROR(ReadFile(path, kMaxFileBytes, &buffers->bytes));
    int64_t height = 0, width = 0, channels = 0;
    const Status status = DecodeImage(buffers->bytes, &buffers->pixels, &height, &width, &channels);
    if (!status.ok()) return absl::DataLossError(absl::StrCat(path, " ", status.message()));
    if (channels > channels_) {
      return absl::DataLossError(absl::StrCat(path, " has ", channels, " channels, expected ", channels_,
                                              " as in the recipe's data: convert it to grey"));
    }
    const Shape& want = columns_[0].type.shape;
    if ((want[0] >= 0 && want[0] != height) || (want[1] >= 0 && want[1] != width)) {
      const auto text = [](int64_t size) { return size < 0 ? "any" : absl::StrCat(size); };
      return absl::DataLossError(absl::StrCat(path, " has ", height, "x", width, " pixels (height x width), expected ",
                                              text(want[0]), "x", text(want[1])));
    }
    if (channels_ == 1) {
      uint8_t* p = buffers->pixels.data();
      for (int64_t k = 0; k < height * width; ++k) p[k] = p[3 * k];
    }
    row[0] = RawColumn{buffers->pixels.data(), {DType::kU8, {height, width, channels_}}};
    for (size_t k = 1; k < columns_.size(); ++k) row[k] = RawColumn{zeros_.data(), columns_[k].type};
    return absl::OkStatus();
  }

  std::string Where(int64_t i) const override { return files_[i]; }

 private:
  std::vector<std::string> files_;
  std::vector<uint8_t> zeros_;
  int64_t channels_ = 3;
};

std::vector<FieldDef> PictureFields() {
  FieldDef channels{"channels", FieldType::kInt, "of the column: 1 for grey, 3 for colours", int64_t{3}};
  channels.limits = Between(1, 3);
  const auto size = [](const char* name) {
    FieldDef field{name, FieldType::kInt, "that every picture has (default: any)"};
    field.limits = AtLeast(1);
    field.unit = "pixels";
    return field;
  };
  FieldDef files{"dataset_files", FieldType::kStrings, "a list of pictures"};
  files.required = true;
  return {files,
          channels,
          size("height"),
          size("width"),
          {"column_name", FieldType::kString, "name of the pictures' column", std::string("image")},
          {"zeros", FieldType::kTexts, "columns of zeros beside it, by name, such as label = \"i32[]\""}};
}

}  // namespace

MSLUA_SOURCE(pictures) {
  SourceDef def("pictures", "PicturesDataset");
  def.title = "pictures";
  def.pictures = true;
  def.doc =
      "JPEG, PNG, PPM and PGM files by name: image uint8 [h, w, channels]. A grey picture becomes one of three equal "
      "channels; a coloured one for channels = 1 is an error. `mslua predict` reads its files so.";
  def.fields = PictureFields();
  def.open = PicturesReader::Open;
  return def;
}

}  // namespace mslua::data
