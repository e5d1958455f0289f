// Rows of NumPy's arrays. Those that are stored are read from the file when they are asked for, so that an array may be
// larger than memory. The CRC-32 of a large stored array, which would be read twice for it, is checked when its last
// row has been read.
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/folder.h"
#include "core/base/round_up.h"
#include "core/base/text.h"
#include "core/data/numpy_file.h"
#include "core/data/sources/define.h"

namespace mslua::data {
namespace {

constexpr int64_t kReadAhead = 16 << 10;  // bytes of a row from which on asking for it in advance is worth a call
constexpr size_t kAlignment = 16;         // of a row in the buffer

// The CRC-32 of a member whose rows are read in any order: each row counts when it is read for the first time, and the
// sum is known when all have been read.
class RowChecksums {
 public:
  // The member has the bytes `before` and then `rows` rows of `row_bytes`; the archive says `expected`.
  RowChecksums(uint32_t expected, absl::string_view before, int64_t rows, int64_t row_bytes);

  // Row i was read. DataLoss if it was the last one that had not been read and the sum is not the expected one, and
  // from then on. To be called on any thread.
  Status Add(int64_t i, const void* row);

 private:
  static constexpr int64_t kGroup = 1024;  // rows

  Status Verdict() const;
  // What a checksum counts in the sum where `rows` rows follow.
  uint32_t Shifted(uint32_t crc, int64_t rows) const;

  const uint32_t expected_;
  const int64_t rows_, row_bytes_;
  // Operators of zlib that shift a checksum by k rows, and by k groups.
  std::vector<uint32_t> rows_shift_, groups_shift_;
  std::vector<std::atomic<uint64_t>> seen_;  // a bit for each row
  std::atomic<uint32_t> sum_;
  std::atomic<int64_t> left_;  // rows that have not been read
};

// The CRC-32 of bytes A and then B is that of A, shifted by the length of B, xor that of B. So each row has a share of
// its own in that of the member.
RowChecksums::RowChecksums(uint32_t expected, absl::string_view before, int64_t rows, int64_t row_bytes)
    : expected_(expected), rows_(rows), row_bytes_(row_bytes), seen_(static_cast<size_t>(rows / 64 + 1)), left_(rows) {
  const auto shift = [&](int64_t n) { return static_cast<uint32_t>(crc32_combine_gen(n * row_bytes)); };
  for (int64_t k = 0; k <= std::min(rows, kGroup - 1); ++k) rows_shift_.push_back(shift(k));
  for (int64_t k = 0; k <= rows / kGroup; ++k) groups_shift_.push_back(shift(k * kGroup));
  sum_ = Shifted(Crc32(before.data(), before.size()), rows);
}

uint32_t RowChecksums::Shifted(uint32_t crc, int64_t rows) const {
  const uLong in_group = crc32_combine_op(crc, 0, rows_shift_[static_cast<size_t>(rows % kGroup)]);
  return static_cast<uint32_t>(crc32_combine_op(in_group, 0, groups_shift_[static_cast<size_t>(rows / kGroup)]));
}

Status RowChecksums::Verdict() const { return sum_ == expected_ ? absl::OkStatus() : DamagedCrc32(sum_, expected_); }

Status RowChecksums::Add(int64_t i, const void* row) {
  if (left_ == 0) return Verdict();
  const uint64_t bit = uint64_t{1} << (i % 64);
  std::atomic<uint64_t>& word = seen_[static_cast<size_t>(i / 64)];
  if ((word & bit) != 0 || (word.fetch_or(bit) & bit) != 0) return absl::OkStatus();
  sum_ ^= Shifted(Crc32(row, static_cast<size_t>(row_bytes_)), rows_ - 1 - i);
  return --left_ == 0 ? Verdict() : absl::OkStatus();
}

// An array whose rows are read.
struct Column {
  NumpyArray array;
  std::string name = {};
  int64_t row = 0;                                    // bytes of a row
  std::shared_ptr<RowChecksums> checksums = nullptr;  // null: there is nothing to check while rows are read
};

// "digits/x" -> "x"
std::string ColumnName(absl::string_view path) {
  path.remove_prefix(path.rfind('/') == absl::string_view::npos ? 0 : path.rfind('/') + 1);
  return std::string(path);
}

class NumpyReader : public Reader {
 public:
  static StatusOr<std::unique_ptr<Reader>> Open(const Fields& fields) {
    auto reader = std::unique_ptr<NumpyReader>(new NumpyReader);
    const std::vector<std::string> wanted = fields.Strings("column_names");
    for (const std::string& path : fields.Strings("dataset_files")) RETURN_IF_ERROR(reader->AddFile(path, wanted));
    RETURN_IF_ERROR(reader->Choose(wanted));
    RETURN_IF_ERROR(reader->MakeColumns());
    return StatusOr<std::unique_ptr<Reader>>(std::move(reader));
  }

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    buffers->bytes.resize(bytes_);
    size_t at = 0;
    for (size_t k = 0; k < arrays_.size(); ++k) {
      const auto& [array, name, bytes_of_row, checksums] = arrays_[k];
      uint8_t* place = buffers->bytes.data() + at;
      if (!buffers->places.empty() && buffers->places[k] != nullptr) place = static_cast<uint8_t*>(buffers->places[k]);
      Status status = array.bytes.Read(array.data + i * bytes_of_row, bytes_of_row, place);
      if (status.ok() && checksums != nullptr) status = checksums->Add(i, place);
      if (!status.ok()) return Annotate(status, array.where);
      if (array.type.dtype == DType::kBool && std::any_of(place, place + bytes_of_row, [](uint8_t b) { return b > 1; }))
        return absl::DataLossError(absl::StrCat(array.where, ", row ", i + 1, ": a bool is neither 0 nor 1"));
      row[k] = RawColumn{place, columns_[k].type};
      at += Padded(bytes_of_row);
    }
    return absl::OkStatus();
  }

  void ReadAhead(int64_t i) const override {
    for (const Column& column : arrays_) {
      const NumpyArray& array = column.array;
      if (array.bytes.file != nullptr && column.row >= kReadAhead)
        array.bytes.file->ReadAhead(array.bytes.begin + array.data + i * column.row, column.row);
    }
  }

  std::string Where(int64_t i) const override { return absl::StrCat(arrays_[0].array.where, ", row ", i + 1); }

 private:
  static size_t Padded(int64_t bytes) { return static_cast<size_t>(RoundUp(bytes, kAlignment)); }

  Status AddFile(const std::string& path, const std::vector<std::string>& wanted) {
    if (!IsFile(path)) {
      return absl::NotFoundError(
          absl::StrCat("NumpyDataset: no file '", path, "'; expected one .npz file, or .npy files, a column each"));
    }
    const auto is_wanted = [&](const std::string& name) {
      return wanted.empty() || std::find(wanted.begin(), wanted.end(), ColumnName(name)) != wanted.end();
    };
    ASSIGN_OR_RETURN(std::vector<NumpyArray> arrays, OpenNumpy(path, is_wanted));
    for (NumpyArray& array : arrays) {
      if (array.type.rank() < 1)
        return absl::DataLossError(
            absl::StrCat(array.where, ": it is one number, not rows; name the arrays to read in column_names"));
      if (array.columns_first)
        return absl::DataLossError(
            absl::StrCat(array.where, ": it is in Fortran's order; save numpy.ascontiguousarray(x)"));
      std::string name = ColumnName(array.name);
      arrays_.push_back({std::move(array), std::move(name)});
    }
    return absl::OkStatus();
  }

  // The arrays of these names in this order; all when there are none.
  Status Choose(const std::vector<std::string>& wanted) {
    std::vector<std::string> names;
    for (const Column& column : arrays_) names.push_back(column.name);
    for (const std::string& name : names) {
      if (std::count(names.begin(), names.end(), name) > 1)
        return absl::InvalidArgumentError(absl::StrCat("NumpyDataset: two arrays are called '", name, "'"));
    }
    std::vector<Column> chosen;
    for (const std::string& name : wanted) {
      const auto it = std::find(names.begin(), names.end(), name);
      if (it == names.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("NumpyDataset: column_names: no array '", name, "'", DidYouMean(name, names)));
      }
      chosen.push_back(arrays_[static_cast<size_t>(it - names.begin())]);
    }
    if (!wanted.empty()) arrays_ = std::move(chosen);
    if (arrays_.empty()) return absl::InvalidArgumentError("NumpyDataset: dataset_files: expected at least one array");
    return absl::OkStatus();
  }

  Status MakeColumns() {
    const NumpyArray& first = arrays_[0].array;
    size_ = first.type.shape[0];
    for (Column& column : arrays_) {
      const NumpyArray& array = column.array;
      if (array.type.shape[0] != size_) {
        return absl::DataLossError(
            absl::StrCat(array.where, ": ", array.type.shape[0], " rows, ", first.where, " has ", size_));
      }
      const TensorType row{array.type.dtype, Shape(array.type.shape.begin() + 1, array.type.shape.end())};
      column.row = row.bytes();
      if (array.bytes.crc) RETURN_IF_ERROR(CheckRows(&column));
      bytes_ += Padded(column.row);
      columns_.push_back({column.name, row});
    }
    if (size_ == 0) return absl::DataLossError(absl::StrCat(first.where, ": it has no row"));
    return absl::OkStatus();
  }

  // Checks the array while its rows are read.
  Status CheckRows(Column* column) const {
    const NumpyArray& array = column->array;
    std::string before(static_cast<size_t>(array.data), '\0');
    RETURN_IF_ERROR(array.bytes.Read(0, array.data, &before[0]));
    column->checksums = std::make_shared<RowChecksums>(*array.bytes.crc, before, size_, column->row);
    return absl::OkStatus();
  }

  std::vector<Column> arrays_;
  size_t bytes_ = 0;  // of a row of all arrays
};

}  // namespace

MSLUA_SOURCE(numpy) {
  SourceDef def("numpy", "NumpyDataset");
  def.title = "NumPy files";
  def.doc =
      "Rows of NumPy's arrays: a column for each array of an .npz file, or for each .npy file, under its name. "
      "`NumpyDataset(\"train.npz\", {\"image\", \"label\"})`.";
  def.fields = {PathField("dataset_files", "an .npz file, an .npy file, or a list of .npy files", FieldType::kPaths),
                {"column_names", FieldType::kStrings, "the arrays to read, in this order (default: all)"}};
  def.open = NumpyReader::Open;
  def.fits = [](const std::string& path) { return absl::EndsWith(path, ".npy") || absl::EndsWith(path, ".npz"); };
  def.expects = "a .npy or .npz file";
  def.order = 1;
  return def;
}

}  // namespace mslua::data
