#include "core/train/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/exit_code.h"

namespace mslua {
namespace {

constexpr char kEvaluations[] = "metrics.evaluations";  // of the counters in a checkpoint
constexpr char kLossMember[] = ",\"loss\":";            // of a step; evaluations have "eval_loss"

constexpr double kWorkSeconds = 0.1;
constexpr char kStepLoss[] = "_loss", kEvaluated[] = "eval_";
constexpr char kStep[] = "step", kEpoch[] = "epoch", kLoss[] = "loss", kRate[] = "lr", kGradNorm[] = "grad_norm";
constexpr char kSpeed[] = "samples_per_s", kWait[] = "data_wait", kFlops[] = "tflops", kMemory[] = "peak_memory";
constexpr char kTime[] = "time", kSamples[] = "samples";

// Shortest text that reads back; JSON has no word for what is not a number.
std::string Number(double v, bool single) {
  if (!std::isfinite(v)) return "null";
  char text[40];
  const auto end = single ? std::to_chars(text, text + sizeof text, static_cast<float>(v)).ptr
                          : std::to_chars(text, text + sizeof text, v).ptr;
  return std::string(text, end);
}

// "lr"; of several steps "<name>_lr" each.
void AddRates(const Trainer& trainer, std::vector<std::pair<std::string, double>>* numbers) {
  const auto& scalars = trainer.scalars();
  for (size_t i = 0; i < scalars.size(); ++i) {
    absl::string_view step = scalars[i].input;
    const double rate = trainer.ScalarNow(static_cast<int>(i));
    if (step == kRate) numbers->emplace_back(kRate, rate);
    if (absl::ConsumePrefix(&step, "lr.")) numbers->emplace_back(absl::StrCat(step, "_lr"), rate);
  }
}

}  // namespace

bool IsMetricsKey(absl::string_view key) {
  constexpr const char* kKeys[] = {kStep, kEpoch, kLoss,   kRate, kGradNorm, kSpeed,
                                   kWait, kFlops, kMemory, kTime, kSamples};
  return absl::StartsWith(key, kEvaluated) || std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

int64_t StepOfMetrics(absl::string_view line, bool* loss) {
  *loss = absl::StrContains(line, kLossMember);
  int64_t step = -1;
  if (absl::ConsumePrefix(&line, "{\"step\":")) std::from_chars(line.data(), line.data() + line.size(), step);
  return step;
}

int64_t MetricsHook::Thinning::stride() const { return int64_t{1} << std::min<int64_t>(written / limit, 40); }

StatusOr<std::unique_ptr<MetricsHook>> MetricsHook::Create(const MetricsOptions& options, Trainer* trainer,
                                                           RecordHealth* health) {
  std::unique_ptr<MetricsHook> hook(new MetricsHook(options, trainer));
  const std::string path = options.folder + "/metrics.jsonl";
  ASSIGN_OR_RETURN(hook->file_, RecordFile::Open(path, /*lines=*/true, health));
  RETURN_IF_ERROR(hook->CountRecords(path));
  ASSIGN_OR_RETURN(hook->events_, EventFile::Create(options.folder, health));
  return hook;
}

Status MetricsHook::CountRecords(const std::string& path) {
  std::ifstream file(path);
  if (!file) return WithExitCode(absl::UnavailableError(absl::StrCat("cannot read ", path)), kExitStorage);
  for (std::string line; std::getline(file, line);) {
    bool loss = false;
    const int64_t step = StepOfMetrics(line, &loss);
    ++(loss ? steps_ : evaluations_).written;
    if (loss) written_ = step;
  }
  return absl::OkStatus();
}

Status MetricsHook::AtBegin(const TrainState& state) {
  if (state.step > 0) SetNext(state);
  return absl::OkStatus();
}

void MetricsHook::SetNext(const TrainState& state) {
  const int64_t interval = every_ * steps_.stride();
  next_ = (state.step / interval + 1) * interval;
}

void MetricsHook::SaveCounters(Counters* counters) const {
  if (evaluations_.asked > 0) (*counters)[kEvaluations] = static_cast<double>(evaluations_.asked);
}

void MetricsHook::RestoreCounters(const Counters& counters) {
  evaluations_.asked = static_cast<int64_t>(CounterOf(counters, kEvaluations, 0));
}

void MetricsHook::WriteStep(const TrainState& state) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - at_).count();
  const double wait = trainer_->data_seconds();
  std::vector<std::pair<std::string, double>> numbers = {{kLoss, state.loss}};
  for (const auto& [step, loss] : StepLossesOf(*trainer_->executable())) numbers.emplace_back(step + kStepLoss, loss);
  AddRates(*trainer_, &numbers);
  if (seconds > 0 && state.samples > samples_) {
    numbers.emplace_back(kSpeed, static_cast<double>(state.samples - samples_) / seconds);
    numbers.emplace_back(kWait, (wait - wait_) / seconds);
  }
  if (has_norm_) numbers.emplace_back(kGradNorm, GradNormOf(*trainer_->executable()));
  AddWork(state, &numbers);
  at_ = now;
  samples_ = state.samples;
  wait_ = wait;
  written_ = state.step;
  ++steps_.written;
  WriteLine(state, numbers);
}

void MetricsHook::AddWork(const TrainState& state, std::vector<std::pair<std::string, double>>* numbers) {
  const auto now = std::chrono::steady_clock::now();
  // The first step warms up: rates are of what follows it.
  const bool first = work_step_ < 0;
  const double seconds = std::chrono::duration<double>(now - work_at_).count();
  if (!first && seconds < kWorkSeconds) return;
  if (!first && state.step > work_step_ && flops_ > 0) {
    const double steps = static_cast<double>(state.step - work_step_);
    numbers->emplace_back(kFlops, 1e-12 * flops_ * steps / seconds);
  }
  numbers->emplace_back(kMemory, static_cast<double>(PeakMemory()));
  numbers->emplace_back(kTime, WallTime());
  if (rows_ > 0) numbers->emplace_back(kSamples, std::round(rows_ * static_cast<double>(state.step)));
  work_at_ = now;
  work_step_ = state.step;
}

Status MetricsHook::AtStep(const TrainState& state) {
  WriteStep(state);
  SetNext(state);
  return absl::OkStatus();
}

Status MetricsHook::AtEpochEnd(const TrainState& state) {
  if (written_ != state.step && state.epoch % steps_.stride() == 0) WriteStep(state);
  file_->Flush();
  events_->Flush();
  return absl::OkStatus();
}

void MetricsHook::AtEnd(const TrainState& state, const Status&) {
  file_->Flush();
  events_->Flush();
}

void MetricsHook::Write(const TrainState& state, const std::vector<std::pair<std::string, double>>& numbers) {
  if (evaluations_.asked++ % evaluations_.stride() != 0) return;
  ++evaluations_.written;
  WriteLine(state, numbers);
  file_->Flush();
  events_->Flush();
}

void MetricsHook::WriteLine(const TrainState& state, const std::vector<std::pair<std::string, double>>& numbers) {
  const int64_t epoch = state.step_in_epoch > 0 ? state.epoch + 1 : state.epoch;
  std::string line = absl::StrCat("{\"", kStep, "\":", state.step, ",\"", kEpoch, "\":", epoch);
  const double now = WallTime();
  for (const auto& n : numbers) {
    const bool of_step = absl::EndsWith(n.first, kStepLoss) && !absl::StartsWith(n.first, kEvaluated);
    const bool single = of_step || n.first == kLoss || n.first == kGradNorm;
    absl::StrAppend(&line, ",\"", n.first, "\":", Number(n.second, single));
    // An event has a time of its own.
    if (n.first != kTime && n.first != kSamples)
      events_->Scalar(n.first, state.step, static_cast<float>(n.second), now);
  }
  file_->Append(line + "}\n");
}

}  // namespace mslua
