// Elementwise chains join the row programs that read them or that they read (core/op/elementwise.h): a residual and its
// layer_norm, a layer_norm and the cast of its result, squares and their sum. Row operators come first, then sums, each
// with what is before it, then what is after it. Runs after elementwise fusion: a chain is a fused node.
#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "core/graph/gradient_marks.h"
#include "core/op/elementwise.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

// The most instructions, and the most operands and results, of one node.
constexpr size_t kMostInstructions = 64, kMostTensors = 12;

// Dimensions of more than one element that divide those of both shapes; nothing where their borders lie crosswise.
absl::optional<Shape> Refined(const Shape& a, const Shape& b) {
  std::set<int64_t> borders;  // elements behind a dimension
  for (const Shape* s : {&a, &b}) {
    int64_t behind = 1;
    for (size_t d = s->size(); d-- > 0;) borders.insert(behind *= (*s)[d]);
  }
  Shape shape;
  int64_t behind = 1;
  for (const int64_t border : borders) {
    if (border % behind != 0) return absl::nullopt;
    if (border != behind) shape.push_back(border / behind);
    behind = border;
  }
  std::reverse(shape.begin(), shape.end());
  return shape;
}

// Which dimensions of `fine`, a refinement of `shape`, each dimension of `shape` is.
std::vector<std::vector<size_t>> Refinement(const Shape& shape, const Shape& fine) {
  std::vector<std::vector<size_t>> parts(shape.size());
  size_t next = fine.size();
  for (size_t d = shape.size(); d-- > 0;) {
    for (int64_t rest = shape[d]; rest > 1 && next > 0; rest /= fine[next]) parts[d].insert(parts[d].begin(), --next);
  }
  return parts;
}

// `operand`, which broadcasts to `shape`, in dimensions of `fine`.
Shape Refine(const Shape& operand, const Shape& shape, const Shape& fine) {
  const std::vector<std::vector<size_t>> parts = Refinement(shape, fine);
  Shape out(fine.size(), 1);
  const size_t missing = shape.size() - operand.size();
  for (size_t d = 0; d < operand.size(); ++d) {
    if (operand[d] == 1) continue;
    for (const size_t f : parts[missing + d]) out[f] = fine[f];
  }
  return out;
}

// A row program as it grows: over values of the graph, and with the values of the graph that it has computed.
struct Draft {
  RowProgram program;
  Shape shape;
  std::vector<int64_t> axes;
  std::vector<Value> operands;
  std::vector<Shape> shapes;  // of the operands
  absl::flat_hash_map<Value, int32_t> computed;

  int32_t Add(const ScalarInstr& instr) {
    std::vector<ScalarInstr>& code = program.scalars.code;
    const auto same = std::find(code.begin(), code.end(), instr);
    const auto at = static_cast<int32_t>(same - code.begin());
    if (same == code.end()) code.push_back(instr);
    return at;
  }
  int32_t Read(const RowRead& read) {
    const auto same = std::find(program.reads.begin(), program.reads.end(), read);
    ScalarInstr instr;
    instr.op = ScalarOp::kInput;
    instr.args[0] = static_cast<int32_t>(same - program.reads.begin());
    if (same == program.reads.end()) program.reads.push_back(read);
    return Add(instr);
  }
  int32_t Operand(Value v, const Shape& s) {
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] == v && shapes[i] == s) return static_cast<int32_t>(i);
    }
    operands.push_back(v);
    shapes.push_back(s);
    return static_cast<int32_t>(operands.size()) - 1;
  }
  // Appends a program; `inputs`: the value that its input i is.
  std::vector<int32_t> Append(const ScalarProgram& p, const std::vector<int32_t>& inputs) {
    std::vector<int32_t> at;
    for (ScalarInstr instr : p.code) {
      if (instr.op == ScalarOp::kInput) {
        at.push_back(inputs[static_cast<size_t>(instr.args[0])]);
        continue;
      }
      for (int k = 0; k < Arity(instr.op); ++k) instr.args[k] = at[static_cast<size_t>(instr.args[k])];
      at.push_back(Add(instr));
    }
    return at;
  }
};

class RowFuser {
 public:
  explicit RowFuser(const Graph& graph)
      : graph_(graph),
        count_(static_cast<int32_t>(graph.nodes.size())),
        group_(count_, -1),
        next_(count_, -1),
        updates_(count_, false),
        readers_(count_),
        outside_(count_) {
    int32_t last = -1;
    for (int32_t i = 0; i < count_; ++i) {
      outside_[i].resize(graph.nodes[i].outputs.size(), false);
      if (!graph.nodes[i].op->side_effect) continue;
      if (last >= 0) next_[last] = i;
      last = i;
    }
    for (const GraphOutput& o : graph.outputs) {
      const Value v = Source(o.value);
      outside_[v.node][v.output] = true;
      if (!o.updates.empty()) updates_[v.node] = true;
    }
    for (int32_t i = 0; i < count_; ++i) {
      if (graph.nodes[i].op->view) continue;
      for (Value v : graph.nodes[i].inputs) {
        std::vector<int32_t>& readers = readers_[Source(v).node];
        if (readers.empty() || readers.back() != i) readers.push_back(i);
      }
    }
  }

  Graph Run() {
    for (const bool sums : {false, true}) {
      for (int32_t i = 0; i < count_; ++i) {
        if (group_[i] < 0 && IsSum(i) == sums) Grow(i);
      }
    }
    return groups_.empty() ? graph_ : Emit();
  }

 private:
  struct Group {
    Draft draft;
    std::vector<int32_t> members;  // the row operator, then what has joined it
  };

  const Node& At(int32_t i) const { return graph_.nodes[i]; }
  bool IsSum(int32_t i) const {
    return At(i).op->name == "reduce_sum" || At(i).op->name == "reduce_max" || At(i).op->name == "reduce_min";
  }
  // Where the memory of a value comes from: through reshapes.
  Value Source(Value v) const {
    while (At(v.node).op->view && graph_.TypeOf(At(v.node).inputs[0]).dtype == graph_.TypeOf(v).dtype)
      v = At(v.node).inputs[0];
    return v;
  }
  bool IsWide(int32_t i) const {
    const auto wide = [](const TensorType& t) { return t.dtype == DType::kF64; };
    const Node& n = At(i);
    return std::any_of(n.outputs.begin(), n.outputs.end(), wide) ||
           std::any_of(n.inputs.begin(), n.inputs.end(), [&](Value v) { return wide(graph_.TypeOf(v)); });
  }
  static bool Contains(const std::vector<int32_t>& members, int32_t i) {
    return std::find(members.begin(), members.end(), i) != members.end();
  }

  absl::optional<Draft> DraftOf(int32_t i) const {
    const Node& n = At(i);
    const RowFormFn form_of = FindRowForm(n.op->name);
    if (form_of == nullptr || !IsFloat(n.outputs[0].dtype)) return absl::nullopt;
    std::vector<TensorType> inputs;
    for (Value v : n.inputs) inputs.push_back(graph_.TypeOf(v));
    const auto form = form_of({n.attrs, inputs, absl::MakeConstSpan(n.outputs.data(), n.outputs.size())});
    if (!form.ok() || NumElements(form->shape) == 0 || form->length() == 1) return absl::nullopt;
    Draft d;
    d.program = form->program;
    d.program.scalars.results.clear();
    d.shape = form->shape;
    d.axes = form->axes;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      d.operands.push_back(Source(n.inputs[k]));
      d.shapes.push_back(form->operands[k]);
    }
    for (size_t o = 0; o < n.outputs.size(); ++o)
      d.computed[{i, static_cast<int32_t>(o)}] = form->program.scalars.results[o];
    return d;
  }

  void Grow(int32_t row) {
    absl::optional<Draft> draft = DraftOf(row);
    if (!draft) return;
    Group group = {*std::move(draft), {row}};
    for (size_t k = 0; k < group.draft.operands.size();) {
      const Value v = group.draft.operands[k];
      if (NumElements(group.draft.shapes[k]) == NumElements(group.draft.shape) && Join(&group, v.node))
        k = 0;  // operands have changed
      else
        ++k;
    }
    if (!IsSum(row)) {
      for (size_t m = 0; m < group.members.size(); ++m) {
        for (const int32_t reader : readers_[group.members[m]]) Join(&group, reader);
      }
    }
    if (group.members.size() == 1) return;
    for (const int32_t m : group.members) group_[m] = static_cast<int32_t>(groups_.size());
    groups_.push_back(std::move(group));
  }

  // Takes the chain of node `c` into the group, where that is possible.
  bool Join(Group* group, int32_t c) {
    const Node &n = At(c), &row = At(group->members[0]);
    if (n.op->name != "fused" || group_[c] >= 0 || Contains(group->members, c) || updates_[c]) return false;
    if (n.region != row.region || IsWide(c) != IsWide(group->members[0]) || n.outputs[0].elements() == 0) return false;
    for (const GradientMark& mark : GradientMarksOf(n)) {
      if (mark.inside) return false;
    }
    const auto program = ParseScalarProgram(n.attrs.Str("program"));
    if (!program.ok() || NumElements(n.outputs[0].shape) != NumElements(group->draft.shape)) return false;
    const absl::optional<Draft> joined = Joined(group->draft, n, c, *program);
    if (!joined) return false;
    std::vector<int32_t> members = group->members;
    members.push_back(c);
    if (joined->program.scalars.code.size() > kMostInstructions) return false;
    const std::vector<Value> results = ResultsOf(*joined, members);
    if (joined->operands.size() + results.size() > kMostTensors) return false;
    // The arithmetic is f64 where an operand or a result is.
    const auto wide = [this](Value v) { return graph_.TypeOf(v).dtype == DType::kF64; };
    if (IsWide(c) && std::none_of(joined->operands.begin(), joined->operands.end(), wide) &&
        std::none_of(results.begin(), results.end(), wide))
      return false;
    if (LeavesAndComesBack(members)) return false;
    group->draft = *joined;
    group->members = std::move(members);
    return true;
  }

  // The draft with the chain: before what reads the chain's results, after what the chain reads. Nothing where a value
  // of the two is not one number an element, or is stored as another number than it is computed as.
  absl::optional<Draft> Joined(const Draft& draft, const Node& n, int32_t c, const ScalarProgram& chain) const {
    const Shape& own = n.outputs[0].shape;
    const absl::optional<Shape> shape = Refined(draft.shape, own);
    if (!shape) return absl::nullopt;
    Draft d;
    d.shape = *shape;
    const std::vector<std::vector<size_t>> parts = Refinement(draft.shape, *shape);
    for (const int64_t axis : draft.axes) {
      for (const size_t f : parts[static_cast<size_t>(axis)]) d.axes.push_back(static_cast<int64_t>(f));
    }
    const RowValues values = RowValues::Of({draft.program, draft.shape, draft.axes, draft.shapes, {}});
    bool reads_rows = false, fits = true;
    for (Value v : n.inputs) {
      const auto at = draft.computed.find(Source(v));
      if (at == draft.computed.end()) continue;
      reads_rows = true;
      fits = fits && values.element[static_cast<size_t>(at->second)] && IsFloat(graph_.TypeOf(v).dtype) &&
             graph_.TypeOf(v).elements() == n.outputs[0].elements();
    }
    if (!fits) return absl::nullopt;
    std::vector<int32_t> rows;  // where the draft's values are now
    const auto append_rows = [&] {
      for (const ScalarInstr& instr : draft.program.scalars.code) {
        if (instr.op != ScalarOp::kInput) {
          ScalarInstr moved = instr;
          for (int k = 0; k < Arity(instr.op); ++k) moved.args[k] = rows[static_cast<size_t>(instr.args[k])];
          rows.push_back(d.Add(moved));
          continue;
        }
        RowRead read = draft.program.reads[static_cast<size_t>(instr.args[0])];
        const auto of = static_cast<size_t>(read.of);
        if (read.IsReduction()) {
          read.of = rows[of];
          rows.push_back(d.Read(read));
          continue;
        }
        const Value v = draft.operands[of];
        const auto made = d.computed.find(v);
        if (made != d.computed.end() && read.kind == RowRead::kOperand) {
          fits = fits && IsFloat(graph_.TypeOf(v).dtype) && NumElements(draft.shapes[of]) == NumElements(draft.shape);
          rows.push_back(made->second);
          continue;
        }
        fits = fits && made == d.computed.end();
        read.of = d.Operand(v, Refine(draft.shapes[of], draft.shape, d.shape));
        rows.push_back(d.Read(read));
      }
      for (const auto& [value, at] : draft.computed) d.computed[value] = rows[static_cast<size_t>(at)];
    };
    const auto append_chain = [&] {
      std::vector<int32_t> inputs;
      for (Value v : n.inputs) {
        const Value source = Source(v);
        const auto made = d.computed.find(source);
        inputs.push_back(
            made != d.computed.end()
                ? made->second
                : d.Read({RowRead::kOperand, d.Operand(source, Refine(graph_.TypeOf(v).shape, own, d.shape))}));
      }
      const std::vector<int32_t> at = d.Append(chain, inputs);
      for (size_t o = 0; o < chain.results.size(); ++o)
        d.computed[{c, static_cast<int32_t>(o)}] = at[static_cast<size_t>(chain.results[o])];
    };
    if (reads_rows) {
      append_rows();
      append_chain();
      // What the rows read of the chain would be known too late.
      for (Value v : draft.operands) fits = fits && v.node != c;
    } else {
      append_chain();
      append_rows();
    }
    d.program.scalars.num_inputs = static_cast<int32_t>(d.program.reads.size());
    return fits ? absl::make_optional(std::move(d)) : absl::nullopt;
  }

  // The values that something outside of the members reads, or that the graph gives.
  std::vector<Value> ResultsOf(const Draft& draft, const std::vector<int32_t>& members) const {
    std::vector<Value> results;
    for (const int32_t m : members) {
      absl::flat_hash_set<int32_t> read;  // outputs
      for (const int32_t r : readers_[m]) {
        if (Contains(members, r)) continue;
        for (Value v : At(r).inputs) {
          const Value source = Source(v);
          if (source.node == m) read.insert(source.output);
        }
      }
      for (const GradientMark& mark : GradientMarksOf(At(m))) {
        if (!mark.inside) read.insert(mark.place);
      }
      for (int32_t o = 0; o < static_cast<int32_t>(At(m).outputs.size()); ++o) {
        if ((read.contains(o) || outside_[m][o]) && draft.computed.contains({m, o})) results.push_back({m, o});
      }
    }
    return results;
  }

  // Whether a path leads from the members through others back into them. Groups count as one node each.
  bool LeavesAndComesBack(const std::vector<int32_t>& members) const {
    std::vector<bool> seen(count_, false);
    std::vector<int32_t> open;
    const auto follow = [&](int32_t i) {
      const auto visit = [&](int32_t r) {
        if (group_[r] >= 0) r = groups_[group_[r]].members[0];
        if (!seen[r]) open.push_back(r);
        seen[r] = true;
      };
      for (const int32_t r : readers_[i]) visit(r);
      if (next_[i] >= 0) visit(next_[i]);
    };
    for (const int32_t m : members) seen[m] = true;
    for (const int32_t m : members) follow(m);  // members among themselves are no way out
    while (!open.empty()) {
      const int32_t i = open.back();
      open.pop_back();
      const std::vector<int32_t> alone = {i};
      for (const int32_t m : group_[i] >= 0 ? groups_[group_[i]].members : alone) {
        for (const int32_t r : readers_[m]) {
          if (Contains(members, r)) return true;
        }
        if (next_[m] >= 0 && Contains(members, next_[m])) return true;
        follow(m);
      }
    }
    return false;
  }

  // ---- The new graph ----

  // A group's last member, or the node itself.
  int32_t Unit(int32_t i) const {
    return group_[i] < 0 ? i : *std::max_element(groups_[group_[i]].members.begin(), groups_[group_[i]].members.end());
  }

  // Units in an order in which all their operands are known, the earliest first.
  std::vector<int32_t> Order() const {
    std::vector<std::vector<int32_t>> to(count_);
    std::vector<int32_t> waiting(count_, 0);
    const auto add = [&](int32_t first, int32_t then) {
      if (first == then) return;
      to[first].push_back(then);
      ++waiting[then];
    };
    for (int32_t i = 0; i < count_; ++i) {
      for (Value v : At(i).inputs) add(Unit(group_[i] >= 0 ? Source(v).node : v.node), Unit(i));
      if (next_[i] >= 0) add(i, next_[i]);
    }
    std::priority_queue<int32_t, std::vector<int32_t>, std::greater<int32_t>> ready;
    for (int32_t i = 0; i < count_; ++i) {
      if (Unit(i) == i && waiting[i] == 0) ready.push(i);
    }
    std::vector<int32_t> order;
    while (!ready.empty()) {
      order.push_back(ready.top());
      ready.pop();
      for (const int32_t r : to[order.back()]) {
        if (--waiting[r] == 0) ready.push(r);
      }
    }
    return order;
  }

  Graph Emit() {
    Rewriter rewriter(graph_);
    for (const int32_t u : Order()) {
      if (group_[u] >= 0) {
        EmitGroup(&rewriter, groups_[group_[u]]);
        continue;
      }
      // Views of what is nowhere stored have no reader.
      const bool stored =
          std::all_of(At(u).inputs.begin(), At(u).inputs.end(), [&](Value v) { return rewriter.Map(v).valid(); });
      if (stored) rewriter.Copy(u);
    }
    return EliminateDeadNodes(rewriter.Finish());
  }

  void EmitGroup(Rewriter* rewriter, const Group& group) {
    const Draft& d = group.draft;
    const std::vector<Value> results = ResultsOf(d, group.members);
    if (results.empty()) return;  // dead
    const RowValues values = RowValues::Of({d.program, d.shape, d.axes, d.shapes, {}});
    ScalarProgram scalars = d.program.scalars;
    std::vector<std::string> dtypes;
    std::vector<int64_t> of_rows;
    for (size_t o = 0; o < results.size(); ++o) {
      const TensorType& type = graph_.TypeOf(results[o]);
      scalars.results.push_back(d.computed.at(results[o]));
      dtypes.push_back(Name(type.dtype));
      if (type.elements() != NumElements(d.shape)) of_rows.push_back(static_cast<int64_t>(o));
    }
    GraphBuilder& g = rewriter->to();
    const Node& row = At(group.members[0]);
    g.SetLocation(row.location);
    g.SetRegion(row.region);
    std::vector<Value> inputs;
    for (size_t i = 0; i < d.operands.size(); ++i)
      inputs.push_back(Reshape(g, rewriter->Map(d.operands[i]), d.shapes[i]));
    const std::vector<Value> out = g.OpMulti("fused_rows", inputs,
                                             {{"program", ToString(scalars)},
                                              {"reads", ToString(d.program.reads)},
                                              {"shape", std::vector<int64_t>(d.shape.begin(), d.shape.end())},
                                              {"axes", d.axes},
                                              {"dtypes", absl::StrJoin(dtypes, ",")},
                                              {"of_rows", of_rows}});
    for (size_t o = 0; o < out.size(); ++o)
      rewriter->Replace(results[o], Reshape(g, out[o], graph_.TypeOf(results[o]).shape));
    g.SetLocation(nullptr);
    g.SetRegion(0);
  }

  const Graph& graph_;
  const int32_t count_;
  std::vector<int32_t> group_;                 // of a node; -1: none
  std::vector<int32_t> next_;                  // of a node with a side effect, the one after it: they keep their order
  std::vector<bool> updates_;                  // whether a node makes what the store gets
  std::vector<std::vector<int32_t>> readers_;  // of a node's memory: through views, which are none
  std::vector<std::vector<bool>> outside_;     // of outputs: whether the graph gives them
  std::vector<Group> groups_;
};

}  // namespace

Graph FuseRows(const Graph& graph) { return RowFuser(graph).Run(); }

}  // namespace mslua
