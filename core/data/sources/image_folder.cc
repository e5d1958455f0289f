// Folders of image files, a subfolder for each class.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/folder.h"
#include "core/base/text.h"
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

  // `classes`: the folders' names in the order of their labels; empty: all of them, sorted.
  Status List(const std::string& root, std::vector<std::string> classes) {
    ASSIGN_OR_RETURN(const auto names, ListFolder(root));
    std::vector<std::string> folders;
    for (const std::string& name : names) {
      if (IsFolder(absl::StrCat(root, "/", name))) folders.push_back(name);
    }
    if (classes.empty()) classes = folders;
    for (const std::string& name : folders) {
      if (std::find(classes.begin(), classes.end(), name) == classes.end())
        return absl::InvalidArgumentError(absl::StrCat("ImageFolderDataset: class_names has no '", name,
                                                       "', a folder of '", root, "'", DidYouMean(name, classes)));
    }
    for (size_t i = 0; i < classes.size(); ++i) {
      if (std::find(classes.begin() + i + 1, classes.end(), classes[i]) != classes.end())
        return absl::InvalidArgumentError(absl::StrCat("ImageFolderDataset: class_names has '", classes[i], "' twice"));
    }
    classes_ = std::move(classes);
    bool nested = !classes_.empty();
    for (size_t label = 0; label < classes_.size(); ++label) {
      bool folders_alone = false;
      RETURN_IF_ERROR(ListClass(absl::StrCat(root, "/", classes_[label]), static_cast<int32_t>(label), &folders_alone));
      nested &= folders_alone;
    }
    size_ = static_cast<int64_t>(files_.size());
    if (size_ == 0 && nested)
      return absl::NotFoundError(
          absl::StrCat("ImageFolderDataset: the folders of '", root, "', ", absl::StrJoin(classes_, ", "),
                       ", have folders in them and no images: give one as split, split = \"", classes_[0], "\""));
    return absl::OkStatus();
  }

  std::vector<std::string> class_names() const override { return classes_; }

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

  Status ListClass(const std::string& folder, int32_t label, bool* folders_alone) {
    if (!IsFolder(folder)) {
      notices_.push_back(absl::StrCat("ImageFolderDataset: no folder ", folder));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const auto files, ListFolder(folder));
    const size_t before = files_.size();
    std::vector<std::string> left_out;
    size_t folders = 0;
    for (const std::string& file : files) {
      const std::string lower = absl::AsciiStrToLower(file);
      const bool is_folder = IsFolder(absl::StrCat(folder, "/", file));
      folders += is_folder;
      if (absl::EndsWith(lower, ".jpg") || absl::EndsWith(lower, ".jpeg") || absl::EndsWith(lower, ".png")) {
        files_.push_back({absl::StrCat(folder, "/", file), label});
      } else if (IsOtherImage(lower) || is_folder) {
        left_out.push_back(file);
      }
    }
    *folders_alone = !files.empty() && folders == files.size();
    if (!left_out.empty()) {
      notices_.push_back(absl::StrCat("ImageFolderDataset: ", folder, ": left out ", left_out.size(),
                                      " images of other formats, or folders, such as ", left_out[0]));
    }
    if (files_.size() == before) notices_.push_back(absl::StrCat("ImageFolderDataset: no image in ", folder));
    return absl::OkStatus();
  }

  std::vector<std::string> classes_;
  std::vector<File> files_;
};

StatusOr<std::unique_ptr<Reader>> Open(const Fields& fields) {
  std::string path = fields.String("dataset_dir");
  if (const std::string split = fields.String("split"); !split.empty()) {
    if (IsFolder(path) && !IsFolder(absl::StrCat(path, "/", split))) {
      ASSIGN_OR_RETURN(const auto names, ListFolder(path));
      return absl::NotFoundError(absl::StrCat("ImageFolderDataset: '", path, "' has no folder '", split,
                                              "' for split; it has ", absl::StrJoin(names, ", ")));
    }
    absl::StrAppend(&path, "/", split);
  }
  if (!IsFolder(path)) {
    return absl::NotFoundError(
        absl::StrCat("ImageFolderDataset: no folder '", path, "'; expected PATH/<class>/<image>.jpg or .png"));
  }
  auto reader = std::make_unique<ImageFolderReader>();
  RETURN_IF_ERROR(reader->List(path, fields.Strings("class_names")));
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
  def.pictures = true;
  def.doc =
      "A folder for each class with JPEG or PNG files: image uint8 [h, w, 3], label int32 []. Labels number the "
      "folders "
      "in the order of their names; `ds:get_class_names()` lists them.";
  def.fields = {PathField("dataset_dir", "folder of the classes' folders"),
                {"split", FieldType::kString, "the folder below it with the classes, such as \"train\" or \"val\""},
                {"class_names", FieldType::kStrings,
                 "names of the folders in the order of their labels: give the training data's to the test data"}};
  def.open = Open;
  def.fits = IsFolder;
  def.expects = "a folder of image folders";
  def.order = 4;
  return def;
}

}  // namespace mslua::data
