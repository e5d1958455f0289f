// Folders of image files, a subfolder for each class.
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/data/decode.h"
#include "core/data/file.h"
#include "core/data/sources/define.h"

namespace mslua::data {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

bool IsOtherImage(const std::string& name) {
  for (const char* ending : {".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".avif"}) {
    if (absl::EndsWith(name, ending)) return true;
  }
  return false;
}

class ImageFolderReader : public Reader {
 public:
  ImageFolderReader() { columns_ = {{"image", {DType::kU8, {-1, -1, 3}}}, {"label", {DType::kI32, {}}}}; }

  Status List(const std::string& root) {
    ASSIGN_OR_RETURN(const auto names, ListFolder(root));
    int32_t label = 0;
    for (const std::string& name : names) {
      const std::string folder = absl::StrCat(root, "/", name);
      if (!IsFolder(folder)) continue;
      ASSIGN_OR_RETURN(const auto files, ListFolder(folder));
      const size_t before = files_.size();
      std::vector<std::string> left_out;
      for (const std::string& file : files) {
        const std::string lower = absl::AsciiStrToLower(file);
        if (absl::EndsWith(lower, ".jpg") || absl::EndsWith(lower, ".jpeg") || absl::EndsWith(lower, ".png")) {
          files_.push_back({absl::StrCat(folder, "/", file), label});
        } else if (IsOtherImage(lower) || IsFolder(absl::StrCat(folder, "/", file))) {
          left_out.push_back(file);
        }
      }
      if (!left_out.empty()) {
        notices_.push_back(absl::StrCat("ImageFolderDataset: ", folder, ": left out ", left_out.size(),
                                        " images of other formats, or folders, such as ", left_out[0]));
      }
      if (files_.size() == before) notices_.push_back(absl::StrCat("ImageFolderDataset: no image in ", folder));
      ++label;
    }
    size_ = static_cast<int64_t>(files_.size());
    return absl::OkStatus();
  }

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    const File& file = files_[i];
    RETURN_IF_ERROR(ReadFile(file.path, kMaxFileBytes, &buffers->bytes));
    int64_t height = 0, width = 0;
    const Status status = DecodeImage(buffers->bytes, &buffers->pixels, &height, &width);
    if (!status.ok()) return absl::DataLossError(absl::StrCat(file.path, " ", status.message()));
    buffers->ints.resize(1);
    buffers->ints[0] = file.label;
    row[0].data = buffers->pixels.data();
    row[0].type.dtype = DType::kU8;
    row[0].type.shape = {height, width, 3};
    row[0].planar = false;
    row[1] = RawColumn{buffers->ints.data(), columns_[1].type};
    return absl::OkStatus();
  }

  std::string Where(int64_t i) const override { return files_[i].path; }

 private:
  struct File {
    std::string path;
    int32_t label;
  };
  std::vector<File> files_;
};

StatusOr<std::unique_ptr<Reader>> Open(const Fields& fields) {
  const std::string path = fields.String("dataset_dir");
  if (!IsFolder(path)) {
    return absl::NotFoundError(
        absl::StrCat("ImageFolderDataset: no folder '", path, "'; expected PATH/<class>/<image>.jpg or .png"));
  }
  auto reader = std::make_unique<ImageFolderReader>();
  RETURN_IF_ERROR(reader->List(path));
  if (reader->size() == 0) {
    return absl::NotFoundError(absl::StrCat("ImageFolderDataset: no image in the subfolders of '", path,
                                            "'; expected PATH/<class>/<image>.jpg or .png"));
  }
  return StatusOr<std::unique_ptr<Reader>>(std::move(reader));
}

}  // namespace

MSLUA_SOURCE(image_folder) {
  SourceDef def("image_folder", "ImageFolderDataset");
  def.title = "image folder";
  def.doc = "A folder for each class with JPEG or PNG files: image uint8 [h, w, 3], label int32 [].";
  def.fields = {PathField("dataset_dir", "folder of the classes' folders")};
  def.open = Open;
  def.fits = IsFolder;
  def.expects = "a folder of image folders";
  def.order = 4;
  return def;
}

}  // namespace mslua::data
