// Who takes part in a job, and when its ranks meet: what a scheduler decides, without its sockets, clock and files.
//
// Workers gather until every rank has one. Then they run, an epoch long: until a worker is lost, in a job that starts
// again, or another one comes that makes the job larger. Then all gather again, for the next epoch.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "rendezvous/cause.h"
#include "rendezvous/restart_policy.h"

namespace mslua {

// How long a worker that has gone is waited for before a spare takes its place or the job continues without it.
inline constexpr absl::Duration kReplaceAfter = absl::Seconds(30);

struct RosterOptions {
  int workers = 1;            // ranks that the job begins with
  int least = 0, most = 0;    // ranks that it may continue with; 0: workers
  int spares = 0;             // workers beyond that, which wait
  bool recover = false;       // a job that starts again
  int64_t epoch = 1;          // the first one
  int size = 0;               // ranks of the epoch before, of a scheduler that was started again; 0: not known
  int64_t max_restarts = -1;  // -1: no limit
  absl::Duration timeout = absl::Seconds(600);  // for all workers to come
  absl::Duration replace_after = kReplaceAfter;
  std::string id_name = "MS_NODE_ID";  // what gives a worker its id, for messages
};

class Roster {
 public:
  enum class Phase { kGather, kRun, kOver };

  struct Worker {
    int64_t key = 0;  // of the caller
    std::string id;   // its name; all digits: the rank that it asks for
    std::string host;
    int rank = -1;      // in kRun; -1: it waits, as a spare
    int64_t turn = -1;  // the newest that it has told of; -1: none
    bool left = false;  // it has finished its work
    int exit_code = 0;  // when it has left
  };

  // What the caller is to do.
  struct Decision {
    enum class Kind { kNothing, kWelcome, kRegroup, kEnd };
    Kind kind = Kind::kNothing;
    Status cause;          // of kRegroup and kEnd; OK: every worker has left
    absl::Duration pause;  // before the workers of kRegroup join
    std::string note;      // for the log; may be empty
  };

  Roster(const RosterOptions& options, MonotonicTime now);

  // Why there is no place for a worker; empty: there is one.
  std::string Refusal(const std::string& id) const;
  // A worker that was not refused, with the turn that it has kept. `epoch`: the last one that it has been in or waited
  // through; 0: it knows of none. Of a job whose workers change, a later epoch than this scheduler knows of is the end:
  // whether the newest turn is with those who are here nobody can tell.
  Decision Add(Worker worker, int64_t epoch, MonotonicTime now);
  // Numbers of ranks that the job may have from now on. InvalidArgument: its ranks are not among them.
  Status Allow(int least, int most);
  // Its connection has ended, or it is not wanted any more, for this reason. A worker that no rank depends on is
  // forgotten.
  Decision Lose(int64_t key, const Status& why, MonotonicTime now);
  // The job cannot continue as it is, for this reason (with its Cause).
  Decision Fail(const Status& why, MonotonicTime now);
  // The job ends, for this reason.
  Decision Abandon(const Status& why) { return phase_ == Phase::kOver ? Decision() : End(why); }
  Decision Leave(int64_t key, int exit_code);
  // The turn that a worker has committed last. One that resumes from a checkpoint counts from the beginning.
  void Progress(int64_t key, int64_t turn);
  // What time, and those who have come, lead to.
  Decision Look(MonotonicTime now);

  Phase phase() const { return phase_; }
  int64_t epoch() const { return epoch_; }
  // Ranks in kRun; in kGather those that are waited for.
  int size() const { return size_; }
  const std::vector<Worker>& workers() const { return workers_; }
  const Worker* Find(int64_t key) const;
  // Of kRun: the keys of the workers, by rank.
  const std::vector<int64_t>& by_rank() const { return by_rank_; }
  // In kGather: who is missing, "MS_NODE_ID 1, 3" (id_name) where ids are ranks, else "2 workers".
  std::string Missing() const;
  // In kOver, when every worker has left: the exit code of the first one, by rank, that did not end with 0.
  int FirstExitCode() const;

 private:
  bool elastic() const { return least_ != most_; }
  // Whether the workers of an epoch need not be those of the one before.
  bool changes() const { return options_.recover && (elastic() || options_.spares > 0); }
  // Whether workers may still come that know more of this job than this scheduler.
  bool MayHaveAPast(MonotonicTime now) const;
  // The largest number of ranks, at most `workers`, that the job can have; 0: there is none.
  int SizeFor(int workers) const;
  // The workers that take part in an epoch that begins now; empty: others are waited for.
  std::vector<Worker*> Chosen(MonotonicTime now);
  Decision Begin(const std::vector<Worker*>& chosen);
  Decision Gather(const Status& why, absl::Duration pause, MonotonicTime now);
  Decision Grow(MonotonicTime now);
  // Whether this number of ranks is what made the job fail.
  bool SizeFailed(const Status& why) const;
  Decision End(const Status& why, std::string note = "");

  const RosterOptions options_;
  int least_, most_;
  Phase phase_ = Phase::kGather;
  int64_t epoch_;
  int size_;
  int trained_size_ = 0;      // the last number of ranks that has finished a turn; 0: none has
  std::set<int> impossible_;  // numbers of ranks that the training cannot have
  std::vector<Worker> workers_;
  std::vector<int64_t> by_rank_;
  std::set<std::string> known_;   // who had a rank in the epoch before
  std::set<std::string> spares_;  // who waited in it
  RestartPolicy policy_;
  int64_t progress_ = 0, progress_at_begin_ = 0;  // counts turns that workers have told of
  int64_t newest_ = -1;                           // of them
  const MonotonicTime made_at_;
  MonotonicTime gathers_since_, begins_at_, deadline_, last_came_;
};

}  // namespace mslua
