#include <cmath>

#include "core/op/elementwise.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

TEST(RowReads, TextReadsBack) {
  const std::vector<RowRead> reads = {{RowRead::kOperand, 0}, {RowRead::kIsColumn, 1}, {RowRead::kDiffers, 1, -100},
                                      {RowRead::kMax, 0},     {RowRead::kSum, 12},     {RowRead::kMin, 3}};
  EXPECT_EQ(ToString(reads), "x0 is_column1 differs1(-100) max0 sum12 min3");
  const auto parsed = ParseRowReads(ToString(reads));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, reads);
  for (const char* bad : {"y0", "x", "x-1", "differs1", "differs1(a)", "sum", "x0,"})
    EXPECT_FALSE(ParseRowReads(bad).ok()) << bad;
}

// y = x - m and m of a row, over the middle dimension.
RowFormula Centred() {
  RowFormula f;
  f.shape = {2, 3, 2};
  f.axes = {1};
  f.operands = {{"x"}, {"b"}};
  f.constants = {{"n", 3}};
  f.statements = {"s = row_sum(x)", "m = s / n", "y = x - m + b"};
  f.results = {{"y"}, {"m", true}};
  return f;
}

TEST(RowForm, IsEvaluatedOverAnyAxes) {
  const Attrs none;
  const std::vector<TensorType> in = {{DType::kF32, {2, 3, 2}}, {DType::kF32, {3, 1}}},
                                out = {{DType::kF32, {2, 3, 2}}, {DType::kF32, {2, 2}}};
  const auto form = FormOf(Centred(), {none, in, out});
  ASSERT_TRUE(form.ok()) << form.status();
  EXPECT_EQ(form->rows(), 4);
  EXPECT_EQ(form->length(), 3);
  EXPECT_EQ(form->operands[1], Shape({1, 3, 1}));
  std::vector<float> x(12), b = {100, 200, 300}, y(12), m(4);
  for (int i = 0; i < 12; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i * i);
  const std::vector<TensorView> inputs = {{in[0], x.data()}, {in[1], b.data()}};
  ASSERT_TRUE(EvaluateRows(*form, inputs, std::vector<TensorView>{{out[0], y.data()}, {out[1], m.data()}}).ok());
  for (size_t o = 0; o < 2; ++o) {
    for (size_t i = 0; i < 2; ++i) {
      const size_t at = o * 6 + i;
      const float mean = (x[at] + x[at + 2] + x[at + 4]) / 3;
      EXPECT_FLOAT_EQ(m[o * 2 + i], mean);
      for (size_t k = 0; k < 3; ++k) EXPECT_FLOAT_EQ(y[at + 2 * k], x[at + 2 * k] - mean + b[k]);
    }
  }
  // Over its operand: the same.
  std::vector<float> over = x;
  ASSERT_TRUE(EvaluateRows(*form, std::vector<TensorView>{{in[0], over.data()}, inputs[1]},
                           std::vector<TensorView>{{out[0], over.data()}, {out[1], m.data()}})
                  .ok());
  EXPECT_EQ(over, y);
}

TEST(RowForm, TheGreatestIsNaNWhereOneIs) {
  RowFormula f;
  f.shape = {2, 3};
  f.axes = {1};
  f.operands = {{"x"}};
  f.statements = {"most = row_max(x)", "least = row_min(x)"};
  f.results = {{"most", true}, {"least", true}};
  const Attrs none;
  const std::vector<TensorType> in = {{DType::kF32, {2, 3}}}, out(2, {DType::kF32, {2}});
  const auto form = FormOf(f, {none, in, out});
  ASSERT_TRUE(form.ok()) << form.status();
  std::vector<float> x = {1, 3, 2, 5, NAN, 4}, most(2), least(2);
  ASSERT_TRUE(EvaluateRows(*form, std::vector<TensorView>{{in[0], x.data()}},
                           std::vector<TensorView>{{out[0], most.data()}, {out[1], least.data()}})
                  .ok());
  EXPECT_EQ(most[0], 3);
  EXPECT_EQ(least[0], 1);
  EXPECT_TRUE(std::isnan(most[1]) && std::isnan(least[1]));
}

TEST(RowForm, WrongFormsAreErrors) {
  const Attrs none;
  const std::vector<TensorType> in = {{DType::kF32, {2, 3, 2}}, {DType::kF32, {3, 1}}},
                                out = {{DType::kF32, {2, 3, 2}}, {DType::kF32, {2, 2}}};
  const auto error = [&](const std::function<void(RowFormula&)>& spoil) {
    RowFormula f = Centred();
    spoil(f);
    return std::string(FormOf(f, {none, in, out}).status().message());
  };
  EXPECT_EQ(error([](RowFormula&) {}), "");
  EXPECT_NE(error([](RowFormula& f) { f.statements.back() = "y = x - q"; }).find("unknown name 'q'"),
            std::string::npos);
  EXPECT_NE(error([](RowFormula& f) { f.results[1].name = "y"; }).find("result 1 differs in a row"), std::string::npos);
  EXPECT_NE(error([](RowFormula& f) { f.axes = {2}; }).find("result 1 has another size"), std::string::npos);
  EXPECT_NE(error([](RowFormula& f) { f.axes = {3}; }).find("axes have to increase"), std::string::npos);
  EXPECT_NE(error([](RowFormula& f) { f.operands[1].of_rows = true; }).find("operand 1"), std::string::npos);
  EXPECT_NE(error([](RowFormula& f) { f.statements[0] = "s = is_column(x)"; }).find("an integer a row"),
            std::string::npos);
  EXPECT_NE(error([](RowFormula& f) { f.statements[0] = "s = differs(b, c)"; }).find("has no integer"),
            std::string::npos);
}

}  // namespace
}  // namespace mslua
