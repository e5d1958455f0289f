#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "attach/server/answer_json.h"
#include "attach/server/answer_text.h"
#include "attach/server/commands/define.h"
#include "attach/server/snapshot.h"
#include "attach/server/watch.h"
#include "core/base/dtype.h"
#include "core/base/shape.h"

namespace mslua::endpoint {
namespace {

// A part, and the ranks that have it.
struct Held : Part {
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

Part PartOf(const Json& json) {
  return {json["whole"].get<Shape>(), json["begin"].get<Shape>(), json["part"].get<Shape>()};
}

// Whether `json` says which part of the same tensor as `first` it holds.
bool IsPartOf(const Json& first, const Json& json) {
  return json["name"] == first["name"] && json["whole"] == first["whole"] && PartOf(json).valid();
}

std::vector<Held> PartsOf(const std::map<int, Json>& objects) {
  std::vector<Held> parts;
  for (const auto& [rank, json] : objects) {
    const Part mine = PartOf(json);
    const auto same = std::find_if(parts.begin(), parts.end(), [&](const Held& h) { return h == mine; });
    if (same == parts.end())
      parts.push_back({mine, {rank}});
    else
      same->ranks.push_back(rank);
  }
  return parts;
}

// Rows and columns are the ranges along dimensions `r` and `c`, the cells the ranks that hold them.
std::string Table(const std::vector<Held>& parts, size_t r, size_t c) {
  std::vector<std::string> rows, columns;
  std::map<std::pair<std::string, std::string>, std::vector<int>> cells;
  for (const Held& p : parts) {
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

std::string DrawParts(const std::vector<Held>& parts, const Shape& whole) {
  std::vector<size_t> sharded;
  for (size_t d = 0; d < whole.size(); ++d) {
    if (std::any_of(parts.begin(), parts.end(), [&](const Part& p) { return p.size[d] != whole[d]; }))
      sharded.push_back(d);
  }
  if (sharded.size() == 2) return Table(parts, sharded[0], sharded[1]);
  std::string text;
  for (const Held& p : parts) {
    const std::string where =
        sharded.size() == 1 ? absl::StrCat("axis ", sharded[0] + 1, " ", Range(p, sharded[0])) : RangeOf(p);
    absl::StrAppendFormat(&text, "  %-24s r%s\n", where, absl::StrJoin(p.ranks, " r"));
  }
  return text;
}

// The name that fits the one asked for best, on any rank.
StatusOr<std::string> NameOnRanks(const std::string& asked, const std::map<int, Json>& objects,
                                  const Answers& answers) {
  std::vector<std::string> names;
  for (const auto& o : objects) names.push_back(o.second["name"].get<std::string>());
  ASSIGN_OR_RETURN(const Watched::Fit fit, Watched::FitOf(asked, names));
  for (const auto& a : answers) {
    if (fit.grade > 0 && absl::IsInvalidArgument(a.second.status())) return a.second.status();  // several there
  }
  return fit.name;
}

// Which rank holds which part, as a table of the parts along the one or two dimensions that are sharded first, the rest
// as a list. Elements count from 1.
StatusOr<Answer> DrawLayout(const std::string& asked, const Answers& answers) {
  std::map<int, Json> objects = ReadObjects(answers, {{"name", Field::kText},
                                                      {"dtype", Field::kText},
                                                      {"layout", Field::kText},
                                                      {"bytes", Field::kInteger},
                                                      {"own", Field::kFlag},
                                                      {"whole", Field::kShape},
                                                      {"begin", Field::kShape},
                                                      {"part", Field::kShape}});
  if (objects.empty()) return Answer();
  ASSIGN_OR_RETURN(const std::string name, NameOnRanks(asked, objects, answers));
  const Json first =
      std::find_if(objects.begin(), objects.end(), [&](const auto& o) { return o.second["name"] == name; })->second;
  std::vector<int> ranks, silent, without;
  for (const auto& a : answers) {
    const auto it = objects.find(a.first);
    const bool other = it != objects.end() && it->second["name"] != name;
    if (other || (!a.second.ok() && !absl::IsDeadlineExceeded(a.second.status()))) {
      without.push_back(a.first);
      if (other) objects.erase(it);
      continue;
    }
    const bool says = it != objects.end() && IsPartOf(first, it->second);
    (says ? ranks : silent).push_back(a.first);
    if (!says && it != objects.end()) objects.erase(it);
  }
  if (objects.empty()) return Answer();
  const std::vector<Held> parts = PartsOf(objects);
  const Shape whole = first["whole"];
  const std::string layout = first["layout"].get<std::string>();
  std::string text = absl::StrCat(name, "  ", first["dtype"].get<std::string>(), "[", absl::StrJoin(whole, ","), "]",
                                  layout.empty() ? "" : absl::StrCat("  layout ", layout));
  const std::string each = absl::StrCat(BytesText(first["bytes"].get<int64_t>()), " each");
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
  if (!without.empty())
    absl::StrAppend(&text, "  not on ", without.size() == 1 ? "rank " : "ranks ", RankList(without), "\n");
  if (!silent.empty())
    absl::StrAppend(&text, "  no answer from ", silent.size() == 1 ? "rank " : "ranks ", RankList(silent), "\n");
  return Answer{text, JsonOfRanks(objects)};
}

// This rank's part.
StatusOr<Answer> Layout(const Snapshots& rank, const Command& command) {
  std::vector<std::string> names;
  for (const Snapshots::Stored& s : rank.stored()) names.push_back(s.name);
  ASSIGN_OR_RETURN(const Watched::Fit fit, Watched::FitOf(command.args[0], names));
  for (const Snapshots::Stored& s : rank.stored()) {
    if (s.name != fit.name) continue;
    const Part part = s.place.part.whole.empty() ? Part::Of(s.type.shape) : s.place.part;
    const Json json = {{"rank", rank.view().rank}, {"name", s.name},      {"dtype", Name(s.type.dtype)},
                       {"whole", part.whole},      {"begin", part.begin}, {"part", part.size},
                       {"bytes", s.type.bytes()},  {"own", s.place.own},  {"layout", s.place.layout}};
    return Answer{absl::StrFormat("%s  %s\n", s.name, mslua::ToString(s.type)), Dump(json)};
  }
  return absl::InternalError(absl::StrCat("'", fit.name, "' has left"));
}

}  // namespace

MSLUA_COMMAND(layout) {
  CommandDef def("layout", "P", "which rank holds which part of a parameter", 1, 1);
  def.place = 30;
  def.each_rank = true;
  def.at_once = Layout;
  def.combine = [](const Command& command, const Answers& answers, absl::Duration) {
    return DrawLayout(command.args[0], answers);
  };
  return def;
}

}  // namespace mslua::endpoint
