#include "core/checkpoint/keeper.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/atomic_file.h"
#include "core/checkpoint/checkpoint.h"

namespace mslua::checkpoint {

namespace fs = std::filesystem;

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
  std::error_code error;
  fs::create_directories(options.directory, error);
  if (error || !fs::is_directory(options.directory)) {
    return absl::ErrnoToStatus(error ? error.value() : ENOTDIR,
                               absl::StrCat("cannot make the checkpoint directory ", options.directory));
  }
  RemoveLeftovers(options.directory);

  CheckpointKeeper keeper;
  keeper.options_ = options;
  keeper.prefix_ = options.prefix;
  keeper.last_saved_ = now;
  keeper.last_kept_ = now;
  ASSIGN_OR_RETURN(std::vector<CheckpointName> there, ListCheckpoints(options.directory));
  std::set<std::string> taken;
  const CheckpointName* resumed = nullptr;
  for (const CheckpointName& name : there) {
    taken.insert(name.prefix);
    if (!resumed_from.empty() && fs::equivalent(name.path, resumed_from, error)) resumed = &name;
  }
  // Ours, or ours with a number that an earlier start gave it.
  absl::string_view rest = resumed != nullptr ? absl::string_view(resumed->prefix) : absl::string_view();
  int64_t number = 0;
  const bool same_run = resumed != nullptr && absl::ConsumePrefix(&rest, options.prefix) &&
                        (rest.empty() || (absl::ConsumePrefix(&rest, "_") && absl::SimpleAtoi(rest, &number)));
  if (same_run) {
    keeper.prefix_ = resumed->prefix;
    // Oldest first; before them what is newer than where the run goes on from, since that lineage has ended. By
    // minutes, what is there was kept for good.
    std::vector<std::string> older;
    for (auto name = there.rbegin(); options.keep_checkpoint_max > 0 && name != there.rend(); ++name) {
      if (name->prefix != keeper.prefix_) continue;
      const bool newer = std::tie(name->epoch, name->step) > std::tie(resumed->epoch, resumed->step);
      if (newer) keeper.generations_.push_back(name->path);
      if (!newer) older.push_back(name->path);
    }
    keeper.generations_.insert(keeper.generations_.end(), older.begin(), older.end());
  } else {
    for (int64_t k = 1; taken.count(keeper.prefix_) > 0; ++k) keeper.prefix_ = absl::StrCat(options.prefix, "_", k);
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
  RETURN_IF_ERROR(VerifyCheckpoint(path, VerifyDepth::kOnDisk));
  generations_.erase(std::remove(generations_.begin(), generations_.end(), path), generations_.end());
  if (options_.keep_checkpoint_max > 0) {
    generations_.push_back(path);
    while (static_cast<int64_t>(generations_.size()) > options_.keep_checkpoint_max) {
      RETURN_IF_ERROR(RemoveAtomically(generations_.front()));
      generations_.pop_front();
    }
  } else if (options_.keep_checkpoint_per_n_minutes > 0) {
    // Those since the last kept one go; the newest always stays.
    for (; !generations_.empty(); generations_.pop_front()) RETURN_IF_ERROR(RemoveAtomically(generations_.front()));
    if (now - last_kept_ >= 60.0 * static_cast<double>(options_.keep_checkpoint_per_n_minutes)) {
      last_kept_ = now;  // kept for good
    } else {
      generations_.push_back(path);
    }
  }
  return absl::OkStatus();
}

}  // namespace mslua::checkpoint
