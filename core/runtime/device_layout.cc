#include "core/runtime/device_layout.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "collectives/nccl/nccl.h"
#include "core/base/round_up.h"
#include "core/graph/collective_node.h"
#include "core/kernels/cuda/library_kernel.h"
#include "core/op/device_form.h"
#include "core/op/rank_call.h"
#include "core/runtime/collective_kernel.h"
#include "core/runtime/placed_graph.h"

namespace mslua {
namespace {

constexpr int64_t kAlignment = 256;
// Inputs up to this size are copied when their step begins, outputs when it ends.
constexpr int64_t kSmall = 4096;

int64_t Aligned(int64_t bytes) { return RoundUp(bytes, kAlignment); }

bool IsData(const Node& n) { return n.attrs.Str("kind") == kData; }

// By node, what updates of the store compute that one kernel can make together: equal texts are one rule.
absl::flat_hash_map<int32_t, std::string> RulesOf(const Graph& graph) {
  absl::flat_hash_map<int32_t, std::string> rules;
  for (const GraphOutput& o : graph.outputs) {
    Value v = o.value;
    while (graph.nodes[v.node].op->view) v = graph.nodes[v.node].inputs[0];
    const Node& n = graph.nodes[v.node];
    if (o.updates.empty() || n.op->name != "fused" || n.outputs[0].elements() == 0) continue;
    std::string rule = absl::StrCat(n.attrs.Str("program"), " ", n.attrs.Str("dtypes"));
    bool fits = true;
    for (Value x : n.inputs) {
      const TensorType& t = graph.TypeOf(x);
      const bool dense = t.shape == n.outputs[0].shape;
      fits = fits && (dense || t.elements() == 1);
      absl::StrAppend(&rule, " ", Name(t.dtype), dense ? "" : " number");
    }
    if (fits) rules.emplace(v.node, std::move(rule));
  }
  return rules;
}

// Bytes of a node in the tables of updates.
int64_t PieceBytes(const Node& n) {
  return static_cast<int64_t>(sizeof(int64_t) + (n.inputs.size() + n.outputs.size()) * sizeof(void*));
}
int64_t PartsOf(const Node& n) { return CeilDiv(n.outputs[0].elements(), kDevicePart); }

}  // namespace

OpSpec SpecOf(const Graph& graph, int32_t node, std::vector<TensorType>* inputs) {
  const Node& n = graph.nodes[node];
  inputs->clear();
  for (Value v : n.inputs) inputs->push_back(graph.TypeOf(v));
  return {n.attrs, *inputs, absl::MakeConstSpan(n.outputs.data(), n.outputs.size())};
}

absl::optional<MatmulShape> ProductOf(const Node& n, const OpSpec& spec) {
  if (n.op->name != "matmul" || !IsFloat(spec.outputs[0].dtype)) return {};
  MatmulShape s;
  const Shape &y = spec.outputs[0].shape, &a = spec.inputs[0].shape;
  const size_t rank = y.size();
  s.type = spec.outputs[0].dtype;
  s.transpose_a = n.attrs.Bool("transpose_a");
  s.transpose_b = n.attrs.Bool("transpose_b");
  s.m = y[rank - 2];
  s.n = y[rank - 1];
  s.k = a[rank - (s.transpose_a ? 2 : 1)];
  s.batch = NumElements(absl::MakeConstSpan(y).subspan(0, rank - 2));
  if (s.batch == 0 || s.m == 0 || s.n == 0 || s.k == 0) return {};
  return s;
}

bool RunsOverNccl(const Graph& graph, const Node& node) {
  switch (RankCallOf(*node.op)) {
    case RankCall::kEndAllReduce:
      return RunsOverNccl(graph, graph.nodes[node.inputs[0].node]);
    case RankCall::kStartAllReduce:
    case RankCall::kAllReduce:
    case RankCall::kReduce:
    case RankCall::kBroadcast:
    case RankCall::kAllGather:
    case RankCall::kReduceScatter:
    case RankCall::kAllToAll:
      return NcclDoes(CallOf(graph, node));
    default:
      return false;
  }
}

std::pair<int64_t, int64_t> BlocksOf(const Graph& graph, const Node& node) {
  if (!MovesBlocks(node)) return {0, 0};
  const auto [in, out] = SplitsOf(graph, node);
  return {in.dense() ? 0 : Aligned(in.bytes()), out.dense() ? 0 : Aligned(out.bytes())};
}

std::vector<int32_t> FaultsOf(const Graph& graph) {
  std::vector<int32_t> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op->device_fault) nodes.push_back(static_cast<int32_t>(i));
  }
  return nodes;
}

DeviceLayout LayOut(const Graph& graph, const std::vector<int64_t>& scratch, int64_t guard) {
  DeviceLayout layout;
  layout.plan = PlanMemory(graph, scratch, false, guard);
  layout.scratch_bytes = scratch;
  layout.bytes = Aligned(layout.plan.workspace_bytes);
  const auto take = [&layout](int64_t size) {
    const int64_t at = layout.bytes;
    layout.bytes += Aligned(size);
    return at;
  };
  layout.constants = take(layout.plan.constant_bytes);
  const std::vector<int32_t> inputs = graph.Inputs();
  layout.scalars = take(static_cast<int64_t>(inputs.size()) * kScalarStride);
  for (int32_t i : inputs) {
    DeviceLayout::Input input;
    const int64_t bytes = graph.nodes[i].outputs[0].bytes();
    if (IsData(graph.nodes[i])) {
      input.place = take(bytes);
      if (bytes > kSmall) input.stages = {take(bytes), take(bytes)};
    }
    layout.inputs.push_back(input);
  }
  layout.outbox_bytes = static_cast<int64_t>(FaultsOf(graph).size() * sizeof(DeviceFault));
  for (size_t k = 0; k < graph.outputs.size(); ++k) {
    const GraphOutput& o = graph.outputs[k];
    const int64_t bytes = graph.TypeOf(o.value).bytes();
    layout.posted.push_back(-1);
    if (o.updates.empty()) {
      const auto& kept = layout.plan.kept;
      if (bytes > kSmall && std::find(kept.begin(), kept.end(), static_cast<int>(k)) == kept.end()) continue;
      layout.posted[k] = RoundUp(layout.outbox_bytes, 64);
      layout.outbox_bytes = layout.posted[k] + bytes;
      continue;
    }
    const Placement& p = layout.plan.values[o.value.node][o.value.output];
    if (p.kind == Placement::kStore && p.input == graph.FindInput(o.updates)) continue;
    DeviceLayout::Update update;
    update.output = static_cast<int>(k);
    if (p.kind == Placement::kStore) update.before = take(bytes);
    layout.updates.push_back(update);
  }
  layout.outbox = take(layout.outbox_bytes);
  if (guard == 0) {
    int64_t tables = 0;
    for (const auto& rule : RulesOf(graph)) {
      const Node& n = graph.nodes[rule.first];
      tables += PieceBytes(n) + PartsOf(n) * static_cast<int64_t>(sizeof(DevicePart));
    }
    layout.tables = take(tables);
  }
  layout.bytes = std::max(layout.bytes, kAlignment);
  return layout;
}

namespace {

// The works of a step and what they touch. Space 0 is the step's own memory, space 1 + i the store's tensor of node i.
class StepMaker {
 public:
  StepMaker(const Graph& graph, const DeviceLayout& layout, const std::vector<bool>& over_nccl)
      : graph_(graph), layout_(layout), over_nccl_(over_nccl), inputs_(graph.Inputs()) {
    for (size_t p = 0; p < inputs_.size(); ++p) position_[inputs_[p]] = static_cast<int32_t>(p);
  }

  DeviceSteps Make() {
    for (int32_t p = 0; p < static_cast<int32_t>(inputs_.size()); ++p) Input(p);
    Add(DeviceWork::kBegin, 0, Lane::kCompute);
    Touch(Own(layout_.scalars, static_cast<int64_t>(inputs_.size()) * kScalarStride, true));
    Touch(Own(layout_.outbox, layout_.outbox_bytes, true));
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes.size()); ++i) {
      if (IsPassive(graph_.nodes[i])) continue;
      if (over_nccl_[i])
        Collective(i);
      else
        OfNode(DeviceWork::kNode, i, Lane::kCompute);
    }
    End();
    if (layout_.tables >= 0) GatherUpdates();
    return std::move(steps_);
  }

 private:
  static MemoryRange Own(int64_t begin, int64_t bytes, bool written) {
    return {0, begin, begin + bytes, written, false};
  }
  void Touch(MemoryRange range) { steps_.touched.back().touched.push_back(range); }
  void Add(DeviceWork::Kind kind, int32_t of, Lane lane) {
    steps_.works.push_back({kind, of});
    steps_.touched.push_back({lane, {}});
  }

  void Input(int32_t position) {
    const DeviceLayout::Input& input = layout_.inputs[position];
    if (input.place < 0) return;
    const int64_t bytes = graph_.nodes[inputs_[position]].outputs[0].bytes();
    Add(DeviceWork::kInput, position, input.staged() ? Lane::kCopy : Lane::kCompute);
    if (!input.staged()) {
      Touch(Own(input.place, bytes, true));
      return;
    }
    MemoryRange stage = Own(input.stages[0], bytes, true);
    stage.turns = true;
    Touch(stage);
    Add(DeviceWork::kMove, position, Lane::kCompute);
    stage.written = false;
    Touch(stage);
    Touch(Own(input.place, bytes, true));
  }

  void TouchValue(Value v, bool written) {
    const Placement& p = layout_.plan.values[v.node][v.output];
    const int64_t bytes = graph_.TypeOf(v).bytes();
    switch (p.kind) {
      case Placement::kArena:
        return Touch(Own(p.offset, bytes, written));
      case Placement::kConstant:
        return Touch(Own(layout_.constants + p.offset, bytes, written));
      case Placement::kScalar:
        return Touch(Own(layout_.scalars + position_.at(p.input) * kScalarStride, kScalarStride, written));
      case Placement::kExternal:
        return Touch(Own(layout_.inputs[position_.at(p.input)].place, bytes, written));
      case Placement::kStore:
        return Touch({1 + p.input, 0, bytes, written, false});
      case Placement::kShared:
      case Placement::kOutput:
        return;  // not on a device
    }
  }
  void TouchScratch(int32_t node, bool written) {
    if (layout_.scratch_bytes[node] > 0) Touch(Own(layout_.plan.scratch[node], layout_.scratch_bytes[node], written));
  }
  void OfNode(DeviceWork::Kind kind, int32_t node, Lane lane) {
    const Node& n = graph_.nodes[node];
    Add(kind, node, lane);
    for (Value v : n.inputs) TouchValue(v, false);
    for (int o = 0; o < static_cast<int>(n.outputs.size()); ++o) TouchValue({node, o}, true);
    TouchScratch(node, true);
    if (n.op->device_fault) Touch(Own(layout_.outbox, layout_.outbox_bytes, true));
  }

  bool MovedApart(int32_t node, int k) const {
    const Value v = graph_.nodes[node].inputs[k];
    const Placement &from = layout_.plan.values[v.node][v.output], &to = layout_.plan.values[node][k];
    return from.kind != to.kind || from.offset != to.offset || from.input != to.input;
  }

  void Collective(int32_t node) {
    const Node& n = graph_.nodes[node];
    const RankCall call = RankCallOf(*n.op);
    const auto [in, out] = BlocksOf(graph_, n);
    if (call == RankCall::kEndAllReduce) {
      Add(DeviceWork::kUnpack, node, Lane::kCompute);
      for (int k = 0; k < static_cast<int>(n.inputs.size()); ++k) {
        if (!MovedApart(node, k)) continue;
        TouchValue(n.inputs[k], false);
        TouchValue({node, k}, true);
      }
      return;
    }
    const bool copies = call == RankCall::kStartAllReduce || call == RankCall::kBroadcast;
    if (copies || in > 0) {
      Add(DeviceWork::kPack, node, Lane::kCompute);
      for (int k = 0; k < static_cast<int>(n.inputs.size()); ++k) {
        if (copies && !MovedApart(node, k)) continue;
        TouchValue(n.inputs[k], false);
        if (copies) TouchValue({node, k}, true);
      }
      if (in > 0) TouchScratch(node, true);
    }
    Add(DeviceWork::kCall, node, Lane::kCommunication);
    // What was packed is read where it lies now.
    for (Value v : n.inputs) {
      if (!copies && in == 0) TouchValue(v, false);
    }
    for (int o = 0; o < static_cast<int>(n.outputs.size()) && out == 0; ++o) TouchValue({node, o}, true);
    TouchScratch(node, true);
    if (out == 0 && call != RankCall::kReduce) return;
    Add(DeviceWork::kUnpack, node, Lane::kCompute);
    TouchScratch(node, false);
    TouchValue({node, 0}, true);
  }

  void End() {
    Add(DeviceWork::kEnd, 0, Lane::kCompute);
    for (const DeviceLayout::Update& u : layout_.updates) {
      const GraphOutput& o = graph_.outputs[u.output];
      const int64_t bytes = graph_.TypeOf(o.value).bytes();
      TouchValue(o.value, false);
      if (u.before >= 0) Touch(Own(u.before, bytes, true));
      Touch({1 + graph_.FindInput(o.updates), 0, bytes, true, false});
    }
    for (const GraphOutput& o : graph_.outputs) {
      if (o.updates.empty()) TouchValue(o.value, false);
    }
    Touch(Own(layout_.outbox, layout_.outbox_bytes, true));
  }

  // Works [first, ..] that become one, in the place of the last, and what they touch.
  struct Gathered {
    std::vector<size_t> works;
    Work all;
  };
  // Whether work `w` may become one with those: nothing after the last of them touches what they touch, nor does it.
  bool Joins(const Gathered& g, size_t w) const {
    for (size_t v = g.works.back() + 1; v <= w; ++v) {
      if (Conflict(steps_.touched[v], g.all)) return false;
    }
    return true;
  }
  void GatherUpdates() {
    const absl::flat_hash_map<int32_t, std::string> rules = RulesOf(graph_);
    std::vector<Gathered> all;
    absl::flat_hash_map<std::string, size_t> open;  // of a rule, those that the next one may join
    for (size_t w = 0; w < steps_.works.size(); ++w) {
      const DeviceWork& work = steps_.works[w];
      const auto rule = work.kind == DeviceWork::kNode ? rules.find(work.of) : rules.end();
      if (rule == rules.end()) continue;
      const auto [at, fresh] = open.try_emplace(rule->second, all.size());
      if (fresh || !Joins(all[at->second], w)) {
        at->second = all.size();
        all.push_back({{w}, steps_.touched[w]});
        continue;
      }
      Gathered& g = all[at->second];
      g.works.push_back(w);
      const std::vector<MemoryRange>& more = steps_.touched[w].touched;
      g.all.touched.insert(g.all.touched.end(), more.begin(), more.end());
    }
    std::vector<bool> gone(steps_.works.size(), false);
    int64_t tables = layout_.tables;
    for (Gathered& g : all) {
      if (g.works.size() == 1) continue;
      const size_t last = g.works.back();
      DeviceUpdates updates;
      updates.pieces = tables;
      for (const size_t w : g.works) {
        gone[w] = w != last;
        const Node& n = graph_.nodes[steps_.works[w].of];
        updates.nodes.push_back(steps_.works[w].of);
        updates.blocks += PartsOf(n);
        tables += PieceBytes(n);
      }
      updates.parts = tables;
      tables += updates.blocks * static_cast<int64_t>(sizeof(DevicePart));
      steps_.works[last].kind = DeviceWork::kUpdates;
      steps_.touched[last] = std::move(g.all);
      steps_.touched[last].touched.push_back(Own(updates.pieces, tables - updates.pieces, false));
      steps_.updates.emplace(steps_.works[last].of, std::move(updates));
    }
    size_t kept = 0;
    for (size_t w = 0; w < gone.size(); ++w) {
      if (gone[w]) continue;
      steps_.works[kept] = steps_.works[w];
      if (kept != w) steps_.touched[kept] = std::move(steps_.touched[w]);
      ++kept;
    }
    steps_.works.resize(kept);
    steps_.touched.resize(kept);
  }

  const Graph& graph_;
  const DeviceLayout& layout_;
  const std::vector<bool>& over_nccl_;
  const std::vector<int32_t> inputs_;
  absl::flat_hash_map<int32_t, int32_t> position_;
  DeviceSteps steps_;
};

}  // namespace

StatusOr<DeviceSteps> StepsOf(const Graph& graph, const DeviceLayout& layout, const std::vector<bool>& over_nccl) {
  DeviceSteps steps = StepMaker(graph, layout, over_nccl).Make();
  steps.schedule = MakeSchedule(steps.touched);
  RETURN_IF_ERROR(VerifySchedule(steps.touched, steps.schedule));
  return steps;
}

StatusOr<DevicePlan> PlanOnDevice(const Graph& graph) {
  DevicePlan plan;
  std::vector<int64_t> scratch(graph.nodes.size(), 0);
  std::vector<bool> over_nccl(graph.nodes.size(), false);
  for (int32_t i = 0; i < static_cast<int32_t>(graph.nodes.size()); ++i) {
    const Node& n = graph.nodes[i];
    if (IsPassive(n)) continue;
    if (IsCollective(n) && n.attrs.Ints("group").size() > 1) {
      over_nccl[i] = RunsOverNccl(graph, n);
      if (over_nccl[i]) {
        const auto [in, out] = BlocksOf(graph, n);
        scratch[i] = in + out;
      }
      plan.launches.emplace_back(i, 0);
      continue;
    }
    std::vector<TensorType> inputs;
    const OpSpec spec = SpecOf(graph, i, &inputs);
    if (const auto product = ProductOf(n, spec)) {
      scratch[i] = WorkspaceOf(*product);
      plan.launches.emplace_back(i, 1);
      continue;
    }
    if (n.op->name == "matmul_bias" || n.op->name == "matmul_bias_add") {
      const int64_t moved = MovedBiasBytes(spec);
      scratch[i] = Aligned(moved) + WorkspaceOf(BiasedProductOf(spec));
      plan.launches.emplace_back(i, moved > 0 ? 2 : 1);
      continue;
    }
    if (!n.op->device)
      return Annotate(absl::UnimplementedError(absl::StrCat(n.op->name, " has no kernel for a device")), WhereOf(n));
    const auto program = n.op->device(spec);
    if (!program.ok()) return Annotate(program.status(), WhereOf(n));
    scratch[i] = program->scratch_bytes;
    plan.launches.emplace_back(i, static_cast<int>(program->steps.size()));
  }
  const DeviceLayout layout = LayOut(graph, scratch);
  ASSIGN_OR_RETURN(const DeviceSteps steps, StepsOf(graph, layout, over_nccl));
  absl::flat_hash_map<int32_t, int> together;  // the kernels of an update
  for (const auto& [last, updates] : steps.updates) {
    for (const int32_t node : updates.nodes) together[node] = node == last ? 1 : 0;
  }
  int64_t launches = 0;
  for (auto& [node, kernels] : plan.launches) {
    const auto at = together.find(node);
    if (at != together.end()) kernels = at->second;
    launches += at == together.end() || kernels > 0 ? 1 : 0;
  }
  plan.report = ReportOf(graph, layout.plan, launches);
  plan.device_bytes = layout.bytes + plan.report.store_bytes;
  return plan;
}

int64_t SnapshotBytes(const TensorType& type) { return Aligned(type.bytes()); }

int64_t SnapshotBytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const int32_t i : graph.Inputs()) {
    const std::string& kind = graph.nodes[i].attrs.Str("kind");
    if (kind == kParameter || kind == kState) bytes += SnapshotBytes(graph.nodes[i].outputs[0]);
  }
  return bytes;
}

}  // namespace mslua
