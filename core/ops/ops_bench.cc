// Times the fast kernels on the shapes of ResNet-50, GPT and the quick start: best of several runs, with the rate of
// arithmetic and of memory that it means. Arguments keep the rows whose operator and shapes contain them all.
//
//   bazel run //core/ops:ops_bench -- packed_attention 'f32[12,64,384]'
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "absl/strings/match.h"
#include "core/base/aligned_memory.h"
#include "core/base/rng.h"
#include "core/op/registry.h"
#include "gflags/gflags.h"

namespace mslua {
namespace {

struct Row {
  const char* op;
  std::vector<TensorType> inputs;
  Attrs attrs;
};

std::vector<Row> Rows() {
  using Ints = std::vector<int64_t>;
  std::vector<Row> rows;
  for (const DType t : {DType::kF32, DType::kBF16}) {
    const auto data = [t](Shape s) { return TensorType{t, std::move(s)}; };
    const auto f32 = [](Shape s) { return TensorType{DType::kF32, std::move(s)}; };
    const Attrs last = {{"data_format", std::string("NHWC")}};
    rows.push_back({"matmul", {data({2, 32}), data({32, 16})}, {}});
    rows.push_back({"matmul", {data({2, 16}), data({32, 16})}, {{"transpose_b", true}}});
    rows.push_back({"matmul", {data({2, 32}), data({2, 16})}, {{"transpose_a", true}}});
    rows.push_back({"matmul", {data({64, 64}), data({64, 64})}, {}});
    rows.push_back({"matmul", {data({768, 128}), data({128, 512})}, {}});
    rows.push_back({"matmul", {data({512, 768}), data({768, 3072})}, {}});
    const auto convolution = [&](int64_t n, int64_t c, int64_t o, int64_t size, int64_t kernel, int64_t stride) {
      const int64_t out = size / stride;
      Attrs a = {{"data_format", std::string("NHWC")},
                 {"stride", Ints{stride}},
                 {"pad_mode", "pad"},
                 {"padding", Ints{kernel / 2}}};
      rows.push_back({"conv2d", {data({n, size, size, c}), data({o, c, kernel, kernel})}, a});
      Attrs input = a, weight = a;
      input.Set("input_size", Ints{size, size});
      weight.Set("kernel_size", Ints{kernel, kernel});
      rows.push_back({"conv2d_grad_input", {data({n, out, out, o}), data({o, c, kernel, kernel})}, input});
      rows.push_back({"conv2d_grad_weight", {data({n, size, size, c}), data({n, out, out, o})}, weight});
    };
    convolution(32, 64, 64, 56, 3, 1);
    convolution(32, 256, 64, 56, 1, 1);
    convolution(32, 512, 512, 2, 3, 1);
    for (const Shape& s : {Shape{32, 56, 56, 64}, Shape{32, 4, 4, 512}}) {
      const TensorType v = f32({s[3]});
      rows.push_back({"batch_norm_stats", {data(s), v}, last});
      rows.push_back({"batch_norm_apply", {data(s), v, v, v, v}, last});
      rows.push_back({"batch_norm_grad_stats", {data(s), data(s), v, v}, last});
      rows.push_back({"batch_norm_grad_apply",
                      {data(s), data(s), v, v, v, v, v},
                      {{"count", int64_t{s[0] * s[1] * s[2]}}, {"data_format", "NHWC"}}});
    }
    const Attrs pool = {{"data_format", std::string("NHWC")},
                        {"kernel_size", Ints{3}},
                        {"stride", Ints{2}},
                        {"pad_mode", "pad"},
                        {"padding", Ints{1}}};
    rows.push_back({"max_pool2d", {data({32, 112, 112, 64})}, pool});
    rows.push_back({"max_pool2d_grad", {data({32, 112, 112, 64}), data({32, 56, 56, 64})}, pool});
    rows.push_back({"layer_norm", {data({768, 128}), f32({128}), f32({128})}, {}});
    rows.push_back(
        {"layer_norm_grad_input", {data({768, 128}), data({768, 128}), f32({768}), f32({768}), f32({128})}, {}});
    rows.push_back({"layer_norm_grad_params", {data({768, 128}), data({768, 128}), f32({768}), f32({768})}, {}});
    for (const bool nhwc : {false, true}) {
      const TensorType x = data(nhwc ? Shape{64, 16, 16, 48} : Shape{64, 48, 16, 16}), s = f32({64, 8}), v = f32({48});
      const Attrs a = {{"groups", int64_t{8}}, {"data_format", std::string(nhwc ? "NHWC" : "NCHW")}};
      rows.push_back({"group_norm_apply", {x, v, v}, a});
      rows.push_back({"group_norm_grad", {x, x, s, s, v}, a});
    }
    rows.push_back({"sort", {data({1024, 1024})}, {}});
    rows.push_back({"top_k", {data({1024, 1024})}, {{"k", int64_t{8}}}});
    rows.push_back({"top_k", {data({1024, 1024})}, {{"k", int64_t{256}}}});
    rows.push_back({"reduce_sum", {data({768, 512})}, {{"axis", Ints{0}}}});
    rows.push_back({"reduce_sum", {data({768, 512})}, {{"axis", Ints{1}}}});
    rows.push_back({"softmax", {data({768, 1024})}, {}});
    rows.push_back({"sparse_softmax_cross_entropy", {data({512, 50257}), {DType::kI32, {512}}}, {}});
    for (const Shape& s : {Shape{64, 32, 4, 32}, Shape{64, 4, 32, 32}})
      rows.push_back({"transpose", {data(s)}, {{"perm", Ints{0, 2, 1, 3}}}});
    rows.push_back({"transpose", {data({2048, 4000})}, {{"perm", Ints{1, 0}}}});
    rows.push_back({"transpose", {data({32, 64, 56, 56})}, {{"perm", Ints{0, 2, 3, 1}}}});
    rows.push_back({"transpose", {data({32, 56, 56, 64})}, {{"perm", Ints{0, 3, 1, 2}}}});
    rows.push_back({"transpose", {data({32, 3, 224, 224})}, {{"perm", Ints{0, 2, 3, 1}}}});
    for (const Ints& axes : {Ints{0}, Ints{1}, Ints{0, 2}, Ints{1, 3}})
      for (const char* op : {"reduce_sum", "reduce_max"})
        rows.push_back({op, {data({16, 64, 32, 32})}, {{"axis", axes}}});
    rows.push_back({"softmax", {data({64, 256, 64})}, {{"axis", int64_t{1}}}});
    rows.push_back({"cumsum", {data({1024, 1024})}, {{"axis", int64_t{0}}}});
    rows.push_back({"split", {data({2048, 384})}, {{"axis", int64_t{1}}, {"output_num", int64_t{3}}}});
    rows.push_back({"concat", std::vector<TensorType>(3, data({2048, 128})), {{"axis", int64_t{1}}}});
    rows.push_back({"concat", {data({32, 128, 28, 28}), data({32, 64, 28, 28})}, {{"axis", int64_t{1}}}});
    for (const Shape& s : {Shape{1, 4, 64, 32}, Shape{12, 4, 64, 32}, Shape{2, 12, 256, 64}, Shape{1, 8, 512, 64}}) {
      const TensorType q = data(s), v = f32({s[0], s[1], s[2]});
      for (const bool causal : {true, false}) {
        rows.push_back({"scaled_dot_product_attention", {q, q, q}, {{"causal", causal}}});
        rows.push_back({"scaled_dot_product_attention_grad", {q, q, q, v, v, q}, {{"causal", causal}}});
      }
      const TensorType qkv = data({s[0], s[2], 3 * s[1] * s[3]}), y = data({s[0], s[2], s[1] * s[3]});
      const Attrs packed = {{"causal", true}, {"heads", s[1]}};
      rows.push_back({"packed_attention", {qkv}, packed});
      rows.push_back({"packed_attention_grad", {qkv, y, v, y}, packed});
    }
  }
  return rows;
}

std::string NameOf(const Row& row) {
  std::string name = row.op;
  for (const TensorType& t : row.inputs) name += " " + ToString(t);
  return name;
}

void Time(const Row& row) {
  const OpDef& op = *Operators().Find(row.op);
  Attrs attrs = row.attrs;
  const auto outputs = CheckCall(op, row.inputs, attrs);
  if (!outputs.ok()) {
    std::printf("%s: %s\n", row.op, outputs.status().ToString().c_str());
    return;
  }
  std::vector<AlignedMemory> memory;
  std::vector<const void*> in;
  std::vector<void*> out;
  double bytes = 0;
  for (const TensorType& t : row.inputs) {
    memory.push_back(AllocateAligned(t.bytes()));
    for (int64_t i = 0; i < t.elements(); ++i)
      StoreDouble(t.dtype, memory.back().get(), i, IsFloat(t.dtype) ? 0.5 + UniformAt(1, 2, i) : 0);
    in.push_back(memory.back().get());
    bytes += static_cast<double>(t.bytes());
  }
  for (const TensorType& t : *outputs) {
    memory.push_back(AllocateAligned(t.bytes()));
    out.push_back(memory.back().get());
    bytes += static_cast<double>(t.bytes());
  }
  const OpSpec spec{attrs, row.inputs, *outputs};
  const double flops = op.flops ? op.flops(attrs, row.inputs, *outputs) : 0;
  for (const FastKernel& fast : op.fast) {
    if (!fast.supports(spec)) continue;
    const auto kernel = fast.make(spec);
    if (!kernel.ok()) {
      std::printf("%s: %s\n", row.op, kernel.status().ToString().c_str());
      continue;
    }
    const AlignedMemory scratch = AllocateAligned((*kernel)->scratch_bytes());
    double best = 1e9, total = 0;
    while (total < 0.2) {  // the best of many is not disturbed by other work
      constexpr int kRuns = 4;
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kRuns; ++i) (*kernel)->Run({in.data(), out.data(), scratch.get()}).IgnoreError();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      total += seconds;
      best = std::min(best, seconds / kRuns);
    }
    std::printf("%10.2f us %8.1f GFLOP/s %7.1f GB/s  %-8s %s\n", best * 1e6, flops / best * 1e-9, bytes / best * 1e-9,
                fast.name, NameOf(row).c_str());
  }
}

}  // namespace
}  // namespace mslua

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  for (const mslua::Row& row : mslua::Rows()) {
    const std::string name = mslua::NameOf(row);
    if (std::all_of(argv + 1, argv + argc, [&](const char* part) { return absl::StrContains(name, part); }))
      mslua::Time(row);
  }
  return 0;
}
