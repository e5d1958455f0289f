#include "core/sharding/testing/parse_layout.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace mslua {

StatusOr<Layout> ParseLayout(absl::string_view text) {
  const auto bad = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("layout '", text, "': ", what));
  };
  absl::string_view rest = text;
  const size_t close = rest.find(']');
  if (!absl::ConsumePrefix(&rest, "[") || close == text.npos) return bad("expected '[...]'");
  const absl::string_view inner = text.substr(1, close - 1);
  rest = text.substr(close + 1);
  std::vector<absl::string_view> dims;
  if (!inner.empty()) dims = absl::StrSplit(inner, ", ");
  if (dims.size() > static_cast<size_t>(kMaxRank)) return bad("too many dimensions");
  Layout layout(static_cast<int>(dims.size()));
  const auto axis_of = [&](char c) -> StatusOr<int> {
    const int axis = c - 'a';
    if (axis < 0 || axis >= Mesh::kMaxAxes) return bad(absl::StrCat("no axis '", absl::string_view(&c, 1), "'"));
    if (layout.UseOf(axis) != Layout::Use::kReplicated)
      return bad(absl::StrCat("axis ", absl::string_view(&c, 1), " is used twice"));
    return axis;
  };
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == "-") continue;
    for (char c : dims[d]) {
      ASSIGN_OR_RETURN(const int axis, axis_of(c));
      layout.Append(static_cast<int>(d), axis);
    }
  }
  if (rest.empty()) return layout;
  for (Reduction r : {Reduction::kSum, Reduction::kMax, Reduction::kMin, Reduction::kProd}) {
    absl::string_view axes = rest;
    if (!absl::ConsumePrefix(&axes, absl::StrCat(" ", Name(r), "(")) || !absl::ConsumeSuffix(&axes, ")")) continue;
    for (char c : axes) {
      ASSIGN_OR_RETURN(const int axis, axis_of(c));
      layout.SetPartial(axis, r);
    }
    return layout;
  }
  return bad("expected a reduction such as ' sum(ab)' after the dimensions");
}

}  // namespace mslua
