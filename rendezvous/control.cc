#include "rendezvous/control.h"

#include <cstring>

#include "core/base/hash.h"

namespace mslua {
namespace {

constexpr uint32_t kMagic = 0x636c736d;

struct Header {
  uint32_t magic, type, bytes, crc;  // crc of type, bytes and body
};
static_assert(sizeof(Header) == kControlHeaderBytes, "the format is fixed");

uint32_t Checksum(const Header& header, absl::string_view body) {
  return Crc32c(body.data(), body.size(), Crc32c(&header.type, 8));
}

size_t Limit(uint32_t type) {
  switch (static_cast<ControlMessage::Type>(type)) {
    case ControlMessage::Type::kChallenge:
    case ControlMessage::Type::kProof:
      return 1 << 10;
    case ControlMessage::Type::kJoin:
      return 4 << 10;
    case ControlMessage::Type::kWelcome:
      return 4 << 20;
    default:
      return 64 << 10;
  }
}

void Append(std::string* to, absl::string_view text) {
  const uint32_t size = static_cast<uint32_t>(text.size());
  to->append(reinterpret_cast<const char*>(&size), sizeof size).append(text.data(), text.size());
}

bool Take(absl::string_view* from, std::string* text) {
  uint32_t size;
  if (from->size() < sizeof size) return false;
  std::memcpy(&size, from->data(), sizeof size);
  from->remove_prefix(sizeof size);
  if (from->size() < size) return false;
  text->assign(from->data(), size);
  from->remove_prefix(size);
  return true;
}

}  // namespace

std::string ControlMessage::Field(const std::string& name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : found->second;
}

bool StartsControl(absl::string_view first) {
  return first.size() >= sizeof kMagic && std::memcmp(first.data(), &kMagic, sizeof kMagic) == 0;
}

std::string EncodeControl(const ControlMessage& message) {
  std::string body;
  for (const auto& [name, value] : message.fields) {
    Append(&body, name);
    Append(&body, value);
  }
  const size_t most = Limit(static_cast<uint32_t>(message.type));
  for (const char* reason : {"why", "line"}) {
    const auto text = message.fields.find(reason);
    if (body.size() <= most || text == message.fields.end()) continue;
    constexpr absl::string_view kMark = " ... (too long)";
    const size_t excess = body.size() - most + kMark.size();
    if (text->second.size() < excess) continue;
    ControlMessage shorter = message;
    shorter.fields[reason] = absl::StrCat(text->second.substr(0, text->second.size() - excess), kMark);
    return EncodeControl(shorter);
  }
  Header header = {kMagic, static_cast<uint32_t>(message.type), static_cast<uint32_t>(body.size()), 0};
  header.crc = Checksum(header, body);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

StatusOr<ControlMessage::Type> ControlTypeOf(absl::string_view bytes) {
  Header header;
  if (bytes.size() < sizeof header) return absl::DataLossError("a control message is truncated");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic || header.type > static_cast<uint32_t>(ControlMessage::Type::kRegroup)) {
    return absl::DataLossError("received bytes are not a control message of mslua");
  }
  return static_cast<ControlMessage::Type>(header.type);
}

StatusOr<size_t> ControlBodyBytes(absl::string_view bytes) {
  RETURN_IF_ERROR(ControlTypeOf(bytes).status());
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.bytes > Limit(header.type)) return absl::DataLossError("a control message is too long");
  return header.bytes;
}

StatusOr<ControlMessage> DecodeControl(absl::string_view bytes) {
  ASSIGN_OR_RETURN(const size_t size, ControlBodyBytes(bytes));
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  absl::string_view body = bytes.substr(sizeof header);
  if (body.size() != size || header.crc != Checksum(header, body)) {
    return absl::DataLossError("a control message is damaged");
  }
  ControlMessage message;
  message.type = static_cast<ControlMessage::Type>(header.type);
  while (!body.empty()) {
    std::string name, value;
    if (!Take(&body, &name) || !Take(&body, &value) || !message.fields.emplace(name, value).second) {
      return absl::DataLossError("a control message is malformed");
    }
  }
  return message;
}

}  // namespace mslua
