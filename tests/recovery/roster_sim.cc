// Runs jobs of random size with random faults through the scheduler's roster (rendezvous/roster.h), in simulated time,
// and asks what must hold of every one of them. usage: roster_sim [--seeds N]; roster_sim --seed S prints what happens
// in one.
//
// Workers, their scheduler and the connections between them are modelled: messages take random times, connections
// break, so that both ends learn of it at other moments or a join comes twice; workers and the scheduler die and start
// again, the scheduler with its journal, an older one, or none; workers stay away, others come. A worker's image keeps
// its committed and its prepared turn, as core/image does. After a while the faults end. A worker that waits, or
// waited, as a spare knows the epoch that ran without it. Where the workers of a job change, a scheduler that lost its
// journal may end the job; it may not let one continue from an older state than the newest that its workers have.
//
// - One lineage: all ranks of an epoch begin with the same turns, made by the same numbers of ranks.
// - No turn is lost that one of those who continue has committed.
// - A rank of an epoch is one worker's, and an epoch's number is used once.
// - Every job ends, with every turn made, unless too few workers are left.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/exit_code.h"
#include "rendezvous/roster.h"

namespace mslua {
namespace {

constexpr int64_t kTurns = 40;     // of a job
constexpr double kFaultsEnd = 60;  // seconds
constexpr double kJobEnds = 4000;  // when a job that still runs counts as one that does not end

MonotonicTime At(double seconds) { return MonotonicTime(absl::Seconds(seconds)); }

// What a training is after a turn: the turns before it, and on how many ranks each was made.
using Content = uint64_t;
Content After(Content before, int64_t turn, size_t ranks) {
  return (before ^ static_cast<Content>(turn) * 0x9e3779b97f4a7c15u ^ ranks) * 0xff51afd7ed558ccdu;
}

struct Image {
  int64_t generation = 0, birth = 0;  // the epoch in which it was made, and that of which scheduler
  size_t ranks = 0;                   // of that epoch
  int64_t committed = 0, prepared = 0;
  Content committed_content = 0, prepared_content = 0;
  bool Holds(int64_t turn) const { return turn == committed || turn == prepared; }
  Content Of(int64_t turn) const { return turn == committed ? committed_content : prepared_content; }
};

struct Node {
  std::string id;
  bool alive = false, done = false;
  int64_t process = 0;     // of it now
  int64_t connection = 0;  // 0: none
  int64_t epoch = 0;       // of the last welcome that this process, or the one that it was, has had
  int rank = -1;           // -1: it waits
  bool resumed = false;    // all ranks of its epoch have met
  Image image;             // outlives the process
};

// What the ranks of one epoch do together, beside the scheduler.
struct Epoch {
  std::vector<int> nodes;  // by rank
  std::set<int> met;       // ranks that have come
  int64_t from = -1;       // the turn that it resumes from
  std::map<int64_t, std::set<int>> prepared;
  std::set<int> ready;  // ranks that have done all
};

class Simulation {
 public:
  // `trace`: prints what happens.
  Simulation(uint64_t seed, bool trace) : random_(seed), trace_(trace) {}
  // Empty: all holds.
  std::string Run();

 private:
  double Uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  void Later(double seconds, std::function<void()> what) { events_.push({now_ + seconds, next_++, std::move(what)}); }
  void Say(const std::string& what) {
    if (trace_) std::printf("%9.3f  %s\n", now_, what.c_str());
  }
  // Most messages are quick.
  double Delay() { return Below(10) == 0 ? Uniform(0, 3) : Uniform(0.0001, 0.01); }
  void Break(const std::string& what) {
    if (broken_.empty()) broken_ = absl::StrCat("after ", now_, " s: ", what);
  }

  void StartNode(int n);
  void KillNode(int n);
  void Join(int n);
  void Disconnected(int n);
  void StartScheduler();
  void KillScheduler();
  void Take(const Roster::Decision& decision);
  void Tick();
  void LoseConnection(int64_t connection);
  void Welcome();
  void Meet(int n);
  void Resume(int64_t number, Epoch* epoch);
  void Turn(int n, int64_t turn);
  void Commit(int64_t epoch, int n, int64_t turn);
  void Fault();
  void NextFault();
  void Leave(int64_t number, int n);

  struct Event {
    double at;
    int64_t order;
    std::function<void()> what;
    bool operator<(const Event& o) const { return at != o.at ? at > o.at : order > o.order; }
  };
  std::mt19937_64 random_;
  const bool trace_;
  std::priority_queue<Event> events_;
  double now_ = 0;
  int64_t next_ = 0, next_connection_ = 1, scheduler_process_ = 0;
  RosterOptions options_;
  std::unique_ptr<Roster> roster_;                   // null: there is no scheduler
  std::map<int64_t, std::pair<int, int64_t>> ends_;  // of connections that the scheduler has: node and process
  std::vector<Node> nodes_;
  std::map<int64_t, Epoch> epochs_;
  std::map<std::pair<int64_t, int64_t>, Content> committed_in_;  // by turn and birth
  // The journal: what is on disk, and what the scheduler before has written.
  int64_t journal_ = 0;
  int journal_size_ = 0;
  std::string broken_;
  bool noted_done_ = false;  // on disk, for a scheduler that has not heard so
  bool over_ = false, loops_ = false, lost_journal_ = false, refused_ = false;
  int64_t next_birth_ = 1;
  int64_t made_ = 0;  // the newest turn
  Status outcome_;
};

void Simulation::StartNode(int n) {
  Node& node = nodes_[static_cast<size_t>(n)];
  if (node.alive || node.done || over_) return;
  Say(absl::StrCat(node.id, " starts"));
  node.alive = true;
  ++node.process;
  node.connection = 0;
  node.rank = -1;
  node.resumed = false;
  Join(n);
}

void Simulation::KillNode(int n) {
  Node& node = nodes_[static_cast<size_t>(n)];
  if (!node.alive || node.done) return;
  Say(absl::StrCat(node.id, " is killed"));
  node.alive = false;
  node.epoch = 0;  // what it knew has gone with it
  const int64_t connection = node.connection;
  Later(Below(5) == 0 ? Uniform(0, 4) : 0.001, [this, connection] { LoseConnection(connection); });
}

// The scheduler sees that a connection has ended.
void Simulation::LoseConnection(int64_t connection) {
  if (roster_ == nullptr || ends_.erase(connection) == 0) return;
  const Roster::Worker* const worker = roster_->Find(connection);
  const int rank = worker == nullptr ? -1 : worker->rank;
  Take(roster_->Lose(connection, WithCause(absl::UnavailableError("it is gone"), {rank, kExitRankCrashed}), At(now_)));
}

// A process without a connection tries to get one until it has.
void Simulation::Join(int n) {
  Node& node = nodes_[static_cast<size_t>(n)];
  const int64_t process = node.process;
  if (!node.alive || node.connection != 0 || over_) return;
  const int64_t connection = next_connection_++;
  Later(Delay(), [this, n, process, connection] {
    Node& node = nodes_[static_cast<size_t>(n)];
    const auto again = [this, n, process] {
      if (nodes_[static_cast<size_t>(n)].process == process) Join(n);
    };
    if (over_) return;
    const bool here = node.alive && node.process == process;
    if (roster_ == nullptr || !roster_->Refusal(node.id).empty()) return Later(Uniform(0.02, 1), again);
    ends_[connection] = {n, process};
    Say(absl::StrCat(node.id, " joins"));
    Take(roster_->Add({connection, node.id, absl::StrCat("host", n % 3), -1, node.image.committed}, node.epoch,
                      At(now_)));
    if (over_) return;
    if (here && roster_->phase() == Roster::Phase::kRun) node.epoch = std::max(node.epoch, roster_->epoch());
    if (here && node.connection == 0) node.connection = connection;
    // It has gone meanwhile, or the answer does not come back: the scheduler hears of that later.
    const bool lost = !here || node.connection != connection || Below(30) == 0;
    if (lost) Later(Uniform(0, 3), [this, connection] { LoseConnection(connection); });
    if (lost && here && node.connection == connection) Disconnected(n);
    if (roster_->phase() == Roster::Phase::kGather) Take(roster_->Look(At(now_)));
  });
}

// The process hears that it is to join again: it starts again, with what it knows of epochs.
void Simulation::Disconnected(int n) {
  Node& node = nodes_[static_cast<size_t>(n)];
  if (!node.alive) return;
  const int64_t epoch = node.epoch, connection = node.connection;
  if (connection != 0) Later(Delay(), [this, connection] { LoseConnection(connection); });
  node.alive = false;
  StartNode(n);
  node.epoch = epoch;
}

void Simulation::StartScheduler() {
  if (over_) return;
  Say("the scheduler starts");
  RosterOptions options = options_;
  options.epoch = journal_ + 1;
  options.size = journal_size_;
  roster_ = std::make_unique<Roster>(options, At(now_));
  ++scheduler_process_;
  Tick();
}

void Simulation::KillScheduler() {
  if (roster_ == nullptr || roster_->phase() == Roster::Phase::kOver) return;
  Say("the scheduler is killed");
  roster_ = nullptr;
  ends_.clear();
  // Where every worker has to come the job does without the journal: they know how often they have met.
  if (Below(3) == 0) {
    journal_ = journal_size_ = 0;
    lost_journal_ = true;
  }
  const int64_t process = scheduler_process_;
  Later(Uniform(0.1, 8), [this, process] {
    if (process != scheduler_process_ || over_) return;
    StartScheduler();
    // Workers that run find a scheduler again, which knows nothing of them.
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const int64_t of = nodes_[n].process;
      Later(Uniform(0, 1), [this, n, of] {
        if (nodes_[n].process == of && nodes_[n].connection != 0) Disconnected(static_cast<int>(n));
      });
    }
  });
}

void Simulation::Tick() {
  const int64_t process = scheduler_process_;
  Later(0.1, [this, process] {
    if (process != scheduler_process_ || roster_ == nullptr || over_) return;
    if (noted_done_ && roster_->phase() == Roster::Phase::kGather) over_ = true;
    Take(roster_->Look(At(now_)));
    if (process == scheduler_process_ && roster_ != nullptr && !over_) Tick();
  });
}

void Simulation::Take(const Roster::Decision& decision) {
  constexpr const char* kNames[] = {"", "welcome", "regroup", "end"};
  if (decision.kind != Roster::Decision::Kind::kNothing)
    Say(absl::StrCat("scheduler: ", kNames[static_cast<int>(decision.kind)], ", epoch ", roster_->epoch(), ", ",
                     roster_->size(), " ranks: ", decision.cause.message()));
  switch (decision.kind) {
    case Roster::Decision::Kind::kNothing:
      return;
    case Roster::Decision::Kind::kWelcome:
      return Welcome();
    case Roster::Decision::Kind::kRegroup: {
      const auto ends = std::move(ends_);
      ends_.clear();
      for (const auto& [connection, end] : ends) {
        const int n = end.first;
        const int64_t process = end.second, c = connection;
        Later(Delay(), [this, n, process, c] {
          Node& node = nodes_[static_cast<size_t>(n)];
          if (node.process == process && node.connection == c) Disconnected(n);
        });
      }
      return;
    }
    case Roster::Decision::Kind::kEnd:
      over_ = true;
      refused_ = CauseOf(decision.cause).exit_code == kExitStorage;
      if (refused_ && !lost_journal_) Break("the job is refused, and no journal was lost");
      // The same failure again and again, which the faults here make by chance, is an end as it should be.
      if (decision.note.empty()) outcome_ = decision.cause;
      loops_ = !decision.note.empty();
      return;
  }
}

void Simulation::Welcome() {
  const int64_t epoch = roster_->epoch();
  const int crash = Below(40);
  if (crash == 0) return KillScheduler();  // what it has written is torn: the journal is the one before
  journal_ = epoch;                        // forced to disk before anybody hears of it
  journal_size_ = roster_->size();
  if (crash == 1) return KillScheduler();
  if (roster_->size() < options_.least || roster_->size() > options_.most)
    Break(absl::StrCat("an epoch of ", roster_->size(), " ranks"));
  std::set<std::string> ids;
  Epoch made;
  for (const int64_t key : roster_->by_rank()) {
    const Roster::Worker* const worker = roster_->Find(key);
    if (worker == nullptr || !ids.insert(worker->id).second) return Break("a rank without a worker of its own");
    made.nodes.push_back(ends_.at(key).first);
  }
  for (const int64_t key : roster_->by_rank()) {
    const int n = ends_.at(key).first;
    const int64_t process = ends_.at(key).second;
    const int rank = roster_->Find(key)->rank;
    Later(Delay(), [this, n, process, key, epoch, rank] {
      Node& node = nodes_[static_cast<size_t>(n)];
      if (!node.alive || node.process != process || node.connection != key) return;
      if (node.epoch >= epoch) Break(absl::StrCat("worker ", node.id, " has had epoch ", epoch, " before"));
      node.epoch = epoch;
      node.rank = rank;
      Meet(n);
    });
  }
  // A scheduler that knew less than all workers may use a number again, for others who have not heard it either.
  epochs_[epoch] = std::move(made);
}

// All ranks of an epoch tell each other what they hold, and resume from the newest turn that all have.
void Simulation::Meet(int n) {
  const int64_t number = nodes_[static_cast<size_t>(n)].epoch;
  Epoch& epoch = epochs_[number];
  epoch.met.insert(n);
  if (epoch.met.size() < epoch.nodes.size()) return;
  for (const int m : epoch.nodes) {
    const Node& node = nodes_[static_cast<size_t>(m)];
    if (!node.alive || node.epoch != number || node.rank < 0) return;  // one has gone: the others wait in vain
  }
  Resume(number, &epoch);
  if (over_) return;
  const int64_t from = epoch.from;
  for (const int m : epoch.nodes) Turn(m, from + 1);
}

void Simulation::Resume(int64_t number, Epoch* epoch) {
  // Images of an older generation are those of workers that were away while others made turns without them.
  int64_t generation = 0, newest = 0, from = -1;
  for (const int m : epoch->nodes) generation = std::max(generation, nodes_[static_cast<size_t>(m)].image.generation);
  std::vector<Image> images;
  for (const int m : epoch->nodes) {
    const Image& image = nodes_[static_cast<size_t>(m)].image;
    if (image.generation == generation) images.push_back(image);
  }
  for (const Image& image : images) {
    newest = std::max(newest, image.committed);
    if (image.birth == images[0].birth) continue;
    // Two continuations of one state, of which nobody can tell which is right: the ranks end the job.
    if (!lost_journal_) Break(absl::StrCat("epoch ", number, ": generation ", generation, " was made twice"));
    over_ = refused_ = true;
    return;
  }
  for (const Image& image : images) {
    const int64_t turn = image.prepared;
    const auto holds = [&](const Image& i) { return i.Holds(turn); };
    if (turn >= newest && std::all_of(images.begin(), images.end(), holds)) from = std::max(from, turn);
  }
  const auto has_newest = [&](const Image& i) { return i.Holds(newest); };
  if (from < 0 && std::any_of(images.begin(), images.end(), has_newest)) from = newest;
  const Image* const source =
      &*std::find_if(images.begin(), images.end(), [&](const Image& i) { return i.Holds(from); });
  const Content content = source->Of(from);
  for (const Image& image : images) {
    if (image.Holds(from) && image.Of(from) != content)
      Break(absl::StrCat("epoch ", number, ": images of turn ", from, " differ"));
  }
  if (from < newest) Break(absl::StrCat("turn ", newest, " is lost: epoch ", number, " begins at ", from));
  Say(absl::StrCat("epoch ", number, " begins at turn ", from));
  made_ = std::max(made_, from);
  epoch->from = from;
  epoch->prepared.clear();
  const bool same = images.size() == epoch->nodes.size() && source->ranks == epoch->nodes.size() &&
                    std::all_of(images.begin(), images.end(), [&](const Image& i) { return i.Holds(from); });
  const int64_t birth = next_birth_++;
  for (const int m : epoch->nodes) {
    Node& node = nodes_[static_cast<size_t>(m)];
    node.image = {same ? generation : std::max(number, generation + 1),
                  same ? source->birth : birth,
                  epoch->nodes.size(),
                  from,
                  from,
                  content,
                  content};
    node.resumed = true;
  }
}

void Simulation::Turn(int n, int64_t turn) {
  const int64_t process = nodes_[static_cast<size_t>(n)].process, number = nodes_[static_cast<size_t>(n)].epoch;
  Later(Uniform(0.05, 0.4), [this, n, process, number, turn] {
    Node& node = nodes_[static_cast<size_t>(n)];
    if (!node.alive || node.process != process || node.epoch != number || !node.resumed) return;
    Epoch& epoch = epochs_[number];
    if (turn > kTurns) {  // the last barrier
      epoch.ready.insert(n);
      if (epoch.ready.size() < epoch.nodes.size()) return;
      for (const int m : epoch.nodes) Later(Uniform(0, 0.2), [this, number, m] { Leave(number, m); });
      return;
    }
    Image& image = node.image;
    image.prepared_content = After(image.committed_content, turn, epoch.nodes.size());
    image.prepared = turn;
    epoch.prepared[turn].insert(n);
    if (epoch.prepared[turn].size() < epoch.nodes.size()) return;
    for (const int m : epoch.nodes) {
      Later(Uniform(0, 0.3), [this, number, m, turn] { Commit(number, m, turn); });
    }
  });
}

void Simulation::Commit(int64_t number, int n, int64_t turn) {
  Node& node = nodes_[static_cast<size_t>(n)];
  if (!node.alive || node.epoch != number || !node.resumed || node.image.prepared != turn) return;
  const auto [at, first] = committed_in_.emplace(std::make_pair(turn, node.image.birth), node.image.prepared_content);
  if (!first && at->second != node.image.prepared_content)
    Break(absl::StrCat("turn ", turn, " of epoch ", number, " is not the same on all ranks"));
  made_ = std::max(made_, turn);
  node.image.committed = turn;
  node.image.committed_content = node.image.prepared_content;
  if (roster_ != nullptr && roster_->Find(node.connection) != nullptr) roster_->Progress(node.connection, turn);
  Turn(n, turn + 1);
}

void Simulation::Leave(int64_t number, int n) {
  Node& node = nodes_[static_cast<size_t>(n)];
  if (!node.alive || node.epoch != number) return;
  node.done = noted_done_ = true;
  if (roster_ != nullptr && roster_->Find(node.connection) != nullptr) Take(roster_->Leave(node.connection, 0));
}

void Simulation::Fault() {
  const int n = Below(static_cast<int>(nodes_.size()));
  switch (Below(5)) {
    case 0:
    case 1: {  // started again soon, or much later
      KillNode(n);
      const double away = Below(3) == 0 ? Uniform(5, 25) : Uniform(0.1, 2);
      return Later(away, [this, n] { StartNode(n); });
    }
    case 2: {  // the connection breaks; the worker sees it first, or the scheduler
      const Node& node = nodes_[static_cast<size_t>(n)];
      const int64_t connection = node.connection, process = node.process;
      Later(Uniform(0, 3), [this, connection] { LoseConnection(connection); });
      return Later(Uniform(0, 3), [this, n, connection, process] {
        const Node& node = nodes_[static_cast<size_t>(n)];
        if (node.process == process && node.connection == connection && connection != 0) Disconnected(n);
      });
    }
    case 3:
      return KillScheduler();
    default:  // two at once
      for (const int m : {n, Below(static_cast<int>(nodes_.size()))}) {
        KillNode(m);
        Later(Uniform(0.1, 2), [this, m] { StartNode(m); });
      }
  }
}

void Simulation::NextFault() {
  Later(Uniform(0.5, 8), [this] {
    if (now_ > kFaultsEnd || over_) return;
    Fault();
    NextFault();
  });
}

std::string Simulation::Run() {
  options_.workers = 1 + Below(6);
  options_.least = Below(2) == 0 ? options_.workers : 1 + Below(options_.workers);
  options_.most = Below(2) == 0 ? options_.workers : options_.workers + Below(3);
  options_.spares = Below(3) == 0 ? 1 + Below(2) : 0;
  options_.recover = true;
  options_.replace_after = absl::Seconds(Uniform(1, 10));
  options_.timeout = absl::Seconds(300);
  const int workers = options_.workers + Below(options_.most + options_.spares - options_.workers + 1);
  const bool named = Below(2) == 0;
  for (int n = 0; n < workers; ++n) {
    nodes_.emplace_back();
    nodes_.back().id = named ? absl::StrCat("worker_", n) : absl::StrCat(n);
    Later(Uniform(0, 12), [this, n] { StartNode(n); });
  }
  StartScheduler();
  NextFault();
  while (!events_.empty() && broken_.empty() && !over_) {
    Event event = events_.top();
    events_.pop();
    now_ = event.at;
    if (now_ > kJobEnds) Break("the job does not end");
    event.what();
  }
  if (!broken_.empty()) return broken_;
  if (!over_) return "nothing happens any more, and the job is not over";
  if (refused_) return "";
  if (!outcome_.ok()) return absl::StrCat("the job has ended: ", outcome_.message());
  if (!loops_ && made_ != kTurns) return "the job ended before its last turn";
  return "";
}

int Main(int argc, char** argv) {
  int64_t seeds = 1000, first = 1;
  bool trace = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    const absl::string_view name = argv[i];
    if (name == "--seeds") {
      seeds = std::atoll(argv[i + 1]);
    } else if (name == "--seed") {
      first = std::atoll(argv[i + 1]);
      seeds = 1;
      trace = true;
    } else {
      std::fprintf(stderr, "roster_sim: unknown flag %s\nusage: roster_sim [--seeds N] [--seed S]\n", argv[i]);
      return 2;
    }
  }
  int64_t bad = 0;
  for (int64_t seed = first; seed < first + seeds; ++seed) {
    const std::string broken = Simulation(static_cast<uint64_t>(seed), trace).Run();
    if (broken.empty()) continue;
    ++bad;
    if (bad <= 10)
      std::printf("seed %lld: %s; again: roster_sim --seed %lld\n", static_cast<long long>(seed), broken.c_str(),
                  static_cast<long long>(seed));
  }
  std::printf("roster_sim: %lld jobs: %lld hold\n", static_cast<long long>(seeds), static_cast<long long>(seeds - bad));
  return bad == 0 ? 0 : 1;
}

}  // namespace
}  // namespace mslua

int main(int argc, char** argv) { return mslua::Main(argc, argv); }
