#include "core/sharding/testing/models.h"

#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/autodiff/gradient.h"
#include "core/base/rng.h"

namespace mslua::testing {
namespace {

constexpr int64_t kClasses = 12;

class StepBuilder {
 public:
  StepBuilder(uint64_t seed, bool f32) : random_(seed), type_(f32 ? DType::kF32 : DType::kF64) {}

  // Where building fails the graph is empty and its name says why.
  Graph Build(Net net) {
    Value loss;
    switch (net) {
      case Net::kMlp:
        loss = Mlp();
        break;
      case Net::kConvolution:
        loss = Convolution();
        break;
      case Net::kAttention:
        loss = Attention();
        break;
      case Net::kEmbedding:
        loss = Embedding();
        break;
    }
    Train(loss);
    const auto graph = g_.Finish();
    if (!graph.ok()) {
      Graph wrong;
      wrong.name = std::string(graph.status().message());
      return wrong;
    }
    return *graph;
  }

 private:
  bool Coin() { return random_() % 2 == 0; }
  int64_t Pick(std::initializer_list<int64_t> sizes) { return sizes.begin()[random_() % sizes.size()]; }

  Value Data(const char* name, Shape shape) { return g_.Input(name, kData, {type_, std::move(shape)}); }
  Value Labels(const char* name, Shape shape) { return g_.Input(name, kData, {DType::kI32, std::move(shape)}); }
  Value Parameter(Shape shape) {
    parameters_.push_back(g_.Input(absl::StrCat("p", parameters_.size()), kParameter, {type_, std::move(shape)}));
    return parameters_.back();
  }
  void Scope(absl::string_view name) {
    g_.SetLocation(std::make_shared<Location>(Location{absl::StrCat("Net/", name, calls_++), "net.lua", calls_, ""}));
  }

  Value Dense(Value x, int64_t out, bool bias) {
    Scope("dense");
    const Shape shape = g_.TypeOf(x).shape;
    Value y = g_.Op("matmul", {Rows(x), Parameter({shape.back(), out})});
    if (bias) y = Add(g_, y, Parameter({out}));
    Shape back = shape;
    back.back() = out;
    return Reshape(g_, y, back);
  }
  // x as a matrix.
  Value Rows(Value x) {
    const Shape shape = g_.TypeOf(x).shape;
    return Reshape(g_, x, {NumElements(shape) / shape.back(), shape.back()});
  }
  Value Activate(Value x) {
    const char* const kinds[] = {"relu", "tanh", "gelu", "sigmoid", "silu"};
    Scope("act");
    return g_.Op(kinds[random_() % 5], {x});
  }
  Value Dropout(Value x) {
    Scope("dropout");
    if (!step_.valid()) step_ = g_.Input("step", kScalar, {DType::kI64, {}});
    return g_.Op("dropout", {x, step_}, {{"p", 0.25}});
  }
  Value Normalise(Value x) {
    Scope("norm");
    const int64_t d = g_.TypeOf(x).shape.back();
    return g_.OpMulti("layer_norm", std::vector<Value>{x, Parameter({d}), Parameter({d})})[0];
  }
  Value CrossEntropy(Value logits, Value labels) {
    Scope("loss");
    const Value each = g_.OpMulti("sparse_softmax_cross_entropy", std::vector<Value>{logits, labels})[0];
    return g_.Op("reduce_mean", {each});
  }

  Value Mlp() {
    const int64_t batch = Pick({12, 48});
    Value x = Data("x", {batch, Pick({16, 48})});
    const Value shared = Coin() ? Parameter({48, 48}) : Value();
    const int layers = static_cast<int>(1 + random_() % 3);
    for (int i = 0; i < layers; ++i) {
      const Value before = x;
      if (shared.valid() && g_.TypeOf(x).shape.back() == 48) {
        Scope("shared");
        x = g_.Op("matmul", {x, shared}, {{"transpose_b", Coin()}});
      } else {
        x = Dense(x, 48, Coin());
      }
      if (Coin()) x = Normalise(x);
      x = Activate(x);
      if (random_() % 4 == 0) x = Dropout(x);
      if (Coin() && g_.TypeOf(before) == g_.TypeOf(x)) x = Add(g_, x, before);
    }
    const Value y = Dense(x, Pick({12, 16}), true);
    if (g_.TypeOf(y).shape[1] == kClasses && Coin()) return CrossEntropy(y, Labels("labels", {batch}));
    Scope("loss");
    return g_.Op("mse_loss", {y, Data("target", g_.TypeOf(y).shape)});
  }

  Value Convolution() {
    const int64_t batch = 12;
    Value x = Data("x", {batch, Pick({3, 4}), 6, 6});
    const int layers = static_cast<int>(1 + random_() % 3);
    for (int i = 0; i < layers; ++i) {
      const int64_t in = g_.TypeOf(x).shape[1], out = Pick({12, 16, 10, 20, 28}), kernel = Pick({1, 3});
      const int64_t stride = i == 0 ? Pick({1, 1, 2}) : 1;
      Scope("conv");
      Value y = g_.Op("conv2d", {x, Parameter({out, in, kernel, kernel})},
                      {{"pad_mode", std::string("same")}, {"stride", std::vector<int64_t>{stride}}});
      if (y.valid() && Coin()) y = Coin() || out % 4 != 0 ? BatchNorm(y) : GroupNorm(y);
      y = Activate(y);
      if (!y.valid()) return y;
      if (Coin() && g_.TypeOf(x) == g_.TypeOf(y)) y = Add(g_, y, x);
      x = y;
    }
    if (Coin()) {
      Scope("pool");
      x = g_.Op(
          Coin() ? "max_pool2d" : "avg_pool2d", {x},
          {{"kernel_size", std::vector<int64_t>{2}}, {"stride", std::vector<int64_t>{g_.TypeOf(x).shape[2] / 3}}});
    }
    if (!x.valid()) return x;
    const Shape shape = g_.TypeOf(x).shape;
    if (Coin()) {
      Scope("flatten");
      x = Reshape(g_, x, {shape[0], shape[1] * shape[2] * shape[3]});
    } else {
      Scope("mean");
      x = g_.Op("reduce_mean", {x}, {{"axis", std::vector<int64_t>{2, 3}}});
    }
    return CrossEntropy(Dense(x, kClasses, true), Labels("labels", {batch}));
  }
  Value GroupNorm(Value x) {
    Scope("gn");
    const int64_t c = g_.TypeOf(x).shape[1];
    return g_.OpMulti("group_norm", std::vector<Value>{x, Parameter({c}), Parameter({c})}, {{"groups", int64_t{4}}})[0];
  }
  Value BatchNorm(Value x) {
    Scope("bn");
    const int64_t c = g_.TypeOf(x).shape[1];
    const Value mean = g_.Input(absl::StrCat("s", calls_, ".mean"), kState, {type_, {c}}),
                variance = g_.Input(absl::StrCat("s", calls_, ".variance"), kState, {type_, {c}});
    const auto y = g_.OpMulti("batch_norm", std::vector<Value>{x, Parameter({c}), Parameter({c}), mean, variance}, {});
    if (y.size() < 3) return {};
    running_.emplace_back(mean, y[1]);
    running_.emplace_back(variance, y[2]);
    return y[0];
  }

  Value Attention() {
    const int64_t batch = Pick({4, 12}), length = Pick({6, 12}), heads = Pick({3, 4}), width = 48;
    const Value table = Parameter({kClasses, width});
    Scope("embedding");
    Value x = g_.Op("gather", {table, Labels("tokens", {batch, length})}, {{"axis", int64_t{0}}});
    if (Coin()) x = Add(g_, x, Parameter({length, width}));
    const int layers = static_cast<int>(1 + random_() % 2);
    for (int i = 0; i < layers; ++i) {
      const Value h = Coin() ? Normalise(x) : x;
      const auto split = [&](Value v) {
        return Transpose(g_, Reshape(g_, v, {batch, length, heads, width / heads}), {0, 2, 1, 3});
      };
      const Value q = split(Dense(h, width, false)), k = split(Dense(h, width, false)),
                  v = split(Dense(h, width, false));
      Scope("attention");
      Value a = g_.OpMulti("scaled_dot_product_attention", std::vector<Value>{q, k, v}, {{"causal", Coin()}})[0];
      a = Reshape(g_, Transpose(g_, a, {0, 2, 1, 3}), {batch, length, width});
      a = Dense(a, width, Coin());
      if (random_() % 3 == 0) a = Dropout(a);
      x = Add(g_, x, a);
    }
    Value logits;
    if (Coin()) {
      Scope("tied");
      logits = g_.Op("matmul", {Rows(x), table}, {{"transpose_b", true}});
    } else {
      logits = Rows(Dense(x, kClasses, false));
    }
    return CrossEntropy(logits, Reshape(g_, Labels("labels", {batch, length}), {batch * length}));
  }

  // Two columns of tokens through one table, their means side by side or as a product.
  Value Embedding() {
    const int64_t batch = Pick({12, 48}), length = Pick({6, 8}), width = Pick({12, 16, 48});
    const Value table = Parameter({Pick({24, 48}), width});
    const auto embed = [&](const char* name) {
      Scope("embedding");
      const Value rows = g_.Op("gather", {table, Labels(name, {batch, length})}, {{"axis", int64_t{0}}});
      return g_.Op(Coin() ? "reduce_mean" : "reduce_max", {rows}, {{"axis", std::vector<int64_t>{1}}});
    };
    const Value a = embed("tokens"), b = embed("words");
    Scope("join");
    Value x = Coin() ? Mul(g_, a, b) : g_.Op("concat", {a, b}, {{"axis", int64_t{1}}});
    x = Activate(Dense(x, 48, true));
    if (Coin()) x = Normalise(x);
    return CrossEntropy(Dense(x, kClasses, true), Labels("labels", {batch}));
  }

  void Train(Value loss) {
    g_.SetLocation(nullptr);
    const auto gradients = Gradients(g_, loss, parameters_, Value(), /*mark_origin=*/true);
    if (!gradients.ok()) return g_.Fail(gradients.status());
    g_.SetLocation(nullptr);
    g_.Output("loss", loss);
    for (size_t i = 0; i < parameters_.size(); ++i) g_.Output(absl::StrCat("d.p", i), (*gradients)[i]);
    const auto scalar = [&](const char* name) { return g_.Input(name, kScalar, {type_, {}}); };
    const Value lr = scalar("lr"), momentum = scalar("momentum"), decay = scalar("decay");
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const std::string p = absl::StrCat("p", i), m = absl::StrCat("m.p", i);
      const Value velocity = g_.Input(m, kState, g_.TypeOf(parameters_[i]));
      const auto next = g_.OpMulti("apply_momentum",
                                   std::vector<Value>{parameters_[i], (*gradients)[i], velocity, lr, momentum, decay});
      if (next.size() < 2) return;
      g_.Output(p, next[0], p);
      g_.Output(m, next[1], m);
    }
    for (const auto& [state, next] : running_) {
      const std::string name = g_.NodeOf(state).attrs.Str("name");
      g_.Output(name, next, name);
    }
  }

  GraphBuilder g_{"step"};
  std::mt19937_64 random_;
  const DType type_;
  int calls_ = 1;
  Value step_;
  std::vector<Value> parameters_;
  std::vector<std::pair<Value, Value>> running_;  // running statistics and their next values
};

}  // namespace

Graph RandomStep(Net net, uint64_t seed, bool f32) { return StepBuilder(seed, f32).Build(net); }

std::vector<std::string> RandomInputs(const Graph& step, uint64_t seed) {
  std::vector<std::string> inputs;
  for (int32_t i : step.Inputs()) {
    const TensorType& type = step.nodes[i].outputs[0];
    const std::string& name = step.nodes[i].attrs.Str("name");
    std::string bytes(static_cast<size_t>(type.bytes()), '\0');
    for (int64_t e = 0; e < type.elements(); ++e) {
      const uint64_t stream = StreamOf(name), at = static_cast<uint64_t>(e);
      double v = 0.3 * NormalAt(seed, stream, at);
      if (absl::EndsWith(name, ".variance")) v = 1 + 0.1 * v;
      if (type.dtype == DType::kI32) v = static_cast<double>(UniformIntAt(seed, stream, at, kClasses));
      if (name == "lr") v = 0.01;
      if (name == "momentum") v = 0.9;
      if (name == "decay") v = 0.01;
      if (name == "step") v = 3;
      StoreDouble(type.dtype, &bytes[0], e, v);
    }
    inputs.push_back(std::move(bytes));
  }
  return inputs;
}

}  // namespace mslua::testing
