#include "attach/server/joined.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "attach/server/answer_json.h"
#include "core/base/shape.h"

namespace mslua::endpoint {
namespace {

struct Part {
  Shape begin, size;
  std::vector<int> ranks;
};

std::string Range(const Part& p, size_t d) {
  return absl::StrCat("[", p.begin[d] + 1, ":", p.begin[d] + p.size[d], "]");
}

std::string RangeOf(const Part& p) {
  std::vector<std::string> ranges;
  for (size_t d = 0; d < p.begin.size(); ++d)
    ranges.push_back(absl::StrCat(p.begin[d] + 1, ":", p.begin[d] + p.size[d]));
  return absl::StrCat("[", absl::StrJoin(ranges, ", "), "]");
}

// Whether `json` says which part of the same tensor as `first` it holds.
bool IsPartOf(const Json& first, const Json& json) {
  const Shape whole = json["whole"], begin = json["begin"], part = json["part"];
  if (json["name"] != first["name"] || json["whole"] != first["whole"]) return false;
  if (begin.size() != whole.size() || part.size() != whole.size()) return false;
  for (size_t d = 0; d < whole.size(); ++d) {
    if (begin[d] > whole[d] || part[d] > whole[d] - begin[d]) return false;
  }
  return true;
}

std::vector<Part> PartsOf(const std::map<int, Json>& objects) {
  std::vector<Part> parts;
  for (const auto& [rank, json] : objects) {
    const Part mine{json["begin"].get<Shape>(), json["part"].get<Shape>(), {rank}};
    const auto same = std::find_if(parts.begin(), parts.end(),
                                   [&](const Part& p) { return p.begin == mine.begin && p.size == mine.size; });
    if (same == parts.end())
      parts.push_back(mine);
    else
      same->ranks.push_back(rank);
  }
  return parts;
}

std::string JsonList(const std::map<int, Json>& objects) {
  Json list = Json::array();
  for (const auto& o : objects) list.push_back(o.second);
  return Json{{"ranks", list}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Rows and columns are the ranges along dimensions `r` and `c`, the cells the ranks that hold them.
std::string Table(const std::vector<Part>& parts, size_t r, size_t c) {
  std::vector<std::string> rows, columns;
  std::map<std::pair<std::string, std::string>, std::vector<int>> cells;
  for (const Part& p : parts) {
    const std::string row = Range(p, r), column = Range(p, c);
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
    if (std::find(columns.begin(), columns.end(), column) == columns.end()) columns.push_back(column);
    auto& ranks = cells[{row, column}];
    ranks.insert(ranks.end(), p.ranks.begin(), p.ranks.end());
  }
  std::string text = absl::StrFormat("  %-16s", absl::StrCat("axis ", r + 1, " \\ ", c + 1));
  for (const std::string& column : columns) absl::StrAppendFormat(&text, "%-16s", column);
  for (const std::string& row : rows) {
    absl::StrAppendFormat(&text, "\n  %-16s", row);
    for (const std::string& column : columns) {
      std::vector<int> ranks = cells[{row, column}];
      std::sort(ranks.begin(), ranks.end());
      absl::StrAppendFormat(&text, "%-16s", ranks.empty() ? "-" : absl::StrCat("r", absl::StrJoin(ranks, " r")));
    }
  }
  return text + "\n";
}

std::string DrawParts(const std::vector<Part>& parts, const Shape& whole) {
  std::vector<size_t> cut;
  for (size_t d = 0; d < whole.size(); ++d) {
    if (std::any_of(parts.begin(), parts.end(), [&](const Part& p) { return p.size[d] != whole[d]; })) cut.push_back(d);
  }
  if (cut.size() == 2) return Table(parts, cut[0], cut[1]);
  std::string text;
  for (const Part& p : parts) {
    const std::string where = cut.size() == 1 ? absl::StrCat("axis ", cut[0] + 1, " ", Range(p, cut[0])) : RangeOf(p);
    absl::StrAppendFormat(&text, "  %-24s r%s\n", where, absl::StrJoin(p.ranks, " r"));
  }
  return text;
}

std::string Bytes(int64_t n) {
  return n < 1024      ? absl::StrCat(n, " B")
         : n < 1 << 20 ? absl::StrFormat("%.1f KiB", n / 1024.0)
                       : absl::StrFormat("%.1f MiB", n / 1048576.0);
}

}  // namespace

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

Answer DrawLayout(const std::map<int, StatusOr<Answer>>& answers) {
  std::map<int, Json> objects = ReadObjects(answers, {{"name", Field::kText},
                                                      {"dtype", Field::kText},
                                                      {"layout", Field::kText},
                                                      {"bytes", Field::kInteger},
                                                      {"own", Field::kFlag},
                                                      {"whole", Field::kShape},
                                                      {"begin", Field::kShape},
                                                      {"part", Field::kShape}});
  if (objects.empty()) return {};
  const Json first = objects.begin()->second;
  std::vector<int> ranks, silent;
  for (const auto& a : answers) {
    const auto it = objects.find(a.first);
    const bool says = it != objects.end() && IsPartOf(first, it->second);
    (says ? ranks : silent).push_back(a.first);
    if (!says && it != objects.end()) objects.erase(it);
  }
  if (objects.empty()) return {};
  const std::vector<Part> parts = PartsOf(objects);
  const Shape whole = first["whole"];
  const std::string layout = first["layout"].get<std::string>();
  std::string text =
      absl::StrCat(first["name"].get<std::string>(), "  ", first["dtype"].get<std::string>(), "[",
                   absl::StrJoin(whole, ","), "]", layout.empty() ? "" : absl::StrCat("  layout ", layout));
  const std::string each = absl::StrCat(Bytes(first["bytes"].get<int64_t>()), " each");
  const std::string on = absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", RankList(ranks));
  if (first["own"].get<bool>()) {
    absl::StrAppend(&text, "  a value of its own on each of ", on, "  ", each, "\n");
  } else if (parts.size() == 1 && parts[0].size == whole) {
    absl::StrAppend(&text, "  whole on ", on, "  ", each, "\n");
  } else {
    absl::StrAppend(&text, "  ", parts.size(), " parts of [", absl::StrJoin(parts[0].size, ","), "], ", each, ", ",
                    parts[0].ranks.size(), parts[0].ranks.size() == 1 ? " copy\n" : " copies\n",
                    DrawParts(parts, whole));
  }
  if (!silent.empty())
    absl::StrAppend(&text, "  no answer from ", silent.size() == 1 ? "rank " : "ranks ", RankList(silent), "\n");
  return {text, JsonList(objects)};
}

Answer JoinCalls(const std::map<int, StatusOr<Answer>>& answers) {
  const std::map<int, Json> objects = ReadObjects(answers, {{"calls", Field::kList}});
  struct Joined {
    std::map<int, std::pair<std::string, double>> ranks;  // state and seconds
  };
  // By number, size of the group and what it is.
  std::map<std::tuple<int64_t, int, std::string>, Joined> calls;
  std::vector<std::tuple<int64_t, int, std::string>> order;
  for (const auto& [rank, json] : objects) {
    for (const Json& c : json["calls"]) {
      if (!HasFields(c, {{"n", Field::kInteger},
                         {"of", Field::kInteger},
                         {"what", Field::kText},
                         {"state", Field::kText},
                         {"s", Field::kNumber}}))
        continue;
      const std::tuple<int64_t, int, std::string> key{c["n"].get<int64_t>(), c["of"].get<int>(),
                                                      c["what"].get<std::string>()};
      if (calls.count(key) == 0) order.push_back(key);
      calls[key].ranks[rank] = {c["state"].get<std::string>(), c["s"].get<double>()};
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return std::get<0>(a) < std::get<0>(b); });
  std::string text;
  for (const auto& key : order) {
    const Joined& call = calls[key];
    std::map<std::string, std::vector<int>> by_state;
    double longest = 0;
    for (const auto& [rank, state] : call.ranks) {
      by_state[state.first].push_back(rank);
      longest = std::max(longest, state.second);
    }
    std::vector<std::string> states;
    for (const auto& [state, ranks] : by_state) states.push_back(absl::StrCat(state, " on ", RankList(ranks)));
    // Who waits, waits for those that have not come.
    std::vector<int> missing;
    for (const auto& o : objects) {
      if (by_state.count("waiting") > 0 && call.ranks.count(o.first) == 0) missing.push_back(o.first);
    }
    if (!missing.empty() && std::get<1>(key) == static_cast<int>(objects.size()))
      states.push_back(absl::StrCat("not entered by ", RankList(missing)));
    absl::StrAppendFormat(&text, "#%d of %d ranks  %s  %s  (%.3f s at most)\n", std::get<0>(key), std::get<1>(key),
                          std::get<2>(key), absl::StrJoin(states, ", "), longest);
  }
  return {text.empty() ? "no collective call yet\n" : text, JsonList(objects)};
}

}  // namespace mslua::endpoint
