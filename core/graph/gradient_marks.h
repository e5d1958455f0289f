// Which values of a graph are the gradients that updates read. They are marked when the step is traced, and the marks
// follow them through the partition and the passes, so that a running graph can show them (`mslua attach`, .grad).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/graph/graph.h"

namespace mslua {

struct GradientMark {
  std::string parameter;
  int32_t place = 0;    // the output of the node that is the gradient
  bool inside = false;  // `place` is an instruction of a fused node's program instead: no output is the gradient
};

// Those of mark::kUpdateGradients.
std::vector<GradientMark> GradientMarksOf(const Node& node);
// Adds a mark; one that is there already stays alone.
void MarkGradient(const GradientMark& mark, Node* node);
// For a pass that has made `to` of `from`: a node that was made of a marked one has its attributes, and may be another
// value. Its marks go to what `now` says stands for the marked outputs; invalid: nothing does.
void MoveGradientMarks(const Graph& from, Graph* to, const std::function<Value(Value)>& now);
// Gives the output `to_output` of `to` the marks of an output of another node.
void CopyGradientMarks(const Node& from, int32_t from_output, Node* to, int32_t to_output);

}  // namespace mslua
