// The memory that `mslua plan` says a rank needs is what the rank allocates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "collectives/groups.h"
#include "collectives/host/inproc.h"
#include "core/base/parallel_for.h"
#include "core/passes/run_passes.h"
#include "lua/compile_graph.h"
#include "lua/object.h"
#include "lua/open_session.h"
#include "lua/testing/evaluate.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {
namespace {

// A network of three blocks; `graph` is its compiled step's.
constexpr char kGraph[] = R"(
  local ms = require "mslua"
  local nn, ops = ms.nn, ms.ops
  ms.set_auto_parallel_context {parallel_mode = "$MODE" $CONTEXT}
  local Block = nn.Cell:extend "Block"
  function Block:init()
    self.up, self.down, self.norm = nn.Dense(64, 256), nn.Dense(256, 64), nn.LayerNorm(64)
  end
  function Block:construct(x) return x + self.down(ops.tanh(self.up(self.norm(x)))) end
  local Net = nn.Cell:extend "Net"
  function Net:init()
    self.blocks = nn.CellList()
    for i = 1, 3 do self.blocks:append(Block()) end
    $NET
  end
  function Net:construct(x)
    for _, block in self.blocks:each() do x = block(x) end
    return x
  end
  local net = Net()
  local model = ms.Model($STAGES and nn.PipelineCell(net, 4) or net,
    {loss_fn = nn.MSELoss(), optimizer = nn.Adam {learning_rate = 0.01}})
  local columns = {
    {name = "x", dtype = "float32", shape = {96, 64}}, {name = "y", dtype = "float32", shape = {96, 64}}}
  graph = model:train_spec {epoch = 1, columns = columns $TRAIN}.graph
)";

struct Case {
  std::string mode = "semi_auto_parallel", context, net, train, stages = "false";
};

// What a rank reports of its graph: as a plan made by one process, or as compiled by all ranks.
std::vector<PlanReport> Reports(int ranks, const Case& c, bool planned) {
  const std::string code = absl::StrReplaceAll(
      kGraph,
      {{"$MODE", c.mode}, {"$CONTEXT", c.context}, {"$NET", c.net}, {"$TRAIN", c.train}, {"$STAGES", c.stages}});
  std::vector<PlanReport> reports(static_cast<size_t>(ranks));
  auto world = MakeInprocWorld(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      SetComputeThreads(1);
      SessionOptions options;
      options.verb = planned ? "plan" : "train";
      options.rank = r;
      options.ranks = ranks;
      if (!planned) options.groups = std::make_shared<Groups>(std::move(world[static_cast<size_t>(r)]));
      const auto session = OpenSession(std::move(options));
      ASSERT_TRUE(session.ok()) << session.status();
      lua_State* const L = (*session)->lua();
      Status error;
      testing::Evaluate(**session, code, "@plan.lua", &error);
      EXPECT_TRUE(error.ok()) << error;
      if (!error.ok()) return;
      lua_getglobal(L, "graph");
      const auto* traced = ToObject<std::shared_ptr<TracedGraph>>(L, -1);
      ASSERT_NE(traced, nullptr);
      if (planned) {
        CompileOptions compile;
        compile.share = true;
        const auto graph = RunPasses((*traced)->graph, compile);
        ASSERT_TRUE(graph.ok()) << graph.status();
        const auto report = PlanOf(*graph, compile);
        ASSERT_TRUE(report.ok()) << report.status();
        reports[static_cast<size_t>(r)] = *report;
        return;
      }
      const auto executable = CompileGraph(**session, **traced, /*share=*/true);
      ASSERT_TRUE(executable.ok()) << executable.status();
      reports[static_cast<size_t>(r)] = (*executable)->report();
      EXPECT_EQ((*executable)->report().store_bytes, (*session)->state().store.bytes());
    });
  }
  for (std::thread& t : threads) t.join();
  return reports;
}

// Bytes of parameters and state, and of activations, of rank 0; the same in a plan and in a job.
std::pair<int64_t, int64_t> Bytes(int ranks, const Case& c) {
  const auto plan = Reports(ranks, c, true), job = Reports(ranks, c, false);
  for (size_t r = 0; r < plan.size(); ++r) {
    EXPECT_EQ(plan[r].store_bytes, job[r].store_bytes) << "rank " << r;
    EXPECT_EQ(plan[r].workspace_bytes, job[r].workspace_bytes) << "rank " << r;
    EXPECT_EQ(plan[r].shared_bytes, job[r].shared_bytes) << "rank " << r;
    EXPECT_EQ(plan[r].kernels, job[r].kernels) << "rank " << r;
  }
  return {plan[0].store_bytes, plan[0].workspace_bytes + plan[0].shared_bytes};
}

Case Level(const char* level) {
  Case c;
  c.context = absl::StrCat(
      ", enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 1, "
      "optimizer_level = '",
      level, "'}");
  c.train = ", accumulate_steps = 2";
  return c;
}

TEST(PlanMemory, FollowsTheLevelsOfTheOptimizer) {
  Case none;
  none.train = ", accumulate_steps = 2";
  const auto whole = Bytes(4, none), state = Bytes(4, Level("level1")), sums = Bytes(4, Level("level2")),
             all = Bytes(4, Level("level3"));
  // Adam's two moments are two thirds of what is stored; small biases stay whole.
  EXPECT_LT(state.first, whole.first * 0.52);
  EXPECT_EQ(sums.first, state.first);
  EXPECT_LT(all.first, whole.first * 0.27);
}

TEST(PlanMemory, FollowsRecomputationAndAccumulation) {
  Case plain, recompute, accumulate;
  recompute.net = "for _, block in self.blocks:each() do block:recompute() end";
  accumulate.train = ", accumulate_steps = 4";
  const auto whole = Bytes(2, plain);
  EXPECT_LT(Bytes(2, recompute).second, whole.second * 0.6);
  EXPECT_LT(Bytes(2, accumulate).second, whole.second);
  EXPECT_EQ(Bytes(2, accumulate).first, whole.first);
}

TEST(PlanMemory, IsThatOfEveryModeAndStage) {
  Case c;
  for (const char* mode : {"data_parallel", "auto_parallel"}) {
    c.mode = mode;
    Bytes(2, c);
  }
  c.mode = "data_parallel";
  c.context = ", enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 1}";
  Bytes(3, c);
  Case cut;
  cut.net =
      "self.blocks[1].up.op:shard {{1, 2}, {1, 2}} self.blocks[2].up.op:shard {{2, 1}, {2, 1}} "
      "self.blocks[3].up.op:shard({{1, 1}, {4, 1}}, {{1, 4}})";
  Bytes(4, cut);
  Case staged;
  staged.context = ", pipeline_stages = 2";
  staged.stages = "true";
  staged.net = "self.blocks[1].pipeline_stage, self.blocks[2].pipeline_stage = 0, 1";
  Bytes(4, staged);
}

}  // namespace
}  // namespace mslua
