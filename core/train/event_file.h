// TensorBoard event files: TFRecord framing (length, masked CRC32C, data, masked CRC32C) around tensorflow.Event
// messages (tensorboard/compat/proto/{event,summary,tensor}.proto).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "core/files/record_file.h"
#include "core/train/histogram.h"

namespace mslua {

// Seconds since 1970, as records of a training have them.
double WallTime();

// What an event shows besides its numbers.
struct EventPlace {
  absl::string_view tag;
  int64_t step = 0;
  double wall_time = 0;  // seconds since 1970
};

class EventFile {
 public:
  // Makes `<folder>/events.out.tfevents.<seconds>.<host>.mslua`; the folder must exist. `health` outlives the file.
  static StatusOr<std::unique_ptr<EventFile>> Create(const std::string& folder, RecordHealth* health);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // A point of curve `tag`. `wall_time` in seconds since 1970.
  void Scalar(absl::string_view tag, int64_t step, float value, double wall_time);
  // One of the events below.
  void Add(const std::string& event);
  void Flush() { file_->Flush(); }

 private:
  explicit EventFile(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<RecordFile> file_;
};

// One TFRecord, and events, as bytes.
std::string TfRecord(absl::string_view data);
std::string ScalarEvent(absl::string_view tag, int64_t step, float value, double wall_time);
// A run resumes: what earlier files of the folder have of `step` and later ones is shown no more.
std::string RestartEvent(int64_t step, double wall_time);
std::string HistogramEvent(const EventPlace& place, const Histogram& histogram);
// The text plugin shows it as Markdown.
std::string TextEvent(const EventPlace& place, absl::string_view text);
// `png`: the bytes of a PNG file with 1 (grey) or 3 (RGB) channels.
std::string ImageEvent(const EventPlace& place, int64_t height, int64_t width, int64_t channels, absl::string_view png);

}  // namespace mslua
