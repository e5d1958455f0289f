// TensorBoard event files: TFRecord framing (length, masked CRC32C, data, masked CRC32C) around tensorflow.Event
// messages, of which scalars are all that is written (tensorboard/compat/proto/{event,summary}.proto).
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

class EventFile {
 public:
  // Makes `<folder>/events.out.tfevents.<seconds>.<host>.mslua`; the folder must exist.
  static StatusOr<std::unique_ptr<EventFile>> Create(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // A point of curve `tag`. `wall_time` in seconds since 1970.
  void Scalar(absl::string_view tag, int64_t step, float value, double wall_time);
  void Flush() { std::fflush(file_); }

 private:
  explicit EventFile(std::FILE* file) : file_(file) {}
  void Record(const std::string& event);

  std::FILE* file_;
};

// One TFRecord, and one scalar event, as bytes: for tests and for EventFile.
std::string TfRecord(absl::string_view data);
std::string ScalarEvent(absl::string_view tag, int64_t step, float value, double wall_time);

}  // namespace mslua
