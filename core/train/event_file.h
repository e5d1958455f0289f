// TensorBoard event files: TFRecord framing (length, masked CRC32C, data, masked CRC32C) around tensorflow.Event
// messages, of which scalars are all that is written (tensorboard/compat/proto/{event,summary}.proto).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "core/files/record_file.h"

namespace mslua {

class EventFile {
 public:
  // Makes `<folder>/events.out.tfevents.<seconds>.<host>.mslua`; the folder must exist. `health` outlives the file.
  static StatusOr<std::unique_ptr<EventFile>> Create(const std::string& folder, RecordHealth* health);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // A point of curve `tag`. `wall_time` in seconds since 1970.
  void Scalar(absl::string_view tag, int64_t step, float value, double wall_time);
  void Flush() { file_->Flush(); }

 private:
  explicit EventFile(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<RecordFile> file_;
};

// One TFRecord, and one scalar event, as bytes: for tests and for EventFile.
std::string TfRecord(absl::string_view data);
std::string ScalarEvent(absl::string_view tag, int64_t step, float value, double wall_time);

}  // namespace mslua
