#include "core/passes/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/graph/builder.h"
#include "core/op/marks.h"
#include "core/passes/run_passes.h"

namespace mslua {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> Sizes(const std::vector<int64_t>& buckets) {
  std::vector<int64_t> sizes;
  for (const int64_t b : buckets) {
    sizes.resize(std::max<size_t>(sizes.size(), static_cast<size_t>(b) + 1), 0);
    ++sizes[static_cast<size_t>(b)];
  }
  return sizes;
}

std::vector<BucketMember> Members(int n, int64_t bytes) {
  return std::vector<BucketMember>(static_cast<size_t>(n), {DType::kF32, bytes, 1});
}

TEST(AssignBuckets, ByIndexAsTheTutorialSays) {
  BucketRule rule;
  rule.segments = {20, 35};
  EXPECT_THAT(Sizes(AssignBuckets(rule, Members(40, 1 << 30))), ElementsAre(20, 15, 5));
  rule.segments = {20, 50};  // beyond the last: nothing more
  EXPECT_THAT(Sizes(AssignBuckets(rule, Members(40, 4))), ElementsAre(20, 20));
}

TEST(AssignBuckets, BySize) {
  BucketRule rule;
  EXPECT_THAT(Sizes(AssignBuckets(rule, Members(40, 1000))), ElementsAre(40));
  rule.bytes = 3500;
  EXPECT_THAT(Sizes(AssignBuckets(rule, Members(8, 1000))), ElementsAre(3, 3, 2));
  rule.bytes = 500;  // one that is too large is alone
  EXPECT_THAT(Sizes(AssignBuckets(rule, Members(3, 1000))), ElementsAre(1, 1, 1));
  rule.bytes = 0;
  EXPECT_THAT(Sizes(AssignBuckets(rule, Members(40, 1 << 30))), ElementsAre(40));
}

TEST(AssignBuckets, FusionNumbersAndTypesStayApart) {
  std::vector<BucketMember> members = Members(6, 4);
  members[1].fusion = members[4].fusion = 2;
  members[2].fusion = members[3].fusion = 0;
  members[5].dtype = DType::kBF16;
  EXPECT_THAT(AssignBuckets({}, members), ElementsAre(0, 1, 2, 3, 1, 4));
}

class Pass : public ::testing::Test {
 protected:
  Value Reduce(Value v, int64_t fusion) {
    return g_.Op("all_reduce", {v}, {{"group", std::vector<int64_t>{0, 1}}, {"fusion", fusion}});
  }
  // One row for each of two ranks.
  Value Scatter(Value v, int64_t fusion) {
    return g_.Op("reduce_scatter", {v}, {{"group", std::vector<int64_t>{0, 1}}, {"fusion", fusion}});
  }
  std::string Names() {
    const Graph graph = BucketCollectives(*g_.Finish());
    EXPECT_TRUE(Verify(graph).ok()) << Verify(graph) << ToString(graph);
    std::string names;
    for (const Node& n : graph.nodes) {
      if (n.op->name == "all_reduce_start") names += "start" + std::to_string(n.inputs.size()) + " ";
      if (n.op->name == "all_reduce_wait") names += "wait ";
      if (n.op->name == "reduce_scatter" || n.op->name == "all_gather")
        names += n.op->name + (mark::kMembers.Has(n.attrs) ? std::to_string(mark::kMembers.Get(n.attrs)) : "") + " ";
      if (n.op->name == "tanh" || n.op->name == "exp" || n.op->name == "all_reduce") names += n.op->name + " ";
    }
    return names;
  }
  GraphBuilder g_;
  const Value x_ = g_.Input("x", kData, {DType::kF32, {4}});
};

TEST_F(Pass, BeginsEarlyAndWaitsLate) {
  const Value a = g_.Op("tanh", {x_}), b = g_.Op("tanh", {a}), c = g_.Op("tanh", {b});
  const Value sum_a = Reduce(a, 1), sum_b = Reduce(b, 1), sum_c = Reduce(c, 2);
  g_.Output("y", g_.Op("exp", {sum_c}));
  g_.Output("z", g_.Op("exp", {sum_b}));
  g_.Output("w", sum_a);
  EXPECT_EQ(Names(), "tanh tanh start2 tanh start1 wait exp wait exp ");
}

TEST_F(Pass, WhatNeedsAResultIsNotInItsBucket) {
  const Value a = Reduce(x_, 1), b = Reduce(g_.Op("tanh", {a}), 1), c = Reduce(b, 1);
  g_.Output("y", c);
  EXPECT_EQ(Names(), "start1 wait tanh start1 wait start1 wait ");
}

TEST_F(Pass, WhatABucketAndAnotherNodeReadIsNotInALaterOne) {
  const Value a = Reduce(x_, 1), z = g_.Op("exp", {x_}), c = Reduce(z, 1);
  g_.Output("r", g_.Op("tanh", {a}));
  g_.Output("b", Reduce(a, 2));
  g_.Output("c", c);
  EXPECT_EQ(Names(), "start1 wait start1 exp start1 tanh wait wait ");
}

TEST_F(Pass, BlocksOfOneNumberTravelTogether) {
  const Value a = g_.Op("tanh", {x_}), b = g_.Op("exp", {a});
  const Value one = Scatter(a, 1), two = Scatter(b, 1), three = Scatter(b, 2);
  const Value y = g_.Op("tanh", {one}), z = g_.Op("tanh", {two});
  const auto gather = [&](Value v) {
    return g_.Op("all_gather", {v}, {{"group", std::vector<int64_t>{0, 1}}, {"fusion", int64_t{1}}});
  };
  g_.Output("y", gather(y));
  g_.Output("z", gather(z));
  g_.Output("w", three);
  EXPECT_EQ(Names(), "tanh exp reduce_scatter2 reduce_scatter tanh tanh all_gather2 ");
}

// A rank's part has constants of its own. Where one of them is 1, what it multiplies is known earlier.
TEST_F(Pass, CallsBeginInOneOrderWhateverOneRanksConstantsMakeEqual) {
  const auto calls = [](double factor) {
    GraphBuilder g;
    const Value x = g.Input("x", kData, {DType::kF32, {4, 4}});
    const auto reduce = [&](Value v, int64_t fusion) {
      return g.Op("all_reduce", {v}, {{"group", std::vector<int64_t>{0, 1}}, {"fusion", fusion}});
    };
    const Value early = g.Op("matmul", {x, x}), late = g.Op("matmul", {early, x});
    const Value scaled = g.Op("matmul", {Mul(g, x, g.Constant(factor, DType::kF32)), x});
    g.Output("a", reduce(late, 1));
    g.Output("b", reduce(scaled, 2));
    g.Output("c", g.Op("all_gather", {early}, {{"group", std::vector<int64_t>{0, 1}}, {"axis", int64_t{1}}}));
    const Graph graph = *RunPasses(*g.Finish(), PassOptions());
    std::vector<std::vector<int64_t>> calls;
    for (const Node& n : graph.nodes) {
      if (n.op->name == "all_reduce_start" || n.op->name == "all_gather") calls.push_back(mark::kCalls.Get(n.attrs));
    }
    return calls;
  };
  EXPECT_THAT(calls(2), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  EXPECT_EQ(calls(1), calls(2));
}

TEST_F(Pass, FusionZeroStaysAsItIs) {
  g_.Output("y", Reduce(x_, 0));
  EXPECT_EQ(Names(), "all_reduce ");
}

}  // namespace
}  // namespace mslua
