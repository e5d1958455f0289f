// Checks of kernels: right ones pass, and ones with any fault do not.
#include "core/kernels/select/bilinear_check.h"

#include <cstring>

#include "core/base/parallel_for.h"
#include "core/kernels/select/bilinear_guard.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

Convolution MakeConvolution(int64_t n, int64_t in, int64_t out, int64_t group, int64_t h, int64_t w, int64_t kernel,
                            int64_t stride, int64_t padding, bool channels_last) {
  Convolution c;
  c.group = group;
  c.window = {{kernel, kernel}, {stride, stride}, {1, 1}, {padding, padding}, {padding, padding}};
  c.x = {n, in, h, w, channels_last};
  const auto size = OutputSize(c.window, h, w);
  c.y = {n, out, size[0], size[1], channels_last};
  return c;
}

std::vector<Bilinear> Examples(DType type) {
  std::vector<Bilinear> all = {
      Bilinear::Of(MatrixProduct{1, 33, 48, 63, false, false}, type, type),
      Bilinear::Of(MatrixProduct{3, 20, 17, 1500, true, false}, type, type),
      Bilinear::Of(MatrixProduct{1, 5, 130, 40, false, true}, type, DType::kF32),
      Bilinear::Of(MatrixProduct{2, 9, 7, 5, true, true}, type, type),
  };
  if (type == DType::kBF16) {
    // So many terms that values would repeat within a sum.
    all.push_back(Bilinear::Of(MatrixProduct{1, 8, 9, 802816, true, false}, type, type));
    all.push_back(Bilinear::Of(BilinearOp::kGradWeight, MakeConvolution(600, 4, 6, 1, 32, 32, 3, 1, 1, true), type));
  }
  for (const BilinearOp op : {BilinearOp::kConvolution, BilinearOp::kGradInput, BilinearOp::kGradWeight}) {
    all.push_back(Bilinear::Of(op, MakeConvolution(2, 6, 9, 1, 7, 8, 3, 1, 1, false), type));
    all.push_back(Bilinear::Of(op, MakeConvolution(3, 8, 12, 4, 9, 5, 3, 2, 1, true), type));
    all.push_back(Bilinear::Of(op, MakeConvolution(20, 5, 5, 5, 12, 13, 2, 1, 0, false), type));
  }
  return all;
}

// A right kernel with a fault added.
class FaultyKernel : public Kernel {
 public:
  enum Fault { kNone, kOneElement, kUnwritten, kBesideResult, kBesideScratch, kUsesScratch };

  FaultyKernel(const Bilinear& b, Fault fault)
      : b_(b), fault_(fault), right_(std::move(*MakeUnguarded(b, Way::kOneDnnF32))) {}

  int64_t scratch_bytes() const override { return std::max<int64_t>(right_->scratch_bytes(), 64); }
  Status Run(const Buffers& buffers) override {
    float unwritten = 0;
    std::memcpy(&unwritten, buffers.scratch, sizeof unwritten);
    RETURN_IF_ERROR(right_->Run(buffers));
    const int64_t elements = b_.elements(2), size = SizeOf(b_.result);
    char* const y = static_cast<char*>(buffers.outputs[0]);
    const auto at = [&](int64_t i) { return LoadAsDouble(b_.result, y, i); };
    switch (fault_) {
      case kNone:
        break;
      case kOneElement:
        StoreDouble(b_.result, y, elements / 2, at(elements / 2) + 1);
        break;
      case kUnwritten:
        std::memset(y + (elements - 1) * size, 0xff, static_cast<size_t>(size));
        break;
      case kBesideResult:
        y[elements * size] = 0;
        break;
      case kBesideScratch:
        static_cast<char*>(buffers.scratch)[-1] = 0;
        break;
      case kUsesScratch:
        StoreDouble(b_.result, y, 0, at(0) + static_cast<double>(unwritten));
    }
    return absl::OkStatus();
  }

 private:
  const Bilinear b_;
  const Fault fault_;
  const std::unique_ptr<Kernel> right_;
};

TEST(BilinearCheck, RightKernelsPass) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const Bilinear& b : Examples(type)) {
      FaultyKernel kernel(b, FaultyKernel::kNone);
      EXPECT_EQ(CheckKernel(b, kernel), Verdict::kRight) << ToString(b);
    }
  }
}

TEST(BilinearCheck, FaultsAreFound) {
  SetComputeThreads(1);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const Bilinear& b : Examples(type)) {
      for (const auto fault : {FaultyKernel::kOneElement, FaultyKernel::kUnwritten, FaultyKernel::kBesideResult,
                               FaultyKernel::kBesideScratch, FaultyKernel::kUsesScratch}) {
        FaultyKernel kernel(b, fault);
        EXPECT_EQ(CheckKernel(b, kernel), Verdict::kWrong) << ToString(b) << " fault " << fault;
      }
    }
  }
}

// A kernel of another product, with operands of the same sizes.
TEST(BilinearCheck, AnotherProductIsFound) {
  const Bilinear b = Bilinear::Of(MatrixProduct{1, 40, 40, 40, false, false}, DType::kBF16, DType::kBF16),
                 other = Bilinear::Of(MatrixProduct{1, 40, 40, 40, true, false}, DType::kBF16, DType::kBF16);
  const auto kernel = MakeUnguarded(other, Way::kOneDnnF32);
  EXPECT_EQ(CheckKernel(b, **kernel), Verdict::kWrong);
}

}  // namespace
}  // namespace mslua
