#include "core/runtime/memory_plan.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/round_up.h"
#include "core/graph/collective_node.h"
#include "core/op/rank_call.h"

namespace mslua {
namespace {

constexpr int64_t kAlignment = 64;
int64_t Aligned(int64_t n) { return RoundUp(n, kAlignment); }

// A piece of the arena and the nodes during which it is taken.
struct Interval {
  int32_t first, last;
  int64_t bytes;
  int64_t offset = 0;
  bool shared = false;  // with other ranks
  bool read = false;    // by the host, after the program
  bool bucket = false;  // of several values
};

// Where a value lies in its interval; interval null: it has none.
struct Slot {
  Interval* interval = nullptr;
  int64_t delta = 0;
};

bool StartsBucket(const Node& n) { return RankCallOf(*n.op) == RankCall::kStartAllReduce; }
// Whether result `o` of a node is one of the bucket that the node waits for.
bool EndsBucket(const Graph& graph, const Node& n, size_t o) {
  return RankCallOf(*n.op) == RankCall::kEndAllReduce && StartsBucket(graph.nodes[n.inputs[o].node]);
}

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
  Planner(const Graph& graph, const std::vector<int64_t>& scratch_bytes, bool share, int64_t guard, int64_t apart_bytes)
      : graph_(graph), scratch_bytes_(scratch_bytes), share_(share), guard_(guard), apart_bytes_(apart_bytes) {}

  MemoryPlan Run() {
    const int32_t count = static_cast<int32_t>(graph_.nodes.size());
    plan_.values.resize(count);
    plan_.scratch.assign(count, -1);
    root_.resize(count);
    FindRoots();
    FindLastUses();
    PlaceUpdates();
    PlaceValues();
    FindKept();
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
        const Value own{static_cast<int32_t>(i), static_cast<int32_t>(o)};
        root_[i].push_back(n.op->view ? Root(n.inputs[0]) : EndsBucket(graph_, n, o) ? Root(n.inputs[o]) : own);
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
    // An input that becomes another's new value is read at the end of the step.
    for (const GraphOutput& o : graph_.outputs) {
      if (o.updates.empty()) continue;
      const Value v = Root(o.value);
      if (IsInput(graph_.nodes[v.node]) && v.node != graph_.FindInput(o.updates))
        Last(v) = static_cast<int32_t>(graph_.nodes.size());
    }
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      const GraphOutput& o = graph_.outputs[k];
      if (o.updates.empty()) continue;
      const int32_t input = graph_.FindInput(o.updates);
      const Value v = Root(o.value);
      const Node& n = graph_.nodes[v.node];
      bool direct = !IsInput(n) && n.op->name != "constant" && !StartsBucket(n) &&
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
        plan_.values[v.node][v.output] = {Placement::kStore, 0, input, true};
        claimed[input] = true;
        plan_.in_place += last == v.node;
      } else if (v != Value{input, 0}) {
        plan_.copies.push_back(static_cast<int>(k));
        Last(v) = static_cast<int32_t>(graph_.nodes.size());
      }
    }
  }

  void FindKept() {
    std::vector<bool> replaced(graph_.nodes.size(), false);
    for (const GraphOutput& o : graph_.outputs) {
      if (o.updates.empty()) continue;
      const int32_t input = graph_.FindInput(o.updates);
      if (Root(o.value) != Value{input, 0}) replaced[input] = true;
    }
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      const GraphOutput& o = graph_.outputs[k];
      if (o.updates.empty() && replaced[Root(o.value).node]) plan_.kept.push_back(static_cast<int>(k));
    }
  }

  void PlaceValues() {
    const auto count = static_cast<int32_t>(graph_.nodes.size());
    slots_.resize(graph_.nodes.size());
    for (int32_t i = 0; i < count; ++i) slots_[i].resize(graph_.nodes[i].outputs.size());
    for (int32_t i = 0; i < count; ++i) {
      if (StartsBucket(graph_.nodes[i])) PlaceBucket(i);
    }
    std::vector<Interval*> scratch(graph_.nodes.size(), nullptr);
    for (int32_t i = 0; i < count; ++i) {
      for (int32_t o = 0; o < static_cast<int32_t>(graph_.nodes[i].outputs.size()); ++o) PlaceValue({i, o});
      if (scratch_bytes_[i] > 0) scratch[i] = Take(i, i, Aligned(scratch_bytes_[i]));
      plan_.sum_of_value_bytes += Aligned(scratch_bytes_[i]);
    }
    FindRead();
    if (share_) ShareCollectives();
    std::vector<Interval*> own, shared, apart;
    for (const auto& i : intervals_) (i->shared ? shared : IsApart(*i) ? apart : own).push_back(i.get());
    if (guard_ > 0) {
      for (const Node& n : graph_.nodes) plan_.guards.emplace_back(n.outputs.size(), -1);
    }
    plan_.workspace_bytes = Pack(own);
    plan_.shared_bytes = Pack(shared);
    plan_.output_bytes = Pack(apart);
    for (int32_t i = 0; i < count; ++i) {
      for (size_t o = 0; o < slots_[i].size(); ++o) {
        const Slot& slot = slots_[i][o];
        if (slot.interval == nullptr) continue;
        plan_.values[i][o].kind = slot.interval->shared     ? Placement::kShared
                                  : IsApart(*slot.interval) ? Placement::kOutput
                                                            : Placement::kArena;
        plan_.values[i][o].offset = slot.interval->offset + slot.delta;
        if (guard_ > 0 && !slot.interval->bucket)
          plan_.guards[i][o] = plan_.values[i][o].offset + graph_.nodes[i].outputs[o].bytes();
      }
      if (scratch[i] != nullptr) plan_.scratch[i] = scratch[i]->offset;
      for (size_t o = 0; o < plan_.values[i].size(); ++o) {
        const Value root = root_[i][o];
        plan_.values[i][o] = plan_.values[root.node][root.output];
      }
    }
  }

  Interval* Take(int32_t first, int32_t last, int64_t bytes) {
    intervals_.push_back(std::make_unique<Interval>(Interval{first, last, bytes + guard_}));
    return intervals_.back().get();
  }
  Slot& SlotOf(Value v) { return slots_[v.node][v.output]; }

  // One piece for all results of a bucket. An operand that nobody needs afterwards is made in it from the start.
  void PlaceBucket(int32_t start) {
    const Node& n = graph_.nodes[start];
    int64_t bytes = 0;
    for (const TensorType& t : n.outputs) bytes += BucketStride(t);
    Interval* const bucket = Take(start, start, bytes);
    bucket->bucket = true;
    int64_t delta = 0;
    for (int32_t k = 0; k < static_cast<int32_t>(n.outputs.size()); ++k) {
      SlotOf({start, k}) = {bucket, delta};
      bucket->last = std::max(bucket->last, Last({start, k}));
      plan_.sum_of_value_bytes += BucketStride(n.outputs[k]);
      const Value source = Root(n.inputs[k]);
      const Node& maker = graph_.nodes[source.node];
      const bool made = !IsInput(maker) && maker.op->name != "constant" &&
                        plan_.values[source.node][source.output].kind == Placement::kArena;
      if (made && SlotOf(source).interval == nullptr && Last(source) == start && ReadsOnce(n, source)) {
        SlotOf(source) = {bucket, delta};
        bucket->first = std::min(bucket->first, source.node);
        ++plan_.in_place;
      }
      delta += BucketStride(n.outputs[k]);
    }
  }

  void PlaceValue(Value v) {
    const Node& n = graph_.nodes[v.node];
    Placement& p = plan_.values[v.node][v.output];
    if (Root(v) != v || p.kind == Placement::kStore || SlotOf(v).interval != nullptr) return;
    const int64_t bytes = Aligned(std::max<int64_t>(n.outputs[v.output].bytes(), 1));
    if (IsInput(n)) {
      const std::string& kind = n.attrs.Str("kind");
      p.kind = kind == kData ? Placement::kExternal : kind == kScalar ? Placement::kScalar : Placement::kStore;
      p.input = v.node;
      return;
    }
    if (n.op->name == "constant") {
      p = {Placement::kConstant, plan_.constant_bytes, -1};
      plan_.constant_bytes += bytes;
      return;
    }
    plan_.sum_of_value_bytes += bytes;
    Interval* const reused = Reusable(v, bytes);
    if (reused == nullptr) {
      SlotOf(v).interval = Take(v.node, Last(v), bytes);
      return;
    }
    reused->last = Last(v);
    SlotOf(v).interval = reused;
    ++plan_.in_place;
  }

  // The piece of an operand that the node may write `v` over; null: none.
  Interval* Reusable(Value v, int64_t bytes) {
    const Node& n = graph_.nodes[v.node];
    const std::vector<Slot>& taken = slots_[v.node];
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const Value source = Root(n.inputs[k]);
      Interval* const candidate = SlotOf(source).interval;
      if (candidate == nullptr || candidate->bucket || candidate->last != v.node || candidate->bytes != bytes + guard_)
        continue;
      const auto has = [&](const Slot& s) { return s.interval == candidate; };
      if (std::any_of(taken.begin(), taken.end(), has)) continue;  // another output has it
      if (MayOverwrite(n, v.output, static_cast<int>(k)) && (n.op->elementwise || ReadsOnce(n, source)))
        return candidate;
    }
    return nullptr;
  }

  void FindRead() {
    for (const GraphOutput& o : graph_.outputs) {
      Interval* const interval = SlotOf(Root(o.value)).interval;
      if (o.updates.empty() && interval != nullptr) interval->read = true;
    }
  }
  bool IsApart(const Interval& i) const { return i.read && i.bytes - guard_ <= apart_bytes_; }

  // Ranks read one another's operands and results in place.
  void ShareCollectives() {
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes.size()); ++i) {
      const Node& n = graph_.nodes[i];
      if (!IsCollective(n)) continue;
      for (Value v : n.inputs) Share(Root(v));
      for (int32_t o = 0; o < static_cast<int32_t>(n.outputs.size()); ++o) Share(Root({i, o}));
    }
  }
  void Share(Value root) {
    Interval* const interval = SlotOf(root).interval;
    if (interval != nullptr) interval->shared = !interval->read;
  }

  const Graph& graph_;
  const std::vector<int64_t>& scratch_bytes_;
  const bool share_;
  const int64_t guard_, apart_bytes_;
  MemoryPlan plan_;
  std::vector<std::unique_ptr<Interval>> intervals_;
  std::vector<std::vector<Slot>> slots_;  // of each value
  std::vector<std::vector<Value>> root_;
  std::vector<std::vector<int32_t>> last_;
};

}  // namespace

int64_t BucketStride(const TensorType& type) { return Aligned(std::max<int64_t>(type.bytes(), 1)); }

MemoryPlan PlanMemory(const Graph& graph, const std::vector<int64_t>& scratch_bytes, bool share, int64_t guard,
                      int64_t apart_bytes) {
  return Planner(graph, scratch_bytes, share, guard, apart_bytes).Run();
}

}  // namespace mslua
