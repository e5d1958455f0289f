#include "core/sharding/testing/lockstep.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/dtype.h"
#include "core/sharding/layout.h"

namespace mslua::testing {
namespace {

// Copies part `p` along dimension `d` of a whole tensor to or from a tensor that is that part alone.
void CopyPart(const TensorType& whole_type, int64_t d, int64_t p, int64_t parts, char* whole, char* part, bool out) {
  int64_t outer = 1, inner = SizeOf(whole_type.dtype);
  for (int64_t k = 0; k < whole_type.rank(); ++k) (k < d ? outer : inner) *= k == d ? 1 : whole_type.shape[k];
  const int64_t block = whole_type.shape[d] / parts * inner;
  for (int64_t o = 0; o < outer; ++o) {
    char* w = whole + (o * parts + p) * block;
    char* s = part + o * block;
    std::memcpy(out ? s : w, out ? w : s, static_cast<size_t>(block));
  }
}

double Combine(const std::string& op, double a, double b) {
  return op == "sum" ? a + b : op == "prod" ? a * b : op == "max" ? std::max(a, b) : std::min(a, b);
}

class World {
 public:
  World(const std::vector<Graph>& graphs, const std::vector<std::vector<std::string>>& inputs)
      : graphs_(graphs), inputs_(inputs), values_(graphs.size()), next_input_(graphs.size(), 0) {
    for (size_t r = 0; r < graphs.size(); ++r) values_[r].resize(graphs[r].nodes.size());
  }

  StatusOr<std::vector<std::vector<std::string>>> Run() {
    for (size_t i = 0; i < graphs_[0].nodes.size(); ++i) {
      for (size_t r = 0; r < graphs_.size(); ++r) {
        if (graphs_[r].nodes.size() != graphs_[0].nodes.size() || graphs_[r].nodes[i].op != graphs_[0].nodes[i].op)
          return absl::InternalError(absl::StrCat("the ranks' programs differ at node ", i));
        for (const TensorType& t : graphs_[r].nodes[i].outputs)
          values_[r][i].emplace_back(static_cast<size_t>(t.bytes()), '\0');
      }
      for (size_t r = 0; r < graphs_.size(); ++r) RETURN_IF_ERROR(RunNode(r, i));
    }
    std::vector<std::vector<std::string>> results(graphs_.size());
    for (size_t r = 0; r < graphs_.size(); ++r) {
      for (const GraphOutput& o : graphs_[r].outputs) results[r].push_back(ValueOf(r, o.value));
    }
    return results;
  }

 private:
  std::string& ValueOf(size_t r, Value v) { return values_[r][v.node][v.output]; }

  Status RunNode(size_t r, size_t i) {
    const Graph& graph = graphs_[r];
    const Node& n = graph.nodes[i];
    if (n.op->name == "input") {
      if (next_input_[r] >= inputs_[r].size() || inputs_[r][next_input_[r]].size() != values_[r][i][0].size())
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", r, ": input '", n.attrs.Str("name"), "' has a wrong size"));
      values_[r][i][0] = inputs_[r][next_input_[r]++];
      return absl::OkStatus();
    }
    const AttrValue* group = n.attrs.Find("group");  // of convolutions it is a number
    if (group != nullptr && std::holds_alternative<std::vector<int64_t>>(*group)) return RunCollective(r, i);
    if (n.op->view) {
      values_[r][i][0] = ValueOf(r, n.inputs[0]);
      return absl::OkStatus();
    }
    std::vector<TensorView> in, out;
    for (Value v : n.inputs) in.push_back({graph.TypeOf(v), &ValueOf(r, v)[0]});
    for (size_t o = 0; o < n.outputs.size(); ++o) out.push_back({n.outputs[o], &values_[r][i][o][0]});
    return Annotate(n.op->reference({n.attrs, in, out}), n.op->name);
  }

  // The result of a collective on one rank, from all ranks' operands.
  Status RunCollective(size_t r, size_t i) {
    const Node& n = graphs_[r].nodes[i];
    const std::string& name = n.op->name;
    const std::vector<int64_t>& group = n.attrs.Ints("group");
    const int64_t size = static_cast<int64_t>(group.size());
    const int64_t me = std::find(group.begin(), group.end(), static_cast<int64_t>(r)) - group.begin();
    if (me == size) return absl::InternalError(absl::StrCat(name, ": rank ", r, " is not in its group"));
    const TensorType in = graphs_[r].TypeOf(n.inputs[0]), out = n.outputs[0];
    std::string& y = values_[r][i][0];
    const auto operand = [&](int64_t member) -> std::string& {
      const size_t rank = static_cast<size_t>(group[static_cast<size_t>(member)]);
      return ValueOf(rank, graphs_[rank].nodes[i].inputs[0]);
    };
    if (name == "collective_permute") {
      const auto source = std::find(group.begin(), group.end(), n.attrs.Int("source")) - group.begin();
      y = operand(source);
    } else if (name == "exchange") {
      Exchange(r, i);
    } else if (name == "all_gather") {
      for (int64_t m = 0; m < size; ++m) CopyPart(out, n.attrs.Int("axis"), m, size, &y[0], &operand(m)[0], false);
    } else if (name == "all_to_all") {
      TensorType part_type = in;
      part_type.shape[n.attrs.Int("split_axis")] /= size;
      std::string part(static_cast<size_t>(part_type.bytes()), '\0');
      for (int64_t m = 0; m < size; ++m) {
        CopyPart(in, n.attrs.Int("split_axis"), me, size, &operand(m)[0], &part[0], true);
        CopyPart(out, n.attrs.Int("concat_axis"), m, size, &y[0], &part[0], false);
      }
    } else if (name == "all_reduce" || name == "reduce_scatter") {
      std::string sum = operand(0);
      for (int64_t m = 1; m < size; ++m) {
        for (int64_t e = 0; e < in.elements(); ++e)
          StoreDouble(in.dtype, &sum[0], e,
                      Combine(n.attrs.Str("op"), LoadAsDouble(in.dtype, sum.data(), e),
                              LoadAsDouble(in.dtype, operand(m).data(), e)));
      }
      if (name == "all_reduce")
        y = sum;
      else
        CopyPart(in, n.attrs.Int("axis"), me, size, &sum[0], &y[0], true);
    } else {
      return absl::UnimplementedError(absl::StrCat(name, " in lockstep"));
    }
    return absl::OkStatus();
  }

  void Exchange(size_t r, size_t i) {
    const Node& n = graphs_[r].nodes[i];
    const std::vector<int64_t>& messages = n.attrs.Ints("messages");
    const size_t rank = n.outputs[0].shape.size();
    for (const int64_t* m = messages.data(); m < messages.data() + messages.size(); m += 2 + 3 * rank) {
      if (m[1] != static_cast<int64_t>(r)) continue;
      const size_t source = static_cast<size_t>(m[0]);
      const Value x = graphs_[source].nodes[i].inputs[0];
      CopyBox(n.outputs[0].dtype, {m + 2 + 2 * rank, rank}, {graphs_[source].TypeOf(x).shape, {m + 2, rank}},
              ValueOf(source, x).data(), {n.outputs[0].shape, {m + 2 + rank, rank}}, &values_[r][i][0][0]);
    }
  }

  const std::vector<Graph>& graphs_;
  const std::vector<std::vector<std::string>>& inputs_;
  std::vector<std::vector<std::vector<std::string>>> values_;  // by rank, node and output
  std::vector<size_t> next_input_;
};

}  // namespace

StatusOr<std::vector<std::vector<std::string>>> RunInLockstep(const std::vector<Graph>& graphs,
                                                              const std::vector<std::vector<std::string>>& inputs) {
  return World(graphs, inputs).Run();
}

}  // namespace mslua::testing
