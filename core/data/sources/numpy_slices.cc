// Arrays in memory as a dataset.
#include "absl/strings/str_cat.h"
#include "core/data/sources/define.h"

namespace mslua::data {
namespace {

class SlicesReader : public Reader {
 public:
  explicit SlicesReader(std::vector<NamedArray> arrays) : arrays_(std::move(arrays)) {
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

  bool in_memory() const override { return true; }
  std::string Where(int64_t i) const override { return absl::StrCat("NumpySlicesDataset, row ", i + 1); }

 private:
  std::vector<NamedArray> arrays_;
};

StatusOr<std::unique_ptr<Reader>> Open(const Fields& fields) {
  const std::vector<NamedArray>& arrays = fields.Arrays("data");
  if (arrays.empty()) return absl::InvalidArgumentError("NumpySlicesDataset: expected at least one array");
  const auto& first = arrays[0];
  for (const auto& array : arrays) {
    if (array.type.rank() < 1 || first.type.rank() < 1 || array.type.shape[0] != first.type.shape[0]) {
      return absl::InvalidArgumentError(absl::StrCat("NumpySlicesDataset: '", array.name, "' is ", ToString(array.type),
                                                     ", '", first.name, "' is ", ToString(first.type),
                                                     ": expected one first dimension"));
    }
  }
  return std::unique_ptr<Reader>(std::make_unique<SlicesReader>(arrays));
}

}  // namespace

MSLUA_SOURCE(numpy_slices) {
  SourceDef def("numpy_slices", "NumpySlicesDataset");
  def.title = "arrays";
  def.doc =
      "Tensors (or nested lists) whose rows are the samples: `NumpySlicesDataset({x, y}, {\"data\", \"label\"})`, or "
      "`NumpySlicesDataset({data = x, label = y}, {\"data\", \"label\"})`; a tensor or a list of numbers or "
      "booleans is one column.";
  FieldDef data{"data", FieldType::kArrays, "the arrays; all have as many rows"};
  data.required = true;
  def.fields = {data, {"column_names", FieldType::kStrings, "names of the columns, one for each array"}};
  def.open = Open;
  return def;
}

}  // namespace mslua::data
