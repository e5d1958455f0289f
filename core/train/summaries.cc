#include "core/train/summaries.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/json/json.h"
#include "core/train/metrics.h"

namespace mslua {
namespace {

constexpr char kAtKey[] = "at", kAt[] = ",\"at\":", kEndedKey[] = "ended", kEnded[] = ",\"ended\":true";

bool IsUtf8(absl::string_view text) {
  try {
    return !Json(std::string(text)).dump().empty();
  } catch (const Json::exception&) {
    return false;
  }
}

// A name as the name of a file: letters, digits, ".", "_", "-" and the "/" of groups stay, other bytes become %20.
std::string FileName(absl::string_view name) {
  std::string file;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
                       c == '_' || c == '-' || c == '/';
    absl::StrAppend(&file, plain ? std::string(1, c) : absl::StrCat("%", absl::Hex(byte, absl::kZeroPad2)));
  }
  return file;
}

}  // namespace

StatusOr<std::unique_ptr<Summaries>> Summaries::Create(const std::string& folder, EventFile* events,
                                                       const Trainer* trainer, RecordHealth* health,
                                                       std::function<void(const std::string&)> notice) {
  std::unique_ptr<Summaries> made(new Summaries(folder, events, trainer, std::move(notice)));
  ASSIGN_OR_RETURN(made->file_, RecordFile::Open(absl::StrCat(folder, "/", kSummaries), /*lines=*/true, health));
  return made;
}

std::string Summaries::NameProblem(absl::string_view name, bool scalar) {
  constexpr size_t kLongest = 200;
  if (name.empty() || name.size() > kLongest)
    return absl::StrCat("expected a name of 1 to ", kLongest, " bytes, got ", name.size());
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (!IsUtf8(name) || std::any_of(name.begin(), name.end(), control)) return "expected a name of printable UTF-8";
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (part.empty() || part == "." || part == "..")
      return absl::StrCat("expected a name such as \"samples/digits\", got \"", name, "\"");
  }
  if (scalar && (name == kAtKey || name == kEndedKey || IsMetricsKey(name)))
    return absl::StrCat("\"", name, "\" is a key of metrics.jsonl: give the scalar another name");
  return "";
}

bool Summaries::IsLater(absl::string_view line, int64_t step, bool in_epoch) {
  const size_t place = line.find(kAt);
  if (!absl::StartsWith(line, "{\"step\":") || place == line.npos) return false;
  const char* const end = line.data() + line.size();
  int64_t at = -1;
  const char* const behind = std::from_chars(line.data() + place + sizeof kAt - 1, end, at).ptr;
  return at > step || (at == step && in_epoch && absl::StartsWith({behind, static_cast<size_t>(end - behind)}, kEnded));
}

void Summaries::Write(int64_t step, const std::string& key, const std::string& value) {
  const TrainState& state = trainer_->state();
  const bool ended = ended_ || (state.step > 0 && state.step_in_epoch == 0);
  file_->Append(
      absl::StrCat("{\"step\":", step, kAt, state.step, ended ? kEnded : "", ",", DumpJson(key), ":", value, "}\n"));
  if (state.step == through_) file_->Flush();
}

void Summaries::Scalar(const std::string& name, int64_t step, double value) {
  Write(StepOf(step), name, DumpJson(value));
  events_->Scalar(name, StepOf(step), static_cast<float>(value), WallTime());
}

void Summaries::AddHistogram(const std::string& name, int64_t step, const Histogram& h) {
  const auto n = static_cast<double>(std::max<int64_t>(h.count, 1));
  const double mean = h.sum / n;
  const Json record = {{"name", name},      {"count", h.count},
                       {"nan", h.nan},      {"infinite", h.infinite},
                       {"low", h.low},      {"high", h.high},
                       {"mean", mean},      {"std", std::sqrt(std::max(0.0, h.squares / n - mean * mean))},
                       {"counts", h.counts}};
  Write(StepOf(step), "histogram", DumpJson(record));
  if (h.count > 0) events_->Add(HistogramEvent({name, StepOf(step), WallTime()}, h));
  if (h.nan + h.infinite == 0 || !not_finite_.insert(name).second) return;
  notice_(absl::StrCat("summary.histogram: ", name, ": at step ", StepOf(step), " ", h.nan, " values are NaN and ",
                       h.infinite, " infinite, of ", h.count + h.nan + h.infinite, "; the histogram is of the others"));
}

void Summaries::Text(const std::string& name, int64_t step, const std::string& text) {
  Write(StepOf(step), "text", DumpJson({{"name", name}, {"text", text}}));
  events_->Add(TextEvent({name, StepOf(step), WallTime()}, text));
}

Status Summaries::Image(const std::string& name, int64_t step, const data::Picture& picture) {
  ASSIGN_OR_RETURN(const std::string png, data::EncodePng(picture));
  const std::string file = absl::StrCat(kSummaryPictures, "/", FileName(name), "_", StepOf(step), ".png");
  const std::string path = absl::StrCat(folder_, "/", file);
  RETURN_IF_ERROR(MakeFolders(path.substr(0, path.rfind('/'))));
  RETURN_IF_ERROR(WriteFileAtomically(path, png));
  Write(StepOf(step), "image",
        DumpJson({{"name", name}, {"file", file}, {"height", picture.height}, {"width", picture.width}}));
  events_->Add(ImageEvent({name, StepOf(step), WallTime()}, picture.height, picture.width, picture.channels, png));
  return absl::OkStatus();
}

void Summaries::Flush() {
  file_->Flush();
  events_->Flush();
}

Status Summaries::AtEpochEnd(const TrainState&) {
  Flush();
  return absl::OkStatus();
}

void Summaries::AtEnd(const TrainState&, const Status&) {
  ended_ = true;
  Flush();
}

}  // namespace mslua
