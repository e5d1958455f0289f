#include "core/passes/decisions.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace mslua {
namespace {

constexpr char kIs[] = " = ";
// What is usual goes unless another way is faster by more than measuring is uncertain.
constexpr double kWorthwhile = 0.97;

}  // namespace

int Decisions::Choose(const std::string& question, absl::Span<const Way> ways, int usual) {
  const auto known = answers_.find(question);
  if (known != answers_.end()) {
    for (size_t i = 0; i < ways.size(); ++i) {
      if (known->second == ways[i].name) return static_cast<int>(i);
    }
  }
  int best = usual;
  if (stopwatch_) {
    const auto seconds = [&](int way) -> StatusOr<double> {
      ASSIGN_OR_RETURN(const Graph graph, ways[way].graph());
      return stopwatch_(graph);
    };
    const auto least = seconds(usual);
    double bound = least.ok() ? *least * kWorthwhile : 0;
    for (int i = 0; i < static_cast<int>(ways.size()) && least.ok(); ++i) {
      if (i == usual) continue;
      const auto other = seconds(i);
      if (!other.ok() || *other >= bound) continue;
      best = i;
      bound = *other;
    }
    ++measured_;
  }
  answers_[question] = ways[best].name;
  return best;
}

std::string Decisions::Find(const std::string& question) const {
  const auto known = answers_.find(question);
  return known == answers_.end() ? "" : known->second;
}

std::string Decisions::ToText() const {
  std::string text;
  for (const auto& [question, way] : answers_) absl::StrAppend(&text, question, kIs, way, "\n");
  return text;
}

Status Decisions::Take(absl::string_view text) {
  std::map<std::string, std::string> answers;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const size_t at = line.rfind(kIs);
    if (at == line.npos || at == 0 || at + sizeof kIs - 1 == line.size())
      return absl::DataLossError(absl::StrCat("expected 'QUESTION = WAY', found '", line, "'"));
    answers.emplace(line.substr(0, at), line.substr(at + sizeof kIs - 1));
  }
  for (auto& [question, way] : answers) answers_[question] = std::move(way);
  return absl::OkStatus();
}

}  // namespace mslua
