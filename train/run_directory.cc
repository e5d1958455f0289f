#include "train/run_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "collectives/communicator.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/files/record_file.h"
#include "core/json/json_string.h"
#include "core/train/agreement.h"
#include "core/train/eval_hook.h"
#include "core/train/metrics.h"
#include "core/train/restore.h"
#include "core/train/summaries.h"
#include "launch/this_host.h"
#include "train/notice.h"
#include "train/run_folder.h"
#include "train/run_records.h"

namespace mslua {

Status RunDirectory::Find(const std::string& resume) {
  if (!path_.empty()) return absl::OkStatus();
  if (spec_.together == nullptr) {
    ASSIGN_OR_RETURN(path_, Own(resume));
    return absl::OkStatus();
  }
  std::string folder;
  if (spec_.first()) {
    auto own = Own(resume);
    // The others wait for the folder: they are told by the group that there is none.
    if (!own.ok()) spec_.together->world().Abort(own.status());
    RETURN_IF_ERROR(own.status());
    folder = *std::move(own);
  }
  RETURN_IF_ERROR(ShareText(*spec_.together, &folder, "the run folder"));
  path_ = std::move(folder);
  return absl::OkStatus();
}

StatusOr<std::string> RunDirectory::Own(const std::string& resume) {
  if (!rank_.flags.saves) return std::string();
  std::string out = rank_.flags.out;
  if (!out.empty()) {
    // Ranks that train each by itself write into folders of their own.
    if (spec_.together == nullptr && rank_.state->ranks > 1) absl::StrAppend(&out, "/rank_", rank_.state->rank);
    struct stat info;
    made_ = stat(out.c_str(), &info) != 0;
    RETURN_IF_ERROR(MakeFolders(out));
    return out;
  }
  if (resume == "last" || resume == "best") {
    if (spec_.checkpoint_directory.empty())
      return LastRunFolder(spec_.name, resume == "best" ? kRunBest : kRunCheckpoints);
    // The recipe keeps its checkpoints elsewhere: the run need not have any in its folder.
    const auto last = LastRunFolder(spec_.name, kRunMetrics);
    if (last.ok()) return *last;
  }
  made_ = true;
  return NewRunFolder(spec_.name);
}

Status RunDirectory::Take() {
  if (path_.empty() || !spec_.first()) return absl::OkStatus();
  auto lock = FileLock::Acquire(absl::StrCat(path_, "/", kRunLock));
  if (absl::IsUnavailable(lock.status())) {
    return absl::UnavailableError(absl::StrCat("run folder ", path_, " is ", lock.status().message(),
                                               ": wait for its end (mslua stop ", path_,
                                               " ends it), or give another folder (--out)"));
  }
  RETURN_IF_ERROR(lock.status());
  lock_ = *std::move(lock);
  if (!lock_->locked())
    PrintNote(absl::StrCat(path_, ": this file system has no locks: start no second training there"));
  RemoveLeftovers(path_);
  return absl::OkStatus();
}

std::string RunDirectory::Outcome() const { return absl::StrCat(path_, "/", kRunOutcome); }

void RunDirectory::RecordOutcome(const Status& outcome, int64_t step) const {
  if (lock_ == nullptr || !settled_) return;
  const char* const state = outcome.ok() ? "done" : absl::IsCancelled(outcome) ? "stopped" : "failed";
  std::string text = absl::StrCat("{\"state\":\"", state, "\",\"step\":", step);
  if (!outcome.ok()) absl::StrAppend(&text, ",\"cause\":", JsonString(outcome.message()));
  const Status written = WriteFileAtomically(Outcome(), text + "}\n");
  if (!written.ok()) PrintNote(absl::StrCat("how the run ended is not recorded: ", written.message()));
}

Status RunDirectory::RecordLaunch() const {
  if (path_.empty() || rank_.state->ranks == 1) return absl::OkStatus();
  RETURN_IF_ERROR(MakeFolders(path_));  // rank 0's may be on another host
  std::string text;
  for (const auto& [name, value] : LaunchVariables(OwnEnvironment())) absl::StrAppend(&text, name, "=", value, "\n");
  return WriteFileAtomically(absl::StrCat(path_, "/rank_", rank_.state->rank, ".env"), text);
}

Status RunDirectory::SettleEarlierRecords(const Beginning& beginning) {
  if (path_.empty()) return absl::OkStatus();
  settled_ = true;
  if (lock_ != nullptr) unlink(Outcome().c_str());          // of the training before
  const bool begins = rank_.written->insert(path_).second;  // else this process has trained before
  if (beginning.run != nullptr) return RemoveLaterRecords(*beginning.run);
  if (!begins || beginning.kept) return absl::OkStatus();
  const RecordsOwner owner = {rank_.state->rank, spec_.first(), rank_.state->ranks};
  std::string earlier;  // where they go; empty: they are of this job, which starts again
  if (spec_.first() && !beginning.same_job) earlier = EarlierFolder(path_);
  if (spec_.together != nullptr) RETURN_IF_ERROR(ShareText(*spec_.together, &earlier, "where earlier records go"));
  if (earlier.empty()) return EmptyRecords(path_, owner);
  ASSIGN_OR_RETURN(const bool moved, MoveRecords(path_, earlier, owner));
  if (moved && spec_.first())
    PrintNote(absl::StrCat(path_, " had the logs and metrics of an earlier training: they are in ", path_, "/", earlier,
                           " (--resume continues a training)"));
  return absl::OkStatus();
}

// Removes what the run wrote after the checkpoint that it resumes from: those steps are made again.
Status RunDirectory::RemoveLaterRecords(const checkpoint::RunState& run) const {
  // What has been evaluated there since: at the epoch's end, which is still to come, or at the end of training.
  const bool evaluates = EvalHook::DoneIn(run.counters) != run.step;
  const auto later = [&](absl::string_view line) {
    int64_t epoch = 0, step = 0;
    if (ReadMeanLossLine(line, &epoch, &step))
      return epoch > run.epoch + 1 || (epoch == run.epoch + 1 && step >= run.data_batch);
    if (!ReadLossLine(line, &epoch, &step)) return false;
    return epoch > run.epoch + 1 || (epoch == run.epoch + 1 && step > run.data_batch);
  };
  const auto log = [this](int64_t rank) { return absl::StrCat(path_, "/rank_", rank, ".log"); };
  RETURN_IF_ERROR(TruncateRecordsFrom(log(rank_.state->rank), later));
  if (!spec_.first()) return absl::OkStatus();
  RETURN_IF_ERROR(TruncateRecordsFrom(absl::StrCat(path_, "/", kSummaries), [&](absl::string_view line) {
    return Summaries::IsLater(line, run.step, /*in_epoch=*/run.data_batch > 0);
  }));
  // Of ranks that there are no more.
  for (int64_t r = rank_.state->ranks; r < run.world; ++r) RETURN_IF_ERROR(TruncateRecordsFrom(log(r), later));
  return TruncateRecordsFrom(absl::StrCat(path_, "/", kRunMetrics), [&](absl::string_view line) {
    bool loss = false;
    const int64_t step = StepOfMetrics(line, &loss);
    return step > run.step || (step == run.step && !loss && evaluates);
  });
}

void RunDirectory::RemoveIfNew() {
  if (!made_) return;
  lock_.reset();
  RemoveAtomically(path_).IgnoreError();
}

}  // namespace mslua
