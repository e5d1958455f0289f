// What the scheduler and the workers do alike at the ends of their connections: timing, fields of messages, and what
// the end of a connection means. For scheduler.cc and membership.cc alone.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/status.h"
#include "rendezvous/control.h"
#include "rendezvous/socket.h"

namespace mslua {

inline constexpr absl::Duration kSendLimit = absl::Seconds(1);         // for one message
inline constexpr absl::Duration kHeartbeat = absl::Milliseconds(500);  // between heartbeats
// A thread that wakes up this much later than it asked for was stopped, or had no core.
inline constexpr absl::Duration kTick = absl::Milliseconds(100);
inline constexpr absl::string_view kHash = "hash.";  // before the names of what ranks must share

inline constexpr char kSilent[] = " has given no sign of life for ";
inline constexpr char kStopped[] = ": it was stopped, or has no time";
inline constexpr char kStoppedOrBroken[] = ": it was stopped, or the link to it is broken";

// 16 hexadecimal digits.
std::string RandomName();

// A text of another process for a line of a log.
std::string OnOneLine(const std::string& text);

// The exit code that a message carries. A job that was ended has not succeeded, whatever the message says.
int FailureCode(const ControlMessage& message);

// The error that a scheduler's kAbort carries.
Status AbortOf(const ControlMessage& message);

// The reverse: what the others are told.
ControlMessage AbortFor(const Status& why);

// How long the process at the other end may be silent, where `limit` is how long a stopped one may. A process of this
// host that could run has no time: beside many busy ones a thread may wait for seconds.
absl::Duration LimitOf(const Fd& socket, absl::Duration limit);

// Why the job is over when the connection to a member ends like this; OK: it has been closed.
Status EndOf(const std::string& name, int rank, const Status& status);

}  // namespace mslua
