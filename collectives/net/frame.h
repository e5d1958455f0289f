// Frames of collectives between hosts: a fixed header, the recipe line, the payload. Pure functions over bytes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "collectives/communicator.h"
#include "core/base/status.h"

namespace mslua {

struct Frame {
  enum class Type : uint8_t {
    kAnnounce,  // of a collective, without payload
    kData,      // of a collective's stage, or of a message
    kAnswer,    // to a message: taken, or refused (`status`), when the payload describes the receiver's call
    kAbort,     // the group is over; `status` and the payload say why
  };
  Type type = Type::kData;
  uint8_t stage = 0;
  uint16_t status = 0;  // an absl::StatusCode; of kAbort kAborted or kFailedPrecondition (AsSeenByOthers)
  uint32_t epoch = 0;
  uint64_t group = 0;     // hash of the group's key
  uint64_t sequence = 0;  // of the group's collectives, or of the messages of a pair
  uint64_t bytes = 0;     // of the payload
  uint32_t payload_crc = 0;
  uint32_t source_crc = 0;  // of a frame that was received
  // The call: kind, reduce, dtype, peer, tag, count and source count.
  Call call;
};

inline constexpr int kFrameHeaderBytes = 72;
// Where in the header the length of the source lies.
inline constexpr int kSourceSizeAt = 53;
inline constexpr uint64_t kMaxFramePayload = uint64_t{1} << 40;
inline constexpr int kMaxSourceBytes = 95;

// Header and source, ready to be followed by the payload.
std::string EncodeFrame(const Frame& frame);
// From kFrameHeaderBytes bytes; `*source_bytes` of source follow. DataLoss: not a header, or damaged.
StatusOr<Frame> DecodeFrameHeader(absl::string_view header, int* source_bytes);

// True when two ranks' announcements are of one call.
bool SameCall(const Call& a, const Call& b);

}  // namespace mslua
