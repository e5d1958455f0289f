#include "core/sharding/search/cost.h"

#include "core/autodiff/gradient.h"
#include "core/graph/builder.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

// y = x w, x f32[16,32] of data, w f32[32,8] a parameter; loss: the sum.
class CostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    x_ = g_.Input("x", kData, {DType::kF32, {16, 32}});
    w_ = g_.Input("w", kParameter, {DType::kF32, {32, 8}});
    y_ = g_.Op("matmul", {x_, w_});
    const Value loss = g_.Op("reduce_sum", {y_});
    const auto gradients = Gradients(g_, loss, {w_}, Value(), /*mark_origin=*/true);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    g_.Output("dw", (*gradients)[0]);
    graph_ = *g_.Finish();
    forward_ = *ForwardOf(graph_);
    cluster_.flops_per_second = 1e9;
    cluster_.bytes_per_second = 1e9;
  }
  Sharding Shard(const char* factor, AxisList axes) const {
    Sharding s(forward_.rules[y_.node]);
    s.factors[forward_.rules[y_.node].rule.Find(factor)] = axes;
    return s;
  }
  GraphBuilder g_;
  Value x_, w_, y_;
  Graph graph_;
  ForwardGraph forward_;
  Cluster cluster_;
  Resharder resharder_{*Mesh::Of(4)};
};

TEST_F(CostTest, ForwardNodesAndGradients) {
  EXPECT_TRUE(forward_.training);
  EXPECT_EQ(forward_.nodes.size(), 4u);
  ASSERT_EQ(forward_.edges.size(), 3u);
  EXPECT_FALSE(forward_.edges[0].gradient);  // of data
  EXPECT_TRUE(forward_.edges[1].gradient);
  EXPECT_TRUE(forward_.edges[2].gradient);
}

TEST_F(CostTest, ANodeTakesTheLargerOfArithmeticAndTraffic) {
  const CostModel model(graph_, forward_, cluster_, resharder_);
  // 2*16*32*8 = 8192 operations against 4*(512+256+128) = 3584 bytes; forward and one product backward.
  EXPECT_EQ(model.OfNode(y_.node, Sharding(forward_.rules[y_.node])).picoseconds, 2 * 8192000);
  EXPECT_EQ(model.OfNode(y_.node, Shard("k", {0, 1})).picoseconds, 2 * 8192000 / 4);
  EXPECT_EQ(model.OfNode(y_.node, Shard("k", {0, 1})).memory, 512);  // the output, whole and partial
  EXPECT_EQ(model.OfNode(y_.node, Shard("i", {0, 1})).memory, 128);
  EXPECT_LE(model.NodeBound(y_.node), 2 * 8192000 / 4);
}

TEST_F(CostTest, ANodeHasTheRateOfItsTypeAndTheCostOfItsLaunches) {
  cluster_.flops_per_second.bf16 = 1e15;
  cluster_.launch_seconds = 1e-6;
  // Forward and one product backward: a launch each, whatever the sharding.
  const CostModel model(graph_, forward_, cluster_, resharder_);
  EXPECT_EQ(model.OfNode(y_.node, Sharding(forward_.rules[y_.node])).picoseconds, 2 * (8192000 + 1000000));
  EXPECT_EQ(model.OfNode(y_.node, Shard("k", {0, 1})).picoseconds, 2 * (8192000 / 4 + 1000000));
  Graph sixteen = graph_;
  for (const Value v : {x_, w_}) sixteen.nodes[v.node].outputs[0].dtype = DType::kBF16;
  // At the rate of bf16 its traffic takes longer: the inputs' 2*(512+256) bytes and 4*128 of the output.
  const CostModel of_bf16(sixteen, forward_, cluster_, resharder_);
  EXPECT_EQ(of_bf16.OfNode(y_.node, Sharding(forward_.rules[y_.node])).picoseconds, 2 * (2048000 + 1000000));
}

TEST(Cluster, KnowsSomeDevices) {
  const Mesh mesh = *Mesh::Of(8);
  EXPECT_EQ(KnownDevices(), "h200|h100|a100|b200");
  for (const char* name : {"h200", "h100", "a100", "b200"}) {
    const auto text = DeviceFiguresText(name);
    ASSERT_TRUE(text.ok()) << text.status();
    const auto cluster = ParseCluster(*text, mesh);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    EXPECT_GT(cluster->flops_per_second.bf16, 10 * cluster->flops_per_second.f32) << name;
    EXPECT_GT(cluster->launch_seconds, 0);
    EXPECT_GE(cluster->memory_bytes, 80e9);
  }
  EXPECT_EQ(DeviceFiguresText("h201").status().message(), "unknown device 'h201': expected h200|h100|a100|b200|cuda");
}

TEST_F(CostTest, GradientsArePartialOverFactorsThatTheInputLacks) {
  const CostModel model(graph_, forward_, cluster_, resharder_);
  const Sharding whole(forward_.rules[w_.node]);
  const auto& edge = forward_.edges[1];
  const CostModel::Transfer back = model.BackwardMove(edge, whole, Shard("i", {0, 1}));
  EXPECT_EQ(back.from.ToString(), "[-, -] sum(ab)");
  EXPECT_EQ(back.to.ToString(), "[-, -]");
  EXPECT_EQ(model.ForwardMove(edge, whole, Shard("k", {0, 1})).to.ToString(), "[ab, -]");
  // Hidden behind the reader's backward arithmetic, for parameters only.
  EXPECT_EQ(model.Joined(edge, 5, 100, 30), 75);
  EXPECT_EQ(model.Joined(edge, 5, 10, 30), 5);
  EXPECT_EQ(model.Joined(forward_.edges[2], 5, 100, 30), 105);
}

// Every layout of a tensor of two dimensions on three axes, partial ones too.
std::vector<Layout> AllLayouts(const Mesh& mesh) {
  std::vector<Layout> all{Layout(2)};
  for (int a = 0; a < mesh.axes(); ++a) {
    const size_t count = all.size();
    for (size_t i = 0; i < count; ++i) {
      for (int d = 0; d < 3; ++d) {
        Layout l = all[i];
        if (d == 2)
          l.SetPartial(a, Reduction::kSum);
        else
          l.Append(d, a);
        all.push_back(l);
      }
    }
  }
  return all;
}

TEST_F(CostTest, NoPlanCostsLessThanItsBound) {
  for (int64_t ranks : {8, 12}) {
    const Mesh mesh = *Mesh::Of(ranks);
    Cluster cluster;
    cluster.links.axes = {{2e-5, 1e-9}, {1e-5, 2e-9}, {3e-6, 1e-10}};
    Resharder resharder(mesh, cluster.links);
    const CostModel model(graph_, forward_, cluster, resharder);
    const TensorType type{DType::kF32, {24, 48}};
    for (const Layout& from : AllLayouts(mesh)) {
      for (const Layout& to : AllLayouts(mesh)) {
        if (to.partial()) continue;
        const auto exact = model.Exact({from, to}, type);
        ASSERT_TRUE(exact.ok()) << exact.status();
        const Cost bound = model.Bound({from, to}, type);
        EXPECT_LE(bound.picoseconds, exact->picoseconds) << from.ToString() << " -> " << to.ToString();
        EXPECT_LE(bound.bytes, exact->bytes) << from.ToString() << " -> " << to.ToString();
      }
    }
  }
}

TEST(Cluster, IsReadFromJson) {
  const Mesh mesh = *Mesh::Of(6);
  const auto cluster = ParseCluster(
      R"({"flops_per_second": 1e12, "memory_bytes": 8e9, "axes": [{"seconds": 1e-5}, {"seconds_per_byte": 2e-10}]})",
      mesh);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->flops_per_second.Of(DType::kBF16), 1e12);
  EXPECT_EQ(cluster->memory_bytes, 8000000000);
  ASSERT_EQ(cluster->links.axes.size(), 2u);
  EXPECT_EQ(cluster->links.axes[0].alpha, 1e-5);
  EXPECT_EQ(cluster->links.axes[1].beta, 2e-10);
  const std::pair<const char*, const char*> bad[] = {
      {"[]", "cluster: expected a JSON object such as {\"flops_per_second\": 312e12}"},
      {"{\"flops_per_secnd\": 1}", "cluster: unknown member 'flops_per_secnd' (did you mean 'flops_per_second'?)"},
      {"{\"memory_bytes\": -1}", "cluster: memory_bytes is -1, expected a number above 0"},
      {"{\"flops_per_second\": {\"bf16\": 1}}", "cluster: flops_per_second: f32 is missing"},
      {"{\"flops_per_second\": {\"f32\": 1, \"bf61\": 1}}",
       "cluster: flops_per_second: unknown member 'bf61' (did you mean 'bf16'?)"},
      {"{\"launch_seconds\": 0}", "cluster: launch_seconds is 0, expected a number above 0"},
      {"{\"axes\": [{}, {}, {}]}", "cluster: axes has 3 entries, expected 1 or 2: 6 devices are 2x3"},
      {"{\"axes\": [{\"seconds\": \"1\"}]}", "cluster: axes[1]: seconds is \"1\", expected a number above 0"},
  };
  for (const auto& [text, message] : bad) EXPECT_EQ(ParseCluster(text, mesh).status().message(), message);
  EXPECT_EQ(ParseCluster("[", mesh).status().message().substr(0, 36), "cluster: not JSON at line 1, column ");
  // A tree this deep overflows the stack when it is shown in a message.
  for (const int depth : {17, 200000, 1000000}) {
    const std::string deep = "{\"flops_per_second\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
    EXPECT_EQ(ParseCluster(deep, mesh).status().message(), "cluster: JSON nested deeper than 16");
  }
}

}  // namespace
}  // namespace mslua
