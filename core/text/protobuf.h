// Reads the wire format of protocol buffers: the fields of one message.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua::text {

// while (*more) { switch (message.field()) ... }
class ProtoReader {
 public:
  explicit ProtoReader(absl::string_view bytes) : rest_(bytes), size_(bytes.size()) {}

  // Moves to the next field; false at the end. DATA_LOSS with the offset: truncated, or a wire type that is not known.
  StatusOr<bool> Next();
  int field() const { return field_; }
  bool is_bytes() const { return type_ == 2; }
  absl::string_view bytes() const { return bytes_; }  // of a string or a message
  int64_t integer() const { return static_cast<int64_t>(number_); }
  float number() const;  // a 32 bit number

 private:
  StatusOr<uint64_t> Varint();
  Status Truncated() const;

  absl::string_view rest_;
  size_t size_;
  int field_ = 0, type_ = 0;
  absl::string_view bytes_;
  uint64_t number_ = 0;
};

}  // namespace mslua::text
