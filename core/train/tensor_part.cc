#include "core/train/tensor_part.h"

#include "absl/strings/str_cat.h"

namespace mslua {

std::string NameOfRank(const std::string& name, int rank) { return absl::StrCat(kRankPrefix, rank, "/", name); }

std::string NameOfPart(const std::string& name, const TensorPart& part, int rank) {
  return (part.own || part.varies) && rank > 0 ? NameOfRank(name, rank) : name;
}

}  // namespace mslua
