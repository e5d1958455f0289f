#include "collectives/groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/communicator.h"
#include "core/base/exit_code.h"

namespace mslua {

Groups::Groups(std::unique_ptr<Communicator> world) : world_(std::move(world)) {}
Groups::~Groups() = default;

int Groups::rank() const { return world_->rank(); }
int Groups::size() const { return world_->size(); }

StatusOr<Communicator*> Groups::Get(absl::Span<const int64_t> ranks, absl::string_view source) {
  std::vector<int> members;
  for (const int64_t r : ranks) {
    if (r < 0 || r >= size())
      return absl::InvalidArgumentError(absl::StrCat("there is no rank ", r, ": the job has ", size()));
    members.push_back(static_cast<int>(r));
  }
  if (std::find(members.begin(), members.end(), rank()) == members.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank(), " is not in the group {", absl::StrJoin(members, ", "), "}"));
  }
  if (members == world_->members()) return world_.get();
  std::unique_ptr<Communicator>& part = parts_[members];
  if (part == nullptr) {
    auto made = world_->Split(members, source, timeout_);
    if (absl::IsInvalidArgument(made.status())) return made.status();
    if (!made.ok()) {
      const Status why = Annotate(made.status(), absl::StrCat("the group of ranks {", absl::StrJoin(members, ", "),
                                                              "}, which each of them makes with the same list, in the "
                                                              "same order"));
      return WithExitCode(why, kExitHang);
    }
    part = *std::move(made);
  }
  return part.get();
}

StatusOr<void*> Groups::Shared(int64_t bytes) {
  int64_t most = bytes;
  RETURN_IF_ERROR(world_->Run(
      Call::AllReduce(ReduceOp::kMax, DType::kI64, &bytes, &most, 1).At("the size of shared memory").Within(timeout_)));
  if (most > shared_bytes_) {
    ASSIGN_OR_RETURN(shared_, world_->AllocateShared(most, "shared memory"));
    shared_bytes_ = most;
  }
  return most == 0 ? nullptr : shared_;
}

Status Groups::Health() {
  RETURN_IF_ERROR(world_->Progress());
  for (auto& part : parts_) {
    if (part.second != nullptr) RETURN_IF_ERROR(part.second->Progress());
  }
  return absl::OkStatus();
}

}  // namespace mslua
