#include <algorithm>
#include <cstring>
#include <optional>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/graph/gradient_marks.h"
#include "core/op/elementwise.h"
#include "core/op/formula.h"
#include "core/op/registry.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

// The most operands and instructions of one chain: its tiles stay in the first-level cache (kMaxTileSlots of the
// tile interpreter is larger).
constexpr int32_t kMaxChain = 40;

class Fuser {
 public:
  // `updates_apart`: as FuseForDevice.
  Fuser(const Graph& graph, bool updates_apart)
      : graph_(graph),
        updates_apart_(updates_apart),
        count_(static_cast<int32_t>(graph.nodes.size())),
        group_(count_, -1),
        before_(count_, -1),
        rounds_(count_, -1),
        updates_(count_, 0),
        number_(count_, 0),
        subtree_(count_, 1) {
    for (const GraphOutput& o : graph.outputs) {
      if (o.updates.empty()) continue;
      int32_t node = o.value.node;
      for (; graph.nodes[node].op->view; node = graph.nodes[node].inputs[0].node) updates_[node] = 1;
      updates_[node] = 1;
    }
    for (int32_t i = 0; i < count_; ++i) {
      if (IsRounding(graph.nodes[i])) rounds_[i] = ThroughBroadcast(graph.nodes[i].inputs[0]).node;
    }
    int32_t last = -1;
    for (int32_t i = 0; i < count_; ++i) {
      if (!graph.nodes[i].op->side_effect) continue;
      before_[i] = last;
      last = i;
    }
    MakeTree();
  }

  Graph Run() {
    for (int32_t i = 0; i < count_; ++i) {
      seen_ = i;
      if (!Fusible(graph_.nodes[i])) continue;
      group_[i] = i;
      members_[i] = {i};
      for (Value v : graph_.nodes[i].inputs) {
        const Value source = ThroughBroadcast(v);
        if (group_[source.node] >= 0 && source == v) TryMerge(group_[source.node], group_[i]);
      }
    }
    // Only now: a sibling must not be torn from the chain that uses it, or it would be kept in memory until then.
    for (int32_t i = 0; i < count_; ++i) {
      if (group_[i] >= 0) MergeSiblings(i);
    }
    return Emit();
  }

 private:
  static bool IsFloatOrBool(DType t) { return IsFloat(t) || t == DType::kBool; }

  // Elementwise in f32 or in f64, with results that are floats or bools. A cast to an integer truncates, which a chain
  // in floating point would not do: it ends a chain by not being in one.
  static bool Fusible(const Node& n) {
    if (n.op->formula.empty()) return false;
    if (!IsFloatOrBool(n.outputs[0].dtype)) return false;
    return true;
  }
  // A cast of what was cast to a type that holds fewer numbers: a chain in f32 or f64 would not round to that type.
  bool IsRounding(const Node& n) const {
    if (n.op->name != "cast" || !IsFloat(n.outputs[0].dtype)) return false;
    const Node& to = graph_.nodes[ThroughBroadcast(n.inputs[0]).node];
    if (to.op->name != "cast" || !IsFloat(to.outputs[0].dtype)) return false;
    const DType from = graph_.TypeOf(to.inputs[0]).dtype, by = to.outputs[0].dtype;
    return by != from && by != n.outputs[0].dtype && (SizeOf(by) < SizeOf(from) || SizeOf(by) == 2);
  }
  bool IsF64(int32_t i) const {
    const Node& n = graph_.nodes[i];
    if (n.outputs[0].dtype == DType::kF64) return true;
    for (Value v : n.inputs) {
      if (graph_.TypeOf(v).dtype == DType::kF64) return true;
    }
    return false;
  }
  bool HasFloat(int32_t i) const {
    const Node& n = graph_.nodes[i];
    return IsFloat(n.outputs[0].dtype) ||
           std::any_of(n.inputs.begin(), n.inputs.end(), [this](Value v) { return IsFloat(graph_.TypeOf(v).dtype); });
  }
  // Integers without a float are not computed in floating point; truth values may be.
  bool InFloats(int32_t i) const {
    const Node& n = graph_.nodes[i];
    const auto truths = [this](Value v) { return graph_.TypeOf(v).dtype == DType::kBool; };
    return HasFloat(i) || (n.outputs[0].dtype == DType::kBool && std::all_of(n.inputs.begin(), n.inputs.end(), truths));
  }

  Value ThroughBroadcast(Value v) const {
    while (graph_.nodes[v.node].op->name == "broadcast_to") v = graph_.nodes[v.node].inputs[0];
    return v;
  }
  // Nothing for an integer that a double does not hold.
  std::optional<double> SplatOf(Value v) const {
    const Node& n = graph_.nodes[ThroughBroadcast(v).node];
    if (n.op->name != "constant" || n.outputs[0].elements() != 1) return std::nullopt;
    if (n.outputs[0].dtype == DType::kI64) {
      constexpr int64_t kLargest = int64_t{1} << 53;
      int64_t number;
      std::memcpy(&number, n.attrs.Str("data").data(), sizeof number);
      if (number < -kLargest || number > kLargest) return std::nullopt;
    }
    return LoadAsDouble(n.outputs[0].dtype, n.attrs.Str("data").data(), 0);
  }

  // What the chain `members` reads from outside, broadcasts looked through, constants left out.
  std::vector<Value> OutsideInputs(const std::vector<int32_t>& members) const {
    std::vector<Value> out;
    for (int32_t m : members) {
      for (Value v : graph_.nodes[m].inputs) {
        if (std::binary_search(members.begin(), members.end(), v.node) || SplatOf(v)) continue;
        const Value source = ThroughBroadcast(v);
        if (std::find(out.begin(), out.end(), source) == out.end()) out.push_back(source);
      }
    }
    return out;
  }

  // Makes the chains of groups a and b one, if they run over the same shape in the same arithmetic, are short enough,
  // and no path leaves the union and comes back.
  bool TryMerge(int32_t a, int32_t b) {
    if (a == b) return true;
    const std::vector<int32_t>&ma = members_[a], &mb = members_[b];
    const Node &na = graph_.nodes[ma[0]], &nb = graph_.nodes[mb[0]];
    if (na.outputs[0].shape != nb.outputs[0].shape || na.region != nb.region || IsF64(ma[0]) != IsF64(mb[0]) ||
        InFloats(ma[0]) != InFloats(mb[0]))
      return false;
    std::vector<int32_t> all;
    std::merge(ma.begin(), ma.end(), mb.begin(), mb.end(), std::back_inserter(all));
    if (static_cast<int32_t>(all.size() + OutsideInputs(all).size()) > kMaxChain) return false;
    for (int32_t m : all) {
      if (rounds_[m] >= 0 && std::binary_search(all.begin(), all.end(), rounds_[m])) return false;
    }
    if (TreeComesBack(all) || (!JoinsAlone(mb, all) && LeavesAndComesBack(all))) return false;
    for (int32_t m : mb) group_[m] = a;
    members_[a] = std::move(all);
    members_.erase(b);
    return true;
  }

  // Whether a chain of one node, the last that is seen, reads only what `all` makes, and what waits for nothing: no
  // path can come into it from anywhere else.
  bool JoinsAlone(const std::vector<int32_t>& joining, const std::vector<int32_t>& all) const {
    if (joining.size() != 1 || joining[0] != seen_) return false;
    const std::vector<Value>& inputs = graph_.nodes[seen_].inputs;
    return std::all_of(inputs.begin(), inputs.end(), [&](Value v) {
      if (std::binary_search(all.begin(), all.end(), v.node)) return true;
      const int32_t source = ThroughBroadcast(v).node;
      return graph_.nodes[source].inputs.empty() && before_[source] < 0;
    });
  }

  // Each node below the latest of its operands: some of the graph's paths. A node's subtree has the numbers from
  // number_[node] on, subtree_[node] of them.
  void MakeTree() {
    std::vector<int32_t> parent(count_, -1), next(count_, 0);
    for (int32_t i = 0; i < count_; ++i) {
      for (Value v : graph_.nodes[i].inputs) parent[i] = std::max(parent[i], v.node);
    }
    for (int32_t i = count_; i-- > 0;) {
      if (parent[i] >= 0) subtree_[parent[i]] += subtree_[i];
    }
    int32_t roots = 0;
    for (int32_t i = 0; i < count_; ++i) {
      int32_t& number = parent[i] < 0 ? roots : next[parent[i]];
      number_[i] = number;
      number += subtree_[i];
      next[i] = number_[i] + 1;
    }
  }

  // As LeavesAndComesBack, of the tree's paths alone. It spares most searches of long graphs, where the way back from
  // the loss leads past every value of the way there.
  bool TreeComesBack(const std::vector<int32_t>& all) const {
    for (int32_t m : all) {
      for (Value v : graph_.nodes[m].inputs) {
        if (v.node < all.front() || std::binary_search(all.begin(), all.end(), v.node)) continue;
        for (int32_t from : all) {
          if (from < v.node && number_[v.node] >= number_[from] && number_[v.node] < number_[from] + subtree_[from])
            return true;
        }
      }
    }
    return false;
  }

  // Whether a path leads from the nodes of `all` through others back into them. Other groups count as one node each:
  // what feeds one of their members feeds them all. `seen_` nodes are all that groups can have by now.
  bool LeavesAndComesBack(const std::vector<int32_t>& all) {
    absl::flat_hash_set<int32_t> after_groups;  // groups that depend on `all`
    std::vector<char> state(seen_ + 1, 0);      // 1: in `all`, 2: outside and depends on it
    for (int32_t m : all) state[m] = 1;
    const auto after = [&](int32_t i) {
      return state[i] == 2 || (state[i] == 0 && group_[i] >= 0 && after_groups.contains(group_[i]));
    };
    // A group's members may lie before the one that makes it depend: repeat until nothing changes.
    for (bool changed = true; changed;) {
      changed = false;
      for (int32_t i = after_groups.empty() ? all.front() : 0; i <= seen_; ++i) {
        bool depends = after(i), comes_back = false;
        for (Value v : graph_.nodes[i].inputs) {
          if (after(v.node))
            depends = comes_back = true;
          else if (state[v.node] == 1)
            depends = true;
        }
        if (before_[i] >= 0 && after(before_[i])) depends = true;
        if (state[i] == 1) {
          if (comes_back) return true;
        } else if (depends && state[i] == 0) {
          state[i] = 2;
          changed = true;
          if (group_[i] >= 0) after_groups.insert(group_[i]);
        }
      }
      if (after_groups.empty()) break;  // one sweep in order finds everything
    }
    return false;
  }

  // Chains over the same inputs read them once when they are one: the update of a parameter and of its state. A number
  // is no reason to, unless the chains are so short that a launch is most of their time.
  void MergeSiblings(int32_t i) {
    constexpr int64_t kShort = 4096;
    for (Value v : graph_.nodes[i].inputs) {
      const Value source = ThroughBroadcast(v);
      if (source != v || SplatOf(v)) continue;
      const bool number = graph_.TypeOf(v).elements() == 1;
      if (number && (graph_.nodes[i].outputs[0].elements() > kShort || StaysApart(group_[i]))) continue;
      auto [it, fresh] = reader_.emplace(v, i);
      if (fresh) continue;
      if (group_[it->second] != group_[i]) TryMerge(group_[it->second], group_[i]);
      it->second = i;
    }
  }
  bool StaysApart(int32_t group) const {
    const std::vector<int32_t>& members = members_.at(group);
    return updates_apart_ &&
           std::any_of(members.begin(), members.end(), [this](int32_t m) { return updates_[m] != 0; });
  }

  // A node's unit: its group's last member, or itself.
  int32_t Unit(int32_t i) const { return group_[i] >= 0 ? members_.at(group_[i]).back() : i; }

  // Who reads a node's memory, itself or by a view of it.
  std::vector<int32_t> MemoryReaders(int32_t node) {
    std::vector<int32_t> found;
    for (int32_t r : Readers(node)) {
      if (!graph_.nodes[r].op->view) {
        found.push_back(r);
        continue;
      }
      const std::vector<int32_t> through = MemoryReaders(r);
      found.insert(found.end(), through.begin(), through.end());
    }
    return found;
  }

  // Additions of two values that nobody else reads, by unit: as soon as both are known, one of them is free again. Sums
  // of gradients over micro-batches come after a whole backward pass in the trace.
  std::vector<char> LastSums() const {
    const auto uses = graph_.UseCounts();
    std::vector<char> sums(count_, 0);
    for (int32_t i = 0; i < count_; ++i) {
      const Node& n = graph_.nodes[i];
      const bool alone = group_[i] < 0 || members_.at(group_[i]).size() == 1;
      const auto made_for_it = [&](Value v) {
        return graph_.nodes[v.node].op->name != "input" && uses[v.node][v.output] == 1 &&
               graph_.TypeOf(v) == n.outputs[0];
      };
      sums[i] = n.op->name == "add" && alone && n.outputs[0].elements() > 1 && made_for_it(n.inputs[0]) &&
                made_for_it(n.inputs[1]);
    }
    return sums;
  }

  // The units in an order in which all their operands are known. Kahn's algorithm, the earliest first, keeps the order
  // of the trace where it can. With `early`, an update of the store runs as soon as its old value has been read by all,
  // so that its gradient's memory is free again; where readers wait for the update, it does not wait for them. Updates
  // that stay apart come after all else, side by side.
  std::vector<int32_t> Order(bool early) {
    struct Edges {
      std::vector<std::vector<int32_t>> to;
      std::vector<int32_t> waiting;
      explicit Edges(int32_t n) : to(n), waiting(n, 0) {}
      void Add(int32_t first, int32_t then) {
        if (first == then) return;
        to[first].push_back(then);
        ++waiting[then];
      }
    };
    Edges needs(count_), reads(count_);
    std::vector<char> first(count_, 0);  // what updates wait for, and they themselves
    std::vector<char> late(count_, 0);   // updates that stay apart
    const std::vector<char> sums = LastSums();
    for (int32_t i = 0; i < count_; ++i) {
      const Node& n = graph_.nodes[i];
      for (Value v : n.inputs) needs.Add(Unit(v.node), Unit(i));
      if (before_[i] >= 0) needs.Add(before_[i], i);
      const bool number = n.op->name == "broadcast_to" && graph_.TypeOf(n.inputs[0]).elements() == 1;
      if (n.op->name == "input" || n.op->view || number || n.outputs[0].elements() == 1) first[Unit(i)] = 1;
    }
    for (int32_t i = 0; i < count_; ++i) {
      if (updates_apart_ && updates_[i] != 0) late[Unit(i)] = 1;
    }
    for (const GraphOutput& o : graph_.outputs) {
      if (o.updates.empty() || !early) continue;
      const int32_t update = Unit(o.value.node);
      if (!updates_apart_) first[update] = 1;
      for (int32_t r : MemoryReaders(graph_.FindInput(o.updates))) reads.Add(Unit(r), update);
    }
    using Turn = std::pair<int32_t, int32_t>;  // those that go first, then by place in the trace
    std::priority_queue<Turn, std::vector<Turn>, std::greater<Turn>> ready;
    std::vector<char> queued(count_, 0);
    const auto enqueue = [&](int32_t u) {
      if (queued[u]) return;
      queued[u] = 1;
      const bool at_end =
          late[u] && std::all_of(needs.to[u].begin(), needs.to[u].end(), [&late](int32_t r) { return late[r] != 0; });
      ready.emplace(at_end ? 2 : sums[u] || (early && first[u]) ? 0 : 1, u);
    };
    const auto enqueue_free = [&](int32_t u) {
      if (needs.waiting[u] == 0 && reads.waiting[u] == 0) enqueue(u);
    };
    std::vector<int32_t> units, order;
    for (int32_t i = 0; i < count_; ++i) {
      if (Unit(i) == i) units.push_back(i);
    }
    for (int32_t u : units) enqueue_free(u);
    while (order.size() < units.size()) {
      if (ready.empty()) {  // an update that readers of its old value wait for
        const auto next =
            std::find_if(units.begin(), units.end(), [&](int32_t u) { return needs.waiting[u] == 0 && !queued[u]; });
        if (next == units.end()) break;  // a circle of operands: a bug that Verify reports
        enqueue(*next);
      }
      const int32_t u = ready.top().second;
      ready.pop();
      order.push_back(u);
      for (Edges* edges : {&needs, &reads}) {
        for (int32_t r : edges->to[u]) {
          --edges->waiting[r];
          enqueue_free(r);
        }
      }
    }
    return order;
  }

  Graph Emit() {
    // Gradients that travel between ranks are gathered in buckets: there updates come after all of them.
    const bool early = std::none_of(graph_.nodes.begin(), graph_.nodes.end(),
                                    [](const Node& n) { return n.op->side_effect && n.attrs.Has("group"); });
    Rewriter rewriter(graph_);
    for (int32_t u : Order(early)) {
      if (group_[u] >= 0)
        EmitGroup(rewriter, members_[group_[u]]);
      else
        rewriter.Copy(u);
    }
    return EliminateDeadNodes(rewriter.Finish());
  }

  // The program of a group, as its nodes are taken in one after the other.
  struct Fused {
    ScalarProgram program;
    std::vector<Value> inputs;
    absl::flat_hash_map<Value, int32_t> at;  // a graph value's place in the program
    bool round = false;                      // numbers are f32
  };

  // Instructions that are there already are not computed again; numbers are what the arithmetic makes of them, so that
  // a formula's 0.7071067811865476 is a graph's f32 constant.
  static int32_t Append(Fused& fused, ScalarInstr instr) {
    if (instr.op == ScalarOp::kConst && fused.round)
      instr.constant = static_cast<double>(static_cast<float>(instr.constant));
    std::vector<ScalarInstr>& code = fused.program.code;
    const auto same = std::find(code.begin(), code.end(), instr);
    const auto at = static_cast<int32_t>(same - code.begin());
    if (same == code.end()) code.push_back(instr);
    return at;
  }

  int32_t OperandOf(Fused& fused, const std::vector<int32_t>& members, Value v) const {
    if (const auto it = fused.at.find(v); it != fused.at.end()) return it->second;
    ScalarInstr instr;
    if (const auto number = SplatOf(v)) {
      instr.constant = *number;
      return Append(fused, instr);
    }
    const Value source = ThroughBroadcast(v);
    if (const auto it = fused.at.find(source);
        it != fused.at.end() && !std::binary_search(members.begin(), members.end(), source.node))
      return it->second;
    instr.op = ScalarOp::kInput;
    instr.args[0] = static_cast<int32_t>(fused.inputs.size());
    fused.inputs.push_back(source);
    return fused.at[source] = Append(fused, instr);
  }

  void TakeIn(Fused& fused, const std::vector<int32_t>& members, int32_t member) const {
    const Node& n = graph_.nodes[member];
    std::vector<int32_t> args;
    for (Value v : n.inputs) args.push_back(OperandOf(fused, members, v));
    const auto formula = FormulaProgram(*n.op, n.attrs);  // has parsed before, when the operator was checked
    std::vector<int32_t> local;
    for (ScalarInstr instr : formula->code) {
      if (instr.op == ScalarOp::kInput) {
        local.push_back(args[instr.args[0]]);
        continue;
      }
      for (int k = 0; k < Arity(instr.op); ++k) instr.args[k] = local[instr.args[k]];
      local.push_back(Append(fused, instr));
    }
    int32_t result = local[formula->results[0]];
    // As a value in memory, where a cast to bool makes it 0 or 1.
    if (n.op->name == "cast" && n.outputs[0].dtype == DType::kBool &&
        graph_.TypeOf(n.inputs[0]).dtype != DType::kBool) {
      ScalarInstr is_true;
      is_true.op = ScalarOp::kNotEqual;
      is_true.args[0] = result;
      is_true.args[1] = Append(fused, ScalarInstr());
      result = Append(fused, is_true);
    }
    fused.at[{member, 0}] = result;
  }

  bool IsReadOutside(const std::vector<int32_t>& members, int32_t member) {
    for (const GraphOutput& o : graph_.outputs) {
      if (o.value.node == member) return true;
    }
    const std::vector<int32_t>& readers = Readers(member);
    return std::any_of(readers.begin(), readers.end(),
                       [&](int32_t r) { return !std::binary_search(members.begin(), members.end(), r); });
  }

  // Whether the program is computed in the arithmetic of its members. A node's is that of its inputs and outputs
  // (ElementwiseComputeType), and a chain may begin and end with other types than it has inside: from integers through
  // f32 to truth values, or from f32 through f64 to f32.
  bool KeepsArithmetic(const Fused& fused, const std::vector<int32_t>& members,
                       const std::vector<int32_t>& escaping) const {
    std::vector<TensorView> inputs, outputs;
    for (Value v : fused.inputs) inputs.push_back({graph_.TypeOf(v), nullptr});
    for (int32_t m : escaping) outputs.push_back({graph_.nodes[m].outputs[0], nullptr});
    const DType computed = ElementwiseComputeType(inputs, outputs);
    return std::all_of(members.begin(), members.end(), [&](int32_t m) {
      if (IsF64(m)) return computed == DType::kF64;
      return !HasFloat(m) || computed == DType::kF32;
    });
  }

  // The node of a program. `escaping`: the members that are its outputs.
  Node NodeOf(const Fused& fused, const std::vector<int32_t>& members, const std::vector<int32_t>& escaping) const {
    const Node& last = graph_.nodes[members.back()];
    const Shape& shape = last.outputs[0].shape;
    Node node;
    node.op = Operators().Find("fused");
    node.location = last.location;
    node.region = last.region;
    for (int32_t m : members) {
      if (std::find(escaping.begin(), escaping.end(), m) != escaping.end()) continue;  // an output is the gradient
      for (GradientMark& mark : GradientMarksOf(graph_.nodes[m])) {
        mark.place = fused.at.at(Value{m, 0});
        mark.inside = true;
        MarkGradient(mark, &node);
      }
    }
    std::vector<std::string> dtypes;
    for (int32_t m : escaping) dtypes.push_back(Name(graph_.nodes[m].outputs[0].dtype));
    node.attrs.Set("program", ToString(fused.program))
        .Set("shape", std::vector<int64_t>(shape.begin(), shape.end()))
        .Set("dtypes", absl::StrJoin(dtypes, ","));
    return node;
  }

  void EmitGroup(Rewriter& rewriter, const std::vector<int32_t>& members) {
    Fused fused;
    fused.round = InFloats(members[0]) && !IsF64(members[0]);
    for (int32_t m : members) TakeIn(fused, members, m);
    std::vector<int32_t> escaping;
    for (int32_t m : members) {
      if (!IsReadOutside(members, m)) continue;
      escaping.push_back(m);
      fused.program.results.push_back(fused.at[{m, 0}]);
    }
    if (escaping.empty()) return;  // dead
    fused.program.num_inputs = static_cast<int32_t>(fused.inputs.size());
    // Where all are constants, a broadcast number does as well.
    const bool keeps = KeepsArithmetic(fused, members, escaping);
    if (fused.inputs.empty() || (members.size() == 1 && !keeps)) {
      for (int32_t m : members) rewriter.Copy(m);
      return;
    }
    if (!keeps) {
      EmitWithoutEnds(rewriter, members);
      return;
    }
    const Node node = NodeOf(fused, members, escaping);
    std::vector<Value> mapped;
    for (Value v : fused.inputs) mapped.push_back(rewriter.Map(v));
    const std::vector<Value> out = rewriter.to().Clone(node, mapped);
    for (size_t o = 0; o < out.size() && o < escaping.size(); ++o) rewriter.Replace({escaping[o], 0}, out[o]);
  }

  // The members that no other one reads stay apart: the others' results then have the types of the arithmetic.
  void EmitWithoutEnds(Rewriter& rewriter, const std::vector<int32_t>& members) {
    std::vector<int32_t> others, ends;
    for (int32_t m : members) {
      const std::vector<int32_t>& readers = Readers(m);
      const bool read = std::any_of(readers.begin(), readers.end(),
                                    [&](int32_t r) { return std::binary_search(members.begin(), members.end(), r); });
      (read ? others : ends).push_back(m);
    }
    if (!others.empty()) EmitGroup(rewriter, others);
    for (int32_t m : ends) EmitGroup(rewriter, {m});
  }

  const std::vector<int32_t>& Readers(int32_t node) {
    if (readers_.empty()) {
      readers_.resize(count_);
      for (int32_t i = 0; i < count_; ++i) {
        for (Value v : graph_.nodes[i].inputs) readers_[v.node].push_back(i);
      }
    }
    return readers_[node];
  }

  const Graph& graph_;
  const bool updates_apart_;
  const int32_t count_;
  std::vector<int32_t> group_;             // of a node; -1: none
  std::vector<int32_t> before_;            // of a node with a side effect, the one before it: they keep their order
  std::vector<int32_t> rounds_;            // of a cast that is a rounding: the cast before it; else -1
  std::vector<char> updates_;              // whether a node makes what the store gets, or is a view of it
  int32_t seen_ = 0;                       // the node being looked at
  std::vector<int32_t> number_, subtree_;  // MakeTree
  absl::flat_hash_map<int32_t, std::vector<int32_t>> members_;  // sorted
  absl::flat_hash_map<Value, int32_t> reader_;                  // the last fusible reader of a value
  std::vector<std::vector<int32_t>> readers_;
};

}  // namespace

Graph FuseElementwise(const Graph& graph) { return Fuser(graph, false).Run(); }
Graph FuseForDevice(const Graph& graph) { return Fuser(graph, true).Run(); }

}  // namespace mslua
