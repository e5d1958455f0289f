#include "core/onnx/export.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "core/graph/builder.h"
#include "core/onnx/lowering.h"
#include "core/onnx/proto.h"
#include "core/op/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::onnx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A message read back, without onnx.proto: the values of each field in order.
struct Message {
  std::map<int, std::vector<std::string>> bytes;
  std::map<int, std::vector<int64_t>> ints;

  explicit Message(const std::string& wire) {
    size_t at = 0;
    const auto varint = [&] {
      uint64_t v = 0;
      for (int shift = 0;; shift += 7) {
        const uint8_t b = static_cast<uint8_t>(wire.at(at++));
        v |= uint64_t{b & 127u} << shift;
        if (b < 128) return v;
      }
    };
    while (at < wire.size()) {
      const uint64_t key = varint();
      const int field = static_cast<int>(key >> 3);
      if ((key & 7) == 0) {
        ints[field].push_back(static_cast<int64_t>(varint()));
      } else {
        const size_t size = (key & 7) == 5 ? 4 : static_cast<size_t>(varint());
        bytes[field].push_back(wire.substr(at, size));
        at += size;
      }
    }
  }
  Message Sub(int field, size_t i = 0) const { return Message(bytes.at(field).at(i)); }
};

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// relu(x w) for a batch of `rows` rows, and what `more` makes of it.
Graph Layer(int64_t rows, const std::function<Value(GraphBuilder&, Value, int64_t)>& more = nullptr) {
  GraphBuilder g("net");
  g.SetLocation(std::make_shared<Location>(Location{"Net", "recipe.lua", 7, ""}));
  const Value x = g.Input("x", kData, {DType::kF32, {rows, 3}});
  const Value w = g.Input("w", kParameter, {DType::kF32, {3, 2}});
  Value y = g.Op("relu", {g.Op("matmul", {x, w})});
  if (more) y = more(g, y, rows);
  g.Output("y", y);
  auto graph = g.Finish();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

float kWeights[] = {1, 2, 3, 4, 5, 6};

StatusOr<TensorView> Weights(const std::string&) { return TensorView{{DType::kF32, {3, 2}}, kWeights}; }

StatusOr<Model> Export(const std::function<Value(GraphBuilder&, Value, int64_t)>& more, DType dtype = DType::kF32) {
  return ExportGraph(Layer(5, more), Layer(8, more), dtype, Weights);
}

std::vector<std::string> Ops(const Model& model) {
  std::vector<std::string> ops;
  for (const OnnxNode& n : model.nodes) ops.push_back(n.op);
  return ops;
}

TEST(ExportTest, ALayerForAnyBatch) {
  const auto model = Export(nullptr);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Ops(*model), ElementsAre("MatMul", "Max", "Identity"));
  ASSERT_EQ(model->inputs.size(), 1u);
  EXPECT_EQ(model->inputs[0].shape, (std::vector<Dim>{{0, 1}, {3, 0}}));
  EXPECT_EQ(model->outputs[0].shape, (std::vector<Dim>{{0, 1}, {2, 0}}));

  const std::string path = testing::TempDir() + "/layer.onnx";
  ASSERT_TRUE(WriteModel(*model, path).ok());
  const Message file(Read(path));
  EXPECT_EQ(file.ints.at(1), std::vector<int64_t>{8});
  EXPECT_EQ(file.Sub(8).ints.at(2), std::vector<int64_t>{kOpset});
  const Message graph = file.Sub(7);
  EXPECT_EQ(graph.Sub(1).bytes.at(4)[0], "MatMul");
  const Message weights = graph.Sub(5);
  EXPECT_EQ(weights.bytes.at(8)[0], "w");
  EXPECT_EQ(weights.ints.at(1), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(weights.bytes.at(9)[0], std::string(reinterpret_cast<const char*>(kWeights), sizeof kWeights));
  const Message shape = graph.Sub(11).Sub(2).Sub(1).Sub(2);
  EXPECT_EQ(shape.Sub(1, 0).bytes.at(2)[0], "batch");
  EXPECT_EQ(shape.Sub(1, 1).ints.at(1)[0], 3);
}

TEST(ExportTest, LargeModelsHaveExternalData) {
  const auto model = Export(nullptr);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string path = testing::TempDir() + "/external.onnx";
  ASSERT_TRUE(WriteModel(*model, path, /*limit=*/100).ok());
  const Message graph = Message(Read(path)).Sub(7);
  const std::string data = Read(path + ".data");
  for (const std::string& wire : graph.bytes.at(5)) {
    const Message tensor(wire);
    EXPECT_EQ(tensor.ints.at(14), std::vector<int64_t>{1});
    EXPECT_EQ(tensor.bytes.count(9), 0u);
    std::map<std::string, std::string> place;
    for (size_t i = 0; i < 3; ++i) place[tensor.Sub(13, i).bytes.at(1)[0]] = tensor.Sub(13, i).bytes.at(2)[0];
    EXPECT_EQ(place["location"], "external.onnx.data");
    if (tensor.bytes.at(8)[0] != "w") continue;
    EXPECT_EQ(data.substr(std::stoul(place["offset"]), std::stoul(place["length"])),
              std::string(reinterpret_cast<const char*>(kWeights), sizeof kWeights));
    EXPECT_EQ(std::stoul(place["offset"]) % 4096, 0u);
  }
}

TEST(ExportTest, WeightsIn16Bits) {
  const auto model = Export(nullptr, DType::kBF16);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Ops(*model), ElementsAre("Cast", "MatMul", "Max", "Identity"));
  EXPECT_EQ(model->initializers[0].type.dtype, DType::kBF16);
  kWeights[4] = 1e6f;
  EXPECT_THAT(std::string(Export(nullptr, DType::kF16).status().message()), HasSubstr("w has the number 1e+06"));
  kWeights[4] = 5;
}

TEST(ExportTest, DimensionsThatFollowTheBatch) {
  const auto model = Export([](GraphBuilder& g, Value y, int64_t rows) {
    const Value flat = Reshape(g, y, {rows * 2});
    const Value zeros = BroadcastTo(g, g.Constant(3, DType::kF32, {1, 1}), {rows, 2});
    return Add(g, Reshape(g, flat, {rows, 2}), zeros);
  });
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Ops(*model), testing::Contains("Expand"));
  EXPECT_EQ(model->outputs[0].shape, (std::vector<Dim>{{0, 1}, {2, 0}}));
}

TEST(ExportTest, NumbersThatFollowTheBatch) {
  const auto ops = [](const std::function<Value(GraphBuilder&, Value, double)>& more) {
    const auto model =
        Export([&](GraphBuilder& g, Value y, int64_t rows) { return more(g, y, static_cast<double>(rows)); });
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? Ops(*model) : std::vector<std::string>();
  };
  const auto divided = ops([](GraphBuilder& g, Value y, double rows) { return Mul(g, y, 3 / rows); });
  EXPECT_THAT(divided, testing::Contains("Div"));
  EXPECT_THAT(divided, testing::Contains("Shape"));
  const auto multiplied = ops([](GraphBuilder& g, Value y, double rows) { return Mul(g, y, rows / 3); });
  EXPECT_THAT(multiplied, testing::Contains("Shape"));
  EXPECT_THAT(multiplied, testing::Not(testing::Contains("Div")));
  EXPECT_THAT(ops([](GraphBuilder& g, Value y, double) {
                const Attrs over_batch = {{"axis", std::vector<int64_t>{0}}, {"keep_dims", true}};
                return Sub(g, y, g.Op("reduce_mean", {y}, over_batch));
              }),
              testing::Contains("Div"));
}

TEST(ExportTest, WhatOnnxCannotSayIsNamedWithItsLine) {
  const auto message = [](const std::function<Value(GraphBuilder&, Value, int64_t)>& more) {
    const auto model = Export(more);
    EXPECT_FALSE(model.ok());
    return std::string(model.status().message());
  };
  EXPECT_THAT(
      message([](GraphBuilder& g, Value y, int64_t rows) { return Mul(g, y, std::sqrt(static_cast<double>(rows))); }),
      HasSubstr("recipe.lua:7: export: "));
  EXPECT_THAT(message([](GraphBuilder& g, Value y, int64_t rows) {
                for (int64_t i = 0; i < rows; ++i) y = g.Op("tanh", {y});
                return y;
              }),
              HasSubstr("other operators for another size of the batch"));
  // All operators without a form at once.
  const std::string both = message([](GraphBuilder& g, Value y, int64_t rows) {
    const Value step = g.Input("step", kData, {DType::kI64, {}});
    const Value noise = g.Op("random_normal", {step}, {{"shape", std::vector<int64_t>{rows, 2}}});
    const Value uniform = g.Op("random_uniform", {step}, {{"shape", std::vector<int64_t>{rows, 2}}});
    return Add(g, y, Add(g, noise, uniform));
  });
  EXPECT_THAT(both, HasSubstr("random_normal has no ONNX form"));
  EXPECT_THAT(both, HasSubstr("random_uniform has no ONNX form"));
}

// Operators that inference does not contain: training, randomness, losses, ranks, what passes for a device make.
bool OfTraining(const OpDef& op) {
  static const auto* const kNames =
      new std::set<std::string>{"apply_optimizer", "batch_norm",     "batch_norm_stats",
                                "dropout",         "fused",          "fused_rows",
                                "scatter_d",       "scatter_add",    "fold",
                                "unfold",          "input",          "packed_attention",
                                "random_normal",   "random_uniform", "unique_rows",
                                "row_sums",        "read_rows",      "update_rows",
                                "mse_loss",        "norm_grad",      "sparse_softmax_cross_entropy"};
  return kNames->count(op.name) > 0 || op.name.find("_grad") != std::string::npos || op.name.find("matmul_bias") == 0 ||
         op.random || op.side_effect;
}

// Operators whose function ONNX does not have.
bool IsUnknownToOnnx(const OpDef& op) {
  static const auto* const kNames = new std::set<std::string>{"lgamma",
                                                              "digamma",
                                                              "polygamma",
                                                              "erfinv",
                                                              "cummax",
                                                              "cummin",
                                                              "linear_recurrence",
                                                              "unsorted_segment_max",
                                                              "unsorted_segment_min"};
  return kNames->count(op.name) > 0;
}

// Every other operator with a sample has a form, or is made of operators that have one. Names are defined before use.
TEST(ExportTest, EveryOperatorOfInferenceHasAForm) {
  int checked = 0;
  for (const OpDef& op : Operators().all()) {
    for (size_t s = 0; s < op.samples.size() && !OfTraining(op); ++s) {
      const Sample& sample = op.samples[s];
      GraphBuilder g;
      std::vector<Value> inputs;
      for (const TensorType& type : sample.inputs)
        inputs.push_back(g.Input(absl::StrCat("x", inputs.size()), kData, type));
      const std::vector<Value> outputs = g.OpMulti(op.name, inputs, sample.attrs);
      ASSERT_TRUE(g.status().ok()) << op.name << ": " << g.status();
      g.Output("y", outputs[0]);
      const auto graph = g.Finish();
      const auto model = ExportGraph(*graph, *graph, DType::kF32, nullptr);
      if (IsUnknownToOnnx(op)) {
        EXPECT_THAT(std::string(model.status().message()), HasSubstr("has no ONNX form")) << op.name;
        continue;
      }
      if (op.name == "pad" && !model.ok()) {
        EXPECT_THAT(std::string(model.status().message()), HasSubstr("interior"));
        continue;
      }
      EXPECT_TRUE(model.ok()) << op.name << ": " << model.status();
      if (!model.ok()) continue;
      ++checked;
      std::set<std::string> known;
      for (const auto& t : model->initializers) EXPECT_TRUE(known.insert(t.name).second) << op.name << " " << t.name;
      for (const auto& i : model->inputs) EXPECT_TRUE(known.insert(i.name).second) << op.name << " " << i.name;
      for (const OnnxNode& n : model->nodes) {
        for (const std::string& i : n.inputs) EXPECT_TRUE(known.count(i)) << op.name << ": " << n.op << " of " << i;
        for (const std::string& o : n.outputs) EXPECT_TRUE(known.insert(o).second) << op.name << " " << o;
      }
    }
  }
  EXPECT_GT(checked, 100);
}

}  // namespace
}  // namespace mslua::onnx
