// Strategy files (strategy_ckpt_save_file, strategy_ckpt_load_file): the sharding of every forward node as readable
// JSON, with what tells one graph from another.
#pragma once

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "core/graph/graph.h"
#include "core/sharding/sharding.h"

namespace mslua {

// Writes shardings by node (SearchResult::chosen), one forward node a line:
//   {"operator": "matmul", "scope": "Net/matmul", "types": "f32[16,32] f32[32,16] -> f32[16,16]",
//    "strategy": "((2,4),(4,1))", "axes": {"i": "a", "k": "bc"}}
// `axes` counts, `strategy` is for readers. Makes missing folders; a folder at `path` is an error.
Status SaveStrategy(const std::string& path, const Graph& graph, const Mesh& mesh,
                    const std::vector<absl::optional<Sharding>>& chosen);

// The text of such a file.
StatusOr<std::string> StrategyText(const Graph& graph, const Mesh& mesh,
                                   const std::vector<absl::optional<Sharding>>& chosen);
// The shardings of such a text; `source` says in errors where it is from.
StatusOr<std::vector<absl::optional<Sharding>>> ParseStrategyText(absl::string_view text, const std::string& source,
                                                                  const Graph& graph, const Mesh& mesh);

// The shardings of a file for this graph and mesh. An error names the first node that differs in operator or types,
// or the line's fault.
StatusOr<std::vector<absl::optional<Sharding>>> LoadStrategy(const std::string& path, const Graph& graph,
                                                             const Mesh& mesh);

}  // namespace mslua
