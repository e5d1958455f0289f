#include "rendezvous/scheduler.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "rendezvous/crash_note.h"
#include "rendezvous/member_link.h"

namespace mslua {
namespace {

using Type = ControlMessage::Type;

constexpr absl::Duration kRegroupLimit = absl::Milliseconds(200);  // for workers to read that they start again
constexpr absl::Duration kForLateWorkers = absl::Seconds(2);       // to come and hear why the job ends
// Values to be compared that a rank may be ahead of the others with.
constexpr size_t kMostCompared = 16;
constexpr size_t kLongestCompared = 4 << 10;

bool IsRank(const std::string& id) {
  return !id.empty() && id.size() < 8 && std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The rank of a worker: as the scheduler gave it, else (-1) the one that it asks for, if it does.
int RankOf(int rank, const std::string& id) {
  int asked = -1;
  return rank < 0 && IsRank(id) && absl::SimpleAtoi(id, &asked) ? asked : rank;
}

AdmissionOptions AdmissionOf(const SchedulerOptions& options) {
  AdmissionOptions admission;
  admission.secret = options.secret;
  admission.tls = options.tls;
  admission.refusal = [](const ConnectionUse& use) {
    return use.kind == ConnectionUse::Kind::kControl ? "" : "this is a scheduler, and it asked for a rank";
  };
  admission.joins = true;
  admission.log = options.warn ? options.warn : options.log;
  return admission;
}

RosterOptions RosterOf(const SchedulerOptions& options) {
  RosterOptions roster;
  roster.workers = options.workers;
  roster.least = options.least;
  roster.most = options.most;
  roster.spares = options.spares;
  roster.recover = options.recover;
  roster.epoch = options.epoch;
  roster.size = options.size;
  roster.timeout = options.timeout;
  roster.id_name = options.id_name;
  roster.replace_after = options.replace_after;
  return roster;
}

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> Scheduler::Make(const SchedulerOptions& options) {
  if (options.workers < 1) return absl::InvalidArgumentError("a job has at least one worker");
  std::unique_ptr<MeetingFolder> folder;
  Fd listener;
  Endpoint endpoint;
  if (!options.meeting.empty()) {
    ASSIGN_OR_RETURN(folder, MeetingFolder::Make(options.meeting));
    ASSIGN_OR_RETURN(listener, folder->Listen());
    endpoint.host = folder->socket();
  } else if (options.secret.empty() && options.tls == nullptr) {
    return absl::InvalidArgumentError("a scheduler that others reach by TCP needs a job secret");
  } else {
    ASSIGN_OR_RETURN(listener, ListenTcp(options.endpoint));
    ASSIGN_OR_RETURN(endpoint, LocalEndpoint(listener));
  }
  return std::unique_ptr<Scheduler>(
      new Scheduler(options, std::move(folder), std::move(listener), std::move(endpoint)));
}

Scheduler::Scheduler(const SchedulerOptions& options, std::unique_ptr<MeetingFolder> folder, Fd listener,
                     Endpoint endpoint)
    : options_(options),
      folder_(std::move(folder)),
      listener_(std::move(listener)),
      endpoint_(std::move(endpoint)),
      admission_(listener_, AdmissionOf(options)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      first_job_(RandomName()),
      job_(first_job_),
      roster_(RosterOf(options), MonotonicNow()),
      least_(options.least),
      most_(options.most) {}

StatusOr<std::unique_ptr<Scheduler>> Scheduler::Start(const SchedulerOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> scheduler, Make(options));
  scheduler->thread_ = std::thread([raw = scheduler.get()] { raw->Work(); });
  return scheduler;
}

Status Scheduler::RunHere() {
  Work();
  return result_;
}

void Scheduler::Work() {
  Run();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    outcome_ = result_;
  }
  if (folder_ != nullptr) folder_->Remove();  // the process may end by _exit
  if (options_.on_over) options_.on_over();
  Drain();
}

Scheduler::~Scheduler() {
  Fail(absl::CancelledError("the scheduler was stopped"));
  if (thread_.joinable()) thread_.join();
}

void Scheduler::Fail(const Status& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (outside_.ok()) outside_ = why;
  }
  const uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof one) < 0) shutdown(listener_.get(), SHUT_RDWR);
}

Status Scheduler::Wait() {
  if (thread_.joinable()) thread_.join();
  return result_;
}

Status Scheduler::Outcome() {
  std::lock_guard<std::mutex> lock(mutex_);
  return outcome_;
}

void Scheduler::Log(const std::string& line) const {
  if (options_.log) options_.log(line);
}

int Scheduler::Joined() const { return static_cast<int>(workers_.size()); }

void Scheduler::Run() {
  MonotonicTime next_progress = MonotonicNow() + options_.progress_every, next_heartbeat = MonotonicNow();
  while (!over_) {
    if (options_.on_turn) options_.on_turn();
    if (options_.tls != nullptr) options_.tls->Refresh();
    std::vector<pollfd> entries = {{stop_.get(), POLLIN, 0}};
    for (const auto& worker : workers_) entries.push_back({worker->socket.fd().get(), POLLIN, 0});
    const size_t members = entries.size();
    admission_.Throttle(roster_.phase() == Roster::Phase::kRun);  // a crowd does not slow a training down
    admission_.Poll(&entries);
    const bool pending =
        std::any_of(workers_.begin(), workers_.end(), [](const auto& w) { return w->socket.Pending(); });
    const MonotonicTime polled = MonotonicNow();
    poll(entries.data(), entries.size(), pending ? 0 : static_cast<int>(absl::ToInt64Milliseconds(kTick)));
    // While the scheduler was stopped or had to wait for a core, so were workers of its host, perhaps.
    const absl::Duration late = MonotonicNow() - polled - kTick;
    for (auto& worker : workers_) {
      if (late > kTick) worker->heard += late;
    }
    if (entries[0].revents != 0) {
      uint64_t count;
      if (read(stop_.get(), &count, sizeof count) < 0) count = 0;
      std::unique_lock<std::mutex> lock(mutex_);
      const Status why = std::exchange(outside_, absl::OkStatus());
      const int signal = std::exchange(signal_, 0);
      lock.unlock();
      if (!why.ok()) Fault(why);
      if (over_) return;
      if (signal != 0) PassOn(signal);
      if (over_) return;
    }
    for (size_t i = 1; i < members && !over_; ++i) {
      Worker& worker = *workers_[i - 1];
      if (worker.socket && (entries[i].revents != 0 || worker.socket.Pending())) Read(worker);
    }
    RemoveClosed();
    for (Admission::Newcomer& newcomer : admission_.Take(&entries[members])) {
      if (!over_) Join(std::move(newcomer));
    }
    joined_ = Joined();
    const MonotonicTime now = MonotonicNow();
    if (now >= next_heartbeat) {
      next_heartbeat = now + kHeartbeat;
      for (auto& worker : workers_) {
        if (worker->socket && !over_) Send(*worker, {Type::kHeartbeat, {}});
      }
    }
    if (!built_ && now >= ends_at_) {
      Fault(WithCause(absl::FailedPreconditionError(absl::StrCat("The node: ", refused_)), {-1, kExitEnvironment}));
    } else {
      Apply(roster_.Look(now));
    }
    if (!over_ && now >= next_progress) {
      next_progress = now + options_.progress_every;
      TellProgress();
    }
    LookForSilence(now);
  }
}

void Scheduler::RemoveClosed() {
  workers_.erase(std::remove_if(workers_.begin(), workers_.end(), [](const auto& w) { return !w->socket && !w->left; }),
                 workers_.end());
}

void Scheduler::TellProgress() {
  if (built_) {
    for (auto& worker : workers_) {
      if (worker->rank < 0) Send(*worker, {Type::kProgress, {{"spare", "1"}}});
    }
    return;
  }
  const std::string line =
      absl::StrCat("The cluster topology is in the process of constructing, current alive node num: (", Joined(), "/",
                   roster_.size(), "), missing: ", roster_.Missing());
  options_.progress ? options_.progress(line) : Log(line);
  for (auto& worker : workers_) Send(*worker, {Type::kProgress, {{"line", line}}});
}

void Scheduler::LookForSilence(MonotonicTime now) {
  for (auto& worker : workers_) {
    if (over_ || worker->left || !worker->socket || now - worker->heard < options_.heartbeat_limit) continue;
    const absl::Duration limit = LimitOf(worker->socket.fd(), options_.heartbeat_limit);
    if (now - worker->heard < limit) continue;
    const std::string what = absl::StrCat(NameOf(*worker), kSilent, absl::FormatDuration(limit),
                                          folder_ == nullptr ? kStoppedOrBroken : kStopped);
    const Status why =
        WithCause(absl::UnavailableError(what), {RankOf(worker->rank, worker->join.at("id")), kExitHang});
    // In a job that starts again another worker may come in the place of one that no rank depends on.
    if (!options_.recover || worker->rank >= 0) return Fault(why);
    Log(what);
    worker->socket.Close();
    Lose(*worker, why);
  }
  RemoveClosed();
}

void Scheduler::PassOn(int signal) {
  Log(absl::StrCat("stopping at signal ", signal, " (", strsignal(signal), ")"));
  if (!built_ && roster_.epoch() > 1) {
    stop_signal_ = signal;  // for the workers, which have something to save, when they have come
    return;
  }
  if (!built_) {
    const std::string what = absl::StrCat("the scheduler was stopped by signal ", signal, " (", strsignal(signal),
                                          ") before all workers had come");
    return Fault(WithCause(absl::CancelledError(what), {-1, kExitInterrupted}));
  }
  // Workers that meet again have forgotten it.
  if (options_.recover) stop_signal_ = signal;
  for (auto& worker : workers_) {
    if (!worker->left) Send(*worker, {Type::kStop, {{"signal", absl::StrCat(signal)}}});
  }
}

void Scheduler::Stop(int signal) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    signal_ = signal;
  }
  const uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof one) < 0) Fail(absl::CancelledError("the scheduler was stopped"));
}

void Scheduler::Join(Admission::Newcomer newcomer) {
  auto joining = std::make_unique<Worker>();
  Worker& worker = *joining;
  worker.socket = std::move(newcomer.socket);
  worker.peer = newcomer.peer;
  worker.source = std::move(newcomer.source);
  worker.seals = std::move(newcomer.seals);
  worker.socket.KeepLastWord();
  worker.heard = MonotonicNow();
  worker.buffer = std::move(newcomer.rest);
  for (const auto& [name, value] : newcomer.join.fields) worker.join[OnOneLine(name)] = OnOneLine(value);
  for (const char* name : {"id", "host", "endpoint", "who"}) worker.join.emplace(name, "");
  int64_t turn = -1, epoch = 0;
  if (!absl::SimpleAtoi(worker.join["turn"], &turn)) turn = -1;
  if (!absl::SimpleAtoi(worker.join["epoch"], &epoch)) epoch = 0;
  Replace(worker);
  if (over_) return;
  RemoveClosed();
  std::string refusal = OwnDifference(worker);
  if (refusal.empty()) refusal = roster_.Refusal(worker.join["id"]);
  const std::string difference = refusal.empty() ? Difference(worker) : "";
  if (!refusal.empty()) return Refuse(worker, refusal);
  if (!difference.empty()) {
    Refuse(worker, difference);
    if (options_.differing_ends) ends_at_ = std::min(ends_at_, MonotonicNow() + kForLateWorkers);
    return;
  }
  Log(absl::StrCat("The new node: ", worker.join["id"], "(role: MS_WORKER) is registered successfully."));
  worker.key = next_key_++;
  const Roster::Decision added =
      roster_.Add({worker.key, worker.join["id"], worker.join["host"], -1, turn}, epoch, worker.heard);
  workers_.push_back(std::move(joining));
  // It is registered: a connection that ends now ends for a reason.
  const std::string own_rank = options_.rank < 0 ? "" : absl::StrCat(options_.rank);
  const std::string limit = absl::StrCat(absl::ToInt64Milliseconds(options_.own_heartbeat_limit));
  Send(worker, {Type::kProgress, {{"who", options_.who}, {"rank", own_rank}, {"limit", limit}}});
  if (built_ && added.kind == Roster::Decision::Kind::kNothing) {
    Log(absl::StrCat("The node: ", worker.join["id"], " waits as a spare."));
    Send(worker, {Type::kProgress, {{"spare", "1"}, {"epoch", absl::StrCat(roster_.epoch())}}});
  }
  Apply(added);
  if (over_) return;
  if (!built_) Apply(roster_.Look(worker.heard));
  if (!over_) Understand(worker);
}

// A worker that is started again takes the place of one that gives no sign of life.
void Scheduler::Replace(const Worker& newcomer) {
  if (!built_ || !options_.recover) return;
  for (const auto& other : workers_) {
    if (other->join.at("id") != newcomer.join.at("id") || MonotonicNow() - other->heard < 3 * kHeartbeat) continue;
    const std::string what = absl::StrCat(NameOf(*other), " gives no sign of life, and was started again");
    const Status why = WithCause(absl::UnavailableError(what), {other->rank, kExitHang});
    if (other->rank >= 0) return Fault(why);
    other->socket.Close();
    return Lose(*other, why);
  }
}

void Scheduler::Read(Worker& worker) {
  char bytes[4096];
  const ssize_t n = worker.socket.Read(bytes, sizeof bytes);
  if (n > 0) {
    worker.heard = MonotonicNow();
    worker.buffer.append(bytes, n);
    Understand(worker);
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
    const Status end = n == 0 ? absl::OkStatus() : worker.socket.Problem("receiving");
    // One whose certificate has been revoked is told why: by the end of the job, or here.
    const bool revoked = absl::IsPermissionDenied(end) && !worker.left && !over_;
    if (!revoked) worker.socket.Close();
    if (worker.left || over_) return;
    if (!built_) Log(absl::StrCat("The node: ", worker.join["id"], " has gone before the cluster was complete."));
    if (built_ && worker.rank < 0) Log(absl::StrCat("The node: ", worker.join["id"], ", a spare, has gone."));
    const Status why = EndOf(worker, end);
    Lose(worker, why);
    if (!revoked || over_ || !worker.socket) return;
    Send(worker, AbortFor(why));
    Close(worker, MonotonicNow() + kRegroupLimit);
  }
}

Status Scheduler::EndOf(const Worker& worker, const Status& status) {
  const Status end = mslua::EndOf(NameOf(worker), worker.rank, status);
  const std::string note = CrashNoteOf(worker.rank);
  return note.empty() ? end : WithCause(Status(end.code(), absl::StrCat(end.message(), note)), CauseOf(end));
}

std::string Scheduler::CrashNoteOf(int rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto file = crash_files_.find(rank);
  return file == crash_files_.end() ? "" : CrashNote(file->second.first, file->second.second);
}

absl::optional<int> Scheduler::LeftWith(int rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto left = left_.find(rank);
  return left == left_.end() ? absl::nullopt : absl::make_optional(left->second);
}

void Scheduler::Understand(Worker& worker) {
  size_t begin = 0;
  const size_t tag = worker.seals.receive.tag_bytes();
  while (worker.socket && !over_) {
    const absl::string_view all = absl::string_view(worker.buffer).substr(begin);
    if (all.size() < kControlHeaderBytes) break;
    const auto body = ControlBodyBytes(all);
    const size_t size = kControlHeaderBytes + (body.ok() ? *body : 0);
    if (body.ok() && all.size() < size + tag) break;
    Status status = body.status();
    if (status.ok() && tag > 0) status = worker.seals.receive.Check(all.substr(0, size), all.substr(size, tag));
    const auto message = status.ok() ? DecodeControl(all.substr(0, size)) : StatusOr<ControlMessage>(status);
    if (!message.ok()) return Expel(worker, std::string(message.status().message()));
    begin += size + tag;
    Handle(worker, *message);
  }
  worker.buffer.erase(0, begin);
}

void Scheduler::Expel(Worker& worker, const std::string& why) {
  admission_.refusals().Refused(
      worker.source, [&] { return NameOfPeer(worker.socket.fd(), worker.peer); }, why);
  worker.socket.Close();
  if (worker.left || over_) return;
  Lose(worker, EndOf(worker, absl::DataLossError(why)));
}

void Scheduler::Handle(Worker& worker, const ControlMessage& message) {
  // Heartbeats begin with the registration and end with the process.
  if (message.type == Type::kHeartbeat) {
    return Listen(worker, message);
  }
  // Only members speak of the job, and there are none before all have come.
  if (worker.left || worker.rank < 0) return Expel(worker, "it sent a message that only a member may send");
  switch (message.type) {
    case Type::kCompare:
      return Compare(worker, OnOneLine(message.Field("name")), OnOneLine(message.Field("value")));
    case Type::kRelay:
      return Relay(worker, message);
    case Type::kAbort: {
      const std::string why = absl::StrCat(NameOf(worker), ": ", PrintableMessage(message.Field("why")));
      return Fault(WithCause(absl::AbortedError(why), {worker.rank, FailureCode(message)}));
    }
    case Type::kLeave: {
      worker.left = true;
      int code = kExitOk;
      if (!absl::SimpleAtoi(message.Field("code"), &code) || code < 0 || code > 255) code = kExitOk;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        left_[worker.rank] = code;
      }
      const Roster::Decision decision = roster_.Leave(worker.key, code);
      if (!compared_.empty()) {
        const std::string what =
            absl::StrCat(NameOf(worker), " has finished, and others wait for it (", compared_.begin()->first, ")");
        return Fault(WithCause(absl::FailedPreconditionError(what), {worker.rank, kExitHang}));
      }
      return Apply(decision);
    }
    default:
      return Expel(worker, "it sent a message that no worker sends");
  }
}

void Scheduler::Listen(Worker& worker, const ControlMessage& heartbeat) {
  int64_t turn = 0;
  if (absl::SimpleAtoi(heartbeat.Field("turn"), &turn)) roster_.Progress(worker.key, turn);
  if (const std::string crash = heartbeat.Field("crash"); !crash.empty() && worker.rank >= 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    crash_files_[worker.rank] = {crash, worker.join["who"]};
  }
  const std::string elastic = heartbeat.Field("elastic");
  if (worker.rank == 0 && !elastic.empty() && elastic != elastic_) Allow(elastic);
}

void Scheduler::Allow(const std::string& elastic) {
  elastic_ = elastic;
  const std::pair<std::string, std::string> ends = absl::StrSplit(elastic, absl::MaxSplits(':', 1));
  int least = 0, most = 0;
  if (!options_.recover || options_.least > 0 || !absl::SimpleAtoi(ends.first, &least) ||
      !absl::SimpleAtoi(ends.second, &most) || (least == least_ && most == most_))
    return;
  if (const Status allowed = roster_.Allow(least, most); !allowed.ok())
    return Apply(roster_.Fail(WithCause(allowed, {-1, kExitUsage}), MonotonicNow()));
  least_ = least;
  most_ = most;
  Log(absl::StrCat("The job may have ", least, " to ", most, " ranks."));
  Remember();
}

bool Scheduler::Remember() {
  if (!options_.on_epoch) return true;
  const JobEpoch epoch = {roster_.epoch(), roster_.size(), least_, most_};
  const Status kept = options_.on_epoch(epoch);
  if (kept.ok()) return true;
  const bool changes = options_.spares > 0 || least_ != most_;
  if (epoch.number > 1 && !changes) {
    Log(absl::StrCat("warning: ", kept.message(), "; the workers know as much, and the job continues"));
    return true;
  }
  Apply(roster_.Abandon(WithCause(kept, {-1, kExitStorage})));
  return false;
}

// Workers that wait for the others are told, so that a person can start another in the refused one's place.
void Scheduler::Refuse(Worker& newcomer, const std::string& why) {
  refused_ = absl::StrCat(newcomer.join["id"], " is refused: ", why);
  const std::string line = absl::StrCat("The node: ", refused_);
  Log(absl::StrCat(line, " (", NameOfPeer(newcomer.socket.fd(), newcomer.peer), ")"));
  Send(newcomer, {Type::kRefuse, {{"reason", why}}});
  newcomer.socket.Close();
  for (auto& worker : workers_) {
    if (!built_) Send(*worker, {Type::kProgress, {{"line", line}}});
  }
}

std::string Scheduler::OwnDifference(const Worker& newcomer) const {
  for (const auto& [name, value] : options_.shared) {
    const auto given = newcomer.join.find(absl::StrCat(kHash, name));
    if (given != newcomer.join.end() && given->second == value) continue;
    return absl::StrCat("its ", name, " is ", given == newcomer.join.end() ? "not given" : given->second,
                        ", the scheduler's is ", value, "; fix: set the same for all processes of the job");
  }
  return "";
}

std::string Scheduler::Difference(const Worker& newcomer) const {
  const auto given = [](const Worker& worker, const std::string& name) {
    const auto it = worker.join.find(name);
    return it == worker.join.end() ? "not given" : it->second;
  };
  if (workers_.empty()) return "";
  const Worker& first = *workers_.front();  // the others are like it
  std::set<std::string> names;
  for (const Worker* worker : {&newcomer, &first}) {
    for (const auto& field : worker->join) {
      if (absl::StartsWith(field.first, kHash)) names.insert(field.first);
    }
  }
  for (const std::string& name : names) {
    const bool both = newcomer.join.count(name) > 0 && first.join.count(name) > 0;
    if (both && newcomer.join.at(name) == first.join.at(name)) continue;
    return absl::StrCat("its ", name.substr(kHash.size()), " is ", given(newcomer, name), ", that of ",
                        first.join.at("id"), " is ", given(first, name));
  }
  return "";
}

void Scheduler::Apply(const Roster::Decision& decision) {
  if (!decision.note.empty()) Log(decision.note);
  switch (decision.kind) {
    case Roster::Decision::Kind::kNothing:
      return;
    case Roster::Decision::Kind::kWelcome:
      return Welcome();
    case Roster::Decision::Kind::kRegroup:
      return Regroup(decision);
    case Roster::Decision::Kind::kEnd:
      return End(decision.cause);
  }
}

void Scheduler::Welcome() {
  std::map<int64_t, Worker*> by_key;
  for (auto& worker : workers_) by_key[worker->key] = worker.get();
  const int size = roster_.size();
  ControlMessage welcome = {
      Type::kWelcome,
      {{"job", job_}, {"size", absl::StrCat(size)}, {"epoch", absl::StrCat(roster_.epoch())}, {"cause", regrouped_}}};
  for (int r = 0; r < size; ++r) {
    Worker& worker = *by_key.at(roster_.by_rank()[static_cast<size_t>(r)]);
    worker.rank = r;
    welcome.fields[absl::StrCat("host.", r)] = worker.join["host"];
    welcome.fields[absl::StrCat("endpoint.", r)] = worker.join["endpoint"];
  }
  if (!Remember()) return;
  built_ = true;
  const std::string ranks = size == options_.workers ? "" : absl::StrCat(", ", size, " ranks");
  Log(roster_.epoch() == 1 ? absl::StrCat("The cluster topology has been constructed successfully", ranks, ".")
                           : absl::StrCat("The cluster topology has been constructed successfully, epoch ",
                                          roster_.epoch(), ranks, "."));
  for (auto& worker : workers_) {
    worker->heard = MonotonicNow();
    if (worker->rank < 0) continue;
    welcome.fields["rank"] = absl::StrCat(worker->rank);
    Send(*worker, welcome);
  }
  if (const int signal = std::exchange(stop_signal_, 0)) PassOn(signal);
}

void Scheduler::Compare(Worker& worker, const std::string& name, const std::string& value) {
  const auto ahead = std::count_if(compared_.begin(), compared_.end(),
                                   [&](const auto& entry) { return entry.second.count(worker.rank) > 0; });
  if (ahead >= static_cast<int>(kMostCompared) || name.size() + value.size() > kLongestCompared) {
    const std::string what = absl::StrCat(NameOf(worker), " gave a value to compare (", name.substr(0, 100), ") of ",
                                          value.size(), " bytes, ", ahead, " others waiting: at most ",
                                          kLongestCompared, " bytes and ", kMostCompared, " values are possible");
    return Fault(WithCause(absl::InvalidArgumentError(what), {worker.rank, kExitInternal}));
  }
  std::map<int, std::string>& values = compared_[name];
  values[worker.rank] = value;
  for (const auto& other : workers_) {
    if (!other->left) continue;
    const std::string what = absl::StrCat(NameOf(*other), " has finished, and others wait for it (", name, ")");
    return Fault(WithCause(absl::FailedPreconditionError(what), {other->rank, kExitHang}));
  }
  if (static_cast<int>(values.size()) < roster_.size()) return;
  std::map<std::string, std::vector<int>> ranks_of;
  for (const auto& [rank, v] : values) ranks_of[v].push_back(rank);
  std::vector<std::string> parts;
  for (const auto& [v, ranks] : ranks_of) parts.push_back(absl::StrCat(v, " on rank ", absl::StrJoin(ranks, ", ")));
  const std::string verdict = parts.size() == 1 ? "" : absl::StrCat(name, " differs: ", absl::StrJoin(parts, "; "));
  for (auto& each : workers_) {
    if (each->rank >= 0) Send(*each, {Type::kCompare, {{"name", name}, {"verdict", verdict}}});
  }
  compared_.erase(name);
}

void Scheduler::Relay(const Worker& from, ControlMessage message) {
  int to = -1;
  if (!absl::SimpleAtoi(message.Field("to"), &to) || to < 0 || from.rank < 0) return;
  message.fields.erase("to");
  message.fields["from"] = absl::StrCat(from.rank);
  for (const auto& worker : workers_) {
    if (worker->rank == to && worker->socket && !worker->left) Send(*worker, message);
  }
}

void Scheduler::Regroup(const Roster::Decision& decision) {
  const std::string why(decision.cause.message());
  Log(absl::StrCat(why, ": the job starts again (epoch ", roster_.epoch(), ")"));
  const Cause cause = CauseOf(decision.cause);
  const ControlMessage regroup = {Type::kRegroup,
                                  {{"why", why},
                                   {"rank", absl::StrCat(cause.rank)},
                                   {"code", absl::StrCat(cause.exit_code)},
                                   {"pause", absl::StrCat(absl::ToInt64Milliseconds(decision.pause))}}};
  for (auto& worker : workers_) {
    if (worker->socket) Send(*worker, regroup);
  }
  CloseAll(kRegroupLimit);
  compared_.clear();
  refused_.clear();
  ends_at_ = MonotonicTime::InfiniteFuture();
  job_ = RandomName();
  built_ = false;
  regrouped_ = why;
  const std::lock_guard<std::mutex> lock(mutex_);
  crash_files_.clear();
  left_.clear();
}

void Scheduler::End(const Status& cause_of_end) {
  over_ = true;
  Status status = cause_of_end;
  if (absl::IsDeadlineExceeded(status) && !refused_.empty())
    status = WithCause(Status(status.code(), absl::StrCat(status.message(), "; ", refused_)), CauseOf(status));
  result_ = status;
  if (status.ok()) exit_code_ = roster_.FirstExitCode();
  // Before the workers hear of it: with the first one that ends, its starter may end the others at once.
  if (!status.ok() && options_.on_cause) options_.on_cause(status);
  if (!status.ok()) Log(std::string(status.message()));
  const ControlMessage abort = AbortFor(status);
  // Workers that meet may have done their work already.
  const bool done = status.ok() || (HasCause(status) && CauseOf(status).exit_code == kExitOk);
  for (auto& worker : workers_) {
    if (!worker->socket || (status.ok() && worker->left)) continue;
    // One that has left waits for the others: that the connection ends would tell it that all have.
    Send(*worker, done ? ControlMessage{Type::kRefuse, {{"done", "1"}}} : abort);
  }
}

void Scheduler::Drain() { CloseAll(kSendLimit); }

// A connection that closes with something unread takes with it what the other end has not read yet.
void Scheduler::Close(Worker& worker, MonotonicTime deadline) {
  shutdown(worker.socket.fd().get(), SHUT_WR);
  char bytes[4096];
  while (PollFor(worker.socket.fd(), POLLIN, deadline).ok() &&
         recv(worker.socket.fd().get(), bytes, sizeof bytes, 0) > 0) {
  }
  worker.socket.Close();
}

void Scheduler::CloseAll(absl::Duration limit) {
  const MonotonicTime deadline = MonotonicNow() + limit;
  for (auto& worker : workers_) {
    if (worker->socket) Close(*worker, deadline);
  }
}

std::string Scheduler::NameOf(const Worker& worker) const {
  const std::string &who = worker.join.at("who"), &id = worker.join.at("id");
  const int rank = RankOf(worker.rank, id);
  return absl::StrCat(rank < 0 ? absl::StrCat("worker ", id, " of ") : absl::StrCat("rank ", rank, "/"), roster_.size(),
                      " (", who.empty() ? absl::StrCat(id, " on ", worker.join.at("host")) : who, ")");
}

void Scheduler::Send(Worker& worker, const ControlMessage& message) {
  // Who does not read within the limit is found by its missing heartbeats.
  SendAll(worker.socket, EncodeSealed(message, worker.seals.send), MonotonicNow() + kSendLimit).IgnoreError();
}

}  // namespace mslua
