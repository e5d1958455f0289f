#include "attach/server/combine.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "attach/server/answer_json.h"
#include "attach/server/answer_text.h"

namespace mslua::endpoint {
std::vector<std::pair<std::string, std::vector<int>>> GroupAnswers(
    const Answers& answers, absl::FunctionRef<std::string(const StatusOr<Answer>&)> what) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const auto& [rank, answer] : answers) {
    const std::string said = what(answer);
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == said; });
    if (same == groups.end())
      groups.push_back({said, {rank}});
    else
      same->second.push_back(rank);
  }
  return groups;
}

Answers SpeakingOf(const Answers& answers) {
  Answers speaking;
  for (const auto& a : answers) {
    if (!a.second->text.empty()) speaking.insert(a);
  }
  return speaking;
}

Answer ListRanks(const Command& command, const Answers& answers) {
  std::string text;
  for (const auto& [rank, answer] : answers) {
    if (!answer.ok())
      absl::StrAppend(&text, "rank ", rank, ": ", answer.status().message(), "\n");
    else
      absl::StrAppend(&text, command.def->names_rank ? "" : absl::StrCat("rank ", rank, "\n"),
                      WithLineEnd(answer->text));
  }
  return {text, JsonOfRanks(answers)};
}

Answer DoneTogether(const Command& command, const Answers& answers, absl::Duration took) {
  const Answers speaking = SpeakingOf(answers);
  if (speaking.empty()) return {};
  const auto groups = GroupAnswers(speaking, [](const StatusOr<Answer>& a) { return a->text; });
  const Answer& first = *speaking.begin()->second;
  if (groups.size() > 1) {
    std::string text;
    for (const auto& [said, ranks] : groups) absl::StrAppend(&text, "[", RankList(ranks), "] ", WithLineEnd(said));
    return {text, JsonOfRanks(speaking)};
  }
  if (!command.def->writes || speaking.size() < answers.size()) return first;
  const size_t n = answers.size();
  const std::string on = absl::StrFormat(" on %d/%d ranks (%.2f s)", n, n, absl::ToDoubleSeconds(took));
  return {absl::StrCat(absl::StripSuffix(first.text, "\n"), on), first.json};
}

StatusOr<Answer> Combine(const Command& command, const Answers& answers, absl::Duration took) {
  std::vector<std::string> wrong;
  const auto errors =
      GroupAnswers(answers, [](const StatusOr<Answer>& a) { return std::string(a.status().message()); });
  for (const auto& [said, ranks] : errors) {
    if (!said.empty())
      wrong.push_back(absl::StrCat(said, errors.size() > 1 ? absl::StrCat(" (ranks ", RankList(ranks), ")") : ""));
  }
  const bool all_wrong = errors.size() == wrong.size();
  if (answers.size() == 1 && all_wrong) return answers.begin()->second;
  if (all_wrong || (!wrong.empty() && !command.def->snapshot()))
    return absl::FailedPreconditionError(absl::StrJoin(wrong, "; "));
  if (command.def->combine != nullptr) return command.def->combine(command, answers, took);
  if (answers.size() == 1) return answers.begin()->second;
  return command.def->snapshot() ? ListRanks(command, answers) : DoneTogether(command, answers, took);
}

StatusOr<Answer> CombineLua(const Answers& answers) {
  std::string text;
  bool well = true;
  const auto groups = GroupAnswers(answers, [](const StatusOr<Answer>& a) {
    return a.ok() ? absl::StrCat("+", a->text) : std::string(a.status().message());
  });
  for (const auto& [said, ranks] : groups) {
    const bool ok = absl::StartsWith(said, "+");
    well = well && ok;
    absl::StrAppend(&text, "[", RankList(ranks), "] ", WithLineEnd(ok ? said.substr(1) : said));
  }
  if (!well) return absl::InvalidArgumentError(absl::StripSuffix(text, "\n"));
  return Answer{text, ""};
}

}  // namespace mslua::endpoint
