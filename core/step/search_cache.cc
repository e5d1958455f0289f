#include "core/step/search_cache.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/processor.h"
#include "core/runtime/plan_cache.h"
#include "core/sharding/strategy_file.h"

namespace mslua {
namespace {

std::string TextOf(const Cluster& c) {
  const FlopRates& flops = c.flops_per_second;
  std::string text =
      absl::StrFormat("%.17g %.17g %.17g %.17g %.17g %.17g %d %.17g", flops.f32, flops.f64, flops.bf16, flops.f16,
                      c.bytes_per_second, c.launch_seconds, c.memory_bytes, c.links.copy_beta);
  for (const LinkCosts::Link& link : c.links.axes) absl::StrAppendFormat(&text, " %.17g %.17g", link.alpha, link.beta);
  return text;
}

// How the inputs of a graph lie before anything is searched.
StatusOr<std::string> TextOf(const Graph& graph, const PropagateOptions& options) {
  std::string text = absl::StrCat(options.as_data ? "as data" : "");
  for (int32_t i : graph.Inputs()) {
    const Node& n = graph.nodes[i];
    if (n.attrs.Str("kind") != kData || !options.data_layout) continue;
    ASSIGN_OR_RETURN(const Layout layout, options.data_layout(n.attrs.Str("name"), n.outputs[0]));
    absl::StrAppend(&text, " ", layout.ToString());
  }
  const std::map<std::string, Layout> fixed(options.fixed.begin(), options.fixed.end());
  for (const auto& [name, layout] : fixed) absl::StrAppend(&text, " ", name, layout.ToString());
  if (options.optimizer_shards) {
    const PropagateOptions::OptimizerShards& shards = *options.optimizer_shards;
    const std::set<std::string> except(shards.except.begin(), shards.except.end());
    absl::StrAppend(&text, " optimizer ", shards.bytes, shards.sums ? " sums" : "",
                    shards.parameters ? " parameters" : "", " but ", absl::StrJoin(except, " "));
  }
  return text;
}

}  // namespace

StatusOr<std::string> SearchKey(const Graph& graph, const Mesh& mesh, const SearchOptions& options) {
  ASSIGN_OR_RETURN(const std::string inputs, TextOf(graph, options.propagate));
  return PlanCache::Key(
      {"search", BuildId(), mesh.ToString(), Name(options.mode), TextOf(options.cluster), inputs, ToString(graph)});
}

absl::optional<std::vector<absl::optional<Sharding>>> FindSearched(const std::string& key, const Graph& graph,
                                                                   const Mesh& mesh) {
  const auto kept = PlanCache(PlanCache::UserFolder()).Find(key);
  if (!kept) return absl::nullopt;
  auto chosen = ParseStrategyText(*kept, "of the plan cache", graph, mesh);
  if (!chosen.ok()) return absl::nullopt;
  return *std::move(chosen);
}

Status KeepSearched(const std::string& key, const Graph& graph, const Mesh& mesh,
                    const std::vector<absl::optional<Sharding>>& chosen) {
  ASSIGN_OR_RETURN(const std::string text, StrategyText(graph, mesh, chosen));
  return PlanCache(PlanCache::UserFolder()).Keep(key, text);
}

}  // namespace mslua
