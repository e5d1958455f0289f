// Connections that others open, until it is known who they are. Each gets little memory and little time, all of them
// together have a limit, and the oldest is closed first: what opens many of them or says nothing does not keep the
// others out.
//
// Over a unix socket the peer is a process of this user. Over TCP it proves that it knows the job's secret
// (handshake.h); with TLS it shows a certificate before that.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "rendezvous/control.h"
#include "rendezvous/handshake.h"
#include "rendezvous/socket.h"
#include "rendezvous/stream.h"

namespace mslua {

// Tells of connections that were refused: once for each peer and reason, and at most so many in a while.
class RefusalLog {
 public:
  explicit RefusalLog(std::function<void(const std::string&)> log) : log_(std::move(log)) {}
  // `source`: the peer without what changes from one of its connections to the next. `name`, called if it is told: the
  // peer in full.
  void Refused(const std::string& source, const std::function<std::string()>& name, const std::string& why);

 private:
  const std::function<void(const std::string&)> log_;
  std::set<std::string> told_;
  MonotonicTime since_;
  int lines_ = 0;
  int64_t untold_ = 0;
};

// "process 812 of user 1000", "10.0.0.2:40312", "10.0.0.1:40312 (user 1002 of this host)". `peer` is what accept4 gave,
// since a socket whose peer has closed it no longer knows that.
std::string NameOfPeer(const Fd& socket, const sockaddr_storage& peer);
// The same without process, port and user of TCP: "user 1000", "10.0.0.2".
std::string SourceOf(const Fd& socket, const sockaddr_storage& peer);

struct AdmissionOptions {
  std::string secret;                           // of connections over TCP
  std::shared_ptr<Tls> tls;                     // of the same; null: not encrypted
  Acceptor::Refusal refusal;                    // over TCP: why a connection is not wanted
  bool joins = false;                           // a kJoin follows
  absl::Duration limit = absl::Seconds(5);      // from the connection to the end of that
  int most = 256, most_of_one = 128;            // connections at a time, in all and from one address; TLS: a quarter
  std::function<void(const std::string&)> log;  // lines about refused connections
  // While Throttle says so: connections that come to nothing, at first and then a second; how long those that follow
  // others wait to be accepted together, which costs less than to be woken by each.
  int failures_at_once = 256;
  double failures_a_second = 125;  // one takes some 20 to 30 us
  absl::Duration together = absl::Milliseconds(100);
};

class Admission {
 public:
  struct Newcomer {
    Stream socket;
    sockaddr_storage peer = {};
    std::string source;  // SourceOf(socket, peer)
    ConnectionUse use;
    Seals seals;
    ControlMessage join;  // if there is one
    std::string rest;     // what followed it
  };

  // `listener` outlives this; it is set to non-blocking.
  Admission(const Fd& listener, AdmissionOptions options);

  // While it is set, connections that come to nothing take little of the processor's time: beyond a number of them (the
  // options) all others wait in the listener's queue.
  void Throttle(bool on);

  // Appends what is to be polled.
  void Poll(std::vector<pollfd>* entries);
  // For how long at most to poll.
  absl::Duration PollLimit() const;
  // After the poll: `entries` are what Poll appended. Gives those that are known now.
  std::vector<Newcomer> Take(const pollfd* entries);

  int pending() const { return static_cast<int>(pending_.size()); }
  RefusalLog& refusals() { return refusals_; }

 private:
  struct Pending {
    Newcomer who;
    MonotonicTime ends;  // no later than then
    std::string buffer;
    std::unique_ptr<Acceptor> acceptor;
    bool known = false;    // only the join is missing
    bool refused = false;  // it has been told why; what it still sends is not read, so that it can read that first
    bool done = false, closed = false;
  };

  // Counts connections that have come to nothing.
  void CountFailures(int64_t n);
  void Accept();
  // Closes the oldest, if there are too many since `p` came.
  void MakeRoom(const Pending& p);
  // Does what can be done now for a connection.
  void Step(Pending& p);
  // Whether the peer speaks TLS, and the session is there.
  bool BeginTls(Pending& p);
  void Read(Pending& p);
  void Handle(Pending& p, const ControlMessage& message);
  void Close(Pending& p, const std::string& why);
  // Tells the peer why, without TLS, and closes when it has read that.
  void RefusePlainly(Pending& p, const std::string& why);
  void Refuse(Pending& p, const std::string& why);

  const Fd& listener_;
  const AdmissionOptions options_;
  bool local_ = false;                             // a unix socket
  Tls* tls_ = nullptr;                             // of options_, over TCP
  std::vector<std::unique_ptr<Pending>> pending_;  // oldest first
  size_t polled_pending_ = 0;
  bool polls_listener_ = false;
  MonotonicTime paused_until_;  // nothing is accepted before: there are no descriptors, or too many have failed
  bool throttled_ = false;
  double failures_left_;  // how many may come to nothing before others wait; as of failures_at_
  MonotonicTime failures_at_;
  RefusalLog refusals_;
};

}  // namespace mslua
