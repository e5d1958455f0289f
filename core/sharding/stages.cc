#include "core/sharding/stages.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/op/marks.h"
#include "core/sharding/strategy.h"

namespace mslua {
namespace {

constexpr int kUnknown = -2;

bool IsInput(const Node& n) { return n.op->name == "input"; }
// A parameter or state.
bool IsStored(const Node& n) {
  return IsInput(n) && (n.attrs.Str("kind") == kParameter || n.attrs.Str("kind") == kState);
}

class Assignment {
 public:
  Assignment(const Graph& graph, const StageTrace& trace, const StageOwners& settled)
      : graph_(graph), trace_(trace), settled_(settled), stages_(graph.nodes.size(), kUnknown) {
    backward_.assign(graph.nodes.size(), false);
    readers_.resize(graph.nodes.size());
    for (int32_t i = 0; i < Size(); ++i) {
      backward_[i] = mark::kOrigin.Has(At(i).attrs);
      for (Value v : At(i).inputs) {
        readers_[v.node].push_back(i);
        if (backward_[v.node]) backward_[i] = true;
      }
    }
  }

  std::vector<int> Run() {
    for (int32_t i = 0; i < Size(); ++i) stages_[i] = FromInputs(i);
    // What depends on parameters alone is known by who reads it: first on the way forward, for the way back follows.
    for (int32_t i = Size() - 1; i >= 0; --i) {
      if (stages_[i] == kUnknown && !backward_[i]) stages_[i] = FromReaders(i, /*backward=*/false);
    }
    for (int32_t i = 0; i < Size(); ++i) {
      if (stages_[i] == kUnknown) stages_[i] = FromInputs(i);
    }
    for (int32_t i = Size() - 1; i >= 0; --i) {
      if (stages_[i] == kUnknown) stages_[i] = std::max(0, FromReaders(i, /*backward=*/true));
    }
    return std::move(stages_);
  }

 private:
  int32_t Size() const { return static_cast<int32_t>(graph_.nodes.size()); }
  const Node& At(int32_t i) const { return graph_.nodes[i]; }

  int FromInputs(int32_t i) const {
    const Node& n = At(i);
    if (n.op->name == "constant") return kNoStage;
    if (IsInput(n)) {
      if (!IsStored(n)) return kNoStage;
      const auto owner = settled_.find(n.attrs.Str("name"));
      return owner == settled_.end() ? kUnknown : owner->second;
    }
    if (const int64_t* origin = mark::kOrigin.Find(n.attrs)) return stages_[*origin];
    if (trace_.cells[i] != kNoStage) return trace_.cells[i];
    bool any = false;
    int earliest = std::numeric_limits<int>::max(), latest = kNoStage;
    for (Value v : n.inputs) {
      const int stage = stages_[v.node];
      any |= stage != kNoStage;
      if (stage < 0 || IsStored(At(v.node))) continue;
      earliest = std::min(earliest, stage);
      latest = std::max(latest, stage);
    }
    if (!any) return kNoStage;
    if (latest == kNoStage) return kUnknown;
    return mark::kSum.Has(n.attrs) ? earliest : latest;
  }

  int FromReaders(int32_t i, bool backward) const {
    int first = kUnknown;
    for (int32_t reader : readers_[i]) {
      const int stage = stages_[reader];
      if (stage >= 0 && (backward || !backward_[reader]) && (first < 0 || stage < first)) first = stage;
    }
    return first;
  }

  const Graph& graph_;
  const StageTrace& trace_;
  const StageOwners& settled_;
  std::vector<int> stages_;
  std::vector<bool> backward_;  // depends on a gradient
  std::vector<std::vector<int32_t>> readers_;
};

// "stage 0: Net/embed; stage 1: Net/head": the cell of each stage's first node.
std::string UsedStages(const Graph& graph, const std::vector<int32_t>& first) {
  std::vector<std::string> used;
  for (size_t s = 0; s < first.size(); ++s) {
    if (first[s] < 0) continue;
    const auto& location = graph.nodes[first[s]].location;
    used.push_back(absl::StrCat("stage ", s, ": ", location ? location->scope : graph.nodes[first[s]].op->name));
  }
  return absl::StrJoin(used, "; ");
}

// Every stage that a cell names exists, and every stage that exists is named; in an evaluation cells may compute
// nothing, as dropout does.
Status CheckUsed(const Graph& graph, const StageTrace& trace) {
  std::vector<int32_t> first(static_cast<size_t>(trace.stages), -1);
  const bool training =
      std::any_of(trace.blocks.begin(), trace.blocks.end(), [](const MicroBlock& block) { return block.backward; });
  for (const MicroBlock& block : trace.blocks) {
    for (int32_t i = block.begin; i < block.end && !block.backward; ++i) {
      const int stage = trace.cells[i];
      if (stage == kNoStage || IsInput(graph.nodes[i])) continue;
      if (stage >= trace.stages) {
        return absl::InvalidArgumentError(absl::StrCat(NameOf(graph.nodes[i]), ": pipeline_stage = ", stage,
                                                       ", but pipeline_stages = ", trace.stages, ": stages are 0 to ",
                                                       trace.stages - 1));
      }
      if (first[static_cast<size_t>(stage)] < 0) first[static_cast<size_t>(stage)] = i;
    }
  }
  std::vector<size_t> missing;
  for (size_t s = 0; s < first.size(); ++s) {
    if (first[s] < 0) missing.push_back(s);
  }
  if (missing.empty() || !training) return absl::OkStatus();
  const std::string used = UsedStages(graph, first);
  return absl::InvalidArgumentError(absl::StrCat(
      "pipeline_stages = ", trace.stages, ", but no cell that runs has pipeline_stage = ", absl::StrJoin(missing, ", "),
      used.empty() ? " (set cell.pipeline_stage = 0, 1, ...)" : absl::StrCat(" (", used, ")")));
}

// On the way forward no stage reads what a later one makes.
Status CheckOrder(const Graph& graph, const StageTrace& trace, const std::vector<int>& stages) {
  for (const MicroBlock& block : trace.blocks) {
    for (int32_t i = block.begin; i < block.end && !block.backward; ++i) {
      for (Value v : graph.nodes[i].inputs) {
        if (IsStored(graph.nodes[v.node]) || stages[v.node] <= stages[i]) continue;
        return absl::InvalidArgumentError(absl::StrCat(NameOf(graph.nodes[i]), " is of pipeline stage ", stages[i],
                                                       " and reads what ", NameOf(graph.nodes[v.node]), " of stage ",
                                                       stages[v.node], " makes: a stage feeds later stages only"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<int>> StagesOf(const Graph& graph, const StageTrace& trace, const StageOwners& settled) {
  RETURN_IF_ERROR(CheckUsed(graph, trace));
  std::vector<int> stages = Assignment(graph, trace, settled).Run();
  RETURN_IF_ERROR(CheckOrder(graph, trace, stages));
  return stages;
}

StageOwners OwnersOf(const Graph& graph, const std::vector<int>& stages) {
  StageOwners owners;
  for (int32_t i : graph.Inputs()) {
    if (IsStored(graph.nodes[i])) owners.emplace(graph.nodes[i].attrs.Str("name"), stages[i]);
  }
  return owners;
}

}  // namespace mslua
