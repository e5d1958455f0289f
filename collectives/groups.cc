#include "collectives/groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/communicator.h"
#include "core/base/exit_code.h"

namespace mslua {

namespace {

std::string RankList(const std::vector<int>& ranks) { return absl::StrCat("{", absl::StrJoin(ranks, ", "), "}"); }

// Why the others have not made the group of these members.
Status NotMade(const Status& status, const std::vector<int>& members) {
  return WithExitCode(Annotate(status, absl::StrCat("the group of ranks ", RankList(members),
                                                    ", which each of them makes with the same list, in the same "
                                                    "order")),
                      kExitHang);
}

// That all members give this list, by a call in the group of the sorted list. Members that give the sorted list make
// another call there, and the difference is found.
Status CheckOrder(Groups& groups, const std::vector<int>& members, absl::string_view source) {
  std::vector<int> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  if (sorted == members) return absl::OkStatus();
  ASSIGN_OR_RETURN(Communicator * group, groups.Get(std::vector<int64_t>(sorted.begin(), sorted.end()), source));
  const size_t n = members.size();
  std::vector<int> lists(n * n);
  const std::string what = absl::StrCat("the group of ranks ", RankList(members), ", in this order");
  const Status gathered = group->Run(Call::AllGather(DType::kI32, members.data(), lists.data(), static_cast<int64_t>(n))
                                         .At(what)
                                         .Within(groups.timeout()));
  if (!gathered.ok()) return NotMade(gathered, members);
  for (size_t r = 0; r < n; ++r) {
    const std::vector<int> other(lists.begin() + static_cast<int64_t>(r * n),
                                 lists.begin() + static_cast<int64_t>((r + 1) * n));
    if (other == members) continue;
    return WithExitCode(absl::FailedPreconditionError(absl::StrCat(what, ": rank ", sorted[r], " makes it with ",
                                                                   RankList(other), ": give all its ranks one list")),
                        kExitHang);
  }
  return absl::OkStatus();
}

}  // namespace

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
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank(), " is not in the group ", RankList(members)));
  }
  if (members == world_->members()) return world_.get();
  std::unique_ptr<Communicator>& part = parts_[members];
  if (part == nullptr) {
    RETURN_IF_ERROR(CheckOrder(*this, members, source));
    auto made = world_->Split(members, source, timeout_);
    if (absl::IsInvalidArgument(made.status())) return made.status();
    if (!made.ok()) return NotMade(made.status(), members);
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
