// Tensors as NumPy's .npz: a zip archive of stored .npy arrays. Formats: numpy/lib/format.py; PKWARE's APPNOTE.TXT,
// with zip64 for what is beyond 4 GiB.
#include <zlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/atomic_file.h"
#include "core/base/round_up.h"
#include "core/checkpoint/safetensors.h"

namespace mslua {
namespace {

constexpr int64_t kChunk = 1 << 18;       // elements at a time
constexpr uint64_t kWide = 0xffffffff;    // a 32-bit field that zip64 has instead
constexpr uint64_t kMaxMembers = 0xffff;  // of the 16-bit field
constexpr size_t kAlignment = 64;         // of an array's elements in its member, as NumPy has it

void Put(std::string* to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to->push_back(static_cast<char>(value >> (8 * i)));
}

// NumPy has no bf16: its numbers are written as f32.
const char* TypeText(DType t) {
  switch (t) {
    case DType::kF32:
    case DType::kBF16:
      return "<f4";
    case DType::kF64:
      return "<f8";
    case DType::kF16:
      return "<f2";
    case DType::kI32:
      return "<i4";
    case DType::kI64:
      return "<i8";
    case DType::kU8:
      return "|u1";
    case DType::kBool:
      return "|b1";
  }
  return "";
}

int64_t StoredBytes(const TensorType& t) { return t.elements() * (t.dtype == DType::kBF16 ? 4 : SizeOf(t.dtype)); }

std::string ArrayHeader(const TensorType& t) {
  std::string shape;
  for (const int64_t size : t.shape) absl::StrAppend(&shape, size, ",");
  if (t.rank() > 1) shape.pop_back();  // a tuple of one keeps its comma
  std::string text =
      absl::StrCat("{'descr': '", TypeText(t.dtype), "', 'fortran_order': False, 'shape': (", shape, "), }");
  constexpr size_t kBefore = 10;  // magic, version, length
  text.resize(RoundUp(kBefore + text.size() + 1, kAlignment) - kBefore - 1, ' ');
  text.push_back('\n');
  std::string header("\x93NUMPY\x01\x00", 8);
  Put(&header, text.size(), 2);
  return header + text;
}

// Calls f(bytes, n) for the elements of a tensor as they are stored, in parts.
template <class F>
Status ForEachPart(const checkpoint::TensorData& t, F f) {
  const int64_t elements = t.type.elements(), width = SizeOf(t.type.dtype);
  std::vector<float> wide(t.type.dtype == DType::kBF16 ? static_cast<size_t>(std::min(kChunk, elements)) : 0);
  for (int64_t at = 0; at < elements; at += kChunk) {
    const int64_t n = std::min(kChunk, elements - at);
    const char* from = static_cast<const char*>(t.data) + at * width;
    if (t.type.dtype != DType::kBF16) {
      RETURN_IF_ERROR(f(from, n * width));
      continue;
    }
    const BF16* narrow = reinterpret_cast<const BF16*>(from);
    std::copy(narrow, narrow + n, wide.begin());
    RETURN_IF_ERROR(f(reinterpret_cast<const char*>(wide.data()), n * 4));
  }
  return absl::OkStatus();
}

struct Member {
  std::string name;
  uint32_t crc = 0;
  uint64_t size = 0, begin = 0;
};

uint64_t Narrow(uint64_t value) { return std::min(value, kWide); }

// What the member's own header and the directory say alike: from the version to the lengths of name and `extra`.
void PutMember(std::string* to, const Member& m, bool wide, uint64_t extra) {
  constexpr uint64_t kVersion = 45, kDay = 0x21;  // which has zip64; the first of January 1980
  Put(to, kVersion, 2);
  Put(to, 1 << 11, 2);  // names are UTF-8
  Put(to, 0, 2);        // stored
  Put(to, 0, 2);
  Put(to, kDay, 2);
  Put(to, m.crc, 4);
  Put(to, wide ? kWide : m.size, 4);
  Put(to, wide ? kWide : m.size, 4);
  Put(to, m.name.size(), 2);
  Put(to, extra, 2);
}

std::string LocalHeader(const Member& m) {
  const bool wide = m.size >= kWide;
  std::string text("PK\x03\x04", 4);
  PutMember(&text, m, wide, wide ? 20 : 0);
  text += m.name;
  if (wide) {
    Put(&text, 1, 2);
    Put(&text, 16, 2);
    Put(&text, m.size, 8);
    Put(&text, m.size, 8);
  }
  return text;
}

std::string DirectoryEntry(const Member& m) {
  std::string extra;
  if (m.size >= kWide) {
    Put(&extra, m.size, 8);
    Put(&extra, m.size, 8);
  }
  if (m.begin >= kWide) Put(&extra, m.begin, 8);
  if (!extra.empty()) {
    std::string head;
    Put(&head, 1, 2);
    Put(&head, extra.size(), 2);
    extra = head + extra;
  }
  std::string text("PK\x01\x02", 4);
  Put(&text, 45, 2);
  PutMember(&text, m, m.size >= kWide, extra.size());
  text.append(2 + 2 + 2 + 4, '\0');  // comment, disk, attributes
  Put(&text, Narrow(m.begin), 4);
  return text + m.name + extra;
}

// What stands behind the directory, which is bytes [begin, begin + size).
std::string ArchiveEnd(uint64_t members, uint64_t begin, uint64_t size) {
  std::string text;
  if (members >= kMaxMembers || begin >= kWide || size >= kWide) {
    text = std::string("PK\x06\x06", 4);
    Put(&text, 44, 8);  // bytes that follow
    Put(&text, 45, 2);
    Put(&text, 45, 2);
    text.append(4 + 4, '\0');  // disks
    for (const uint64_t value : {members, members, size, begin}) Put(&text, value, 8);
    text += std::string("PK\x06\x07", 4);
    Put(&text, 0, 4);
    Put(&text, begin + size, 8);
    Put(&text, 1, 4);
  }
  text += std::string("PK\x05\x06", 4);
  text.append(2 + 2, '\0');  // disks
  Put(&text, std::min(members, kMaxMembers), 2);
  Put(&text, std::min(members, kMaxMembers), 2);
  Put(&text, Narrow(size), 4);
  Put(&text, Narrow(begin), 4);
  Put(&text, 0, 2);
  return text;
}

}  // namespace

// Writes tensors as an .npz file, whose members have their names; bf16 as f32.
Status SaveNpz(const std::string& path, const std::vector<checkpoint::TensorData>& tensors) {
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path));
  uint64_t at = 0;
  std::string directory;
  for (const checkpoint::TensorData& t : tensors) {
    const std::string header = ArrayHeader(t.type);
    Member m;
    m.name = t.name + ".npy";
    m.size = header.size() + static_cast<uint64_t>(StoredBytes(t.type));
    m.begin = at;
    uLong crc = crc32(0, reinterpret_cast<const Bytef*>(header.data()), static_cast<uInt>(header.size()));
    RETURN_IF_ERROR(ForEachPart(t, [&](const char* bytes, int64_t n) -> Status {
      crc = crc32(crc, reinterpret_cast<const Bytef*>(bytes), static_cast<uInt>(n));
      return absl::OkStatus();
    }));
    m.crc = static_cast<uint32_t>(crc);
    const std::string local = LocalHeader(m);
    RETURN_IF_ERROR(file->Write(local.data(), local.size()));
    RETURN_IF_ERROR(file->Write(header.data(), header.size()));
    RETURN_IF_ERROR(
        ForEachPart(t, [&](const char* bytes, int64_t n) { return file->Write(bytes, static_cast<size_t>(n)); }));
    at += local.size() + m.size;
    directory += DirectoryEntry(m);
  }
  RETURN_IF_ERROR(file->Write(directory.data(), directory.size()));
  const std::string end = ArchiveEnd(tensors.size(), at, directory.size());
  RETURN_IF_ERROR(file->Write(end.data(), end.size()));
  return file->Commit();
}

}  // namespace mslua
