// Arrays in memory as a dataset.
#include "absl/strings/str_cat.h"
#include "core/data/reader.h"

namespace mslua::data {
namespace {

class SlicesReader : public Reader {
 public:
  explicit SlicesReader(const NumpySlices& source) : arrays_(source.arrays) {
    for (const auto& array : arrays_) {
      const Shape& shape = array.type.shape;
      columns_.push_back({array.name, {array.type.dtype, Shape(shape.begin() + 1, shape.end())}});
    }
    size_ = arrays_[0].type.shape[0];
  }

  Status Read(int64_t i, ReadBuffers*, absl::Span<RawColumn> row) const override {
    for (size_t k = 0; k < arrays_.size(); ++k) {
      row[k] = RawColumn{static_cast<const uint8_t*>(arrays_[k].data.get()) + i * columns_[k].type.bytes(),
                         columns_[k].type};
    }
    return absl::OkStatus();
  }

  std::string Where(int64_t i) const override { return absl::StrCat("NumpySlicesDataset, row ", i); }

 private:
  std::vector<NumpySlices::Array> arrays_;
};

}  // namespace

StatusOr<std::unique_ptr<Reader>> OpenNumpySlices(const NumpySlices& source) {
  if (source.arrays.empty()) return absl::InvalidArgumentError("NumpySlicesDataset: expected at least one array");
  const auto& first = source.arrays[0];
  for (const auto& array : source.arrays) {
    if (array.type.rank() < 1 || first.type.rank() < 1 || array.type.shape[0] != first.type.shape[0]) {
      return absl::InvalidArgumentError(absl::StrCat("NumpySlicesDataset: '", array.name, "' is ", ToString(array.type),
                                                     ", '", first.name, "' is ", ToString(first.type),
                                                     ": expected one first dimension"));
    }
  }
  return std::unique_ptr<Reader>(std::make_unique<SlicesReader>(source));
}

}  // namespace mslua::data
