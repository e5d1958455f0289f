// matmul with cuBLASLt.
#include "core/device/cublas_matmul.h"
#include "core/kernels/bilinear.h"
#include "core/kernels/cuda/library_kernel.h"

namespace mslua {
namespace {

class Product : public LibraryKernel {
 public:
  explicit Product(std::unique_ptr<CublasMatmul> product) : product_(std::move(product)) {}
  const char* name() const override { return "cublas"; }
  int64_t workspace_bytes() const override { return product_->workspace_bytes(); }
  Status Enqueue(DeviceStream& stream, absl::Span<void* const> operands, void* workspace) const override {
    return product_->Enqueue(stream, operands[0], operands[1], operands[2], workspace);
  }

 private:
  std::unique_ptr<CublasMatmul> product_;
};

}  // namespace

MSLUA_LIBRARY_KERNEL(matmul) {
  const MatrixProduct p = ProductOf(spec).product;
  ASSIGN_OR_RETURN(auto product,
                   CublasMatmul::Make({spec.outputs[0].dtype, p.batch, p.m, p.n, p.k, p.transpose_a, p.transpose_b}));
  LibraryProgram program;
  program.kernel = std::make_shared<Product>(std::move(product));
  return program;
}

}  // namespace mslua
