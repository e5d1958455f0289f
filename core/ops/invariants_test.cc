// The checks of ops_test.cc can fail: definitions that break an invariant are caught.
#include <cstring>

#include "core/op/registry.h"
#include "core/ops/testing/op_checks.h"
#include "gtest/gtest.h"

namespace mslua::testing {
namespace {

OpDef Copy(const char* name) { return *Operators().Find(name); }
const Sample kSquare = {{{DType::kF32, {6, 4}}}};

TEST(Invariants, ARuleWithTheWrongReductionIsCaught) {
  OpDef op = Copy("reduce_max");
  op.Rule("a b -> {sum}");
  EXPECT_FALSE(CheckRule(op, kSquare).ok());
  op.Rule("a b -> {max}");
  EXPECT_TRUE(CheckRule(op, kSquare).ok()) << CheckRule(op, kSquare);
}

TEST(Invariants, AFactorThatMustStayWholeIsCaught) {
  OpDef op = Copy("softmax");
  op.Rule("a b -> a b");
  EXPECT_FALSE(CheckRule(op, kSquare).ok());
}

TEST(Invariants, AnUnneededMarkIsCaught) {
  OpDef op = Copy("tanh");
  op.Rule("!a b -> a b");
  EXPECT_NE(CheckRule(op, kSquare).message().find("factor 'a' in 2 parts: it is marked '!'"), std::string::npos);
}

// A kernel that copies `extra` bytes more than its output has.
class CopyKernel : public Kernel {
 public:
  CopyKernel(int64_t bytes, int64_t extra) : bytes_(bytes), extra_(extra) {}
  Status Run(const Buffers& b) override {
    std::memcpy(b.outputs[0], b.inputs[0], static_cast<size_t>(bytes_));
    std::memset(static_cast<char*>(b.outputs[0]) + bytes_, 0, static_cast<size_t>(extra_));
    return absl::OkStatus();
  }

 private:
  const int64_t bytes_, extra_;
};
FastKernel CopyFast(int64_t extra) {
  return {"copy", [](const OpSpec&) { return true; },
          [extra](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            return std::unique_ptr<Kernel>(new CopyKernel(s.outputs[0].bytes(), extra));
          }};
}

TEST(Invariants, AWrongKernelIsCaught) {
  OpDef op = Copy("tanh");
  op.Fast(CopyFast(0));
  EXPECT_NE(CheckFastKernels(op, kSquare).message().find("copy in f32 on the sample: output 0: element"),
            std::string::npos);
}

TEST(Invariants, AKernelThatWritesPastItsOutputIsCaught) {
  OpDef op = Copy("stop_gradient");
  op.Fast(CopyFast(0));
  EXPECT_TRUE(CheckFastKernels(op, kSquare).ok()) << CheckFastKernels(op, kSquare);
  op.fast = {CopyFast(4)};
  EXPECT_NE(CheckFastKernels(op, kSquare).message().find("wrote past the end"), std::string::npos);
}

TEST(Invariants, AnOverwrittenInputIsCaught) {
  OpDef op = Copy("transpose");
  op.InPlace(0, 0);
  EXPECT_FALSE(CheckInPlace(op, {{{DType::kF32, {4, 4}}}, {{"perm", std::vector<int64_t>{1, 0}}}}).ok());
}

}  // namespace
}  // namespace mslua::testing
