#include "train/unsaved_values.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "core/base/hash.h"
#include "core/base/text.h"

namespace mslua {

StatusOr<double> DigestOfUnsaved(RankState& state, const std::vector<std::shared_ptr<ParameterData>>& parameters,
                                 const std::vector<std::string>& names) {
  std::vector<size_t> unsaved;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i]->saved) unsaved.push_back(i);
  }
  const bool whole = std::all_of(unsaved.begin(), unsaved.end(), [&](size_t i) {
    const auto part = PartOf(state, *parameters[i]);
    return part.ok() && *part == nullptr;
  });
  if (unsaved.empty() || !whole) return 0;
  std::sort(unsaved.begin(), unsaved.end(), [&](size_t a, size_t b) { return names[a] < names[b]; });
  Blake2b digest;
  for (const size_t i : unsaved) {
    ASSIGN_OR_RETURN(const TensorView value, ValueOf(state, *parameters[i]));
    const std::string head = absl::StrCat(names[i], " ", ToString(value.type), "\n");
    digest.Update(head.data(), head.size());
    digest.Update(value.data, static_cast<size_t>(value.type.bytes()));
  }
  constexpr size_t kDigits = 13;  // of four bits: a double has them exactly
  const std::string hex = digest.HexDigest().substr(0, kDigits);
  return static_cast<double>(std::max(1ULL, std::strtoull(hex.c_str(), nullptr, 16)));
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
