#include "core/op/exchange_boxes.h"

namespace mslua {

std::vector<ExchangeBox> ExchangeBoxes(const Attrs& attrs) {
  const std::vector<int64_t>& messages = attrs.Ints("messages");
  const size_t rank = attrs.Ints("shape").size();
  std::vector<ExchangeBox> boxes;
  for (const int64_t* m = messages.data(); m < messages.data() + messages.size(); m += 2 + 3 * rank) {
    const int64_t *source = m + 2, *target = source + rank, *sizes = target + rank;
    boxes.push_back({m[0], m[1], Shape(source, target), Shape(target, sizes), Shape(sizes, sizes + rank)});
  }
  return boxes;
}

bool LiesIn(const Shape& at, const Shape& sizes, const Shape& whole) {
  for (size_t d = 0; d < whole.size(); ++d) {
    if (sizes[d] > whole[d] || at[d] > whole[d] - sizes[d]) return false;
  }
  return true;
}

}  // namespace mslua
