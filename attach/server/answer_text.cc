#include "attach/server/answer_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace mslua::endpoint {

std::string BytesText(int64_t n) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto v = static_cast<double>(n);
  int u = 0;
  for (; v >= 1024 && u < 4; ++u) v /= 1024;
  return absl::StrFormat("%.*f %s", u == 0 ? 0 : 1, v, units[u]);
}

std::string RankList(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", ranks[i], last > i ? absl::StrCat("-", ranks[last]) : "");
    i = last + 1;
  }
  return text;
}

std::string WithLineEnd(const std::string& text) {
  return text.empty() || text.back() == '\n' ? text : absl::StrCat(text, "\n");
}

}  // namespace mslua::endpoint
