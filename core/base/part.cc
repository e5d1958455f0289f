#include "core/base/part.h"

#include <algorithm>

namespace mslua {

Part Part::Slice(int64_t whole, int64_t begin, int64_t count) {
  const int64_t from = std::min(begin, whole), to = std::min(from + count, whole);
  return {{whole}, {from}, {to - from}};
}

Shape Part::end() const {
  Shape end = begin;
  for (size_t d = 0; d < end.size(); ++d) end[d] += size[d];
  return end;
}

bool Part::valid() const {
  if (begin.size() != whole.size() || size.size() != whole.size()) return false;
  for (size_t d = 0; d < whole.size(); ++d) {
    if (begin[d] < 0 || size[d] < 0 || begin[d] > whole[d] || size[d] > whole[d] - begin[d]) return false;
  }
  return true;
}

}  // namespace mslua
