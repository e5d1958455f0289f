#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "attach/server/agent.h"
#include "attach/server/answer_json.h"
#include "attach/server/answer_text.h"
#include "attach/server/combine.h"
#include "attach/server/commands/define.h"
#include "attach/server/snapshot.h"
#include "core/base/shape.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Params(const Snapshots& rank, const Command& command) {
  const std::string pattern = command.args.empty() ? "" : command.args[0];
  std::string text;
  Json list = Json::array();
  int64_t count = 0, elements = 0;
  for (const Snapshots::Stored& s : rank.stored()) {
    if (!absl::StrContains(s.name, pattern)) continue;
    absl::StrAppendFormat(&text, "%-48s %-20s %-10s %s\n", s.name, mslua::ToString(s.type), s.kind,
                          BytesText(s.type.bytes()));
    list.push_back({{"name", s.name}, {"type", mslua::ToString(s.type)}, {"kind", s.kind}, {"bytes", s.type.bytes()}});
    ++count;
    elements += s.type.elements();
  }
  if (count == 0) return absl::NotFoundError(absl::StrCat("no parameter or state contains '", pattern, "'"));
  absl::StrAppendFormat(&text, "%d tensors, %d elements\n", count, elements);
  return Answer{text, Dump({{"rank", rank.view().rank}, {"tensors", list}})};
}

// One list of what the ranks have. Where they have different ones, as pipeline stages do, each line says on which
// ranks.
Answer JoinLists(const Answers& answers) {
  // What other ranks than 0 say may be truncated (agent.h).
  const auto groups = GroupAnswers(
      answers, [](const StatusOr<Answer>& a) { return a.ok() ? a->text.substr(0, kMostText) : std::string(); });
  std::vector<std::string> lines;
  std::map<std::string, std::vector<int>> ranks_of;
  std::string totals;
  for (const auto& [said, ranks] : groups) {
    if (said.empty()) continue;  // nothing fits there, or no answer
    const std::string& text = answers.at(ranks[0])->text;
    std::vector<std::string> list = absl::StrSplit(text, '\n');
    if (list.back().empty()) list.pop_back();
    const std::string on = absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", RankList(ranks));
    const bool whole = absl::EndsWith(text, "\n");
    absl::StrAppend(&totals,
                    whole ? absl::StrCat(list.back(), " on ", on)
                          : absl::StrCat("the list of ", on, " is truncated: @", ranks[0], " .params PATTERN"),
                    "\n");
    list.pop_back();
    for (const std::string& line : list) {
      std::vector<int>& at = ranks_of[line];
      if (at.empty()) lines.push_back(line);
      at.insert(at.end(), ranks.begin(), ranks.end());
    }
  }
  Answer joined;
  if (groups.size() == 1) {
    joined = *answers.begin()->second;
  } else {
    for (const std::string& line : lines) {
      std::vector<int>& ranks = ranks_of[line];
      std::sort(ranks.begin(), ranks.end());
      absl::StrAppend(&joined.text, line, "  on ", RankList(ranks), "\n");
    }
    absl::StrAppend(&joined.text, totals);
    joined.json = JsonOfRanks(answers);
  }
  for (const auto& [rank, answer] : answers) {
    if (absl::IsDeadlineExceeded(answer.status())) absl::StrAppend(&joined.text, "rank ", rank, " does not answer\n");
  }
  return joined;
}

}  // namespace

MSLUA_COMMAND(params) {
  CommandDef def("params", "[PATTERN]", "parameters and state of all ranks: type, size", 0, 1);
  def.place = 20;
  def.each_rank = true;
  def.at_once = Params;
  def.combine = [](const Command&, const Answers& answers, absl::Duration) -> StatusOr<Answer> {
    return answers.size() == 1 ? *answers.begin()->second : JoinLists(answers);
  };
  return def;
}

}  // namespace mslua::endpoint
