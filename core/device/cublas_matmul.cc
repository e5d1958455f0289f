#include "core/device/cublas_matmul.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"

namespace mslua {
namespace {

constexpr uint32_t kAlignment = 64;

Status CheckBlas(int result, const char* function) {
  if (result == 0) return absl::OkStatus();
  return WithExitCode(absl::InternalError(absl::StrCat("device: ", function, ": error ", result, " of cuBLASLt")),
                      kExitEnvironment);
}
#define RETURN_IF_BLAS_ERROR(name, ...) RETURN_IF_ERROR(CheckBlas(library_->call.name(__VA_ARGS__), #name))

// One for all products of the process.
StatusOr<cuda::BlasHandle> HandleOf(const cuda::Library<cuda::CublasLt>* library_) {
  static std::mutex mutex;
  static cuda::BlasHandle handle = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (handle == nullptr) RETURN_IF_BLAS_ERROR(cublasLtCreate, &handle);
  return handle;
}

int TypeOf(DType t) {
  switch (t) {
    case DType::kF64:
      return cuda::kReal64;
    case DType::kBF16:
      return cuda::kRealB16;
    case DType::kF16:
      return cuda::kReal16;
    default:
      return cuda::kReal32;
  }
}

int ComputeOf(const MatmulShape& s) {
  if (s.type == DType::kF64) return cuda::kCompute64;
  return s.type == DType::kF32 && s.tf32 ? cuda::kComputeTf32 : cuda::kCompute32;
}

}  // namespace

StatusOr<std::unique_ptr<CublasMatmul>> CublasMatmul::Make(const MatmulShape& shape, const std::string& choice) {
  if (!IsFloat(shape.type)) return absl::UnimplementedError("cuBLASLt multiplies floats");
  if (shape.batch == 0 || shape.m == 0 || shape.n == 0 || shape.k == 0)
    return absl::UnimplementedError("cuBLASLt has no empty products");
  const bool follows = shape.bias || shape.z || shape.gelu || shape.h || shape.wide;
  if (follows && (shape.batch != 1 || shape.type == DType::kF64))
    return absl::UnimplementedError("a bias and what follows a product come with one matrix, not of float64");
  // The library's gelu is made for 16 bits.
  if (shape.gelu && (shape.wide || SizeOf(shape.type) != 2 || shape.n % 8 != 0))
    return absl::UnimplementedError("gelu comes with rows of 16 bits, of whole groups of 8 elements");
  auto made = std::unique_ptr<CublasMatmul>(new CublasMatmul);
  ASSIGN_OR_RETURN(made->library_, cuda::OpenCublasLt());
  RETURN_IF_ERROR(made->Init(shape, choice));
  return made;
}

// The library's matrices are column-major: its y^T = op(b)^T op(a)^T is this y.
Status CublasMatmul::Init(const MatmulShape& s, const std::string& choice) {
  ASSIGN_OR_RETURN(handle_, HandleOf(library_));
  f64_ = s.type == DType::kF64;
  workspace_bytes_ = WorkspaceOf(s);
  RETURN_IF_BLAS_ERROR(cublasLtMatmulDescCreate, &matmul_, ComputeOf(s), f64_ ? cuda::kReal64 : cuda::kReal32);
  const int first = s.transpose_b ? 1 : 0, second = s.transpose_a ? 1 : 0;
  RETURN_IF_BLAS_ERROR(cublasLtMatmulDescSetAttribute, matmul_, cuda::kTransposeA, &first, sizeof first);
  RETURN_IF_BLAS_ERROR(cublasLtMatmulDescSetAttribute, matmul_, cuda::kTransposeB, &second, sizeof second);
  RETURN_IF_ERROR(SetEpilogue(s));
  const auto layout = [&](cuda::BlasLayout* to, DType type, int64_t rows, int64_t columns) -> Status {
    RETURN_IF_BLAS_ERROR(cublasLtMatrixLayoutCreate, to, TypeOf(type), static_cast<uint64_t>(columns),
                         static_cast<uint64_t>(rows), columns);
    const int32_t batch = static_cast<int32_t>(s.batch);
    const int64_t stride = rows * columns;
    RETURN_IF_BLAS_ERROR(cublasLtMatrixLayoutSetAttribute, *to, cuda::kBatchCount, &batch, sizeof batch);
    RETURN_IF_BLAS_ERROR(cublasLtMatrixLayoutSetAttribute, *to, cuda::kBatchStride, &stride, sizeof stride);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(s.transpose_a ? layout(&a_, s.type, s.k, s.m) : layout(&a_, s.type, s.m, s.k));
  RETURN_IF_ERROR(s.transpose_b ? layout(&b_, s.type, s.n, s.k) : layout(&b_, s.type, s.k, s.n));
  RETURN_IF_ERROR(layout(&y_, s.wide ? DType::kF32 : s.type, s.m, s.n));
  if (Restore(choice)) return absl::OkStatus();
  cuda::BlasPreference preference = nullptr;
  RETURN_IF_BLAS_ERROR(cublasLtMatmulPreferenceCreate, &preference);
  const Status chosen = [&]() -> Status {
    const uint64_t most = static_cast<uint64_t>(workspace_bytes_);
    RETURN_IF_BLAS_ERROR(cublasLtMatmulPreferenceSetAttribute, preference, cuda::kMaxWorkspace, &most, sizeof most);
    // Parts of a sum that are added where they lie are added in any order.
    const uint32_t schemes = cuda::kReductionMask & ~cuda::kReductionInPlace;
    RETURN_IF_BLAS_ERROR(cublasLtMatmulPreferenceSetAttribute, preference, cuda::kReductionSchemes, &schemes,
                         sizeof schemes);
    for (int operand = cuda::kMinAlignmentA; operand <= cuda::kMinAlignmentD; ++operand)
      RETURN_IF_BLAS_ERROR(cublasLtMatmulPreferenceSetAttribute, preference, operand, &kAlignment, sizeof kAlignment);
    cuda::BlasHeuristic found = {};
    int count = 0;
    const int result =
        library_->call.cublasLtMatmulAlgoGetHeuristic(handle_, matmul_, b_, a_, y_, y_, preference, 1, &found, &count);
    if (result == cuda::kBlasNotSupported || (result == 0 && (count == 0 || found.state != 0)))
      return absl::UnimplementedError("cuBLASLt has no algorithm for this product");
    RETURN_IF_ERROR(CheckBlas(result, "cublasLtMatmulAlgoGetHeuristic"));
    algorithm_ = found.algorithm;
    return absl::OkStatus();
  }();
  library_->call.cublasLtMatmulPreferenceDestroy(preference);
  return chosen;
}

std::string CublasMatmul::choice() const {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(algorithm_.data), sizeof algorithm_.data));
}

bool CublasMatmul::Restore(const std::string& choice) {
  cuda::BlasAlgorithm algorithm = {};
  if (choice.size() != 2 * sizeof algorithm.data || !std::all_of(choice.begin(), choice.end(), absl::ascii_isxdigit))
    return false;
  const std::string bytes = absl::HexStringToBytes(choice);
  std::memcpy(algorithm.data, bytes.data(), sizeof algorithm.data);
  cuda::BlasHeuristic found = {};
  const int result = library_->call.cublasLtMatmulAlgoCheck(handle_, matmul_, b_, a_, y_, y_, &algorithm, &found);
  if (result != 0 || found.state != 0 || found.workspace_bytes > static_cast<size_t>(workspace_bytes_)) return false;
  algorithm_ = algorithm;
  return true;
}

// The library's y^T has a row for each column of y, and a bias for each of its rows.
Status CublasMatmul::SetEpilogue(const MatmulShape& s) {
  bias_ = s.bias;
  z_ = s.z;
  h_ = s.h;
  if (!s.bias) return absl::OkStatus();
  const uint32_t epilogue = !s.gelu ? cuda::kBias : s.h ? cuda::kGeluAuxBias : cuda::kGeluBias;
  RETURN_IF_BLAS_ERROR(cublasLtMatmulDescSetAttribute, matmul_, cuda::kEpilogue, &epilogue, sizeof epilogue);
  // Until it is enqueued, pointers tell how operands are aligned.
  const void* const aligned = reinterpret_cast<const void*>(uintptr_t{kAlignment});
  RETURN_IF_BLAS_ERROR(cublasLtMatmulDescSetAttribute, matmul_, cuda::kBiasPointer, &aligned, sizeof aligned);
  if (!s.h) return absl::OkStatus();
  RETURN_IF_BLAS_ERROR(cublasLtMatmulDescSetAttribute, matmul_, cuda::kAuxPointer, &aligned, sizeof aligned);
  RETURN_IF_BLAS_ERROR(cublasLtMatmulDescSetAttribute, matmul_, cuda::kAuxStride, &s.n, sizeof s.n);
  return absl::OkStatus();
}

CublasMatmul::~CublasMatmul() {
  for (const cuda::BlasLayout layout : {a_, b_, y_}) {
    if (layout != nullptr) library_->call.cublasLtMatrixLayoutDestroy(layout);
  }
  if (matmul_ != nullptr) library_->call.cublasLtMatmulDescDestroy(matmul_);
}

Status CublasMatmul::Enqueue(DeviceStream& stream, const Operands& at, void* workspace) const {
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  const void* const alpha = f64_ ? static_cast<const void*>(&one64) : &one;
  const void* const beta = f64_ ? static_cast<const void*>(&zero64) : z_ ? &one : &zero;
  if (bias_)
    RETURN_IF_BLAS_ERROR(cublasLtMatmulDescSetAttribute, matmul_, cuda::kBiasPointer, &at.bias, sizeof at.bias);
  if (h_) RETURN_IF_BLAS_ERROR(cublasLtMatmulDescSetAttribute, matmul_, cuda::kAuxPointer, &at.h, sizeof at.h);
  RETURN_IF_BLAS_ERROR(cublasLtMatmul, handle_, matmul_, alpha, at.b, b_, at.a, a_, beta, z_ ? at.z : at.y, y_, at.y,
                       y_, &algorithm_, workspace, static_cast<size_t>(workspace_bytes_), stream.handle());
  return absl::OkStatus();
}

}  // namespace mslua
