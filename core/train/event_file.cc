#include "core/train/event_file.h"

#include <unistd.h>

#include <chrono>
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

double WallTime() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string TfRecord(absl::string_view data) {
  std::string length;
  Fixed<uint64_t>(length, data.size());
  std::string out = length;
  Fixed<uint32_t>(out, Masked(length));
  out.append(data.data(), data.size());
  Fixed<uint32_t>(out, Masked(data));
  return out;
}

namespace {

// Summary.Value: tag = 1, and one of the fields that say what it is.
std::string ValueOf(const EventPlace& place) {
  std::string value;
  Bytes(value, 1, place.tag);
  return value;
}

// Event: wall_time = 1, step = 2.
std::string EventAt(int64_t step, double wall_time) {
  std::string event;
  Key(event, 1, kFixed64);
  Fixed<double>(event, wall_time);
  Key(event, 2, kVarint);
  Varint(event, static_cast<uint64_t>(step));
  return event;
}

std::string EventOf(const EventPlace& place, absl::string_view value) {
  std::string summary;  // Summary: value = 1
  Bytes(summary, 1, value);
  std::string event = EventAt(place.step, place.wall_time);  // summary = 5
  Bytes(event, 5, summary);
  return event;
}

}  // namespace

std::string ScalarEvent(absl::string_view tag, int64_t step, float value, double wall_time) {
  const EventPlace place{tag, step, wall_time};
  std::string scalar = ValueOf(place);  // simple_value = 2
  Key(scalar, 2, kFixed32);
  Fixed<float>(scalar, value);
  return EventOf(place, scalar);
}

std::string RestartEvent(int64_t step, double wall_time) {
  constexpr uint64_t kStart = 1;
  std::string log;  // SessionLog: status = 1
  Key(log, 1, kVarint);
  Varint(log, kStart);
  std::string event = EventAt(step, wall_time);  // session_log = 7
  Bytes(event, 7, log);
  return event;
}

std::string HistogramEvent(const EventPlace& place, const Histogram& histogram) {
  // HistogramProto: min, max, num, sum, sum_squares = 1 to 5, bucket_limit = 6, bucket = 7 (packed)
  std::string histo, limits, counts;
  const double numbers[] = {histogram.low, histogram.high, static_cast<double>(histogram.count), histogram.sum,
                            histogram.squares};
  for (int i = 0; i < 5; ++i) {
    Key(histo, i + 1, kFixed64);
    Fixed<double>(histo, numbers[i]);
  }
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    Fixed<double>(limits, histogram.Edge(i + 1));
    Fixed<double>(counts, static_cast<double>(histogram.counts[i]));
  }
  Bytes(histo, 6, limits);
  Bytes(histo, 7, counts);
  std::string value = ValueOf(place);
  Bytes(value, 5, histo);  // histo = 5
  return EventOf(place, value);
}

std::string TextEvent(const EventPlace& place, absl::string_view text) {
  constexpr uint64_t kString = 7;   // DataType
  std::string size, shape, tensor;  // TensorProto: dtype = 1, tensor_shape = 2 { dim = 2 { size = 1 } }, string_val = 8
  Key(size, 1, kVarint);
  Varint(size, 1);
  Bytes(shape, 2, size);
  Key(tensor, 1, kVarint);
  Varint(tensor, kString);
  Bytes(tensor, 2, shape);
  Bytes(tensor, 8, text);
  std::string plugin, metadata;  // SummaryMetadata: plugin_data = 1 { plugin_name = 1 }
  Bytes(plugin, 1, "text");
  Bytes(metadata, 1, plugin);
  std::string value = ValueOf(place);  // tensor = 8, metadata = 9
  Bytes(value, 8, tensor);
  Bytes(value, 9, metadata);
  return EventOf(place, value);
}

std::string ImageEvent(const EventPlace& place, int64_t height, int64_t width, int64_t channels,
                       absl::string_view png) {
  std::string image;  // Summary.Image: height, width, colorspace = 1 to 3, encoded_image_string = 4
  int field = 0;
  for (const int64_t number : {height, width, channels}) {
    Key(image, ++field, kVarint);
    Varint(image, static_cast<uint64_t>(number));
  }
  Bytes(image, 4, png);
  std::string value = ValueOf(place);
  Bytes(value, 4, image);  // image = 4
  return EventOf(place, value);
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
  Add(ScalarEvent(tag, step, value, wall_time));
}

void EventFile::Add(const std::string& event) { file_->Append(TfRecord(event)); }

}  // namespace mslua
