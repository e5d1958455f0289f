// MSLUA_VECTORS before a function whose loops the compiler makes vectors of: the function is there for AVX-512, for
// AVX2 and for any processor, and the first call takes the best.
#pragma once

// Not under sanitizers whose runtime begins after the choice is made, nor with clang, which builds fuzz targets only.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MSLUA_VECTORS __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define MSLUA_VECTORS
#endif
