// Operators between ranks, run by ranks as threads.
#include "core/runtime/collective_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/autodiff/gradient.h"
#include "core/graph/builder.h"
#include "core/runtime/memory_plan.h"
#include "core/runtime/testing/run_ranks.h"

namespace mslua {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RankProgram;
using testing::RunRanks;

std::string Bytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}
std::vector<float> Floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Rank r's part of `shape`: 100 r + 0, 1, 2, ...
std::vector<float> Numbered(int rank, const Shape& shape) {
  std::vector<float> values;
  for (int64_t i = 0; i < NumElements(shape); ++i) values.push_back(static_cast<float>(100 * rank + i));
  return values;
}

// y = body(x) of every rank, x numbered; optimized and not.
std::vector<std::vector<float>> RunBody(int ranks, const Shape& shape,
                                        const std::function<Value(GraphBuilder&, Value x, int rank)>& body) {
  std::vector<RankProgram> programs;
  for (int r = 0; r < ranks; ++r) {
    GraphBuilder g;
    const Value x = g.Input("x", kData, {DType::kF32, shape});
    g.Output("y", body(g, x, r));
    auto graph = g.Finish();
    EXPECT_TRUE(graph.ok()) << graph.status();
    if (!graph.ok()) return {};
    programs.push_back({*std::move(graph), {Bytes(Numbered(r, shape))}});
  }
  CompileOptions reference;
  reference.reference_kernels = true;
  const auto plain = RunRanks(programs, reference), fast = RunRanks(programs);
  EXPECT_TRUE(plain.ok()) << plain.status();
  EXPECT_TRUE(fast.ok()) << fast.status();
  if (!plain.ok() || !fast.ok()) return {};
  EXPECT_EQ(*plain, *fast);
  std::vector<std::vector<float>> out;
  for (const auto& outputs : *fast) out.push_back(Floats(outputs[0]));
  return out;
}

const std::vector<int64_t> kTwo = {0, 1};

TEST(Collectives, AllReduce) {
  for (const auto& [op, want] : {std::make_pair("sum", 102.f), {"max", 101.f}, {"min", 1.f}, {"mean", 51.f}}) {
    const auto y = RunBody(2, {2}, [&, op = op](GraphBuilder& g, Value x, int) {
      return g.Op("all_reduce", {x}, {{"group", kTwo}, {"op", std::string(op)}});
    });
    EXPECT_THAT(y, ElementsAre(ElementsAre(::testing::_, want), ElementsAre(::testing::_, want))) << op;
  }
}

TEST(Collectives, AllGatherJoinsAnyDimension) {
  const auto gather = [](int64_t axis) {
    return RunBody(2, {2, 2}, [axis](GraphBuilder& g, Value x, int) {
      return g.Op("all_gather", {x}, {{"group", kTwo}, {"axis", axis}});
    });
  };
  EXPECT_THAT(gather(0)[1], ElementsAre(0, 1, 2, 3, 100, 101, 102, 103));
  EXPECT_THAT(gather(1)[0], ElementsAre(0, 1, 100, 101, 2, 3, 102, 103));
}

TEST(Collectives, ReduceScatterCutsAnyDimension) {
  const auto scatter = [](int64_t axis, int rank) {
    return RunBody(2, {2, 2}, [axis](GraphBuilder& g, Value x, int) {
      return g.Op("reduce_scatter", {x}, {{"group", kTwo}, {"axis", axis}});
    })[rank];
  };
  EXPECT_THAT(scatter(0, 0), ElementsAre(100, 102));
  EXPECT_THAT(scatter(0, 1), ElementsAre(104, 106));
  EXPECT_THAT(scatter(1, 0), ElementsAre(100, 104));
  EXPECT_THAT(scatter(1, 1), ElementsAre(102, 106));
}

// all_to_all from shards along one dimension to shards along another is all_gather and a slice.
TEST(Collectives, AllToAllMovesTheCut) {
  for (const auto& [from, to] : {std::make_pair(0, 1), {1, 0}, {2, 1}, {0, 2}, {2, 2}}) {
    const auto move = [&, from = from, to = to](GraphBuilder& g, Value x, int) {
      return g.Op(
          "all_to_all", {x},
          {{"group", std::vector<int64_t>{2, 0, 1}}, {"split_axis", int64_t{to}}, {"concat_axis", int64_t{from}}});
    };
    const auto gather = [&, from = from, to = to](GraphBuilder& g, Value x, int rank) {
      const Value all = g.Op("all_gather", {x}, {{"group", std::vector<int64_t>{2, 0, 1}}, {"axis", int64_t{from}}});
      if (from == to) return x;
      const int64_t place = (rank + 1) % 3;
      const Shape shape = g.TypeOf(all).shape;
      std::vector<int64_t> begin(3, 0), end(shape.begin(), shape.end());
      end[to] = shape[to] / 3 * (place + 1);
      begin[to] = shape[to] / 3 * place;
      return g.Op("strided_slice", {all}, {{"begin", begin}, {"end", end}, {"strides", std::vector<int64_t>{1, 1, 1}}});
    };
    if (from == to) continue;
    EXPECT_EQ(RunBody(3, {3, 6, 3}, move), RunBody(3, {3, 6, 3}, gather)) << from << " " << to;
  }
}

// A cycle, a pair and a rank that keeps its own.
TEST(Collectives, PermuteMovesWholeTensors) {
  const std::vector<int64_t> group = {0, 1, 2, 3, 4, 5}, source = {2, 0, 1, 4, 3, 5};
  const auto y = RunBody(6, {1}, [&](GraphBuilder& g, Value x, int rank) {
    const int64_t target = std::find(source.begin(), source.end(), rank) - source.begin();
    return g.Op("collective_permute", {x},
                {{"group", group}, {"source", source[static_cast<size_t>(rank)]}, {"target", target}});
  });
  for (size_t r = 0; r < y.size(); ++r) EXPECT_THAT(y[r], ElementsAre(static_cast<float>(100 * source[r])));
  EXPECT_EQ(y.size(), 6u);
}

TEST(Collectives, BroadcastSendAndReceive) {
  const auto y = RunBody(2, {2}, [](GraphBuilder& g, Value x, int) {
    return g.Op("broadcast", {x}, {{"group", kTwo}, {"root", int64_t{1}}});
  });
  EXPECT_THAT(y, ElementsAre(ElementsAre(100, 101), ElementsAre(100, 101)));
  const auto z = RunBody(2, {2}, [](GraphBuilder& g, Value x, int rank) {
    return g.Op(rank == 0 ? "send" : "recv", {x}, {{"group", kTwo}, {"peer", int64_t{1 - rank}}, {"tag", int64_t{7}}});
  });
  EXPECT_THAT(z, ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1)));
}

TEST(Collectives, ASubgroupIsItsMembersBusiness) {
  const auto y = RunBody(4, {1}, [](GraphBuilder& g, Value x, int rank) {
    const std::vector<int64_t> pair = rank % 2 == 0 ? std::vector<int64_t>{0, 2} : std::vector<int64_t>{3, 1};
    return g.Op("all_gather", {x}, {{"group", pair}});
  });
  EXPECT_THAT(y, ElementsAre(ElementsAre(0, 200), ElementsAre(300, 100), ElementsAre(0, 200), ElementsAre(300, 100)));
}

// The gradient of the sum of all ranks' losses, w_r . op(x)_r, by its definition: for linear operators dx = op^T w.
// Checked as <w, op(x)> = <op^T w, x>, summed over ranks.
TEST(Collectives, GradientsAreTheTransposes) {
  struct Case {
    const char* op;
    Attrs attrs;
  };
  const std::vector<int64_t> all = {1, 0, 2};
  for (const Case& c :
       {Case{"all_reduce", {{"group", all}}}, Case{"all_reduce", {{"group", all}, {"op", std::string("mean")}}},
        Case{"all_gather", {{"group", all}, {"axis", int64_t{1}}}},
        Case{"reduce_scatter", {{"group", all}, {"axis", int64_t{1}}}},
        Case{"reduce_scatter", {{"group", all}, {"op", std::string("mean")}}},
        Case{"all_to_all", {{"group", all}, {"split_axis", int64_t{1}}}},
        Case{"broadcast", {{"group", all}, {"root", int64_t{2}}}},
        Case{"reduce", {{"group", all}, {"root", int64_t{2}}}}}) {
    std::vector<RankProgram> programs;
    for (int r = 0; r < 3; ++r) {
      GraphBuilder g;
      const Value x = g.Input("x", kData, {DType::kF32, {3, 3}});
      const Value y = g.Op(c.op, {x}, c.attrs);
      const Value w = g.Op("iota", {}, {{"size", NumElements(g.TypeOf(y).shape)}, {"dtype", DType::kF32}});
      const Value weights = Mul(g, Reshape(g, w, g.TypeOf(y).shape), 0.5 + r);
      const Value loss = ReduceSum(g, Mul(g, y, weights), {0, 1}, false);
      const auto dx = Gradients(g, loss, {x});
      ASSERT_TRUE(dx.ok()) << c.op << ": " << dx.status();
      g.Output("forward", loss);
      g.Output("backward", ReduceSum(g, Mul(g, (*dx)[0], x), {0, 1}, false));
      programs.push_back({*g.Finish(), {Bytes(Numbered(r + 1, {3, 3}))}});
    }
    const auto out = RunRanks(programs);
    ASSERT_TRUE(out.ok()) << c.op << ": " << out.status();
    double forward = 0, backward = 0;
    for (const auto& o : *out) forward += Floats(o[0])[0], backward += Floats(o[1])[0];
    EXPECT_GT(forward, 0) << c.op;
    EXPECT_NEAR(forward / backward, 1, 1e-6) << c.op;
  }
}

// Seven all_reduces in three buckets, or each alone.
std::vector<RankProgram> SevenReductions(bool buckets) {
  std::vector<RankProgram> programs;
  for (int r = 0; r < 3; ++r) {
    GraphBuilder g;
    const Value x = g.Input("x", kData, {DType::kF32, {5, 7}});
    const Value w = Mul(g, g.Input("w", kParameter, {DType::kF32, {7, 7}}), 0.003);
    Value h = Mul(g, x, 0.01);
    std::vector<Value> parts;
    for (int i = 0; i < 6; ++i) {
      h = g.Op("tanh", {g.Op("matmul", {h, w})});
      parts.push_back(i % 2 == 0 ? h : Reshape(g, h, {35}));
    }
    parts.push_back(x);         // nobody makes it here
    parts.push_back(parts[1]);  // twice in a bucket
    std::vector<Value> sums;
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t fusion = buckets ? 1 + static_cast<int64_t>(i) / 3 : 0;
      sums.push_back(g.Op("all_reduce", {parts[i]}, {{"group", std::vector<int64_t>{0, 1, 2}}, {"fusion", fusion}}));
    }
    for (size_t i = 0; i < sums.size(); ++i) g.Output("y" + std::to_string(i), Mul(g, sums[i], 0.5));
    g.Output("h", h);  // also read after the bucket has begun
    programs.push_back({*g.Finish(), {Bytes(Numbered(r, {5, 7})), Bytes(Numbered(1, {7, 7}))}});
  }
  return programs;
}

// Buckets change where values lie and when they travel, not a bit of them.
TEST(Buckets, GiveTheSameBits) {
  CompileOptions share;
  share.share = true;
  const auto want = RunRanks(SevenReductions(false), {}, 2), got = RunRanks(SevenReductions(true), {}, 2),
             shared = RunRanks(SevenReductions(true), share, 2);
  ASSERT_TRUE(want.ok() && got.ok() && shared.ok()) << want.status() << got.status() << shared.status();
  EXPECT_TRUE(*want == *got);
  EXPECT_TRUE(*want == *shared);
}

// What a bucket reduces is made in its place: contiguous, shared, no copy.
TEST(Buckets, LieInOnePiece) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {4, 4}}), w = g.Input("w", kData, {DType::kF32, {4, 4}});
  std::vector<Value> made;
  for (int i = 0; i < 3; ++i) made.push_back(g.Op("matmul", {i == 0 ? x : made.back(), w}));
  const std::vector<Value> flat = {
      Reshape(g, g.Op("transpose", {made[0]}, {{"perm", std::vector<int64_t>{1, 0}}}), {16}),
      g.Op("transpose", {made[1]}, {{"perm", std::vector<int64_t>{1, 0}}})};
  const Attrs attrs = {{"group", kTwo}};
  const std::vector<Value> started = g.OpMulti("all_reduce_start", flat, attrs);
  const std::vector<Value> done = g.OpMulti("all_reduce_wait", started, attrs);
  for (Value v : done) g.Output("y", g.Op("neg", {v}));
  const Graph graph = *g.Finish();
  const MemoryPlan plan = PlanMemory(graph, std::vector<int64_t>(graph.nodes.size(), 0), true);
  const auto at = [&](Value v) { return plan.values[v.node][v.output]; };
  EXPECT_EQ(at(done[1]).offset - at(done[0]).offset, BucketStride({DType::kF32, {16}}));
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(at(flat[k]).kind, Placement::kShared);
    EXPECT_EQ(at(flat[k]).offset, at(started[k]).offset);
    EXPECT_EQ(at(flat[k]).offset, at(done[k]).offset);
  }
  EXPECT_EQ(plan.shared_bytes, 128);
}

// Ranks share memory that the next program, such as an evaluation, writes over.
TEST(Collectives, WhatTheHostReadsIsNotInSharedMemory) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {4, 4}});
  const Value inner = g.Op("all_reduce", {g.Op("neg", {x})}, {{"group", kTwo}});
  const Value sum = g.Op("all_reduce", {ReduceSum(g, inner, {0, 1}, false)}, {{"group", kTwo}});
  g.Output("sum", Reshape(g, sum, {1}));
  const Graph graph = *g.Finish();
  const std::vector<int64_t> scratch(graph.nodes.size(), 0);
  for (const int64_t apart : {0, 64}) {
    const MemoryPlan plan = PlanMemory(graph, scratch, true, 0, apart);
    EXPECT_EQ(plan.values[inner.node][0].kind, Placement::kShared);
    EXPECT_EQ(plan.values[sum.node][0].kind, apart > 0 ? Placement::kOutput : Placement::kArena);
    EXPECT_EQ(plan.output_bytes, apart);
  }
}

TEST(Collectives, WithoutRanksTheMistakeIsNamed) {
  GraphBuilder g;
  auto line = std::make_shared<Location>();
  line->file = "train.lua";
  line->line = 8;
  g.SetLocation(line);
  const Value x = g.Input("x", kData, {DType::kF32, {2}});
  g.Output("y", g.Op("all_reduce", {x}, {{"group", kTwo}}));
  const Status status = Executable::Compile(*g.Finish(), nullptr).status();
  EXPECT_THAT(status.message(), HasSubstr("train.lua:8"));
  EXPECT_THAT(status.message(), HasSubstr("all_reduce over 2 ranks, but this job has one: start it with -n 2"));
}

// Ranks that all run y = op(x).
std::string ProblemOf(const std::string& op, const Attrs& attrs) {
  std::vector<RankProgram> programs;
  for (int r = 0; r < 2; ++r) {
    GraphBuilder g;
    g.Output("y", g.Op(op, {g.Input("x", kData, {DType::kF32, {2}})}, attrs));
    programs.push_back({*g.Finish(), {Bytes({1, 2})}});
  }
  return std::string(RunRanks(programs).status().message());
}

TEST(Collectives, StartsAndEndsBelongToOneGraph) {
  EXPECT_THAT(ProblemOf("all_reduce_start", {{"group", kTwo}}),
              HasSubstr("all_reduce_start: expected an all_reduce_wait in the same graph"));
  EXPECT_THAT(ProblemOf("all_reduce_wait", {{"group", kTwo}}),
              HasSubstr("all_reduce_wait: expected the results of one all_reduce_start in the same graph"));
  const Attrs message = {{"group", kTwo}, {"peer", int64_t{1}}};
  EXPECT_THAT(ProblemOf("stage_send", message), HasSubstr("stage_send: expected a stage_sent in the same graph"));
  EXPECT_THAT(ProblemOf("stage_sent", message),
              HasSubstr("stage_sent: expected the result of a stage_send in the same graph"));
}

TEST(Collectives, BoxesOfAnExchangeLieInItsTensors) {
  const auto problem = [](std::vector<int64_t> messages) {
    return ProblemOf("exchange", {{"group", kTwo}, {"shape", std::vector<int64_t>{1}}, {"messages", messages}});
  };
  EXPECT_EQ(problem({0, 1, 1, 0, 1, 1, 0, 0, 0, 1}), "");
  EXPECT_THAT(problem({}), HasSubstr("exchange: this rank gets 0 elements, expected the 1 of the result"));
  EXPECT_THAT(problem({0, 1, 2, 0, 1, 1, 0, 2, 0, 1}), HasSubstr("a box that does not lie in x"));
  EXPECT_THAT(problem({0, 1, 0, 1, 1, 1, 0, 0, 1, 1}), HasSubstr("a box that does not lie in the result"));
}

TEST(Collectives, RanksThatDifferAreToldBothLines) {
  std::vector<RankProgram> programs;
  for (int r = 0; r < 2; ++r) {
    GraphBuilder g;
    auto line = std::make_shared<Location>();
    line->file = "train.lua";
    line->line = 8 + r;
    g.SetLocation(line);
    const Value x = g.Input("x", kData, {DType::kF32, {2}});
    g.Output("y", g.Op(r == 0 ? "all_reduce" : "all_gather", {x}, {{"group", kTwo}}));
    programs.push_back({*g.Finish(), {Bytes({1, 2})}});
  }
  const Status status = RunRanks(programs).status();
  EXPECT_THAT(status.message(), HasSubstr("train.lua:8"));
  EXPECT_THAT(status.message(), HasSubstr("train.lua:9"));
}

}  // namespace
}  // namespace mslua
