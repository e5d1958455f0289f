// The error function by pieces (math-inl.h).
#pragma once

namespace mslua {

// erf(x) / x on [0, 4) in pieces of equal width, each by its polynomial in how far into the piece x is: 0 to 1.
struct alignas(64) ErfTable {
  static constexpr int kPieces = 8, kDegree = 7;

  ErfTable();

  float power[kDegree + 1][kPieces];  // coefficients: [power][piece]
};

const ErfTable& GetErfTable();

}  // namespace mslua
