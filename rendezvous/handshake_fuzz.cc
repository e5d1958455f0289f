// The handshake of connections: whatever messages come, who does not know the secret is neither accepted nor believed.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "rendezvous/control.h"
#include "rendezvous/handshake.h"

namespace {

using mslua::ControlMessage;

// The next message of the input, with its length and checksum made right: damage is to reach what is behind them.
std::string Next(absl::string_view* text) {
  if (text->size() < 3) return "";
  ControlMessage message;
  message.type = static_cast<ControlMessage::Type>(static_cast<uint8_t>((*text)[0]) % 15);
  int fields = static_cast<uint8_t>((*text)[1]) % 8;
  text->remove_prefix(2);
  const auto take = [text] {
    if (text->empty()) return std::string();
    const size_t size = std::min<size_t>(static_cast<uint8_t>((*text)[0]), text->size() - 1);
    std::string taken(text->substr(1, size));
    text->remove_prefix(1 + size);
    return taken;
  };
  for (; fields > 0; --fields) {
    const std::string name = take();
    message.fields[name] = take();
  }
  return mslua::EncodeControl(message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::string_view text(reinterpret_cast<const char*>(data), size);
  mslua::Acceptor acceptor("the secret of a test", [](const mslua::ConnectionUse&) { return ""; });
  mslua::Dialler dialler("the secret of a test", {});
  if (!dialler.Start().ok()) std::abort();
  while (text.size() >= 3) {
    const auto message = mslua::DecodeControl(Next(&text));
    if (!message.ok()) continue;
    const ControlMessage answer = acceptor.Answer(*message);
    if (acceptor.accepted() || answer.type == ControlMessage::Type::kAccept) std::abort();
    if (mslua::EncodeControl(answer).size() > 1024) std::abort();
    if (dialler.Finish(*message).ok()) std::abort();
    (void)dialler.Prove(*message);
  }
  return 0;
}
