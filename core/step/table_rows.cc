#include "core/step/table_rows.h"

#include <algorithm>
#include <string>

#include "core/op/marks.h"

namespace mslua {
namespace {

bool AddRows(const GraphBuilder& g, Value gradient, std::vector<Value>* parts) {
  const Node& n = g.NodeOf(gradient);
  if (n.op->name == "cast") return AddRows(g, n.inputs[0], parts);
  if (n.op->name == "add") return AddRows(g, n.inputs[0], parts) && AddRows(g, n.inputs[1], parts);
  if (n.op->name != "scatter_sum" || n.attrs.Int("axis") != 0) return false;
  parts->push_back(gradient);
  return true;
}

// How often a gather names each row of its table, [v, 1, ..]. Where the partitioner takes layouts from the gather, it
// has the shape of the table, whose layout it gets so.
Value CountRows(GraphBuilder& g, const Node& gradient) {
  const Value indices = gradient.inputs[0];
  Shape ones = g.TypeOf(gradient.inputs[1]).shape;
  const int64_t* const origin = mark::kOrigin.Find(gradient.attrs);
  if (origin == nullptr) std::fill(ones.begin() + g.TypeOf(indices).rank(), ones.end(), 1);
  Attrs attrs{{"size", gradient.attrs.Int("size")}, {"axis", int64_t{0}}};
  if (origin != nullptr) mark::kOrigin.Set(attrs, *origin);
  return g.Op("scatter_sum", {indices, g.Constant(1, DType::kF32, ones)}, std::move(attrs));
}

UnnamedRows UnnamedRowsOf(const OptimizerRule& rule) {
  if (!rule.def->unnamed_rows) return UnnamedRows::kUpdated;
  const UnnamedRows kind = rule.def->unnamed_rows(rule.settings, rule.weight_decay);
  // A wrapper may give a row without a gradient one.
  return kind == UnnamedRows::kSame && rule.wrapper != nullptr && rule.wrapped ? UnnamedRows::kUpdated : kind;
}

}  // namespace

NamedRows RowsOf(const GraphBuilder& g, Value gradient) {
  std::vector<Value> parts;
  if (!g.status().ok() || !AddRows(g, gradient, &parts)) return absl::nullopt;
  return parts;
}

NamedRows BothRows(NamedRows a, const NamedRows& b) {
  if (!a || !b) return absl::nullopt;
  a->insert(a->end(), b->begin(), b->end());
  return a;
}

Value UpdatedElements(GraphBuilder& g, const OptimizerRule& rule, const ParameterData& parameter, const NamedRows& rows,
                      const Aggregation& aggregation, const OptimizerShards& shards) {
  const UnnamedRows unnamed = UnnamedRowsOf(rule);
  if (!rows || unnamed == UnnamedRows::kUpdated) return {};
  const bool sliced = shards.Covers(parameter), summed = aggregation.Covers(parameter);
  const Shape& shape = parameter.type.shape;
  int64_t named = 0;
  for (Value part : *rows) named += g.TypeOf(g.NodeOf(part).inputs[0]).elements();
  if (summed) named *= static_cast<int64_t>(aggregation.ranks.size());
  if (unnamed == UnnamedRows::kSame && (sliced || named >= shape[0])) return {};  // all rows take no longer
  Value count;
  for (Value part : *rows) {
    const Value own = CountRows(g, Node(g.NodeOf(part)));
    count = count.valid() ? Add(g, count, own) : own;
  }
  if (summed) count = g.Op("all_reduce", {count}, {{"group", aggregation.ranks}, {"op", std::string("sum")}});
  if (sliced) count = OwnSlice(g, shards, BroadcastTo(g, count, shape));
  return Elementwise(g, "greater", {count, g.Constant(0, DType::kF32)});
}

}  // namespace mslua
