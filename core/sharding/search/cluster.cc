#include "core/sharding/search/cluster.h"

#include "absl/strings/str_cat.h"
#include "core/base/folder.h"
#include "core/base/text.h"
#include "core/json/json.h"

namespace mslua {
namespace {

Status Bad(absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("cluster: ", what)); }

// Reads positive numbers from an object and refuses members of other names.
Status ReadNumbers(const Json& object, absl::string_view where,
                   const std::vector<std::pair<std::string, double*>>& members,
                   const std::vector<std::string>& others) {
  std::vector<std::string> names = others;
  for (const auto& [name, out] : members) names.push_back(name);
  for (const auto& item : object.items()) {
    if (std::find(names.begin(), names.end(), item.key()) == names.end())
      return Bad(absl::StrCat(where, "unknown member '", item.key(), "'", DidYouMean(item.key(), names)));
  }
  for (const auto& [name, out] : members) {
    const auto found = object.find(name);
    if (found == object.end()) continue;
    if (!found->is_number() || !(found->get<double>() > 0))
      return Bad(absl::StrCat(where, name, " is ", ShowJson(*found), ", expected a number above 0"));
    *out = found->get<double>();
  }
  return absl::OkStatus();
}

// A number, or one by type.
Status ReadRates(const Json& root, FlopRates* rates) {
  const auto found = root.find("flops_per_second");
  if (found == root.end()) return absl::OkStatus();
  double all = rates->f32;
  if (!found->is_object()) {
    RETURN_IF_ERROR(ReadNumbers(Json{{"flops_per_second", *found}}, "", {{"flops_per_second", &all}}, {}));
    *rates = all;
    return absl::OkStatus();
  }
  constexpr char kWhere[] = "flops_per_second: ";
  if (found->find("f32") == found->end()) return Bad(absl::StrCat(kWhere, "f32 is missing"));
  RETURN_IF_ERROR(ReadNumbers(*found, kWhere, {{"f32", &all}}, {"f64", "bf16", "f16"}));
  *rates = all;
  return ReadNumbers(*found, kWhere,
                     {{"f32", &rates->f32}, {"f64", &rates->f64}, {"bf16", &rates->bf16}, {"f16", &rates->f16}}, {});
}

}  // namespace

StatusOr<Cluster> ParseCluster(absl::string_view json, const Mesh& mesh) {
  const auto parsed = ParseJson(json);
  if (!parsed.ok()) return Bad(parsed.status().message());
  const Json& root = *parsed;
  if (!root.is_object()) return Bad("expected a JSON object such as {\"flops_per_second\": 312e12}");
  Cluster cluster;
  double memory = 0;
  RETURN_IF_ERROR(ReadNumbers(root, "",
                              {{"bytes_per_second", &cluster.bytes_per_second},
                               {"launch_seconds", &cluster.launch_seconds},
                               {"memory_bytes", &memory},
                               {"copy_seconds_per_byte", &cluster.links.copy_beta}},
                              {"flops_per_second", "axes"}));
  RETURN_IF_ERROR(ReadRates(root, &cluster.flops_per_second));
  if (memory > 1e18) return Bad(absl::StrCat("memory_bytes is ", memory, ", expected at most 1e18"));
  cluster.memory_bytes = static_cast<int64_t>(memory);
  const auto axes = root.find("axes");
  if (axes == root.end()) return cluster;
  const size_t want = static_cast<size_t>(mesh.axes());
  if (!axes->is_array() || (axes->size() != 1 && axes->size() != want))
    return Bad(absl::StrCat("axes has ", axes->is_array() ? absl::StrCat(axes->size(), " entries") : ShowJson(*axes),
                            ", expected 1 or ", want, ": ", mesh.ranks(), " devices are ", mesh.ToString()));
  for (size_t a = 0; a < want; ++a) {
    const Json& entry = (*axes)[axes->size() == 1 ? 0 : a];
    const std::string where = absl::StrCat("axes[", a + 1, "]: ");
    if (!entry.is_object()) return Bad(absl::StrCat(where, "expected an object"));
    LinkCosts::Link link;
    RETURN_IF_ERROR(ReadNumbers(entry, where, {{"seconds", &link.alpha}, {"seconds_per_byte", &link.beta}}, {}));
    cluster.links.axes.push_back(link);
  }
  return cluster;
}

std::string MeasuredClusterFile() {
  const std::string cache = UserCacheFolder();
  return absl::StrCat(cache.empty() ? "./.cache/mslua" : cache, "/cluster.json");
}

std::string MeasuredDeviceFile() {
  const std::string measured = MeasuredClusterFile();
  return absl::StrCat(measured.substr(0, measured.rfind('/')), "/cuda.json");
}

}  // namespace mslua
