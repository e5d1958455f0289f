// Tables of embeddings: what a training step makes of the rows that a batch names, and of the others.
#include "core/step/table_rows.h"

#include <cmath>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "collectives/groups.h"
#include "collectives/host/inproc.h"
#include "core/optim/registry.h"
#include "core/runtime/executable.h"
#include "core/step/train_graph.h"
#include "core/train/trainer.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

constexpr int64_t kRows = 4, kDim = 5;  // of a rank's batch, of an embedding
constexpr int kSteps = 3;

OptimizerRule Rule(const std::string& name) {
  OptimizerRule rule;
  rule.def = FindOptimizer(name);
  for (const OptimizerField& field : rule.def->fields) {
    for (const std::string& setting : field.settings) rule.settings.Set(setting, rule.def->Default(setting));
  }
  return rule;
}

struct Case {
  std::string optimizer = "sgd";
  int ranks = 1;
  int64_t height = 100;
  bool plain = false;  // without passes: the dense update
  std::function<void(TrainSpec*)> ask = [](TrainSpec*) {};
};

struct Trained {
  std::vector<double> table, norms;
  PlanReport report;
};

// (table[i] * table[j] - target)^2 of two ids of each row: the table is read twice, some rows more often.
ForwardFn Forward(Trace& trace, const ParameterHandle& table) {
  return [&trace, table](const std::vector<Value>& columns) -> StatusOr<std::vector<Value>> {
    GraphBuilder& g = trace.g();
    ASSIGN_OR_RETURN(const Value t, trace.ParameterValue(table));
    const Value first = g.Op("gather", {t, columns[0]}), second = g.Op("gather", {t, columns[1]});
    const Value difference = Sub(g, Mul(g, first, second), columns[2]);
    const Value loss = ReduceSum(g, Mul(g, difference, difference), {0, 1}, false);
    return std::vector<Value>{Mul(g, loss, 1.0 / static_cast<double>(g.TypeOf(columns[0]).shape[0]))};
  };
}

StatusOr<Trained> Train(const Case& c, int rank, std::shared_ptr<Groups> groups) {
  RankState state;
  state.rank = rank;
  state.ranks = c.ranks;
  state.groups = groups;
  state.seed = 7;
  const auto table = std::make_shared<ParameterData>();
  table->name = "table";
  table->kind = kParameter;
  table->type = {DType::kF64, {c.height, kDim}};
  table->init.kind = "normal";
  table->init.sigma = 1;
  TrainSpec spec;
  const int64_t rows = kRows * 2 / c.ranks;
  spec.inputs = {{"i", {DType::kI32, {rows}}}, {"j", {DType::kI64, {rows}}}, {"target", {DType::kF64, {rows, kDim}}}};
  spec.parameters = {table};
  spec.rule = Rule(c.optimizer);
  spec.grad_norm = true;
  if (c.ranks > 1) {
    for (int64_t r = 0; r < c.ranks; ++r) spec.aggregation.ranks.push_back(r);
    spec.aggregation.mean = true;
  }
  c.ask(&spec);
  spec.shards.place = rank;
  Trace trace(state, 1, spec.name, /*training=*/true);
  ASSIGN_OR_RETURN(const TrainGraph made, BuildTrainGraph(state, trace, spec, Forward(trace, table)));
  for (const ParameterHandle& p : made.step.parameters) RETURN_IF_ERROR(ValueOf(state, *p).status());
  CompileOptions options;
  options.rank = rank;
  options.groups = groups.get();
  options.share = c.ranks > 1;
  options.optimize = !c.plain;
  ASSIGN_OR_RETURN(const auto step, Executable::Compile(made.step.graph, &state.store, options));
  Trained out;
  out.report = step->report();
  for (int n = 0; n < kSteps; ++n) {
    std::vector<int32_t> i;
    std::vector<int64_t> j;
    std::vector<double> target;
    for (int64_t row = rank * rows; row < (rank + 1) * rows; ++row) {
      i.push_back(static_cast<int32_t>((row * 3 + n) % 6));  // rows 0 to 5 and 90 to 94
      j.push_back(90 + row % 5);
      for (int64_t k = 0; k < kDim; ++k) target.push_back(std::sin(static_cast<double>(row * kDim + k)));
    }
    RETURN_IF_ERROR(step->BindInput("i", i.data()));
    RETURN_IF_ERROR(step->BindInput("j", j.data()));
    RETURN_IF_ERROR(step->BindInput("target", target.data()));
    for (const std::string& input : step->inputs()) {
      if (input == "lr") RETURN_IF_ERROR(step->SetScalar("lr", 0.1));
      if (input == "step" || input == kUpdates) RETURN_IF_ERROR(step->SetScalar(input, n));
      if (input == "loss_scale") RETURN_IF_ERROR(step->SetScalar("loss_scale", 1024));
    }
    RETURN_IF_ERROR(step->Run());
    const auto& outputs = step->graph().outputs;
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].name == "grad_norm")
        out.norms.push_back(*static_cast<const double*>(step->Output(static_cast<int>(o)).data));
    }
  }
  ASSIGN_OR_RETURN(const TensorView t, ValueOf(state, *table));
  out.table.assign(static_cast<const double*>(t.data), static_cast<const double*>(t.data) + t.type.elements());
  return out;
}

// What rank 0 has learned; the others have the same bits.
Trained TrainOn(const Case& c) {
  std::vector<Trained> trained(static_cast<size_t>(c.ranks));
  auto world = MakeInprocWorld(c.ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < c.ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto groups = c.ranks == 1 ? nullptr : std::make_shared<Groups>(std::move(world[static_cast<size_t>(r)]));
      auto result = Train(c, r, groups);
      EXPECT_EQ(result.status(), absl::OkStatus());
      if (result.ok()) trained[static_cast<size_t>(r)] = *std::move(result);
    });
  }
  for (std::thread& t : threads) t.join();
  for (const Trained& t : trained) EXPECT_EQ(t.table, trained[0].table);
  return trained[0];
}

void ExpectNear(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_FALSE(a.empty());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12 * (1 + std::abs(b[i]))) << i;
}

std::vector<double> RowOf(const Trained& t, int64_t row) {
  return {t.table.begin() + row * kDim, t.table.begin() + (row + 1) * kDim};
}

// What trainings may ask for. Each is the same by rows and without passes, which make the whole gradient.
const std::vector<std::pair<std::string, std::function<void(TrainSpec*)>>>& Wishes() {
  static const auto* const wishes = new std::vector<std::pair<std::string, std::function<void(TrainSpec*)>>>{
      {"nothing", [](TrainSpec*) {}},
      {"clip norm",
       [](TrainSpec* s) {
         s->clip = "norm";
         s->clip_value = 0.5;
       }},
      {"clip value",
       [](TrainSpec* s) {
         s->clip = "value";
         s->clip_value = 0.1;
       }},
      {"micro-batches", [](TrainSpec* s) { s->accumulate = 2; }},
      {"loss scale", [](TrainSpec* s) { s->loss_scale = true; }},
      {"all of them",
       [](TrainSpec* s) {
         s->clip = "norm";
         s->clip_value = 0.5;
         s->accumulate = 2;
         s->loss_scale = true;
       }},
      {"averages", [](TrainSpec* s) { s->ema = 0.9; }},
      {"sums of ranks", [](TrainSpec* s) { s->aggregation.mean = false; }},
  };
  return *wishes;
}

TEST(TableRows, AreUpdatedAsTheWholeTableIs) {
  for (const std::string optimizer : {"sgd", "adagrad", "ftrl", "lazy_adam"}) {
    for (const auto& [wish, ask] : Wishes()) {
      for (const int ranks : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(optimizer, ", ", wish, ", ", ranks, " ranks"));
        const Trained rows = TrainOn({optimizer, ranks, 100, false, ask}),
                      whole = TrainOn({optimizer, ranks, 100, true, ask});
        ExpectNear(rows.table, whole.table);
        ExpectNear(rows.norms, whole.norms);
      }
    }
  }
}

TEST(TableRows, TakeNoMemoryOfTheTablesHeight) {
  for (const std::string optimizer : {"sgd", "adagrad", "ftrl", "lazy_adam"}) {
    for (const auto& [wish, ask] : Wishes()) {
      if (wish == "averages") continue;  // which are of all rows
      for (const int ranks : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(optimizer, ", ", wish, ", ", ranks, " ranks"));
        const PlanReport low = TrainOn({optimizer, ranks, 100, false, ask}).report,
                         high = TrainOn({optimizer, ranks, 10000, false, ask}).report;
        EXPECT_EQ(low.workspace_bytes, high.workspace_bytes);
        EXPECT_EQ(low.shared_bytes, high.shared_bytes);
        EXPECT_EQ(high.copies, 0);
        EXPECT_GT(high.store_bytes, 90 * low.store_bytes);
      }
    }
  }
}

TEST(TableRows, WithoutAnIndexStayWhereTheOptimizerSaysSo) {
  for (const std::string optimizer : {"sgd", "adagrad", "ftrl", "lazy_adam"}) {
    const Trained zero = TrainOn({optimizer, 1, 100, false, [](TrainSpec* s) { s->rule.lr_scale = 0; }});
    const Trained trained = TrainOn({optimizer, 1, 100, false});
    for (const int64_t row : {0, 5, 90, 94}) EXPECT_NE(RowOf(trained, row), RowOf(zero, row)) << optimizer << row;
    for (const int64_t row : {6, 89, 95, 99}) EXPECT_EQ(RowOf(trained, row), RowOf(zero, row)) << optimizer << row;
  }
  // Momentum, weight decay and Adam move them.
  const Trained start = TrainOn({"sgd", 1, 100, false, [](TrainSpec* s) { s->rule.lr_scale = 0; }});
  const auto decay = [](TrainSpec* s) { s->rule.weight_decay = 0.1; };
  for (const std::string optimizer : {"sgd", "adagrad"})
    EXPECT_NE(RowOf(TrainOn({optimizer, 1, 100, false, decay}), 99), RowOf(start, 99)) << optimizer;
  EXPECT_EQ(RowOf(TrainOn({"lazy_adam", 1, 100, false, decay}), 99), RowOf(start, 99));
}

TEST(TableRows, OfStateInSlicesAreTheSame) {
  for (const std::string optimizer : {"sgd", "ftrl", "lazy_adam"}) {
    const Trained whole = TrainOn({optimizer, 2, 100, false}),
                  slices = TrainOn({optimizer, 2, 100, false, [](TrainSpec*s) {
                                      s->shards.ranks = s->aggregation.ranks;
                                      s->shards.mean = true;
                                      s->shards.threshold = 0;
                                    }});
    ExpectNear(slices.table, whole.table);
  }
}

TEST(TableRows, AreThoseOfGathersAlone) {
  GraphBuilder g;
  const Value i = g.Input("i", kData, {DType::kI32, {3}}), d = g.Input("d", kData, {DType::kF32, {3, 2}}),
              w = g.Input("w", kData, {DType::kF32, {9, 2}});
  const Value rows = g.Op("scatter_sum", {i, d}, {{"size", int64_t{9}}});
  EXPECT_EQ(RowsOf(g, rows)->size(), 1u);
  EXPECT_EQ(RowsOf(g, Add(g, rows, rows))->size(), 2u);
  EXPECT_FALSE(RowsOf(g, Add(g, rows, w)).has_value());
  EXPECT_FALSE(RowsOf(g, w).has_value());
  EXPECT_FALSE(BothRows(RowsOf(g, rows), absl::nullopt).has_value());
}

}  // namespace
}  // namespace mslua
