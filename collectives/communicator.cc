#include "collectives/communicator.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mslua {

void Siblings::Remove(const Communicator* group) {
  groups_.erase(std::remove(groups_.begin(), groups_.end(), group), groups_.end());
}

bool Siblings::Busy(const Communicator* waiting) const {
  return std::any_of(groups_.begin(), groups_.end(), [&](const Communicator* g) { return g != waiting && g->busy(); });
}

Status Siblings::Progress(const Communicator* waiting) {
  for (Communicator* const g : groups_) {
    if (g != waiting && g->busy()) RETURN_IF_ERROR(g->Progress());
  }
  return absl::OkStatus();
}

Status Communicator::Run(const Call& call) {
  ASSIGN_OR_RETURN(const Handle handle, Start(call));
  return Wait(handle);
}

Status Communicator::Validate(const Call& call) const {
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(Me(), ": ", Describe(call), ": ", why));
  };
  const int n = size();
  if (static_cast<int>(call.kind) >= kNumCollectives) return refuse("no such collective");
  if (static_cast<int>(call.reduce) >= kNumReduceOps) return refuse("no such reduction");
  if (static_cast<int>(call.dtype) >= kNumDTypes) return refuse("no such dtype");
  if (call.count < 0 || call.count > (int64_t{1} << 56) / n / SizeOf(call.dtype)) {
    return refuse(absl::StrCat("count ", call.count, " is out of range"));
  }
  if (HasRoot(call.kind) || IsPointToPoint(call.kind)) {
    if (call.peer < 0 || call.peer >= n) {
      return refuse(absl::StrCat("rank ", call.peer, " is not in this group of ", n, " (0 to ", n - 1, ")"));
    }
  }
  if (IsPointToPoint(call.kind) && call.peer == rank()) return refuse("a rank cannot send to itself");
  if (Reduces(call.kind) && call.dtype == DType::kBool && call.reduce == ReduceOp::kMean) {
    return refuse("bool has no mean; cast to f32 first");
  }
  const auto usable = [&](const void* p, int64_t elements) {
    return elements == 0 || (p != nullptr && reinterpret_cast<uintptr_t>(p) % SizeOf(call.dtype) == 0);
  };
  if (!usable(call.in, InElements(call, rank(), n))) return refuse("the input is null or not aligned to its elements");
  if (!usable(call.out, OutElements(call, rank(), n))) {
    return refuse("the output is null or not aligned to its elements");
  }
  if (call.kind == Collective::kAllToAll && call.in == call.out && call.count > 0) {
    return refuse("input and output must be different buffers");
  }
  return absl::OkStatus();
}

StatusOr<int> Communicator::PlaceIn(absl::Span<const int> ranks) const {
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(Me(), ": group of ranks {", absl::StrJoin(ranks, ","), "}: ", why));
  };
  std::vector<bool> seen(size());
  for (int r : ranks) {
    if (r < 0 || r >= size()) return refuse(absl::StrCat("rank ", r, " is not in 0 to ", size() - 1));
    if (seen[r]) return refuse(absl::StrCat("rank ", r, " is named twice"));
    seen[r] = true;
  }
  const auto me = std::find(ranks.begin(), ranks.end(), rank());
  if (me == ranks.end()) return refuse("this rank is not among them; only members make the group");
  return static_cast<int>(me - ranks.begin());
}

Status Communicator::Mine(const Status& why) const {
  return absl::StartsWith(why.message(), "rank ") ? why : Annotate(why, Me());
}

Status AsSeenByOthers(const Status& status) {
  if (absl::IsFailedPrecondition(status) || absl::IsAborted(status)) return status;
  return absl::AbortedError(absl::StrCat("stopped because another rank failed: ", status.message()));
}

std::string Communicator::Me() const { return absl::StrCat("rank ", rank_, "/", members_.size()); }

}  // namespace mslua
