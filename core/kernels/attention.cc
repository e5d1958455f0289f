#include "core/kernels/attention.h"

#include <algorithm>
#include <cmath>

namespace mslua {

Attention Attention::Of(const Attrs& attrs, const Shape& q, const Shape& k, const Shape& v) {
  const size_t r = q.size();
  Attention a;
  a.heads = NumElements(absl::MakeConstSpan(q).subspan(0, r - 2));
  a.t = q[r - 2];
  a.s = k[r - 2];
  a.d = q[r - 1];
  a.e = v[r - 1];
  a.causal = attrs.Bool("causal");
  const double given = attrs.Float("scale");
  a.scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, a.d)));
  return a;
}

Attention Attention::OfPacked(const Attrs& attrs, const Shape& qkv) {
  const int64_t heads = attrs.Int("heads"), d = qkv[2] / 3 / heads;
  const Shape one = {qkv[0] * heads, qkv[1], d};
  return Attention::Of(attrs, one, one, one);
}

}  // namespace mslua
