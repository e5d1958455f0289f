// Sizes, padding and messages of convolution; its numbers are checked by ops_test.cc.
#include <cmath>

#include "core/graph/builder.h"
#include "core/graph/testing/evaluate.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using Ints = std::vector<int64_t>;

StatusOr<Shape> ShapeOf(const Shape& x, const Shape& w, Attrs attrs) {
  GraphBuilder g;
  const Value y =
      g.Op("conv2d", {g.Input("x", kData, {DType::kF64, x}), g.Input("w", kData, {DType::kF64, w})}, std::move(attrs));
  RETURN_IF_ERROR(g.status());
  return g.TypeOf(y).shape;
}

TEST(Conv2d, SizesAsInPyTorch) {
  EXPECT_EQ(*ShapeOf({8, 3, 224, 224}, {64, 3, 7, 7}, {{"stride", Ints{2}}, {"pad_mode", "pad"}, {"padding", Ints{3}}}),
            (Shape{8, 64, 112, 112}));
  EXPECT_EQ(*ShapeOf({1, 4, 10, 11}, {6, 2, 3, 3}, {{"group", int64_t{2}}, {"dilation", Ints{2, 3}}}),
            (Shape{1, 6, 6, 5}));
  EXPECT_EQ(*ShapeOf({1, 10, 11, 4}, {6, 4, 3, 3}, {{"data_format", "NHWC"}}), (Shape{1, 8, 9, 6}));
  EXPECT_EQ(*ShapeOf({1, 4, 10, 11}, {6, 4, 4, 3}, {{"pad_mode", "same"}, {"stride", Ints{3}}}), (Shape{1, 6, 4, 4}));
}

// An even kernel with pad_mode 'same' pads after, not before: x convolved with (1, 10) is x[i] + 10 x[i + 1].
TEST(Conv2d, SamePadsAfterFirst) {
  GraphBuilder g;
  const Value y = g.Op(
      "conv2d", {g.Input("x", kData, {DType::kF64, {1, 1, 1, 3}}), g.Input("w", kData, {DType::kF64, {1, 1, 1, 2}})},
      {{"pad_mode", "same"}});
  g.Output("y", y);
  const auto graph = g.Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const double x[] = {1, 2, 3}, w[] = {1, 10}, want[] = {21, 32, 3};
  const auto bytes = [](const double* v, size_t n) {
    return std::string(reinterpret_cast<const char*>(v), n * sizeof(double));
  };
  const auto out = EvaluateReference(*graph, {bytes(x, 3), bytes(w, 2)});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0], bytes(want, 3));
}

TEST(Conv2d, SaysWhatDoesNotFit) {
  const auto message = [](const Shape& x, const Shape& w, Attrs attrs = {}) {
    return std::string(ShapeOf(x, w, std::move(attrs)).status().message());
  };
  EXPECT_NE(
      message({1, 3, 8, 8}, {4, 2, 3, 3}).find("the images have 3 channels in 1 group but the weight takes 2 a group"),
      std::string::npos);
  EXPECT_NE(message({1, 3, 2, 8}, {4, 3, 3, 3}).find("a window of 3 x 3 does not fit into 2 x 8"), std::string::npos);
  EXPECT_NE(message({3, 8, 8}, {4, 3, 3, 3}).find("4 dimensions, [n, c, h, w]"), std::string::npos);
  EXPECT_NE(message({1, 3, 8, 8}, {4, 3, 3, 3}, {{"padding", Ints{1}}}).find("say pad_mode = 'pad'"),
            std::string::npos);
  EXPECT_NE(message({1, 3, 8, 8}, {4, 3, 3, 3}, {{"stride", Ints{0}}})
                .find("stride is [0], expected one or two positive numbers"),
            std::string::npos);
  EXPECT_NE(message({1, 3, 8, 8}, {4, 1, 3, 3}, {{"group", int64_t{3}}})
                .find("group is 3, expected a divisor of 3 input and 4 output channels"),
            std::string::npos);
  EXPECT_NE(message({1, 3, 8, 8}, {4, 3, 3, 3}, {{"pad_mode", "pad"}, {"padding", Ints{1, 2, 3}}})
                .find("one, two or four numbers"),
            std::string::npos);
}

TEST(Pooling, RefusesWindowsOfPaddingAlone) {
  for (const char* op : {"max_pool2d", "avg_pool2d"}) {
    GraphBuilder g;
    g.Op(op, {g.Input("x", kData, {DType::kF32, {1, 1, 4, 4}})},
         {{"kernel_size", Ints{2}}, {"pad_mode", "pad"}, {"padding", Ints{2}}});
    EXPECT_NE(g.status().message().find("padding is not smaller than kernel_size 2"), std::string::npos) << g.status();
  }
}

}  // namespace
}  // namespace mslua
