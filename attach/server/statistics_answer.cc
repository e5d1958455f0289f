#include "attach/server/statistics_answer.h"

#include "absl/strings/str_cat.h"
#include "attach/server/answer_json.h"
#include "attach/server/answer_text.h"
#include "attach/server/combine.h"
#include "attach/server/statistics.h"
#include "core/base/dtype.h"

namespace mslua::endpoint {

StatusOr<Answer> DescribeStatistics(const Shown& shown) {
  if (!shown.request.ranks.empty() && !shown.request.reports) return Answer();
  const Statistics s = StatisticsOf(shown.value);
  const std::string type = ToString(shown.value.type);
  return Answer{absl::StrCat(shown.named.name, " ", type, "  ", ToString(s)),
                absl::StrCat("{\"rank\":", shown.view.rank, ",\"name\":", Dump(shown.named.name),
                             ",\"type\":", Dump(type), ",\"step\":", shown.step, ",\"stat\":", ToJson(s), "}")};
}

StatusOr<Answer> CombineStatistics(const Command&, const Answers& all, absl::Duration) {
  const Answers answers = SpeakingOf(all);
  if (answers.empty()) return Answer();
  if (answers.size() == 1) return answers.begin()->second;
  const auto crc = [](const StatusOr<Answer>& answer) -> std::string {
    const auto json = ReadObject(answer->json, {{"type", Field::kText}, {"stat", Field::kObject}});
    return json && HasFields((*json)["stat"], {{"crc", Field::kText}})
               ? absl::StrCat((*json)["type"].get<std::string>(), " ", (*json)["stat"]["crc"].get<std::string>())
               : answer->text;
  };
  const auto groups = GroupAnswers(answers, crc);
  if (groups.size() == 1) {
    const auto& [said, ranks] = groups[0];
    const Answer& first = *answers.begin()->second;
    if (said == first.text) return first;  // no statistics: they come after a step, say
    const size_t blank = said.rfind(' ');
    return Answer{absl::StrCat(first.text, "  identical on ranks ", RankList(ranks), " (crc ",
                               blank == std::string::npos ? "" : said.substr(blank + 1), ")"),
                  first.json};
  }
  std::string text;
  for (const auto& [said, ranks] : groups)
    absl::StrAppend(&text, "[", RankList(ranks), "] ", WithLineEnd(answers.at(ranks[0])->text));
  return Answer{text, JsonOfRanks(answers)};
}

}  // namespace mslua::endpoint
