#include "train/unsaved_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/part.h"
#include "core/base/rng.h"
#include "core/base/text.h"
#include "core/train/agreement.h"

namespace mslua {

namespace {

// Of an element: `stream` tells tensors apart, `index` says where it is in its tensor.
uint64_t HashOf(uint64_t stream, uint64_t index, uint64_t bits) {
  uint64_t h = ((stream + index) * 0x9e3779b97f4a7c15u) ^ (bits * 0xff51afd7ed558ccdu);
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;  // the end of splitmix64
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
  return h ^ (h >> 31);
}

template <typename T>
uint64_t SumOfHashes(uint64_t stream, int64_t first, int64_t count, const char* data) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    T bits;
    std::memcpy(&bits, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    sum += HashOf(stream, static_cast<uint64_t>(first + i), bits);
  }
  return sum;
}

// The sum, modulo 2^64, of the hashes of the elements of a part of a tensor: those of the parts that make up the tensor
// add up to that of the tensor. `data` has the part's elements in their order.
uint64_t SumOfHashes(const std::string& name, const TensorType& whole, const Part& part, const void* data) {
  const uint64_t stream = StreamOf(absl::StrCat(name, " ", ToString(whole)));
  const int64_t width = whole.bytes() / std::max<int64_t>(1, whole.elements());
  const auto sum = width == 1   ? SumOfHashes<uint8_t>
                   : width == 2 ? SumOfHashes<uint16_t>
                   : width == 4 ? SumOfHashes<uint32_t>
                                : SumOfHashes<uint64_t>;
  const size_t rank = part.size.size();
  const int64_t run = rank == 0 ? 1 : part.size[rank - 1];
  int64_t runs = 1;
  for (size_t d = 0; d + 1 < rank; ++d) runs *= part.size[d];
  uint64_t total = 0;
  for (int64_t r = 0; r < runs; ++r) {
    int64_t rest = r, stride = 1, first = 0;
    for (size_t d = rank; d-- > 0;) {
      const bool last = d + 1 == rank;
      first += (part.begin[d] + (last ? 0 : rest % part.size[d])) * stride;
      if (!last) rest /= part.size[d];
      stride *= part.whole[d];
    }
    total += sum(stream, first, run, static_cast<const char*>(data) + r * run * width);
  }
  return total;
}

// Whether, of the ranks that have the same part of a parameter, this is the first one.
bool IsFirst(const RankState& state, const ParameterData& p) {
  const GlobalView& view = *state.view;
  if (view.OwnerOf(p.key) == kNoStage && view.stage() != 0) return false;  // the ranks of all stages have it
  const GlobalView::Sharded* const sharded = view.Find(p.key);
  return sharded == nullptr ? state.rank == view.mesh().first() : sharded->first;
}

// This rank's numbers, of 16 bits each, become their sum over all ranks.
StatusOr<uint64_t> Sum(Groups& groups, uint64_t mine) {
  std::array<double, 4> words;
  for (size_t k = 0; k < words.size(); ++k) words[k] = static_cast<double>((mine >> (16 * k)) & 0xffff);
  RETURN_IF_ERROR(SumOverRanks(groups, absl::MakeSpan(words), "the values that are not saved"));
  uint64_t sum = 0;
  for (size_t k = 0; k < words.size(); ++k) sum += static_cast<uint64_t>(words[k]) << (16 * k);
  return sum;
}

}  // namespace

StatusOr<double> DigestOfUnsaved(RankState& state, const std::vector<std::shared_ptr<ParameterData>>& parameters,
                                 const std::vector<std::string>& names, Groups* together) {
  const bool shares = together != nullptr && state.view != nullptr;
  bool any = false;
  uint64_t total = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    ParameterData& p = *parameters[i];
    if (p.saved) continue;
    any = true;
    KeyOf(state, p);
    const auto kept = PartOf(state, p);
    if (!shares && (!kept.ok() || *kept != nullptr)) return 0;
    if (!kept.ok() || (shares && !IsFirst(state, p))) continue;
    ASSIGN_OR_RETURN(const TensorView value, ValueOf(state, p));
    const TensorType whole = *kept == nullptr ? value.type : (*kept)->whole();
    total += SumOfHashes(names[i], whole, *kept == nullptr ? Part::Of(whole.shape) : (*kept)->part, value.data);
  }
  if (!any) return 0;
  if (shares) {
    ASSIGN_OR_RETURN(total, Sum(*together, total));
  }
  return static_cast<double>(std::max<uint64_t>(1, total >> 12));  // a double has 52 bits exactly
}

bool UpdatesUnsaved(RankState& state, const Graph& graph,
                    const std::vector<std::shared_ptr<ParameterData>>& parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [&](const auto& p) {
    const std::string key = KeyOf(state, *p);
    if (p->saved) return false;
    if (!PartOf(state, *p).ok()) return p->kind != kParameter || p->requires_grad;
    return std::any_of(graph.outputs.begin(), graph.outputs.end(),
                       [&](const GraphOutput& o) { return o.updates == key; });
  });
}

Status CompareUnsaved(double saved, double here, const std::string& path,
                      const std::vector<std::shared_ptr<ParameterData>>& parameters,
                      const std::vector<std::string>& names) {
  const bool frozen = saved > 0;
  if (saved == 0 || (frozen && here == 0) || std::abs(saved) == here) return absl::OkStatus();
  std::vector<std::string> unsaved;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i]->saved) unsaved.push_back(names[i]);
  }
  std::sort(unsaved.begin(), unsaved.end());
  return absl::FailedPreconditionError(
      absl::StrCat(path, " leaves out the values of ", SomeOf(unsaved, 3),
                   " (saved = false), and was saved with other ones than are here: give the same (`weights` of the "
                   "recipe, or its seed); what training changes needs saved = true"));
}

}  // namespace mslua
