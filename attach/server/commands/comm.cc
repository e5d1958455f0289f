#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "attach/server/answer_json.h"
#include "attach/server/answer_text.h"
#include "attach/server/commands/define.h"
#include "attach/server/snapshot.h"
#include "collectives/flight_recorder.h"

namespace mslua::endpoint {
namespace {

// The last calls of this rank's flight recorder.
StatusOr<Answer> Calls(const Snapshots& rank, const Command& command) {
  const TrainingView& view = rank.view();
  ASSIGN_OR_RETURN(const int64_t most, CountOf(command, 10));
  if (!view.calls) return absl::FailedPreconditionError("the job has one rank and calls no collectives");
  std::string text;
  Json list = Json::array();
  for (const RecordedCall& c : view.calls(static_cast<int>(std::min<int64_t>(most, 60)))) {
    absl::StrAppendFormat(&text, "#%d of %d ranks  %s  %s %.3f s\n", c.sequence, c.group_size, c.what, c.state,
                          c.seconds);
    list.push_back({{"n", c.sequence}, {"of", c.group_size}, {"what", c.what}, {"state", c.state}, {"s", c.seconds}});
  }
  return Answer{text.empty() ? "no collective call yet\n" : text, Dump({{"rank", view.rank}, {"calls", list}})};
}

// One line a collective, with who has done it, waits in it, or has not come.
Answer JoinCalls(const Answers& answers) {
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
  return {text.empty() ? "no collective call yet\n" : text, JsonOfRanks(objects)};
}

}  // namespace

MSLUA_COMMAND(comm) {
  CommandDef def("comm", "[N]", "the last N collective calls of each rank, joined (default 10)", 0, 1);
  def.place = 50;
  def.each_rank = true;
  def.at_once = Calls;
  def.combine = [](const Command&, const Answers& answers, absl::Duration) -> StatusOr<Answer> {
    return answers.size() == 1 ? *answers.begin()->second : JoinCalls(answers);
  };
  return def;
}

}  // namespace mslua::endpoint
