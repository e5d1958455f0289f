#include "core/op/marks.h"

#include "core/op/op_def.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

TEST(MarksTest, ValuesHaveTheTypeOfTheirMark) {
  Attrs attrs;
  mark::kOrigin.Set(attrs, 3);
  mark::kUserStrategy.Set(attrs, "((1,2))");
  EXPECT_EQ(mark::kOrigin.Get(attrs), 3);
  EXPECT_EQ(*mark::kUserStrategy.Find(attrs), "((1,2))");
  EXPECT_EQ(mark::kSum.Find(attrs), nullptr);
  EXPECT_EQ(mark::kMicroBatch.GetOr(attrs, -1), -1);
  mark::kOrigin.Erase(attrs);
  EXPECT_FALSE(mark::kOrigin.Has(attrs));
  // One name, two marks: which type it has says which mark it is.
  mark::kFirstRow.Set(attrs, 5);
  EXPECT_EQ(mark::kBegin.Find(attrs), nullptr);
  EXPECT_EQ(*mark::kFirstRow.Find(attrs), 5);
}

TEST(MarksTest, OtherNamesAndTypesAreErrors) {
  EXPECT_EQ(MarkProblem("_origin", int64_t{3}), "");
  EXPECT_EQ(MarkProblem("_begin", int64_t{3}), "");
  EXPECT_EQ(MarkProblem("_begin", std::vector<int64_t>{3, 0}), "");
  EXPECT_EQ(MarkProblem("_origin", true), "attribute '_origin' is true, of another type than that mark");
  EXPECT_EQ(MarkProblem("_orign", int64_t{3}), "unknown attribute '_orign'");
  OpDef op("relu");
  op.Input("x").Rule("*r -> *r");
  const TensorType x{DType::kF32, {2}};
  Attrs good{{mark::kOrigin.name, int64_t{3}}}, bad{{"_orign", int64_t{3}}};
  EXPECT_TRUE(CheckCall(op, {x}, good).ok());
  EXPECT_EQ(CheckCall(op, {x}, bad).status().message(), "relu: unknown attribute '_orign'");
}

}  // namespace
}  // namespace mslua
