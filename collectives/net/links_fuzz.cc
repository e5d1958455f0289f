// Bytes from another rank, anything: a wait ends well only when what was awaited has come whole, and nothing is written
// behind the memory that was given for it.
//
// An input is frames. Of each the first byte says whether its lengths and checksums are put right, so that damage
// reaches what is behind them; its group, sequence and payload are kept small, so that some are awaited.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "collectives/net/frame.h"
#include "collectives/net/links.h"
#include "core/base/hash.h"

namespace {

using mslua::Frame;

constexpr int kPeer = 1;
constexpr uint64_t kGroup = 1;
constexpr size_t kCapacity = 24;  // of what is awaited
constexpr char kGuard = 0x5a;

std::string Take(absl::string_view* text, size_t most) {
  std::string taken(text->substr(0, most));
  text->remove_prefix(taken.size());
  return taken;
}

// A frame that a rank may send, with the fields of `header` as far as they are in range.
std::string Whole(const std::string& header, absl::string_view* text) {
  const auto byte = [&header](size_t at) { return static_cast<uint8_t>(header[at]); };
  std::string source = Take(text, byte(0) % 8), payload = Take(text, byte(1) % 64);
  Frame frame;
  frame.type = static_cast<Frame::Type>(byte(2) % 4);
  frame.group = byte(3) % 2;
  frame.sequence = byte(4) % 3;
  frame.stage = static_cast<uint8_t>(byte(5) % 2);
  frame.status = byte(6);
  frame.bytes = payload.size();
  frame.payload_crc = mslua::Crc32c(payload.data(), payload.size());
  frame.call.kind = static_cast<mslua::Collective>(byte(7) % mslua::kNumCollectives);
  frame.call.count = byte(8);
  frame.call.source = source;
  return mslua::EncodeFrame(frame) + payload;
}

std::string Frames(absl::string_view text) {
  std::string frames;
  while (!text.empty()) {
    const std::string choice = Take(&text, 1);
    if ((choice[0] & 1) != 0) {
      frames += Take(&text, static_cast<uint8_t>(choice[0]));
      continue;
    }
    std::string header = Take(&text, 9);
    header.resize(9);
    frames += Whole(header, &text);
  }
  return frames.substr(0, 64 << 10);  // what a socket takes at once
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string frames = Frames(absl::string_view(reinterpret_cast<const char*>(data), size));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  std::map<int, mslua::Stream> sockets;
  sockets[kPeer] = mslua::Stream(mslua::Fd(ends[0]));
  mslua::Fd other(ends[1]);
  std::array<std::string, 2> memory;
  memory.fill(std::string(2 * kCapacity, kGuard));
  mslua::Links links(std::move(sockets), /*spin=*/false);
  std::vector<std::shared_ptr<mslua::Arrival>> awaited;
  awaited.push_back(links.Expect(kPeer, kGroup, 0, 0, &memory[0][0], kCapacity));
  const ssize_t sent = send(other.get(), frames.data(), frames.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(frames.size())) std::abort();
  shutdown(other.get(), SHUT_WR);
  awaited.push_back(links.Expect(kPeer, kGroup, 1, 0, &memory[1][0], kCapacity));
  bool done = false;
  const mslua::Status status = links.Wait(kGroup, absl::Seconds(60), [&](std::vector<int>* ranks) {
    done = std::all_of(awaited.begin(), awaited.end(), [](const auto& a) { return a->complete; });
    if (!done) ranks->push_back(kPeer);
    return done;
  });
  if (status.ok() != done || absl::IsDeadlineExceeded(status)) std::abort();
  for (size_t i = 0; i < awaited.size(); ++i) {
    const mslua::Arrival& a = *awaited[i];
    if (done && (a.received != a.frame.bytes || (a.heap == nullptr && a.frame.bytes > kCapacity))) std::abort();
    if (memory[i].substr(kCapacity) != std::string(kCapacity, kGuard)) std::abort();
  }
  links.Drop(kGroup);
  return 0;
}
