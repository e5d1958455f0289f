// What the text of a kernel needs to be compiled by g++: the emulated NVRTC puts this before it.
#pragma once

#include <cmath>
#include <cstring>

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
  std::memcpy(&f, &u, sizeof f);
  return f;
}
inline unsigned __float_as_uint(float f) {
  unsigned u;
  std::memcpy(&u, &f, sizeof u);
  return u;
}
inline long long __double_as_longlong(double d) {
  long long bits;
  std::memcpy(&bits, &d, sizeof bits);
  return bits;
}
inline double __longlong_as_double(long long bits) {
  double d;
  std::memcpy(&d, &bits, sizeof d);
  return d;
}
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float HalfToFloat(unsigned short bits) {
  _Float16 h;
  std::memcpy(&h, &bits, sizeof h);
  return static_cast<float>(h);
}
inline unsigned short FloatToHalf(float f) {
  const _Float16 h = static_cast<_Float16>(f);
  unsigned short bits;
  std::memcpy(&bits, &h, sizeof bits);
  return bits;
}

// A kernel is called through a pointer to its parameter, whose size is known by name.
#define MSLUA_KERNEL(name, n)                                                                         \
  static void name##_body(const Pointers<n>& p);                                                      \
  extern "C" const int name##_pointers = n;                                                           \
  extern "C" void name(void* parameter) { name##_body(*static_cast<const Pointers<n>*>(parameter)); } \
  static void name##_body(const Pointers<n>& p)
