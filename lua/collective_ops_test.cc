// ms.ops.AllReduce and its like, eager and traced, on ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "lua/testing/rank_sessions.h"

namespace mslua {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RunSessions;

constexpr char kSetup[] =
    "local ms = require 'mslua' local ops, nn = ms.ops, ms.nn ms.communication.init() "
    "local rank = ms.communication.get_rank() ";

TEST(CollectiveOps, AllGatherOfTheTutorial) {
  EXPECT_THAT(RunSessions(4, std::string(kSetup) + R"(
    local Net = nn.Cell:extend "Net"
    function Net:init() self.all_gather = ops.AllGather() end
    function Net:construct(x) return self.all_gather(x) end
    return Net()(ms.Tensor({{rank}})))",
                          "run"),
              Each("[[0.],\n [1.],\n [2.],\n [3.]]"));
}

TEST(CollectiveOps, EagerOnes) {
  EXPECT_THAT(RunSessions(2, std::string(kSetup) + R"(
    local x = ms.Tensor {{1, 2}, {3, 4}} * (rank + 1)
    return ops.AllReduce(ops.ReduceOp.MAX)(x), ops.ReduceScatter()(x), ops.Broadcast(1)(x),
      ops.AlltoAll(2, 1, 2)(x), ops.AllGather{axis = 2}(x))",
                          "run"),
              ElementsAre("[[2., 4.],\n [6., 8.]] [[3., 6.]] [[2., 4.],\n [6., 8.]] [[1., 2., 2., 4.]] "
                          "[[1., 2., 2., 4.],\n [3., 4., 6., 8.]]",
                          "[[2., 4.],\n [6., 8.]] [[ 9., 12.]] [[2., 4.],\n [6., 8.]] [[3., 4., 6., 8.]] "
                          "[[1., 2., 2., 4.],\n [3., 4., 6., 8.]]"));
}

TEST(CollectiveOps, MessagesAndGroups) {
  EXPECT_THAT(RunSessions(3, std::string(kSetup) + R"(
    if rank == 1 then return "alone" end
    ms.communication.create_group("ends", {0, 2})
    local sum = ops.AllReduce{group = "ends"}(ms.Tensor({rank + 1}))
    if rank == 0 then ops.Send(7, 2, "ends")(sum) return sum end
    return ops.Receive{sr_tag = 7, src_rank = 0, shape = {1}, dtype = ms.float32, group = "ends"}())",
                          "run"),
              ElementsAre("[4.]", "alone", "[4.]"));
}

TEST(CollectiveOps, ReceiveTakesATensorOfItsType) {
  const std::string receive = R"(
    if rank == 0 then ops.Send(7, 1)(ms.ones {2, 3}) return "sent" end
    return ops.Receive{sr_tag = 7, src_rank = 0, shape = {2, 3}, dtype = ms.float32}($X))";
  for (const char* good : {"ms.zeros {2, 3}", ""}) {
    EXPECT_EQ(RunSessions(2, std::string(kSetup) + absl::StrReplaceAll(receive, {{"$X", good}}), "run")[1],
              "[[1., 1., 1.],\n [1., 1., 1.]]");
  }
  for (const char* bad : {"ms.zeros {3, 2}", "ms.zeros({2, 3}, ms.int32)"}) {
    EXPECT_THAT(RunSessions(2, std::string(kSetup) + absl::StrReplaceAll(receive, {{"$X", bad}}), "run")[1],
                HasSubstr("and what is received float32{2, 3}"));
  }
}

// The loss of the job is the sum of the ranks' losses.
TEST(CollectiveOps, GradientsCrossRanks) {
  EXPECT_THAT(RunSessions(2, std::string(kSetup) + R"(
    local f = function(x) return (ops.AllReduce()(x) * (rank + 1)):sum() end
    return ms.grad(f)(ms.Tensor {1, 2}))",
                          "run"),
              Each("[3., 3.]"));
}

TEST(CollectiveOps, Mistakes) {
  const auto first = [](const std::string& code, const std::string& verb = "train") {
    return RunSessions(2, "local ms = require 'mslua' local ops = ms.ops " + code, verb)[0];
  };
  EXPECT_THAT(first("return ops.AllReduce()(ms.Tensor {1})", "run"), HasSubstr("call ms.communication.init() first"));
  EXPECT_THAT(first("return ops.AllReduce{group = 'left'}(ms.Tensor {1})"), HasSubstr("there is no group 'left'"));
  EXPECT_THAT(first("return ops.AllReduce('avg')"), HasSubstr("expected one of \"sum\", \"prod\""));
  EXPECT_THAT(first("local y = ops.ReduceScatter()(ms.Tensor {1, 2, 3}) return y"),
              HasSubstr("ranks.lua:1: ReduceScatter: x is f32[3]: dimension 1 of size 3 does not divide into 2"));
  EXPECT_THAT(first("return ops.Broadcast(2)(ms.Tensor {1})"), HasSubstr("root: rank 2 is not in the group [0,1]"));
  EXPECT_THAT(first("return ops.AlltoAll(4, 1, 1)(ms.Tensor {1})"), HasSubstr("split_count is 4"));
}

TEST(CollectiveOps, OnlyMembersOfAGroupUseIt) {
  const auto answers = RunSessions(2, std::string(kSetup) + R"(
    ms.communication.create_group("g", { 0 })
    local ok, y = pcall(ops.AllReduce { group = "g" }, ms.Tensor {3})
    return tostring(y))",
                                   "run");
  EXPECT_EQ(answers[0], "[3.]");
  EXPECT_THAT(answers[1], HasSubstr("AllReduce: rank 1 is not in the group 'g' of ranks {0}"));
}

// A group of one rank needs no others.
TEST(CollectiveOps, OneRank) {
  EXPECT_THAT(RunSessions(1, std::string(kSetup) + "return ops.AllReduce()(ms.Tensor {1, 2})", "run"),
              ElementsAre("[1., 2.]"));
}

}  // namespace
}  // namespace mslua
