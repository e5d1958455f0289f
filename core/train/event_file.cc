#include "core/train/event_file.h"

#include <unistd.h>

#include <cstring>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "core/base/hash.h"

namespace mslua {
namespace {

// Protocol buffers' wire format, as much as an Event needs.
void Varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out.push_back(static_cast<char>(v | 0x80));
  out.push_back(static_cast<char>(v));
}
template <class T>
void Fixed(std::string& out, T v) {
  char bytes[sizeof v];
  std::memcpy(bytes, &v, sizeof v);
  out.append(bytes, sizeof v);
}
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
void Key(std::string& out, int field, WireType type) { Varint(out, static_cast<uint64_t>(field) << 3 | type); }
void Bytes(std::string& out, int field, absl::string_view data) {
  Key(out, field, kBytes);
  Varint(out, data.size());
  out.append(data.data(), data.size());
}

uint32_t Masked(absl::string_view data) {
  const uint32_t crc = Crc32c(data.data(), data.size());
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

}  // namespace

std::string TfRecord(absl::string_view data) {
  std::string length;
  Fixed<uint64_t>(length, data.size());
  std::string out = length;
  Fixed<uint32_t>(out, Masked(length));
  out.append(data.data(), data.size());
  Fixed<uint32_t>(out, Masked(data));
  return out;
}

std::string ScalarEvent(absl::string_view tag, int64_t step, float value, double wall_time) {
  std::string scalar;  // Summary.Value: tag = 1, simple_value = 2
  Bytes(scalar, 1, tag);
  Key(scalar, 2, kFixed32);
  Fixed<float>(scalar, value);
  std::string summary;  // Summary: value = 1
  Bytes(summary, 1, scalar);
  std::string event;  // Event: wall_time = 1, step = 2, summary = 5
  Key(event, 1, kFixed64);
  Fixed<double>(event, wall_time);
  Key(event, 2, kVarint);
  Varint(event, static_cast<uint64_t>(step));
  Bytes(event, 5, summary);
  return event;
}

StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& folder, RecordHealth* health) {
  char host[64] = "localhost";
  gethostname(host, sizeof host - 1);
  const int64_t now = static_cast<int64_t>(std::time(nullptr));
  const std::string path = absl::StrCat(folder, "/events.out.tfevents.", now, ".", host, ".mslua");
  ASSIGN_OR_RETURN(auto file, RecordFile::Open(path, /*lines=*/false, health));
  std::string version;  // Event: file_version = 3, the first record of every file
  Key(version, 1, kFixed64);
  Fixed<double>(version, static_cast<double>(now));
  Bytes(version, 3, "brain.Event:2");
  file->Append(TfRecord(version));
  return std::unique_ptr<EventFile>(new EventFile(std::move(file)));
}

void EventFile::Scalar(absl::string_view tag, int64_t step, float value, double wall_time) {
  file_->Append(TfRecord(ScalarEvent(tag, step, value, wall_time)));
}

}  // namespace mslua
