#include "core/sharding/search/measured.h"

#include "core/base/input_file.h"
#include "core/json/json.h"
#include "core/sharding/search/cluster.h"

namespace mslua {

absl::optional<double> MeasuredFlops() {
  const auto text = ReadFile(MeasuredClusterFile(), 1 << 20);
  const auto json = text.ok() ? ParseJson(*text) : StatusOr<Json>(text.status());
  if (!json.ok() || !json->is_object()) return absl::nullopt;
  const auto rate = json->find("flops_per_second");
  if (rate == json->end() || !rate->is_number() || !(rate->get<double>() > 0)) return absl::nullopt;
  return rate->get<double>();
}

}  // namespace mslua
