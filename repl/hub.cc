#include "repl/hub.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace mslua::repl {
namespace {

// A rank's thread answers at once, or its process is stopped.
constexpr absl::Duration kAnswerLimit = absl::Seconds(2);

bool OfEveryRank(absl::string_view line) {
  for (const char* command : {".ranks", ".diag", ".stack", ".mem", ".comm", ".rw", ".ro"}) {
    if (line == command) return true;
  }
  return absl::StartsWith(line, "@");
}

}  // namespace

StatusOr<std::unique_ptr<Hub>> Hub::Attach(const endpoint::Job& job, absl::Duration limit) {
  std::unique_ptr<Hub> hub(new Hub);
  ASSIGN_OR_RETURN(auto first, Connection::Attach(job, 0, limit));
  hub->ranks_.push_back(std::move(first));
  for (int r = 1; r < job.ranks; ++r) {
    auto rank = Connection::Attach(job, r, absl::Milliseconds(300));
    hub->ranks_.push_back(rank.ok() ? *std::move(rank) : nullptr);
  }
  return hub;
}

void Hub::OnEvent(const std::function<void(const std::string&)>& f) {
  for (const auto& rank : ranks_) {
    if (rank != nullptr) rank->on_event = f;
  }
}

StatusOr<std::string> Hub::Call(absl::string_view line, bool json) {
  if (ranks_.size() == 1 || !OfEveryRank(line)) return first().Call(line, json);
  return CallAll(line, json);
}

StatusOr<std::string> Hub::CallAll(absl::string_view line, bool json) {
  const bool diagnosis = line == ".diag", lock = line == ".rw" || line == ".ro";
  std::string text;
  std::vector<std::string> objects, diagnoses;
  Status first_error;
  int answered = 0;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    auto answer = ranks_[r] == nullptr ? absl::DeadlineExceededError("does not answer")
                                       : ranks_[r]->Call(line, json || diagnosis, kAnswerLimit);
    if (diagnosis) diagnoses.push_back(answer.ok() ? *answer : "");
    if (diagnosis && !json && answer.ok()) answer = ranks_[r]->Call(line, false, kAnswerLimit);
    // A rank that "@..." does not mean.
    if (absl::IsUnimplemented(answer.status())) continue;
    if (answer.ok()) {
      ++answered;
      const bool heading = line == ".ranks" && !json && answered > 1;
      if (!lock || answered == 1) absl::StrAppend(&text, heading ? answer->substr(answer->find('\n') + 1) : *answer);
      if (!text.empty() && text.back() != '\n') text += '\n';
      objects.push_back(*answer);
      continue;
    }
    if (first_error.ok()) first_error = answer.status();
    absl::StrAppend(&text, "rank ", r, ": ", answer.status().message(), "\n");
    objects.push_back(absl::StrCat("{\"rank\":", r, ",\"error\":true}"));
  }
  if (answered == 0 && !first_error.ok()) return first_error;
  if (json && !lock && !objects.empty() && absl::StartsWith(objects[0], "{"))
    return absl::StrCat("{\"ranks\":[", absl::StrJoin(objects, ","), "]}");
  return absl::StrCat(text, WhoIsWaitedFor(diagnoses));
}

std::string WhoIsWaitedFor(const std::vector<std::string>& diagnoses) {
  std::vector<std::string> waiting, late;
  for (size_t r = 0; r < diagnoses.size(); ++r) {
    const auto json = nlohmann::json::parse(diagnoses[r], nullptr, false);
    if (!json.is_object() || !json.contains("phase") || !json.contains("seconds") || !json.contains("lua")) {
      late.push_back(absl::StrCat("rank ", r, ", which does not answer"));
    } else if (json["phase"] == "compute") {
      waiting.push_back(absl::StrCat(r));
    } else {
      const std::string lua = json["lua"].get<std::string>();
      late.push_back(absl::StrFormat("rank %d, in its %s for %.1f s%s%s", r, json["phase"].get<std::string>(),
                                     json["seconds"].get<double>(), lua.empty() ? "" : ", at ", lua));
    }
  }
  if (waiting.empty() || late.empty()) return "";
  return absl::StrCat(waiting.size() == 1 ? "rank " : "ranks ", absl::StrJoin(waiting, ","),
                      waiting.size() == 1 ? " waits" : " wait", " for ", absl::StrJoin(late, "; "), "\n");
}

}  // namespace mslua::repl
