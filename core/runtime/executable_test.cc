#include "core/runtime/executable.h"

#include <cmath>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/autodiff/gradient.h"
#include "core/base/aligned_memory.h"
#include "core/graph/builder.h"
#include "core/graph/testing/evaluate.h"
#include "core/passes/run_passes.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

std::string RandomBytes(const TensorType& type, std::mt19937& random) {
  std::string bytes(static_cast<size_t>(type.bytes()), '\0');
  std::uniform_real_distribution<double> u(-1, 1);
  for (int64_t i = 0; i < type.elements(); ++i) StoreDouble(type.dtype, &bytes[0], i, u(random));
  return bytes;
}

// Compiles and runs `graph` and compares each output with the reference evaluation.
void ExpectLikeReference(const Graph& graph, std::mt19937& random, double tolerance) {
  std::vector<std::string> inputs;
  for (int32_t i : graph.Inputs()) inputs.push_back(RandomBytes(graph.nodes[i].outputs[0], random));
  auto want = EvaluateReference(graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  Store store;
  size_t k = 0;
  for (int32_t i : graph.Inputs()) {
    const Node& n = graph.nodes[i];
    if (n.attrs.Str("kind") == kParameter) {
      auto view = store.Add(n.attrs.Str("name"), kParameter, n.outputs[0]);
      std::memcpy(view->data, inputs[k].data(), inputs[k].size());
    }
    ++k;
  }
  auto executable = Executable::Compile(graph, &store);
  ASSERT_TRUE(executable.ok()) << executable.status() << "\n" << ToString(graph);
  k = 0;
  for (int32_t i : graph.Inputs()) {
    const Node& n = graph.nodes[i];
    if (n.attrs.Str("kind") == kData) {
      ASSERT_TRUE((*executable)->BindInput(n.attrs.Str("name"), inputs[k].data()).ok());
    }
    ++k;
  }
  ASSERT_TRUE((*executable)->Run().ok());
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    const TensorView got = (*executable)->Output(static_cast<int>(o));
    for (int64_t i = 0; i < got.type.elements(); ++i) {
      const double a = LoadAsDouble(got.type.dtype, got.data, i),
                   b = LoadAsDouble(got.type.dtype, (*want)[o].data(), i);
      ASSERT_NEAR(a, b, tolerance * (1 + std::abs(b))) << "output " << o << " element " << i << "\n"
                                                       << ToString((*executable)->graph());
    }
  }
}

// A random network of elementwise operators, broadcasts, reductions, products and moved dimensions, and its gradients.
Graph RandomGraph(std::mt19937& random) {
  GraphBuilder g("random");
  const int64_t n = 3 + random() % 30, c = 1 + random() % 40;
  std::vector<Value> values = {g.Input("x", kData, {DType::kF32, {n, c}}), g.Input("y", kData, {DType::kF32, {n, c}})};
  std::vector<Value> parameters = {g.Input("w", kParameter, {DType::kF32, {c, c}}),
                                   g.Input("b", kParameter, {DType::kF32, {c}})};
  const auto pick = [&] { return values[random() % values.size()]; };
  for (int i = 0; i < 14; ++i) {
    switch (random() % 9) {
      case 0:
        values.push_back(Add(g, pick(), parameters[1]));
        break;
      case 1:
        values.push_back(Mul(g, pick(), pick()));
        break;
      case 2:
        values.push_back(g.Op("tanh", {pick()}));
        break;
      case 3:
        values.push_back(g.Op("relu", {pick()}));
        break;
      case 4:
        values.push_back(g.Op("tanh", {g.Op("matmul", {pick(), parameters[0]})}));
        break;
      case 5:
        values.push_back(Sub(g, pick(), ReduceSum(g, Mul(g, pick(), 1.0 / static_cast<double>(c)), {1}, true)));
        break;
      case 6:
        values.push_back(Transpose(g, g.Op("sigmoid", {Transpose(g, pick(), {1, 0})}), {1, 0}));
        break;
      case 7:
        values.push_back(Reshape(g, g.Op("neg", {Reshape(g, pick(), {n * c})}), {n, c}));
        break;
      default:
        values.push_back(Mul(g, Add(g, pick(), 0.5), 0.25));
        break;
    }
  }
  const Value loss = ReduceSum(g, Mul(g, values.back(), values[values.size() - 2]), {0, 1}, false);
  auto gradients = Gradients(g, loss, parameters);
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  g.Output("loss", loss);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string name = i == 0 ? "w" : "b";
    g.Output(name, Sub(g, parameters[i], Mul(g, (*gradients)[i], 0.01)), name);
  }
  return *g.Finish();
}

const float* Values(const Store& store, const char* name) { return store.Read(*store.Find(name))->as<float>(); }

TEST(Executable, RandomGraphsEqualTheReference) {
  for (int seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const Graph graph = RandomGraph(random);
    ExpectLikeReference(graph, random, 2e-4);
    if (HasFatalFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return;
    }
  }
}

std::string BytesOf(const TensorView& view) {
  return std::string(view.as<char>(), static_cast<size_t>(view.type.bytes()));
}

TEST(Executable, OutputsAreMadeWhereTheCallerSays) {
  constexpr int64_t kMargin = 64;
  int made = 0, elsewhere = 0;
  for (int seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    GraphBuilder g;
    const TensorType type = {DType::kF32, {7, 12}};
    std::vector<Value> values = {g.Input("x", kData, type), g.Input("p", kParameter, type)};
    const auto pick = [&] { return values[random() % values.size()]; };
    for (int i = 0; i < 8; ++i) {
      const Value v = pick();
      const Shape shape = g.TypeOf(v).shape;
      switch (random() % 4) {
        case 0:
          values.push_back(Reshape(g, v, {shape[1], shape[0]}));
          break;
        case 1:
          values.push_back(Transpose(g, v, {1, 0}));
          break;
        case 2:
          values.push_back(Add(g, v, v));
          break;
        default:
          values.push_back(g.Op("softmax", {v}));
          break;
      }
    }
    for (int k = 0; k < 4; ++k) g.Output(absl::StrCat("y", k), pick());
    g.Output("p", Add(g, Reshape(g, pick(), type.shape), values[1]), "p");
    Store store;
    const std::string x = RandomBytes(type, random), p = RandomBytes(type, random);
    void* const parameter = store.Add("p", kParameter, type)->data;
    const auto e = Executable::Compile(*g.Finish(), &store);
    ASSERT_TRUE(e.ok()) << e.status();
    ASSERT_TRUE((*e)->BindInput("x", x.data()).ok());
    std::memcpy(parameter, p.data(), p.size());
    ASSERT_TRUE((*e)->Run().ok());
    std::vector<std::string> wanted;
    for (int k = 0; k < 5; ++k) wanted.push_back(BytesOf((*e)->Output(k)));

    std::vector<AlignedMemory> places;
    std::vector<bool> bound;
    for (int k = 0; k < 5; ++k) {
      places.push_back(AllocateAligned(type.bytes() + kMargin));
      std::memset(places.back().get(), 'm', static_cast<size_t>(type.bytes() + kMargin));
      bound.push_back((*e)->BindOutput(k, places.back().get()));
      ++(bound.back() ? made : elsewhere);
    }
    EXPECT_FALSE(bound[4]) << "an update of the store";
    std::memcpy(parameter, p.data(), p.size());
    ASSERT_TRUE((*e)->Run().ok());
    for (size_t k = 0; k < 5; ++k) {
      const std::string place(places[k].get(), static_cast<size_t>(type.bytes()));
      EXPECT_EQ(bound[k] ? place : BytesOf((*e)->Output(static_cast<int>(k))), wanted[k]) << "output " << k;
      EXPECT_EQ(BytesOf((*e)->Output(static_cast<int>(k))), wanted[k]) << "output " << k;
      EXPECT_EQ(std::string(places[k].get() + type.bytes(), kMargin), std::string(kMargin, 'm')) << "output " << k;
    }
  }
  EXPECT_GT(made, 100);
  EXPECT_GT(elsewhere, 100);
}

TEST(Executable, AChainIsOneKernelAndUpdatesTheStoreInPlace) {
  GraphBuilder g;
  const Value p = g.Input("p", kParameter, {DType::kF32, {1000}}), m = g.Input("m", kState, {DType::kF32, {1000}});
  const Value d = g.Input("d", kData, {DType::kF32, {1000}}), lr = g.Input("lr", kScalar, {DType::kF32, {}});
  const Value moment = Add(g, Mul(g, m, 0.9), d);
  g.Output("m", moment, "m");
  g.Output("p", Sub(g, p, Mul(g, moment, lr)), "p");
  Store store;
  ASSERT_TRUE(store.Add("p", kParameter, {DType::kF32, {1000}}).ok());
  ASSERT_TRUE(store.Add("m", kState, {DType::kF32, {1000}}).ok());
  auto e = Executable::Compile(*g.Finish(), &store);
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_EQ((*e)->report().kernels, 1);
  EXPECT_EQ((*e)->report().in_place, 2);
  EXPECT_EQ((*e)->report().copies, 0);
  std::vector<float> gradient(1000, 2.0f);
  ASSERT_TRUE((*e)->BindInput("d", gradient.data()).ok());
  ASSERT_TRUE((*e)->SetScalar("lr", 0.5).ok());
  ASSERT_TRUE((*e)->Run().ok());
  ASSERT_TRUE((*e)->Run().ok());
  EXPECT_FLOAT_EQ(Values(store, "m")[999], 2 * 0.9f + 2);
  EXPECT_FLOAT_EQ(Values(store, "p")[999], -0.5f * 2 - 0.5f * 3.8f);
  EXPECT_EQ((*e)->BindInput("nobody", nullptr).message(), "the graph has no data input named 'nobody'");
}

TEST(Executable, AnUpdateReadLaterIsCopiedAtTheEnd) {
  GraphBuilder g;
  const Value p = g.Input("p", kParameter, {DType::kF32, {4}});
  g.Output(
      "p",
      Reshape(g, g.Op("reduce_sum", {Mul(g, Reshape(g, p, {4, 1}), 2.0)}, {{"axis", std::vector<int64_t>{1}}}), {4}),
      "p");
  g.Output("old", g.Op("tanh", {p}));
  Store store;
  store.Add("p", kParameter, {DType::kF32, {4}})->as<float>()[1] = 1;
  auto e = Executable::Compile(*g.Finish(), &store);
  ASSERT_TRUE(e.ok());
  ASSERT_TRUE((*e)->Run().ok());
  EXPECT_EQ(Values(store, "p")[1], 2);
  EXPECT_NEAR((*e)->Output(1).as<float>()[1], std::tanh(1.0), 1e-6);
}

TEST(Executable, UpdatesTakeTheOldValuesOfOneAnother) {
  // a and b change places, c becomes what a was, and a's sum is taken of the old one.
  GraphBuilder g;
  const TensorType type = {DType::kF32, {4}};
  const Value a = g.Input("a", kParameter, type), b = g.Input("b", kState, type);
  g.Input("c", kState, type);
  const Value d = g.Input("d", kState, type);
  g.Output("d", Add(g, d, a), "d");
  g.Output("a", b, "a");
  g.Output("b", a, "b");
  g.Output("c", d, "c");
  Store store;
  float value = 1;
  for (const char* name : {"a", "b", "c", "d"})
    store.Add(name, name[0] == 'a' ? kParameter : kState, type)->as<float>()[2] = value++;
  auto e = Executable::Compile(*g.Finish(), &store);
  ASSERT_TRUE(e.ok()) << e.status();
  ASSERT_TRUE((*e)->Run().ok());
  EXPECT_EQ(Values(store, "a")[2], 2);
  EXPECT_EQ(Values(store, "b")[2], 1);
  EXPECT_EQ(Values(store, "c")[2], 4);
  EXPECT_EQ(Values(store, "d")[2], 5);
}

TEST(Executable, ErrorsNameWhatIsMissing) {
  GraphBuilder g;
  g.Output("y", g.Op("tanh", {g.Input("p", kParameter, {DType::kF32, {4}})}));
  const Graph graph = *g.Finish();
  Store store;
  EXPECT_EQ(Executable::Compile(graph, &store).status().message(), "the store has no tensor named 'p'");
  ASSERT_TRUE(store.Add("p", kParameter, {DType::kF32, {5}}).ok());
  EXPECT_EQ(Executable::Compile(graph, &store).status().message(),
            "'p' is f32[5] in the store and f32[4] in the graph");
  GraphBuilder h;
  h.Output("y", h.Op("tanh", {h.Input("x", kData, {DType::kF32, {4}})}));
  auto e = Executable::Compile(*h.Finish(), &store);
  ASSERT_TRUE(e.ok());
  EXPECT_EQ((*e)->Run().message(), "data input 'x' was never bound");
}

}  // namespace
}  // namespace mslua
