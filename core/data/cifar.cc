#include "core/data/cifar.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/folder.h"
#include "core/base/input_file.h"
#include "core/data/file.h"
#include "core/data/pickle.h"

namespace mslua::data {
namespace {

constexpr int64_t kPixels = 32 * 32 * 3;

class CifarReader : public Reader {
 public:
  static StatusOr<std::unique_ptr<Reader>> Open(const CifarFlavour& flavour, const std::string& path, Usage usage);

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    const Part& part = PartOf(i);
    const int64_t record = i - part.first;
    const int64_t labels = static_cast<int64_t>(flavour_.labels.size());
    const int64_t prefix = part.labels.empty() ? labels : 0;  // label bytes in front of the pixels
    buffers->bytes.resize(kPixels + labels);
    RETURN_IF_ERROR(
        part.file->Read(part.data_offset + record * (kPixels + prefix), kPixels + prefix, buffers->bytes.data()));
    buffers->ints.resize(labels);
    for (int64_t k = 0; k < labels; ++k) {
      const int64_t label = prefix > 0 ? buffers->bytes[k] : part.labels[record * labels + k];
      const CifarFlavour::Label& kind = flavour_.labels[k];
      if (label < 0 || label >= kind.classes) {
        return absl::DataLossError(
            absl::StrCat(Where(i), ": ", kind.column, " is ", label, ", expected 0..", kind.classes - 1));
      }
      buffers->ints[k] = static_cast<int32_t>(label);
    }
    row[0] = RawColumn{buffers->bytes.data() + prefix, columns_[0].type, /*planar=*/true};
    for (int64_t k = 0; k < labels; ++k) row[1 + k] = RawColumn{&buffers->ints[k], columns_[1 + k].type};
    return absl::OkStatus();
  }

  std::string Where(int64_t i) const override {
    const Part& part = PartOf(i);
    return absl::StrCat(part.file->path(), ", record ", i - part.first);
  }

 private:
  struct Part {
    std::unique_ptr<InputFile> file;
    int64_t first = 0;  // sample number of its record 0
    int64_t records = 0;
    int64_t data_offset = 0;      // byte of record 0
    std::vector<int32_t> labels;  // python version: [records, labels]
  };

  explicit CifarReader(const CifarFlavour& flavour) : flavour_(flavour) {
    columns_.push_back({"image", {DType::kU8, {32, 32, 3}}});
    for (const auto& label : flavour.labels) columns_.push_back({label.column, {DType::kI32, {}}});
  }

  const Part& PartOf(int64_t i) const {
    size_t k = 0;
    while (i >= parts_[k].first + parts_[k].records) ++k;
    return parts_[k];
  }

  Status AddBinary(const std::string& path) {
    Part part;
    ASSIGN_OR_RETURN(part.file, InputFile::Open(path));
    const int64_t record = kPixels + static_cast<int64_t>(flavour_.labels.size());
    part.records = part.file->size() / record;
    if (part.file->size() % record != 0 || part.records == 0) {
      return absl::DataLossError(absl::StrCat(path, " is truncated in record ", part.records, ": it has ",
                                              part.file->size(), " bytes, expected a multiple of ", record,
                                              "; download it again"));
    }
    Add(std::move(part));
    return absl::OkStatus();
  }

  Status AddPython(const std::string& path) {
    Part part;
    ASSIGN_OR_RETURN(part.file, InputFile::Open(path));
    std::vector<uint8_t> bytes;
    RETURN_IF_ERROR(ReadFile(path, int64_t{1} << 30, &bytes));
    std::vector<std::string> keys;
    for (const auto& label : flavour_.labels) keys.push_back(label.pickle_key);
    StatusOr<PickledImages> images =
        ReadPickledImages({reinterpret_cast<char*>(bytes.data()), bytes.size()}, kPixels, keys);
    if (!images.ok()) {
      return Annotate(images.status(), absl::StrCat(path, " (python version; the '", flavour_.version, "' works too)"));
    }
    part.records = images->rows;
    part.data_offset = images->data_offset;
    part.labels = std::move(images->labels);
    Add(std::move(part));
    return absl::OkStatus();
  }

  void Add(Part part) {
    part.first = size_;
    size_ += part.records;
    parts_.push_back(std::move(part));
  }

  const CifarFlavour& flavour_;
  std::vector<Part> parts_;
};

StatusOr<std::unique_ptr<Reader>> CifarReader::Open(const CifarFlavour& flavour, const std::string& path, Usage usage) {
  std::vector<std::string> names;
  if (usage != Usage::kTest) names = flavour.train;
  if (usage != Usage::kTrain) names.insert(names.end(), flavour.test.begin(), flavour.test.end());

  std::vector<std::string> folders{path};
  for (const std::string& sub : flavour.folders) folders.push_back(absl::StrCat(path, "/", sub));
  for (const std::string& folder : folders) {
    for (const char* suffix : {".bin", ""}) {
      auto reader = std::unique_ptr<CifarReader>(new CifarReader(flavour));
      std::vector<std::string> absent;
      for (const std::string& name : names) {
        const std::string file = absl::StrCat(folder, "/", name, suffix);
        if (!IsFile(file)) {
          absent.push_back(name + suffix);
        } else {
          RETURN_IF_ERROR(*suffix != '\0' ? reader->AddBinary(file) : reader->AddPython(file));
        }
      }
      if (reader->parts_.empty()) continue;
      if (!absent.empty()) {
        reader->notices_.push_back(absl::StrCat(flavour.dataset, ": ", absl::StrJoin(absent, ", "), " not in ", folder,
                                                ": left out, ", reader->size_, " samples remain"));
      }
      return StatusOr<std::unique_ptr<Reader>>(std::move(reader));
    }
  }
  return absl::NotFoundError(absl::StrCat(
      flavour.dataset, ": no ", names[0], ".bin in '", path, "'; download '", flavour.version,
      "' from https://www.cs.toronto.edu/~kriz/cifar.html",
      flavour.make == nullptr ? std::string()
                              : absl::StrCat(", or make a stand-in: mslua data make ", flavour.make, " ", path)));
}

}  // namespace

StatusOr<std::unique_ptr<Reader>> OpenCifar(const CifarFlavour& flavour, const Fields& fields) {
  return CifarReader::Open(flavour, fields.String("dataset_dir"), UsageOf(fields));
}

}  // namespace mslua::data
