#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "attach/server/answer_json.h"
#include "attach/server/commands/define.h"
#include "attach/server/steering.h"
#include "core/base/dtype.h"
#include "core/base/folder.h"
#include "core/checkpoint/safetensors.h"

namespace mslua::endpoint {
namespace {

constexpr int64_t kPrintedElements = 1000;
constexpr char kFolder[] = "dumps";  // in the run folder (train/run_folder.h)

// An element, with enough digits to read the same number back.
std::string NumberText(const TensorView& tensor, int64_t i) {
  switch (tensor.type.dtype) {
    case DType::kI32:
      return absl::StrCat(tensor.as<int32_t>()[i]);
    case DType::kI64:
      return absl::StrCat(tensor.as<int64_t>()[i]);
    default:
      break;
  }
  const double v = LoadAsDouble(tensor.type.dtype, tensor.data, i);
  if (std::isnan(v)) return "nan";
  return tensor.type.dtype == DType::kF64 ? absl::StrFormat("%.17g", v) : absl::StrFormat("%.9g", v);
}

std::string NumberJson(const TensorView& tensor, int64_t i) {
  const bool finite = std::isfinite(LoadAsDouble(tensor.type.dtype, tensor.data, i));
  return finite ? NumberText(tensor, i) : "null";
}

template <class F>
std::string Joined(const TensorView& tensor, const F& text_of) {
  std::string text;
  for (int64_t i = 0; i < tensor.type.elements(); ++i) absl::StrAppend(&text, i > 0 ? "," : "", text_of(tensor, i));
  return text;
}

// Of JSON: which rank's value it is, where others may have another, and which part of the whole.
std::string WhoseJson(const Shown& shown) {
  if (WhoseText(shown.view, shown.named).empty()) return "";
  std::string text = absl::StrCat("\"rank\":", shown.view.rank, ",");
  if (const auto part = PartOf(shown.view, shown.named)) {
    absl::StrAppend(&text, "\"whole\":[", absl::StrJoin(part->whole, ","), "],\"begin\":[",
                    absl::StrJoin(part->begin, ","), "],");
  }
  return text;
}

// The file of a dump: a relative path is in the folder of dumps, and stays there. Each rank that is asked writes its
// own.
StatusOr<std::string> FileOf(const TrainingView& view, const std::string& given) {
  constexpr char kEnding[] = ".safetensors";
  if (!absl::EndsWith(given, kEnding))
    return absl::InvalidArgumentError(absl::StrCat(".dump: expected FILE.safetensors, got '", given, "'"));
  for (const absl::string_view part : absl::StrSplit(given, '/')) {
    if (part == "..")
      return absl::InvalidArgumentError(
          absl::StrCat(".dump: expected a file in dumps/ of the run folder, or a path from /, got '", given, "'"));
  }
  std::string path = given;
  if (view.rank > 0) path = absl::StrCat(absl::StripSuffix(path, kEnding), ".rank_", view.rank, kEnding);
  if (path[0] == '/' || view.folder.empty()) return path;
  const std::string folder = absl::StrCat(view.folder, "/", kFolder);
  RETURN_IF_ERROR(MakeFolders(folder));
  return absl::StrCat(folder, "/", path);
}

// Of a rank that is asked.
StatusOr<Answer> Describe(const Shown& shown) {
  if (!shown.request.reports) return Answer();
  const std::string& name = shown.named.name;
  const TensorType& type = shown.value.type;
  const std::string head = absl::StrCat(name, " ", ToString(type), WhoseText(shown.view, shown.named));
  if (shown.request.command.args.size() == 1) {
    if (type.elements() > kPrintedElements)
      return absl::InvalidArgumentError(absl::StrCat(head, " is long: .dump ", name, " FILE.safetensors"));
    return Answer{
        absl::StrCat(head, "\n", Joined(shown.value, NumberText)),
        absl::StrCat("{\"name\":", Dump(name), ",", WhoseJson(shown), "\"shape\":[", absl::StrJoin(type.shape, ","),
                     "],\"values\":[", Joined(shown.value, NumberJson), "]}")};
  }
  ASSIGN_OR_RETURN(const std::string path, FileOf(shown.view, shown.request.command.args[1]));
  const auto part = PartOf(shown.view, shown.named);
  const std::string tensor = absl::StrCat(name, part ? RangesOf(*part) : "");
  RETURN_IF_ERROR(checkpoint::WriteSafetensors(path, {{tensor, type, shown.value.data}}).status());
  return Answer{absl::StrCat(head, " of step ", shown.step, " -> ", path),
                absl::StrCat("{", WhoseJson(shown), "\"path\":", Dump(path), "}")};
}

StatusOr<Answer> DumpValue(Steering& steering, const Request& request, const TrainState& state, bool* later) {
  return steering.watches().ShowOnce(request, request.command.args[0], /*whole=*/true, Describe, state.step,
                                     steering.paused(), later);
}

}  // namespace

MSLUA_COMMAND(dump) {
  CommandDef def("dump", "NAME [FILE.safetensors]", "the value: printed, or written into dumps/ of the run folder", 1,
                 2);
  def.place = 220;
  def.between_steps = DumpValue;
  return def;
}

}  // namespace mslua::endpoint
