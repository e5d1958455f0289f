#include "core/text/protobuf.h"

#include <cstring>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"

namespace mslua::text {

Status ProtoReader::Truncated() const {
  return absl::DataLossError(absl::StrCat("no protocol buffer, or a truncated one, at byte ", size_ - rest_.size(),
                                          " of a message of ", size_));
}

StatusOr<uint64_t> ProtoReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return Truncated();
}

StatusOr<bool> ProtoReader::Next() {
  if (rest_.empty()) return false;
  ASSIGN_OR_RETURN(const uint64_t key, Varint());
  field_ = static_cast<int>(key >> 3 & 0x1fffffff);
  type_ = static_cast<int>(key & 7);
  number_ = 0;
  bytes_ = {};
  if (type_ == 0) {
    ASSIGN_OR_RETURN(number_, Varint());
    return true;
  }
  uint64_t size = type_ == 1 ? 8 : 4;
  if (type_ == 2) {
    ASSIGN_OR_RETURN(size, Varint());
  }
  if ((type_ != 1 && type_ != 2 && type_ != 5) || size > rest_.size()) return Truncated();
  bytes_ = rest_.substr(0, size);
  rest_.remove_prefix(size);
  if (type_ == 5) std::memcpy(&number_, bytes_.data(), 4);
  return true;
}

float ProtoReader::number() const { return absl::bit_cast<float>(static_cast<uint32_t>(number_)); }

}  // namespace mslua::text
