// Results of strategy searches, kept in the user's plan cache: the second start of a job does not search.
#pragma once

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "core/sharding/search/search.h"

namespace mslua {

// The key of what a search finds: this build, the mesh, the mode, the cluster's constants, how inputs lie, the graph
// with its users' strategies.
StatusOr<std::string> SearchKey(const Graph& graph, const Mesh& mesh, const SearchOptions& options);

// By node, as SearchResult::chosen; none where nothing is kept under the key or it does not fit.
absl::optional<std::vector<absl::optional<Sharding>>> FindSearched(const std::string& key, const Graph& graph,
                                                                   const Mesh& mesh);
Status KeepSearched(const std::string& key, const Graph& graph, const Mesh& mesh,
                    const std::vector<absl::optional<Sharding>>& chosen);

}  // namespace mslua
