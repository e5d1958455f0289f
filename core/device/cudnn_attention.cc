#include "core/device/cudnn_attention.h"

#include <limits>

namespace mslua {
namespace {

// The gradient of a batch of 16 x 12 heads x 1024 queries takes 385 MB.
constexpr int64_t kMostWorkspace = int64_t{4} << 30;
constexpr int kRank = 4;

// The tensors of one shape in a graph.
class Builder {
 public:
  Builder(const CudnnTarget& target, const AttentionShape& shape) : graph(target), s_(shape) {}

  int Operand(int64_t rows, int64_t columns, const AttentionShape::Strides& at) {
    return graph.Operand(s_.type, {s_.batch, s_.heads, rows, columns}, {at[0], at[1], at[2], 1});
  }
  int Transposed(int64_t rows, int64_t columns, const AttentionShape::Strides& at) {
    return graph.Operand(s_.type, {s_.batch, s_.heads, columns, rows}, {at[0], at[1], 1, at[2]});
  }
  int Statistics() { return graph.Operand(DType::kF32, {s_.batch, s_.heads, s_.t, 1}, {s_.heads * s_.t, s_.t, 1, 1}); }
  int Scores(DType type = DType::kF32) { return graph.Inner(type, {s_.batch, s_.heads, s_.t, s_.s}); }
  // Probabilities or their slopes, [s, t] with the memory of [t, s], in the operands' type.
  int ScoresTransposed() {
    const int64_t head = s_.t * s_.s;
    return graph.Inner(s_.type, {s_.batch, s_.heads, s_.s, s_.t}, {s_.heads * head, head, 1, s_.s});
  }
  int Rows() { return graph.Inner(DType::kF32, {s_.batch, s_.heads, s_.t, 1}); }
  int Scaled(int x) {
    const int y = Scores();
    graph.Pointwise(cuda::kDnnMul, x, graph.Number(static_cast<float>(s_.scale), kRank), y);
    return y;
  }
  // -infinity where the key comes after the query.
  int Masked(int x) {
    if (!s_.causal) return x;
    const int row = Scores(DType::kI32), column = Scores(DType::kI32), seen = Scores(DType::kBool), y = Scores();
    graph.Index(x, row, 2);
    graph.Index(x, column, 3);
    graph.Pointwise(cuda::kDnnGreaterEqual, row, column, seen);
    graph.Pointwise(cuda::kDnnSelect, x, graph.Number(-std::numeric_limits<float>::infinity(), kRank), y, seen);
    return y;
  }

  CudnnGraph graph;

 private:
  const AttentionShape& s_;
};

Status Check(const CudnnTarget& target, const AttentionShape& s) {
  // NVIDIA's frontend refuses attention in 9.10.0 and 9.10.1, for known mistakes.
  if (target.version() == 91000 || target.version() == 91001)
    return absl::UnimplementedError("attention of this version of cuDNN has mistakes");
  if (s.type != DType::kBF16 && s.type != DType::kF16)
    return absl::UnimplementedError("attention of cuDNN is of bf16 and f16");
  for (const int64_t size : {s.batch, s.heads, s.t, s.s, s.d, s.e}) {
    if (size == 0) return absl::UnimplementedError("cuDNN has no empty attention");
  }
  // Its kernels take the highest product for the highest score.
  if (s.scale < 0) return absl::UnimplementedError("cuDNN has no attention with a negative scale");
  if (s.causal && s.t != s.s) return absl::UnimplementedError("causal attention of cuDNN has as many keys as queries");
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<CudnnPlan>> PlanAttention(const CudnnTarget& target, const AttentionShape& s,
                                                   const std::string& choice) {
  RETURN_IF_ERROR(Check(target, s));
  Builder b(target, s);
  CudnnGraph& g = b.graph;
  const int q = b.Operand(s.t, s.d, s.q), k = b.Transposed(s.s, s.d, s.k), v = b.Operand(s.s, s.e, s.v),
            y = b.Operand(s.t, s.e, s.y), lse = b.Statistics();
  const int products = b.Scores();
  g.Matmul(q, k, products);
  const int scores = b.Masked(b.Scaled(products));
  const int max = b.Rows(), less = b.Scores(), exp = b.Scores(), sum = b.Rows(), log = b.Rows(), p = b.Scores(s.type);
  g.Reduce(cuda::kDnnReduceMax, scores, max);
  g.Pointwise(cuda::kDnnSub, scores, max, less);
  g.Pointwise(cuda::kDnnExp, less, -1, exp);
  g.Reduce(cuda::kDnnReduceSum, exp, sum);
  g.Pointwise(cuda::kDnnLog, sum, -1, log);
  g.Pointwise(cuda::kDnnAdd, max, log, lse);
  g.Pointwise(cuda::kDnnDiv, exp, sum, p);
  g.Matmul(p, v, y);
  return g.Plan(CudnnRounding::kFree, kMostWorkspace, choice);
}

StatusOr<std::unique_ptr<CudnnPlan>> PlanAttentionGrad(const CudnnTarget& target, const AttentionShape& s,
                                                       const std::string& choice) {
  RETURN_IF_ERROR(Check(target, s));
  Builder b(target, s);
  CudnnGraph& g = b.graph;
  const int q = b.Operand(s.t, s.d, s.q), k = b.Transposed(s.s, s.d, s.k), v = b.Transposed(s.s, s.e, s.v),
            y = b.Operand(s.t, s.e, s.y), lse = b.Statistics(), dy = b.Operand(s.t, s.e, s.y), delta = b.Statistics(),
            dq = b.Operand(s.t, s.d, s.q), dk = b.Operand(s.s, s.d, s.k), dv = b.Operand(s.s, s.e, s.v);
  // delta: each row's sum of dy * y.
  const int parts = g.Inner(DType::kF32, {s.batch, s.heads, s.t, s.e}), sums = b.Rows();
  g.Pointwise(cuda::kDnnMul, dy, y, parts);
  g.Reduce(cuda::kDnnReduceSum, parts, sums);
  g.Pointwise(cuda::kDnnMul, sums, g.Number(1, kRank), delta);
  const int products = b.Scores(), less = b.Scores(), p = b.Scores(), p_transposed = b.ScoresTransposed();
  g.Matmul(q, k, products);
  g.Pointwise(cuda::kDnnSub, b.Scaled(products), lse, less);
  g.Pointwise(cuda::kDnnExp, b.Masked(less), -1, p);
  g.Reshape(p, p_transposed);
  g.Matmul(p_transposed, dy, dv);
  const int dp = b.Scores(), centred = b.Scores(), slopes = b.Scores(), slopes_transposed = b.ScoresTransposed();
  g.Matmul(dy, v, dp);
  g.Pointwise(cuda::kDnnSub, dp, delta, centred);
  g.Pointwise(cuda::kDnnMul, centred, p, slopes);
  const int ds = b.Scaled(slopes);
  g.Reshape(ds, slopes_transposed);
  g.Matmul(slopes_transposed, q, dk);
  const int keys = g.Inner(s.type, {s.batch, s.heads, s.s, s.d}, {s.k[0], s.k[1], s.k[2], 1});
  g.Reshape(k, keys);
  g.Matmul(ds, keys, dq);
  ASSIGN_OR_RETURN(auto plan, g.Plan(CudnnRounding::kFree, kMostWorkspace, choice));
  // The library does not note that its kernels may add to dq in any order. Those that add in a fixed one keep the
  // scores in 16 bits.
  if (plan->workspace_bytes() < 2 * s.batch * s.heads * s.t * s.s)
    return absl::UnimplementedError("cuDNN has no repeatable gradient of this attention");
  return plan;
}

}  // namespace mslua
