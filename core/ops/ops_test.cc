// The laws of operators, tried on every operator of the build and every sample of it: see core/ops/testing.
#include <string>

#include "core/op/registry.h"
#include "core/ops/testing/op_checks.h"
#include "gtest/gtest.h"

namespace mslua::testing {
namespace {

struct OpCase {
  const OpDef* op;
  size_t sample;
  const Sample& inputs() const { return op->samples[sample]; }
};
void PrintTo(const OpCase& c, std::ostream* out) { *out << c.op->name << ", sample " << c.sample; }

std::vector<OpCase> AllCases() {
  std::vector<OpCase> cases;
  for (const OpDef& op : Operators().all()) {
    for (size_t i = 0; i < op.samples.size(); ++i) cases.push_back({&op, i});
  }
  return cases;
}
std::string NameOf(const ::testing::TestParamInfo<OpCase>& info) {
  return info.param.op->name + "_" + std::to_string(info.param.sample);
}

class Law : public ::testing::TestWithParam<OpCase> {
 protected:
  void Expect(Status (*check)(const OpDef&, const Sample&)) {
    const Status status = check(*GetParam().op, GetParam().inputs());
    EXPECT_TRUE(status.ok()) << GetParam().op->name << ": " << status.message();
  }
};
TEST_P(Law, TextReadsBack) { Expect(CheckText); }
TEST_P(Law, GradientIsTheDifference) { Expect(CheckGradient); }
TEST_P(Law, RuleExecuted) { Expect(CheckRule); }
TEST_P(Law, FastIsReference) { Expect(CheckFastKernels); }
TEST_P(Law, EveryTypeRuns) { Expect(CheckTypes); }
TEST_P(Law, InPlaceIsApart) { Expect(CheckInPlace); }
INSTANTIATE_TEST_SUITE_P(Ops, Law, ::testing::ValuesIn(AllCases()), NameOf);

TEST(Operators, AreDocumentedAndHaveASample) {
  for (const OpDef& op : Operators().all()) {
    EXPECT_FALSE(op.doc.empty()) << op.name;
    const bool leaf = op.name == "input" || op.name == "constant";
    EXPECT_TRUE(leaf || !op.samples.empty()) << op.name;
  }
}

TEST(Operators, HaveNamesOfTheirOwn) {
  const auto& all = Operators().all();
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_NE(all[i - 1].name, all[i].name);
    for (size_t k = 0; k < i; ++k)
      EXPECT_FALSE(!all[i].class_name.empty() && all[i].class_name == all[k].class_name) << all[i].class_name;
  }
}

// Every function of formulas is an operator, so that a formula can become graph nodes.
TEST(Operators, ContainTheScalarFunctions) {
  for (int i = 2; i < kNumScalarOps; ++i) {
    const ScalarOp f = static_cast<ScalarOp>(i);
    const OpDef* op = Operators().Find(Name(f));
    ASSERT_NE(op, nullptr) << Name(f);
    EXPECT_EQ(static_cast<int>(op->inputs.size()), Arity(f)) << Name(f);
  }
}

}  // namespace
}  // namespace mslua::testing
