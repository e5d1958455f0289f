#include "core/op/formula.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "core/op/device_text.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

double Eval(const std::string& text, double a = 0, double b = 0, double c = 0) {
  const auto program = ParseFormula({text}, {{"a", "b", "c"}, {{"two", 2.0}}});
  EXPECT_TRUE(program.ok()) << program.status();
  if (!program.ok()) return kNaN;
  const double in[] = {a, b, c};
  double out = 0;
  EvaluateScalar(*program, in, &out);
  return out;
}
std::string ErrorOf(const std::string& text) {
  return std::string(ParseFormula({text}, {{"a", "b"}, {}}).status().message());
}

TEST(Formula, Precedence) {
  EXPECT_EQ(Eval("a + b * c", 1, 2, 3), 7);
  EXPECT_EQ(Eval("(a + b) * c", 1, 2, 3), 9);
  EXPECT_EQ(Eval("a - b - c", 1, 2, 3), -4);
  EXPECT_EQ(Eval("a / b / c", 12, 2, 3), 2);
  EXPECT_EQ(Eval("-a * b", 2, 3), -6);
  EXPECT_EQ(Eval("--a", 2), 2);
  EXPECT_EQ(Eval("two * 1.5e1 + .5"), 30.5);
}

TEST(Formula, FunctionsAreTheStandardOnes) {
  const std::pair<const char*, std::function<double(double)>> unary[] = {
      {"neg", [](double x) { return -x; }},
      {"abs", [](double x) { return std::fabs(x); }},
      {"exp", [](double x) { return std::exp(x); }},
      {"log", [](double x) { return std::log(x); }},
      {"log1p", [](double x) { return std::log1p(x); }},
      {"expm1", [](double x) { return std::expm1(x); }},
      {"sqrt", [](double x) { return std::sqrt(x); }},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"erf", [](double x) { return std::erf(x); }},
      {"sin", [](double x) { return std::sin(x); }},
      {"cos", [](double x) { return std::cos(x); }},
      {"floor", [](double x) { return std::floor(x); }},
      {"sign", [](double x) { return static_cast<double>((x > 0) - (x < 0)); }},
      {"logical_not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
  };
  const double values[] = {-800, -2.5, -1, -0.0, 0, 0.3, 1, 2.5, 800, kInf, -kInf};
  for (const auto& [name, f] : unary) {
    for (double x : values) {
      const double got = Eval(std::string(name) + "(a)", x), want = f(x);
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want || std::fabs(got - want) <= 1e-15 * std::fabs(want))
          << name << "(" << x << ") is " << got;
    }
  }
  const std::pair<const char*, std::function<double(double, double)>> binary[] = {
      {"add", [](double x, double y) { return x + y; }},
      {"sub", [](double x, double y) { return x - y; }},
      {"mul", [](double x, double y) { return x * y; }},
      {"div", [](double x, double y) { return x / y; }},
      {"minimum", [](double x, double y) { return std::min(x, y); }},
      {"maximum", [](double x, double y) { return std::max(x, y); }},
      {"pow", [](double x, double y) { return std::pow(x, y); }},
      {"equal", [](double x, double y) { return x == y ? 1.0 : 0.0; }},
      {"not_equal", [](double x, double y) { return x != y ? 1.0 : 0.0; }},
      {"less", [](double x, double y) { return x < y ? 1.0 : 0.0; }},
      {"less_equal", [](double x, double y) { return x <= y ? 1.0 : 0.0; }},
      {"greater", [](double x, double y) { return x > y ? 1.0 : 0.0; }},
      {"greater_equal", [](double x, double y) { return x >= y ? 1.0 : 0.0; }},
      {"logical_and", [](double x, double y) { return x != 0 && y != 0 ? 1.0 : 0.0; }},
      {"logical_or", [](double x, double y) { return x != 0 || y != 0 ? 1.0 : 0.0; }},
  };
  for (const auto& [name, f] : binary) {
    for (double x : values) {
      for (double y : values) {
        const double got = Eval(std::string(name) + "(a, b)", x, y), want = f(x, y);
        EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
            << name << "(" << x << ", " << y << ") is " << got;
      }
    }
  }
  EXPECT_EQ(Eval("select(a, b, c)", 1, 2, 3), 2);
  EXPECT_EQ(Eval("select(a, b, c)", 0, 2, 3), 3);
}

TEST(Formula, MinimumAndMaximumHandNaNOn) {
  for (const char* f : {"min(a, b)", "max(a, b)"}) {
    EXPECT_TRUE(std::isnan(Eval(f, kNaN, 1))) << f;
    EXPECT_TRUE(std::isnan(Eval(f, 1, kNaN))) << f;
  }
  EXPECT_TRUE(std::isnan(Eval("sign(a)", kNaN)));
}

TEST(Formula, IntegersDivideByZeroAndTruncate) {
  const auto p = ParseFormula({"a / b"}, {{"a", "b"}, {}});
  ASSERT_TRUE(p.ok());
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  const int32_t a[] = {7, -7, 5, kLeast, 6}, b[] = {2, 2, 0, -1, -1};
  const int32_t* in[] = {a, b};
  int32_t out[5], workspace[15];
  int32_t* results[] = {out};
  EvaluateTile<int32_t>(*p, 5, in, results, workspace);
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[1], -3);
  EXPECT_EQ(out[2], 0);
  EXPECT_EQ(out[3], kLeast);
  EXPECT_EQ(out[4], -6);
}

template <class T>
void ExpectWrapsRound() {
  const auto p = ParseFormula({"a + b", "a - b", "a * b", "-a", "abs(a)"}, {{"a", "b"}, {}});
  ASSERT_TRUE(p.ok());
  constexpr T kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
  const T a[] = {kMost, kLeast, kMost}, b[] = {1, 1, 2};
  const T* in[] = {a, b};
  T out[5][3], workspace[3 * 7];
  T* results[] = {out[0], out[1], out[2], out[3], out[4]};
  EvaluateTile<T>(*p, 3, in, results, workspace);
  const T want[5][3] = {{kLeast, kLeast + 1, kLeast + 1},
                        {kMost - 1, kMost, kMost - 2},
                        {kMost, kLeast, -2},
                        {-kMost, kLeast, -kMost},
                        {kMost, kLeast, kMost}};
  for (int r = 0; r < 5; ++r) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(out[r][i], want[r][i]) << "result " << r << " of " << a[i] << ", " << b[i];
  }
}
TEST(Formula, IntegersWrapRound) {
  ExpectWrapsRound<int32_t>();
  ExpectWrapsRound<int64_t>();
}

TEST(Formula, PowersOfIntegersAreExact) {
  const auto p = ParseFormula({"pow(a, b)"}, {{"a", "b"}, {}});
  ASSERT_TRUE(p.ok());
  const int64_t a[] = {3, -3, 0, 0, 2, -1, 5, 2}, b[] = {39, 3, 0, -2, -1, -3, 1, 64};
  const int64_t want[] = {4052555153018976267, -27, 1, 0, 0, -1, 5, 0};
  const int64_t* in[] = {a, b};
  int64_t out[8], workspace[24];
  int64_t* results[] = {out};
  EvaluateTile<int64_t>(*p, 8, in, results, workspace);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(out[i], want[i]) << a[i] << "^" << b[i];
}

TEST(Formula, EqualSubexpressionsAreOne) {
  const auto p = ParseFormula({"tanh(a) * tanh(a)", "tanh(a) + 1"}, {{"a"}, {}});
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(p->code.size(), 5u) << ToString(*p);  // a, tanh, mul, 1, add
  EXPECT_EQ(p->results.size(), 2u);
}

TEST(Formula, ErrorsNameThePlace) {
  EXPECT_EQ(ErrorOf("a + z"), "formula 'a + z': unknown name 'z' at column 6");
  EXPECT_EQ(ErrorOf("a +"), "formula 'a +': expected a value at column 4");
  EXPECT_EQ(ErrorOf("(a"), "formula '(a': expected ')' at column 3");
  EXPECT_EQ(ErrorOf("a b"), "formula 'a b': unexpected text at column 3");
  EXPECT_EQ(ErrorOf("pow(a)"), "formula 'pow(a)': pow takes 2 values: expected ',' at column 6");
  EXPECT_NE(ErrorOf("nope(a)").find("'nope' is not a scalar function"), std::string::npos);
  EXPECT_NE(ErrorOf(std::string(5000, '(') + "a").find("nested too deeply"), std::string::npos);
  EXPECT_NE(ErrorOf(std::string(5000, '-') + "a").find("nested too deeply"), std::string::npos);
}

TEST(ScalarProgram, TextReadsBack) {
  const auto p = ParseFormula({"select(lt(a, -0.5), 1e300 * b, min(a / 3, most))", "max(a, -most)"},
                              {{"a", "b"}, {{"most", kInf}}});
  ASSERT_TRUE(p.ok());
  const auto again = ParseScalarProgram(ToString(*p));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *p);
}

TEST(ScalarProgram, MutatedTextIsRefusedOrSound) {
  const std::string text = ToString(*ParseFormula({"select(lt(a, 0.5), tanh(b) * a, -b)"}, {{"a", "b"}, {}}));
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string t = text;
    for (int k = 0; k < 3; ++k) {
      const size_t at = random() % t.size();
      if (random() % 2)
        t[at] = static_cast<char>(random());
      else
        t.erase(at, 1 + random() % 5);
      if (t.empty()) t = "x";
    }
    const auto p = ParseScalarProgram(t);
    if (!p.ok() || p->num_inputs > 100) continue;
    std::vector<double> in(p->num_inputs, 0.5), out(p->results.size());
    EvaluateScalar(*p, in.data(), out.data());
    const auto again = ParseScalarProgram(ToString(*p));
    ASSERT_TRUE(again.ok()) << t << "\n" << ToString(*p);
    EXPECT_EQ(*again, *p);
  }
}

// A thread's number fits in 32 bits where the number of an element does not.
TEST(DeviceMap, NumbersOfManyElementsHave64Bits) {
  const auto p = ParseFormula({"a + b"}, {{"a", "b"}, {}});
  ASSERT_TRUE(p.ok());
  const auto text = [&](int64_t rows) {
    const TensorType whole{DType::kBF16, {rows, 65536}}, row{DType::kBF16, {1, 65536}};
    return DeviceMap(*p, {whole, row}, {whole}).steps[0].text;
  };
  const std::string many = text(65536), fewer = text(65535);
  EXPECT_NE(many.find("for (u32 i ="), std::string::npos) << many;
  EXPECT_NE(many.find("const auto e = (i64)i * 8 + k;"), std::string::npos) << many;
  EXPECT_NE(fewer.find("const auto e = i * 8 + k;"), std::string::npos) << fewer;
}

TEST(Formula, MutatedTextNeverCrashes) {
  const std::string text = "select(lt(a, 0.5), tanh(b) * (a + 1e-3), -b / 2)";
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    std::string t = text;
    for (int k = 0; k < 4; ++k) t[random() % t.size()] = "()+-*/,. ab1e\xff"[random() % 14];
    const auto p = ParseFormula({t}, {{"a", "b"}, {}});
    if (!p.ok()) continue;
    const double in[] = {0.25, -2};
    double out;
    EvaluateScalar(*p, in, &out);
  }
}

}  // namespace
}  // namespace mslua
