#include "core/train/metrics.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

// Shortest text that reads back; JSON has no word for what is not a number.
std::string Number(double v, bool single) {
  if (!std::isfinite(v)) return "null";
  char text[40];
  const auto end = single ? std::to_chars(text, text + sizeof text, static_cast<float>(v)).ptr
                          : std::to_chars(text, text + sizeof text, v).ptr;
  return std::string(text, end);
}

double WallTime() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

StatusOr<std::unique_ptr<MetricsHook>> MetricsHook::Create(const std::string& folder, int64_t every, Trainer* trainer) {
  std::unique_ptr<MetricsHook> hook(new MetricsHook(every, trainer));
  const std::string path = folder + "/metrics.jsonl";
  hook->file_ = std::fopen(path.c_str(), "a");
  if (hook->file_ == nullptr)
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  ASSIGN_OR_RETURN(hook->events_, EventFile::Create(folder));
  return hook;
}

MetricsHook::~MetricsHook() {
  if (file_ != nullptr) std::fclose(file_);
}

Status MetricsHook::AtStep(const TrainState& state) {
  next_ = state.step + every_;
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - at_).count();
  const double wait = trainer_->data_seconds();
  std::vector<std::pair<std::string, double>> numbers = {{"loss", state.loss}, {"lr", trainer_->ScalarNow(0)}};
  if (seconds > 0 && state.samples > samples_) {
    numbers.emplace_back("samples_per_s", static_cast<double>(state.samples - samples_) / seconds);
    numbers.emplace_back("data_wait", (wait - wait_) / seconds);
  }
  at_ = now;
  samples_ = state.samples;
  wait_ = wait;
  Write(state, numbers);
  return absl::OkStatus();
}

Status MetricsHook::AtEpochEnd(const TrainState& state) {
  if (written_ != state.step) RETURN_IF_ERROR(AtStep(state));
  std::fflush(file_);
  events_->Flush();
  return absl::OkStatus();
}

void MetricsHook::AtEnd(const TrainState& state, const Status&) {
  std::fflush(file_);
  events_->Flush();
}

void MetricsHook::Write(const TrainState& state, const std::vector<std::pair<std::string, double>>& numbers) {
  written_ = state.step;
  const int64_t epoch = state.step_in_epoch > 0 ? state.epoch + 1 : state.epoch;
  std::string line = absl::StrCat("{\"step\":", state.step, ",\"epoch\":", epoch);
  const double now = WallTime();
  for (const auto& n : numbers) {
    absl::StrAppend(&line, ",\"", n.first, "\":", Number(n.second, n.first == "loss"));
    events_->Scalar(n.first, state.step, static_cast<float>(n.second), now);
  }
  line += "}\n";
  std::fwrite(line.data(), 1, line.size(), file_);
}

}  // namespace mslua
