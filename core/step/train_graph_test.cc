// A whole training step in C++, without a Lua state: forward, backward, gradients of several ranks, update.
#include "core/step/train_graph.h"

#include <cmath>
#include <cstring>
#include <map>
#include <thread>

#include "collectives/groups.h"
#include "collectives/host/inproc.h"
#include "core/optim/registry.h"
#include "core/runtime/executable.h"
#include "core/step/operator_call.h"
#include "core/train/trainer.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

constexpr int64_t kRows = 8, kIn = 5, kOut = 3;
constexpr int kSteps = 4;

// y = x w + b, and the mean of (y - target)^2 as the loss.
struct Network {
  ParameterHandle w = std::make_shared<ParameterData>(), b = std::make_shared<ParameterData>();

  Network() {
    w->name = "w";
    w->kind = b->kind = kParameter;
    w->type = {DType::kF32, {kIn, kOut}};
    w->init.kind = "normal";
    w->init.sigma = 0.5;
    b->name = "b";
    b->type = {DType::kF32, {kOut}};
  }

  ForwardFn Forward(RankState& state, Trace& trace) const {
    return [this, &state, &trace](const std::vector<Value>& columns) -> StatusOr<std::vector<Value>> {
      GraphBuilder& g = trace.g();
      ASSIGN_OR_RETURN(const Value weight, trace.ParameterValue(w));
      ASSIGN_OR_RETURN(const Value bias, trace.ParameterValue(b));
      const auto call = [&](const char* name, std::vector<Value> in, Attrs attrs = {}) -> StatusOr<Value> {
        ASSIGN_OR_RETURN(const OpDef* op, RequireOp(name));
        const std::vector<bool> numbers(in.size(), false);
        ASSIGN_OR_RETURN(const std::vector<Value> out,
                         CallOperator(state, trace, *op, std::move(in), numbers, std::move(attrs)));
        return out[0];
      };
      ASSIGN_OR_RETURN(const Value product, call("matmul", {columns[0], weight}));
      ASSIGN_OR_RETURN(const Value y, call("add", {product, bias}));
      ASSIGN_OR_RETURN(const Value difference, call("sub", {y, columns[1]}));
      ASSIGN_OR_RETURN(const Value square, call("mul", {difference, difference}));
      ASSIGN_OR_RETURN(const Value wide, StatusOr<Value>(Cast(g, square, DType::kF32)));
      ASSIGN_OR_RETURN(const Value loss,
                       call("reduce_mean", {wide}, {{"axis", std::vector<int64_t>{}}, {"keep_dims", false}}));
      return std::vector<Value>{loss};
    };
  }
};

// With the defaults of its settings, and momentum 0.9 where it has one.
OptimizerRule Rule(const std::string& name) {
  OptimizerRule rule;
  rule.def = FindOptimizer(name);
  for (const OptimizerField& field : rule.def->fields) {
    for (const std::string& setting : field.settings) rule.settings.Set(setting, rule.def->Default(setting));
  }
  if (rule.settings.Has("momentum")) rule.settings.Set("momentum", 0.9);
  return rule;
}

struct Trained {
  std::vector<float> losses, w;
};

// Trains rank `rank` of `ranks` on its rows of one batch; `ask` changes what a training asks for.
StatusOr<Trained> Train(int rank, int ranks, std::shared_ptr<Groups> groups,
                        const std::function<void(TrainSpec*)>& ask) {
  RankState state;
  state.rank = rank;
  state.ranks = ranks;
  state.groups = groups;
  state.seed = 7;
  const Network network;
  TrainSpec spec;
  const int64_t rows = kRows / ranks;
  spec.inputs = {{"x", {DType::kF32, {rows, kIn}}}, {"target", {DType::kF32, {rows, kOut}}}};
  spec.parameters = {network.w, network.b};
  spec.rule = Rule("momentum");
  if (ranks > 1) {
    for (int64_t r = 0; r < ranks; ++r) spec.aggregation.ranks.push_back(r);
    spec.aggregation.mean = true;
  }
  ask(&spec);
  spec.shards.place = rank;
  Trace trace(state, 1, spec.name, /*training=*/true);
  ASSIGN_OR_RETURN(const TrainGraph made, BuildTrainGraph(state, trace, spec, network.Forward(state, trace)));
  if (!made.idle.empty()) return absl::InternalError("a parameter gets no gradient");
  for (const ParameterHandle& p : made.step.parameters) RETURN_IF_ERROR(ValueOf(state, *p).status());
  CompileOptions options;
  options.rank = rank;
  options.groups = groups.get();
  options.share = ranks > 1;
  ASSIGN_OR_RETURN(const auto step, Executable::Compile(made.step.graph, &state.store, options));
  std::vector<float> x, target;
  for (int64_t row = rank * rows; row < (rank + 1) * rows; ++row) {
    for (int64_t i = 0; i < kIn; ++i) x.push_back(std::sin(static_cast<float>(row * kIn + i)));
    for (int64_t i = 0; i < kOut; ++i) target.push_back(std::cos(static_cast<float>(row * kOut + i)));
  }
  RETURN_IF_ERROR(step->BindInput("x", x.data()));
  RETURN_IF_ERROR(step->BindInput("target", target.data()));
  Trained out;
  for (int n = 0; n < kSteps; ++n) {
    for (const std::string& input : step->inputs()) {
      if (input == "lr") RETURN_IF_ERROR(step->SetScalar("lr", 0.1));
      if (input == "step" || input == kUpdates) RETURN_IF_ERROR(step->SetScalar(input, n));
      if (input == "loss_scale") RETURN_IF_ERROR(step->SetScalar("loss_scale", 1024));
    }
    RETURN_IF_ERROR(step->Run());
    const auto& outputs = step->graph().outputs;
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].name == "loss")
        out.losses.push_back(*static_cast<const float*>(step->Output(static_cast<int>(o)).data));
    }
  }
  ASSIGN_OR_RETURN(const TensorView w, ValueOf(state, *network.w));
  out.w.assign(static_cast<const float*>(w.data), static_cast<const float*>(w.data) + w.type.elements());
  return out;
}

// What each rank has learned.
std::vector<Trained> TrainOn(int ranks, const std::function<void(TrainSpec*)>& ask) {
  std::vector<Trained> trained(static_cast<size_t>(ranks));
  auto world = MakeInprocWorld(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto groups = ranks == 1 ? nullptr : std::make_shared<Groups>(std::move(world[static_cast<size_t>(r)]));
      auto result = Train(r, ranks, groups, ask);
      EXPECT_EQ(result.status(), absl::OkStatus());
      if (result.ok()) trained[static_cast<size_t>(r)] = *std::move(result);
    });
  }
  for (std::thread& t : threads) t.join();
  return trained;
}

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_FALSE(a.empty());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << i;
}

TEST(TrainGraph, MakesStepsThatReduceTheLoss) {
  const std::vector<Trained> one = TrainOn(1, [](TrainSpec*) {});
  ASSERT_EQ(one[0].losses.size(), kSteps);
  EXPECT_LT(one[0].losses.back(), 0.7f * one[0].losses.front());
}

TEST(TrainGraph, RanksThatShareABatchLearnWhatOneRankLearns) {
  const std::vector<Trained> one = TrainOn(1, [](TrainSpec*) {}), two = TrainOn(2, [](TrainSpec*) {});
  EXPECT_EQ(two[0].w, two[1].w);
  ExpectNear(two[0].w, one[0].w, 1e-6f);
}

TEST(TrainGraph, MicroBatchesGiveTheSameMean) {
  const std::vector<Trained> whole = TrainOn(1, [](TrainSpec*) {});
  for (const int ranks : {1, 2}) {
    const std::vector<Trained> parts = TrainOn(ranks, [](TrainSpec* spec) { spec->accumulate = 2; });
    ExpectNear(parts[0].w, whole[0].w, 1e-6f);
  }
}

TEST(TrainGraph, StateInSlicesOfRanksLearnsTheSame) {
  for (const char* optimizer : {"momentum", "adam"}) {
    const auto ask = [&](TrainSpec* spec) { spec->rule = Rule(optimizer); };
    const std::vector<Trained> whole = TrainOn(2, ask), sliced = TrainOn(2, [&](TrainSpec*spec) {
                                                          ask(spec);
                                                          spec->shards.ranks = spec->aggregation.ranks;
                                                          spec->shards.mean = true;
                                                          spec->shards.threshold = 0;
                                                        });
    EXPECT_EQ(sliced[0].w, sliced[1].w);
    ExpectNear(sliced[0].w, whole[0].w, 1e-6f);
  }
}

TEST(TrainGraph, MixedPrecisionWithALossScaleAndClippingStaysNearF32) {
  const auto clip = [](TrainSpec* spec) {
    spec->clip = "norm";
    spec->clip_value = 0.5;
  };
  const std::vector<Trained> f32 = TrainOn(2, clip);
  for (const DType narrow : {DType::kBF16, DType::kF16}) {
    const std::vector<Trained> mixed = TrainOn(2, [&](TrainSpec* spec) {
      clip(spec);
      spec->amp = narrow;
      spec->loss_scale = true;
    });
    EXPECT_EQ(mixed[0].w, mixed[1].w);
    EXPECT_NE(mixed[0].w, f32[0].w);
    ExpectNear(mixed[0].w, f32[0].w, narrow == DType::kF16 ? 0.003f : 0.02f);
  }
}

// The network's w and b, each trained by a step of its own, on rank 0 of 1.
struct TwoSteps {
  RankState state;
  Network network;
  std::vector<float> x, target;
  std::vector<std::unique_ptr<Executable>> graphs;

  TwoSteps() {
    state.seed = 7;
    for (int64_t i = 0; i < kRows * kIn; ++i) x.push_back(std::sin(static_cast<float>(i)));
    for (int64_t i = 0; i < kRows * kOut; ++i) target.push_back(std::cos(static_cast<float>(i)));
  }
  TrainSpec Spec(const std::string& name, const ParameterHandle& trained) const {
    TrainSpec spec;
    spec.name = name;
    spec.inputs = {{"x", {DType::kF32, {kRows, kIn}}}, {"target", {DType::kF32, {kRows, kOut}}}};
    spec.parameters = {trained};
    spec.network = {{network.w, network.b}};
    spec.rule = Rule("adam");
    spec.clip = "norm";
    spec.clip_value = 1;
    spec.ema = 0.9;
    return spec;
  }
  Status Compile(const StepGraph& step) {
    for (const ParameterHandle& p : step.parameters) RETURN_IF_ERROR(ValueOf(state, *p).status());
    ASSIGN_OR_RETURN(auto made, Executable::Compile(step.graph, &state.store, CompileOptions()));
    graphs.push_back(std::move(made));
    return absl::OkStatus();
  }
  // All graphs kSteps times: the outputs that are no updates, by name; then w and b.
  StatusOr<std::map<std::string, std::vector<float>>> Run() {
    std::map<std::string, std::vector<float>> found;
    for (int n = 0; n < kSteps; ++n) {
      for (const auto& graph : graphs) {
        for (const std::string& input : graph->inputs()) {
          if (input == "lr") RETURN_IF_ERROR(graph->SetScalar(input, 0.1));
          if (input == "step") RETURN_IF_ERROR(graph->SetScalar(input, n));
        }
        RETURN_IF_ERROR(graph->BindInput("x", x.data()));
        RETURN_IF_ERROR(graph->BindInput("target", target.data()));
        RETURN_IF_ERROR(graph->Run());
        const auto& outputs = graph->graph().outputs;
        for (size_t o = 0; o < outputs.size(); ++o) {
          if (outputs[o].updates.empty())
            found[outputs[o].name].push_back(*graph->Output(static_cast<int>(o)).as<float>());
        }
      }
    }
    for (const ParameterHandle& p : {network.w, network.b}) {
      ASSIGN_OR_RETURN(const TensorView value, ValueOf(state, *p));
      found[p->name].assign(value.as<float>(), value.as<float>() + value.type.elements());
    }
    return found;
  }
};

TEST(TrainGraph, SeveralStepsInOneGraphAreThoseOfGraphsInTurn) {
  TwoSteps apart, together;
  for (const auto& [name, trained] : {std::pair("first", apart.network.w), {"second", apart.network.b}}) {
    Trace trace(apart.state, 1, name, /*training=*/true);
    const auto made =
        BuildTrainGraph(apart.state, trace, apart.Spec(name, trained), apart.network.Forward(apart.state, trace));
    ASSERT_EQ(made.status(), absl::OkStatus());
    ASSERT_EQ(apart.Compile(made->step), absl::OkStatus());
  }
  Trace trace(together.state, 1, "both", /*training=*/true);
  const ForwardFn forward = together.network.Forward(together.state, trace);
  const auto made = BuildStepsGraph(together.state, trace,
                                    {{"first", together.Spec("first", together.network.w), forward},
                                     {"second", together.Spec("second", together.network.b), forward}});
  ASSERT_EQ(made.status(), absl::OkStatus());
  EXPECT_EQ(made->step.graph.outputs[0].name, "loss");
  ASSERT_EQ(together.Compile(made->step), absl::OkStatus());
  auto wanted = apart.Run(), found = together.Run();
  ASSERT_EQ(wanted.status(), absl::OkStatus());
  ASSERT_EQ(found.status(), absl::OkStatus());
  EXPECT_EQ((*found)["w"], (*wanted)["w"]);
  EXPECT_EQ((*found)["b"], (*wanted)["b"]);
  for (int n = 0; n < kSteps; ++n) {
    const auto at = [n](auto& values, const char* name, int i) { return (*values)[name].at(static_cast<size_t>(i)); };
    EXPECT_EQ(at(found, "loss.first", n), at(wanted, "loss", 2 * n));
    EXPECT_EQ(at(found, "loss.second", n), at(wanted, "loss", 2 * n + 1));
    EXPECT_EQ(at(found, "grad_norm.second", n), at(wanted, "grad_norm", 2 * n + 1));
    EXPECT_EQ(at(found, "loss", n), at(found, "loss.first", n) + at(found, "loss.second", n));
  }
}

TEST(TrainGraph, AParameterBelongsToOneStep) {
  TwoSteps two;
  Trace trace(two.state, 1, "both", /*training=*/true);
  const ForwardFn forward = two.network.Forward(two.state, trace);
  const auto made = BuildStepsGraph(
      two.state, trace,
      {{"first", two.Spec("first", two.network.w), forward}, {"second", two.Spec("second", two.network.w), forward}});
  EXPECT_EQ(made.status().message(),
            "steps: parameter 'w' belongs to the steps 'first' and 'second': one optimizer updates a parameter; give "
            "each step params = a pattern on names");
}

TEST(TrainGraph, SaysWhatIsWrong) {
  RankState state;
  const Network network;
  TrainSpec spec;
  spec.inputs = {{"x", {DType::kF32, {2, kIn}}}};
  spec.parameters = {network.w};
  spec.rule = Rule("sgd");
  Trace trace(state, 1, "train", /*training=*/true);
  const auto loss = [](const std::vector<Value>& columns) -> StatusOr<std::vector<Value>> { return columns; };
  EXPECT_EQ(
      BuildTrainGraph(state, trace, spec, loss).status().message(),
      "the loss should be a float scalar, got f32[2,5]: reduce it with ops.ReduceMean, or give the recipe a loss");
}

}  // namespace
}  // namespace mslua
