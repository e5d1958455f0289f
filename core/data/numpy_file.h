// NumPy's files: .npy (an array) and .npz (a zip archive of them, stored or deflated). Arrays that are stored are read
// from the file when they are asked for; deflated ones are inflated when the file is opened. Formats:
// numpy/lib/format.py; PKWARE's APPNOTE.TXT, with zip64.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "core/base/input_file.h"
#include "core/base/shape.h"
#include "core/base/status.h"

namespace mslua::data {

// Bytes of a file or of memory.
struct NumpyBytes {
  std::shared_ptr<InputFile> file;  // null: memory
  std::shared_ptr<const std::vector<char>> memory;
  int64_t begin = 0, size = 0;
  absl::optional<uint32_t> crc = absl::nullopt;  // to be checked while they are read

  // DataLoss: they end before.
  Status Read(int64_t at, int64_t n, void* out) const;
};

struct NumpyArray {
  std::string name;   // "digits/x" of the member digits/x.npy
  std::string where;  // "x.npz, member 'digits/x.npy'"
  NumpyBytes bytes;
  TensorType type = {};
  int64_t data = 0;            // where the elements begin
  bool columns_first = false;  // in Fortran's order: the first subscript varies fastest
};

// The arrays of the file, in their order; those alone that `wanted` takes by their names. An archive's CRC-32 is
// checked here, but for large stored arrays (NumpyBytes::crc). DataLoss with the file and the member: damaged,
// truncated, encrypted, or an array of a type that is not read here.
StatusOr<std::vector<NumpyArray>> OpenNumpy(const std::string& path,
                                            const std::function<bool(const std::string& name)>& wanted);

// The whole array into `out`, type.bytes(), the last subscript varying fastest. DataLoss: it is damaged, or a bool is
// neither 0 nor 1.
Status ReadNumpy(const NumpyArray& array, void* out);

// zlib's CRC-32 of n bytes that follow those with the CRC-32 `before`.
uint32_t Crc32(const void* bytes, size_t n, uint32_t before = 0);
// DataLoss that says both.
Status DamagedCrc32(uint32_t found, uint32_t expected);

}  // namespace mslua::data
