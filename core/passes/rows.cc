// Tables of embeddings are updated by the rows that a batch names (decision 39). The training step says that a row
// without an index stays as it is:
//
//   new = select(greater(scatter_sum(indices, ones), 0), f(table, scatter_sum(indices, updates), ..), table)
//
// with an elementwise f. Here f is computed of those rows alone, and they are written into the table in place: neither
// the gradient of the table's height nor any other value of that height is made. Sums of the gradient over ranks, which
// are all_reduces of the whole gradient, become all_gathers of indices and updates. The gradient's norm, and the
// question whether it is finite, are asked of its rows.
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "core/op/marks.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

// Updates [n, ..] and the row of the table, or of this device's part of it, that each belongs to, i32 [n].
struct Rows {
  Value indices, updates;
};

class RowUpdater {
 public:
  explicit RowUpdater(const Graph& graph) : graph_(graph), rewriter_(graph) { FindRoots(); }

  Graph Run() {
    if (roots_.empty()) return graph_;
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes.size()); ++i) {
      if (roots_.contains(i))
        Emit(i);
      else
        rewriter_.Copy(i);
    }
    absl::flat_hash_set<int32_t> messages;
    for (const int32_t i : messages_) messages.insert(rewriter_.Map({i, 0}).node);
    return EliminateDeadNodes(rewriter_.Finish(), messages);
  }

 private:
  GraphBuilder& g() { return rewriter_.to(); }
  const Node& At(Value v) const { return graph_.nodes[v.node]; }
  const Shape& ShapeOf(Value v) const { return graph_.TypeOf(v).shape; }
  static bool IsElementwise(const Node& n) { return !n.op->formula.empty() && n.outputs.size() == 1; }

  // ---- What may be done by rows ----

  void FindRoots() {
    for (const GraphOutput& o : graph_.outputs) {
      if (!o.updates.empty() && IsUpdate(o)) {
        roots_.insert(o.value.node);
        for (Value leaf : LeavesOf(o.value)) updated_.insert(leaf);
      }
    }
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes.size()) && !roots_.empty(); ++i) {
      if (IsReduction(graph_.nodes[i])) roots_.insert(i);
    }
    for (Value leaf : updated_) FindMessages(leaf);
  }

  // An output that leaves the rows of a table as they are where no index is, and of the others has more than indices.
  bool IsUpdate(const GraphOutput& o) {
    const Node& n = At(o.value);
    const Value old{graph_.FindInput(o.updates), 0};
    if (n.op->name != "select" || n.inputs[2] != old || n.inputs[1] == old) return false;
    const int64_t height = HeightOf(o.value);
    return height > 0 && IsByRows(n.inputs[0], height) && IsByRows(n.inputs[1], height) &&
           WithoutIndex(n.inputs[0]) == 0.0 && IsWorthIt(n.inputs[0], height);
  }

  // A reduction of a whole gradient to one number, to which rows without an index add nothing.
  bool IsReduction(const Node& n) {
    if (n.op->name != "reduce_sum" && n.op->name != "reduce_min") return false;
    const Value x = n.inputs[0];
    const int64_t height = HeightOf(x);
    if (height <= 0 || n.outputs[0].elements() != 1 || !IsByRows(x, height)) return false;
    for (Value leaf : LeavesOf(x)) {
      if (!updated_.contains(leaf)) return false;
    }
    if (!IsWorthIt(x, height)) return false;
    if (n.op->name == "reduce_sum") return WithoutIndex(x) == 0.0;
    return At(x).op->name == "cast" && graph_.TypeOf(At(x).inputs[0]).dtype == DType::kBool && WithoutIndex(x) == 1.0;
  }

  int64_t HeightOf(Value v) const {
    const Shape& shape = ShapeOf(v);
    return shape.empty() || shape[0] > std::numeric_limits<int32_t>::max() ? 0 : shape[0];
  }

  bool IsWorthIt(Value v, int64_t height) {
    int64_t rows = 0;
    for (Value leaf : LeavesOf(v)) rows += CountOf(leaf);
    return rows > 0 && rows < height;
  }

  static bool IsOneNumber(const TensorType& t) { return t.elements() == 1; }
  bool IsSplat(Value v) const {
    return At(v).op->name == "broadcast_to" && IsOneNumber(graph_.TypeOf(At(v).inputs[0]));
  }

  // How many rows with an index a value is the sum of: a gradient of gathers. -1: it is none.
  int64_t CountOf(Value v) {
    const auto known = counts_.find(v);
    if (known != counts_.end()) return known->second;
    return counts_[v] = FindCount(v);
  }
  int64_t FindCount(Value v) {
    const Node& n = At(v);
    const std::string& op = n.op->name;
    if (op == "scatter_sum") return n.attrs.Int("axis") == 0 ? graph_.TypeOf(n.inputs[0]).elements() : -1;
    if (op == "add") {
      const int64_t a = CountOf(n.inputs[0]), b = a < 0 ? -1 : CountOf(n.inputs[1]);
      return b < 0 ? -1 : a + b;
    }
    if (op == "all_reduce") {
      const std::string& how = n.attrs.Str("op");
      const int64_t own = how == "sum" || how == "mean" ? CountOf(n.inputs[0]) : -1;
      return own < 0 ? -1 : own * static_cast<int64_t>(n.attrs.Ints("group").size());
    }
    // Into a type that has every value of the other one.
    if (op == "cast") return IsWidened(n) ? CountOf(n.inputs[0]) : -1;
    if (op == "mul" && IsSplat(n.inputs[1])) return CountOf(n.inputs[0]);
    return -1;
  }
  bool IsWidened(const Node& n) const {
    const DType from = graph_.TypeOf(n.inputs[0]).dtype, to = n.outputs[0].dtype;
    return IsFloat(from) && IsFloat(to) && (from == to || SizeOf(to) > SizeOf(from));
  }
  // Such a sum that the rows of an expression begin with: arithmetic on it is that of the expression.
  bool IsLeaf(Value v) {
    const std::string& op = At(v).op->name;
    return (op == "scatter_sum" || op == "add" || op == "all_reduce") && CountOf(v) >= 0;
  }

  // Whether the rows of a value follow from rows of its operands.
  bool IsByRows(Value v, int64_t height) {
    if (HeightOf(v) != height) return false;
    const auto known = by_rows_.find(v);
    if (known != by_rows_.end()) return known->second;
    return by_rows_[v] = FindByRows(v, height);
  }
  bool FindByRows(Value v, int64_t height) {
    const Node& n = At(v);
    const std::string& op = n.op->name;
    if (IsLeaf(v) || op == "input") return true;
    if (op == "broadcast_to") return RepeatsRows(n) || IsByRows(n.inputs[0], height);
    if (op == "reshape") return IsByRows(n.inputs[0], height);
    if (!IsElementwise(n)) return false;
    for (Value x : n.inputs) {
      if (!IsByRows(x, height)) return false;
    }
    return true;
  }
  // Whether a broadcast makes all rows alike.
  bool RepeatsRows(const Node& n) const {
    const Shape& from = ShapeOf(n.inputs[0]);
    return from.size() < n.outputs[0].shape.size() || from[0] == 1;
  }

  // The leaves below a value that is made by rows, in the order in which it names them.
  std::vector<Value> LeavesOf(Value v) {
    std::vector<Value> leaves;
    absl::flat_hash_set<Value> seen;
    AddLeaves(v, &seen, &leaves);
    return leaves;
  }
  void AddLeaves(Value v, absl::flat_hash_set<Value>* seen, std::vector<Value>* leaves) {
    const Node& n = At(v);
    if (!seen->insert(v).second) return;
    if (IsLeaf(v)) return leaves->push_back(v);
    if (n.op->name == "broadcast_to" && RepeatsRows(n)) return;
    for (Value x : n.inputs) AddLeaves(x, seen, leaves);
  }

  // The number that a value made by rows is in all rows without an index; nothing where that is not known. A factor
  // beside a 0 is taken for finite.
  std::optional<double> WithoutIndex(Value v) {
    const Node& n = At(v);
    if (IsLeaf(v)) return 0.0;
    if (n.op->name == "broadcast_to" || n.op->name == "reshape") return WithoutIndex(n.inputs[0]);
    if (n.op->name == "constant" && IsOneNumber(n.outputs[0]))
      return LoadAsDouble(n.outputs[0].dtype, n.attrs.Str("data").data(), 0);
    if (!IsElementwise(n)) return std::nullopt;
    std::vector<std::string> bytes;
    std::vector<TensorView> operands;
    for (Value x : n.inputs) {
      const std::optional<double> number = WithoutIndex(x);
      if (number == 0.0 && n.op->name == "mul") return 0.0;
      if (!number) return std::nullopt;
      const TensorType scalar{graph_.TypeOf(x).dtype, {}};
      bytes.emplace_back(static_cast<size_t>(scalar.bytes()), '\0');
      StoreDouble(scalar.dtype, &bytes.back()[0], 0, *number);
      operands.push_back({scalar, nullptr});
    }
    for (size_t k = 0; k < bytes.size(); ++k) operands[k].data = &bytes[k][0];
    const TensorType scalar{n.outputs[0].dtype, {}};
    std::string result(static_cast<size_t>(scalar.bytes()), '\0');
    if (!n.op->reference({n.attrs, operands, {TensorView{scalar, &result[0]}}}).ok()) return std::nullopt;
    return LoadAsDouble(scalar.dtype, result.data(), 0);
  }

  // The all_reduces that become all_gathers.
  void FindMessages(Value v) {
    const Node& n = At(v);
    if (n.op->name == "scatter_sum") return;
    if (n.op->name == "all_reduce") messages_.insert(v.node);
    FindMessages(n.inputs[0]);
    if (n.op->name == "add") FindMessages(n.inputs[1]);
  }

  // ---- How it is done ----

  void Emit(int32_t i) {
    const Node& n = graph_.nodes[i];
    g().SetLocation(n.location);
    g().SetRegion(n.region);
    const bool update = n.op->name == "select";
    const Value named = n.inputs[0];  // an update's condition has all of its rows
    const Value rows = UniqueRows(LeavesOf(named), HeightOf(named));
    if (update) {
      const Value next =
          g().Clone(n, {ByRows(n.inputs[0], rows), ByRows(n.inputs[1], rows), ByRows(n.inputs[2], rows)})[0];
      rewriter_.Replace({i, 0}, g().Op("update_rows", {rewriter_.Map(n.inputs[2]), rows, next}));
    } else {
      rewriter_.Replace({i, 0}, g().Clone(n, {ByRows(n.inputs[0], rows)})[0]);
    }
    g().SetLocation(nullptr);
    g().SetRegion(0);
  }

  // The rows that leaves have, each once; -1 in the place of others.
  Value UniqueRows(const std::vector<Value>& leaves, int64_t height) {
    std::vector<Value> indices;
    for (Value leaf : leaves) indices.push_back(Joined(leaf).indices);
    const Value all = indices.size() == 1 ? indices[0] : g().Op("concat", indices, {{"axis", int64_t{0}}});
    const auto known = unique_.find(all);
    if (known != unique_.end()) return known->second;
    return unique_[all] = g().Op("unique_rows", {all}, {{"size", height}});
  }

  // The rows of a leaf as one list.
  Rows Joined(Value leaf) {
    const auto known = joined_.find(leaf);
    if (known != joined_.end()) return known->second;
    std::vector<Value> indices, updates;
    for (const Rows& part : PartsOf(leaf)) {
      indices.push_back(part.indices);
      updates.push_back(part.updates);
    }
    if (indices.size() == 1) return joined_[leaf] = {indices[0], updates[0]};
    const Attrs axis{{"axis", int64_t{0}}};
    return joined_[leaf] = {g().Op("concat", indices, axis), g().Op("concat", updates, axis)};
  }

  std::vector<Rows> PartsOf(Value v) {
    const Node& n = At(v);
    const std::string& op = n.op->name;
    if (op == "scatter_sum") return {Scattered(n)};
    std::vector<Rows> parts = PartsOf(n.inputs[0]);
    if (op == "add") {
      for (Rows& part : PartsOf(n.inputs[1])) parts.push_back(part);
    }
    for (Rows& part : parts) {
      if (op == "cast") part.updates = Cast(g(), part.updates, n.outputs[0].dtype);
      if (op == "mul") {
        const Value factor = Reshape(g(), rewriter_.Map(At(n.inputs[1]).inputs[0]), {});
        part.updates = Mul(g(), part.updates, factor);
      }
      if (op == "all_reduce") part = Gathered(part, n);
    }
    return parts;
  }

  Rows Scattered(const Node& n) {
    const int64_t begin = mark::kFirstRow.GetOr(n.attrs, 0), count = graph_.TypeOf(n.inputs[0]).elements();
    Value indices = Reshape(g(), rewriter_.Map(n.inputs[0]), {count});
    if (begin != 0) indices = Sub(g(), indices, g().Constant(static_cast<double>(begin), g().TypeOf(indices).dtype));
    Shape shape = n.outputs[0].shape;
    shape[0] = count;
    return {Cast(g(), indices, DType::kI32), Reshape(g(), rewriter_.Map(n.inputs[1]), shape)};
  }

  Rows Gathered(const Rows& own, const Node& message) {
    const std::vector<int64_t>& group = message.attrs.Ints("group");
    const Attrs attrs{{"group", group}, {"axis", int64_t{0}}, {"fusion", message.attrs.Int("fusion")}};
    const Rows all{g().Op("all_gather", {own.indices}, attrs), g().Op("all_gather", {own.updates}, attrs)};
    if (message.attrs.Str("op") != "mean") return all;
    return {all.indices, Mul(g(), all.updates, 1.0 / static_cast<double>(group.size()))};
  }

  // The rows `rows` of a value that is made by rows.
  Value ByRows(Value v, Value rows) {
    const auto known = made_.find({v, rows});
    if (known != made_.end()) return known->second;
    const Value made = MakeByRows(v, rows);
    return made_[{v, rows}] = made;
  }
  Value MakeByRows(Value v, Value rows) {
    const Node& n = At(v);
    Shape shape = n.outputs[0].shape;
    shape[0] = g().TypeOf(rows).shape[0];
    if (IsLeaf(v)) {
      const Rows own = Joined(v);
      return g().Op("row_sums", {rows, own.indices, own.updates});
    }
    if (n.op->name == "input") return g().Op("read_rows", {rewriter_.Map(v), rows});
    if (n.op->name == "broadcast_to")
      return BroadcastTo(g(), RepeatsRows(n) ? rewriter_.Map(n.inputs[0]) : ByRows(n.inputs[0], rows), shape);
    if (n.op->name == "reshape") return Reshape(g(), ByRows(n.inputs[0], rows), shape);
    std::vector<Value> inputs;
    for (Value x : n.inputs) inputs.push_back(ByRows(x, rows));
    return g().Clone(n, inputs)[0];
  }

  const Graph& graph_;
  Rewriter rewriter_;
  absl::flat_hash_set<int32_t> roots_, messages_;  // nodes
  absl::flat_hash_set<Value> updated_;             // leaves of updates
  absl::flat_hash_map<Value, int64_t> counts_;
  absl::flat_hash_map<Value, bool> by_rows_;
  // In the new graph.
  absl::flat_hash_map<Value, Rows> joined_;   // of leaves
  absl::flat_hash_map<Value, Value> unique_;  // of lists of indices
  absl::flat_hash_map<std::pair<Value, Value>, Value> made_;
};

}  // namespace

Graph UpdateByRows(const Graph& graph) { return RowUpdater(graph).Run(); }

}  // namespace mslua
