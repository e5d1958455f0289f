#include "collectives/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/printable.h"
#include "core/base/clock.h"

namespace mslua {
namespace {

using Type = ControlMessage::Type;

constexpr absl::Duration kSendLimit = absl::Seconds(1);
constexpr absl::Duration kHeartbeat = absl::Milliseconds(500);
constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kSilence = absl::Seconds(10);        // of a scheduler, while a worker waits for it
constexpr absl::Duration kForLateWorkers = absl::Seconds(2);  // to come and hear why the job ends
constexpr absl::Duration kFirstPause = absl::Milliseconds(20), kLongestPause = absl::Seconds(1);  // between attempts
constexpr absl::Duration kNews = absl::Seconds(3);  // between lines of a worker that finds no scheduler
// Values to be compared that a rank may be ahead of the others with.
constexpr size_t kMostCompared = 16;
constexpr size_t kLongestCompared = 4 << 10;

bool IsRank(const std::string& id) {
  return !id.empty() && id.size() < 8 && std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "worker_2" before "worker_10": digits compare as numbers.
bool NaturallyLess(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      size_t x = i, y = j;
      while (x < a.size() && digit(a[x])) ++x;
      while (y < b.size() && digit(b[y])) ++y;
      const std::string left = a.substr(i, x - i), right = b.substr(j, y - j);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
      i = x, j = y;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

std::string RandomName() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

std::string Field(const ControlMessage& message, const std::string& name) {
  const auto it = message.fields.find(name);
  return it == message.fields.end() ? "" : it->second;
}

// A text of another process for a line of a log.
std::string OnOneLine(const std::string& text) {
  std::string line = Printable(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

// The exit code that a message carries. A job that was ended has not succeeded, whatever the message says.
int FailureCode(const ControlMessage& message) {
  int code = 0;
  return absl::SimpleAtoi(Field(message, "code"), &code) && code > 0 && code < 256 ? code : kExitRankCrashed;
}

// The error that a scheduler's kAbort carries.
Status AbortOf(const ControlMessage& message) {
  Cause cause = {-1, FailureCode(message)};
  int rank = 0;
  if (absl::SimpleAtoi(Field(message, "rank"), &rank) && rank >= 0) cause.rank = rank;
  return WithCause(absl::AbortedError(PrintableMessage(Field(message, "why"))), cause);
}

Status Security(const Status& status) {
  return absl::IsPermissionDenied(status) ? WithCause(status, {-1, kExitSecurity}) : status;
}

constexpr char kRankPayload[] = "mslua/rank";
constexpr char kCodePayload[] = "mslua/exit_code";

int PayloadInt(const Status& status, const char* name, int otherwise) {
  const auto payload = status.GetPayload(name);
  int value = 0;
  return payload.has_value() && absl::SimpleAtoi(std::string(*payload), &value) ? value : otherwise;
}

}  // namespace

Cause CauseOf(const Status& status) {
  Cause cause;
  cause.rank = PayloadInt(status, kRankPayload, cause.rank);
  cause.exit_code = PayloadInt(status, kCodePayload, cause.exit_code);
  return cause;
}

Status WithCause(Status status, const Cause& cause) {
  status.SetPayload(kRankPayload, absl::Cord(absl::StrCat(cause.rank)));
  status.SetPayload(kCodePayload, absl::Cord(absl::StrCat(cause.exit_code)));
  return status;
}

StatusOr<std::unique_ptr<Scheduler>> Scheduler::Start(const SchedulerOptions& options) {
  if (options.workers < 1) return absl::InvalidArgumentError("a job has at least one worker");
  std::unique_ptr<MeetingFolder> folder;
  Fd listener;
  Endpoint endpoint;
  if (!options.meeting.empty()) {
    ASSIGN_OR_RETURN(folder, MeetingFolder::Make(options.meeting));
    ASSIGN_OR_RETURN(listener, folder->Listen());
    endpoint.host = folder->socket();
  } else if (options.secret.empty()) {
    return absl::InvalidArgumentError("a scheduler that others reach by TCP needs a job secret");
  } else {
    ASSIGN_OR_RETURN(listener, ListenTcp(options.endpoint));
    ASSIGN_OR_RETURN(endpoint, LocalEndpoint(listener));
  }
  return std::unique_ptr<Scheduler>(
      new Scheduler(options, std::move(folder), std::move(listener), std::move(endpoint)));
}

namespace {

AdmissionOptions AdmissionOf(const SchedulerOptions& options) {
  AdmissionOptions admission;
  admission.secret = options.secret;
  admission.refusal = [](const ConnectionUse& use) {
    return use.kind == ConnectionUse::Kind::kControl ? "" : "this is a scheduler, and it asked for a rank";
  };
  admission.joins = true;
  admission.log = options.warn ? options.warn : options.log;
  return admission;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, std::unique_ptr<MeetingFolder> folder, Fd listener,
                     Endpoint endpoint)
    : options_(options),
      folder_(std::move(folder)),
      listener_(std::move(listener)),
      endpoint_(std::move(endpoint)),
      admission_(listener_, AdmissionOf(options)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      job_(RandomName()) {
  thread_ = std::thread([this] {
    Run();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      outcome_ = result_;
    }
    if (options_.on_over) options_.on_over();
    Drain();
  });
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

int Scheduler::Joined() const {
  return static_cast<int>(workers_.size());
}

void Scheduler::Run() {
  const MonotonicTime deadline = MonotonicNow() + options_.timeout;
  MonotonicTime next_progress = MonotonicNow() + options_.progress_every, looked = MonotonicNow();
  while (!over_) {
    std::vector<pollfd> entries = {{stop_.get(), POLLIN, 0}};
    for (const auto& worker : workers_) entries.push_back({worker->socket.get(), POLLIN, 0});
    const size_t members = entries.size();
    admission_.Poll(&entries);
    poll(entries.data(), entries.size(), static_cast<int>(absl::ToInt64Milliseconds(kTick)));
    if (entries[0].revents != 0) {
      std::unique_lock<std::mutex> lock(mutex_);
      const Status why = outside_;
      lock.unlock();
      return End(why);
    }
    for (size_t i = 1; i < members && !over_; ++i) {
      if (entries[i].revents != 0) Read(*workers_[i - 1]);
    }
    for (Admission::Newcomer& newcomer : admission_.Take(&entries[members])) {
      if (!over_) Join(std::move(newcomer));
    }
    workers_.erase(
        std::remove_if(workers_.begin(), workers_.end(), [](const auto& w) { return !w->socket && !w->left; }),
        workers_.end());
    joined_ = Joined();
    const MonotonicTime now = MonotonicNow();
    // While the scheduler had to wait for a core, workers of its host may have waited too.
    const absl::Duration late = now - looked - kTick;
    for (auto& worker : workers_) {
      if (late > kTick) worker->heard += late;
    }
    looked = now;
    if (!built_ && now >= ends_at_) {
      End(WithCause(absl::FailedPreconditionError(absl::StrCat("The node: ", refused_)), {-1, kExitEnvironment}));
    } else if (!built_ && now >= deadline) {
      const std::string what = absl::StrCat("only ", Joined(), " of ", options_.workers, " workers came within ",
                                            absl::FormatDuration(options_.timeout), "; missing: ", Missing(),
                                            refused_.empty() ? "" : absl::StrCat("; ", refused_));
      End(WithCause(absl::DeadlineExceededError(what), {-1, kExitEnvironment}));
    } else if (!built_ && now >= next_progress) {
      next_progress = now + options_.progress_every;
      const std::string line =
          absl::StrCat("The cluster topology is in the process of constructing, current alive node num: (", Joined(),
                       "/", options_.workers, "), missing: ", Missing());
      options_.progress ? options_.progress(line) : Log(line);
      for (auto& worker : workers_) Send(*worker, {Type::kProgress, {{"line", line}}});
    }
    for (auto& worker : workers_) {
      if (over_ || !built_ || worker->left || now - worker->heard < options_.heartbeat_limit) continue;
      const std::string what = absl::StrCat(NameOf(*worker), " has given no sign of life for ",
                                            absl::FormatDuration(options_.heartbeat_limit));
      End(WithCause(absl::UnavailableError(what), {worker->rank, kExitHang}));
    }
  }
}

void Scheduler::Join(Admission::Newcomer newcomer) {
  auto joining = std::make_unique<Worker>();
  Worker& worker = *joining;
  worker.socket = std::move(newcomer.socket);
  worker.source = std::move(newcomer.source);
  worker.seals = std::move(newcomer.seals);
  worker.heard = MonotonicNow();
  worker.buffer = std::move(newcomer.rest);
  for (const auto& [name, value] : newcomer.join.fields) worker.join[OnOneLine(name)] = OnOneLine(value);
  for (const char* name : {"id", "host", "endpoint", "who"}) worker.join.emplace(name, "");
  const std::string refusal = Refusal(worker), difference = refusal.empty() ? Difference(worker) : "";
  if (!refusal.empty()) return Refuse(worker, refusal);
  if (!difference.empty()) {
    Refuse(worker, difference);
    if (options_.differing_ends) ends_at_ = std::min(ends_at_, MonotonicNow() + kForLateWorkers);
    return;
  }
  Log(absl::StrCat("The new node: ", worker.join["id"], "(role: MS_WORKER) is registered successfully."));
  workers_.push_back(std::move(joining));
  Send(worker, {Type::kProgress, {}});  // it is registered: a connection that ends now ends for a reason
  if (Joined() == options_.workers) Build();
  Understand(worker);
}

void Scheduler::Read(Worker& worker) {
  char bytes[4096];
  const ssize_t n = recv(worker.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (n > 0) {
    worker.heard = MonotonicNow();
    worker.buffer.append(bytes, n);
    Understand(worker);
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
    worker.socket.Close();
    if (worker.left || over_) return;
    if (built_) {
      End(WithCause(absl::UnavailableError(absl::StrCat(NameOf(worker), " has ended without leaving the job")),
                    {worker.rank, kExitRankCrashed}));
    } else {
      Log(absl::StrCat("The node: ", worker.join["id"], " has gone before the cluster was complete."));
    }
  }
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
  admission_.refusals().Refused(worker.source, [&] { return NameOfPeer(worker.socket); }, why);
  worker.socket.Close();
  if (!built_ || worker.left || over_) return;
  End(WithCause(absl::DataLossError(absl::StrCat(NameOf(worker), ": ", why)), {worker.rank, kExitRankCrashed}));
}

void Scheduler::Handle(Worker& worker, const ControlMessage& message) {
  // Only members speak of the job, and there are none before all have come.
  if (worker.left || !built_) return Expel(worker, "it sent a message that only a member may send");
  switch (message.type) {
    case Type::kHeartbeat:
      return;
    case Type::kCompare:
      return Compare(worker, OnOneLine(Field(message, "name")), OnOneLine(Field(message, "value")));
    case Type::kRelay:
      return Relay(worker, message);
    case Type::kAbort: {
      const std::string why = absl::StrCat(NameOf(worker), ": ", PrintableMessage(Field(message, "why")));
      return End(WithCause(absl::AbortedError(why), {worker.rank, FailureCode(message)}));
    }
    case Type::kLeave:
      worker.left = true;
      if (!compared_.empty()) {
        const std::string what =
            absl::StrCat(NameOf(worker), " has finished, and others wait for it (", compared_.begin()->first, ")");
        return End(WithCause(absl::FailedPreconditionError(what), {worker.rank, kExitHang}));
      }
      over_ = std::all_of(workers_.begin(), workers_.end(), [](const auto& w) { return w->left; });
      return;
    default:
      return Expel(worker, "it sent a message that no worker sends");
  }
}

// Those who wait for all workers hear of it: somebody is to start another in its place.
void Scheduler::Refuse(Worker& newcomer, const std::string& why) {
  refused_ = absl::StrCat(newcomer.join["id"], " is refused: ", why);
  const std::string line = absl::StrCat("The node: ", refused_);
  Log(absl::StrCat(line, " (", NameOfPeer(newcomer.socket), ")"));
  Send(newcomer, {Type::kRefuse, {{"reason", why}}});
  newcomer.socket.Close();
  for (auto& worker : workers_) {
    if (!built_) Send(*worker, {Type::kProgress, {{"line", line}}});
  }
}

std::string Scheduler::Refusal(const Worker& newcomer) const {
  const std::string& id = newcomer.join.at("id");
  if (built_) {
    return absl::StrCat("the cluster is complete with ", options_.workers, " workers (MS_WORKER_NUM)");
  }
  int rank = 0;
  if (IsRank(id) && absl::SimpleAtoi(id, &rank) && rank >= options_.workers) {
    return absl::StrCat("MS_NODE_ID=", id, " asks for a rank beyond 0 to ", options_.workers - 1);
  }
  for (const auto& other : workers_) {
    int taken = -1;
    if (other->join.at("id") == id || (IsRank(id) && IsRank(other->join.at("id")) &&
                                       absl::SimpleAtoi(other->join.at("id"), &taken) && taken == rank)) {
      return absl::StrCat("MS_NODE_ID=", id, " is taken by a worker on ", other->join.at("host"), " that lives");
    }
  }
  return "";
}

std::string Scheduler::Difference(const Worker& newcomer) const {
  constexpr absl::string_view kHash = "hash.";
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

// Numeric ids are ranks; the others fill the gaps, ordered by host and id, numbers within ids as numbers.
void Scheduler::Build() {
  std::vector<Worker*> by_rank(options_.workers, nullptr), others;
  for (auto& worker : workers_) {
    int rank = -1;
    if (IsRank(worker->join["id"]) && absl::SimpleAtoi(worker->join["id"], &rank)) {
      by_rank[rank] = worker.get();
    } else {
      others.push_back(worker.get());
    }
  }
  std::sort(others.begin(), others.end(), [](Worker* a, Worker* b) {
    if (a->join["host"] != b->join["host"]) return NaturallyLess(a->join["host"], b->join["host"]);
    return NaturallyLess(a->join["id"], b->join["id"]);
  });
  size_t next = 0;
  ControlMessage welcome = {Type::kWelcome, {{"job", job_}, {"size", absl::StrCat(options_.workers)}}};
  for (int r = 0; r < options_.workers; ++r) {
    if (by_rank[r] == nullptr) by_rank[r] = others[next++];
    by_rank[r]->rank = r;
    welcome.fields[absl::StrCat("host.", r)] = by_rank[r]->join["host"];
    welcome.fields[absl::StrCat("endpoint.", r)] = by_rank[r]->join["endpoint"];
  }
  built_ = true;
  Log("The cluster topology has been constructed successfully.");
  for (Worker* worker : by_rank) {
    welcome.fields["rank"] = absl::StrCat(worker->rank);
    worker->heard = MonotonicNow();
    Send(*worker, welcome);
  }
}

void Scheduler::Compare(Worker& worker, const std::string& name, const std::string& value) {
  const auto ahead = std::count_if(compared_.begin(), compared_.end(),
                                   [&](const auto& entry) { return entry.second.count(worker.rank) > 0; });
  if (ahead >= static_cast<int>(kMostCompared) || name.size() + value.size() > kLongestCompared) {
    const std::string what = absl::StrCat(NameOf(worker), " gave a value to compare (", name.substr(0, 100), ") of ",
                                          value.size(), " bytes, ", ahead, " others waiting: at most ",
                                          kLongestCompared, " bytes and ", kMostCompared, " values are possible");
    return End(WithCause(absl::InvalidArgumentError(what), {worker.rank, kExitInternal}));
  }
  std::map<int, std::string>& values = compared_[name];
  values[worker.rank] = value;
  for (const auto& other : workers_) {
    if (!other->left) continue;
    const std::string what = absl::StrCat(NameOf(*other), " has finished, and others wait for it (", name, ")");
    return End(WithCause(absl::FailedPreconditionError(what), {other->rank, kExitHang}));
  }
  if (static_cast<int>(values.size()) < options_.workers) return;
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
  if (!absl::SimpleAtoi(Field(message, "to"), &to) || to < 0 || from.rank < 0) return;
  message.fields.erase("to");
  message.fields["from"] = absl::StrCat(from.rank);
  for (const auto& worker : workers_) {
    if (worker->rank == to && worker->socket && !worker->left) Send(*worker, message);
  }
}

void Scheduler::End(const Status& status) {
  over_ = true;
  result_ = status;
  Log(std::string(status.message()));
  const Cause cause = CauseOf(status);
  const ControlMessage abort = {Type::kAbort,
                                {{"why", std::string(status.message())},
                                 {"rank", absl::StrCat(cause.rank)},
                                 {"code", absl::StrCat(cause.exit_code)}}};
  for (auto& worker : workers_) {
    if (worker->socket && !worker->left) Send(*worker, abort);
  }
}

// A connection that closes with something unread takes with it what the other end has not read yet.
void Scheduler::Drain() {
  const MonotonicTime deadline = MonotonicNow() + kSendLimit;
  for (auto& worker : workers_) {
    if (!worker->socket) continue;
    shutdown(worker->socket.get(), SHUT_WR);
    char bytes[4096];
    while (PollFor(worker->socket, POLLIN, deadline).ok() && recv(worker->socket.get(), bytes, sizeof bytes, 0) > 0) {
    }
    worker->socket.Close();
  }
}

std::string Scheduler::NameOf(const Worker& worker) const {
  const std::string& who = worker.join.at("who");
  return absl::StrCat("rank ", worker.rank, "/", options_.workers, " (",
                      who.empty() ? absl::StrCat(worker.join.at("id"), " on ", worker.join.at("host")) : who, ")");
}

// The ranks that nobody has asked for, when ids are ranks; else how many.
std::string Scheduler::Missing() const {
  std::vector<bool> here(options_.workers);
  bool numeric = Joined() > 0;
  for (const auto& worker : workers_) {
    int rank = -1;
    if (IsRank(worker->join.at("id")) && absl::SimpleAtoi(worker->join.at("id"), &rank)) {
      here[rank] = true;
    } else {
      numeric = false;
    }
  }
  if (!numeric) return absl::StrCat(options_.workers - Joined(), " workers");
  std::vector<int> missing;
  for (int r = 0; r < options_.workers; ++r) {
    if (!here[r]) missing.push_back(r);
  }
  return absl::StrCat("MS_NODE_ID ", absl::StrJoin(missing, ", "));
}

void Scheduler::Send(Worker& worker, const ControlMessage& message) {
  // Who does not read within the limit is found by its missing heartbeats.
  SendAll(worker.socket, EncodeSealed(message, worker.seals.send), MonotonicNow() + kSendLimit).IgnoreError();
}

StatusOr<std::unique_ptr<Membership>> Membership::Join(const JoinOptions& options) {
  const MonotonicTime deadline = MonotonicNow() + options.timeout;
  const std::string where =
      absl::StrCat("scheduler at ", options.where.empty() ? ToString(options.scheduler) : options.where);
  std::mt19937 random(std::random_device{}());
  absl::Duration pause = kFirstPause;
  MonotonicTime next_news = MonotonicNow() + kNews;
  while (true) {
    auto made = TryJoin(options, deadline);
    if (made.ok()) return made;
    const Status why = Annotate(Security(made.status()), where);
    if (!absl::IsUnavailable(why)) return why;
    if (MonotonicNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("no answer within ", absl::FormatDuration(options.timeout), ": ",
                                                      why.message()));
    }
    if (options.log && MonotonicNow() >= next_news) {
      next_news = MonotonicNow() + kNews;
      options.log(absl::StrCat("waiting for the scheduler: ", why.message()));
    }
    // Many workers that were turned away at once do not come back at once.
    const double spread = std::uniform_real_distribution<double>(0.5, 1.5)(random);
    absl::SleepFor(std::min(pause * spread, std::max(deadline - MonotonicNow(), absl::ZeroDuration())));
    pause = std::min(2 * pause, kLongestPause);
  }
}

StatusOr<std::unique_ptr<Membership>> Membership::TryJoin(const JoinOptions& options, MonotonicTime deadline) {
  std::unique_ptr<Membership> me(new Membership());
  // The scheduler answers at once, or has lost sight of this connection.
  const MonotonicTime answer_by = std::min(deadline, MonotonicNow() + kSilence);
  const auto late = [](const Status& status) {
    return absl::IsDeadlineExceeded(status) ? absl::UnavailableError(status.message()) : status;
  };
  if (absl::StartsWith(options.scheduler.host, "/")) {
    ASSIGN_OR_RETURN(me->socket_, ConnectMeeting(options.scheduler.host));
  } else if (options.secret.empty()) {
    return absl::InvalidArgumentError("a worker that reaches its scheduler by TCP needs the job's secret");
  } else {
    auto socket = ConnectTcp(options.scheduler, std::min(deadline, MonotonicNow() + kNews));
    if (!socket.ok()) return late(socket.status());
    me->socket_ = std::move(*socket);
    auto seals = Authenticate(me->socket_, options.secret, ConnectionUse(), answer_by);
    if (!seals.ok()) return late(seals.status());
    me->seals_ = std::move(*seals);
  }
  me->on_over_ = options.on_over;
  ControlMessage join = {Type::kJoin,
                         {{"id", options.node_id.empty() ? RandomName() : options.node_id},
                          {"host", options.self.host},
                          {"who", options.who},
                          {"endpoint", ToString(options.self.endpoint)}}};
  for (const auto& [name, value] : options.hashes) join.fields[absl::StrCat("hash.", name)] = value;
  RETURN_IF_ERROR(late(me->Send(join)));
  bool registered = false;
  // While the scheduler speaks, it is the one who gives up: it knows who is missing.
  deadline = std::max(deadline, MonotonicNow() + kSilence);
  ControlMessage welcome;
  while (welcome.type != Type::kWelcome) {
    auto message = ReceiveControl(me->socket_, me->seals_.receive, registered ? deadline : answer_by);
    // Not an attempt that is to be repeated: the scheduler had this worker.
    if (!message.ok() && registered) return absl::AbortedError(message.status().message());
    if (!message.ok()) return late(message.status());
    if (message->type == Type::kRefuse) {
      return absl::FailedPreconditionError(
          absl::StrCat("refuses this worker: ", PrintableMessage(Field(*message, "reason"))));
    }
    if (message->type == Type::kAbort) {
      const Status over = AbortOf(*message);
      return WithCause(absl::DeadlineExceededError(over.message()), CauseOf(over));
    }
    if (message->type == Type::kProgress) {
      registered = true;
      deadline = std::max(deadline, MonotonicNow() + kSilence);
      const std::string line = PrintableMessage(Field(*message, "line"));
      if (options.log && !line.empty()) options.log(line);
    }
    welcome = std::move(*message);
  }
  int size = 0;
  if (!absl::SimpleAtoi(Field(welcome, "size"), &size) || !absl::SimpleAtoi(Field(welcome, "rank"), &me->rank_) ||
      size < 1 || me->rank_ < 0 || me->rank_ >= size) {
    return absl::DataLossError("a malformed welcome came");
  }
  me->job_ = Field(welcome, "job");
  for (int r = 0; r < size; ++r) {
    const auto endpoint = ParseEndpoint(Field(welcome, absl::StrCat("endpoint.", r)));
    me->peers_.push_back({Field(welcome, absl::StrCat("host.", r)), endpoint.ok() ? *endpoint : Endpoint()});
  }
  me->stop_ = Fd(eventfd(0, EFD_CLOEXEC));
  me->thread_ = std::thread([raw = me.get()] { raw->Run(); });
  return me;
}

Membership::~Membership() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof one) < 0) shutdown(socket_.get(), SHUT_RDWR);
  thread_.join();
}

Status Membership::Send(const ControlMessage& message) {
  std::lock_guard<std::mutex> lock(send_mutex_);
  return SendAll(socket_, EncodeSealed(message, seals_.send), MonotonicNow() + kSendLimit);
}

void Membership::Run() {
  MonotonicTime next_heartbeat = MonotonicNow() + kHeartbeat;
  while (true) {
    pollfd entries[] = {{stop_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
    const int64_t wait = absl::ToInt64Milliseconds(next_heartbeat - MonotonicNow()) + 1;
    const int ready = poll(entries, 2, static_cast<int>(std::max<int64_t>(0, wait)));
    if (entries[0].revents != 0) return;
    // Also while others speak to this rank all the time.
    if (MonotonicNow() >= next_heartbeat) {
      next_heartbeat = MonotonicNow() + kHeartbeat;
      Send({Type::kHeartbeat, {}}).IgnoreError();  // a lost connection shows when it is read
    }
    if (ready == 0) continue;
    StatusOr<ControlMessage> message = ControlMessage();
    message = ReceiveControl(socket_, seals_.receive, MonotonicNow() + kSendLimit);
    if (message.ok() && message->type == Type::kRelay) {
      Deliver(*message);
      continue;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (!message.ok()) {
      health_ = Annotate(message.status(), "the connection to the scheduler is lost");
    } else if (message->type == Type::kAbort) {
      health_ = AbortOf(*message);
    } else if (message->type == Type::kCompare) {
      verdicts_[Field(*message, "name")] = Field(*message, "verdict");
    }
    changed_.notify_all();
    if (health_.ok()) continue;
    const Status health = health_;
    lock.unlock();
    if (on_over_) on_over_(health);
    return;
  }
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

void Membership::Tell(int rank, const Texts& texts) {
  ControlMessage message{Type::kRelay, texts};
  message.fields["to"] = absl::StrCat(rank);
  Send(message).IgnoreError();  // a lost connection shows when it is read
}

void Membership::Listen(std::function<void(int from, const Texts& texts)> listener) {
  const std::lock_guard<std::mutex> lock(listener_mutex_);
  listener_ = std::move(listener);
}

void Membership::Deliver(const ControlMessage& message) {
  int from = -1;
  if (!absl::SimpleAtoi(Field(message, "from"), &from)) return;
  const std::lock_guard<std::mutex> lock(listener_mutex_);
  if (listener_) listener_(from, message.fields);
}

void Membership::Leave() { Send({Type::kLeave, {}}).IgnoreError(); }

}  // namespace mslua
