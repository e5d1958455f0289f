#include "rendezvous/membership.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "rendezvous/local_meeting.h"
#include "rendezvous/member_link.h"

namespace mslua {
namespace {

using Type = ControlMessage::Type;

constexpr absl::Duration kSilence = absl::Seconds(10);  // of a scheduler, while a worker waits for it
constexpr absl::Duration kFirstPause = absl::Milliseconds(20), kLongestPause = absl::Seconds(1);  // between attempts
constexpr absl::Duration kAnswer = absl::Seconds(1);  // for a scheduler that accepts a connection to answer
// Between attempts to find a scheduler that was started again.
constexpr absl::Duration kKnock = absl::Milliseconds(100);
constexpr absl::Duration kNews = absl::Seconds(3);  // between lines of a worker that finds no scheduler

Status Security(const Status& status) {
  return absl::IsPermissionDenied(status) ? WithCause(status, {-1, kExitSecurity}) : status;
}

}  // namespace

StatusOr<std::unique_ptr<Membership>> Membership::Join(const JoinOptions& options) {
  MonotonicTime deadline = MonotonicNow() + options.timeout;
  const std::string where =
      absl::StrCat("scheduler at ", options.where.empty() ? ToString(options.scheduler) : options.where);
  std::mt19937 random(std::random_device{}());
  absl::Duration pause = kFirstPause;
  MonotonicTime next_news = MonotonicNow() + kNews;
  JoinOptions named = options;
  if (named.node_id.empty()) named.node_id = RandomName();
  while (true) {
    Waited waited;
    auto made = TryJoin(named, deadline, &waited);
    if (made.ok()) return made;
    named.epoch = std::max(named.epoch, waited.epoch);
    // It has waited as long as it was to.
    if (waited.spare) deadline = MonotonicNow() + options.timeout;
    const Status why = Annotate(Security(made.status()), where);
    if (!absl::IsUnavailable(why)) return why;
    if (MonotonicNow() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("no answer within ", absl::FormatDuration(options.timeout), ": ", why.message()));
    }
    if (options.waiting && MonotonicNow() >= next_news) {
      next_news = MonotonicNow() + kNews;
      const absl::Duration left = absl::Trunc(deadline - MonotonicNow(), absl::Seconds(1));
      options.waiting(
          absl::StrCat("waiting for the ", why.message(), "; trying for another ", absl::FormatDuration(left)));
    }
    // Many workers that were turned away at once do not come back at once.
    const double spread = std::uniform_real_distribution<double>(0.5, 1.5)(random);
    absl::SleepFor(std::min(pause * spread, std::max(deadline - MonotonicNow(), absl::ZeroDuration())));
    pause = std::min(2 * pause, kLongestPause);
  }
}

StatusOr<std::unique_ptr<Membership>> Membership::TryJoin(const JoinOptions& options, MonotonicTime deadline,
                                                          Waited* waited) {
  std::unique_ptr<Membership> me(new Membership());
  // The scheduler answers at once, or has lost sight of this connection.
  const MonotonicTime answer_by = std::min(deadline, MonotonicNow() + kSilence);
  const auto late = [](const Status& status) {
    return absl::IsDeadlineExceeded(status) ? absl::UnavailableError(status.message()) : status;
  };
  if (absl::StartsWith(options.scheduler.host, "/")) {
    ASSIGN_OR_RETURN(me->socket_, ConnectMeeting(options.scheduler.host));
  } else if (options.secret.empty() && options.tls == nullptr) {
    return absl::InvalidArgumentError("a worker that reaches its scheduler by TCP needs the job's secret");
  } else {
    auto socket = ConnectStream(options.scheduler, options.tls.get(), std::min(deadline, MonotonicNow() + kNews));
    if (!socket.ok()) return late(socket.status());
    me->socket_ = std::move(*socket);
    me->socket_.KeepLastWord();
    auto seals = Authenticate(me->socket_, options.secret, ConnectionUse(), answer_by);
    if (!seals.ok()) return late(seals.status());
    me->seals_ = std::move(*seals);
  }
  me->tls_ = options.tls;
  me->options_ = options;
  me->on_over_ = options.on_over;
  me->on_stop_ = options.on_stop;
  ControlMessage join = {Type::kJoin,
                         {{"id", options.node_id},
                          {"host", options.self.host},
                          {"who", options.who},
                          {"endpoint", ToString(options.self.endpoint)}}};
  if (options.turn) join.fields["turn"] = absl::StrCat(options.turn());
  if (options.epoch > 0) join.fields["epoch"] = absl::StrCat(options.epoch);
  for (const auto& [name, value] : options.hashes) join.fields[absl::StrCat(kHash, name)] = value;
  RETURN_IF_ERROR(late(me->Send(join)));
  bool registered = false;
  // While the scheduler speaks, it is the one who gives up: it knows who is missing.
  deadline = std::max(deadline, MonotonicNow() + kSilence);
  ControlMessage welcome;
  while (welcome.type != Type::kWelcome) {
    auto message = registered ? me->AwaitOthers(deadline) : ReceiveControl(me->socket_, me->seals_.receive, answer_by);
    // Not an attempt that is to be repeated: the scheduler had this worker.
    if (!message.ok() && registered && options.recover) return late(message.status());
    if (!message.ok() && registered) {
      const Status lost = me->Lost(message.status());
      return WithCause(absl::AbortedError(lost.message()), CauseOf(lost));
    }
    if (!message.ok()) return late(message.status());
    if (message->type == Type::kRefuse && !message->Field("done").empty())
      return WithCause(absl::CancelledError("the job is done: this worker is not needed"), {-1, kExitOk});
    if (message->type == Type::kRefuse) {
      return absl::FailedPreconditionError(
          absl::StrCat("refuses this worker: ", PrintableMessage(message->Field("reason"))));
    }
    if (message->type == Type::kAbort) {
      const Status over = AbortOf(*message);
      return WithCause(absl::DeadlineExceededError(over.message()), CauseOf(over));
    }
    if (message->type == Type::kRegroup) return absl::UnavailableError("the workers meet again");
    if (message->type == Type::kProgress) {
      if (!std::exchange(registered, true)) me->Introduce(*message);
      deadline = std::max(deadline, MonotonicNow() + kSilence);
      const std::string line = PrintableMessage(message->Field("line"));
      if (options.log && !line.empty()) options.log(line);
      const bool waits = !message->Field("spare").empty();
      if (int64_t epoch = 0; waits && absl::SimpleAtoi(message->Field("epoch"), &epoch)) waited->epoch = epoch;
      if (waits && !std::exchange(waited->spare, true) && options.log)
        options.log("all ranks have a worker: this one waits as a spare");
    }
    welcome = std::move(*message);
  }
  int size = 0;
  if (!absl::SimpleAtoi(welcome.Field("size"), &size) || !absl::SimpleAtoi(welcome.Field("rank"), &me->rank_) ||
      size < 1 || me->rank_ < 0 || me->rank_ >= size) {
    return absl::DataLossError("a malformed welcome came");
  }
  me->job_ = welcome.Field("job");
  if (!absl::SimpleAtoi(welcome.Field("epoch"), &me->epoch_)) me->epoch_ = 1;
  me->cause_ = PrintableMessage(welcome.Field("cause"));
  for (int r = 0; r < size; ++r) {
    const auto endpoint = ParseEndpoint(welcome.Field(absl::StrCat("endpoint.", r)));
    me->peers_.push_back({welcome.Field(absl::StrCat("host.", r)), endpoint.ok() ? *endpoint : Endpoint()});
  }
  me->stop_ = Fd(eventfd(0, EFD_CLOEXEC));
  me->heard_ = MonotonicNow();
  me->thread_ = std::thread([raw = me.get()] { raw->Run(); });
  return me;
}

Membership::~Membership() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof one) < 0) shutdown(socket_.fd().get(), SHUT_RDWR);
  thread_.join();
}

Status Membership::Send(const ControlMessage& message) {
  std::lock_guard<std::mutex> lock(send_mutex_);
  return SendAll(socket_, EncodeSealed(message, seals_.send), MonotonicNow() + kSendLimit);
}

void Membership::Introduce(const ControlMessage& message) {
  const std::string who = OnOneLine(message.Field("who")), rank = OnOneLine(message.Field("rank"));
  if (!absl::SimpleAtoi(rank, &scheduler_rank_) || scheduler_rank_ < 0) scheduler_rank_ = -1;
  if (!who.empty()) {
    scheduler_ =
        absl::StrCat(scheduler_rank_ < 0 ? "the scheduler" : absl::StrCat("rank ", scheduler_rank_), " (", who, ")");
  }
  int64_t limit = 0;
  if (absl::SimpleAtoi(message.Field("limit"), &limit) && limit > 0) heartbeat_limit_ = absl::Milliseconds(limit);
  heard_ = MonotonicNow();
}

Status Membership::Lost(const Status& status) const {
  // Silent() is such an error already.
  if (HasCause(status)) return status;
  return EndOf(scheduler_, scheduler_rank_, status);
}

Status Membership::Silent() const {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  const bool local = getsockname(socket_.fd().get(), reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
                     address.ss_family == AF_UNIX;
  return WithCause(absl::UnavailableError(absl::StrCat(scheduler_, kSilent,
                                                       absl::FormatDuration(LimitOf(socket_.fd(), heartbeat_limit_)),
                                                       local ? kStopped : kStoppedOrBroken)),
                   {scheduler_rank_, kExitHang});
}

StatusOr<ControlMessage> Membership::AwaitOthers(MonotonicTime deadline) {
  while (true) {
    const MonotonicTime polled = MonotonicNow();
    const Status ready = AwaitInput(socket_, std::min(deadline, polled + kHeartbeat));
    const MonotonicTime now = MonotonicNow();
    // The time that this process was stopped for does not count.
    if (now - polled > kHeartbeat + kTick) heard_ += now - polled - kHeartbeat;
    if (ready.ok()) {
      heard_ = now;
      auto message = ReceiveControl(socket_, seals_.receive, now + kSendLimit);
      if (message.ok() && message->type == Type::kHeartbeat) continue;
      return message;
    }
    if (!absl::IsDeadlineExceeded(ready)) return ready;
    if (now - heard_ >= heartbeat_limit_ && now - heard_ >= LimitOf(socket_.fd(), heartbeat_limit_)) return Silent();
    if (now >= deadline) return ready;
    Send(Heartbeat()).IgnoreError();  // a lost connection shows when it is read
  }
}

ControlMessage Membership::Heartbeat() {
  ControlMessage message = {Type::kHeartbeat, {}};
  if (options_.turn) message.fields["turn"] = absl::StrCat(options_.turn());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!crash_file_.empty()) message.fields["crash"] = crash_file_;
  if (!elastic_.empty()) message.fields["elastic"] = elastic_;
  return message;
}

Status Membership::Knock() const {
  Stream socket;
  Seals seals;
  MonotonicTime limit;
  if (absl::StartsWith(options_.scheduler.host, "/")) {
    ASSIGN_OR_RETURN(socket, ConnectMeeting(options_.scheduler.host));
    limit = MonotonicNow() + kAnswer;
  } else {
    // Where nobody listens ConnectStream would try for as long as an answer may take.
    RETURN_IF_ERROR(ConnectTcp(options_.scheduler, MonotonicNow() + kKnock).status());
    limit = MonotonicNow() + kAnswer;
    ASSIGN_OR_RETURN(socket, ConnectStream(options_.scheduler, options_.tls.get(), limit));
    ASSIGN_OR_RETURN(seals, Authenticate(socket, options_.secret, ConnectionUse(), limit));
  }
  RETURN_IF_ERROR(SendAll(socket, EncodeSealed({Type::kHeartbeat, {}}, seals.send), limit));
  return ReceiveControl(socket, seals.receive, limit).status();
}

bool Membership::AwaitScheduler() {
  // That a connection is accepted says nothing: the system does that for a process that is just ending, too.
  const auto answers = [this] {
    const Status answer = Knock();
    return answer.ok() || absl::IsPermissionDenied(answer);
  };
  for (absl::Duration pause = kKnock; !answers(); pause = std::min(2 * pause, kLongestPause)) {
    pollfd entry = {stop_.get(), POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(pause))) > 0) return false;
  }
  return true;
}

void Membership::Run() {
  MonotonicTime next_heartbeat = MonotonicNow() + kHeartbeat;
  while (true) {
    if (tls_ != nullptr) tls_->Refresh();
    pollfd entries[] = {{stop_.get(), POLLIN, 0}, {socket_.fd().get(), POLLIN, 0}};
    const MonotonicTime polled = MonotonicNow();
    const absl::Duration wait = std::max(next_heartbeat - polled + absl::Milliseconds(1), absl::ZeroDuration());
    const bool pending = socket_.Pending();
    const int ready = poll(entries, 2, pending ? 0 : static_cast<int>(absl::ToInt64Milliseconds(wait))) + pending;
    if (entries[0].revents != 0) return;
    // While this process was stopped or had to wait for a core, so was the scheduler, perhaps.
    const absl::Duration late = MonotonicNow() - polled - wait;
    if (late > kTick) heard_ += late;
    const absl::Duration quiet = MonotonicNow() - heard_;
    const bool silent = ready == 0 && quiet >= heartbeat_limit_ && quiet >= LimitOf(socket_.fd(), heartbeat_limit_);
    // Also while others speak to this rank all the time.
    if (MonotonicNow() >= next_heartbeat) {
      next_heartbeat = MonotonicNow() + kHeartbeat;
      Send(Heartbeat()).IgnoreError();  // a lost connection shows when it is read
    }
    if (ready == 0 && !silent) continue;
    StatusOr<ControlMessage> message =
        silent ? Silent() : ReceiveControl(socket_, seals_.receive, MonotonicNow() + kSendLimit);
    if (message.ok()) heard_ = MonotonicNow();
    if (message.ok() && message->type == Type::kHeartbeat) continue;
    if (message.ok() && message->type == Type::kRelay) {
      Deliver(*message);
      continue;
    }
    if (message.ok() && message->type == Type::kStop) {
      int signal = 0;
      if (on_stop_ && absl::SimpleAtoi(message->Field("signal"), &signal)) on_stop_(signal);
      continue;
    }
    if (absl::IsPermissionDenied(message.status())) Send(AbortFor(Lost(message.status()))).IgnoreError();
    if (!message.ok() && options_.recover && !left_ && !ends_without_scheduler_) {
      lost_scheduler_ = true;
      if (!AwaitScheduler()) return;
      if (!ends_without_scheduler_)
        message = ControlMessage{Type::kRegroup, {{"why", absl::StrCat(scheduler_, " was started again")}}};
    }
    if (!message.ok() && (left_ || ends_without_scheduler_)) {
      const std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
      changed_.notify_all();
      return;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (!message.ok()) {
      lost_scheduler_ = true;
      health_ = Lost(message.status());
    } else if (message->type == Type::kRegroup) {
      health_ = WithAgain(AbortOf(*message));
    } else if (message->type == Type::kAbort) {
      health_ = AbortOf(*message);
    } else if (message->type == Type::kCompare) {
      verdicts_[message->Field("name")] = message->Field("verdict");
    }
    changed_.notify_all();
    if (health_.ok()) continue;
    const Status health = health_;
    lock.unlock();
    if (on_over_) on_over_(health);
    return;
  }
}

void Membership::TellCrashFile(const std::string& path) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    crash_file_ = path;
  }
  Send(Heartbeat()).IgnoreError();  // a lost connection shows when it is read
}

void Membership::TellElastic(int least, int most) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    elastic_ = absl::StrCat(least, ":", most);
  }
  Send(Heartbeat()).IgnoreError();  // a lost connection shows when it is read
}

Status Membership::Health() {
  std::lock_guard<std::mutex> lock(mutex_);
  return health_;
}

Status Membership::Compare(const std::string& name, const std::string& value, absl::Duration limit) {
  RETURN_IF_ERROR(Send({Type::kCompare, {{"name", name}, {"value", value}}}));
  std::unique_lock<std::mutex> lock(mutex_);
  const bool woken = changed_.wait_for(lock, absl::ToChronoNanoseconds(limit),
                                       [&] { return verdicts_.count(name) > 0 || !health_.ok(); });
  if (!woken) {
    return absl::DeadlineExceededError(absl::StrCat("rank ", rank_, ": not all ranks have given their ", name,
                                                    " within ", absl::FormatDuration(limit)));
  }
  if (verdicts_.count(name) == 0) return health_;
  const std::string verdict = verdicts_.extract(name).mapped();
  return verdict.empty() ? absl::OkStatus() : absl::FailedPreconditionError(verdict);
}

void Membership::Abort(const Status& why, int exit_code) {
  Send({Type::kAbort, {{"why", std::string(why.message())}, {"code", absl::StrCat(exit_code)}}}).IgnoreError();
}

void Membership::Tell(const std::string& channel, int rank, const Texts& texts) {
  ControlMessage message{Type::kRelay, texts};
  message.fields["channel"] = channel;
  message.fields["to"] = absl::StrCat(rank);
  Send(message).IgnoreError();  // a lost connection shows when it is read
}

void Membership::Listen(const std::string& channel, Listener listener) {
  const std::lock_guard<std::mutex> lock(listener_mutex_);
  if (listener)
    listeners_[channel] = std::move(listener);
  else
    listeners_.erase(channel);
}

void Membership::Deliver(const ControlMessage& message) {
  int from = -1;
  if (!absl::SimpleAtoi(message.Field("from"), &from)) return;
  const std::lock_guard<std::mutex> lock(listener_mutex_);
  const auto listener = listeners_.find(message.Field("channel"));
  if (listener != listeners_.end()) listener->second(from, message.fields);
}

void Membership::Leave(int exit_code) {
  left_ = true;
  Send({Type::kLeave, {{"code", absl::StrCat(exit_code)}}}).IgnoreError();
}

Status Membership::AwaitEnd(absl::Duration limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool known =
      changed_.wait_for(lock, absl::ToChronoNanoseconds(limit), [this] { return ended_ || !health_.ok(); });
  return known ? health_ : absl::DeadlineExceededError("not all ranks have left");
}

}  // namespace mslua
