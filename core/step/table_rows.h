// Tables of embeddings: parameters that the network reads by gathers of rows alone. A step names those of its rows that
// its indices name; what becomes of the others is the optimizer's to say (UnnamedRows in core/optim/declare).
#pragma once

#include <vector>

#include "absl/types/optional.h"
#include "core/graph/builder.h"
#include "core/optim/declare/update.h"
#include "core/step/aggregation.h"
#include "core/step/optimizer_shards.h"
#include "core/step/parameter.h"

namespace mslua {

// The gradients of the gathers of a parameter's rows in a step: scatter_sums, whose indices name the rows. Nothing: the
// parameter is no table.
using NamedRows = absl::optional<std::vector<Value>>;

// Those of one backward pass, from the gradient of the parameter as it has made it.
NamedRows RowsOf(const GraphBuilder& g, Value gradient);
// Those of two backward passes.
NamedRows BothRows(NamedRows a, const NamedRows& b);

// Which elements of a parameter, or of this rank's slice of it, the update concerns: a bool that broadcasts to it.
// Invalid: all. The pass UpdateByRows makes an update of a few rows of it.
Value UpdatedElements(GraphBuilder& g, const OptimizerRule& rule, const ParameterData& parameter, const NamedRows& rows,
                      const Aggregation& aggregation, const OptimizerShards& shards);

}  // namespace mslua
