// Formulas run by vectors, beside the library's functions in double precision.
#include "core/kernels/simd/tile_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/base/aligned_memory.h"
#include "core/op/special_functions.h"
#include "core/ops/testing/instruction_sets.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// y = formula(x), and `after` elements more that are to stay as they are.
std::vector<float> Compute(const std::string& formula, const std::vector<float>& x, int64_t after = 0) {
  const TensorType type{DType::kF32, {static_cast<int64_t>(x.size())}};
  const auto parsed = ParseFormula({formula}, {{"x"}, {}});
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const TileProgram program(*parsed, {type}, {type});
  const AlignedMemory scratch = AllocateAligned(program.scratch_bytes());
  std::vector<float> y(x.size() + after, -7);
  const void* const inputs[] = {x.data()};
  void* const outputs[] = {y.data()};
  program.Run(inputs, outputs, scratch.get());
  return y;
}

// Units of the last place of a f32 near `y`.
double Unit(double y) { return std::ldexp(1.0, std::max(std::ilogb(y), -126) - 23); }

struct Function {
  const char* name;
  double (*exact)(double);
  float from, to;    // where it is tried, in even steps
  double tolerance;  // units in the last place of the result
};

class Accuracy : public ::testing::TestWithParam<Function> {};

void CheckOverItsRange(const Function& f) {
  constexpr int kCount = 300007;
  std::vector<float> x(kCount);
  for (int i = 0; i < kCount; ++i) x[i] = f.from + (f.to - f.from) * (static_cast<float>(i) / kCount);
  const std::vector<float> y = Compute(std::string(f.name) + "(x)", x);
  double largest = 0;
  float worst = 0;
  for (int i = 0; i < kCount; ++i) {
    const double exact = f.exact(x[i]);
    const double error = std::fabs(y[i] - exact) / Unit(exact);
    if (!(error <= largest)) largest = error, worst = x[i];
  }
  EXPECT_LE(largest, f.tolerance) << f.name << "(" << worst << ")";
}

TEST_P(Accuracy, OverItsRange) {
  testing::OnEveryInstructionSet([] { CheckOverItsRange(GetParam()); });
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

INSTANTIATE_TEST_SUITE_P(
    Functions, Accuracy,
    ::testing::Values(
        Function{"exp", std::exp, -87.3f, 88.72f, 2}, Function{"exp", std::exp, -1e-3f, 1e-3f, 1},
        Function{"erf", std::erf, -5, 5, 3}, Function{"erf", std::erf, -1e-3f, 1e-3f, 3},
        Function{"erf", std::erf, -1e-30f, 1e-30f, 2}, Function{"tanh", std::tanh, -10, 10, 5},
        Function{"sigmoid", Sigmoid, -80, 80, 4}, Function{"log", std::log, 1e-30f, 1e30f, 4},
        Function{"log", std::log, 0.25f, 0.75f, 4}, Function{"log", std::log, 1.5f, 4, 4},
        Function{"log1p", std::log1p, -0.25f, 0.4f, 2}, Function{"log1p", std::log1p, -1e-6f, 1e-6f, 2},
        Function{"log1p", std::log1p, -1e-30f, 1e-30f, 1}, Function{"log1p", std::log1p, -0.99f, 10, 4},
        Function{"log1p", std::log1p, 10, 1e30f, 4}, Function{"expm1", std::expm1, -0.35f, 0.35f, 2},
        Function{"expm1", std::expm1, -1e-6f, 1e-6f, 1}, Function{"expm1", std::expm1, -1e-30f, 1e-30f, 1},
        Function{"expm1", std::expm1, -20, 20, 2}, Function{"expm1", std::expm1, 20, 88.72f, 2},
        Function{"asin", std::asin, -1, 1, 3}, Function{"asin", std::asin, -1e-30f, 1e-30f, 1},
        Function{"acos", std::acos, -1, 1, 3}, Function{"atan", std::atan, -20, 20, 4},
        Function{"atan", std::atan, -1e-30f, 1e-30f, 1}, Function{"sinh", std::sinh, -89.4f, 89.4f, 8},
        Function{"sinh", std::sinh, -1.5f, 1.5f, 8}, Function{"sinh", std::sinh, -1e-30f, 1e-30f, 1},
        Function{"cosh", std::cosh, -89.4f, 89.4f, 8}, Function{"asinh", std::asinh, -3, 3, 5},
        Function{"asinh", std::asinh, -1e30f, 1e30f, 4}, Function{"asinh", std::asinh, -1e-30f, 1e-30f, 1},
        Function{"acosh", std::acosh, 1, 1.01f, 5}, Function{"acosh", std::acosh, 1, 30, 5},
        Function{"acosh", std::acosh, 1e6f, 1e30f, 4}, Function{"atanh", std::atanh, -0.999999f, 0.999999f, 5},
        Function{"atanh", std::atanh, -1e-30f, 1e-30f, 1}, Function{"erfinv", ErfInv, -0.9999999f, 0.9999999f, 5},
        Function{"erfinv", ErfInv, 0.999f, 0.9999999f, 5}, Function{"erfinv", ErfInv, -1e-30f, 1e-30f, 5}));

TEST(TileProgram, Edges) {
  const std::vector<float> x = {0, -0.0f, kInf, -kInf, 1e30f, -1e30f, 89, -104};
  EXPECT_EQ(Compute("exp(x)", x), (std::vector<float>{1, 1, kInf, 0, kInf, 0, kInf, 0}));
  EXPECT_EQ(Compute("erf(x)", x), (std::vector<float>{0, -0.0f, 1, -1, 1, -1, 1, -1}));
  EXPECT_EQ(Compute("tanh(x)", x), (std::vector<float>{0, -0.0f, 1, -1, 1, -1, 1, -1}));
  EXPECT_EQ(Compute("sigmoid(x)", x), (std::vector<float>{0.5f, 0.5f, 1, 0, 1, 0, 1, 0}));
  EXPECT_EQ(Compute("expm1(x)", x), (std::vector<float>{0, -0.0f, kInf, -1, kInf, -1, kInf, -1}));
  EXPECT_EQ(Compute("log1p(x)", {0, kInf, -1}), (std::vector<float>{0, kInf, -kInf}));
  EXPECT_TRUE(std::isnan(Compute("log1p(x)", {-1.5f})[0]));
  EXPECT_EQ(Compute("sinh(x)", x), (std::vector<float>{0, -0.0f, kInf, -kInf, kInf, -kInf, std::sinh(89.0f), -kInf}));
  EXPECT_EQ(Compute("atanh(x)", {1, -1}), (std::vector<float>{kInf, -kInf}));
  EXPECT_EQ(Compute("erfinv(x)", {1, -1}), (std::vector<float>{kInf, -kInf}));
  EXPECT_EQ(Compute("asinh(x)", {kInf, -kInf}), (std::vector<float>{kInf, -kInf}));
  EXPECT_EQ(Compute("acosh(x)", {kInf, 1}), (std::vector<float>{kInf, 0}));
  for (const char* function : {"erf(x)", "expm1(x)", "sinh(x)", "asin(x)", "atan(x)", "asinh(x)", "atanh(x)"})
    EXPECT_TRUE(std::signbit(Compute(function, x)[1])) << function;
}

// Exponents that are numbers have their own ways.
TEST(TileProgram, FixedPowersAreTheLibrarys) {
  const std::vector<float> x = {0,    -0.0f, 1,     -1,     0.3f, -0.7f, 1.7f,         -2.5f,
                                3e9f, -3e9f, 1e-9f, 1e-18f, kInf, -kInf, std::nanf("")};
  for (const float y : {2.0f, 3.0f, 4.0f, -1.0f, -2.0f, 0.5f, -0.5f, 1.5f, -3.0f, 0.0f, 1.0f}) {
    const std::vector<float> got = Compute(absl::StrCat("pow(x, ", y, ")"), x);
    for (size_t i = 0; i < x.size(); ++i) {
      const float want = std::pow(x[i], y);
      SCOPED_TRACE(absl::StrCat(x[i], " to the power of ", y));
      EXPECT_EQ(std::isnan(got[i]), std::isnan(want));
      EXPECT_EQ(std::signbit(got[i]) && want == want, std::signbit(want) && want == want);
      if (std::isfinite(want) && want != 0) {
        EXPECT_NEAR(got[i] / want, 1, 4e-7);
      } else if (want == want) {
        EXPECT_EQ(got[i], want);
      }
    }
  }
}

TEST(TileProgram, PowersOfZerosKeepTheirSigns) {
  const std::vector<float> y = Compute("pow(x, -1)", {0, -0.0f, -0.0f, 0, 0, -0.0f});
  EXPECT_EQ(y, (std::vector<float>{kInf, -kInf, -kInf, kInf, kInf, -kInf}));
}

double Atan2(double y, double x) { return std::atan2(y, x); }
double Fmod(double x, double y) { return std::fmod(x, y); }
double FloorMod(double x, double y) { return x - std::floor(x / y) * y; }
double FloorDiv(double x, double y) { return std::floor(x / y); }
double TruncateDiv(double x, double y) { return std::trunc(x / y); }

// Functions of two operands, on points around 0 in all directions, and on large quotients. The numbers have so few
// digits that quotients and remainders are exact in f64.
void CheckPairs() {
  const std::pair<const char*, double (*)(double, double)> functions[] = {{"atan2", Atan2},
                                                                          {"fmod", Fmod},
                                                                          {"floor_mod", FloorMod},
                                                                          {"floor_div", FloorDiv},
                                                                          {"truncate_div", TruncateDiv}};
  constexpr int kCount = 5003;
  const TensorType type{DType::kF32, {kCount}};
  std::vector<float> x(kCount), y(kCount), got(kCount);
  for (int i = 0; i < kCount; ++i) {
    x[i] = static_cast<float>((i * 7919) % 4093 - 2046) * (i % 3 == 0 ? 4096.0f : i % 3 == 1 ? 1.0f : 1.0f / 4096);
    y[i] = static_cast<float>((i * 104729) % 1021 - 510) / 8;
    if (y[i] == 0) y[i] = 3;
  }
  for (const auto& [name, exact] : functions) {
    const auto program = ParseFormula({absl::StrCat(name, "(x, y)")}, {{"x", "y"}, {}});
    ASSERT_TRUE(program.ok());
    const TileProgram tiles(*program, {type, type}, {type});
    const AlignedMemory scratch = AllocateAligned(tiles.scratch_bytes());
    const void* const inputs[] = {x.data(), y.data()};
    void* const outputs[] = {got.data()};
    tiles.Run(inputs, outputs, scratch.get());
    for (int i = 0; i < kCount; ++i) {
      const double want = exact(x[i], y[i]);
      ASSERT_LE(std::fabs(got[i] - want), exact == Atan2 ? 4 * Unit(want) : 0.51 * Unit(want))
          << name << "(" << x[i] << ", " << y[i] << ") is " << got[i] << ", not " << want;
    }
  }
}

TEST(TileProgram, PairsAreExact) { testing::OnEveryInstructionSet(CheckPairs); }

// Every row of core/op/scalar_functions-inl.h: what vectors compute is what its form for numbers says.
void CheckEveryFunction() {
  const std::vector<float> values = {0, -0.0f, 0.001f, 0.3f, 0.5f, 1, 1.5f, 2, 7, -0.25f, -1, -2.5f, -3, std::nanf("")};
  std::vector<float> x, y, z;
  for (const float a : values) {
    for (const float b : values) x.push_back(a), y.push_back(b), z.push_back(a - 2 * b);
  }
  const int64_t count = static_cast<int64_t>(x.size());
  const TensorType type{DType::kF32, {count}};
  for (int op = static_cast<int>(ScalarOp::kConst) + 1; op < kNumScalarOps; ++op) {
    ScalarProgram program;
    program.num_inputs = 3;
    for (int32_t i = 0; i < 3; ++i) program.code.push_back({ScalarOp::kInput, {i, -1, -1}, 0});
    const int arity = Arity(static_cast<ScalarOp>(op));
    program.code.push_back({static_cast<ScalarOp>(op), {0, arity > 1 ? 1 : -1, arity > 2 ? 2 : -1}, 0});
    program.results = {3};
    const TileProgram tiles(program, {type, type, type}, {type});
    const AlignedMemory scratch = AllocateAligned(tiles.scratch_bytes());
    std::vector<float> got(count);
    const void* const inputs[] = {x.data(), y.data(), z.data()};
    void* const outputs[] = {got.data()};
    tiles.Run(inputs, outputs, scratch.get());
    for (int64_t i = 0; i < count; ++i) {
      const double operands[] = {x[i], y[i], z[i]};
      double exact;
      EvaluateScalar(program, operands, &exact);
      const bool same = std::isfinite(exact) ? std::fabs(got[i] - exact) <= 8 * Unit(exact) + 1e-6 * std::fabs(exact)
                                             : got[i] == exact || (std::isnan(exact) && std::isnan(got[i]));
      EXPECT_TRUE(same) << Name(static_cast<ScalarOp>(op)) << "(" << x[i] << ", " << y[i] << ", " << z[i] << ") is "
                        << got[i] << ", not " << exact;
    }
  }
}

TEST(TileProgram, EveryFunctionIsItsNumberForm) { testing::OnEveryInstructionSet(CheckEveryFunction); }

TEST(TileProgram, NanStays) {
  const std::vector<float> x(40, std::nanf(""));
  for (const char* name :
       {"exp",  "erf",  "tanh", "sigmoid", "log",  "log1p", "expm1", "sin",   "cos",   "sqrt",   "abs",   "neg",
        "sign", "asin", "acos", "atan",    "sinh", "cosh",  "asinh", "acosh", "atanh", "lgamma", "erfinv"}) {
    for (const float y : Compute(std::string(name) + "(x)", x)) ASSERT_TRUE(std::isnan(y)) << name;
  }
}

// Formulas of numbers alone, as operands, as results, and read by several; their slots take no tiles.
TEST(TileProgram, FormulasOfNumbersAreNumbers) {
  const auto parsed = ParseFormula({"abs(abs(x * pow(b, 3 - 1))) + sqrt(b)", "sqrt(b) + 13"}, {{"x", "b"}, {}});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  for (const int64_t n : {1, 5, 700}) {
    const TensorType type{DType::kF32, {n}};
    const TileProgram program(*parsed, {type, {DType::kF32, {}}}, {type, type});
    const AlignedMemory scratch = AllocateAligned(program.scratch_bytes());
    std::vector<float> x(n), first(n), second(n);
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i);
    const float b = 4;
    const void* const inputs[] = {x.data(), &b};
    void* const outputs[] = {first.data(), second.data()};
    program.Run(inputs, outputs, scratch.get());
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(first[i], 16 * x[i] + 2) << i;
      ASSERT_EQ(second[i], 15) << i;
    }
  }
}

// Lengths around those of vectors, pairs of vectors and tiles; what lies after the last number stays.
void CheckAnyLength() {
  for (const int n : {1, 7, 15, 16, 17, 31, 33, 63, 65, 511, 512, 513, 543, 545, 1027}) {
    std::vector<float> x(n);
    for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i) - 5;
    const std::vector<float> y = Compute("neg(x)", x, 64);
    for (int i = 0; i < n + 64; ++i) ASSERT_EQ(y[i], i < n ? 5 - i : -7) << i << " of " << n;
  }
}

TEST(TileProgram, AnyLength) { testing::OnEveryInstructionSet(CheckAnyLength); }

// The update of a parameter and its moment: outputs that are kept are what they are without, wherever they lie.
TEST(TileProgram, OutputsPastTheCachesAreTheSame) {
  const auto program = ParseScalarProgram("3: i0; i1; i2; mul(1,2); add(3,0); sub(0,4) -> 4,5,2");
  ASSERT_TRUE(program.ok()) << program.status();
  testing::OnEveryInstructionSet([&] {
    for (const int64_t n : {5, 512, 100000}) {
      const TensorType f32{DType::kF32, {n}}, bf16{DType::kBF16, {n}};
      const std::vector<TensorType> inputs = {f32, f32, {DType::kF32, {}}}, outputs = {f32, bf16, f32};
      const AlignedMemory p = AllocateAligned(f32.bytes()), m = AllocateAligned(f32.bytes());
      auto* const x = reinterpret_cast<float*>(p.get());
      auto* const y = reinterpret_cast<float*>(m.get());
      for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 97), y[i] = static_cast<float>(i % 31) - 15;
      const float factor = 0.75f;
      const void* const from[] = {p.get(), m.get(), &factor};
      std::vector<std::string> results;
      for (const std::vector<int64_t>& kept : std::vector<std::vector<int64_t>>{{}, {0, 1, 2}, {1}}) {
        const TileProgram update(*program, inputs, outputs, kept);
        const AlignedMemory scratch = AllocateAligned(update.scratch_bytes());
        // Memory that begins where a vector may, and that does not.
        for (const int64_t shift : {0, 4}) {
          std::vector<AlignedMemory> memory;
          std::vector<void*> to;
          for (const TensorType& t : outputs) {
            memory.push_back(AllocateAligned(t.bytes() + shift));
            to.push_back(memory.back().get() + shift);
          }
          update.Run(from, to.data(), scratch.get());
          std::string& all = results.emplace_back();
          for (size_t o = 0; o < to.size(); ++o)
            all.append(static_cast<const char*>(to[o]), static_cast<size_t>(outputs[o].bytes()));
        }
        // Over an input.
        const AlignedMemory over = AllocateAligned(f32.bytes()), second = AllocateAligned(bf16.bytes()),
                            third = AllocateAligned(f32.bytes());
        std::copy(y, y + n, reinterpret_cast<float*>(over.get()));
        const void* const inputs_over[] = {p.get(), over.get(), &factor};
        void* const to[] = {over.get(), second.get(), third.get()};
        update.Run(inputs_over, to, scratch.get());
        std::string& all = results.emplace_back();
        for (size_t o = 0; o < 3; ++o)
          all.append(static_cast<const char*>(to[o]), static_cast<size_t>(outputs[o].bytes()));
      }
      for (const std::string& r : results) EXPECT_TRUE(r == results[0]) << n;
      EXPECT_EQ(reinterpret_cast<const float*>(results[0].data())[3], 3 + 0.75f * -12);
    }
  });
}

// x as f32, alone and as a result beside another one.
TEST(TileProgram, ConvertsEveryTypeThatItReads) {
  std::mt19937 random(3);
  for (const DType dtype : {DType::kI32, DType::kI64, DType::kU8, DType::kBool, DType::kBF16, DType::kF16}) {
    for (const int64_t n : {1, 511, 512, 513, 5000, 300000}) {
      const TensorType type{dtype, {n}}, f32{DType::kF32, {n}};
      const AlignedMemory x = AllocateAligned(type.bytes());
      for (int64_t i = 0; i < n; ++i) StoreDouble(dtype, x.get(), i, random() % 2);
      for (const bool alone : {true, false}) {
        const auto parsed =
            ParseFormula(alone ? std::vector<std::string>{"x"} : std::vector<std::string>{"x", "x * 2"}, {{"x"}, {}});
        ASSERT_TRUE(parsed.ok()) << parsed.status();
        const std::vector<TensorType> outputs(alone ? 1 : 2, f32);
        const TileProgram program(*parsed, {type}, outputs);
        const AlignedMemory scratch = AllocateAligned(program.scratch_bytes());
        std::vector<float> first(static_cast<size_t>(n) + 1, -7), second(first);
        const void* const in[] = {x.get()};
        void* const out[] = {first.data(), second.data()};
        program.Run(in, out, scratch.get());
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(first[i], LoadAsDouble(dtype, x.get(), i)) << Name(dtype) << i;
        EXPECT_EQ(first.back(), -7);
      }
    }
  }
}

// Factors of rows: over a tile within one row, and over tiles that several rows share.
TEST(TileProgram, RowsHaveFactorsOfTheirOwn) {
  for (const int64_t columns : {1, 5, 511, 512, 513, 784, 1024, 1500}) {
    const int64_t rows = 2000 / columns + 3, n = rows * columns;
    const TensorType whole{DType::kF32, {rows, columns}}, factors{DType::kF32, {rows, 1}};
    std::vector<float> x(static_cast<size_t>(n)), s(static_cast<size_t>(rows));
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 37) - 18;
    for (int64_t r = 0; r < rows; ++r) s[r] = static_cast<float>(r % 7) - 3;
    const auto parsed = ParseFormula({"x * s", "s - x", "s * s", "x * s + s", "s * s + x", "s"}, {{"x", "s"}, {}});
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const TileProgram program(*parsed, {whole, factors}, std::vector<TensorType>(6, whole));
    const AlignedMemory scratch = AllocateAligned(program.scratch_bytes());
    std::vector<std::vector<float>> y(6, std::vector<float>(static_cast<size_t>(n)));
    const void* const inputs[] = {x.data(), s.data()};
    void* const outputs[] = {y[0].data(), y[1].data(), y[2].data(), y[3].data(), y[4].data(), y[5].data()};
    program.Run(inputs, outputs, scratch.get());
    for (int64_t i = 0; i < n; ++i) {
      const float a = x[i], b = s[i / columns];
      const float want[] = {a * b, b - a, b * b, a * b + b, b * b + a, b};  // whole numbers: no rounding
      for (int k = 0; k < 6; ++k) ASSERT_EQ(y[k][i], want[k]) << k << " of " << columns << " columns, at " << i;
    }
  }
}

}  // namespace
}  // namespace mslua
