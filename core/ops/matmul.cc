#include <numeric>

#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {

// matmul_onednn.cc
FastKernel SmallMatmulKernel();
FastKernel FewRowsMatmulKernel();
FastKernel SplitMatmulKernel();
FastKernel OneDnnMatmulKernel();

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
    using C = ComputeType<T>;
    for (int64_t s = 0; s < batch; ++s) {
      const T* a = call.inputs[0].as<T>() + s * m * k;
      const T* b = call.inputs[1].as<T>() + s * k * n;
      T* out = call.outputs[0].as<T>() + s * m * n;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          C sum{0};
          for (int64_t l = 0; l < k; ++l) {
            sum += static_cast<C>(ta ? a[l * m + i] : a[i * k + l]) * static_cast<C>(tb ? b[j * k + l] : b[l * n + j]);
          }
          out[i * n + j] = static_cast<T>(sum);
        }
      }
    }
  });
  return absl::OkStatus();
}

// A block makes a tile of 64 x 64 of the product, each thread 4 x 4 of it, from strips of 16 of the operands.
DeviceProgram MatmulOnDevice(const OpSpec& spec) {
  const bool ta = spec.attrs.Bool("transpose_a"), tb = spec.attrs.Bool("transpose_b");
  const Shape &y = spec.outputs[0].shape, &a = spec.inputs[0].shape;
  const size_t rank = y.size();
  const int64_t m = y[rank - 2], n = y[rank - 1], k = a[rank - (ta ? 2 : 1)];
  constexpr int64_t kTile = 64;
  DeviceStep step;
  const int64_t row_tiles = (m + kTile - 1) / kTile, column_tiles = (n + kTile - 1) / kTile;
  step.blocks = row_tiles * column_tiles * NumElements(absl::MakeConstSpan(y).subspan(0, rank - 2));
  step.text = absl::StrCat("  typedef ", DeviceComputeType(spec.outputs[0].dtype), " C;\n", Constant("M", m),
                           Constant("N", n), Constant("K", k), Constant("row_tiles", row_tiles),
                           Constant("column_tiles", column_tiles), "  constexpr bool ta = ", ta, ", tb = ", tb, ";\n",
                           R"cuda(
  __shared__ C as[16][65], bs[16][65];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const i64 i0 = (i64)blockIdx.x / column_tiles % row_tiles * 64, j0 = (i64)blockIdx.x % column_tiles * 64;
  const i64 s = (i64)blockIdx.x / (row_tiles * column_tiles);
  C sum[4][4] = {};
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
        for (int c = 0; c < 4; ++c) sum[r][c] += as[l][ty + 16 * r] * bs[l][tx + 16 * c];
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r) {
    for (int c = 0; c < 4; ++c) {
      const i64 i = i0 + ty + 16 * r, j = j0 + tx + 16 * c;
      if (i < M && j < N) Set(y0[s * M * N + i * N + j], sum[r][c]);
    }
  }
)cuda");
  return OneStep(std::move(step));
}

}  // namespace

MSLUA_OPERATOR(matmul) {
  OpDef op("matmul");
  op.Computes(Precision::kNarrow);
  op.Class("MatMul").Doc(
      "Matrix product over the last two dimensions: a [.., i, k] and b [.., k, j] give [.., i, j]; leading dimensions "
      "equal.");
  op.Input("x").Input("w").NumericTypes();
  op.Attr("transpose_a", AttrKind::kBool, false, "x is [.., k, i]")
      .Attr("transpose_b", AttrKind::kBool, false, "w is [.., j, k]");
  op.Rule(MatmulRule).Grad(MatmulGrad).Reference(MatmulReference);
  op.OnDevice(MatmulOnDevice);
  op.Fast(SmallMatmulKernel()).Fast(FewRowsMatmulKernel()).Fast(SplitMatmulKernel()).Fast(OneDnnMatmulKernel());
  op.Flops([](const Attrs& a, absl::Span<const TensorType> in, absl::Span<const TensorType> out) {
    const int64_t k = in[0].shape[in[0].rank() - (a.Bool("transpose_a") ? 2 : 1)];
    return 2.0 * static_cast<double>(out[0].elements()) * static_cast<double>(k);
  });
  op.AddSample({{{DType::kF32, {4, 6}}, {DType::kF32, {6, 8}}}});
  op.AddSample({{{DType::kF32, {6, 4}}, {DType::kF32, {8, 6}}}, {{"transpose_a", true}, {"transpose_b", true}}});
  op.AddSample({{{DType::kF32, {2, 4, 6}}, {DType::kF32, {2, 6, 8}}}});
  op.AddSample({{{DType::kF32, {37, 45}}, {DType::kF32, {45, 53}}}});
  return {op};
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
