// Training on a fixed number of threads gives the same bits each time, whatever is where in memory.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/autodiff/gradient.h"
#include "core/base/parallel_for.h"
#include "core/graph/builder.h"
#include "core/runtime/executable.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

constexpr int64_t kBatch = 8, kClasses = 10;

// Convolutions with normalisation and a residual, then a block of attention; gradient descent with momentum.
Graph Net(DType compute) {
  GraphBuilder g("net");
  const auto f32 = [](Shape s) { return TensorType{DType::kF32, std::move(s)}; };
  const Value images = g.Input("x", kData, f32({kBatch, 3, 16, 16})),
              labels = g.Input("y", kData, {DType::kI32, {kBatch}});
  std::vector<Value> parameters;
  std::vector<std::pair<std::string, Value>> updates;
  const auto parameter = [&](const std::string& name, Shape shape) {
    parameters.push_back(g.Input(name, kParameter, f32(std::move(shape))));
    return parameters.back();
  };
  const auto low = [&](Value v) { return Cast(g, v, compute); };
  const auto norm = [&](Value x, const std::string& name) {
    const Shape c = {g.TypeOf(x).shape[1]};
    const Value mean = g.Input(name + ".mean", kState, f32(c)), var = g.Input(name + ".var", kState, f32(c));
    const auto out =
        g.OpMulti("batch_norm", {x, parameter(name + ".scale", c), parameter(name + ".bias", c), mean, var});
    updates.emplace_back(name + ".mean", out[1]);
    updates.emplace_back(name + ".var", out[2]);
    return out[0];
  };
  const auto convolution = [&](Value x, const std::string& name, int64_t c, int64_t size) {
    const Value w = low(parameter(name, {c, g.TypeOf(x).shape[1], size, size}));
    return g.Op("conv2d", {x, w}, {{"pad_mode", std::string("same")}});
  };
  Value h = g.Op("relu", {norm(convolution(low(images), "conv1", 32, 3), "norm1")});
  h = g.Op("relu", {Add(g, h, norm(convolution(h, "conv2", 32, 3), "norm2"))});
  h = g.Op("max_pool2d", {h}, {{"kernel_size", std::vector<int64_t>{4}}, {"stride", std::vector<int64_t>{4}}});
  h = convolution(h, "conv3", 96, 1);  // [8, 96, 4, 4]: 32 positions of two images are a sequence
  const Value qkv = Reshape(g, Transpose(g, h, {0, 2, 3, 1}), {kBatch / 2, 1, 32, 96});
  std::vector<Value> heads = g.OpMulti("split", {qkv}, {{"axis", int64_t{3}}, {"output_num", int64_t{3}}});
  const Value y = g.OpMulti("scaled_dot_product_attention", heads, {{"causal", true}})[0];
  const Value logits = g.Op("matmul", {Reshape(g, y, {kBatch, 16 * 32}), low(parameter("dense", {16 * 32, kClasses}))});
  const Value loss = ReduceSum(g, g.OpMulti("sparse_softmax_cross_entropy", {logits, labels})[0], {0}, false);
  const auto gradients = Gradients(g, loss, parameters);
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  g.Output("loss", loss);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string name = g.graph().nodes[parameters[i].node].attrs.Str("name");
    const Value velocity = g.Input("momentum." + name, kState, g.TypeOf(parameters[i]));
    const Value moved = Add(g, Mul(g, velocity, 0.9), (*gradients)[i]);
    g.Output("momentum." + name, moved, "momentum." + name);
    g.Output(name, Sub(g, parameters[i], Mul(g, moved, 0.001)), name);
  }
  for (const auto& [name, value] : updates) g.Output(name, value, name);
  return *g.Finish();
}

// All of the store after a few steps, and the losses, as bytes.
std::string Train(DType compute, int64_t padding) {
  const Graph graph = Net(compute);
  Store store;
  EXPECT_TRUE(store.Add("padding", kState, {DType::kF32, {padding}}).ok());
  int64_t seed = 0;
  for (int32_t i : graph.Inputs()) {
    const Node& n = graph.nodes[i];
    if (n.attrs.Str("kind") == kData) continue;
    const auto view = store.Add(n.attrs.Str("name"), n.attrs.Str("kind"), n.outputs[0]);
    for (int64_t k = 0; n.attrs.Str("kind") == kParameter && k < view->type.elements(); ++k)
      view->as<float>()[k] = 0.1f * static_cast<float>(std::sin(static_cast<double>(k + 1000 * ++seed)));
  }
  auto made = Executable::Compile(graph, &store);
  EXPECT_TRUE(made.ok()) << made.status();
  Executable& step = **made;
  std::vector<float> x(kBatch * 3 * 16 * 16);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(std::cos(static_cast<double>(i * i % 1009)));
  const std::vector<int32_t> y = {0, 1, 2, 3, 4, 5, 6, 9};
  EXPECT_TRUE(step.BindInput("x", x.data()).ok() && step.BindInput("y", y.data()).ok());
  std::string bytes;
  const auto append = [&](const TensorView& v) {
    bytes.append(static_cast<const char*>(v.data), static_cast<size_t>(v.type.bytes()));
  };
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(step.Run().ok());
    EXPECT_TRUE(std::isfinite(*step.Output(0).as<float>()));
    append(step.Output(0));
  }
  for (const auto& e : store.entries()) {
    if (e->name != "padding") append(*store.Read(*e));
  }
  return bytes;
}

TEST(Repeatable, TrainingGivesTheSameBitsEachTime) {
  for (const int threads : {1, 2, 3}) {
    SetComputeThreads(threads);
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      const std::string once = Train(compute, 1);
      EXPECT_TRUE(once == Train(compute, 1000)) << threads << " threads, " << Name(compute);
      EXPECT_TRUE(once == Train(compute, 1 << 20)) << threads << " threads, " << Name(compute);
    }
  }
}

}  // namespace
}  // namespace mslua
