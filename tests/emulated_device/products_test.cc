// Products by cuBLASLt's functions are those of the reference: types, transposed operands, batches.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/device/cublas_matmul.h"
#include "core/device/device.h"
#include "core/op/registry.h"
#include "core/ops/testing/op_checks.h"
#include "tests/emulated_device/use_emulated_device.h"

namespace mslua {
namespace {

using testing::Memory;

TEST(Products, AreThoseOfTheReference) {
  ASSERT_TRUE(testing::UseEmulatedDevice().ok());
  const auto device = Device::Open(0);
  ASSERT_TRUE(device.ok()) << device.status();
  auto stream = (*device)->MakeStream();
  ASSERT_TRUE(stream.ok());
  const OpDef& op = *Operators().Find("matmul");
  for (const DType type : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    for (int form = 0; form < 8; ++form) {
      const bool ta = form & 1, tb = form & 2;
      const int64_t batch = form & 4 ? 3 : 1, m = 5, n = 7, k = 9;
      const Attrs attrs = {{"transpose_a", ta}, {"transpose_b", tb}};
      const Shape a = ta ? Shape{batch, k, m} : Shape{batch, m, k}, b = tb ? Shape{batch, n, k} : Shape{batch, k, n};
      const auto call = testing::MakeCall(op, {{type, a}, {type, b}}, attrs);
      ASSERT_TRUE(call.ok()) << call.status();
      const std::vector<Memory> inputs = testing::MakeInputs(*call, {});
      const auto product = CublasMatmul::Make({type, batch, m, n, k, ta, tb});
      ASSERT_TRUE(product.ok()) << product.status();
      std::vector<DeviceMemory> memory;
      for (const int64_t bytes : {inputs[0].type().bytes(), inputs[1].type().bytes(), call->outputs[0].bytes(),
                                  (*product)->workspace_bytes()}) {
        auto piece = (*device)->Allocate(bytes);
        ASSERT_TRUE(piece.ok());
        memory.push_back(*std::move(piece));
      }
      for (int i = 0; i < 2; ++i)
        ASSERT_TRUE(stream->CopyIn(memory[i].data(), inputs[i].data(), inputs[i].type().bytes()).ok());
      const Status enqueued =
          (*product)->Enqueue(*stream, {memory[0].data(), memory[1].data(), memory[2].data()}, memory[3].data());
      ASSERT_TRUE(enqueued.ok()) << enqueued;
      std::vector<Memory> got;
      got.emplace_back(call->outputs[0]);
      ASSERT_TRUE(stream->CopyOut(got[0].data(), memory[2].data(), call->outputs[0].bytes()).ok());
      ASSERT_TRUE(stream->Wait().ok());
      const auto truth = testing::Truth(*call, inputs);
      ASSERT_TRUE(truth.ok()) << truth.status();
      const Status near = testing::ExpectTruth(got, *truth);
      EXPECT_TRUE(near.ok()) << Name(type) << ", form " << form << ": " << near;
    }
  }
}

// A call of matmul_bias_add in bf16, computed as `shape` says.
StatusOr<std::vector<Memory>> RunBiased(Device* device, const testing::Call& call, const std::vector<Memory>& inputs,
                                        const MatmulShape& shape) {
  ASSIGN_OR_RETURN(DeviceStream stream, device->MakeStream());
  ASSIGN_OR_RETURN(const auto product, CublasMatmul::Make(shape));
  std::vector<DeviceMemory> memory;
  for (const Memory& m : inputs) {
    ASSIGN_OR_RETURN(memory.emplace_back(), device->Allocate(m.type().bytes()));
    RETURN_IF_ERROR(stream.CopyIn(memory.back().data(), m.data(), m.type().bytes()));
  }
  for (const int64_t bytes : {call.outputs[0].bytes(), call.outputs[0].bytes(), product->workspace_bytes()}) {
    ASSIGN_OR_RETURN(memory.emplace_back(), device->Allocate(bytes));
    RETURN_IF_ERROR(stream.Fill(memory.back().data(), 0, bytes));
  }
  CublasMatmul::Operands at;
  at.a = memory[0].data();
  at.b = memory[1].data();
  at.bias = memory[2].data();
  at.z = memory[3].data();
  at.y = memory[4].data();
  at.h = memory[5].data();
  RETURN_IF_ERROR(product->Enqueue(stream, at, memory[6].data()));
  std::vector<Memory> got;
  for (size_t o = 0; o < call.outputs.size(); ++o) {
    got.emplace_back(call.outputs[o]);
    RETURN_IF_ERROR(stream.CopyOut(got[o].data(), memory[4 + o].data(), call.outputs[o].bytes()));
  }
  RETURN_IF_ERROR(stream.Wait());
  return got;
}

TEST(Products, WithAWrongEpilogueAreSeen) {
  ASSERT_TRUE(testing::UseEmulatedDevice().ok());
  const auto device = Device::Open(0);
  ASSERT_TRUE(device.ok()) << device.status();
  const OpDef& op = *Operators().Find("matmul_bias_add");
  const DType type = DType::kBF16;
  const auto call = testing::MakeCall(op, {{type, {9, 8}}, {type, {8, 16}}, {type, {16}}, {type, {9, 16}}},
                                      {{"activation", std::string("gelu_tanh")}, {"keep", true}});
  ASSERT_TRUE(call.ok()) << call.status();
  const std::vector<Memory> inputs = testing::MakeInputs(*call, {});
  const auto truth = testing::Truth(*call, inputs);
  ASSERT_TRUE(truth.ok()) << truth.status();
  MatmulShape right = {type, 1, 9, 16, 8};
  right.bias = right.z = right.gelu = right.h = true;
  const auto near = [&](const MatmulShape& shape) {
    const auto got = RunBiased(*device, *call, inputs, shape);
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? testing::ExpectTruth(*got, *truth) : got.status();
  };
  EXPECT_TRUE(near(right).ok()) << near(right);
  for (bool MatmulShape::*const part : {&MatmulShape::bias, &MatmulShape::z, &MatmulShape::gelu, &MatmulShape::h}) {
    MatmulShape planted = right;
    planted.*part = false;
    EXPECT_FALSE(near(planted).ok());
  }
  // What the library has not, or is rougher in than mslua's own.
  MatmulShape lacking = right;
  lacking.n = 12;
  EXPECT_TRUE(absl::IsUnimplemented(CublasMatmul::Make(lacking).status()));
  lacking = right;
  lacking.type = DType::kF32;
  EXPECT_TRUE(absl::IsUnimplemented(CublasMatmul::Make(lacking).status()));
  lacking = right;
  lacking.batch = 2;
  EXPECT_TRUE(absl::IsUnimplemented(CublasMatmul::Make(lacking).status()));
}

TEST(Products, AreMadeAgainByTheRecordedAlgorithm) {
  ASSERT_TRUE(testing::UseEmulatedDevice().ok());
  if (testing::OnRealDevice()) GTEST_SKIP() << "of the emulation";
  const auto choice = [](const std::string& recorded) {
    const auto product = CublasMatmul::Make({DType::kF32, 1, 2, 2, 2}, recorded);
    return product.ok() ? (*product)->choice() : product.status().ToString();
  };
  const std::string usual = choice("");
  setenv("EMULATED_CUBLAS_ALGORITHM", "1", 1);
  const std::string other = choice("");
  unsetenv("EMULATED_CUBLAS_ALGORITHM");
  EXPECT_EQ(other.size(), 128u);
  EXPECT_NE(usual, other);
  EXPECT_EQ(choice(other), other);
  const auto algorithm = [&](const char* digit) {  // of the emulation's numbers
    std::string text = other;
    text.replace(text.find('1', 16), 1, digit);
    return text;
  };
  EXPECT_EQ(choice(algorithm("1")), other);
  // Algorithms that need too much memory, or another device, and one that is not known; text that is none.
  for (const std::string& refused : {algorithm("2"), algorithm("3"), algorithm("4"), std::string(128, '0'),
                                     std::string(128, 'x'), other.substr(2), std::string("engine 3")})
    EXPECT_EQ(choice(refused), usual) << refused;
}

TEST(Products, ThatTheLibraryLacksAreLeftToOtherKernels) {
  ASSERT_TRUE(testing::UseEmulatedDevice().ok());
  EXPECT_TRUE(absl::IsUnimplemented(CublasMatmul::Make({DType::kI32, 1, 2, 2, 2, false, false}).status()));
  EXPECT_TRUE(absl::IsUnimplemented(CublasMatmul::Make({DType::kF32, 1, 2, 2, 0, false, false}).status()));
}

}  // namespace
}  // namespace mslua
