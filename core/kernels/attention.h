// The sizes of scaled dot-product attention.
#pragma once

#include "core/base/shape.h"
#include "core/op/attrs.h"

namespace mslua {

struct Attention {
  int64_t heads = 1;                   // the product of the leading dimensions
  int64_t t = 0, s = 0, d = 0, e = 0;  // queries, keys, their length, the values' length
  bool causal = false;
  double scale = 1;

  static Attention Of(const Attrs& attrs, const Shape& q, const Shape& k, const Shape& v);
  // Of queries, keys and values beside each other: [n, t, 3 * heads * d].
  static Attention OfPacked(const Attrs& attrs, const Shape& qkv);
  // How many keys query `i` sees: all, or when causal those up to its own place, the last query at the last key.
  int64_t Seen(int64_t i) const { return causal ? i + 1 + s - t : s; }
};

}  // namespace mslua
