#include "tools/fuzz/shapes_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/parallel_for.h"
#include "core/kernels/guarded_memory.h"
#include "core/op/registry.h"

namespace mslua::fuzz {
namespace {

using Ints = std::vector<int64_t>;

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(int64_t n) { return Between(1, n) == 1; }
  template <class T>
  const T& Of(const std::vector<T>& v) {
    return v[static_cast<size_t>(Between(0, static_cast<int64_t>(v.size()) - 1))];
  }

  // 1 to 520. Half of them lie beside a multiple of 16, where kernels have their edges.
  int64_t Size() {
    switch (Between(0, 5)) {
      case 0:
        return Between(1, 8);
      case 1:
        return Between(1, 70);
      case 2:
        return Between(1, 520);
      case 3:
        return std::max<int64_t>(1, 16 * Between(0, 8) + Between(-1, 1));
      default:
        return std::max<int64_t>(1, (int64_t{1} << Between(0, 9)) + Between(-2, 2));
    }
  }
  int64_t Small(int64_t most) { return std::min(most, OneIn(2) ? Between(1, most) : Size()); }

  // The most multiplications of a case: many small ones, some large.
  double Budget() {
    const int64_t i = Between(1, 100);
    return i <= 45 ? 5e4 : i <= 82 ? 5e5 : i <= 98 ? 3e6 : 2e7;
  }

 private:
  std::mt19937_64 random_;
};

// Makes sizes smaller until their product is within the budget.
void Fit(Draw& draw, double budget, const std::vector<int64_t*>& sizes) {
  for (;;) {
    double product = 1;
    int64_t* largest = sizes[0];
    for (int64_t* s : sizes) {
      product *= static_cast<double>(*s);
      if (*s > *largest) largest = s;
    }
    if (product <= budget) return;
    int64_t* const chosen = draw.OneIn(2) ? largest : draw.Of(sizes);
    if (*chosen > 1) *chosen = draw.Between((*chosen + 1) / 2, *chosen - 1);
  }
}

void DrawProduct(Draw& draw, DType type, Case* c) {
  int64_t batch = draw.OneIn(3) ? draw.Small(24) : 1, m = draw.Size(), n = draw.Size(), k = draw.Size();
  if (draw.OneIn(12)) k = 63;
  if (draw.OneIn(12)) m = n = k = draw.Between(90, 270);
  Fit(draw, draw.Budget(), {&batch, &m, &n, &k});
  const bool ta = draw.OneIn(3), tb = draw.OneIn(3);
  Shape a = ta ? Shape{k, m} : Shape{m, k}, b = tb ? Shape{n, k} : Shape{k, n};
  if (batch > 1 || draw.OneIn(10)) {
    a.insert(a.begin(), batch);
    b.insert(b.begin(), batch);
  }
  c->attrs = {{"transpose_a", ta}, {"transpose_b", tb}};
  c->inputs = {{type, a}, {type, b}};
  c->terms = k;
}

// Windows of pooling are no larger than the padded image and their padding is smaller than they are.
struct Geometry {
  int64_t n, c, h, w;
  Ints kernel, stride, dilation, padding;
  bool last;
  int64_t Out(int a) const {
    const int64_t size = a == 0 ? h : w;
    return (size + padding[2 * a] + padding[2 * a + 1] - dilation[a] * (kernel[a] - 1) - 1) / stride[a] + 1;
  }
  Shape Images(int64_t channels, int64_t rows, int64_t columns) const {
    return last ? Shape{n, rows, columns, channels} : Shape{n, channels, rows, columns};
  }
};

Geometry DrawGeometry(Draw& draw, bool pooling) {
  for (;;) {
    Geometry g;
    g.n = draw.OneIn(3) ? 1 : draw.Small(9);
    g.c = draw.Size();
    g.h = draw.Small(60);
    g.w = draw.OneIn(3) ? g.h : draw.Small(60);
    if (draw.OneIn(12)) g.h = draw.Size();
    if (draw.OneIn(12)) g.w = draw.Size();
    if (draw.OneIn(10)) g.w = draw.Between(1, 3);
    const int64_t size = draw.Between(1, 7);
    g.kernel = {draw.OneIn(3) ? draw.Between(1, 7) : size, size};
    const int64_t stride = draw.OneIn(2) ? 1 : draw.Between(1, 4);
    g.stride = {draw.OneIn(4) ? draw.Between(1, 4) : stride, stride};
    g.dilation = {1, 1};
    if (!pooling && draw.OneIn(3)) g.dilation = {draw.Between(1, 4), draw.Between(1, 4)};
    switch (draw.Between(0, 3)) {
      case 0:
        g.padding = {0, 0, 0, 0};
        break;
      case 1:
        for (int a = 0; a < 2; ++a) g.padding.insert(g.padding.end(), 2, g.dilation[a] * (g.kernel[a] - 1) / 2);
        break;
      default:
        for (int a = 0; a < 2; ++a) {
          const int64_t most = g.dilation[a] * (g.kernel[a] - 1) + (pooling || draw.OneIn(2) ? 0 : 2);
          for (int side = 0; side < 2; ++side) g.padding.push_back(draw.Between(0, pooling ? most / 2 : most));
        }
    }
    g.last = draw.OneIn(2);
    const auto fits = [&](int a) {
      return (a == 0 ? g.h : g.w) + g.padding[2 * a] + g.padding[2 * a + 1] > g.dilation[a] * (g.kernel[a] - 1);
    };
    if (fits(0) && fits(1)) return g;
  }
}

void DrawConvolution(Draw& draw, DType type, Case* c) {
  const double budget = draw.Budget();
  Geometry g = DrawGeometry(draw, false);
  int64_t group = 1, in = g.c, out = draw.Size();
  switch (draw.Between(0, 5)) {
    case 0:
    case 1:  // several groups
      group = draw.Small(24);
      in = draw.Small(40);
      out = draw.Small(40);
      break;
    case 2:  // each channel by itself
      group = draw.Size();
      in = 1;
      out = draw.OneIn(3) ? draw.Between(1, 3) : 1;
      break;
    case 3:  // as training has them: batches of 32 images and blocks of channels
      g.n = draw.Between(26, 64);
      g.last = true;
      in = draw.Between(32, 100);
      out = draw.Between(32, 100);
      break;
  }
  // Groups and channels are made smaller until the case is within its budget, then images.
  for (int tries = 0;; ++tries) {
    const double taps = static_cast<double>(g.kernel[0] * g.kernel[1]),
                 work = taps * static_cast<double>(g.n * g.Out(0) * g.Out(1)) * static_cast<double>(group * in * out);
    if (work <= budget) break;
    int64_t* const sizes[] = {&group, &in, &out, &g.n, &g.h, &g.w};
    int64_t& s = *sizes[draw.Between(0, 5)];
    const int64_t before = s;
    if (s > 1) s = draw.Between((s + 1) / 2, s - 1);
    if (g.h + g.padding[0] + g.padding[1] <= g.dilation[0] * (g.kernel[0] - 1) ||
        g.w + g.padding[2] + g.padding[3] <= g.dilation[1] * (g.kernel[1] - 1)) {
      s = before;
      if (tries > 200) g.kernel = {1, 1};
    }
  }
  const int64_t p = g.Out(0), q = g.Out(1), taps = g.kernel[0] * g.kernel[1];
  const TensorType x{type, g.Images(group * in, g.h, g.w)}, w{type, {group * out, in, g.kernel[0], g.kernel[1]}},
      y{type, g.Images(group * out, p, q)};
  c->attrs = {{"stride", g.stride},   {"pad_mode", std::string("pad")},
              {"padding", g.padding}, {"dilation", g.dilation},
              {"group", group},       {"data_format", std::string(g.last ? "NHWC" : "NCHW")}};
  if (c->op == "conv2d") {
    c->inputs = {x, w};
    c->terms = in * taps;
  } else if (c->op == "conv2d_grad_input") {
    c->attrs.Set("input_size", Ints{g.h, g.w});
    c->inputs = {y, w};
    c->terms = out * taps;
  } else {
    c->attrs.Set("kernel_size", g.kernel);
    c->inputs = {x, y};
    c->terms = g.n * p * q;
  }
}

void DrawPooling(Draw& draw, DType type, Case* c) {
  Geometry g = DrawGeometry(draw, true);
  const double budget = draw.Budget() / 4;
  while (static_cast<double>(g.n * g.c * g.h * g.w) * static_cast<double>(g.kernel[0] * g.kernel[1]) > budget) {
    int64_t& s = g.n > 1 ? g.n : g.c > 1 ? g.c : g.h > g.kernel[0] ? g.h : g.w;
    s = s > 1 && (&s != &g.w || s > g.kernel[1]) ? (s + 1) / 2 : s;
    if (g.n == 1 && g.c == 1) break;
  }
  const TensorType x{type, g.Images(g.c, g.h, g.w)}, y{type, g.Images(g.c, g.Out(0), g.Out(1))};
  c->attrs = {{"kernel_size", g.kernel},
              {"stride", g.stride},
              {"pad_mode", std::string("pad")},
              {"padding", g.padding},
              {"data_format", std::string(g.last ? "NHWC" : "NCHW")}};
  c->terms = g.kernel[0] * g.kernel[1];
  if (c->op == "avg_pool2d_grad") {
    c->attrs.Set("input_size", Ints{g.h, g.w});
    c->inputs = {y};
  } else if (c->op == "max_pool2d_grad") {
    c->inputs = {x, y};
  } else {
    c->inputs = {x};
  }
}

void DrawAttention(Draw& draw, DType type, Case* c) {
  int64_t batch = draw.Small(4), heads = draw.Small(4), rows = draw.Size(), keys = draw.Size(),
          width = draw.OneIn(2) ? 16 * draw.Between(1, 8) : draw.Small(130);
  const bool causal = draw.OneIn(2);
  if (causal) keys = rows;
  Fit(draw, draw.Budget() / 4,
      causal ? std::vector<int64_t*>{&batch, &heads, &rows, &rows, &width}
             : std::vector<int64_t*>{&batch, &heads, &rows, &keys, &width});
  if (causal) keys = rows;
  const TensorType q{type, {batch, heads, rows, width}}, k{type, {batch, heads, keys, width}};
  c->inputs = {q, k, k};
  c->attrs = {{"causal", causal}};
  c->terms = width + keys;
}

DType TypeNamed(const std::string& name) {
  return name == "float32" ? DType::kF32 : name == "bfloat16" ? DType::kBF16 : DType::kF16;
}

// Relative to the result.
double Rounding(DType t) { return t == DType::kBF16 ? 0x1p-8 : t == DType::kF16 ? 0x1p-10 : 0x1p-22; }

// The f64 results.
StatusOr<std::vector<std::vector<double>>> ReferenceResults(const OpDef& op, const Attrs& attrs,
                                                            const std::vector<TensorType>& inputs,
                                                            const std::vector<TensorType>& outputs,
                                                            const std::vector<std::vector<double>>& values) {
  std::vector<TensorView> in, out;
  for (size_t i = 0; i < inputs.size(); ++i)
    in.push_back({{DType::kF64, inputs[i].shape}, const_cast<double*>(values[i].data())});
  std::vector<std::vector<double>> results;
  for (const TensorType& t : outputs) {
    results.emplace_back(t.elements());
    out.push_back({{DType::kF64, t.shape}, results.back().data()});
  }
  RETURN_IF_ERROR(op.reference({attrs, in, out}));
  return results;
}

}  // namespace

const std::vector<std::string>& Drawn() {
  static const auto* const names = new std::vector<std::string>{
      "matmul",          "conv2d",     "conv2d_grad_input", "conv2d_grad_weight",          "max_pool2d",
      "max_pool2d_grad", "avg_pool2d", "avg_pool2d_grad",   "scaled_dot_product_attention"};
  return *names;
}

Case DrawCase(uint64_t seed, int64_t index, const Choice& choice) {
  Draw draw(seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(index));
  Case c;
  // Products and convolutions are most of what is drawn.
  const std::vector<std::string>& names = choice.operators.empty() ? Drawn() : choice.operators;
  c.op = draw.Of(names);
  if (choice.operators.empty() && c.op.find("pool") != std::string::npos && !draw.OneIn(4))
    c.op = Drawn()[static_cast<size_t>(draw.Between(0, 3))];
  const std::string type = choice.types.empty()
                               ? draw.Of(std::vector<std::string>{"float32", "bfloat16", "bfloat16", "float16"})
                               : draw.Of(choice.types);
  c.threads = draw.Of(choice.threads);
  const DType t = TypeNamed(type);
  if (c.op == "matmul")
    DrawProduct(draw, t, &c);
  else if (c.op.find("conv2d") == 0)
    DrawConvolution(draw, t, &c);
  else if (c.op == "scaled_dot_product_attention")
    DrawAttention(draw, t, &c);
  else
    DrawPooling(draw, t, &c);
  return c;
}

std::string ToString(const Case& c) {
  std::string out = c.op;
  for (const TensorType& t : c.inputs) absl::StrAppend(&out, " ", ToString(t));
  for (const auto& [name, value] : c.attrs.items()) absl::StrAppend(&out, " ", name, "=", AttrText(value));
  absl::StrAppend(&out, " threads=", c.threads);
  return out;
}

Status RunCase(const Case& c, uint64_t seed) {
  const OpDef* const op = Operators().Find(c.op);
  if (op == nullptr) return absl::InternalError(absl::StrCat("no operator ", c.op));
  Attrs attrs = c.attrs;
  ASSIGN_OR_RETURN(const std::vector<TensorType> outputs, CheckCall(*op, c.inputs, attrs));
  const DType t = c.inputs[0].dtype;

  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<GuardedMemory> operands;
  std::vector<std::vector<double>> exact;
  std::vector<const void*> in;
  for (const TensorType& type : c.inputs) {
    operands.emplace_back(type.bytes(), GuardedMemory::kNaN);
    std::vector<double> values(type.elements());
    for (int64_t i = 0; i < type.elements(); ++i) {
      // In [-2, 2), in steps of 2^-7: bf16 has all of those below 1.
      StoreDouble(t, operands.back().data(), i, (static_cast<double>(random() % 512) - 256) / 128);
      values[i] = LoadAsDouble(t, operands.back().data(), i);
    }
    exact.push_back(std::move(values));
  }
  for (const GuardedMemory& g : operands) in.push_back(g.data());

  SetComputeThreads(c.threads);
  const OpSpec spec{attrs, c.inputs, outputs};
  std::unique_ptr<Kernel> kernel;
  for (const FastKernel& fast : op->fast) {
    if (!fast.supports(spec)) continue;
    ASSIGN_OR_RETURN(kernel, fast.make(spec));
    break;
  }
  std::vector<std::vector<GuardedMemory>> runs;
  for (const uint8_t pattern : {GuardedMemory::kNaN, GuardedMemory::kHuge}) {
    const GuardedMemory scratch(kernel == nullptr ? 0 : kernel->scratch_bytes(), pattern);
    std::vector<GuardedMemory> results;
    std::vector<void*> out;
    std::vector<TensorView> in_views, out_views;
    for (const TensorType& y : outputs) {
      results.emplace_back(y.bytes(), pattern);
      out.push_back(results.back().data());
      out_views.push_back({y, out.back()});
    }
    for (size_t i = 0; i < in.size(); ++i) in_views.push_back({c.inputs[i], const_cast<void*>(in[i])});
    RETURN_IF_ERROR(kernel != nullptr ? kernel->Run({in.data(), out.data(), scratch.data()})
                                      : op->reference({attrs, in_views, out_views}));
    if (!scratch.intact()) return absl::InternalError("bytes beside the scratch memory were written");
    for (const GuardedMemory& g : results) {
      if (!g.intact()) return absl::InternalError("bytes beside a result were written");
    }
    runs.push_back(std::move(results));
  }
  ASSIGN_OR_RETURN(const auto want, ReferenceResults(*op, attrs, c.inputs, outputs, exact));
  // A sum of n terms, each below 4, in f32: no order of additions comes near an error of n times that of a term.
  const double sums = 4 * 0x1p-24 * static_cast<double>(std::max<int64_t>(c.terms, 16));
  const bool attention = c.op == "scaled_dot_product_attention";
  for (size_t o = 0; o < outputs.size(); ++o) {
    const TensorType& y = outputs[o];
    // Attention in 16 bits rounds probabilities as well, whose weighted values cancel.
    const double rounding = Rounding(attention ? t : y.dtype),
                 least = sums + (t == DType::kF16 ? 1e-7 : 0) + (attention ? 4 * rounding : 0);
    for (int64_t i = 0; i < y.elements(); ++i) {
      const double got = LoadAsDouble(y.dtype, runs[0][o].data(), i);
      if (!(std::fabs(got - want[o][i]) <= least + rounding * std::fabs(want[o][i]))) {
        return absl::InternalError(
            absl::StrCat("element ", i, " of ", ToString(y), " is ", got, ", expected ", want[o][i]));
      }
    }
    if (std::memcmp(runs[0][o].data(), runs[1][o].data(), static_cast<size_t>(y.bytes())) != 0)
      return absl::InternalError("two runs differ: one read memory that nobody had written");
  }
  return absl::OkStatus();
}

}  // namespace mslua::fuzz
