#include "core/graph/gradient_marks.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/op/marks.h"

namespace mslua {
namespace {

// Drops the marks of outputs.
void KeepMarksInside(Node* node) {
  const std::vector<GradientMark> marks = GradientMarksOf(*node);
  if (marks.empty()) return;
  mark::kUpdateGradients.Erase(node->attrs);
  for (const GradientMark& mark : marks) {
    if (mark.inside) MarkGradient(mark, node);
  }
}

}  // namespace

// A line a mark: "0 fc.weight" for an output, "@5 fc.weight" for an instruction.
std::vector<GradientMark> GradientMarksOf(const Node& node) {
  std::vector<GradientMark> marks;
  const std::string* text = mark::kUpdateGradients.Find(node.attrs);
  if (text == nullptr) return marks;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    GradientMark mark;
    mark.inside = absl::ConsumePrefix(&line, "@");
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    if (!absl::SimpleAtoi(parts.first, &mark.place)) continue;
    mark.parameter = std::string(parts.second);
    marks.push_back(std::move(mark));
  }
  return marks;
}

void MarkGradient(const GradientMark& mark, Node* node) {
  const std::string line = absl::StrCat(mark.inside ? "@" : "", mark.place, " ", mark.parameter);
  const std::string* text = mark::kUpdateGradients.Find(node->attrs);
  if (text == nullptr) {
    mark::kUpdateGradients.Set(node->attrs, line);
    return;
  }
  const std::string& known = *text;
  const std::vector<absl::string_view> lines = absl::StrSplit(known, '\n');
  if (std::find(lines.begin(), lines.end(), line) == lines.end())
    mark::kUpdateGradients.Set(node->attrs, absl::StrCat(known, "\n", line));
}

void MoveGradientMarks(const Graph& from, Graph* to, const std::function<Value(Value)>& now) {
  for (Node& n : to->nodes) KeepMarksInside(&n);
  for (size_t i = 0; i < from.nodes.size(); ++i) {
    for (GradientMark& mark : GradientMarksOf(from.nodes[i])) {
      const Value value = mark.inside ? Value() : now({static_cast<int32_t>(i), mark.place});
      if (!value.valid()) continue;
      mark.place = value.output;
      MarkGradient(mark, &to->nodes[static_cast<size_t>(value.node)]);
    }
  }
}

void CopyGradientMarks(const Node& from, int32_t from_output, Node* to, int32_t to_output) {
  for (GradientMark& mark : GradientMarksOf(from)) {
    if (mark.inside || mark.place != from_output) continue;
    mark.place = to_output;
    MarkGradient(mark, to);
  }
}

}  // namespace mslua
