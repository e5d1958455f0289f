#include "attach/server/combine.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "attach/server/answer_json.h"
#include "attach/server/joined.h"

namespace mslua::endpoint {
namespace {

std::string WithLineEnd(const std::string& text) {
  return text.empty() || text.back() == '\n' ? text : absl::StrCat(text, "\n");
}

// Ranks by what they say, in the order of their first rank.
template <typename F>
std::vector<std::pair<std::string, std::vector<int>>> Grouped(const std::map<int, StatusOr<Answer>>& answers,
                                                              const F& what) {
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

std::string JsonOf(const std::map<int, StatusOr<Answer>>& answers) {
  std::vector<std::string> objects;
  for (const auto& [rank, answer] : answers) {
    if (answer.ok() && ReadObject(answer->json, {}))
      objects.push_back(answer->json);
    else if (!answer.ok())
      objects.push_back(absl::StrCat("{\"rank\":", rank, ",\"error\":true}"));
  }
  return objects.empty() ? "" : absl::StrCat("{\"ranks\":[", absl::StrJoin(objects, ","), "]}");
}

// Snapshots of each rank: one below the other.
Answer Listed(const Command& command, const std::map<int, StatusOr<Answer>>& answers) {
  std::string text;
  std::map<int, std::string> diagnoses;
  bool heading = true;
  for (const auto& [rank, answer] : answers) {
    diagnoses[rank] = answer.ok() ? answer->json : "";
    if (!answer.ok()) {
      absl::StrAppend(&text, "rank ", rank, ": ", answer.status().message(), "\n");
      continue;
    }
    std::string lines = answer->text;
    if (command.def->name == "ranks" && !heading) lines = lines.substr(lines.find('\n') + 1);
    heading = false;
    const bool named = command.def->name == "ranks" || command.def->name == "diag" || command.def->name == "stack";
    absl::StrAppend(&text, named ? "" : absl::StrCat("rank ", rank, "\n"), WithLineEnd(lines));
  }
  if (command.def->name == "diag") text += WhoIsWaitedFor(diagnoses);
  return {text, JsonOf(answers)};
}

// The statistics of a tensor that all ranks have: identical, or of each.
Answer Statistics(const std::map<int, StatusOr<Answer>>& answers) {
  const auto crc = [](const StatusOr<Answer>& answer) -> std::string {
    const auto json = ReadObject(answer->json, {{"type", Field::kText}, {"stat", Field::kObject}});
    return json && HasFields((*json)["stat"], {{"crc", Field::kText}})
               ? absl::StrCat((*json)["type"].get<std::string>(), " ", (*json)["stat"]["crc"].get<std::string>())
               : answer->text;
  };
  const auto groups = Grouped(answers, crc);
  if (groups.size() == 1) {
    const auto& [said, ranks] = groups[0];
    const Answer& first = *answers.begin()->second;
    if (said == first.text) return first;  // no statistics: they come after a step, say
    const size_t blank = said.rfind(' ');
    return {absl::StrCat(first.text, "  identical on ranks ", RankList(ranks), " (crc ",
                         blank == std::string::npos ? "" : said.substr(blank + 1), ")"),
            first.json};
  }
  std::string text;
  for (const auto& [said, ranks] : groups)
    absl::StrAppend(&text, "[", RankList(ranks), "] ", WithLineEnd(answers.at(ranks[0])->text));
  return {text, JsonOf(answers)};
}

// What all ranks have done together.
Answer Together(const Command& command, const std::map<int, StatusOr<Answer>>& answers, absl::Duration took) {
  std::map<int, StatusOr<Answer>> speaking;
  for (const auto& a : answers) {
    if (!a.second->text.empty()) speaking.insert(a);
  }
  if (speaking.empty()) return {};
  const auto groups = Grouped(speaking, [](const StatusOr<Answer>& a) { return a->text; });
  const Answer& first = *speaking.begin()->second;
  if (groups.size() > 1) {
    std::string text;
    for (const auto& [said, ranks] : groups) absl::StrAppend(&text, "[", RankList(ranks), "] ", WithLineEnd(said));
    return {text, JsonOf(speaking)};
  }
  if (!command.def->writes || speaking.size() < answers.size()) return first;
  const size_t n = answers.size();
  const std::string on = absl::StrFormat(" on %d/%d ranks (%.2f s)", n, n, absl::ToDoubleSeconds(took));
  return {absl::StrCat(absl::StripSuffix(first.text, "\n"), on), first.json};
}

}  // namespace

StatusOr<Answer> Combine(const Command& command, const std::map<int, StatusOr<Answer>>& answers, absl::Duration took) {
  const bool pause = command.def->name == "pause";
  if (command.def->name == "layout" && answers.begin()->second.ok()) return DrawLayout(answers);
  if (answers.size() == 1) {
    const auto& only = answers.begin()->second;
    if (pause && only.ok()) return Answer{absl::StrCat(only->text, " on 1/1 ranks"), only->json};
    return only;
  }
  std::vector<std::string> wrong;
  const auto errors = Grouped(answers, [](const StatusOr<Answer>& a) { return std::string(a.status().message()); });
  for (const auto& [said, ranks] : errors) {
    if (!said.empty())
      wrong.push_back(absl::StrCat(said, errors.size() > 1 ? absl::StrCat(" (ranks ", RankList(ranks), ")") : ""));
  }
  const bool all_wrong = errors.size() == wrong.size();
  if (all_wrong || (!wrong.empty() && !command.def->snapshot()))
    return absl::FailedPreconditionError(absl::StrJoin(wrong, "; "));
  if (command.def->name == "comm") return JoinCalls(answers);
  if (command.def->snapshot()) return Listed(command, answers);
  if (command.def->name == "stat" || command.def->name == "grad") return Statistics(answers);
  return Together(command, answers, took);
}

StatusOr<Answer> CombineLua(const std::map<int, StatusOr<Answer>>& answers) {
  std::string text;
  bool well = true;
  const auto groups = Grouped(answers, [](const StatusOr<Answer>& a) {
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

std::string WhoIsWaitedFor(const std::map<int, std::string>& diagnoses) {
  std::vector<int> waiting;
  std::vector<std::string> late;
  std::string collective;
  for (const auto& [rank, diagnosis] : diagnoses) {
    auto json = ReadObject(
        diagnosis,
        {{"phase", Field::kText}, {"seconds", Field::kNumber}, {"lua", Field::kText}, {"collective", Field::kText}});
    if (!json) {
      late.push_back(absl::StrCat("rank ", rank, ", which does not answer"));
      continue;
    }
    const std::string phase = (*json)["phase"], lua = (*json)["lua"], entered = (*json)["collective"];
    if (phase == "compute" || !entered.empty()) {
      waiting.push_back(rank);
      if (collective.empty()) collective = entered;
    } else {
      late.push_back(absl::StrFormat("rank %d, in its %s for %.1f s%s%s", rank, phase, (*json)["seconds"].get<double>(),
                                     lua.empty() ? "" : ", at ", lua));
    }
  }
  if (waiting.empty() || late.empty()) return "";
  return absl::StrCat(waiting.size() == 1 ? "rank " : "ranks ", RankList(waiting),
                      waiting.size() == 1 ? " waits" : " wait", " for ", absl::StrJoin(late, "; "),
                      collective.empty() ? "" : absl::StrCat(", in ", collective), "\n");
}

}  // namespace mslua::endpoint
