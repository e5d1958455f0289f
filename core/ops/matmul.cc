#include <numeric>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/round_up.h"
#include "core/base/wrapping.h"
#include "core/onnx/lowering.h"
#include "core/op/device_scalars.h"
#include "core/op/device_text.h"
#include "core/op/formula.h"
#include "core/op/registry.h"
#include "core/ops/define.h"

namespace mslua {

// matmul_onednn.cc
FastKernel SmallMatmulKernel();
FastKernel FewRowsMatmulKernel();
FastKernel SplitMatmulKernel();
FastKernel PanelMatmulKernel();
FastKernel F64MatmulKernel();
FastKernel OneDnnMatmulKernel();
// matmul_tiles.cc
FastKernel PackedMatmulKernel();

namespace {

std::string MatmulRule(const Attrs& attrs, absl::Span<const TensorType>) {
  const std::string a = attrs.Bool("transpose_a") ? "*b k i" : "*b i k";
  const std::string b = attrs.Bool("transpose_b") ? "*b j k" : "*b k j";
  return a + ", " + b + " -> *b i j";
}

// With Y = op(A) op(B): dA = dY op(B)^T and dB = op(A)^T dY, transposed where the operand was.
std::vector<Value> MatmulGrad(GradContext& c) {
  const bool ta = c.attrs.Bool("transpose_a"), tb = c.attrs.Bool("transpose_b");
  const Value a = c.x(0), b = c.x(1), dy = c.dy[0];
  const auto product = [&](Value p, Value q, bool tp, bool tq) {
    return c.g.Op("matmul", {p, q}, {{"transpose_a", tp}, {"transpose_b", tq}});
  };
  Value da, db;
  if (c.needed[0]) da = ta ? product(b, dy, tb, true) : product(dy, b, false, !tb);
  if (c.needed[1]) db = tb ? product(dy, a, true, ta) : product(a, dy, !ta, false);
  return {da, db};
}

Status MatmulReference(const OpCall& call) {
  const bool ta = call.attrs.Bool("transpose_a"), tb = call.attrs.Bool("transpose_b");
  const Shape& y = call.outputs[0].type.shape;
  const Shape& a_shape = call.inputs[0].type.shape;
  const int64_t rank = static_cast<int64_t>(y.size());
  const int64_t m = y[rank - 2], n = y[rank - 1], k = ta ? a_shape[rank - 2] : a_shape[rank - 1];
  const int64_t batch = NumElements(absl::MakeConstSpan(y).subspan(0, rank - 2));
  DispatchDType(call.outputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = std::conditional_t<std::is_same_v<T, bool>, uint8_t, ComputeType<T>>;  // no bool comes here
    for (int64_t s = 0; s < batch; ++s) {
      const T* a = call.inputs[0].as<T>() + s * m * k;
      const T* b = call.inputs[1].as<T>() + s * k * n;
      T* out = call.outputs[0].as<T>() + s * m * n;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          C sum{0};
          for (int64_t l = 0; l < k; ++l) {
            sum = Plus(sum, Times(static_cast<C>(ta ? a[l * m + i] : a[i * k + l]),
                                  static_cast<C>(tb ? b[j * k + l] : b[l * n + j])));
          }
          out[i * n + j] = static_cast<T>(sum);
        }
      }
    }
  });
  return absl::OkStatus();
}

// A block makes a tile of 64 x 64 of the product, each thread 4 x 4 of it, from strips of 16 of the operands. `store`:
// statements for each element, `sum` (of type C, in which products are added), which lies at `at` of the result in
// column `j`.
DeviceProgram MatmulOnDevice(const OpSpec& spec, const std::string& store) {
  const bool ta = spec.attrs.Bool("transpose_a"), tb = spec.attrs.Bool("transpose_b");
  const Shape &y = spec.outputs[0].shape, &a = spec.inputs[0].shape;
  const size_t rank = y.size();
  const int64_t m = y[rank - 2], n = y[rank - 1], k = a[rank - (ta ? 2 : 1)];
  constexpr int64_t kTile = 64;
  DeviceStep step;
  const int64_t row_tiles = CeilDiv(m, kTile), column_tiles = CeilDiv(n, kTile);
  step.blocks = row_tiles * column_tiles * NumElements(absl::MakeConstSpan(y).subspan(0, rank - 2));
  step.text = absl::StrCat("  typedef ", DeviceComputeType(spec.inputs[0].dtype), " C;\n", Constant("M", m),
                           Constant("N", n), Constant("K", k), Constant("row_tiles", row_tiles),
                           Constant("column_tiles", column_tiles), "  constexpr bool ta = ", ta, ", tb = ", tb, ";\n",
                           R"cuda(
  __shared__ C as[16][65], bs[16][65];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const i64 i0 = (i64)blockIdx.x / column_tiles % row_tiles * 64, j0 = (i64)blockIdx.x % column_tiles * 64;
  const i64 s = (i64)blockIdx.x / (row_tiles * column_tiles);
  C sums[4][4] = {};
  for (i64 k0 = 0; k0 < K; k0 += 16) {
    for (int t = threadIdx.x; t < 1024; t += 256) {
      // Neighbouring threads read neighbouring elements, whichever way the operand lies.
      const int ai = ta ? t % 64 : t / 16, ak = ta ? t / 64 : t % 16;
      const int bj = tb ? t / 16 : t % 64, bk = tb ? t % 16 : t / 64;
      const i64 i = i0 + ai, ka = k0 + ak, j = j0 + bj, kb = k0 + bk;
      as[ak][ai] = i < M && ka < K ? (C)Get(x0[s * M * K + (ta ? ka * M + i : i * K + ka)]) : (C)0;
      bs[bk][bj] = j < N && kb < K ? (C)Get(x1[s * K * N + (tb ? j * K + kb : kb * N + j)]) : (C)0;
    }
    __syncthreads();
    for (int l = 0; l < 16; ++l) {
      for (int r = 0; r < 4; ++r) {
        for (int c = 0; c < 4; ++c) sums[r][c] += as[l][ty + 16 * r] * bs[l][tx + 16 * c];
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r) {
    for (int c = 0; c < 4; ++c) {
      const i64 i = i0 + ty + 16 * r, j = j0 + tx + 16 * c;
      if (i >= M || j >= N) continue;
      const i64 at = s * M * N + i * N + j;
      const C sum = sums[r][c];
)cuda",
                           store, "    }\n  }\n");
  return OneStep(std::move(step));
}

// Products with what follows them element by element, as one kernel of a device; core/passes/epilogues.cc makes them.

constexpr char kGelu[] = "gelu_tanh";

// The bias and what follows are no sums over k.
std::string BiasedRule(const Attrs& attrs, absl::Span<const TensorType> in) {
  std::string rule =
      absl::StrCat(attrs.Bool("transpose_a") ? "!k i, " : "i !k, ", attrs.Bool("transpose_b") ? "j !k, " : "!k j, ");
  for (int64_t d = 1; d < in[2].rank(); ++d) rule += "1 ";
  return absl::StrCat(rule, "j", in.size() > 3 ? ", i j" : "", " -> i j", attrs.Bool("keep") ? ", i j" : "");
}

StatusOr<std::vector<TensorType>> BiasedInfer(const Attrs& attrs, absl::Span<const TensorType> in) {
  const bool ta = attrs.Bool("transpose_a"), tb = attrs.Bool("transpose_b");
  if (in[0].rank() != 2 || in[1].rank() != 2 || in[0].shape[ta ? 0 : 1] != in[1].shape[tb ? 1 : 0])
    return absl::InvalidArgumentError("x and w are no matrices that can be multiplied");
  const int64_t m = in[0].shape[ta ? 1 : 0], n = in[1].shape[tb ? 0 : 1];
  if (in[2].elements() != n) return absl::InvalidArgumentError(absl::StrCat("bias has not ", n, " elements"));
  const bool narrow = SizeOf(in[0].dtype) == 2;
  const TensorType y = {narrow && attrs.Bool("wide") ? DType::kF32 : in[0].dtype, {m, n}};
  if (in.size() > 3 && in[3].shape != y.shape) return absl::InvalidArgumentError("z has not the shape of the product");
  return std::vector<TensorType>(attrs.Bool("keep") ? 2 : 1, y);
}

Status BiasedReference(const OpCall& c) {
  const bool ta = c.attrs.Bool("transpose_a"), tb = c.attrs.Bool("transpose_b");
  const TensorView &a = c.inputs[0], &b = c.inputs[1], &y = c.outputs[0];
  const int64_t m = y.type.shape[0], n = y.type.shape[1], k = a.type.shape[ta ? 0 : 1];
  ASSIGN_OR_RETURN(const ScalarProgram gelu, FormulaProgram(*Operators().Find(kGelu), Attrs()));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += LoadAsDouble(a.type.dtype, a.data, ta ? l * m + i : i * k + l) *
               LoadAsDouble(b.type.dtype, b.data, tb ? j * k + l : l * n + j);
      const int64_t at = i * n + j;
      sum += LoadAsDouble(c.inputs[2].type.dtype, c.inputs[2].data, j);
      if (c.inputs.size() > 3) sum += LoadAsDouble(c.inputs[3].type.dtype, c.inputs[3].data, at);
      if (c.outputs.size() > 1) StoreDouble(y.type.dtype, c.outputs[1].data, at, sum);
      if (c.attrs.Str("activation") == kGelu) EvaluateScalar(gelu, &sum, &sum);
      StoreDouble(y.type.dtype, y.data, at, sum);
    }
  }
  return absl::OkStatus();
}

StatusOr<DeviceProgram> BiasedOnDevice(const OpSpec& spec) {
  std::string store =
      absl::StrCat("      const C h = sum + (C)Get(x2[j])", spec.inputs.size() > 3 ? " + (C)Get(x3[at])" : "", ";\n");
  if (spec.outputs.size() > 1) absl::StrAppend(&store, "      Set(y1[at], h);\n");
  std::string result = "h";
  if (spec.attrs.Str("activation") == kGelu) {
    ASSIGN_OR_RETURN(const ScalarProgram gelu, FormulaProgram(*Operators().Find(kGelu), Attrs()));
    absl::StrAppend(&store, DeviceScalars(gelu, {"h"}));
    result = absl::StrCat("v", gelu.results[0]);
  }
  return MatmulOnDevice(spec, absl::StrCat(store, "      Set(y0[at], ", result, ");\n"));
}

OpDef Biased(const char* name, bool adds) {
  OpDef op(name);
  op.Doc(absl::StrCat("activation(x w + bias", adds ? " + z" : "",
                      ") for matrices, as one kernel of a device, and with `keep` what the activation is of; made by a "
                      "pass. bias [j]; gives [i, j]."));
  op.Input("x").Input("w").Input("bias", TypeClass::kFloat);
  if (adds) op.Input("z", TypeClass::kFloat);
  op.Attr("transpose_a", AttrKind::kBool, false, "x is [k, i]")
      .Attr("transpose_b", AttrKind::kBool, false, "w is [j, k]")
      .Choice("activation", {"none", kGelu}, "applied to the sum")
      .Attr("keep", AttrKind::kBool, false, "the sum is a second result")
      .Attr("wide", AttrKind::kBool, false, "operands of 16 bits give f32");
  op.Rule(BiasedRule).Infer(BiasedInfer).Reference(BiasedReference).OnDevice(BiasedOnDevice);
  op.Flops([](const Attrs& a, absl::Span<const TensorType> in, absl::Span<const TensorType> out) {
    const int64_t k = in[0].shape[a.Bool("transpose_a") ? 0 : 1];
    return 2.0 * static_cast<double>(out[0].elements()) * static_cast<double>(k);
  });
  if (adds) op.InPlace(0, 3);
  const auto sample = [&](int64_t m, int64_t n, int64_t k, Attrs attrs) {
    const bool ta = attrs.Has("transpose_a");
    Sample s = {{{DType::kF32, ta ? Shape{k, m} : Shape{m, k}},
                 {DType::kF32, ta ? Shape{n, k} : Shape{k, n}},
                 {DType::kF32, {n}}},
                std::move(attrs)};
    if (adds) s.inputs.push_back({DType::kF32, {m, n}});
    op.AddSample(std::move(s));
  };
  sample(4, 8, 6, {});
  sample(5, 7, 6, {{"transpose_a", true}, {"transpose_b", true}, {"activation", std::string(kGelu)}});
  sample(9, 16, 8, {{"activation", std::string(kGelu)}, {"keep", true}});
  sample(9, 16, 8, {{"wide", true}});
  return op;
}

}  // namespace

MSLUA_OPERATOR(matmul) {
  OpDef op("matmul");
  op.Computes(Precision::kNarrow);
  op.Class("MatMul").Doc(
      "Matrix product over the last two dimensions: a [.., i, k] and b [.., k, j] give [.., i, j]; leading dimensions "
      "equal. The function broadcasts them, and takes a vector as a row on the left and a column on the right, as "
      "NumPy's matmul.");
  op.Input("x").Input("w").NumericTypes();
  op.Attr("transpose_a", AttrKind::kBool, false, "x is [.., k, i]")
      .Attr("transpose_b", AttrKind::kBool, false, "w is [.., j, k]");
  op.Rule(MatmulRule).Grad(MatmulGrad).Reference(MatmulReference);
  op.OnDevice(
      [](const OpSpec& spec) -> StatusOr<DeviceProgram> { return MatmulOnDevice(spec, "      Set(y0[at], sum);\n"); });
  op.Fast(SmallMatmulKernel()).Fast(FewRowsMatmulKernel()).Fast(SplitMatmulKernel()).Fast(PanelMatmulKernel());
  op.Fast(F64MatmulKernel()).Fast(OneDnnMatmulKernel()).Fast(PackedMatmulKernel());
  op.Flops([](const Attrs& a, absl::Span<const TensorType> in, absl::Span<const TensorType> out) {
    const int64_t k = in[0].shape[in[0].rank() - (a.Bool("transpose_a") ? 2 : 1)];
    return 2.0 * static_cast<double>(out[0].elements()) * static_cast<double>(k);
  });
  op.AddSample({{{DType::kF32, {4, 6}}, {DType::kF32, {6, 8}}}});
  op.AddSample({{{DType::kF32, {6, 4}}, {DType::kF32, {8, 6}}}, {{"transpose_a", true}, {"transpose_b", true}}});
  op.AddSample({{{DType::kF32, {2, 4, 6}}, {DType::kF32, {2, 6, 8}}}});
  op.AddSample({{{DType::kF32, {37, 45}}, {DType::kF32, {45, 53}}}});
  for (const DType t : {DType::kF64, DType::kI32, DType::kI64}) {
    op.AddSample({{{t, {5, 6}}, {t, {6, 3}}}});
    op.AddSample({{{t, {2, 140, 97}}, {t, {2, 19, 140}}}, {{"transpose_a", true}, {"transpose_b", true}}});
  }
  return {op, Biased("matmul_bias", false), Biased("matmul_bias_add", true)};
}

MSLUA_ONNX(matmul) {
  const auto operand = [&](size_t i, const char* transposed) {
    if (!c.attrs().Bool(transposed)) return c.In(i);
    std::vector<int64_t> perm(static_cast<size_t>(c.TypeIn(i).rank()));
    std::iota(perm.begin(), perm.end(), int64_t{0});
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return c.Transpose(c.In(i), perm);
  };
  c.Result(c.Op("MatMul", {operand(0, "transpose_a"), operand(1, "transpose_b")}));
}

}  // namespace mslua
