#include "core/sharding/sharding.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

Layout DimsLayout(const FactorRule::Tensor& tensor, const Sharding& sharding) {
  Layout layout(static_cast<int>(tensor.size()));
  for (size_t d = 0; d < tensor.size(); ++d) {
    for (int f : tensor[d]) {
      for (int8_t a : sharding.factors[f]) layout.Append(static_cast<int>(d), a);
    }
  }
  return layout;
}

}  // namespace

bool HasFactor(const FactorRule::Tensor& tensor, int f) {
  return std::any_of(tensor.begin(), tensor.end(),
                     [f](const FactorRule::Dim& dim) { return std::find(dim.begin(), dim.end(), f) != dim.end(); });
}

int NodeRule::ShardedFactor(const FactorRule::Dim& dim) const {
  for (int f : dim) {
    if (sizes[f] != 1) return f;
  }
  return -1;
}

StatusOr<NodeRule> RuleOf(const Graph& graph, const Node& node) {
  std::vector<TensorType> inputs;
  for (Value v : node.inputs) inputs.push_back(graph.TypeOf(v));
  NodeRule out;
  ASSIGN_OR_RETURN(out.rule, RuleOf(*node.op, node.attrs, inputs, node.outputs));
  // Outputs say the sizes that no input does: FactorSizes reads inputs, so they stand among them here.
  FactorRule all = out.rule;
  all.inputs.insert(all.inputs.end(), out.rule.outputs.begin(), out.rule.outputs.end());
  std::vector<Shape> shapes;
  for (const TensorType& t : inputs) shapes.push_back(t.shape);
  for (const TensorType& t : node.outputs) shapes.push_back(t.shape);
  if (all.inputs.size() != shapes.size())
    return absl::InternalError(absl::StrCat(node.op->name, ": its rule has another number of tensors"));
  ASSIGN_OR_RETURN(out.sizes, FactorSizes(all, shapes, {}));
  for (int64_t& s : out.sizes) s = std::max<int64_t>(s, 1);
  return out;
}

bool CanShard(const NodeRule& rule, int f, int64_t parts) {
  if (parts == 1) return true;
  if (rule.rule.factors[f].whole || rule.sizes[f] % parts != 0) return false;
  const auto first = [&](const FactorRule::Tensor& tensor) {
    return std::all_of(tensor.begin(), tensor.end(), [&](const FactorRule::Dim& dim) {
      return std::find(dim.begin(), dim.end(), f) == dim.end() || rule.ShardedFactor(dim) == f;
    });
  };
  return std::all_of(rule.rule.inputs.begin(), rule.rule.inputs.end(), first) &&
         std::all_of(rule.rule.outputs.begin(), rule.rule.outputs.end(), first);
}

Status CheckSharding(const Mesh& mesh, const NodeRule& rule, const Sharding& sharding) {
  if (sharding.factors.size() != rule.rule.factors.size())
    return absl::InternalError("the sharding has another number of factors than the rule");
  std::array<bool, Mesh::kMaxAxes> used{};
  for (size_t f = 0; f < sharding.factors.size(); ++f) {
    for (int8_t a : sharding.factors[f]) {
      if (a < 0 || a >= mesh.axes()) return absl::InternalError(absl::StrCat("the mesh has no axis ", a));
      if (used[a]) return absl::InternalError(absl::StrCat("axis ", AxisNames({a}), " shards two factors"));
      used[a] = true;
    }
    const int64_t parts = mesh.Size(sharding.factors[f]);
    if (!CanShard(rule, static_cast<int>(f), parts))
      return absl::InvalidArgumentError(absl::StrCat("factor '", rule.rule.factors[f].name, "' of size ", rule.sizes[f],
                                                     " cannot be sharded ", parts, " ways"));
  }
  return absl::OkStatus();
}

Layout InputLayout(const NodeRule& rule, const Sharding& sharding, size_t i) {
  return DimsLayout(rule.rule.inputs[i], sharding);
}

Layout OutputLayout(const NodeRule& rule, const Sharding& sharding, size_t o) {
  Layout layout = DimsLayout(rule.rule.outputs[o], sharding);
  for (size_t f = 0; f < sharding.factors.size(); ++f) {
    if (!rule.rule.factors[f].in_input || HasFactor(rule.rule.outputs[o], static_cast<int>(f))) continue;
    for (int8_t a : sharding.factors[f]) layout.SetPartial(a, rule.rule.reduction);
  }
  return layout;
}

Layout GradientLayout(const NodeRule& rule, const Sharding& sharding, size_t i) {
  Layout layout = InputLayout(rule, sharding, i);
  for (size_t f = 0; f < sharding.factors.size(); ++f) {
    if (HasFactor(rule.rule.inputs[i], static_cast<int>(f))) continue;
    for (int8_t a : sharding.factors[f]) layout.SetPartial(a, Reduction::kSum);
  }
  return layout;
}

std::vector<Sharding> Candidates(const Mesh& mesh, const NodeRule& rule, size_t limit) {
  std::vector<Sharding> done{Sharding(rule)};
  for (int a = 0; a < mesh.axes(); ++a) {
    const size_t count = done.size();
    for (size_t i = 0; i < count; ++i) {
      for (size_t f = 0; f < rule.rule.factors.size() && done.size() < limit; ++f) {
        if (!CanShard(rule, static_cast<int>(f), mesh.Size(done[i].factors[f]) * mesh.size(a))) continue;
        Sharding wider = done[i];
        wider.factors[f].push_back(static_cast<int8_t>(a));
        done.push_back(std::move(wider));
      }
    }
  }
  return done;
}

}  // namespace mslua
