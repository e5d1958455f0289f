#include "core/sharding/pipeline.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/graph/builder.h"
#include "core/op/marks.h"
#include "core/op/registry.h"
#include "core/sharding/plan.h"

namespace mslua {
namespace {

constexpr char kMessage[] = "message of stage ";

class Program {
 public:
  Program(const Graph& graph, const StageTrace& trace, const std::vector<int>& stages, int stage,
          absl::Span<const int64_t> column)
      : graph_(graph),
        trace_(trace),
        stages_(stages),
        stage_(stage),
        column_(column.begin(), column.end()),
        block_(graph.nodes.size(), -1),
        number_(graph.nodes.size(), -1),
        g_(graph.name) {
    for (size_t b = 0; b < trace.blocks.size(); ++b) {
      for (int32_t i = trace.blocks[b].begin; i < trace.blocks[b].end; ++i) block_[i] = static_cast<int>(b);
      micros_ = std::max(micros_, trace.blocks[b].micro + 1);
      trains_ |= trace.blocks[b].backward;
    }
  }

  StatusOr<Graph> Run() {
    FindLive();
    FindReaders();
    for (int32_t i : graph_.Inputs()) {
      if (stages_[i] == kNoStage) RETURN_IF_ERROR(Emit(i));
    }
    RETURN_IF_ERROR(ExchangeStored());
    for (const MicroStep& step : MicroSchedule(trace_.stages, stage_, micros_, trains_)) RETURN_IF_ERROR(Go(step));
    RETURN_IF_ERROR(EmitRest());
    RETURN_IF_ERROR(EmitOutputs());
    EndSends([](const Sent&) { return true; });
    return g_.Finish();
  }

 private:
  struct Sent {
    Value value;
    int block = -1;  // that made it; -1: none
    bool ended = false;
  };

  const Node& At(int32_t i) const { return graph_.nodes[i]; }
  int32_t Size() const { return static_cast<int32_t>(graph_.nodes.size()); }
  bool Mine(int32_t i) const { return stages_[i] == stage_; }
  bool Others(int32_t i) const { return stages_[i] != stage_ && stages_[i] != kNoStage; }

  void FindLive() {
    live_.assign(graph_.nodes.size(), false);
    for (const GraphOutput& o : graph_.outputs) live_[o.value.node] = true;
    for (int32_t i = Size() - 1; i >= 0; --i) {
      live_[i] = live_[i] || (At(i).op->side_effect && At(i).op->name != "input");
      for (Value v : At(i).inputs) live_[v.node] = live_[v.node] || live_[i];
    }
  }

  // Which other stages need each value.
  void FindReaders() {
    depends_on_data_.assign(graph_.nodes.size(), false);
    for (int32_t i = 0; i < Size(); ++i) {
      depends_on_data_[i] = At(i).op->name == "input" && At(i).attrs.Str("kind") == kData;
      for (Value v : At(i).inputs) {
        depends_on_data_[i] = depends_on_data_[i] || depends_on_data_[v.node];
        if (live_[i]) AddReader(v, stages_[i]);
      }
      if (depends_on_data_[i] && rows_ == 0 && !At(i).outputs[0].shape.empty())
        rows_ = At(i).outputs[0].shape[0] / micros_;
    }
    for (const GraphOutput& o : graph_.outputs) {
      if (!o.updates.empty()) AddReader(o.value, OwnerOf(o));
    }
  }
  void AddReader(Value v, int stage) {
    if (stages_[v.node] != kNoStage && stages_[v.node] != stage) readers_[v].insert(stage);
  }
  int OwnerOf(const GraphOutput& o) const { return stages_[graph_.FindInput(o.updates)]; }
  bool NeededHere(Value v) const {
    const auto found = readers_.find(v);
    return found != readers_.end() && found->second.count(stage_) > 0;
  }

  // Parameters and state that other stages read too: this stage's go out before it waits for others'.
  Status ExchangeStored() {
    for (const bool mine : {true, false}) {
      for (int32_t i : graph_.Inputs()) {
        if (!live_[i] || stages_[i] == kNoStage || Mine(i) != mine) continue;
        RETURN_IF_ERROR(mine ? Emit(i) : Receive(i));
      }
    }
    return absl::OkStatus();
  }

  // One way of a micro-batch through this stage. What comes for it comes in the order in which its maker sends it.
  Status Go(const MicroStep& step) {
    const auto block = std::find_if(trace_.blocks.begin(), trace_.blocks.end(), [&](const MicroBlock& b) {
      return b.micro == step.micro && b.backward == step.backward;
    });
    if (block == trace_.blocks.end()) return absl::InternalError("a micro-batch has no nodes");
    for (int32_t i = block->begin; i < block->end; ++i) {
      if (!live_[i] || !Others(i) || At(i).op->name == "input") continue;
      RETURN_IF_ERROR(Receive(i));
    }
    // These have been received, for what has come depends on them: activations of a micro-batch whose gradients come
    // back, gradients of one that was a whole pipeline ago.
    EndSends([&](const Sent& sent) {
      if (sent.block < 0) return false;
      const MicroBlock& made = trace_.blocks[static_cast<size_t>(sent.block)];
      return step.backward ? !made.backward && made.micro == step.micro
                           : made.backward && made.micro + trace_.stages <= step.micro;
    });
    for (int32_t i = block->begin; i < block->end; ++i) {
      if (live_[i] && Mine(i) && At(i).op->name != "input") RETURN_IF_ERROR(Emit(i));
    }
    return absl::OkStatus();
  }

  // What belongs to no micro-batch: updates. All stages keep the order of the nodes.
  Status EmitRest() {
    for (int32_t i = 0; i < Size(); ++i) {
      if (!live_[i] || block_[i] >= 0 || stages_[i] == kNoStage || At(i).op->name == "input") continue;
      RETURN_IF_ERROR(Mine(i) ? Emit(i) : Receive(i));
    }
    return absl::OkStatus();
  }

  Status EmitOutputs() {
    g_.SetLocation(nullptr);
    for (const GraphOutput& o : graph_.outputs) {
      if (!o.updates.empty() && OwnerOf(o) != stage_) continue;
      const int maker = stages_[o.value.node];
      Value v;
      if (!o.updates.empty() || maker == kNoStage || maker == stage_) {
        ASSIGN_OR_RETURN(v, Here(o.value));
      } else {
        const TensorType& type = graph_.TypeOf(o.value);
        v = g_.Constant(0, type.dtype, type.shape);
      }
      if (o.updates.empty() && maker != kNoStage)
        v = g_.Op("broadcast", {v}, {{"group", column_}, {"root", column_[static_cast<size_t>(maker)]}});
      g_.Output(o.name, v, o.updates);
    }
    return g_.status();
  }

  // The value in this stage's program.
  StatusOr<Value> Here(Value v) {
    const auto found = values_.find(v);
    if (found != values_.end()) return found->second;
    if (stages_[v.node] != kNoStage) {
      return absl::InternalError(absl::StrCat("pipeline stage ", stage_, " needs ", NameOf(At(v.node)), " of stage ",
                                              stages_[v.node], " before it is made"));
    }
    RETURN_IF_ERROR(Emit(v.node));
    return values_[v];
  }

  Status Emit(int32_t i) {
    if (number_[i] >= 0) return absl::OkStatus();
    std::vector<Value> inputs;
    for (Value v : At(i).inputs) {
      ASSIGN_OR_RETURN(const Value here, Here(v));
      inputs.push_back(here);
    }
    const std::vector<Value> made = g_.Clone(At(i), inputs);
    RETURN_IF_ERROR(g_.status());
    number_[i] = made[0].node;
    Node& node = g_.graph().nodes[made[0].node];
    if (const int64_t* origin = mark::kOrigin.Find(node.attrs)) {
      const int32_t here = number_[*origin];
      if (here < 0)
        mark::kOrigin.Erase(node.attrs);
      else
        mark::kOrigin.Set(node.attrs, int64_t{here});
    }
    for (size_t o = 0; o < made.size(); ++o) {
      const Value v{i, static_cast<int32_t>(o)};
      values_[v] = made[o];
      const auto readers = readers_.find(v);
      if (readers == readers_.end()) continue;
      for (int stage : readers->second) Send(v, stage);
    }
    return g_.status();
  }

  void Send(Value v, int stage) {
    g_.SetLocation(At(v.node).location);
    sent_.push_back({g_.Op("stage_send", {values_[v]}, MessageAttrs(v, stage)), block_[v.node], false});
  }
  template <typename Which>
  void EndSends(const Which& which) {
    for (Sent& sent : sent_) {
      if (sent.ended || !which(sent) || !g_.status().ok()) continue;
      sent.ended = true;
      const Node node = g_.NodeOf(sent.value);
      g_.SetLocation(node.location);
      g_.Op("stage_sent", {sent.value}, node.attrs);
    }
  }
  Attrs MessageAttrs(Value v, int stage) const {
    return {{"group", column_},
            {"peer", column_[static_cast<size_t>(stage)]},
            {"tag", int64_t{v.node}},
            {mark::kBoundary.name, IsBatch(v)}};
  }

  // Inputs for what this stage needs of a node of another stage.
  Status Receive(int32_t i) {
    for (int32_t o = 0; o < static_cast<int32_t>(At(i).outputs.size()); ++o) {
      const Value v{i, o};
      if (!NeededHere(v)) continue;
      const bool back = block_[i] >= 0 && trace_.blocks[static_cast<size_t>(block_[i])].backward;
      if (block_[i] >= 0 && At(i).op->name != "input" && back != (stages_[i] > stage_))
        return absl::InternalError(absl::StrCat(NameOf(At(i)), " of stage ", stages_[i], " is needed by stage ", stage_,
                                                ", against the pipeline"));
      g_.SetLocation(nullptr);
      const Value in =
          g_.Input(absl::StrCat(kMessage, stages_[i], ": ", i, ".", o), IsBatch(v) ? kData : kScalar, graph_.TypeOf(v));
      RETURN_IF_ERROR(g_.status());
      Node& node = g_.graph().nodes[in.node];
      node.location = At(i).location;
      mark::kPeer.Set(node.attrs, column_[static_cast<size_t>(stages_[i])]);
      mark::kColumn.Set(node.attrs, column_);
      mark::kTag.Set(node.attrs, int64_t{i});
      values_[v] = in;
    }
    return absl::OkStatus();
  }

  // Whether a value's first dimension is the rows of a micro-batch: it is sharded along them over the ranks of a stage
  // on both ends of a message. Anything else is whole there.
  bool IsBatch(Value v) const {
    const TensorType& type = graph_.TypeOf(v);
    return block_[v.node] >= 0 && depends_on_data_[v.node] && type.rank() > 0 && type.shape[0] == rows_;
  }

  const Graph& graph_;
  const StageTrace& trace_;
  const std::vector<int>& stages_;
  const int stage_;
  const std::vector<int64_t> column_;
  int64_t micros_ = 1, rows_ = 0;
  bool trains_ = false;
  std::vector<int> block_;       // by node: the number of its block; -1: none
  std::vector<int32_t> number_;  // by node: the node that it has become here; -1: none
  std::vector<bool> live_, depends_on_data_;
  absl::flat_hash_map<Value, std::set<int>> readers_;  // other stages that need a value
  absl::flat_hash_map<Value, Value> values_;           // what it is here
  std::vector<Sent> sent_;
  GraphBuilder g_;
};

}  // namespace

std::vector<MicroStep> MicroSchedule(int64_t stages, int64_t stage, int64_t micros, bool backward) {
  std::vector<MicroStep> steps;
  const int64_t ahead = backward ? std::min(micros, stages - 1 - stage) : micros;
  for (int64_t i = 0; i < micros; ++i) {
    steps.push_back({i, false});
    if (i >= ahead) steps.push_back({i - ahead, true});
  }
  for (int64_t i = micros - ahead; i < micros && backward; ++i) steps.push_back({i, true});
  return steps;
}

double PipelineBubble(int64_t stages, int64_t micros) {
  return static_cast<double>(stages - 1) / static_cast<double>(micros + stages - 1);
}

StatusOr<Graph> StageProgram(const Graph& graph, const StageTrace& trace, const std::vector<int>& stages, int stage,
                             absl::Span<const int64_t> column) {
  return Program(graph, trace, stages, stage, column).Run();
}

bool IsMessage(const std::string& input) { return absl::StartsWith(input, kMessage); }

void PlaceMessages(Graph* program) {
  for (Node& n : program->nodes) {
    if (n.op->name != "input" || !IsMessage(n.attrs.Str("name"))) continue;
    const TensorType& type = n.outputs[0];
    n.attrs = {{"group", mark::kColumn.Get(n.attrs)},
               {"peer", mark::kPeer.Get(n.attrs)},
               {"tag", mark::kTag.Get(n.attrs)},
               {"dtype", type.dtype},
               {"shape", std::vector<int64_t>(type.shape.begin(), type.shape.end())}};
    n.op = Operators().Find("stage_recv");
  }
}

}  // namespace mslua
