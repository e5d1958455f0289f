#include "core/op/marks.h"

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

struct MarkDef {
  const char* name;
  bool (*fits)(const AttrValue&);
};

template <class T>
MarkDef Of(Mark<T> mark) {
  return {mark.name, [](const AttrValue& v) { return std::holds_alternative<T>(v); }};
}

}  // namespace

std::string MarkProblem(absl::string_view name, const AttrValue& value) {
  static const MarkDef kMarks[] = {
      Of(mark::kRng),          Of(mark::kBegin),       Of(mark::kGlobal),     Of(mark::kFirstRow),
      Of(mark::kRows),         Of(mark::kMembers),     Of(mark::kOrigin),     Of(mark::kSum),
      Of(mark::kMicroSum),     Of(mark::kMicroBatch),  Of(mark::kGradientOf), Of(mark::kUpdateGradients),
      Of(mark::kUserStrategy), Of(mark::kOutStrategy), Of(mark::kOwnBatch),   Of(mark::kCrossBatch),
      Of(mark::kInStrategy),   Of(mark::kBoundary),    Of(mark::kPeer),       Of(mark::kColumn),
      Of(mark::kTag),          Of(mark::kCalls),       Of(mark::kBegins),     Of(mark::kRowsFirst)};
  bool known = false;
  for (const MarkDef& def : kMarks) {
    if (name != def.name) continue;
    if (def.fits(value)) return "";
    known = true;
  }
  return known ? absl::StrCat("attribute '", name, "' is ", AttrText(value), ", of another type than that mark")
               : absl::StrCat("unknown attribute '", name, "'");
}

}  // namespace mslua
