#include "core/runtime/memory_plan.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace mslua {
namespace {

constexpr int64_t kAlignment = 64;
int64_t Aligned(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

// A piece of the arena and the nodes during which it is taken.
struct Interval {
  int32_t first, last;
  int64_t bytes;
  int64_t offset = 0;
};

// Offsets by decreasing size, each at the lowest place that is free while it lives.
int64_t Pack(std::vector<Interval*>& intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval* a, const Interval* b) {
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->first < b->first;
  });
  std::vector<Interval*> placed;  // by offset
  int64_t total = 0;
  for (Interval* i : intervals) {
    int64_t at = 0;
    for (const Interval* p : placed) {
      if (p->last < i->first || i->last < p->first) continue;
      if (p->offset - at >= i->bytes) break;
      at = std::max(at, p->offset + p->bytes);
    }
    i->offset = at;
    total = std::max(total, at + i->bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [](const Interval* a, const Interval* b) { return a->offset < b->offset; }),
                  i);
  }
  return total;
}

class Planner {
 public:
  Planner(const Graph& graph, const std::vector<int64_t>& scratch_bytes)
      : graph_(graph), scratch_bytes_(scratch_bytes) {}

  MemoryPlan Run() {
    const int32_t count = static_cast<int32_t>(graph_.nodes.size());
    plan_.values.resize(count);
    plan_.scratch.assign(count, -1);
    root_.resize(count);
    FindRoots();
    FindLastUses();
    PlaceUpdates();
    PlaceValues();
    return std::move(plan_);
  }

 private:
  // Views share the memory of what they look at.
  Value Root(Value v) const { return root_[v.node][v.output]; }

  void FindRoots() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      plan_.values[i].resize(n.outputs.size());
      for (size_t o = 0; o < n.outputs.size(); ++o) {
        root_[i].push_back(n.op->view ? Root(n.inputs[0]) : Value{static_cast<int32_t>(i), static_cast<int32_t>(o)});
      }
    }
  }

  void FindLastUses() {
    const int32_t end = static_cast<int32_t>(graph_.nodes.size());
    last_.resize(end);
    for (int32_t i = 0; i < end; ++i) last_[i].assign(graph_.nodes[i].outputs.size(), i);
    for (int32_t i = 0; i < end; ++i) {
      for (Value v : graph_.nodes[i].inputs) Last(Root(v)) = std::max(Last(Root(v)), i);
    }
    for (const GraphOutput& o : graph_.outputs) {
      if (o.updates.empty()) Last(Root(o.value)) = end;
    }
  }
  int32_t& Last(Value v) { return last_[v.node][v.output]; }

  static bool IsInput(const Node& n) { return n.op->name == "input"; }

  bool MayOverwrite(const Node& n, int output, int input) const {
    if (n.op->elementwise) return n.outputs[output] == graph_.TypeOf(n.inputs[input]);
    return std::find(n.op->in_place.begin(), n.op->in_place.end(), std::make_pair(output, input)) !=
           n.op->in_place.end();
  }

  bool ReadsOnce(const Node& n, Value root) const {
    return std::count_if(n.inputs.begin(), n.inputs.end(), [&](Value v) { return Root(v) == root; }) == 1;
  }

  // An update is written straight into the store when nobody reads the old value after (or, unless the operator may
  // work in place, while) it is made.
  void PlaceUpdates() {
    std::vector<bool> claimed(graph_.nodes.size(), false);
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      const GraphOutput& o = graph_.outputs[k];
      if (o.updates.empty()) continue;
      const int32_t input = graph_.FindInput(o.updates);
      const Value v = Root(o.value);
      const Node& n = graph_.nodes[v.node];
      bool direct = !IsInput(n) && n.op->name != "constant" &&
                    plan_.values[v.node][v.output].kind == Placement::kArena && !claimed[input];
      const int32_t last = Last({input, 0});
      if (last > v.node) direct = false;
      if (last == v.node) {
        for (size_t i = 0; i < n.inputs.size(); ++i) {
          if (Root(n.inputs[i]).node == input &&
              (n.inputs[i].node != input || !MayOverwrite(n, v.output, static_cast<int>(i))))
            direct = false;
        }
      }
      if (direct) {
        plan_.values[v.node][v.output] = {Placement::kStore, 0, input};
        claimed[input] = true;
        plan_.in_place += last == v.node;
      } else if (v != Value{input, 0}) {
        plan_.copies.push_back(static_cast<int>(k));
        Last(v) = static_cast<int32_t>(graph_.nodes.size());
      }
    }
  }

  void PlaceValues() {
    std::vector<std::unique_ptr<Interval>> intervals;
    std::vector<std::vector<Interval*>> of(graph_.nodes.size());
    std::vector<Interval*> scratch(graph_.nodes.size(), nullptr);
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes.size()); ++i) {
      const Node& n = graph_.nodes[i];
      of[i].assign(n.outputs.size(), nullptr);
      for (int o = 0; o < static_cast<int>(n.outputs.size()); ++o) {
        Placement& p = plan_.values[i][o];
        const Value v{i, o};
        if (Root(v) != v || p.kind == Placement::kStore) continue;
        const int64_t bytes = Aligned(std::max<int64_t>(n.outputs[o].bytes(), 1));
        if (IsInput(n)) {
          const std::string& kind = n.attrs.Str("kind");
          p.kind = kind == kData ? Placement::kExternal : kind == kScalar ? Placement::kScalar : Placement::kStore;
          p.input = i;
          continue;
        }
        if (n.op->name == "constant") {
          p = {Placement::kConstant, plan_.constant_bytes, -1};
          plan_.constant_bytes += bytes;
          continue;
        }
        plan_.sum_of_value_bytes += bytes;
        Interval* reused = nullptr;
        for (size_t k = 0; k < n.inputs.size() && reused == nullptr; ++k) {
          const Value source = Root(n.inputs[k]);
          Interval* candidate = of[source.node].empty() ? nullptr : of[source.node][source.output];
          if (candidate == nullptr || candidate->last != i || candidate->bytes != bytes) continue;
          if (std::find(of[i].begin(), of[i].end(), candidate) != of[i].end()) continue;  // another output has it
          if (MayOverwrite(n, o, static_cast<int>(k)) && (n.op->elementwise || ReadsOnce(n, source)))
            reused = candidate;
        }
        if (reused != nullptr) {
          reused->last = Last(v);
          of[i][o] = reused;
          ++plan_.in_place;
          continue;
        }
        intervals.push_back(std::make_unique<Interval>(Interval{i, Last(v), bytes}));
        of[i][o] = intervals.back().get();
      }
      if (scratch_bytes_[i] > 0) {
        intervals.push_back(std::make_unique<Interval>(Interval{i, i, Aligned(scratch_bytes_[i])}));
        scratch[i] = intervals.back().get();
      }
    }
    std::vector<Interval*> all;
    for (const auto& i : intervals) all.push_back(i.get());
    plan_.workspace_bytes = Pack(all);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (size_t o = 0; o < of[i].size(); ++o) {
        if (of[i][o] != nullptr) plan_.values[i][o].offset = of[i][o]->offset;
      }
      if (scratch[i] != nullptr) plan_.scratch[i] = scratch[i]->offset;
      for (size_t o = 0; o < plan_.values[i].size(); ++o) {
        const Value root = root_[i][o];
        plan_.values[i][o] = plan_.values[root.node][root.output];
      }
    }
  }

  const Graph& graph_;
  const std::vector<int64_t>& scratch_bytes_;
  MemoryPlan plan_;
  std::vector<std::vector<Value>> root_;
  std::vector<std::vector<int32_t>> last_;
};

}  // namespace

MemoryPlan PlanMemory(const Graph& graph, const std::vector<int64_t>& scratch_bytes) {
  return Planner(graph, scratch_bytes).Run();
}

}  // namespace mslua
