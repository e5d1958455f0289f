// float32 is rounded to TF32 in the operations that the device allows it for, and in no others; other types never.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/kernels/cuda/library_kernel.h"
#include "core/op/registry.h"
#include "core/ops/testing/op_checks.h"
#include "tests/emulated_device/library_calls.h"
#include "tests/emulated_device/use_emulated_device.h"

namespace mslua {
namespace {

using testing::Call;
using testing::Memory;
using Ints = std::vector<int64_t>;

struct Case {
  const char* op;
  std::vector<Shape> inputs;
  Attrs attrs;
  bool is_product;
};

// The bytes of all results by the library's kernel.
std::string BitsOf(const Call& call, const Tf32& tf32) {
  std::string bits;
  const Status s = [&]() -> Status {
    ASSIGN_OR_RETURN(Device* const device, Device::Open(0));
    ASSIGN_OR_RETURN(DeviceStream stream, device->MakeStream());
    ASSIGN_OR_RETURN(const LibraryProgram program,
                     FindLibraryKernel(call.op->name, {call.attrs, call.inputs, call.outputs}, {tf32, ""}));
    if (program.kernel == nullptr) return absl::NotFoundError("no kernel");
    ASSIGN_OR_RETURN(const std::vector<Memory> results,
                     testing::RunLibraryProgram(device, stream, call, testing::MakeInputs(call, {}), program));
    for (const Memory& m : results)
      bits.append(static_cast<const char*>(m.data()), static_cast<size_t>(m.type().bytes()));
    return absl::OkStatus();
  }();
  EXPECT_TRUE(s.ok()) << call.op->name << ": " << s;
  return bits;
}

TEST(Tf32Test, IsUsedWhereItIsAllowed) {
  ASSERT_TRUE(testing::UseEmulatedDevice().ok());
  if (testing::OnRealDevice()) GTEST_SKIP() << "whether a library rounds is its own choice";
  const Shape matrix = {8, 16}, weight = {16, 8}, images = {2, 4, 6, 6}, kernel = {4, 4, 3, 3}, made = {2, 4, 4, 4};
  const std::vector<Case> cases = {
      {"matmul", {matrix, weight}, {}, true},
      {"matmul_bias", {matrix, weight, {8}}, {}, true},
      {"matmul_bias_add", {matrix, weight, {8}, {8, 8}}, {}, true},
      {"conv2d", {images, kernel}, {{"pad_mode", "valid"}}, false},
      {"conv2d_grad_input", {made, kernel}, {{"pad_mode", "valid"}, {"input_size", Ints{6, 6}}}, false},
      {"conv2d_grad_weight", {images, made}, {{"pad_mode", "valid"}, {"kernel_size", Ints{3, 3}}}, false}};
  for (const Case& c : cases) {
    for (const DType type : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      if (type == DType::kF64 && std::string(c.op) != "matmul") continue;  // the libraries have none
      std::vector<TensorType> types;
      for (const Shape& shape : c.inputs) types.push_back({type, shape});
      const auto call = testing::MakeCall(*Operators().Find(c.op), types, c.attrs);
      ASSERT_TRUE(call.ok()) << c.op << ": " << call.status();
      const std::string exact = BitsOf(*call, {});
      Tf32 products, convolutions;
      products.products = convolutions.convolutions = true;
      const bool rounds = type == DType::kF32;
      EXPECT_EQ(BitsOf(*call, products) != exact, rounds && c.is_product) << c.op << " of " << Name(type);
      EXPECT_EQ(BitsOf(*call, convolutions) != exact, rounds && !c.is_product) << c.op << " of " << Name(type);
    }
  }
}

}  // namespace
}  // namespace mslua
