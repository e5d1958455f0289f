// The invariants of operators, checked on every operator of the build and every sample of it: see core/ops/testing.
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/graph/builder.h"
#include "core/op/formula.h"
#include "core/op/registry.h"
#include "core/ops/testing/op_checks.h"
#include "gmock/gmock.h"
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

class Invariant : public ::testing::TestWithParam<OpCase> {
 protected:
  void Expect(Status (*check)(const OpDef&, const Sample&)) {
    const Status status = check(*GetParam().op, GetParam().inputs());
    EXPECT_TRUE(status.ok()) << GetParam().op->name << ": " << status.message();
  }
};
TEST_P(Invariant, TextReadsBack) { Expect(CheckText); }
TEST_P(Invariant, GradientIsTheDifference) { Expect(CheckGradient); }
TEST_P(Invariant, RuleExecuted) { Expect(CheckRule); }
TEST_P(Invariant, FastIsReference) { Expect(CheckFastKernels); }
TEST_P(Invariant, EveryTypeRuns) { Expect(CheckTypes); }
TEST_P(Invariant, InPlaceIsApart) { Expect(CheckInPlace); }
INSTANTIATE_TEST_SUITE_P(Ops, Invariant, ::testing::ValuesIn(AllCases()), NameOf);

TEST(Operators, AreDocumentedAndHaveASample) {
  for (const OpDef& op : Operators().all()) {
    EXPECT_FALSE(op.doc.empty()) << op.name;
    const bool leaf = op.name == "input" || op.name == "constant";
    EXPECT_TRUE(leaf || !op.samples.empty()) << op.name;
  }
}

// The status of a call of the sample with another value of an attribute; of one that succeeds sizes are within limits.
Status StatusWith(const OpCase& c, const std::string& name, AttrValue value) {
  GraphBuilder g("call");
  std::vector<Value> x;
  for (const TensorType& type : c.inputs().inputs) x.push_back(g.Input(absl::StrCat("x", x.size()), kData, type));
  Attrs attrs = c.inputs().attrs;
  attrs.Set(name, std::move(value));
  for (Value y : g.OpMulti(c.op->name, x, std::move(attrs))) {
    if (!g.status().ok()) break;
    EXPECT_FALSE(HasTooManyElements(g.TypeOf(y).shape)) << c.op->name << " " << name;
    for (int64_t n : g.TypeOf(y).shape) EXPECT_GE(n, 0) << c.op->name << " " << name;
  }
  return g.status();
}

// Calls f with the attribute's value where one number of it is `n`.
template <class F>
void ForEachPlace(const OpCase& c, const AttrDef& def, int64_t n, F f) {
  if (def.kind == AttrKind::kInt) return f(AttrValue(n));
  const AttrValue* given = c.inputs().attrs.Find(def.name);
  std::vector<int64_t> list = def.required || given != nullptr ? std::get<std::vector<int64_t>>(*given)
                                                               : std::get<std::vector<int64_t>>(def.fallback);
  if (list.empty() && !c.inputs().inputs.empty()) list.assign(c.inputs().inputs[0].shape.size(), 1);
  for (size_t i = 0; i < list.size(); ++i) {
    std::vector<int64_t> other = list;
    other[i] = n;
    f(AttrValue(std::move(other)));
  }
}

// Integers that no size can be are errors; those that sizes can be give sizes or errors, without overflow on the way.
TEST(Operators, BearLargeIntegers) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  for (const OpCase& c : AllCases()) {
    for (const AttrDef& def : c.op->attrs) {
      if ((def.kind != AttrKind::kInt && def.kind != AttrKind::kInts) || def.name == "seed") continue;
      for (int64_t n : {kMost, kLeast, int64_t{1000000000000001}, -(int64_t{1} << 53)}) {
        ForEachPlace(c, def, n, [&](AttrValue v) {
          const std::string text = AttrText(v);
          EXPECT_THAT(std::string(StatusWith(c, def.name, std::move(v)).message()),
                      ::testing::HasSubstr(absl::StrCat("attribute '", def.name, "' has ", n)))
              << c.op->name << " " << text;
        });
      }
      for (int64_t n : {int64_t{1000000000000000}, int64_t{1} << 40, int64_t{1} << 31, (int64_t{1} << 31) - 1})
        ForEachPlace(c, def, n, [&](AttrValue v) { StatusWith(c, def.name, std::move(v)).IgnoreError(); });
    }
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
