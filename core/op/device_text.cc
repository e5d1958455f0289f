#include "core/op/device_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/round_up.h"
#include "core/op/device_scalars.h"
#include "core/op/elementwise.h"
#include "core/op/special_functions.h"

namespace mslua {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 4096;  // beyond these, threads loop
constexpr int64_t kSmallRow = 64;      // a thread's own work

constexpr char kTypesAndMacros[] = R"cuda(
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
// Four blocks of a multiprocessor: 64 registers a thread. Without a number ptxas takes fewer, and spills.
#ifndef MSLUA_KERNEL
#define MSLUA_KERNEL(name, n) extern "C" __global__ void __launch_bounds__(256, 4) name(const Pointers<n> p)
#endif
#ifdef __CUDACC_RTC__
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
__device__ inline float HalfToFloat(unsigned short h) {
  float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f;
}
__device__ inline unsigned short FloatToHalf(float f) {
  unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h;
}
#endif
template <int N> struct Pointers { char* at[N]; };
struct Fault { i64 set, at, value; };
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
struct bool8 { unsigned char bits; };
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T v[N]; };

__device__ inline float Get(float v) { return v; }
__device__ inline double Get(double v) { return v; }
__device__ inline float Get(bf16 v) { return __uint_as_float((u32)v.bits << 16); }
__device__ inline float Get(f16 v) { return HalfToFloat(v.bits); }
__device__ inline int Get(int v) { return v; }
__device__ inline i64 Get(i64 v) { return v; }
__device__ inline int Get(unsigned char v) { return v; }
__device__ inline int Get(bool8 v) { return v.bits != 0; }

template <class C> __device__ inline void Set(float& to, C v) { to = (float)v; }
template <class C> __device__ inline void Set(double& to, C v) { to = (double)v; }
template <class C> __device__ inline void Set(bf16& to, C v) {
  const u32 u = __float_as_uint((float)v);
  to.bits = (u & 0x7fffffffu) > 0x7f800000u ? (unsigned short)((u >> 16) | 0x40)
                                            : (unsigned short)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
template <class C> __device__ inline void Set(f16& to, C v) { to.bits = FloatToHalf((float)v); }
template <class C> __device__ inline void Set(int& to, C v) { to = (int)v; }
template <class C> __device__ inline void Set(i64& to, C v) { to = (i64)v; }
template <class C> __device__ inline void Set(unsigned char& to, C v) { to = (unsigned char)(i64)v; }
template <class C> __device__ inline void Set(bool8& to, C v) { to.bits = v != 0; }

template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };

#define MSLUA_FUNCTION(name, single, whole)                                \
  __device__ inline float name(float a) { return single(a); }              \
  __device__ inline double name(double a) { return whole(a); }             \
  __device__ inline int name(int a) { return (int)whole((double)a); }      \
  __device__ inline i64 name(i64 a) { return (i64)whole((double)a); }
__device__ inline float RsqrtOf(float a) { return 1.0f / sqrtf(a); }
__device__ inline double RsqrtOf(double a) { return 1.0 / sqrt(a); }
__device__ inline float SigmoidOf(float a) { return 1.0f / (1.0f + expf(-a)); }
__device__ inline double SigmoidOf(double a) { return 1.0 / (1.0 + exp(-a)); }
#define MSLUA_SPECIAL __device__ __attribute__((noinline))
)cuda";

// After the functions of one operand.
constexpr char kArithmetic[] = R"cuda(
template <class C> __device__ inline C Min(C a, C b) { return a != a || a < b ? a : b; }
template <class C> __device__ inline C Max(C a, C b) { return a != a || a > b ? a : b; }
template <class C> __device__ inline C Abs(C a) { return a < 0 ? -a : (a == 0 ? (C)0 : a); }
template <class C> __device__ inline C Sign(C a) { return a != a ? a : (C)((a > 0) - (a < 0)); }
__device__ inline float Div(float a, float b) { return a / b; }
__device__ inline double Div(double a, double b) { return a / b; }
__device__ inline int Div(int a, int b) { return b == 0 ? 0 : b == -1 ? (int)(0u - (u32)a) : a / b; }
__device__ inline i64 Div(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? (i64)(0ull - (u64)a) : a / b; }
__device__ inline float Pow(float a, float b) { return powf(a, b); }
__device__ inline double Pow(double a, double b) { return pow(a, b); }
template <class I, class U> __device__ inline I IntegerPow(I a, I b) {
  if (b < 0) return a == 1 ? (I)1 : a == -1 ? (I)(b % 2 == 0 ? 1 : -1) : (I)0;
  U base = (U)a, power = 1;
  for (U rest = (U)b; rest > 0; rest >>= 1, base *= base)
    if (rest & 1) power *= base;
  return (I)power;
}
__device__ inline int Pow(int a, int b) { return IntegerPow<int, u32>(a, b); }
__device__ inline i64 Pow(i64 a, i64 b) { return IntegerPow<i64, u64>(a, b); }
__device__ inline float Atan2(float a, float b) { return atan2f(a, b); }
__device__ inline double Atan2(double a, double b) { return atan2(a, b); }
__device__ inline double Fmod(double a, double b) { return fmod(a, b); }
__device__ inline float Fmod(float a, float b) { return fmodf(a, b); }
__device__ inline int Fmod(int a, int b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
__device__ inline i64 Fmod(i64 a, i64 b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
template <class C> __device__ inline bool RoundsDown(C r, C b) { return b != 0 && r != 0 && (r < 0) != (b < 0); }
template <class C> __device__ inline C FloorMod(C a, C b) {
  const C r = Fmod(a, b);
  return RoundsDown(r, b) ? r + b : r;
}
__device__ inline double TruncateDiv(double a, double b) { return QuotientToZero(a, b); }
__device__ inline double FloorDiv(double a, double b) { return QuotientDown(a, b); }
__device__ inline float TruncateDiv(float a, float b) { return (float)QuotientToZero(a, b); }
__device__ inline float FloorDiv(float a, float b) { return (float)QuotientDown(a, b); }
__device__ inline int TruncateDiv(int a, int b) { return Div(a, b); }
__device__ inline i64 TruncateDiv(i64 a, i64 b) { return Div(a, b); }
__device__ inline int FloorDiv(int a, int b) { return Div(a, b) - RoundsDown(Fmod(a, b), b); }
__device__ inline i64 FloorDiv(i64 a, i64 b) { return Div(a, b) - RoundsDown(Fmod(a, b), b); }

// The threads that share a row. All of them call Sum, Max and Min together; every thread gets the result.
template <int N> struct Team {
  int lane;
  static constexpr int lanes = N;
  template <class C, class F> __device__ C Join(C v, F join) const {
    __shared__ C held[N];
    held[lane] = v;
    __syncthreads();
    for (int half = N / 2; half > 0; half /= 2) {
      if (lane < half) held[lane] = join(held[lane], held[lane + half]);
      __syncthreads();
    }
    const C all = held[0];
    __syncthreads();
    return all;
  }
  template <class C> __device__ C Sum(C v) const { return Join(v, [](C a, C b) { return a + b; }); }
  template <class C> __device__ C Max(C v) const { return Join(v, [](C a, C b) { return ::Max(a, b); }); }
  template <class C> __device__ C Min(C v) const { return Join(v, [](C a, C b) { return ::Min(a, b); }); }
  __device__ void Meet() const { __syncthreads(); }
};
template <> struct Team<1> {
  int lane;
  static constexpr int lanes = 1;
  template <class C, class F> __device__ C Join(C v, F) const { return v; }
  template <class C> __device__ C Sum(C v) const { return v; }
  template <class C> __device__ C Max(C v) const { return v; }
  template <class C> __device__ C Min(C v) const { return v; }
  __device__ void Meet() const {}
};

// core/base/rng.h: word i % 4 of block i / 4 of Philox4x32-10.
struct Words { u32 at[4]; };
__device__ inline Words Philox(u64 seed, u64 stream, u64 index) {
  u32 c0 = (u32)index, c1 = (u32)(index >> 32), c2 = (u32)stream, c3 = (u32)(stream >> 32);
  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
    const u32 n0 = (u32)(p1 >> 32) ^ c1 ^ k0, n2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c1 = (u32)p1;
    c3 = (u32)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}
__device__ inline float UniformAt(u64 seed, u64 stream, u64 i) {
  return (float)(Philox(seed, stream, i / 4).at[i % 4] >> 8) * 0x1p-24f;
}
// The normals of core/base/rng.cc, bit for bit: nothing is contracted.
__device__ inline double Step(double z, double higher, double c) { return __dadd_rn(c, __dmul_rn(z, higher)); }
__device__ inline double LogOfUnit(double x) {
  const u64 shifted = (u64)__double_as_longlong(x) + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull);
  const double e = (double)((int)(shifted >> 52) - 1023);
  const double m = __longlong_as_double((i64)((shifted & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull));
  const double s = (m - 1) / (m + 1), z = __dmul_rn(s, s);
  const double series =
      Step(z, Step(z, Step(z, Step(z, Step(z, Step(z, Step(z, Step(z, Step(z, Step(z, Step(z,
      0x1.642c8590b2164p-5, 0x1.8618618618618p-5), 0x1.af286bca1af28p-5), 0x1.e1e1e1e1e1e1ep-5),
      0x1.1111111111111p-4), 0x1.3b13b13b13b14p-4), 0x1.745d1745d1746p-4), 0x1.c71c71c71c71cp-4),
      0x1.2492492492492p-3), 0x1.999999999999ap-3), 0x1.5555555555555p-2), 0x1.0000000000000p+0);
  return __dadd_rn(__dmul_rn(e, 0x1.62e42fefa39efp-1), __dmul_rn(__dmul_rn(2, s), series));
}
__device__ inline float NormalAt(u64 seed, u64 stream, u64 i) {
  const Words w = Philox(seed, stream, i / 4);
  const u32 a = w.at[i % 4 < 2 ? 0 : 2], b = w.at[i % 4 < 2 ? 1 : 3];
  const double radius = sqrt(__dmul_rn(-2.0, LogOfUnit(__dmul_rn((double)a + 1.0, 0x1p-32))));
  const u32 quarter = (b + 0x20000000u) >> 30;
  const double turn = __dmul_rn((double)(int)(b - (quarter << 30)), 0x1p-30);
  const double x = __dmul_rn(turn, 0x1.921fb54442d18p+0), z = __dmul_rn(x, x);
  const double sine = __dmul_rn(x,
      Step(z, Step(z, Step(z, Step(z, Step(z, Step(z, Step(z, Step(z, 0x1.952c77030ad4bp-49,
      -0x1.ae7f3e733b820p-41), 0x1.6124613a86d0ap-33), -0x1.ae64567f544e4p-26), 0x1.71de3a556c734p-19),
      -0x1.a01a01a01a01ap-13), 0x1.1111111111111p-7), -0x1.5555555555555p-3), 0x1.0000000000000p+0));
  const double cosine =
      Step(z, Step(z, Step(z, Step(z, Step(z, Step(z, Step(z, Step(z, Step(z, -0x1.6827863b97d98p-53,
      0x1.ae7f3e733b820p-45), -0x1.93974a8c07c9ep-37), 0x1.1eed8eff8d898p-29), -0x1.27e4fb7789f5dp-22),
      0x1.a01a01a01a01ap-16), -0x1.6c16c16c16c17p-10), 0x1.5555555555555p-5), -0x1.0000000000000p-1),
      0x1.0000000000000p+0);
  // A quarter of a turn more: cosine becomes minus sine, and sine cosine.
  const bool swap = quarter & 1;
  const double c = swap ? sine : cosine, s = swap ? cosine : sine;
  const bool first = i % 2 == 0;
  const bool minus = first ? ((quarter + 1) & 2) != 0 : (quarter & 2) != 0;
  const double value = first ? c : s;
  return (float)__dmul_rn(radius, minus ? -value : value);
}
)cuda";

struct TypeNames {
  const char* stored;
  const char* computed;
};
constexpr TypeNames kTypes[kNumDTypes] = {{"float", "float"},       {"double", "double"}, {"bf16", "float"},
                                          {"f16", "float"},         {"int", "int"},       {"i64", "i64"},
                                          {"unsigned char", "int"}, {"bool8", "int"}};

DeviceStep Loop(int64_t n, absl::string_view index, const std::string& statements) {
  DeviceStep step;
  const int64_t blocks = std::max<int64_t>(1, CeilDiv(n, kThreads));
  step.blocks = std::min(blocks, kMostBlocks);
  // 32 bits are enough for most indices, and several times as fast to divide.
  const char* const type = n < (int64_t{1} << 31) - kMostBlocks * kThreads ? "u32" : "i64";
  step.text =
      absl::StrCat("  for (", type, " ", index, " = (", type, ")blockIdx.x * ", kThreads, " + threadIdx.x; ", index,
                   " < ", n, "; ", index, " += ", step.blocks * kThreads, ") {\n", statements, "\n  }\n");
  return step;
}

}  // namespace

const char* DevicePrelude() {
  static const std::string& prelude =
      *new std::string(absl::StrCat(kTypesAndMacros, DeviceFunctions(), kSpecialFunctions, kArithmetic));
  return prelude.c_str();
}
const char* DeviceType(DType t) { return kTypes[static_cast<int>(t)].stored; }
const char* DeviceComputeType(DType t) { return kTypes[static_cast<int>(t)].computed; }

std::string DeviceBody(const OpSpec& spec, const DeviceStep& step) {
  std::string body;
  int at = 0;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const char* const type = DeviceType(spec.inputs[i].dtype);
    absl::StrAppend(&body, "  const ", type, "* x", i, " = (const ", type, "*)p.at[", at++, "];\n");
  }
  for (size_t o = 0; o < spec.outputs.size(); ++o) {
    const char* const type = DeviceType(spec.outputs[o].dtype);
    absl::StrAppend(&body, "  ", type, "* y", o, " = (", type, "*)p.at[", at++, "];\n");
  }
  absl::StrAppend(&body, "  char* scratch = p.at[", at, "];\n  Fault* fault = (Fault*)p.at[", at + 1, "];\n",
                  step.text);
  return body;
}

DeviceStep EachElement(int64_t n, const std::string& statements) { return Loop(n, "i", statements); }

namespace {

// EachRow with another name for the row, and whether a team is a block.
DeviceStep EachTeam(int64_t rows, bool block, const std::string& row, const std::string& statements) {
  if (!block) return Loop(rows, row, absl::StrCat("  const Team<1> team = {0};\n", statements));
  DeviceStep step;
  step.blocks = std::clamp<int64_t>(rows, 1, kMostBlocks);
  step.text =
      absl::StrCat("  const Team<", kThreads, "> team = {(int)threadIdx.x};\n  for (i64 ", row, " = blockIdx.x; ", row,
                   " < ", rows, "; ", row, " += ", step.blocks, ") {\n", statements, "\n  }\n");
  return step;
}

}  // namespace

DeviceStep EachRow(int64_t rows, int64_t length, const std::string& statements) {
  return EachTeam(rows, length > kSmallRow, "row", statements);
}

std::string Constant(const std::string& name, absl::Span<const int64_t> values) {
  return absl::StrCat("  constexpr i64 ", name, "[] = {", values.empty() ? "0" : absl::StrJoin(values, ", "), "};\n");
}
std::string Constant(const std::string& name, int64_t value) {
  return absl::StrCat("  constexpr i64 ", name, " = ", value, ";\n");
}
std::string Constant(const std::string& name, double value) {
  return absl::StrCat("  const double ", name, " = ", NumberText(value), ";\n");
}

std::string StridedIndex(const std::string& index, absl::Span<const int64_t> shape, absl::Span<const int64_t> strides,
                         int64_t offset) {
  // Neighbouring coordinates that lie as one are taken as one.
  std::vector<std::pair<int64_t, int64_t>> merged;  // size, stride
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (!merged.empty() && merged.back().second == strides[d] * shape[d])
      merged.back() = {merged.back().first * shape[d], strides[d]};
    else
      merged.emplace_back(shape[d], strides[d]);
  }
  std::vector<std::string> terms;
  int64_t inner = 1;
  for (size_t d = merged.size(); d-- > 0; inner *= merged[d].first) {
    const auto [size, stride] = merged[d];
    if (stride == 0) continue;
    std::string at = index;
    if (inner != 1) at = absl::StrCat("(", at, " / ", inner, ")");
    if (d != 0) at = absl::StrCat("(", at, " % ", size, ")");
    terms.push_back(stride == 1 ? at : absl::StrCat("(i64)", at, " * ", stride));
  }
  if (offset != 0 || terms.empty()) terms.push_back(absl::StrCat("(i64)", offset));
  return absl::StrJoin(terms, " + ");
}

std::string BroadcastIndex(const std::string& index, const Shape& shape, const Shape& from) {
  const Shape own = RowMajorStrides(from);
  std::vector<int64_t> strides(shape.size(), 0);
  const size_t missing = shape.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) strides[missing + d] = from[d] == 1 ? 0 : own[d];
  return StridedIndex(index, shape, strides);
}

DeviceProgram DeviceMap(const ScalarProgram& program, absl::Span<const TensorType> inputs,
                        absl::Span<const TensorType> outputs) {
  const Shape& shape = outputs[0].shape;
  const int64_t n = NumElements(shape);
  std::vector<TensorView> in, out;
  int64_t widest = 1;
  for (const TensorType& t : inputs) in.push_back({t, nullptr});
  for (const TensorType& t : outputs) {
    out.push_back({t, nullptr});
    widest = std::max(widest, SizeOf(t.dtype));
  }
  const auto dense = [&](const TensorType& t) { return t.shape == shape; };
  for (const TensorType& t : inputs) {
    if (dense(t)) widest = std::max(widest, SizeOf(t.dtype));
  }
  // Threads move 16 bytes of the widest operand at a time.
  const int64_t width = n % (16 / widest) == 0 ? 16 / widest : 1;
  const char* const compute = DeviceComputeType(ElementwiseComputeType(in, out));
  std::string text = absl::StrCat("  typedef ", compute, " C;\n");
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (dense(inputs[i]))
      absl::StrAppend(&text, "  const auto a", i, " = ((const Pack<", DeviceType(inputs[i].dtype), ", ", width, ">*)x",
                      i, ")[i];\n");
  }
  for (size_t o = 0; o < outputs.size(); ++o)
    absl::StrAppend(&text, "  Pack<", DeviceType(outputs[o].dtype), ", ", width, "> b", o, ";\n");
  // 32 bits may be enough for i and not for e.
  absl::StrAppend(&text, "#pragma unroll\n  for (int k = 0; k < ", width,
                  "; ++k) {\n    const auto e = ", n < int64_t{1} << 32 ? "i * " : "(i64)i * ", width, " + k;\n");
  std::vector<std::string> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    operands.push_back(dense(inputs[i])
                           ? absl::StrCat("Get(a", i, ".v[k])")
                           : absl::StrCat("Get(x", i, "[", BroadcastIndex("e", shape, inputs[i].shape), "])"));
  }
  absl::StrAppend(&text, DeviceScalars(program, operands));
  for (size_t o = 0; o < outputs.size(); ++o)
    absl::StrAppend(&text, "    Set(b", o, ".v[k], v", program.results[o], ");\n");
  absl::StrAppend(&text, "  }\n");
  for (size_t o = 0; o < outputs.size(); ++o)
    absl::StrAppend(&text, "  ((Pack<", DeviceType(outputs[o].dtype), ", ", width, ">*)y", o, ")[i] = b", o, ";\n");
  return OneStep(EachElement(n / width, text));
}

DeviceStep CheckRange(int input, int64_t count, int64_t low, int64_t high, absl::optional<int64_t> except) {
  DeviceStep step;
  step.text = absl::StrCat(
      "  const Team<256> team = {(int)threadIdx.x};\n  i64 first = ", count, ";\n  for (i64 i = team.lane; i < ", count,
      "; i += team.lanes) {\n    const i64 v = Get(x", input, "[i]);\n    if ((v < ", low, " || v >= ", high,
      except ? absl::StrCat(") && v != ", *except, "ll") : ")",
      " && i < first) first = i;\n  }\n  first = team.Min(first);\n  if (team.lane == 0 && first < ", count,
      " && !fault->set) {\n    fault->set = 1;\n    fault->at = first;\n    fault->value = Get(x", input,
      "[first]);\n  }\n");
  return step;
}

ReducedIndex DeviceReducedIndex(const Shape& shape, const std::vector<bool>& reduced) {
  const Shape strides = RowMajorStrides(shape);
  std::vector<int64_t> sizes[2], steps[2];
  for (size_t d = 0; d < shape.size(); ++d) {
    sizes[reduced[d] ? 1 : 0].push_back(shape[d]);
    steps[reduced[d] ? 1 : 0].push_back(strides[d]);
  }
  int64_t innermost = -1;  // the last axis with more than one element
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 1) innermost = static_cast<int64_t>(d);
  }
  return {StridedIndex("row", sizes[0], steps[0]), StridedIndex("k", sizes[1], steps[1]), NumElements(sizes[0]),
          NumElements(sizes[1]), innermost >= 0 && !reduced[static_cast<size_t>(innermost)]};
}

namespace {

std::string JoinText(char join, const std::string& a, const std::string& b) {
  if (join == '+' || join == '*') return absl::StrCat(a, " ", std::string(1, join), " ", b);
  return absl::StrCat(join == 'M' ? "Max<C>(" : "Min<C>(", a, ", ", b, ")");
}

std::string StartText(char join, const std::string& type) {
  if (join == '+') return "(C)0";
  if (join == '*') return "(C)1";
  const std::string sign = join == 'M' ? "-" : "";
  if (type == "float" || type == "double") return absl::StrCat(sign, "(C)INFINITY");
  const bool wide = type == "i64";
  if (join == 'M') return wide ? "(C)(-0x7fffffffffffffffll - 1)" : "(C)(-0x7fffffff - 1)";
  return wide ? "(C)0x7fffffffffffffffll" : "(C)0x7fffffff";
}

}  // namespace

DeviceProgram DeviceReduce(const DeviceReduction& r) {
  constexpr int64_t kThreadsWanted = 1 << 17, kShortest = 32;
  const int64_t team = r.adjacent || r.length <= kSmallRow ? 1 : kThreads;
  // Few outputs are made in parts, which a second step joins.
  const int64_t wanted = kThreadsWanted / std::max<int64_t>(1, r.outputs * team);
  const int64_t parts = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, r.length / (kShortest * team)));
  const size_t count = r.joins.size();
  const std::string type = absl::StrCat("  typedef ", r.type, " C;\n");
  std::string text = absl::StrCat(type, "  const i64 row = part / ", parts, ", section = part % ", parts, ";\n");
  if (r.adjacent)
    text = absl::StrCat(type, "  const i64 row = part % ", r.outputs, ", section = part / ", r.outputs, ";\n");
  for (size_t a = 0; a < count; ++a) absl::StrAppend(&text, "  C t", a, " = ", StartText(r.joins[a], r.type), ";\n");
  // A short loop unrolled as a whole would need more registers than there are.
  absl::StrAppend(&text, "  const i64 end = (section + 1) * ", r.length, " / ", parts,
                  ";\n#pragma unroll 4\n  for (i64 k = section * ", r.length, " / ", parts,
                  " + team.lane; k < end; k += team.lanes) {\n", r.element, "\n");
  for (size_t a = 0; a < count; ++a)
    absl::StrAppend(&text, "    t", a, " = ", JoinText(r.joins[a], absl::StrCat("t", a), absl::StrCat("a", a)), ";\n");
  absl::StrAppend(&text, "  }\n");
  for (size_t a = 0; a < count; ++a) {
    const std::string t = absl::StrCat("t", a);
    absl::StrAppend(&text, "  ", t, " = team.Join(", t, ", [](C a, C b) { return ", JoinText(r.joins[a], "a", "b"),
                    "; });\n");
  }
  DeviceProgram program;
  const auto each_part = [&](const std::string& statements) {
    return EachTeam(r.outputs * parts, team > 1, "part", statements);
  };
  if (parts == 1) {
    program.steps.push_back(each_part(absl::StrCat(text, "  if (team.lane == 0) {\n", r.finish, "\n  }\n")));
    return program;
  }
  const std::string held = "  C* const held = (C*)scratch;\n";
  absl::StrAppend(&text, held, "  if (team.lane == 0) {\n");
  for (size_t a = 0; a < count; ++a)
    absl::StrAppend(&text, "    held[(", a * static_cast<size_t>(parts), " + section) * ", r.outputs, " + row] = t", a,
                    ";\n");
  program.steps.push_back(each_part(absl::StrCat(text, "  }\n")));
  std::string join = absl::StrCat(type, held, "  const i64 row = i;\n");
  for (size_t a = 0; a < count; ++a) {
    absl::StrAppend(&join, "  C t", a, " = ", StartText(r.joins[a], r.type), ";\n  for (i64 s = 0; s < ", parts,
                    "; ++s) {\n    const C part = held[(", a * static_cast<size_t>(parts), " + s) * ", r.outputs,
                    " + row];\n    t", a, " = ", JoinText(r.joins[a], absl::StrCat("t", a), "part"), ";\n  }\n");
  }
  program.steps.push_back(EachElement(r.outputs, absl::StrCat(join, r.finish)));
  program.scratch_bytes = static_cast<int64_t>(count) * parts * r.outputs * 8;
  return program;
}

}  // namespace mslua
