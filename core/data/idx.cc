#include "core/data/idx.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/folder.h"
#include "core/data/file.h"

namespace mslua::data {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 32;

struct Idx {
  std::string path;
  std::vector<uint8_t> bytes;
  std::vector<int64_t> dims;
  const uint8_t* data() const { return bytes.data() + 4 + 4 * dims.size(); }
};

Status ParseIdx(size_t rank, Idx* idx) {
  const std::vector<uint8_t>& b = idx->bytes;
  if (b.size() < 4 + 4 * rank || b[0] != 0 || b[1] != 0 || b[2] != 8 || b[3] != rank) {
    return absl::DataLossError(absl::StrCat(idx->path, " is not an IDX file of u8 with ", rank, " dimensions"));
  }
  int64_t elements = 1;
  for (size_t d = 0; d < rank; ++d) {
    const uint8_t* p = b.data() + 4 + 4 * d;
    const int64_t size = int64_t{p[0]} << 24 | p[1] << 16 | p[2] << 8 | p[3];
    if (size == 0 || size > kMaxBytes / elements) {
      return absl::DataLossError(absl::StrCat(idx->path, ": dimension ", d, " is ", size));
    }
    idx->dims.push_back(size);
    elements *= size;
  }
  const int64_t have = static_cast<int64_t>(b.size() - 4 - 4 * rank);
  if (have != elements) {
    return absl::DataLossError(absl::StrCat(idx->path, " is ", have < elements ? "truncated in" : "longer than",
                                            " record ", std::min(have / (elements / idx->dims[0]), idx->dims[0]),
                                            " of ", idx->dims[0], ": ", have, " bytes of data, expected ", elements));
  }
  return absl::OkStatus();
}

class IdxReader : public Reader {
 public:
  IdxReader() { columns_ = {{"image", {DType::kU8, {0, 0, 1}}}, {"label", {DType::kI32, {}}}}; }

  Status Add(const std::string& image_path, const std::string& label_path) {
    Part part;
    part.images.path = image_path;
    part.labels.path = label_path;
    RETURN_IF_ERROR(ReadFileInflated(image_path, kMaxBytes, &part.images.bytes));
    RETURN_IF_ERROR(ReadFileInflated(label_path, kMaxBytes, &part.labels.bytes));
    RETURN_IF_ERROR(ParseIdx(3, &part.images));
    RETURN_IF_ERROR(ParseIdx(1, &part.labels));
    if (part.images.dims[0] != part.labels.dims[0]) {
      return absl::DataLossError(absl::StrCat(image_path, " has ", part.images.dims[0], " images but ", label_path,
                                              " has ", part.labels.dims[0], " labels"));
    }
    const Shape shape = {part.images.dims[1], part.images.dims[2], 1};
    if (!parts_.empty() && shape != columns_[0].type.shape) {
      return absl::DataLossError(absl::StrCat(image_path, ": images are ", ToString(shape), ", in ",
                                              parts_[0].images.path, " ", ToString(columns_[0].type.shape)));
    }
    columns_[0].type.shape = shape;
    part.first = size_;
    size_ += part.images.dims[0];
    parts_.push_back(std::move(part));
    return absl::OkStatus();
  }

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    const Part& part = PartOf(i);
    const int64_t record = i - part.first;
    buffers->ints.resize(1);
    buffers->ints[0] = part.labels.data()[record];
    if (buffers->ints[0] > 9) {
      return absl::DataLossError(
          absl::StrCat(part.labels.path, ", record ", record, ": label is ", buffers->ints[0], ", expected 0..9"));
    }
    row[0] = RawColumn{part.images.data() + record * columns_[0].type.elements(), columns_[0].type};
    row[1] = RawColumn{buffers->ints.data(), columns_[1].type};
    return absl::OkStatus();
  }

  std::string Where(int64_t i) const override {
    return absl::StrCat(PartOf(i).images.path, ", record ", i - PartOf(i).first);
  }

 private:
  struct Part {
    Idx images, labels;
    int64_t first = 0;  // sample number of its record 0
  };
  const Part& PartOf(int64_t i) const { return parts_.size() > 1 && i >= parts_[1].first ? parts_[1] : parts_[0]; }
  std::vector<Part> parts_;  // training, test
};

// The path of `name` or `name`.gz in the folder or the subfolders that downloads unpack to; empty: neither.
std::string Find(const std::string& folder, const std::vector<std::string>& subfolders, const std::string& name) {
  for (const std::string& sub : subfolders) {
    for (const char* suffix : {"", ".gz"}) {
      const std::string path = absl::StrCat(folder, sub, "/", name, suffix);
      if (IsFile(path)) return path;
    }
  }
  return "";
}

}  // namespace

StatusOr<std::unique_ptr<Reader>> OpenIdx(const IdxFolder& names, const Fields& fields) {
  const std::string folder = fields.String("dataset_dir");
  const Usage usage = UsageOf(fields);
  auto reader = std::make_unique<IdxReader>();
  for (const Usage part : {Usage::kTrain, Usage::kTest}) {
    if (usage != Usage::kAll && usage != part) continue;
    const char* prefix = part == Usage::kTrain ? "train" : "t10k";
    std::string paths[2];
    const char* kinds[2] = {"-images-idx3-ubyte", "-labels-idx1-ubyte"};
    for (int k = 0; k < 2; ++k) {
      paths[k] = Find(folder, names.subfolders, absl::StrCat(prefix, kinds[k]));
      if (paths[k].empty()) {
        return absl::NotFoundError(absl::StrCat(
            names.dataset, ": no ", prefix, kinds[k], " (or .gz) in '", folder, "'; download ", names.download,
            names.make == nullptr ? std::string()
                                  : absl::StrCat(", or make a stand-in: mslua data make ", names.make, " ", folder)));
      }
    }
    RETURN_IF_ERROR(reader->Add(paths[0], paths[1]));
  }
  return StatusOr<std::unique_ptr<Reader>>(std::move(reader));
}

}  // namespace mslua::data
