// Messages between the scheduler and the workers, and between a rank's attach endpoint and its clients: a fixed header
// and named texts. Pure functions over bytes.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

struct ControlMessage {
  enum class Type : uint8_t {
    kJoin,       // worker: who it is and what it runs
    kProgress,   // scheduler: how many have come
    kRefuse,     // scheduler: why the worker cannot take part
    kWelcome,    // scheduler: ranks and addresses
    kHeartbeat,  // either: it lives
    kCompare,    // worker: a named value that all ranks should share; scheduler: the verdict
    kAbort,      // either: the job is over, and why
    kLeave,      // worker: it has finished; client: it detaches on purpose
    kChallenge,  // endpoint: a nonce
    kProof,      // client: that it knows the job's token
    kAccept,     // endpoint: the job and the rank
    kCommand,    // client: a line
    kReply,      // endpoint: a part of the answer to a command
    kEvent,      // endpoint: a line that nobody asked for just now, such as a watch's
    kRelay,      // worker: texts for another worker ("to"); scheduler: the same from one ("from")
    kStop,       // scheduler: stop as at the signal "signal"
    kRegroup,    // scheduler: a worker has failed, why, and that all start again
  };
  Type type = Type::kHeartbeat;
  std::map<std::string, std::string> fields;

  // The text of that name; empty where the message has none.
  std::string Field(const std::string& name) const;
};

inline constexpr size_t kControlHeaderBytes = 16;

// Whether the first 4 bytes of a connection are those of a message.
bool StartsControl(absl::string_view first);

// Header and body. The message is no longer than its type may be (ControlBodyBytes), or so by a field "why" or "line"
// that is shortened here.
std::string EncodeControl(const ControlMessage& message);
// The type that a header announces. DataLoss: not a header.
StatusOr<ControlMessage::Type> ControlTypeOf(absl::string_view header);
// The body's length. DataLoss: not a header, damaged, or longer than its type may be (a challenge and a proof: 1 KiB, a
// join: 4 KiB, a welcome: 4 MiB, others: 64 KiB).
StatusOr<size_t> ControlBodyBytes(absl::string_view header);
// Header and body together. DataLoss: damaged.
StatusOr<ControlMessage> DecodeControl(absl::string_view bytes);

}  // namespace mslua
