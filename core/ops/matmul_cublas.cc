// matmul, matmul_bias and matmul_bias_add with cuBLASLt.
#include "absl/strings/str_cat.h"
#include "core/device/cublas_matmul.h"
#include "core/kernels/bilinear.h"
#include "core/kernels/cuda/library_kernel.h"
#include "core/op/device_text.h"

namespace mslua {
namespace {

class Product : public LibraryKernel {
 public:
  explicit Product(std::unique_ptr<CublasMatmul> product) : product_(std::move(product)) {}
  const char* name() const override { return "cublas"; }
  int64_t workspace_bytes() const override { return product_->workspace_bytes(); }
  std::string choice() const override { return product_->choice(); }
  Status Enqueue(DeviceStream& stream, absl::Span<void* const> operands, void* workspace) const override {
    return product_->Enqueue(stream, {operands[0], operands[1], operands[2]}, workspace);
  }

 private:
  std::unique_ptr<CublasMatmul> product_;
};

// activation(x w + bias + z), its results y and h.
class BiasedProduct : public LibraryKernel {
 public:
  // `moved`: the bias lies in the scratch memory of the text, as a result is stored.
  BiasedProduct(std::unique_ptr<CublasMatmul> product, bool z, bool h, bool moved)
      : product_(std::move(product)), z_(z), h_(h), moved_(moved) {}
  const char* name() const override { return "cublas"; }
  int64_t workspace_bytes() const override { return product_->workspace_bytes(); }
  std::string choice() const override { return product_->choice(); }
  Status Enqueue(DeviceStream& stream, absl::Span<void* const> operands, void* workspace) const override {
    const size_t y = z_ ? 4 : 3;
    CublasMatmul::Operands at;
    at.a = operands[0];
    at.b = operands[1];
    at.bias = moved_ ? operands.back() : operands[2];
    if (z_) at.z = operands[3];
    at.y = operands[y];
    if (h_) at.h = operands[y + 1];
    return product_->Enqueue(stream, at, workspace);
  }

 private:
  std::unique_ptr<CublasMatmul> product_;
  const bool z_, h_, moved_;
};

StatusOr<LibraryProgram> Biased(const OpSpec& spec, const LibraryOptions& options) {
  const DType result = spec.outputs[0].dtype;
  MatmulShape shape = BiasedProductOf(spec);
  shape.tf32 = options.tf32.products;
  if (spec.inputs.size() > 3 && spec.inputs[3].dtype != result)
    return absl::UnimplementedError("cuBLASLt adds what is stored as the result is");
  ASSIGN_OR_RETURN(auto product, CublasMatmul::Make(shape, options.choice));
  LibraryProgram program;
  program.scratch_bytes = MovedBiasBytes(spec);
  const bool moved = program.scratch_bytes > 0;
  if (moved) {
    program.before.push_back(
        EachElement(shape.n, absl::StrCat("  Set(((", DeviceType(result), "*)scratch)[i], Get(x2[i]));\n")));
  }
  program.kernel = std::make_shared<BiasedProduct>(std::move(product), shape.z, shape.h, moved);
  return program;
}

}  // namespace

MSLUA_LIBRARY_KERNEL(matmul) {
  const MatrixProduct p = ProductOf(spec).product;
  ASSIGN_OR_RETURN(auto product, CublasMatmul::Make({spec.outputs[0].dtype, p.batch, p.m, p.n, p.k, p.transpose_a,
                                                     p.transpose_b, options.tf32.products},
                                                    options.choice));
  LibraryProgram program;
  program.kernel = std::make_shared<Product>(std::move(product));
  return program;
}
MSLUA_LIBRARY_KERNEL(matmul_bias) { return Biased(spec, options); }
MSLUA_LIBRARY_KERNEL(matmul_bias_add) { return Biased(spec, options); }

}  // namespace mslua
