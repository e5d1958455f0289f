// Functions that neither C++ nor CUDA has, written once for both: kSpecialFunctions is their CUDA text.
#pragma once

#include <cmath>

#define MSLUA_SPECIAL inline  // CUDA's prelude says __device__ too
#define MSLUA_CODE_AND_TEXT(name, ...) __VA_ARGS__ inline constexpr char name[] = #__VA_ARGS__;

namespace mslua {

// ScaledZeta(s, q): the sum of (1 + k / q)^-s over k = 0, 1, .., which is q^s times Hurwitz's zeta function; s > 1,
// q > 0. Terms one by one until they vanish or s allows the formula of Euler and Maclaurin, with B(2j) / (2j)! for the
// numbers of Bernoulli.
//
// PolygammaSize(n, x): n! times the sum of (x + k)^-(n + 1); n is a whole number from 1, x > 0. Factorials that have no
// double are Stirling's series.
//
// Digamma(x): the derivative of lgamma. NaN at -1, -2, ..
//
// Polygamma(n, x): the derivative of order n of digamma; n is a whole number from 0, else the result is NaN. Below 0
// the terms of the sum that are negative are the difference of two sums of positive ones.
//
// ErfInv(y): the x with erf(x) = y. A fit for f32 (Giles, "Approximating the erfinv function", 2011), and for y beyond
// its range erfc(x) = exp(-x^2) / (x sqrt(pi)); then two steps of Halley.
//
// QuotientToZero(a, b), QuotientDown(a, b): a / b rounded toward 0, and rounded down, as if a / b were exact.
MSLUA_CODE_AND_TEXT(
    kSpecialFunctions,
    MSLUA_SPECIAL double ScaledZeta(double s, double from) {
      const double c[] = {1.0 / 12,
                          -1.0 / 720,
                          1.0 / 30240,
                          -1.0 / 1209600,
                          1.0 / 47900160,
                          -691.0 / 1307674368000.0,
                          1.0 / 74724249600.0,
                          -3617.0 / 10670622842880000.0};
      double sum = 0;
      double k = 0;
      for (; from + k < 16 + s; k += 1) {
        const double term = exp(-s * log1p(k / from));
        sum += term;
        if (term < 1e-17 * sum) return sum;
      }
      const double q = from + k;
      double power = exp(-s * log1p(k / from));
      sum += power * q / (s - 1) + power / 2;
      double rising = s;
      power /= q;
      for (int j = 0; j < 8; ++j) {
        sum += c[j] * rising * power;
        rising *= (s + 2 * j + 1) * (s + 2 * j + 2);
        power /= q * q;
      }
      return sum;
    }

    MSLUA_SPECIAL double PolygammaSize(double n, double x) {
      if (x - x != 0) return 1 / x;  // infinite or NaN
      double scale = 1 / x;          // (n - 1)! / x^n
      if (n < 172) {
        for (int k = 1; k < n; ++k) scale *= k / x;
      } else {
        const double pi = 3.141592653589793;
        scale = exp(n * log(n / x) - n + 0.5 * log(2 * pi / n) + 1 / (12 * n) - 1 / (360 * n * n * n));
      }
      return scale * (n / x * ScaledZeta(n + 1, x));
    }

    MSLUA_SPECIAL double Digamma(double x) {
      if (x == 0) return -1 / x;
      double sum = 0;
      if (x < 0) {
        const double r = x - floor(x + 0.5);
        if (r == 0) return r / r;
        const double pi = 3.141592653589793;
        sum = -pi * cos(pi * r) / sin(pi * r);
        x = 1 - x;
      }
      for (; x < 10; x += 1) sum -= 1 / x;
      const double v = 1 / (x * x);
      const double series =
          v *
          (1.0 / 12 -
           v * (1.0 / 120 -
                v * (1.0 / 252 -
                     v * (1.0 / 240 - v * (1.0 / 132 - v * (691.0 / 32760 - v * (1.0 / 12 - v * 3617.0 / 8160)))))));
      return sum + log(x) - 0.5 / x - series;
    }

    MSLUA_SPECIAL double Polygamma(double n, double x) {
      if (n == 0) return Digamma(x);
      if (!(n > 0) || n != floor(n)) return (n - n) / 0.0;
      const double sign = floor(n / 2) * 2 != n ? 1 : -1;
      if (!(x <= 0)) return sign * PolygammaSize(n, x);
      const double small = -floor(-x) - x;
      if (small == 0) return sign / 0.0;
      // Of x + k those below 0, as if there were no end of them, and those above. Where both are infinite the one that
      // is nearer to 0 counts.
      const double below = sign * PolygammaSize(n, small);
      const double above = PolygammaSize(n, 1 - small);
      const double nearer = small < 0.5 ? below : above;
      const double both = sign < 0 && small == 0.5 ? 0 : nearer - nearer != 0 ? nearer : above + below;
      return sign * (both - sign * PolygammaSize(n, 1 - x));
    }

    MSLUA_SPECIAL double ErfInv(double y) {
      if (y == 1 || y == -1) return y / 0.0;
      double w = -log((1 - y) * (1 + y));
      double x = 0;
      if (w > 16) {
        x = sqrt(w + 0.1207822376352452 - 0.5 * log(w));
        if (y < 0) x = -x;
      } else if (w < 5) {
        w -= 2.5;
        x = 2.81022636e-08;
        x = 3.43273939e-07 + x * w;
        x = -3.5233877e-06 + x * w;
        x = -4.39150654e-06 + x * w;
        x = 0.00021858087 + x * w;
        x = -0.00125372503 + x * w;
        x = -0.00417768164 + x * w;
        x = 0.246640727 + x * w;
        x = (1.50140941 + x * w) * y;
      } else {
        w = sqrt(w) - 3;
        x = -0.000200214257;
        x = 0.000100950558 + x * w;
        x = 0.00134934322 + x * w;
        x = -0.00367342844 + x * w;
        x = 0.00573950773 + x * w;
        x = -0.0076224613 + x * w;
        x = 0.00943887047 + x * w;
        x = 1.00167406 + x * w;
        x = (2.83297682 + x * w) * y;
      }
      for (int step = 0; step < 2; ++step) {
        const double off = x > 0.5 ? (1 - y) - erfc(x) : x < -0.5 ? erfc(-x) - (1 + y) : erf(x) - y;
        const double u = off / (1.1283791670955126 * exp(-x * x));
        x -= u / (1 + x * u);
      }
      return x;
    }

    MSLUA_SPECIAL double QuotientToZero(double a, double b) {
      const double q = a / b, r = fmod(a, b);
      return r != r ? trunc(q) : copysign(rint((a - r) / b), q);
    }

    MSLUA_SPECIAL double QuotientDown(double a, double b) {
      const double q = a / b, r = fmod(a, b);
      const bool down = r != 0 && (r < 0) != (b < 0);
      return b == 0 ? q : copysign(rint((a - r) / b) - (down ? 1 : 0), q);
    })

// log(abs(gamma(a))), which CUDA has. The library's lgamma writes a variable that threads share.
inline double LogGamma(double a) {
  int sign;
  return lgamma_r(a, &sign);
}

}  // namespace mslua
