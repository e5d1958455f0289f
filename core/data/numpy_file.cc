#include "core/data/numpy_file.h"

#include <immintrin.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace mslua::data {
namespace {

constexpr int64_t kMaxHeader = 1 << 20;       // bytes of an array's header
constexpr int64_t kMaxDirectory = 64 << 20;   // bytes of an archive's directory
constexpr int64_t kMaxInflation = 1032;       // times that deflate makes a text shorter, at most
constexpr int64_t kCheckedAtOnce = 64 << 20;  // bytes of a stored array that is read twice

uint64_t Little(const char* p, int bytes) {
  uint64_t value = 0;
  for (int k = bytes - 1; k >= 0; --k) value = value << 8 | static_cast<uint8_t>(p[k]);
  return value;
}

// ---- Checksums -----------------------------------------------------------------------------------------------------

// x^n modulo CRC-32's polynomial, as carry-less products of reflected numbers take it.
int64_t PowerOfX(int n) {
  uint32_t power = 0x80000000;
  for (int i = 0; i < n; ++i) power = (power & 1) != 0 ? power >> 1 ^ 0xedb88320 : power >> 1;
  return static_cast<int64_t>(power) << 1;
}

// x, moved by the distance that `powers` stands for, and the 16 bytes that stand there.
__attribute__((target("pclmul"))) __m128i Fold(__m128i x, __m128i powers, const char* bytes) {
  const __m128i there = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  const __m128i low = _mm_clmulepi64_si128(x, powers, 0x00), high = _mm_clmulepi64_si128(x, powers, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

// Of at least 64 bytes, in four lanes of 16 bytes, at three times zlib's rate: Gopal and others, "Fast CRC Computation
// for Generic Polynomials Using PCLMULQDQ Instruction", 2009.
__attribute__((target("pclmul"))) uint32_t FoldedCrc32(const char* p, size_t n, uint32_t before) {
  constexpr int kLanes = 4;
  constexpr size_t kLane = 16, kStride = kLanes * kLane;
  static const int64_t far[] = {PowerOfX(8 * kStride + 32), PowerOfX(8 * kStride - 32)};
  static const int64_t near[] = {PowerOfX(8 * kLane + 32), PowerOfX(8 * kLane - 32)};
  const __m128i stride = _mm_set_epi64x(far[1], far[0]), lane = _mm_set_epi64x(near[1], near[0]);
  __m128i x[kLanes];
  std::memcpy(x, p, kStride);
  x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(static_cast<int>(~before)));
  for (p += kStride, n -= kStride; n >= kStride; p += kStride, n -= kStride) {
    for (int k = 0; k < kLanes; ++k) x[k] = Fold(x[k], stride, p + k * kLane);
  }
  char rest[kLane];
  for (int k = 1; k < kLanes; ++k) {
    std::memcpy(rest, &x[k], kLane);
    x[0] = Fold(x[0], lane, rest);
  }
  std::memcpy(rest, &x[0], kLane);
  const uLong folded = crc32_z(0xffffffff, reinterpret_cast<const Bytef*>(rest), kLane);
  return static_cast<uint32_t>(crc32_z(folded, reinterpret_cast<const Bytef*>(p), n));
}

// ---- Arrays --------------------------------------------------------------------------------------------------------

// The text behind `'key':` of a header's dictionary; empty: there is none.
absl::string_view After(absl::string_view header, absl::string_view key) {
  const size_t at = header.find(absl::StrCat("'", key, "':"));
  return at == absl::string_view::npos ? "" : absl::StripLeadingAsciiWhitespace(header.substr(at + key.size() + 3));
}

StatusOr<DType> ElementType(absl::string_view text) {
  static constexpr std::pair<const char*, DType> kTypes[] = {
      {"'<f2'", DType::kF16}, {"'<f4'", DType::kF32}, {"'<f8'", DType::kF64}, {"'<i4'", DType::kI32},
      {"'<i8'", DType::kI64}, {"'|u1'", DType::kU8},  {"'|b1'", DType::kBool}};
  for (const auto& [name, type] : kTypes) {
    if (absl::StartsWith(text, name)) return type;
  }
  return absl::DataLossError(
      absl::StrCat("its element type is ", text.substr(0, std::min<size_t>(text.find(','), 20)),
                   ", expected little-endian float16, float32, float64, int32, int64, uint8 or bool; convert numbers "
                   "with .astype(\"<f4\"), ids and counts with .astype(\"<i8\")"));
}

// "(3, 4)", "(3,)", "()".
StatusOr<Shape> ReadShape(absl::string_view text) {
  const size_t end = text.find(')');
  if (text.empty() || text[0] != '(' || end == absl::string_view::npos)
    return absl::DataLossError("its header has no shape");
  Shape shape;
  int64_t elements = 1;
  for (absl::string_view word : absl::StrSplit(text.substr(1, end - 1), ',')) {
    word = absl::StripAsciiWhitespace(word);
    if (word.empty()) continue;
    int64_t size = 0;
    if (!absl::SimpleAtoi(word, &size) || size < 0 || size > (int64_t{1} << 48) / std::max<int64_t>(elements, 1))
      return absl::DataLossError(absl::StrCat("its shape has a dimension ", word.substr(0, 30)));
    elements *= std::max<int64_t>(size, 1);
    shape.push_back(size);
  }
  if (shape.size() > static_cast<size_t>(kMaxRank) + 1)
    return absl::DataLossError(absl::StrCat("it has ", shape.size(), " dimensions"));
  return shape;
}

// Reads the header: type, data and row.
Status ReadHeader(NumpyArray* array) {
  char start[12];
  if (array->bytes.size < 10) return absl::DataLossError("is no .npy array: it is too short");
  RETURN_IF_ERROR(array->bytes.Read(0, 10, start));
  if (std::memcmp(start, "\x93NUMPY", 6) != 0) return absl::DataLossError("is no .npy array");
  const int width = start[6] == 1 ? 2 : 4;  // of the header's length; version 1, or 2 and 3
  if (start[6] < 1 || start[6] > 3)
    return absl::DataLossError(absl::StrCat("is an .npy array of version ", static_cast<int>(start[6])));
  RETURN_IF_ERROR(array->bytes.Read(8, width, start + 8));
  const int64_t length = static_cast<int64_t>(Little(start + 8, width));
  if (length > kMaxHeader) return absl::DataLossError(absl::StrCat("has a header of ", length, " bytes"));
  std::string header(static_cast<size_t>(length), '\0');
  RETURN_IF_ERROR(array->bytes.Read(8 + width, length, &header[0]));
  array->data = 8 + width + length;
  ASSIGN_OR_RETURN(array->type.dtype, ElementType(After(header, "descr")));
  ASSIGN_OR_RETURN(array->type.shape, ReadShape(After(header, "shape")));
  const absl::string_view fortran = After(header, "fortran_order");
  const bool columns_first = absl::StartsWith(fortran, "True");
  if (!columns_first && !absl::StartsWith(fortran, "False"))
    return absl::DataLossError("its header has no fortran_order");
  array->columns_first = columns_first && array->type.rank() > 1;
  const int64_t have = array->bytes.size - array->data;
  if (have != array->type.bytes()) {
    return absl::DataLossError(absl::StrCat(have < array->type.bytes() ? "it is truncated: " : "it is too long: ", have,
                                            " bytes of data, expected ", array->type.bytes(), " of ",
                                            ToString(array->type)));
  }
  return absl::OkStatus();
}

// ---- Archives ------------------------------------------------------------------------------------------------------

struct Member {
  std::string name;
  int method = 0;  // 0: stored, 8: deflated
  int flags = 0;
  uint32_t crc = 0;
  int64_t packed = 0, size = 0, header = 0;
};

struct Directory {
  int64_t begin = 0, size = 0, members = 0;
};

StatusOr<Directory> FindDirectory(const InputFile& file) {
  constexpr int64_t kEnd = 22, kLocator = 20, kEnd64 = 56;
  std::string tail(static_cast<size_t>(std::min<int64_t>(file.size(), kEnd + 65535 + kLocator)), '\0');
  const int64_t first = file.size() - static_cast<int64_t>(tail.size());
  RETURN_IF_ERROR(file.Read(first, static_cast<int64_t>(tail.size()), &tail[0]));
  const size_t at = tail.rfind("PK\x05\x06");
  if (at == std::string::npos || at + kEnd > tail.size())
    return absl::DataLossError("is truncated, or no .npz archive: it has no directory");
  if (at + kEnd + Little(&tail[at + 20], 2) != tail.size())
    return absl::DataLossError("is damaged: bytes stand behind its end");
  int64_t members = static_cast<int64_t>(Little(&tail[at + 10], 2)),
          size = static_cast<int64_t>(Little(&tail[at + 12], 4)),
          begin = static_cast<int64_t>(Little(&tail[at + 16], 4));
  int64_t end_begin = first + static_cast<int64_t>(at);  // of what follows the directory
  if (begin == 0xffffffff || size == 0xffffffff || members == 0xffff) {
    if (at < kLocator || tail.compare(at - kLocator, 4, "PK\x06\x07") != 0)
      return absl::DataLossError("is damaged: its zip64 directory is missing");
    char end[kEnd64];
    end_begin = static_cast<int64_t>(Little(&tail[at - kLocator + 8], 8));
    RETURN_IF_ERROR(file.Read(end_begin, kEnd64, end));
    members = static_cast<int64_t>(Little(end + 32, 8));
    size = static_cast<int64_t>(Little(end + 40, 8));
    begin = static_cast<int64_t>(Little(end + 48, 8));
  }
  if (begin < 0 || size < 0 || size > kMaxDirectory || begin > file.size() || size > file.size() - begin)
    return absl::DataLossError("is damaged: its directory lies outside the file");
  if (begin + size != end_begin)  // two archives in one file: the members of the first one would be left out
    return absl::DataLossError("is damaged: its directory does not end where the archive's end begins");
  return Directory{begin, size, members};
}

// Sizes and place of a member larger than 4 GiB are in its zip64 field.
Status ReadZip64(absl::string_view extra, Member* member) {
  while (extra.size() >= 4) {
    const uint64_t id = Little(extra.data(), 2), n = Little(extra.data() + 2, 2);
    if (n > extra.size() - 4) break;
    absl::string_view field = extra.substr(4, n);
    extra.remove_prefix(4 + n);
    if (id != 1) continue;
    for (int64_t* value : {&member->size, &member->packed, &member->header}) {
      if (*value != 0xffffffff) continue;
      if (field.size() < 8) return absl::DataLossError("is damaged: a zip64 field is too short");
      *value = static_cast<int64_t>(Little(field.data(), 8));
      field.remove_prefix(8);
    }
  }
  return absl::OkStatus();
}

StatusOr<std::vector<Member>> ListMembers(const InputFile& file) {
  ASSIGN_OR_RETURN(const auto directory, FindDirectory(file));
  std::string bytes(static_cast<size_t>(directory.size), '\0');
  RETURN_IF_ERROR(file.Read(directory.begin, directory.size, &bytes[0]));
  std::vector<Member> members;
  for (size_t at = 0; at < bytes.size();) {
    const char* p = bytes.data() + at;
    const size_t left = bytes.size() - at;
    if (left < 46 || std::memcmp(p, "PK\x01\x02", 4) != 0) return absl::DataLossError("is damaged in its directory");
    const size_t name = Little(p + 28, 2), extra = Little(p + 30, 2), comment = Little(p + 32, 2);
    if (46 + name + extra + comment > left) return absl::DataLossError("is damaged in its directory");
    Member member;
    member.name.assign(p + 46, name);
    member.flags = static_cast<int>(Little(p + 8, 2));
    member.method = static_cast<int>(Little(p + 10, 2));
    member.crc = static_cast<uint32_t>(Little(p + 16, 4));
    member.packed = static_cast<int64_t>(Little(p + 20, 4));
    member.size = static_cast<int64_t>(Little(p + 24, 4));
    member.header = static_cast<int64_t>(Little(p + 42, 4));
    RETURN_IF_ERROR(ReadZip64({p + 46 + name, extra}, &member));
    members.push_back(std::move(member));
    at += 46 + name + extra + comment;
  }
  if (static_cast<int64_t>(members.size()) != directory.members) {
    return absl::DataLossError(
        absl::StrCat("is damaged: its directory has ", members.size(), " members, expected ", directory.members));
  }
  return members;
}

StatusOr<std::shared_ptr<const std::vector<char>>> Inflate(const NumpyBytes& packed, const Member& member) {
  if (member.size < 0 || member.size / kMaxInflation > member.packed + 1)
    return absl::DataLossError("its size is not that of its deflated data");
  std::vector<char> in(static_cast<size_t>(packed.size));
  RETURN_IF_ERROR(packed.Read(0, packed.size, in.data()));
  auto out = std::make_shared<std::vector<char>>(static_cast<size_t>(member.size));
  z_stream stream{};
  if (inflateInit2(&stream, -15) != Z_OK) return absl::InternalError("zlib: inflateInit2 failed");
  size_t used = 0, made = 0;
  int code = Z_OK;
  constexpr size_t kMost = size_t{1} << 30;  // zlib counts in 32 bits
  while (code == Z_OK) {
    stream.next_in = reinterpret_cast<Bytef*>(in.data()) + used;
    stream.avail_in = static_cast<uInt>(std::min(kMost, in.size() - used));
    Bytef spare = 0;
    stream.next_out = made < out->size() ? reinterpret_cast<Bytef*>(out->data()) + made : &spare;
    const size_t room = std::min(kMost, out->size() - made);
    stream.avail_out = static_cast<uInt>(std::max<size_t>(room, 1));
    const size_t had = stream.avail_in, could = stream.avail_out;
    code = inflate(&stream, Z_NO_FLUSH);
    used += had - stream.avail_in;
    made += could - stream.avail_out;
    if (made > out->size()) code = Z_DATA_ERROR;  // into `spare`
  }
  inflateEnd(&stream);
  if (code != Z_STREAM_END || made != out->size() || Crc32(out->data(), made) != member.crc)
    return absl::DataLossError("its deflated data is damaged");
  return std::shared_ptr<const std::vector<char>>(std::move(out));
}

// Of a member that is stored.
Status CheckAtOnce(const NumpyBytes& bytes, uint32_t expected) {
  constexpr int64_t kPiece = 1 << 20;
  std::vector<char> piece(static_cast<size_t>(std::min(kPiece, bytes.size)));
  uint32_t crc = 0;
  for (int64_t at = 0; at < bytes.size; at += kPiece) {
    const int64_t n = std::min(kPiece, bytes.size - at);
    RETURN_IF_ERROR(bytes.Read(at, n, piece.data()));
    crc = Crc32(piece.data(), static_cast<size_t>(n), crc);
  }
  return crc == expected ? absl::OkStatus() : DamagedCrc32(crc, expected);
}

StatusOr<NumpyBytes> OpenMember(const std::shared_ptr<InputFile>& file, const Member& member) {
  char local[30];
  if (member.header < 0 || member.header > file->size() - 30) return absl::DataLossError("it lies outside the file");
  RETURN_IF_ERROR(file->Read(member.header, 30, local));
  if (std::memcmp(local, "PK\x03\x04", 4) != 0) return absl::DataLossError("its header is damaged");
  NumpyBytes bytes{file, nullptr, 0, member.packed};
  bytes.begin = member.header + 30 + static_cast<int64_t>(Little(local + 26, 2) + Little(local + 28, 2));
  if (member.packed < 0 || bytes.begin > file->size() || member.packed > file->size() - bytes.begin)
    return absl::DataLossError("it is truncated");
  if ((member.flags & 1) != 0) return absl::DataLossError("it is encrypted");
  if (member.method == 0) {
    if (bytes.size <= kCheckedAtOnce)
      RETURN_IF_ERROR(CheckAtOnce(bytes, member.crc));
    else
      bytes.crc = member.crc;
    return bytes;
  }
  if (member.method != 8)
    return absl::DataLossError(
        absl::StrCat("its compression is method ", member.method, ", expected stored or deflated"));
  ASSIGN_OR_RETURN(bytes.memory, Inflate(bytes, member));
  bytes.file = nullptr;
  bytes.size = member.size;
  return bytes;
}

}  // namespace

uint32_t Crc32(const void* bytes, size_t n, uint32_t before) {
  static const bool folds = __builtin_cpu_supports("pclmul") != 0;
  if (folds && n >= 64) return FoldedCrc32(static_cast<const char*>(bytes), n, before);
  return static_cast<uint32_t>(crc32_z(before, static_cast<const Bytef*>(bytes), n));
}

Status DamagedCrc32(uint32_t found, uint32_t expected) {
  return absl::DataLossError(
      absl::StrFormat("it is damaged: its CRC-32 is %08x, the archive says %08x", found, expected));
}

Status NumpyBytes::Read(int64_t at, int64_t n, void* out) const {
  if (at < 0 || n < 0 || at > size || n > size - at) return absl::DataLossError("the array is truncated");
  if (file != nullptr) return file->Read(begin + at, n, out);
  std::memcpy(out, memory->data() + at, static_cast<size_t>(n));
  return absl::OkStatus();
}

StatusOr<std::vector<NumpyArray>> OpenNumpy(const std::string& path,
                                            const std::function<bool(const std::string& name)>& wanted) {
  ASSIGN_OR_RETURN(std::unique_ptr<InputFile> opened, InputFile::Open(path));
  const std::shared_ptr<InputFile> file = std::move(opened);
  char magic[4] = {};
  RETURN_IF_ERROR(file->Read(0, std::min<int64_t>(4, file->size()), magic));
  std::vector<NumpyArray> arrays;
  if (std::memcmp(magic, "PK\x03\x04", 4) != 0) {
    arrays.push_back({std::string(absl::StripSuffix(path, ".npy")), path, {file, nullptr, 0, file->size()}});
  } else {
    const StatusOr<std::vector<Member>> members = ListMembers(*file);
    if (!members.ok()) return absl::DataLossError(absl::StrCat(path, " ", members.status().message()));
    for (const Member& member : *members) {
      NumpyArray array{
          std::string(absl::StripSuffix(member.name, ".npy")), absl::StrCat(path, ", member '", member.name, "'"), {}};
      if (!wanted(array.name)) continue;
      StatusOr<NumpyBytes> bytes = OpenMember(file, member);
      if (!bytes.ok()) return Annotate(bytes.status(), array.where);
      array.bytes = *std::move(bytes);
      arrays.push_back(std::move(array));
    }
  }
  for (NumpyArray& array : arrays) {
    const Status status = ReadHeader(&array);
    if (!status.ok()) return Annotate(status, array.where);
  }
  return arrays;
}

namespace {

// Elements of `size` bytes, whose first subscript varies fastest, so that the last one does.
void ReverseOrder(const Shape& shape, int64_t size, const char* from, char* to) {
  Shape strides(shape.size()), at(shape.size(), 0);  // of `from`, in bytes; the element that is copied
  int64_t bytes = size;
  for (size_t d = 0; d < shape.size(); ++d) {
    strides[d] = bytes;
    bytes *= shape[d];
  }
  for (const char* const end = to + bytes; to < end; to += size) {
    std::memcpy(to, from, static_cast<size_t>(size));
    for (size_t d = shape.size(); d-- > 0;) {
      from += strides[d];
      if (++at[d] < shape[d]) break;
      from -= strides[d] * shape[d];
      at[d] = 0;
    }
  }
}

}  // namespace

Status ReadNumpy(const NumpyArray& array, void* out) {
  const int64_t bytes = array.type.bytes();
  std::vector<char> columns(array.columns_first ? static_cast<size_t>(bytes) : 0);
  char* const elements = array.columns_first ? columns.data() : static_cast<char*>(out);
  Status status = array.bytes.Read(array.data, bytes, elements);
  if (status.ok() && array.bytes.crc) {
    std::string header(static_cast<size_t>(array.data), '\0');
    status = array.bytes.Read(0, array.data, &header[0]);
    const uint32_t crc = Crc32(elements, static_cast<size_t>(bytes), Crc32(header.data(), header.size()));
    if (status.ok() && crc != *array.bytes.crc) status = DamagedCrc32(crc, *array.bytes.crc);
  }
  if (status.ok() && array.type.dtype == DType::kBool &&
      std::any_of(elements, elements + bytes, [](char b) { return b != 0 && b != 1; }))
    status = absl::DataLossError("a bool is neither 0 nor 1");
  if (!status.ok()) return Annotate(status, array.where);
  if (array.columns_first) ReverseOrder(array.type.shape, SizeOf(array.type.dtype), elements, static_cast<char*>(out));
  return absl::OkStatus();
}

}  // namespace mslua::data
