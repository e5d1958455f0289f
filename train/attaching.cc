#include "train/attaching.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/communicator.h"
#include "core/train/agreement.h"
#include "train/notice.h"

namespace mslua {
namespace {

constexpr char kAttachChannel[] = "attach";  // of Membership

}  // namespace

void ConnectRanks(const TrainingSpec& spec, const TrainingRank& rank, endpoint::TrainingView* view) {
  Groups* const together = spec.together;
  view->rank = together == nullptr ? 0 : together->rank();
  view->ranks = together == nullptr ? 1 : static_cast<int>(together->size());
  view->lua_at = rank.user_code_at;
  view->lua_stack = rank.user_code_stack;
  if (together == nullptr) return;
  view->gather = [together](const std::string& mine) {
    return GatherTexts(*together, mine, "a command of mslua attach");
  };
  view->calls = [&recorder = together->world().recorder()](int most) { return recorder.Last(most); };
  Membership* const members = rank.job->membership();
  if (members == nullptr) return;
  view->tell = [members](int to, const endpoint::RankMessage& m) { members->Tell(kAttachChannel, to, m); };
  view->listen = [members](Membership::Listener f) { members->Listen(kAttachChannel, std::move(f)); };
}

StatusOr<std::unique_ptr<endpoint::Endpoint>> OpenEndpoint(const TrainingSpec& spec, const TrainingRank& rank,
                                                           endpoint::TrainingView view) {
  std::unique_ptr<endpoint::Endpoint> endpoint;
  Groups* const together = spec.together;
  if (!rank.flags.may_attach) return endpoint;
  if (together != nullptr && rank.job == nullptr) return endpoint;  // threads of a test
  ConnectRanks(spec, rank, &view);
  Status status;
  if (view.ranks > 1 && !view.tell) {
    status = absl::FailedPreconditionError(
        "the ranks of several hosts have no control connections (MSLUA_PLAINTEXT=1 allows them on a trusted network)");
  }
  endpoint::Job job;
  if (status.ok() && spec.first()) {
    auto made = endpoint::Endpoint::MakeJob(view);
    status = made.status();
    if (made.ok()) job = *std::move(made);
  }
  if (together != nullptr) {
    ASSIGN_OR_RETURN(const auto folders, GatherTexts(*together, job.folder, "the folder of the endpoints"));
    job.folder = folders[0];
  }
  if (status.ok() && !job.folder.empty()) {
    auto opened = endpoint::Endpoint::Open(std::move(view), job);
    status = opened.status();
    if (opened.ok()) endpoint = *std::move(opened);
  }
  bool everywhere = endpoint != nullptr;
  if (together != nullptr) {
    ASSIGN_OR_RETURN(const int32_t closed, LargestOfRanks(*together, everywhere ? 0 : 1, "opening the endpoints"));
    everywhere = closed == 0;
  }
  if (everywhere)
    endpoint->Serve();
  else
    endpoint.reset();
  if (!status.ok()) PrintNote(absl::StrCat("nobody can attach: ", status.message()));
  return endpoint;
}

}  // namespace mslua
