#include "collectives/net/frame.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/hash.h"

namespace mslua {
namespace {

constexpr uint32_t kMagic = 0x666c736d;  // "mslf", little-endian as everything here

struct Wire {
  uint32_t magic, epoch;
  uint64_t group, sequence, bytes;
  int64_t count;
  int32_t peer, tag;
  uint8_t type, stage, kind, reduce, dtype, source_size;
  uint16_t status;
  uint32_t payload_crc, source_crc;
  uint32_t reserved;
  uint32_t header_crc;  // of everything before
};
static_assert(offsetof(Wire, source_size) == kSourceSizeAt, "the format is fixed");
static_assert(sizeof(Wire) == kFrameHeaderBytes, "the format is fixed");

}  // namespace

std::string EncodeFrame(const Frame& frame) {
  Wire wire = {};
  wire.magic = kMagic;
  wire.epoch = frame.epoch;
  wire.group = frame.group;
  wire.sequence = frame.sequence;
  wire.bytes = frame.bytes;
  wire.count = frame.call.count;
  wire.peer = frame.call.peer;
  wire.tag = frame.call.tag;
  wire.type = static_cast<uint8_t>(frame.type);
  wire.stage = frame.stage;
  wire.kind = static_cast<uint8_t>(frame.call.kind);
  wire.reduce = static_cast<uint8_t>(frame.call.reduce);
  wire.dtype = static_cast<uint8_t>(frame.call.dtype);
  wire.source_size = static_cast<uint8_t>(std::min<size_t>(frame.call.source.size(), kMaxSourceBytes));
  wire.status = frame.status;
  wire.payload_crc = frame.payload_crc;
  wire.source_crc = Crc32c(frame.call.source.data(), wire.source_size);
  wire.header_crc = Crc32c(&wire, offsetof(Wire, header_crc));
  std::string text(reinterpret_cast<const char*>(&wire), sizeof wire);
  return text.append(frame.call.source.data(), wire.source_size);
}

StatusOr<Frame> DecodeFrameHeader(absl::string_view header, int* source_bytes) {
  Wire wire;
  if (header.size() != sizeof wire) return absl::DataLossError("a frame header is truncated");
  std::memcpy(&wire, header.data(), sizeof wire);
  if (wire.magic != kMagic) return absl::DataLossError("received bytes are not a frame of mslua's collectives");
  if (wire.header_crc != Crc32c(&wire, offsetof(Wire, header_crc))) {
    return absl::DataLossError("a frame header is damaged: its CRC32C differs");
  }
  if (wire.type > static_cast<uint8_t>(Frame::Type::kAbort) || wire.kind >= kNumCollectives ||
      wire.reduce >= kNumReduceOps || wire.dtype >= kNumDTypes || wire.source_size > kMaxSourceBytes ||
      wire.count < 0 || wire.bytes > kMaxFramePayload) {
    return absl::DataLossError("a frame header holds values out of range");
  }
  const auto code = static_cast<absl::StatusCode>(wire.status);
  if (wire.type == static_cast<uint8_t>(Frame::Type::kAbort) && code != absl::StatusCode::kAborted &&
      code != absl::StatusCode::kFailedPrecondition) {
    return absl::DataLossError(absl::StrCat("an abort has status ", wire.status));
  }
  *source_bytes = wire.source_size;
  Frame frame;
  frame.type = static_cast<Frame::Type>(wire.type);
  frame.stage = wire.stage;
  frame.status = wire.status;
  frame.epoch = wire.epoch;
  frame.group = wire.group;
  frame.sequence = wire.sequence;
  frame.bytes = wire.bytes;
  frame.payload_crc = wire.payload_crc;
  frame.source_crc = wire.source_crc;
  frame.call.kind = static_cast<Collective>(wire.kind);
  frame.call.reduce = static_cast<ReduceOp>(wire.reduce);
  frame.call.dtype = static_cast<DType>(wire.dtype);
  frame.call.peer = wire.peer;
  frame.call.tag = wire.tag;
  frame.call.count = wire.count;
  return frame;
}

bool SameCall(const Call& a, const Call& b) {
  return a.kind == b.kind && a.reduce == b.reduce && a.dtype == b.dtype && a.peer == b.peer && a.count == b.count;
}

}  // namespace mslua
