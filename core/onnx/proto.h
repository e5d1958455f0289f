// The wire format of protocol buffers, written: what an ONNX file consists of (protobuf.dev, "Encoding").
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace mslua {

// One message. Fields are numbered as onnx.proto numbers them.
class ProtoMessage {
 public:
  ProtoMessage& Int(int field, int64_t value) {
    Varint(static_cast<uint64_t>(field) << 3);
    Varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtoMessage& Float(int field, float value) {
    Varint(static_cast<uint64_t>(field) << 3 | 5);
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);  // little-endian, as this program's machines are
    bytes_.append(bytes, sizeof value);
    return *this;
  }
  ProtoMessage& Bytes(int field, absl::string_view value) {
    Varint(static_cast<uint64_t>(field) << 3 | 2);
    Varint(value.size());
    bytes_.append(value.data(), value.size());
    return *this;
  }
  ProtoMessage& Message(int field, const ProtoMessage& value) { return Bytes(field, value.bytes_); }

  const std::string& bytes() const { return bytes_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_.push_back(static_cast<char>(value | 128));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

}  // namespace mslua
