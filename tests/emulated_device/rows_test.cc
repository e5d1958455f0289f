// Rows with their chains on the emulated device: the bits are those of the kernels one by one.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/device/device.h"
#include "core/graph/builder.h"
#include "core/passes/passes.h"
#include "core/runtime/executable.h"
#include "tests/emulated_device/use_emulated_device.h"

namespace mslua {
namespace {

class RowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(testing::UseEmulatedDevice().ok());
    auto device = Device::Open(0);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *device;
  }

  // The results of the second run, which is captured, as numbers; of a graph as it is.
  StatusOr<std::vector<std::vector<double>>> Run(const Graph& graph) {
    Store store;
    CompileOptions options;
    options.device = device_;
    options.optimize = false;
    ASSIGN_OR_RETURN(const auto e, Executable::Compile(graph, &store, options));
    std::vector<std::string> data;
    for (const int32_t i : graph.Inputs()) {
      const TensorType& t = graph.nodes[i].outputs[0];
      data.emplace_back(static_cast<size_t>(t.bytes()), '\0');
      for (int64_t k = 0; k < t.elements(); ++k)
        StoreDouble(t.dtype, &data.back()[0], k,
                    IsFloat(t.dtype) ? 0.03 * static_cast<double>((k * 37 + i * 11) % 101 - 50)
                                     : static_cast<double>((k * 5 + label_) % 7));
      RETURN_IF_ERROR(e->BindInput(graph.nodes[i].attrs.Str("name"), data.back().data()));
    }
    for (int run = 0; run < 2; ++run) RETURN_IF_ERROR(e->Run());
    std::vector<std::vector<double>> results;
    for (size_t o = 0; o < graph.outputs.size(); ++o) {
      const TensorView v = e->Output(static_cast<int>(o));
      results.emplace_back();
      for (int64_t k = 0; k < v.type.elements(); ++k) results.back().push_back(LoadAsDouble(v.type.dtype, v.data, k));
    }
    return results;
  }

  // The graph after elementwise fusion, and with rows too. Its results in f32 are the same bits.
  void ExpectSame(const std::function<void(GraphBuilder&)>& build, bool bits) {
    GraphBuilder g("rows");
    build(g);
    const Graph before = FuseForDevice(EliminateDeadNodes(Simplify(*g.Finish()))), after = FuseRows(before);
    int fused = 0;
    for (const Node& n : after.nodes) fused += n.op->name == "fused_rows";
    EXPECT_GT(fused, 0);
    const auto want = Run(before), got = Run(after);
    ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    for (size_t o = 0; o < want->size(); ++o) {
      for (size_t k = 0; k < (*want)[o].size(); ++k) {
        const double a = (*want)[o][k], b = (*got)[o][k];
        ASSERT_NEAR(a, b, bits ? 0 : 0.02 * (1 + std::abs(a))) << "output " << o << ", element " << k;
      }
    }
  }

  Device* device_ = nullptr;
  int label_ = 0;
};

// A residual and a norm of rows that one thread, registers and loops hold, with what follows it.
TEST_F(RowsTest, NormsHaveTheBitsOfTheirParts) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int64_t n : {8, 65, 256, 1000, 12000}) {
      ExpectSame(
          [&](GraphBuilder& g) {
            const Value x = g.Input("x", kData, {type, {5, n}}), z = g.Input("z", kData, {type, {5, n}}),
                        scale = g.Input("scale", kData, {DType::kF32, {n}}),
                        bias = g.Input("bias", kData, {DType::kF32, {n}});
            const Value sum = Add(g, x, z);
            const auto y = g.OpMulti("layer_norm", {sum, scale, bias}, {});
            g.Output("sum", sum);
            g.Output("y", Cast(g, y[0], DType::kBF16));
            g.Output("z", g.Op("tanh", {y[0]}));
            g.Output("mean", y[1]);
            g.Output("rstd", y[2]);
            g.Output("dx", Add(g, g.Op("layer_norm_grad_input", {z, x, y[1], y[2], scale}), Mul(g, z, 0.5)));
          },
          type == DType::kF32);
    }
  }
}

TEST_F(RowsTest, LossesAndSumsHaveTheBitsOfTheirParts) {
  for (const int64_t n : {10, 65, 3001}) {
    ExpectSame(
        [&](GraphBuilder& g) {
          const Value x = g.Input("x", kData, {DType::kF32, {6, n}}),
                      labels = g.Input("labels", kData, {DType::kI32, {6}});
          const Value logits = Mul(g, x, 0.25);
          const auto loss = g.OpMulti("sparse_softmax_cross_entropy", {logits, labels}, {{"label_smoothing", 0.1}});
          for (Value v : loss) g.Output("loss", v);
          const Value softmax = g.Op("softmax", {Mul(g, x, 2.0)});
          g.Output("softmax", g.Op("exp", {softmax}));
        },
        true);
    ExpectSame(
        [&](GraphBuilder& g) {
          const Value x = g.Input("x", kData, {DType::kF32, {40, n}}), z = g.Input("z", kData, {DType::kF32, {40, n}});
          const Value y = Mul(g, x, z);
          g.Output("columns", ReduceSum(g, y, {0}, true));
          g.Output("squares", ReduceSum(g, Mul(g, x, x), {0, 1}, false));
          g.Output("y", y);
        },
        true);
  }
}

// A wrong label of a loss that a chain has joined: the error of the loss alone.
TEST_F(RowsTest, AWrongLabelIsNamed) {
  GraphBuilder g("rows");
  g.SetLocation(std::make_shared<Location>(Location{"Loss", "recipe.lua", 7, ""}));
  const Value x = g.Input("x", kData, {DType::kF32, {6, 6}}), labels = g.Input("labels", kData, {DType::kI32, {6}});
  g.Output("loss", g.OpMulti("sparse_softmax_cross_entropy", {Mul(g, x, 0.25), labels}, {})[0]);
  const Graph before = FuseForDevice(EliminateDeadNodes(*g.Finish())), after = FuseRows(before);
  label_ = 6;
  const auto want = Run(before), got = Run(after);
  EXPECT_TRUE(absl::StrContains(want.status().message(), "recipe.lua:7: Loss: the label of record 1 is 6"))
      << want.status();
  EXPECT_EQ(std::string(got.status().message()), std::string(want.status().message()));
}

}  // namespace
}  // namespace mslua
