// What the text of a kernel needs to be compiled by g++: the emulated NVRTC puts this before it.
#pragma once

// No header is included: reading <cmath> takes as long as compiling sixteen kernels.
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define MSLUA_MATH(name)        \
  double name(double) noexcept; \
  float name##f(float) noexcept;
extern "C" {
MSLUA_MATH(acos)
MSLUA_MATH(acosh)
MSLUA_MATH(asin)
MSLUA_MATH(asinh)
MSLUA_MATH(atan)
MSLUA_MATH(atanh)
MSLUA_MATH(cos)
MSLUA_MATH(cosh)
MSLUA_MATH(erf)
MSLUA_MATH(erfc)
MSLUA_MATH(exp)
MSLUA_MATH(expm1)
MSLUA_MATH(floor)
MSLUA_MATH(lgamma)
MSLUA_MATH(log)
MSLUA_MATH(log1p)
MSLUA_MATH(rint)
MSLUA_MATH(sin)
MSLUA_MATH(sinh)
MSLUA_MATH(sqrt)
MSLUA_MATH(tanh)
MSLUA_MATH(trunc)
double atan2(double, double) noexcept;
float atan2f(float, float) noexcept;
double copysign(double, double) noexcept;
double fmod(double, double) noexcept;
float fmodf(float, float) noexcept;
double pow(double, double) noexcept;
float powf(float, float) noexcept;
}

#define __global__
#define __device__
#define __shared__ static
#define __constant__

struct MsluaIndex {
  unsigned x, y, z;
};
// Set by the emulated driver before a thread runs.
extern "C" {
MsluaIndex mslua_thread, mslua_block;
void (*mslua_barrier)();
}
#define threadIdx mslua_thread
#define blockIdx mslua_block
#define __syncthreads() mslua_barrier()

inline float __uint_as_float(unsigned u) {
  float f;
  __builtin_memcpy(&f, &u, sizeof f);
  return f;
}
inline unsigned __float_as_uint(float f) {
  unsigned u;
  __builtin_memcpy(&u, &f, sizeof u);
  return u;
}
inline long long __double_as_longlong(double d) {
  long long bits;
  __builtin_memcpy(&bits, &d, sizeof bits);
  return bits;
}
inline double __longlong_as_double(long long bits) {
  double d;
  __builtin_memcpy(&d, &bits, sizeof d);
  return d;
}
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float HalfToFloat(unsigned short bits) {
  _Float16 h;
  __builtin_memcpy(&h, &bits, sizeof h);
  return static_cast<float>(h);
}
inline unsigned short FloatToHalf(float f) {
  const _Float16 h = static_cast<_Float16>(f);
  unsigned short bits;
  __builtin_memcpy(&bits, &h, sizeof bits);
  return bits;
}

// A kernel is called through a pointer to its parameter, whose size is known by name.
#define MSLUA_KERNEL(name, n)                                                                         \
  static void name##_body(const Pointers<n>& p);                                                      \
  extern "C" const int name##_pointers = n;                                                           \
  extern "C" void name(void* parameter) { name##_body(*static_cast<const Pointers<n>*>(parameter)); } \
  static void name##_body(const Pointers<n>& p)
