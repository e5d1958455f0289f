#include "core/passes/passes.h"

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/autodiff/gradient.h"
#include "core/graph/builder.h"
#include "core/graph/gradient_marks.h"
#include "core/graph/testing/evaluate.h"
#include "core/op/marks.h"
#include "core/passes/decisions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua {

namespace {

using Ints = std::vector<int64_t>;

int Count(const Graph& graph, absl::string_view op) {
  int n = 0;
  for (const Node& node : graph.nodes) n += node.op->name == op;
  return n;
}

// Both graphs give the same outputs on random inputs, in f64.
void ExpectEqual(const Graph& a, const Graph& b, int seed) {
  ASSERT_TRUE(Verify(b).ok()) << Verify(b) << "\n" << ToString(b);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> u(-1, 1);
  std::vector<std::string> inputs;
  for (int32_t i : a.Inputs()) {
    const TensorType& t = a.nodes[i].outputs[0];
    std::string bytes(static_cast<size_t>(t.bytes()), '\0');
    for (int64_t k = 0; k < t.elements(); ++k) StoreDouble(t.dtype, &bytes[0], k, u(random));
    inputs.push_back(std::move(bytes));
  }
  auto x = EvaluateReference(a, inputs), y = EvaluateReference(b, inputs);
  ASSERT_TRUE(x.ok() && y.ok()) << x.status() << y.status();
  for (size_t o = 0; o < a.outputs.size(); ++o) {
    const TensorType& t = a.TypeOf(a.outputs[o].value);
    for (int64_t k = 0; k < t.elements(); ++k) {
      const double p = LoadAsDouble(t.dtype, (*x)[o].data(), k), q = LoadAsDouble(t.dtype, (*y)[o].data(), k);
      ASSERT_NEAR(p, q, 1e-11 * (1 + std::abs(p))) << "output " << o << "\n" << ToString(b);
    }
  }
}

// A small convolutional network with a residual, its loss and every gradient; f64.
Graph ConvNet(int seed) {
  std::mt19937 random(seed);
  GraphBuilder g("conv");
  const int64_t n = 2, c = 1 + random() % 5, size = 6 + random() % 5, o = 2 + random() % 5;
  const Value x = g.Input("x", kData, {DType::kF64, {n, c, size, size}});
  const Value w1 = g.Input("w1", kParameter, {DType::kF64, {o, c, 3, 3}}),
              w2 = g.Input("w2", kParameter, {DType::kF64, {o, o, 1, 1}});
  const Value b1 = g.Input("b1", kParameter, {DType::kF64, {o}});
  Value h = g.Op("conv2d", {x, w1},
                 {{"stride", Ints{static_cast<int64_t>(1 + random() % 2)}}, {"pad_mode", std::string("same")}});
  h = Add(g, h, Reshape(g, b1, {1, o, 1, 1}));
  if (random() % 2) h = g.Op("relu", {h});
  Value r = g.Op("tanh", {g.Op("conv2d", {h, w2})});
  h = Add(g, h, r);
  if (random() % 2) h = g.Op("max_pool2d", {h}, {{"kernel_size", Ints{2}}, {"stride", Ints{2}}});
  Value features;
  if (random() % 2)
    features = g.Op("reduce_mean", {h}, {{"axis", Ints{2, 3}}});
  else
    features = Reshape(g, h, {n, g.TypeOf(h).elements() / n});
  const Value loss = ReduceSum(g, Mul(g, features, features), {0, 1}, false);
  auto d = Gradients(g, loss, {w1, w2, b1});
  EXPECT_TRUE(d.ok()) << d.status();
  g.Output("loss", loss);
  g.Output("h", h);
  for (Value v : *d) g.Output("d", v);
  return *g.Finish();
}

TEST(Pointwise, ConvolutionsOfFewPixelsAreProducts) {
  for (int seed = 0; seed < 20; ++seed) {
    const Graph graph = EliminateDeadNodes(AssignLayout(ConvNet(seed)));
    Decisions decisions;
    const Graph products = EliminateDeadNodes(PointwiseConvolutions(graph, &decisions));
    ExpectEqual(graph, products, seed);
    if (HasFatalFailure()) return;
    for (const char* op : {"conv2d", "conv2d_grad_input", "conv2d_grad_weight"})
      EXPECT_EQ(Count(products, op), 0) << op;
    EXPECT_EQ(Count(products, "matmul"), 5);  // both convolutions and their gradients, but for x's
    EXPECT_GE(Count(products, "unfold"), 1);
    EXPECT_EQ(decisions.size(), 5);
  }
}

TEST(Pointwise, TakesTheFasterWayAndRemembersIt) {
  const Graph graph = EliminateDeadNodes(AssignLayout(ConvNet(0)));
  // A machine on which convolutions are faster than products.
  int measured = 0;
  Decisions tuned([&](const Graph& way) -> StatusOr<double> {
    ++measured;
    return Count(way, "matmul") > 0 ? 2.0 : 1.0;
  });
  EXPECT_EQ(Count(PointwiseConvolutions(graph, &tuned), "matmul"), 0);
  EXPECT_EQ(measured, 10);
  EXPECT_EQ(tuned.measured(), 5);
  Decisions again;
  ASSERT_TRUE(again.Take(tuned.ToText()).ok());
  EXPECT_EQ(Count(PointwiseConvolutions(graph, &again), "matmul"), 0);
  EXPECT_EQ(again.ToText(), tuned.ToText());
  // Where measuring fails, what is usual goes.
  Decisions failing([](const Graph&) -> StatusOr<double> { return absl::InternalError("no clock"); });
  EXPECT_EQ(Count(PointwiseConvolutions(graph, &failing), "matmul"), 5);
}

TEST(Decisions, TakesWholeTextsOnly) {
  Decisions d;
  ASSERT_TRUE(d.Take("a f32[2] = b = x\n").ok());
  EXPECT_EQ(d.ToText(), "a f32[2] = b = x\n");
  for (const char* bad : {"a", "a =", " = x", "a = x\nb\n", "a = \n"}) EXPECT_FALSE(d.Take(bad).ok()) << bad;
  EXPECT_EQ(d.size(), 1);
}

// A block of a transformer up to its attention, its loss and every gradient; f64.
Graph AttentionNet(bool causal) {
  GraphBuilder g("attention");
  const int64_t n = 2, t = 5, heads = 3, d = 4, e = heads * d;
  const Value x = g.Input("x", kData, {DType::kF64, {n, t, e}});
  const Value w = g.Input("w", kParameter, {DType::kF64, {3 * e, e}}),
              b = g.Input("b", kParameter, {DType::kF64, {3 * e}});
  const Value rows = g.Op("matmul", {Reshape(g, x, {n * t, e}), w}, {{"transpose_b", true}});
  const Value qkv = Reshape(g, Add(g, rows, b), {n, t, 3 * e});
  std::vector<Value> parts = g.OpMulti("split", {qkv}, {{"axis", int64_t{2}}, {"output_num", int64_t{3}}});
  for (Value& p : parts) p = Transpose(g, Reshape(g, p, {n, t, heads, d}), {0, 2, 1, 3});
  const Value y = g.OpMulti("scaled_dot_product_attention", parts, {{"causal", causal}})[0];
  const Value out = Add(g, x, g.Op("tanh", {Reshape(g, Transpose(g, y, {0, 2, 1, 3}), {n, t, e})}));
  const Value loss = ReduceSum(g, Mul(g, out, out), {0, 1, 2}, false);
  auto gradients = Gradients(g, loss, {w, b});
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  g.Output("loss", loss);
  for (Value v : *gradients) g.Output("d", v);
  return *g.Finish();
}

TEST(Attention, HeadsStayWhereTheProjectionPutsThem) {
  for (bool causal : {false, true}) {
    const Graph graph = Simplify(MergeCommonNodes(AttentionNet(causal)));
    const Graph packed = EliminateDeadNodes(Simplify(Simplify(PackAttention(graph))));
    ExpectEqual(graph, packed, 1);
    EXPECT_EQ(Count(packed, "packed_attention") + Count(packed, "packed_attention_grad"), 2);
    for (const char* op : {"transpose", "split", "concat", "scaled_dot_product_attention_grad"})
      EXPECT_EQ(Count(packed, op), 0) << op << "\n" << ToString(packed);
  }
}

TEST(Flatten, ReshapesDoNotCutChains) {
  GraphBuilder g("chain");
  const Value x = g.Input("x", kData, {DType::kF64, {6, 4}}), r = g.Input("r", kData, {DType::kF64, {2, 3, 4}});
  const Value b = g.Input("b", kParameter, {DType::kF64, {4}}), c = g.Input("c", kParameter, {DType::kF64, {3, 1}});
  const Value h = Reshape(g, Add(g, x, b), {2, 3, 4});
  const Value y = Add(g, Mul(g, g.Op("tanh", {h}), 2.0), r);
  g.Output("y", Mul(g, y, b));
  g.Output("z", Mul(g, h, c));  // a broadcast that the flat shape does not have
  const Graph graph = *g.Finish();
  const Graph fused = FuseElementwise(Simplify(FlattenElementwise(graph)));
  ExpectEqual(graph, fused, 1);
  EXPECT_EQ(Count(fused, "fused"), 2) << ToString(fused);
}

// What a device's library takes into a product, and what it does not.
TEST(Epilogues, ProductsTakeInWhatTheLibraryHas) {
  const auto fused = [](DType type, const std::string& after, int64_t columns) {
    GraphBuilder g("dense");
    const Value x = g.Input("x", kData, {type, {6, 8}}), w = g.Input("w", kParameter, {type, {columns, 8}}),
                b = g.Input("b", kParameter, {DType::kF32, {columns}}), z = g.Input("z", kData, {type, {6, columns}});
    const Value product = g.Op("matmul", {x, w}, {{"transpose_b", true}});
    Value y = Add(g, product, Cast(g, b, type));
    if (after == "z") y = Add(g, z, y);
    if (after == "z first") y = Add(g, Add(g, product, z), Cast(g, b, type));
    if (after == "z twice") y = Add(g, Add(g, y, z), z);
    if (after == "wide") y = Cast(g, y, DType::kF32);
    if (after == "kept") g.Output("h", y);
    if (after == "product kept") g.Output("h", product);
    if (after == "gelu" || after == "kept" || after == "product kept") y = g.Op("gelu_tanh", {y});
    if (after == "erf") y = g.Op("gelu_erf", {y});
    if (after == "relu") y = g.Op("relu", {y});
    if (after == "alone") y = Mul(g, product, z);
    g.Output("y", y);
    const Graph before = EliminateDeadNodes(Simplify(*g.Finish())), graph = FuseForDevice(before),
                made = FuseEpilogues(graph);
    EXPECT_TRUE(Verify(made).ok()) << Verify(made);
    // The numbers are those of the fused graph, but for what is no longer rounded between.
    std::vector<std::string> inputs;
    for (int32_t i : graph.Inputs()) {
      const TensorType& t = graph.nodes[i].outputs[0];
      std::string bytes(static_cast<size_t>(t.bytes()), '\0');
      for (int64_t k = 0; k < t.elements(); ++k)
        StoreDouble(t.dtype, &bytes[0], k, std::sin(static_cast<double>(3 * k + 7 * i)));
      inputs.push_back(std::move(bytes));
    }
    const auto want = EvaluateReference(graph, inputs), got = EvaluateReference(made, inputs);
    EXPECT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    for (size_t o = 0; want.ok() && got.ok() && o < made.outputs.size(); ++o) {
      const TensorType& t = made.TypeOf(made.outputs[o].value);
      for (int64_t k = 0; k < t.elements(); ++k)
        EXPECT_NEAR(LoadAsDouble(t.dtype, (*want)[o].data(), k), LoadAsDouble(t.dtype, (*got)[o].data(), k),
                    type == DType::kF32 ? 1e-5 : 4e-2)
            << after << ", output " << o;
    }
    return std::make_pair(Count(made, "matmul_bias"), Count(made, "matmul_bias_add"));
  };
  using Counts = std::pair<int, int>;
  const DType f32 = DType::kF32, bf16 = DType::kBF16;
  for (const DType type : {f32, bf16}) {
    EXPECT_EQ(fused(type, "", 16), Counts(1, 0));
    EXPECT_EQ(fused(type, "wide", 16), Counts(1, 0));
    EXPECT_EQ(fused(type, "z", 16), Counts(0, 1));
    EXPECT_EQ(fused(type, "z first", 16), Counts(0, 1));
    EXPECT_EQ(fused(type, "gelu", 16), type == f32 ? Counts(0, 0) : Counts(1, 0));
    EXPECT_EQ(fused(type, "kept", 16), type == f32 ? Counts(0, 0) : Counts(1, 0));
    for (const char* after : {"z twice", "product kept", "erf", "relu", "alone"})
      EXPECT_EQ(fused(type, after, 16), Counts(0, 0)) << after;
  }
  EXPECT_EQ(fused(bf16, "gelu", 12), Counts(0, 0));  // the library's rows have whole groups of 8
  EXPECT_EQ(fused(DType::kF64, "", 16), Counts(0, 0));
}

// Chains before and after row operators, through reshapes: one node where no path leaves it and comes back.
TEST(FuseRows, ChainsJoinRowOperators) {
  const DType f64 = DType::kF64;
  const auto made = [&](const std::function<void(GraphBuilder&)>& build) {
    GraphBuilder g("rows");
    build(g);
    const Graph before = FuseForDevice(EliminateDeadNodes(*g.Finish())), after = FuseRows(before);
    ExpectEqual(before, after, 3);
    return after;
  };
  const auto count = [](const Graph& g) { return std::make_pair(Count(g, "fused"), Count(g, "fused_rows")); };
  using Counts = std::pair<int, int>;
  const auto norm = [&](GraphBuilder& g, Value x) {
    const int64_t n = g.TypeOf(x).shape.back();
    return g.OpMulti("layer_norm",
                     {x, g.Input("scale", kParameter, {f64, {n}}), g.Input("bias", kParameter, {f64, {n}})}, {});
  };
  // A residual, which is a second result, and what follows a reshape.
  Graph graph = made([&](GraphBuilder& g) {
    const Value x = g.Input("x", kData, {f64, {2, 3, 8}}), b = g.Input("b", kParameter, {f64, {3, 8}});
    const Value sum = Add(g, x, b);
    const auto y = norm(g, sum);
    const Value flat = Reshape(g, y[0], {6, 8});
    g.Output("sum", sum);
    g.Output("mean", y[1]);
    g.Output("rstd", y[2]);
    g.Output("y", Mul(g, flat, g.Input("c", kParameter, {f64, {8}})));
  });
  EXPECT_EQ(count(graph), Counts(0, 1)) << ToString(graph);
  EXPECT_EQ(Count(graph, "layer_norm"), 0);
  // Along an axis before others; a chain of another shape, whose borders lie crosswise, stays.
  graph = made([&](GraphBuilder& g) {
    const Value x = g.Input("x", kData, {f64, {2, 5, 3}});
    const Value y = g.Op("softmax", {Mul(g, x, 0.5)}, {{"axis", int64_t{1}}});
    g.Output("y", g.Op("tanh", {Reshape(g, y, {6, 5})}));
    g.Output("z", g.Op("exp", {Reshape(g, y, {2, 15})}));
  });
  EXPECT_EQ(count(graph), Counts(1, 1)) << ToString(graph);
  // A loss of scaled logits, and its gradient.
  graph = made([&](GraphBuilder& g) {
    const Value x = g.Input("x", kData, {f64, {4, 6}}), labels = g.Input("labels", kData, {DType::kI32, {4}});
    const Value loss = g.OpMulti("sparse_softmax_cross_entropy", {Mul(g, x, 3.0), labels}, {})[0];
    const auto d = Gradients(g, ReduceSum(g, loss, {0}, false), {x});
    g.Output("loss", loss);
    g.Output("d", (*d)[0]);
  });
  EXPECT_EQ(count(graph), Counts(0, 2)) << ToString(graph);
  EXPECT_EQ(Count(graph, "sparse_softmax_cross_entropy_grad"), 0);
  // What waits for another kernel that reads the rows cannot be in them.
  graph = made([&](GraphBuilder& g) {
    const Value y = norm(g, g.Input("x", kData, {f64, {8, 8}}))[0];
    g.Output("y", Add(g, y, g.Op("matmul", {g.Op("tanh", {y}), y})));
  });
  EXPECT_EQ(count(graph), Counts(1, 1)) << ToString(graph);
  // Squares, kept or not, and their sum; an update of the store stays what it is.
  graph = made([&](GraphBuilder& g) {
    const TensorType t = {f64, {8, 6}};
    const Value w = g.Input("w", kParameter, t), x = g.Input("x", kData, t), z = g.Input("z", kData, t);
    g.Output("norm", ReduceSum(g, Mul(g, x, x), {0, 1}, false));
    g.Output("rows", ReduceSum(g, Mul(g, z, 2.0), {1}, true));
    const Value next = Sub(g, w, Mul(g, w, w));
    g.Output("w", next, "w");
    g.Output("sum", ReduceSum(g, next, {0, 1}, false));
  });
  EXPECT_EQ(Count(graph, "fused_rows"), 2) << ToString(graph);
  EXPECT_EQ(graph.nodes[graph.outputs[2].value.node].op->name, "fused");
  // A statistic of rows is no value of their elements.
  graph = made([&](GraphBuilder& g) {
    const auto y = norm(g, g.Input("x", kData, {f64, {8, 8}}));
    g.Output("y", Add(g, y[0], Reshape(g, y[1], {8, 1})));
  });
  EXPECT_EQ(count(graph), Counts(1, 0)) << ToString(graph);
}

TEST(FuseRows, WrongProgramsAreErrors) {
  const auto error = [](const std::string& program, const std::string& reads, Ints shape, Ints axes, Ints of_rows) {
    GraphBuilder g("rows");
    const Value x = g.Input("x", kData, {DType::kF32, {2, 3}}),
                labels = g.Input("labels", kData, {DType::kI32, {2, 1}});
    g.Output("y", g.Op("fused_rows", {x, labels},
                       {{"program", program},
                        {"reads", reads},
                        {"shape", std::move(shape)},
                        {"axes", std::move(axes)},
                        {"dtypes", std::string("f32")},
                        {"of_rows", std::move(of_rows)}}));
    return std::string(g.status().message());
  };
  const Ints shape = {2, 3};
  EXPECT_EQ(error("2: i0; i1 -> 1", "x0 sum0", shape, {1}, {0}), "");
  EXPECT_EQ(error("2: i0; i1; mul(0,1) -> 2", "x0 is_column1", shape, {1}, {}), "");
  const auto has = [](const char* text) { return ::testing::HasSubstr(text); };
  EXPECT_THAT(error("2: i0; i1 -> 1", "x0 sum1", shape, {1}, {0}), has("reads what is not known yet"));
  EXPECT_THAT(error("2: i0; i1 -> 1", "x0 sum7", shape, {1}, {0}), has("reads what is not known yet"));
  EXPECT_THAT(error("1: i0 -> 0", "x2", shape, {1}, {}), has("reads what is not known yet"));
  EXPECT_THAT(error("2: i0 -> 0", "x0 x9", shape, {1}, {}), has("does not use an input"));
  EXPECT_THAT(error("1: i0 -> 0", "is_column0", shape, {1}, {}), has("an integer a row"));
  EXPECT_THAT(error("1: i0 -> 0", "x0 x1", shape, {1}, {}), has("another number of inputs"));
  EXPECT_THAT(error("1: i0 -> 0", "y0", shape, {1}, {}), has("'y0' is no input"));
  EXPECT_THAT(error("1: i0 -> 0", "x0", shape, {1}, {0}), has("differs in a row"));
  EXPECT_THAT(error("1: i0 -> 0", "x0", shape, {1}, {1}), has("of_rows names a result"));
  EXPECT_THAT(error("1: i0 -> 0", "x0", shape, {2}, {}), has("axes are outside"));
  EXPECT_THAT(error("1: i0 -> 0", "x0", shape, {1, 0}, {}), has("axes have to increase"));
  EXPECT_THAT(error("1: i0 -> 0", "x0", {2, 4}, {1}, {}), has("operand 0 does not broadcast"));
  EXPECT_THAT(error("1: i0 -> 0", "x0", {-2, 3}, {1}, {}), has("shape is none of a tensor"));
  EXPECT_THAT(error("1: i0 -> 0", "x0", {1000000000, 1000000000}, {1}, {}), has("shape is none of a tensor"));
}

// Random graphs of chains, reshapes, norms, softmax and sums, with gradients.
TEST(FuseRows, RandomGraphsComputeTheSame) {
  int rows = 0;
  for (int seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    GraphBuilder g("random");
    const DType f64 = DType::kF64;
    const Shape shapes[] = {{2, 3, 4}, {6, 4}, {2, 12}, {24}};
    const Value x = g.Input("x", kData, {f64, shapes[0]}), z = g.Input("z", kData, {f64, shapes[0]});
    std::vector<Value> values = {x, z};
    int parameters = 0;
    for (int n = 0; n < 10; ++n) {
      const Value a = values[random() % values.size()];
      const Shape& shape = shapes[random() % 4];
      const Value v = Reshape(g, a, shape), w = Reshape(g, values[random() % values.size()], shape);
      const TensorType row = {f64, {shape.back()}};
      const int64_t axis = static_cast<int64_t>(random() % shape.size());
      const auto parameter = [&] { return g.Input(absl::StrCat("p", parameters++), kParameter, row); };
      switch (random() % 8) {
        case 0:
          values.push_back(Add(g, v, w));
          break;
        case 1:
          values.push_back(Mul(g, v, parameter()));
          break;
        case 2:
          values.push_back(g.Op("tanh", {v}));
          break;
        case 3:
          values.push_back(g.Op(random() % 2 ? "softmax" : "log_softmax", {v}, {{"axis", axis}}));
          break;
        case 4:
          values.push_back(g.OpMulti("layer_norm", {v, parameter(), parameter()}, {})[0]);
          break;
        case 5:
          values.push_back(g.OpMulti("rms_norm", {v, parameter()}, {})[0]);
          break;
        case 6:
          values.push_back(Sub(g, w, BroadcastTo(g, ReduceSum(g, v, {axis}, true), shape)));
          break;
        default:
          values.push_back(Mul(g, v, w));
      }
      if (random() % 4 == 0) g.Output(absl::StrCat("v", n), values.back());
    }
    const Value last = Reshape(g, values.back(), {24});
    const Value loss = ReduceSum(g, Mul(g, last, last), {0}, false);
    const auto d = Gradients(g, loss, {x, z});
    ASSERT_TRUE(d.ok()) << d.status();
    g.Output("loss", loss);
    for (Value v : *d) {
      if (v.valid()) g.Output("d", v);
    }
    const Graph before = FuseForDevice(EliminateDeadNodes(*g.Finish())), after = FuseRows(before);
    ExpectEqual(before, after, seed);
    if (HasFatalFailure()) return;
    rows += Count(after, "fused_rows");
  }
  EXPECT_GT(rows, 300);
}

TEST(Fuse, EqualInstructionsAreComputedOnce) {
  for (const DType t : {DType::kF32, DType::kBF16}) {
    GraphBuilder g("twice");
    const Value x = g.Input("x", kData, {t, {8}});
    const Value y = g.Op("gelu_erf", {x});
    const auto d = Gradients(g, ReduceSum(g, y, {0}, false), {x});
    g.Output("y", y);
    g.Output("d", (*d)[0]);
    const Graph fused = FuseElementwise(Simplify(*g.Finish()));
    std::string programs;
    for (const Node& n : fused.nodes) {
      if (n.op->name == "fused") programs += n.attrs.Str("program");
    }
    EXPECT_NE(programs.find("erf"), std::string::npos);
    EXPECT_EQ(programs.find("erf"), programs.rfind("erf")) << Name(t) << " " << programs;
  }
}

TEST(Fuse, AnUpdateIsOnePassAsSoonAsItsGradientIsKnown) {
  GraphBuilder g("updates");
  const TensorType square = {DType::kF32, {8, 8}};
  const Value x = g.Input("x", kData, {DType::kBF16, {8, 8}});
  const std::vector<Value> w = {g.Input("w0", kParameter, square), g.Input("w1", kParameter, square)};
  Value h = x;
  for (Value v : w) h = g.Op("tanh", {g.Op("matmul", {h, Cast(g, v, DType::kBF16)})});
  const Value loss = ReduceSum(g, Cast(g, Mul(g, h, h), DType::kF32), {0, 1}, false);
  const auto d = Gradients(g, loss, w);
  ASSERT_TRUE(d.ok()) << d.status();
  g.Output("loss", loss);
  for (int i = 0; i < 2; ++i)
    g.Output(i == 0 ? "w0" : "w1", Sub(g, Mul(g, w[i], 0.9), Mul(g, (*d)[i], 0.1)), i == 0 ? "w0" : "w1");
  const Graph fused = EliminateDeadNodes(FuseElementwise(Simplify(*g.Finish())));
  // A decayed weight is not computed beside the cast of the forward pass and kept until the update.
  for (const Node& n : fused.nodes) {
    if (n.op->name != "fused" || n.inputs.size() > 1 || fused.nodes[n.inputs[0].node].op->name != "input") continue;
    EXPECT_EQ(n.outputs.size(), 1u) << ToString(fused);
  }
  int32_t last_product = 0;
  for (size_t i = 0; i < fused.nodes.size(); ++i) {
    if (fused.nodes[i].op->name == "matmul") last_product = static_cast<int32_t>(i);
  }
  EXPECT_LT(fused.outputs[2].value.node, last_product) << "w1's update waits for w0's gradient\n" << ToString(fused);
}

// Gradients of two micro-batches are summed one by one, not after all of them are there.
TEST(Fuse, ASumIsMadeAsSoonAsBothPartsAreKnown) {
  GraphBuilder g("sums");
  const Value x = g.Input("x", kData, {DType::kF32, {8, 8}});
  std::vector<Value> first, second;
  for (std::vector<Value>* micro : {&first, &second}) {
    for (int k = 0; k < 3; ++k)
      micro->push_back(g.Op("matmul", {x, g.Op("transpose", {x}, {{"perm", std::vector<int64_t>{1, 0}}})}));
  }
  for (int k = 0; k < 3; ++k) g.Output("sum" + std::to_string(k), g.Op("add", {first[k], second[k]}));
  const Graph fused = FuseElementwise(*g.Finish());
  for (int k = 0; k < 3; ++k) {
    const int32_t sum = fused.outputs[k].value.node;
    EXPECT_EQ(sum, fused.nodes[sum].inputs[1].node + 1) << ToString(fused);
  }
}

TEST(Norm, MapsAreFusedWithWhatFollows) {
  GraphBuilder g("norm");
  const TensorType images = {DType::kF64, {2, 3, 2, 5}}, vector = {DType::kF64, {5}};
  const Value x = g.Input("x", kParameter, images), r = g.Input("r", kParameter, images);
  std::vector<Value> in = {x};
  for (const char* name : {"scale", "bias", "mean", "variance"}) in.push_back(g.Input(name, kParameter, vector));
  const Value y = g.OpMulti("batch_norm", in, {{"data_format", std::string("NHWC")}})[0];
  const Value z = g.Op("relu", {Add(g, y, r)});
  const auto d = Gradients(g, ReduceSum(g, Mul(g, z, z), {0, 1, 2, 3}, false), {x, r, in[1], in[2]});
  ASSERT_TRUE(d.ok()) << d.status();
  g.Output("z", z);
  for (Value v : *d) g.Output("d", v);
  const Graph graph = *g.Finish();
  const Graph mapped = EliminateDeadNodes(MapNorms(graph));
  ExpectEqual(graph, mapped, 1);
  EXPECT_EQ(Count(mapped, "batch_norm_apply"), 0);
  const Graph fused = FuseElementwise(Simplify(mapped));
  ExpectEqual(graph, fused, 1);
  // One pass over images: the map, the sum, the relu, and here its gradient too.
  EXPECT_EQ(std::count_if(fused.nodes.begin(), fused.nodes.end(),
                          [](const Node& n) { return n.op->name == "fused" && n.outputs[0].rank() == 4; }),
            1)
      << ToString(fused);
}

// conv -> normalisation -> relu, twice, with a residual sum; gradients of every weight; f64.
Graph NormalisedNet() {
  GraphBuilder g("normalised");
  const auto at = std::make_shared<Location>();
  at->scope = "Net";
  g.SetLocation(at);
  const auto weight = [&](std::string name, Shape shape) {
    return g.Input(std::move(name), kParameter, {DType::kF64, std::move(shape)});
  };
  const auto normalise = [&](Value x, int number) {
    std::vector<Value> in = {x};
    for (const char* name : {"gamma", "beta", "mean", "variance"})
      in.push_back(weight(absl::StrCat(name, number), {4}));
    return g.OpMulti("batch_norm", in)[0];
  };
  const Attrs same = {{"pad_mode", std::string("same")}};
  Value h = g.Input("x", kData, {DType::kF64, {2, 4, 6, 6}});
  std::vector<Value> weights;
  for (int i = 0; i < 3; ++i) {
    weights.push_back(weight(absl::StrCat("w", i), {4, 4, 3, 3}));
    const Value y = normalise(g.Op("conv2d", {h, weights.back()}, same), i);
    h = g.Op("relu", {i == 1 ? Add(g, y, h) : y});
  }
  const Value loss = ReduceSum(g, Mul(g, h, h), {0, 1, 2, 3}, false);
  auto d = Gradients(g, loss, weights);
  EXPECT_TRUE(d.ok()) << d.status();
  g.Output("loss", loss);
  for (Value v : *d) g.Output("d", v);
  return MapNorms(AssignLayout(MergeCommonNodes(Simplify(*g.Finish()))));
}

TEST(Norm, AGradientThroughAReluFindsItsMaskAgain) {
  const Graph graph = NormalisedNet();
  EXPECT_EQ(Count(graph, "batch_norm_relu_grad_stats"), 2) << ToString(graph);
  EXPECT_EQ(Count(graph, "batch_norm_relu_grad_apply"), 2);
  EXPECT_EQ(Count(graph, "batch_norm_grad_apply"), 1) << "the residual sum's relu: others read its gradient too";
  EXPECT_EQ(Count(EliminateDeadNodes(graph), "less_equal"), 1);
}

// The backward pass reads results of convolutions alone, from which it makes the rest again.
TEST(Recompute, ReluOfANormalisationIsNotKept) {
  const Graph graph = EliminateDeadNodes(NormalisedNet());
  const Graph again = RecomputeElementwise(graph, {256, 1});
  ExpectEqual(graph, again, 5);
  const Graph fused = FuseElementwise(again);
  ExpectEqual(graph, fused, 5);
  EXPECT_EQ(Count(graph, "relu"), 3);
  EXPECT_EQ(Count(again, "relu"), 6) << ToString(again);
  for (const Node& n : fused.nodes) {
    if (n.op->name != "conv2d_grad_weight") continue;
    const Node& read = fused.nodes[n.inputs[0].node];
    EXPECT_TRUE(read.op->name == "transpose" || read.region != 0) << ToString(fused);
  }
  EXPECT_EQ(ToString(RecomputeElementwise(graph)), ToString(graph)) << "a small network stays as it is";
}

// A block of two products and a dropout, twice, each a region of its own, and the gradients of the weights.
Graph NetOfRegions(bool regions) {
  GraphBuilder g("regions");
  const auto at = std::make_shared<Location>();
  at->scope = "Net";
  g.SetLocation(at);
  std::vector<Value> weights;
  const Value step = g.Input("step", kScalar, {DType::kI64, {}});
  Value h = g.Input("x", kData, {DType::kF64, {3, 4}});
  for (int block = 1; block <= 2; ++block) {
    for (const char* name : {"up", "down"})
      weights.push_back(g.Input(absl::StrCat(name, block), kParameter, {DType::kF64, {4, 4}}));
    const Value before = h;
    if (regions) g.SetRegion(block);
    h = g.Op("tanh", {g.Op("matmul", {h, weights[weights.size() - 2]})});
    h = g.OpMulti("dropout", {h, step}, {{"p", 0.5}})[0];
    h = Add(g, before, g.Op("matmul", {h, weights.back()}));
    g.SetRegion(0);
  }
  const Value loss = ReduceSum(g, Mul(g, h, h), {0, 1}, false);
  const auto d = Gradients(g, loss, weights);
  EXPECT_TRUE(d.ok()) << d.status();
  g.Output("loss", loss);
  for (Value v : *d) g.Output("d", v);
  return EliminateDeadNodes(*g.Finish());
}

TEST(Recompute, RegionsAreMadeAgainFromWhatEntersThem) {
  const Graph graph = NetOfRegions(true);
  const Graph again = RecomputeRegions(graph);
  ExpectEqual(graph, again, 6);
  // tanh, dropout and the first product of each block; of the second one no gradient needs the result.
  EXPECT_EQ(Count(graph, "matmul"), 11);
  EXPECT_EQ(Count(again, "matmul"), 13) << ToString(again);
  EXPECT_EQ(Count(again, "tanh"), 4);
  int32_t last_forward = 0;
  for (size_t i = 0; i < again.nodes.size(); ++i) {
    const Node& n = again.nodes[i];
    const bool forward = n.location && n.location->scope == "Net" && n.op->name != "input";
    if (forward) last_forward = static_cast<int32_t>(i);
    if (forward || n.op->name == "input") continue;
    for (Value v : n.inputs) {
      const Node& read = again.nodes[v.node];
      EXPECT_TRUE(read.region == 0 || read.region == n.region || read.op->name == "add") << ToString(again);
    }
  }
  // The last block's is made again after the forward pass, the first one's after the last one's gradients.
  std::vector<int32_t> made;
  for (size_t i = 0; i < again.nodes.size(); ++i) {
    if (again.nodes[i].location->scope == "recompute(Net)" && again.nodes[i].op->name == "tanh")
      made.push_back(static_cast<int32_t>(i));
  }
  ASSERT_EQ(made.size(), 2u) << ToString(again);
  EXPECT_GT(made[0], last_forward);
  const auto product = std::find_if(again.nodes.begin() + made[0], again.nodes.begin() + made[1], [](const Node& n) {
    return n.op->name == "matmul" && n.location->scope == "grad(Net)";
  });
  EXPECT_NE(product, again.nodes.begin() + made[1]) << ToString(again);
  // No later pass merges the two.
  ExpectEqual(graph, FuseElementwise(MergeCommonNodes(Simplify(again))), 6);
  EXPECT_EQ(Count(MergeCommonNodes(Simplify(again)), "tanh"), 4);
  const Graph plain = NetOfRegions(false);
  EXPECT_EQ(ToString(RecomputeRegions(plain)), ToString(plain));
}

TEST(Fuse, ACastToBoolGivesTruthValues) {
  GraphBuilder g("truths");
  const Value x = g.Input("x", kData, {DType::kF64, {5}});
  const Value y = g.Input("y", kData, {DType::kF64, {5}});
  const auto truth = [&](Value v) { return Cast(g, v, DType::kBool); };
  g.Output("numbers", Mul(g, Cast(g, truth(x), DType::kF64), y));
  g.Output("equal", Cast(g, Elementwise(g, "equal", {truth(x), truth(y)}), DType::kF64));
  const Graph graph = *g.Finish();
  const Graph fused = FuseElementwise(graph);
  EXPECT_EQ(Count(fused, "cast"), 0) << ToString(fused);
  ExpectEqual(graph, fused, 8);
}

TEST(Layout, AGradientsMarkIsOnItsValueInTheParametersOrder) {
  GraphBuilder g;
  const TensorType image{DType::kF64, {2, 3, 8, 8}};
  const Value x = g.Input("x", kData, image), w = g.Input("w", kParameter, {DType::kF64, {3, 3, 3, 3}}),
              p = g.Input("p", kParameter, image);
  const Value y = Mul(g, g.Op("conv2d", {x, w}, {{"pad_mode", std::string("same")}}), p);
  const Value loss = g.Op("reduce_sum", {g.Op("tanh", {y})}, {{"axis", Ints{0, 1, 2, 3}}});
  const auto d = Gradients(g, loss, {p});
  ASSERT_TRUE(d.ok()) << d.status();
  const Value dp = (*d)[0];
  MarkGradient({"p", dp.output}, &g.graph().nodes[static_cast<size_t>(dp.node)]);
  g.Output("loss", loss);
  g.Output("p", Sub(g, p, dp), "p");
  const Graph graph = EliminateDeadNodes(*g.Finish()), last = EliminateDeadNodes(AssignLayout(graph));
  ExpectEqual(graph, last, 3);
  int marks = 0;
  for (const Node& n : last.nodes) {
    for (const GradientMark& mark : GradientMarksOf(n)) {
      ++marks;
      EXPECT_EQ(n.outputs[static_cast<size_t>(mark.place)].shape, image.shape) << ToString(last);
    }
  }
  EXPECT_EQ(marks, 1) << ToString(last);
}

TEST(Simplify, ScalarsOfConstantsAreConstants) {
  GraphBuilder g("scalars");
  const Value x = g.Input("x", kData, {DType::kF64, {3}});
  const Value s = Sub(g, g.Constant(1, DType::kF64), g.Op("neg", {g.Constant(2, DType::kF64)}));
  g.Output("y", Mul(g, x, s));
  const Graph graph = *g.Finish();
  const Graph simple = EliminateDeadNodes(Simplify(graph));
  ExpectEqual(graph, simple, 1);
  EXPECT_EQ(Count(simple, "neg") + Count(simple, "sub"), 0);
}

TEST(Layout, ConvolutionChainsAreChannelsLastAndEqual) {
  for (int seed = 0; seed < 30; ++seed) {
    const Graph graph = ConvNet(seed);
    const Graph last = EliminateDeadNodes(AssignLayout(graph));
    ExpectEqual(graph, last, seed);
    if (HasFatalFailure()) return;
    for (const Node& n : last.nodes) {
      if (!n.attrs.Has("data_format")) continue;
      EXPECT_EQ(n.attrs.Str("data_format"), "NHWC");
    }
  }
}

TEST(Layout, AveragesAloneStayAsTheyAre) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {2, 3, 8, 8}});
  const Value y = g.Op("avg_pool2d", {x}, {{"kernel_size", Ints{2}}, {"stride", Ints{2}}});
  g.Output("y", g.Op("resize_bilinear", {g.Op("relu", {y})}, {{"size", Ints{9}}}));
  const Graph graph = *g.Finish();
  EXPECT_EQ(ToString(AssignLayout(graph)), ToString(graph));
}

TEST(Layout, OnlyTheEndsOfAChainAreTransposed) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {2, 3, 8, 8}}),
              w = g.Input("w", kParameter, {DType::kF32, {3, 3, 3, 3}});
  const Value b = g.Input("b", kParameter, {DType::kF32, {3}});
  Value h = x;
  for (int i = 0; i < 4; ++i)
    h = g.Op("relu",
             {Add(g, g.Op("conv2d", {h, w}, {{"pad_mode", std::string("same")}}), Reshape(g, b, {1, 3, 1, 1}))});
  g.Output("y", g.Op("reduce_sum", {h}, {{"axis", Ints{2, 3}}}));
  const Graph last = EliminateDeadNodes(AssignLayout(*g.Finish()));
  EXPECT_EQ(Count(last, "transpose"), 1) << ToString(last);
}

// The skeleton of a U-Net: normalised, a piece joined to the whole, with a border, and all gradients.
TEST(Layout, GroupNormsAndPiecesFollowAChain) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF64, {2, 4, 6, 6}}),
              w = g.Input("w", kParameter, {DType::kF64, {4, 4, 3, 3}}),
              scale = g.Input("scale", kParameter, {DType::kF64, {4}}),
              bias = g.Input("bias", kParameter, {DType::kF64, {4}}),
              w2 = g.Input("w2", kParameter, {DType::kF64, {3, 6, 3, 3}});
  const Attrs same = {{"pad_mode", std::string("same")}};
  Value h = g.Op("group_norm", {g.Op("conv2d", {x, w}, same), scale, bias}, {{"groups", int64_t{2}}});
  const Value piece = g.Op("strided_slice", {h}, {{"begin", Ints{0, 1, 0, 0}}, {"end", Ints{2, 3, 6, 6}}});
  h = g.Op("concat", {h, piece}, {{"axis", int64_t{1}}});
  h = g.Op("pad", {h}, {{"low", Ints{0, 0, 1, 0}}, {"high", Ints{0, 0, 2, 1}}});
  const Value loss = g.Op("reduce_sum", {g.Op("tanh", {g.Op("conv2d", {h, w2}, same)})}, {{"axis", Ints{0, 1, 2, 3}}});
  const auto gradients = Gradients(g, loss, {w, scale, bias, w2});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  g.Output("loss", loss);
  for (size_t i = 0; i < gradients->size(); ++i) g.Output(absl::StrCat("d", i), (*gradients)[i]);
  const Graph graph = EliminateDeadNodes(*g.Finish());
  const Graph last = EliminateDeadNodes(AssignLayout(graph));
  ExpectEqual(graph, last, 7);
  EXPECT_EQ(Count(last, "transpose"), 2) << "of x, and of the constant that gradients begin with\n" << ToString(last);
  EXPECT_EQ(Count(last, "group_norm_grad"), 1);
}

// Convolutions of sequences are those of images with one row: [n, c, l] between them. Causal, with a residual.
TEST(Layout, SequencesBetweenConvolutionsFollow) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF64, {2, 3, 8}});
  std::vector<Value> parameters;
  Value h = x;
  const auto convolution = [&](const std::string& name, int64_t outputs) {
    const Shape shape = g.TypeOf(h).shape;
    const Value w = g.Input("w" + name, kParameter, {DType::kF64, {outputs, shape[1], 1, 3}}),
                b = g.Input("b" + name, kParameter, {DType::kF64, {outputs}});
    parameters.insert(parameters.end(), {w, b});
    Value y = g.Op("conv2d", {Reshape(g, h, {shape[0], shape[1], 1, shape[2]}), w},
                   {{"pad_mode", std::string("pad")}, {"padding", Ints{0, 0, 2, 2}}});
    y = Add(g, Reshape(g, y, {shape[0], outputs, shape[2] + 2}), Reshape(g, b, {1, outputs, 1}));
    y = g.Op("strided_slice", {y}, {{"begin", Ints{0, 0, 0}}, {"end", Ints{shape[0], outputs, shape[2]}}});
    return g.Op("tanh", {y});
  };
  h = convolution("1", 4);
  h = Add(g, h, convolution("2", 4));
  h = g.Op("concat", {h, convolution("3", 2)}, {{"axis", int64_t{1}}});
  const Value features = g.Op("reduce_mean", {h}, {{"axis", Ints{2}}});
  const Value loss = ReduceSum(g, Mul(g, features, features), {0, 1}, false);
  const auto gradients = Gradients(g, loss, parameters);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  g.Output("loss", loss);
  for (Value v : *gradients) g.Output("d", v);
  const Graph graph = EliminateDeadNodes(*g.Finish());
  const Graph last = EliminateDeadNodes(AssignLayout(graph));
  ExpectEqual(graph, last, 3);
  EXPECT_EQ(Count(last, "transpose"), 3) << "of x, and of both pieces of the gradient of the mean\n" << ToString(last);
}

TEST(Layout, ANormalisationAloneStaysAsItIs) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {2, 4, 5, 5}}), v = g.Input("v", kParameter, {DType::kF32, {4}});
  g.Output("y", g.Op("group_norm", {x, v, v}, {{"groups", int64_t{2}}}));
  const Graph graph = *g.Finish();
  EXPECT_EQ(ToString(AssignLayout(graph)), ToString(graph));
}

TEST(Layout, WithoutImagesNothingChanges) {
  GraphBuilder g;
  g.Output("y", g.Op("tanh", {g.Input("x", kData, {DType::kF32, {2, 3, 4, 5}})}));
  const Graph graph = *g.Finish();
  EXPECT_EQ(ToString(AssignLayout(graph)), ToString(graph));
}

TEST(Simplify, Identities) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF64, {3, 4}}), w = g.Input("w", kData, {DType::kF64, {5, 4}});
  Value y = Mul(g, Add(g, x, 0.0), 1.0);
  y = Transpose(g, Transpose(g, y, {1, 0}), {1, 0});
  y = g.Op("neg", {g.Op("neg", {y})});
  y = Reshape(g, Reshape(g, y, {12}), {3, 4});
  g.Output("y", g.Op("matmul", {y, Transpose(g, w, {1, 0})}));
  const Graph graph = *g.Finish();
  const Graph simple = EliminateDeadNodes(Simplify(Simplify(graph)));
  ExpectEqual(graph, simple, 1);
  EXPECT_EQ(simple.nodes.size(), 3u) << ToString(simple);
}

TEST(Common, EqualNodesBecomeOneButRandomOnesStay) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF64, {3, 4}});
  g.Output("y", Add(g, Mul(g, g.Op("tanh", {x}), g.Op("tanh", {x})), Mul(g, g.Op("tanh", {x}), g.Op("tanh", {x}))));
  const Graph graph = *g.Finish();
  const Graph merged = EliminateDeadNodes(MergeCommonNodes(graph));
  ExpectEqual(graph, merged, 2);
  EXPECT_EQ(Count(merged, "tanh"), 1);
  EXPECT_EQ(Count(merged, "mul"), 1);
}

TEST(Dead, InputsStayAndUnusedNodesGo) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {3}});
  g.Input("unused", kData, {DType::kF32, {3}});
  g.Op("tanh", {x});
  g.Output("y", g.Op("neg", {x}));
  const Graph live = EliminateDeadNodes(*g.Finish());
  EXPECT_EQ(live.nodes.size(), 3u);
}

TEST(Fuse, ABroadcastBiasAndNumbersAreInsideTheChain) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF64, {6, 4}}), b = g.Input("b", kData, {DType::kF64, {4}});
  g.Output("y", g.Op("relu", {Mul(g, Add(g, x, b), 0.5)}));
  const Graph graph = *g.Finish();
  const Graph fused = FuseElementwise(graph);
  ExpectEqual(graph, fused, 3);
  EXPECT_EQ(fused.nodes.size(), 3u) << ToString(fused);
}

// x -> a = tanh(x) -> m = matmul(a, w) -> y = a + m: fusing a with y would need m before it exists.
TEST(Fuse, AChainIsNotFusedAroundWhatItFeeds) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF64, {4, 4}}), w = g.Input("w", kData, {DType::kF64, {4, 4}});
  const Value a = g.Op("tanh", {x});
  g.Output("y", Add(g, a, g.Op("matmul", {a, w})));
  const Graph graph = *g.Finish();
  const Graph fused = FuseElementwise(graph);
  ExpectEqual(graph, fused, 4);
  EXPECT_EQ(Count(fused, "fused"), 2);
}

// Each all_reduce is a call that the other ranks make too, in this order, whatever it is needed for.
// What is received depends on nothing but the message before it: a chain around both would wait for itself.
TEST(Collectives, AMessageWaitsForTheOneBefore) {
  GraphBuilder g;
  const Attrs ranks = {{"group", Ints{0, 1}}, {"peer", int64_t{1}}};
  const Value x = g.Input("x", kData, {DType::kF32, {4, 4}}), a = g.Op("tanh", {x});
  g.Op("stage_send", {a}, ranks);
  Attrs message = ranks;
  message.Set("dtype", DType::kF32).Set("shape", Ints{4, 4});
  g.Output("y", Add(g, a, g.Op("stage_recv", {}, message)));
  const Graph fused = FuseElementwise(*g.Finish());
  ASSERT_TRUE(Verify(fused).ok());
  EXPECT_EQ(Count(fused, "fused") + Count(fused, "tanh") + Count(fused, "add"), 2) << ToString(fused);
}

TEST(Collectives, KeepTheirNumberAndTheirOrder) {
  GraphBuilder g;
  const std::vector<int64_t> group = {0, 1};
  const Value x = g.Input("x", kData, {DType::kF32, {4, 4}}), w = g.Input("w", kData, {DType::kF32, {4, 4}});
  const auto reduce = [&](Value v, int64_t tag) {
    return g.Op("all_reduce", {v}, {{"group", group}, {mark::kTag.name, tag}});
  };
  // Fused around the second one, tanh would come after it, and the first one, which reads tanh, too.
  const Value a = g.Op("tanh", {x});
  reduce(a, 1);
  const Value second = reduce(g.Op("matmul", {x, w}), 2);
  g.Output("y", Add(g, a, second));
  reduce(x, 3);
  reduce(x, 3);
  Graph graph = *g.Finish();
  for (const auto pass : {EliminateDeadNodes, MergeCommonNodes, Simplify, AssignLayout, FuseElementwise})
    graph = pass(graph);
  ASSERT_TRUE(Verify(graph).ok());
  std::vector<int64_t> tags;
  for (const Node& n : graph.nodes) {
    if (n.op->name == "all_reduce") tags.push_back(mark::kTag.Get(n.attrs));
  }
  EXPECT_EQ(tags, (std::vector<int64_t>{1, 2, 3, 3})) << ToString(graph);
}

// Types that a chain has inside alone are those of its arithmetic all the same.
TEST(Fuse, ChainsComputeInTheTypesOfTheirMembers) {
  GraphBuilder truths("truths");
  const Value t = truths.Input("t", kData, {DType::kBool, {8}});
  const Value half = Mul(truths, Cast(truths, t, DType::kF32), truths.Constant(0.5, DType::kF32));
  truths.Output("above", Elementwise(truths, "greater", {half, truths.Constant(0.25, DType::kF32)}));
  truths.Output("truth", Cast(truths, half, DType::kBool));
  for (const DType narrow : {DType::kF32, DType::kBF16}) {
    GraphBuilder wide("wide");
    const Value d = Cast(wide, wide.Input("x", kData, {narrow, {8}}), DType::kF64);
    const Value large = wide.Constant(1 << 30, DType::kF64);
    const Value same = Sub(wide, Add(wide, d, large), large);
    wide.Output("same", Cast(wide, same, narrow));
    wide.Output("above", Elementwise(wide, "greater", {same, wide.Constant(0.01, DType::kF64)}));
    const Graph graph = *wide.Finish(), fused = FuseElementwise(graph);
    ExpectEqual(graph, fused, 3);
    EXPECT_EQ(Count(fused, "fused"), 3) << ToString(fused);
  }
  const Graph graph = *truths.Finish(), fused = FuseElementwise(graph);
  ExpectEqual(graph, fused, 3);
  EXPECT_EQ(Count(fused, "fused"), 3) << ToString(fused);
}

// What a cast to fewer bits and back rounds stays rounded.
TEST(Fuse, CastsThatRoundAreInTwoChains) {
  for (const auto& [from, by, back] : {std::array{DType::kF32, DType::kBF16, DType::kF32},
                                       {DType::kF32, DType::kF16, DType::kBF16},
                                       {DType::kF64, DType::kF32, DType::kF64},
                                       {DType::kF16, DType::kBF16, DType::kF16}}) {
    GraphBuilder g;
    const Value x = g.Input("x", kData, {from, {64}}), y = g.Op("neg", {x});
    const Value row = g.Op("broadcast_to", {Cast(g, y, by)}, {{"shape", Ints{3, 64}}});
    g.Output("rounded", g.Op("neg", {Cast(g, Cast(g, y, by), back)}));
    g.Output("rows", g.Op("neg", {Cast(g, row, back)}));
    const Graph graph = *g.Finish();
    ExpectEqual(graph, FuseElementwise(graph), 1);
  }
  // One that holds all the numbers of the type before it rounds nothing.
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kBF16, {64}});
  g.Output("y", Cast(g, Cast(g, x, DType::kF32), DType::kBF16));
  EXPECT_EQ(Count(FuseElementwise(*g.Finish()), "fused"), 1);
}

TEST(Fuse, ConvNetsStayEqual) {
  for (int seed = 0; seed < 30; ++seed) {
    const Graph graph = ConvNet(seed);
    ExpectEqual(graph, FuseElementwise(EliminateDeadNodes(MergeCommonNodes(Simplify(AssignLayout(graph))))), seed);
    if (HasFatalFailure()) return;
  }
}

// The update of a table of `height` rows by the gradient of two gathers, by the rows that they name; f64.
Graph TableUpdate(int64_t height, bool all_rows) {
  GraphBuilder g("table");
  const auto list = [&](std::vector<int32_t> values) {
    return g.Literal({DType::kI32, {static_cast<int64_t>(values.size())}},
                     std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int32_t)));
  };
  const Value table = g.Input("table", kParameter, {DType::kF64, {height, 2}}),
              state = g.Input("state", kState, {DType::kF64, {height, 2}}),
              rate = g.Input("rate", kScalar, {DType::kF64, {}});
  const Value indices[] = {list({3, 1, 3}), list({7, 1})};
  Value gradient, count;
  for (int k = 0; k < 2; ++k) {
    const int64_t n = g.TypeOf(indices[k]).shape[0];
    const Value d = g.Input("d" + std::to_string(k), kData, {DType::kF64, {n, 2}});
    const Value part = g.Op("scatter_sum", {indices[k], d}, {{"size", height}}),
                ones = g.Op("scatter_sum", {indices[k], g.Constant(1, DType::kF32, {n, 1})}, {{"size", height}});
    gradient = k == 0 ? part : Add(g, gradient, part);
    count = k == 0 ? ones : Add(g, count, ones);
  }
  const Value norm = g.Op("sqrt", {ReduceSum(g, Mul(g, gradient, gradient), {0, 1}, false)});
  const Value clipped = Mul(g, gradient, norm);
  const Value next_state = Add(g, state, Mul(g, clipped, clipped));
  const Value step = Div(g, Mul(g, clipped, rate), Add(g, g.Op("abs", {next_state}), 1));
  const Value named = Elementwise(g, "greater", {count, g.Constant(0, DType::kF32)});
  const auto kept = [&](Value next, Value old) {
    return all_rows ? next : Elementwise(g, "select", {named, next, old});
  };
  g.Output("norm", norm);
  g.Output("table", kept(Sub(g, table, step), table), "table");
  g.Output("state", kept(next_state, state), "state");
  return *g.Finish();
}

TEST(Rows, OfATableAreUpdatedAlone) {
  const Graph graph = TableUpdate(9, false);
  const Graph rows = UpdateByRows(graph);
  ExpectEqual(graph, rows, 1);
  EXPECT_EQ(Count(rows, "update_rows"), 2);
  EXPECT_EQ(Count(rows, "scatter_sum"), 0);
  for (const Node& n : UpdateByRows(TableUpdate(1000, false)).nodes) {
    if (n.op->name == "input" || n.op->name == "update_rows") continue;
    for (const TensorType& t : n.outputs) EXPECT_LT(t.elements(), 1000) << n.op->name;
  }
}

TEST(Rows, StayWholeWhereTheyAreAllUpdatedOrNamed) {
  EXPECT_EQ(Count(UpdateByRows(TableUpdate(9, true)), "update_rows"), 0);
  // 5 indices name as many rows as a table of 5 has.
  EXPECT_EQ(Count(UpdateByRows(TableUpdate(6, false)), "update_rows"), 2);
  EXPECT_EQ(Count(UpdateByRows(TableUpdate(5, false)), "update_rows"), 0);
}

}  // namespace
}  // namespace mslua
