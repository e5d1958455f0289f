// Measures strategy search in processor time:
//   bazel run //core/sharding/search:search_bench -- --network gpt12 --ranks 64 --mode dynamic_programming
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "core/autodiff/gradient.h"
#include "core/graph/builder.h"
#include "core/sharding/search/search.h"
#include "gflags/gflags.h"

DEFINE_string(network, "", "resnet50, gpt12 or gpt96; empty: all");
DEFINE_int64(ranks, 0, "number of devices; 0: all that are measured");
DEFINE_string(mode, "", "search mode; empty: all");

namespace mslua {
namespace {

class Network {
 public:
  Value Parameter(Shape shape) {
    parameters_.push_back(g_.Input(absl::StrCat("p", parameters_.size()), kParameter, {DType::kF32, std::move(shape)}));
    return parameters_.back();
  }
  Graph Train(Value loss) {
    const auto gradients = Gradients(g_, loss, parameters_, Value(), /*mark_origin=*/true);
    if (!gradients.ok()) g_.Fail(gradients.status());
    g_.Output("loss", loss);
    auto graph = g_.Finish();
    if (graph.ok()) return *std::move(graph);
    std::fprintf(stderr, "%s\n", graph.status().ToString().c_str());
    std::exit(1);
  }
  Value Dense(Value x, int64_t out) { return g_.Op("matmul", {x, Parameter({g_.TypeOf(x).shape[1], out})}); }
  Value CrossEntropy(Value logits) {
    const Value labels = g_.Input("labels", kData, {DType::kI32, {g_.TypeOf(logits).shape[0]}});
    return g_.Op("reduce_mean", {g_.OpMulti("sparse_softmax_cross_entropy", std::vector<Value>{logits, labels})[0]});
  }
  GraphBuilder g_{"net"};

 private:
  std::vector<Value> parameters_;
};

Graph ResNet50(int64_t batch) {
  Network n;
  GraphBuilder& g = n.g_;
  const auto conv = [&](Value x, int64_t out, int64_t kernel, int64_t stride, bool relu) {
    Value y = g.Op("conv2d", {x, n.Parameter({out, g.TypeOf(x).shape[1], kernel, kernel})},
                   {{"pad_mode", std::string("same")}, {"stride", std::vector<int64_t>{stride}}});
    const int64_t c = out;
    const auto state = [&](const char* what) {
      return g.Input(absl::StrCat(what, g.graph().nodes.size()), kState, {DType::kF32, {c}});
    };
    y = g.OpMulti("batch_norm",
                  std::vector<Value>{y, n.Parameter({c}), n.Parameter({c}), state("mean"), state("variance")})[0];
    return relu ? g.Op("relu", {y}) : y;
  };
  Value x = conv(g.Input("x", kData, {DType::kF32, {batch, 3, 224, 224}}), 64, 7, 2, true);
  x = g.Op("max_pool2d", {x}, {{"kernel_size", std::vector<int64_t>{2}}, {"stride", std::vector<int64_t>{2}}});
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    for (int b = 0; b < blocks[stage]; ++b) {
      const int64_t width = 64 << stage, stride = b == 0 && stage > 0 ? 2 : 1;
      const Value shortcut = b == 0 ? conv(x, 4 * width, 1, stride, false) : x;
      const Value y = conv(conv(conv(x, width, 1, 1, true), width, 3, stride, true), 4 * width, 1, 1, false);
      x = g.Op("relu", {Add(g, y, shortcut)});
    }
  }
  x = g.Op("reduce_mean", {x}, {{"axis", std::vector<int64_t>{2, 3}}});
  return n.Train(n.CrossEntropy(n.Dense(x, 1000)));
}

Graph Gpt(int64_t batch, int64_t length, int layers, int64_t width, int64_t heads) {
  Network n;
  GraphBuilder& g = n.g_;
  const Value tokens = g.Input("tokens", kData, {DType::kI32, {batch * length}});
  Value x = g.Op("gather", {n.Parameter({50304, width}), tokens}, {{"axis", int64_t{0}}});
  const auto norm = [&](Value v) {
    return g.OpMulti("layer_norm", std::vector<Value>{v, n.Parameter({width}), n.Parameter({width})})[0];
  };
  for (int l = 0; l < layers; ++l) {
    const Value h = norm(x);
    const auto split = [&](Value v) {
      return Transpose(g, Reshape(g, v, {batch, length, heads, width / heads}), {0, 2, 1, 3});
    };
    const Value q = split(n.Dense(h, width)), k = split(n.Dense(h, width)), v = split(n.Dense(h, width));
    Value a = g.OpMulti("scaled_dot_product_attention", std::vector<Value>{q, k, v}, {{"causal", true}})[0];
    a = Reshape(g, Transpose(g, a, {0, 2, 1, 3}), {batch * length, width});
    x = Add(g, x, n.Dense(a, width));
    x = Add(g, x, n.Dense(g.Op("gelu", {n.Dense(norm(x), 4 * width)}), width));
  }
  return n.Train(n.CrossEntropy(n.Dense(norm(x), 50304)));
}

double ProcessorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void Time(const char* name, Graph (*network)(), int64_t ranks) {
  if (!FLAGS_network.empty() && FLAGS_network != name) return;
  if (FLAGS_ranks != 0 && FLAGS_ranks != ranks) return;
  const Graph graph = network();
  const Mesh mesh = *Mesh::Of(ranks);
  for (int m = 0; m < 3; ++m) {
    SearchOptions options;
    options.mode = static_cast<SearchMode>(m);
    if (!FLAGS_mode.empty() && FLAGS_mode != Name(options.mode)) continue;
    options.cluster.flops_per_second = 150e12;
    options.cluster.bytes_per_second = 1.5e12;
    for (int a = 0; a < mesh.axes(); ++a)
      options.cluster.links.axes.push_back(a < mesh.axes() - 3 ? LinkCosts::Link{15e-6, 4e-11}
                                                               : LinkCosts::Link{5e-6, 4e-12});
    const double start = ProcessorSeconds();
    const auto r = Search(graph, mesh, options);
    const double seconds = ProcessorSeconds() - start;
    if (!r.ok()) {
      std::printf("%-12s %5ld  %-22s %s\n", name, static_cast<long>(ranks), Name(options.mode),
                  r.status().ToString().c_str());
      continue;
    }
    std::printf(
        "%-12s %5ld  %-22s %4d nodes %7ld candidates  table %9.0f  %8.1f ms  step %9.3f ms (compute %9.3f)  "
        "gap %6.2f%%%s\n",
        name, static_cast<long>(ranks), Name(options.mode), r->nodes, static_cast<long>(r->candidates),
        r->largest_table, seconds * 1e3, r->seconds * 1e3, r->compute_seconds * 1e3, r->gap * 100,
        r->exact ? "  exact" : "");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace mslua

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  const auto gpt12 = [] { return mslua::Gpt(64, 1024, 12, 768, 12); };
  mslua::Time(
      "resnet50", [] { return mslua::ResNet50(256); }, 8);
  mslua::Time("gpt12", gpt12, 8);
  mslua::Time("gpt12", gpt12, 64);
  mslua::Time(
      "gpt96", [] { return mslua::Gpt(1024, 2048, 96, 12288, 96); }, 1024);
  return 0;
}
