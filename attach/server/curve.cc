#include "attach/server/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace mslua::endpoint {

std::string DrawCurve(const std::vector<float>& values, int64_t first, int width, int height,
                      const std::string& title) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const float v : values) {
    if (!std::isfinite(v)) continue;
    low = std::min<double>(low, v);
    high = std::max<double>(high, v);
  }
  if (!(low <= high)) return title + ": no finite value\n";
  const double range = high > low ? high - low : 1;
  std::vector<std::string> rows(static_cast<size_t>(height), std::string(static_cast<size_t>(width), ' '));
  const size_t n = values.size();
  // A column is the mean of its steps, or one of them where there are fewer steps than columns.
  const auto columns = std::min<size_t>(static_cast<size_t>(width), n);
  for (size_t c = 0; c < columns; ++c) {
    double sum = 0;
    int64_t count = 0;
    for (size_t i = c * n / columns; i < std::max((c + 1) * n / columns, c * n / columns + 1); ++i) {
      if (std::isfinite(values[i])) sum += values[i], ++count;
    }
    if (count == 0) continue;
    const double level = (high - sum / static_cast<double>(count)) / range * (height - 1);
    rows[static_cast<size_t>(std::lround(level))][c] = '*';
  }
  std::string text = title + "\n";
  for (int r = 0; r < height; ++r) {
    const bool labelled = r == 0 || r == height - 1 || r == height / 2;
    const std::string label =
        labelled ? absl::StrFormat("%10.4g", high - range * r / std::max(1, height - 1)) : std::string(10, ' ');
    std::string row = rows[static_cast<size_t>(r)];
    row.erase(row.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, label, " |", row, "\n");
  }
  const auto least = std::find(values.begin(), values.end(), low);
  absl::StrAppendFormat(&text, "%10s  step %d..%d   last %.6g   least %.6g@%d\n", "", first,
                        first + static_cast<int64_t>(n) - 1, values.back(), low, first + (least - values.begin()));
  return text;
}

}  // namespace mslua::endpoint
