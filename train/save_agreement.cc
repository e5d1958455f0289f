#include "train/save_agreement.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "collectives/groups.h"
#include "core/base/exit_code.h"
#include "core/train/agreement.h"
#include "core/train/save_places.h"
#include "launch/this_host.h"
#include "train/notice.h"

namespace mslua {
namespace {

// Ranks that have parts of the parameters save them together, in `directories`.
Status SaveInPlaces(Groups& together, const std::vector<std::string>& directories, CheckpointOptions* options) {
  const auto without = std::find(directories.begin(), directories.end(), "");
  if (without != directories.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", without - directories.begin(),
        " saves no checkpoints, and each rank has parts of the parameters: give all ranks a ModelCheckpoint"));
  }
  ASSIGN_OR_RETURN(options->places, WithExitCode(FindSavePlaces(together, options->keeper.directory), kExitStorage));
  options->together = &together;
  options->host = HostName();
  const std::set<int> places(options->places.begin(), options->places.end());
  if (places.size() > 1 && together.rank() == 0) {
    PrintNote(absl::StrCat("the ranks save into ", places.size(),
                           " directories: each has the parts of its ranks, and loading needs all of them"));
  }
  return absl::OkStatus();
}

// Ranks that give each other what varies save at the same steps, those too that write nothing. Gives whether any rank
// saves.
StatusOr<bool> AgreeWhenToSave(Groups& together, bool wanted, CheckpointOptions* options) {
  auto& keeper = options->keeper;
  const std::string mine =
      wanted ? absl::StrCat(keeper.save_checkpoint_steps, " steps, ", keeper.save_checkpoint_seconds, " seconds") : "";
  ASSIGN_OR_RETURN(const auto all, GatherTexts(together, mine, "when to save checkpoints"));
  const auto first = std::find_if(all.begin(), all.end(), [](const std::string& s) { return !s.empty(); });
  if (first == all.end()) return false;
  const auto other = std::find_if(first, all.end(), [&](const std::string& s) { return !s.empty() && s != *first; });
  if (other != all.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", first - all.begin(), " saves a checkpoint every ", *first, ", rank ", other - all.begin(), " every ",
        *other,
        ": a checkpoint holds the running statistics and losses of all ranks, so give all ranks that save the same "
        "save_checkpoint_steps and save_checkpoint_seconds"));
  }
  const std::pair<absl::string_view, absl::string_view> words = absl::StrSplit(*first, absl::MaxSplits(" steps, ", 1));
  if (!absl::SimpleAtoi(words.first, &keeper.save_checkpoint_steps) ||
      !absl::SimpleAtoi(absl::StripSuffix(words.second, " seconds"), &keeper.save_checkpoint_seconds))
    return absl::InternalError(absl::StrCat("when to save checkpoints: '", *first, "'"));
  return true;
}

}  // namespace

StatusOr<bool> AgreeOnSaving(Groups& together, bool wanted, const TensorParts& parts, bool own_losses, int rank,
                             CheckpointOptions* options) {
  const std::string directory = wanted ? options->keeper.directory : "";
  ASSIGN_OR_RETURN(const auto all, GatherTexts(together, directory, "the checkpoints' directories"));
  if (std::all_of(all.begin(), all.end(), [](const std::string& d) { return d.empty(); })) return false;
  const bool one = std::count(all.begin(), all.end(), all[0]) == static_cast<int64_t>(all.size());
  const auto on_any_rank = [&](const auto& has) {
    const bool here = std::any_of(parts.begin(), parts.end(), [&](const auto& p) { return has(p.second); });
    return LargestOfRanks(together, here ? 1 : 0, "the parts of checkpoints");
  };
  ASSIGN_OR_RETURN(const bool sliced, on_any_rank([](const TensorPart& p) { return p.sharded(); }));
  ASSIGN_OR_RETURN(const bool has_parts, on_any_rank([](const TensorPart& p) { return !p.varies; }));
  ASSIGN_OR_RETURN(const bool varying, on_any_rank([](const TensorPart& p) { return p.varies; }));
  options->world = together.size();
  options->parts = parts;
  const bool each_its_part = sliced || (has_parts && one);
  options->writes = wanted && std::find(all.begin(), all.end(), directory) - all.begin() == together.rank();
  if (each_its_part) {
    options->writes = wanted;
    RETURN_IF_ERROR(SaveInPlaces(together, all, options));
  } else if (has_parts) {
    options->rank = rank;
  }
  ASSIGN_OR_RETURN(
      options->lineage,
      WithExitCode(ShareLineage(together, options->writes ? options->keeper.directory : "", options->resumed_from),
                   kExitStorage));
  if (each_its_part) return wanted;
  if (!varying && !own_losses) return options->writes;
  options->varying = &together;
  return AgreeWhenToSave(together, wanted, options);
}

}  // namespace mslua
