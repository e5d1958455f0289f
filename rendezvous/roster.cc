#include "rendezvous/roster.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/exit_code.h"

namespace mslua {
namespace {

using Kind = Roster::Decision::Kind;

// For further workers to come, when one has: the job grows once for all of them.
constexpr absl::Duration kTogether = absl::Seconds(1);
// For workers that are further in a job than its scheduler to find it, where that has no journal.
constexpr absl::Duration kForThePast = absl::Seconds(2);
constexpr int kNoRank = -1;
constexpr int64_t kBeginning = 1;  // the turn before any step

// The rank that an id asks for; kNoRank: it is a name.
int RankIn(const std::string& id) {
  int rank = kNoRank;
  const bool digits =
      !id.empty() && id.size() < 8 && std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits && absl::SimpleAtoi(id, &rank) ? rank : kNoRank;
}

bool SameWorker(const std::string& a, const std::string& b) {
  return a == b || (RankIn(a) != kNoRank && RankIn(a) == RankIn(b));
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

bool Before(const Roster::Worker& a, const Roster::Worker& b) {
  const int x = RankIn(a.id), y = RankIn(b.id);
  if ((x == kNoRank) != (y == kNoRank)) return y == kNoRank;
  if (x != y) return x < y;
  if (a.host != b.host) return NaturallyLess(a.host, b.host);
  return NaturallyLess(a.id, b.id);
}

// The first ten of a list.
std::string Some(const std::vector<std::string>& names) {
  constexpr size_t kSome = 10;
  if (names.size() <= kSome) return absl::StrJoin(names, ", ");
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + kSome, ", "), " and ", names.size() - kSome,
                      " others");
}

}  // namespace

Roster::Roster(const RosterOptions& options, MonotonicTime now)
    : options_(options),
      least_(options.least > 0 ? options.least : options.workers),
      most_(options.most > 0 ? options.most : options.workers),
      epoch_(options.epoch),
      size_(options.size > 0 ? options.size : options.workers),
      trained_size_(options.size),
      policy_(options.max_restarts),
      made_at_(now),
      gathers_since_(now),
      begins_at_(now),
      deadline_(now + options.timeout),
      last_came_(now) {}

std::string Roster::Refusal(const std::string& id) const {
  const int places = most_ + options_.spares;
  if (phase_ == Phase::kRun && static_cast<int>(workers_.size()) >= places)
    return absl::StrCat("the cluster is complete with ", size_, " workers (MS_WORKER_NUM)");
  if (phase_ != Phase::kRun && static_cast<int>(workers_.size()) >= places)
    return absl::StrCat("all ", places, " places are taken");
  if (RankIn(id) >= places) return absl::StrCat(options_.id_name, "=", id, " asks for a rank beyond 0 to ", places - 1);
  for (const Worker& other : workers_) {
    if (SameWorker(other.id, id))
      return absl::StrCat(options_.id_name, "=", id, " is taken by a worker on ", other.host, " that lives");
  }
  return "";
}

Roster::Decision Roster::Add(Worker worker, int64_t epoch, MonotonicTime now) {
  const int64_t known = phase_ == Phase::kGather ? epoch_ - 1 : epoch_;
  std::string later;
  if (changes() && epoch > known)
    later = absl::StrCat("worker ", worker.id, " on ", worker.host, " has been in epoch ", epoch,
                         " of this job, and its scheduler, which has lost its journal, knows of ", known);
  // Where all workers have to come, the scheduler learns from them how often they have met.
  if (phase_ == Phase::kGather) epoch_ = std::max(epoch_, epoch + 1);
  // Its last ones, which it has not told of.
  if (worker.turn > newest_) {
    newest_ = worker.turn;
    ++progress_;
  }
  worker.rank = kNoRank;
  last_came_ = now;
  workers_.push_back(std::move(worker));
  if (later.empty() || phase_ == Phase::kOver) return {};
  return End(WithCause(absl::DataLossError(absl::StrCat(
                           later, ": who has the newest state is not known; end all workers, and start the job again")),
                       {kNoRank, kExitStorage}));
}

Status Roster::Allow(int least, int most) {
  if (least < 1 || least > size_ || most < size_)
    return absl::InvalidArgumentError(
        absl::StrCat("elastic: expected 1 <= min <= ", size_, " <= max, the job's ranks; got ", least, " and ", most));
  least_ = least;
  most_ = most;
  return absl::OkStatus();
}

bool Roster::MayHaveAPast(MonotonicTime now) const {
  if (!changes() || options_.epoch > 1 || !known_.empty() || now - made_at_ >= kForThePast) return false;
  // The workers that a job begins with.
  std::set<int> asked;
  for (const Worker& w : workers_) asked.insert(RankIn(w.id));
  for (int r = 0; r < size_; ++r) {
    if (asked.count(r) == 0) return true;
  }
  return false;
}

const Roster::Worker* Roster::Find(int64_t key) const {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.key == key; });
  return found == workers_.end() ? nullptr : &*found;
}

Roster::Decision Roster::Lose(int64_t key, const Status& why, MonotonicTime now) {
  const Worker* const worker = Find(key);
  if (worker == nullptr || worker->left || phase_ == Phase::kOver) return {};
  const bool needed = phase_ == Phase::kRun && worker->rank != kNoRank;
  // The ranks leave when all have done their work: what is lost then is nothing but a good-bye.
  const auto left = std::find_if(workers_.begin(), workers_.end(), [](const Worker& w) { return w.left; });
  if (needed && options_.recover && left != workers_.end()) return Leave(key, left->exit_code);
  if (needed) return Fail(why, now);
  workers_.erase(workers_.begin() + (worker - workers_.data()));
  return {};
}

bool Roster::SizeFailed(const Status& why) const {
  const int code = CauseOf(why).exit_code;
  return elastic() && phase_ == Phase::kRun && trained_size_ > 0 && size_ != trained_size_ &&
         progress_ == progress_at_begin_ && !MayStartAgain(code) && code != kExitSecurity && code != kExitInterrupted &&
         code != kExitCheckpointed;
}

Roster::Decision Roster::Fail(const Status& why, MonotonicTime now) {
  if (phase_ == Phase::kOver) return {};
  // Who has left has finished its work, and does not come back.
  const bool left = std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.left; });
  if (!options_.recover || phase_ != Phase::kRun || left) return End(why);
  if (SizeFailed(why)) {
    impossible_.insert(size_);
    const std::string text = absl::StrCat("the training cannot continue on ", size_, " ranks: ", why.message());
    return Gather(WithCause(absl::UnavailableError(text), CauseOf(why)), absl::ZeroDuration(), now);
  }
  const RestartPolicy::Verdict verdict = policy_.Judge(why, {0, progress_});
  if (!verdict.again) return End(why, verdict.why);
  return Gather(why, verdict.pause, now);
}

Roster::Decision Roster::Gather(const Status& why, absl::Duration pause, MonotonicTime now) {
  known_.clear();
  spares_.clear();
  for (const Worker& w : workers_) (w.rank == kNoRank ? spares_ : known_).insert(w.id);
  workers_.clear();
  by_rank_.clear();
  if (trained_size_ > 0) size_ = trained_size_;
  ++epoch_;
  phase_ = Phase::kGather;
  gathers_since_ = last_came_ = now;
  begins_at_ = now + pause;
  deadline_ = now + options_.timeout;
  return {Kind::kRegroup, why, pause, ""};
}

Roster::Decision Roster::Leave(int64_t key, int exit_code) {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.key == key; });
  if (found == workers_.end()) return {};
  found->left = true;
  found->exit_code = exit_code;
  const bool all = std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.left || w.rank < 0; });
  return all ? End(absl::OkStatus()) : Decision();
}

Roster::Decision Roster::End(const Status& why, std::string note) {
  phase_ = Phase::kOver;
  return {Kind::kEnd, why, absl::ZeroDuration(), std::move(note)};
}

void Roster::Progress(int64_t key, int64_t turn) {
  const auto worker = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.key == key; });
  if (worker == workers_.end() || turn < 0) return;
  const bool more = worker->rank != kNoRank && turn > std::max(worker->turn, kBeginning);
  if (turn < worker->turn) newest_ = turn;
  newest_ = std::max(newest_, turn);
  worker->turn = turn;
  if (!more) return;
  ++progress_;
  trained_size_ = size_;
}

int Roster::SizeFor(int workers) const {
  for (int size = std::min(workers, most_); size >= least_; --size) {
    if (impossible_.count(size) == 0) return size;
  }
  return 0;
}

std::vector<Roster::Worker*> Roster::Chosen(MonotonicTime now) {
  if (now < begins_at_ || MayHaveAPast(now)) return {};
  // Who has a right to a place at once. Where workers change, one that was away may have an older state than those who
  // are waited for.
  std::vector<Worker*> first, others;
  const auto known = [this](const Worker* w) { return known_.count(w->id) > 0; };
  for (Worker& w : workers_) {
    const bool waits = spares_.count(w.id) > 0 || (changes() && !known(&w));
    (waits ? others : first).push_back(&w);
  }
  std::stable_partition(first.begin(), first.end(), known);
  const bool late = now - gathers_since_ >= options_.replace_after;
  if (late || known_.empty()) first.insert(first.end(), others.begin(), others.end());
  const int here = static_cast<int>(first.size());
  // Without the ranks that it had the job continues only where it may have fewer, and when nobody else comes.
  const int wanted = impossible_.count(size_) > 0 ? SizeFor(size_) : size_;
  const int size = here >= wanted ? wanted : late ? SizeFor(here) : 0;
  first.resize(static_cast<size_t>(std::max(0, std::min(size, here))));
  return first;
}

// Numeric ids are ranks where there are as many; the others fill the gaps, ordered by host and id, numbers within ids
// as numbers.
Roster::Decision Roster::Begin(const std::vector<Worker*>& chosen) {
  size_ = static_cast<int>(chosen.size());
  std::vector<Worker*> by_rank(chosen.size(), nullptr), others;
  for (Worker* w : chosen) {
    const int asked = RankIn(w->id);
    (asked >= 0 && asked < size_ ? by_rank[static_cast<size_t>(asked)] : others.emplace_back()) = w;
  }
  std::sort(others.begin(), others.end(), [](const Worker* a, const Worker* b) { return Before(*a, *b); });
  size_t next = 0;
  by_rank_.clear();
  for (size_t r = 0; r < by_rank.size(); ++r) {
    if (by_rank[r] == nullptr) by_rank[r] = others[next++];
    by_rank[r]->rank = static_cast<int>(r);
    by_rank_.push_back(by_rank[r]->key);
  }
  phase_ = Phase::kRun;
  progress_at_begin_ = progress_;
  return {Kind::kWelcome, absl::OkStatus(), absl::ZeroDuration(), ""};
}

Roster::Decision Roster::Grow(MonotonicTime now) {
  if (!options_.recover || !elastic() || now - last_came_ < kTogether) return {};
  const int size = SizeFor(static_cast<int>(workers_.size()));
  const bool left = std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.left; });
  if (size <= size_ || left) return {};
  std::vector<std::string> ids;
  for (const Worker& w : workers_) {
    if (w.rank == kNoRank) ids.push_back(w.id);
  }
  const std::string text = absl::StrCat(ids.size() == 1 ? "worker " : "workers ", absl::StrJoin(ids, ", "),
                                        ids.size() == 1 ? " has come" : " have come");
  Decision grown = Gather(WithCause(absl::UnavailableError(text), {kNoRank, kExitOk}), absl::ZeroDuration(), now);
  known_.insert(spares_.begin(), spares_.end());
  spares_.clear();
  size_ = size;
  return grown;
}

Roster::Decision Roster::Look(MonotonicTime now) {
  if (phase_ == Phase::kRun) return Grow(now);
  if (phase_ == Phase::kOver) return {};
  const std::vector<Worker*> chosen = Chosen(now);
  if (!chosen.empty()) return Begin(chosen);
  if (now < deadline_) return {};
  const std::string text = absl::StrCat("only ", workers_.size(), " of ", size_, " workers came within ",
                                        absl::FormatDuration(options_.timeout), "; missing: ", Missing());
  return End(WithCause(absl::DeadlineExceededError(text), {kNoRank, kExitEnvironment}));
}

std::string Roster::Missing() const {
  // Those that had a rank before, where it is known: a spare that is here is not missed.
  std::vector<std::string> lost;
  for (const std::string& id : known_) {
    if (std::none_of(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.id == id; })) lost.push_back(id);
  }
  if (!lost.empty()) return absl::StrCat(options_.id_name, " ", Some(lost));
  std::vector<bool> here(static_cast<size_t>(size_));
  bool numeric = !workers_.empty();
  for (const Worker& w : workers_) {
    const int rank = RankIn(w.id);
    numeric = numeric && rank >= 0 && rank < size_;
    if (numeric) here[static_cast<size_t>(rank)] = true;
  }
  const int count = std::max(0, size_ - static_cast<int>(workers_.size()));
  if (!numeric) return absl::StrCat(count, " workers");
  std::vector<std::string> missing;
  for (int r = 0; r < size_; ++r) {
    if (!here[static_cast<size_t>(r)]) missing.push_back(absl::StrCat(r));
  }
  return absl::StrCat(options_.id_name, " ", Some(missing));
}

int Roster::FirstExitCode() const {
  std::map<int, int> codes;
  for (const Worker& w : workers_) codes[w.rank] = w.exit_code;
  for (const auto& [rank, code] : codes) {
    if (code != 0) return code;
  }
  return kExitOk;
}

}  // namespace mslua
