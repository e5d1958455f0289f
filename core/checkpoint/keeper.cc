#include "core/checkpoint/keeper.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/checkpoint/checkpoint.h"

namespace mslua::checkpoint {

namespace {

namespace fs = std::filesystem;

StatusOr<std::unique_ptr<FileLock>> LockPrefix(const std::string& directory, const std::string& prefix,
                                               absl::Duration wait = absl::Seconds(3)) {
  return FileLock::Acquire(absl::StrCat(directory, "/.", prefix, ".lock"), wait);
}

// The checkpoint that a run resumes from, as one of `there` where it is; without a path where there is none.
CheckpointName FindResumed(const std::string& path, const std::vector<CheckpointName>& there) {
  CheckpointName resumed;
  if (path.empty()) return resumed;
  for (const CheckpointName& name : there) {
    std::error_code error;
    if (fs::equivalent(name.path, path, error)) return name;
  }
  auto checkpoint = Checkpoint::OpenParts(path);
  if (!checkpoint.ok()) return resumed;  // gone: nothing here is of its lineage
  resumed.path = path;
  resumed.lineage = (*checkpoint)->manifest().run.lineage;
  resumed.step = (*checkpoint)->manifest().run.step;
  return resumed;
}

bool LeadsTo(const CheckpointName& name, const CheckpointName& to) {
  if (!to.lineage.run.empty()) return LeadsTo(name.lineage, name.step, to.lineage);
  // Of a manifest without a lineage the name says it.
  return name.prefix == to.prefix && std::tie(name.epoch, name.step) <= std::tie(to.epoch, to.step);
}

// `prefix`, or it with the number that an earlier start gave it.
bool IsOurs(absl::string_view name, absl::string_view prefix) {
  int64_t number = 0;
  return absl::ConsumePrefix(&name, prefix) &&
         (name.empty() || (absl::ConsumePrefix(&name, "_") && absl::SimpleAtoi(name, &number)));
}

// The prefix of the run that is resumed, where it has saved into this directory; else empty. Of a best checkpoint there
// may be only those left that were saved after it.
std::string OwnPrefix(const std::string& prefix, const CheckpointName& resumed,
                      const std::vector<CheckpointName>& there) {
  if (IsOurs(resumed.prefix, prefix)) return resumed.prefix;
  for (const CheckpointName& name : there) {  // newest first
    if (resumed.path.empty() || !IsOurs(name.prefix, prefix)) continue;
    if (LeadsTo(name, resumed) || LeadsTo(resumed, name)) return name.prefix;
  }
  return "";
}

// The checkpoints of `prefix` in the order in which they are to be removed.
std::deque<std::string> ToRemove(const std::string& prefix, const CheckpointName& resumed,
                                 const std::vector<CheckpointName>& there) {
  std::deque<std::string> abandoned, line;
  for (auto name = there.rbegin(); name != there.rend(); ++name) {
    if (name->prefix == prefix) (LeadsTo(*name, resumed) ? line : abandoned).push_back(name->path);
  }
  abandoned.insert(abandoned.end(), line.begin(), line.end());
  return abandoned;
}

}  // namespace

StatusOr<CheckpointKeeper> CheckpointKeeper::Create(const KeeperOptions& options, const std::string& resumed_from,
                                                    double now) {
  for (const auto& [name, value] :
       {std::make_pair("save_checkpoint_steps", options.save_checkpoint_steps),
        std::make_pair("save_checkpoint_seconds", options.save_checkpoint_seconds),
        std::make_pair("keep_checkpoint_max", options.keep_checkpoint_max),
        std::make_pair("keep_checkpoint_per_n_minutes", options.keep_checkpoint_per_n_minutes)}) {
    if (value < 0) return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", expected 0 or more"));
  }
  if (options.save_checkpoint_steps == 0 && options.save_checkpoint_seconds == 0 && options.keep_checkpoint_max == 0 &&
      options.keep_checkpoint_per_n_minutes == 0) {
    return absl::InvalidArgumentError(
        "save_checkpoint_steps, save_checkpoint_seconds, keep_checkpoint_max and keep_checkpoint_per_n_minutes are all "
        "0; set at least one, e.g. save_checkpoint_steps = 100");
  }
  if (options.prefix.empty() || options.prefix[0] == '.' || options.prefix.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("prefix '", options.prefix, "' of checkpoints is not a plain file name"));
  }
  RETURN_IF_ERROR(MakeFolders(options.directory));
  RemoveLeftovers(options.directory);

  CheckpointKeeper keeper;
  keeper.options_ = options;
  keeper.prefix_ = options.prefix;
  keeper.last_saved_ = now;
  keeper.last_kept_ = now;
  ASSIGN_OR_RETURN(std::vector<CheckpointName> there, ListCheckpoints(options.directory));
  std::set<std::string> taken;
  for (const CheckpointName& name : there) taken.insert(name.prefix);
  const CheckpointName resumed = FindResumed(resumed_from, there);
  const std::string own = OwnPrefix(options.prefix, resumed, there);
  if (!own.empty()) {
    keeper.prefix_ = own;
    ASSIGN_OR_RETURN(keeper.lock_, LockPrefix(options.directory, own));
    // By minutes, what is there was kept for good.
    if (options.keep_checkpoint_max > 0) keeper.generations_ = ToRemove(own, resumed, there);
    return keeper;
  }
  for (int64_t k = 0; keeper.lock_ == nullptr; ++k) {
    if (k > 0) keeper.prefix_ = absl::StrCat(options.prefix, "_", k);
    if (taken.count(keeper.prefix_) > 0) continue;
    auto lock = LockPrefix(options.directory, keeper.prefix_, absl::ZeroDuration());
    if (absl::IsUnavailable(lock.status())) continue;
    RETURN_IF_ERROR(lock.status());
    keeper.lock_ = *std::move(lock);
  }
  return keeper;
}

bool CheckpointKeeper::Due(int64_t step, double now) {
  bool due = false;
  if (options_.save_checkpoint_steps > 0) {
    due = step % options_.save_checkpoint_steps == 0;
  } else if (options_.save_checkpoint_seconds > 0) {
    due = now - last_saved_ >= static_cast<double>(options_.save_checkpoint_seconds);
  }
  if (due) last_saved_ = now;
  return due;
}

std::string CheckpointKeeper::PathFor(int64_t epoch, int64_t step) const {
  return CheckpointPath(options_.directory, prefix_, epoch, step);
}

Status CheckpointKeeper::Saved(const std::string& path, double now) {
  RETURN_IF_ERROR(Verify(path));
  Keep(path, now);
  return absl::OkStatus();
}

Status CheckpointKeeper::Verify(const std::string& path) { return VerifyFolder(path, VerifyDepth::kOnDisk); }

void CheckpointKeeper::Keep(const std::string& path, double now) {
  const auto remove_oldest = [this] {
    staying_.Update(RemoveAtomically(generations_.front()));
    generations_.pop_front();
  };
  generations_.erase(std::remove(generations_.begin(), generations_.end(), path), generations_.end());
  if (options_.keep_checkpoint_max > 0) {
    generations_.push_back(path);
    while (static_cast<int64_t>(generations_.size()) > options_.keep_checkpoint_max) remove_oldest();
  } else if (options_.keep_checkpoint_per_n_minutes > 0) {
    // Those since the last kept one go; the newest always stays.
    while (!generations_.empty()) remove_oldest();
    if (now - last_kept_ >= 60.0 * static_cast<double>(options_.keep_checkpoint_per_n_minutes)) {
      last_kept_ = now;  // kept for good
    } else {
      generations_.push_back(path);
    }
  }
}

}  // namespace mslua::checkpoint
