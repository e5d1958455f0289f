#include "core/train/status_line.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "core/base/terminal.h"
#include "core/runtime/profile.h"
#include "core/train/step_numbers.h"

namespace mslua {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100), kLine = std::chrono::milliseconds(10000);
constexpr auto kWindow = std::chrono::seconds(30);
constexpr int kColumns = 80, kLeastColumns = 20;

}  // namespace

std::string ClockText(double seconds) {
  const auto s = static_cast<int64_t>(std::ceil(std::min(seconds, 1e9)));
  if (s < 3600) return absl::StrFormat("%d:%02d", s / 60, s % 60);
  return absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
}

std::string RateText(double rate) {
  if (rate >= 1e6) return absl::StrFormat("%.1fM", rate / 1e6);
  if (rate >= 1e4) return absl::StrFormat("%.0fk", rate / 1e3);
  if (rate >= 1e3) return absl::StrFormat("%.1fk", rate / 1e3);
  return rate >= 10 ? absl::StrFormat("%.0f", rate) : absl::StrFormat("%.2g", rate);
}

std::string StatusText(const StatusFields& f, int columns) {
  // Each part with its rank: the greatest is left out first.
  struct Part {
    std::string text;
    int rank;
  };
  std::vector<Part> parts = {{absl::StrCat("epoch ", f.epoch, "/", f.epochs), 0},
                             {absl::StrCat("  step ", f.step, "/", f.steps_per_epoch), 1},
                             {absl::StrFormat("  loss %.3g", f.loss), 0},
                             {absl::StrFormat(" (mean %.3g)", f.mean), 4}};
  if (!std::isnan(f.lr)) parts.push_back({absl::StrFormat("  lr %.3g", f.lr), 5});
  if (f.samples_per_s > 0) parts.push_back({absl::StrCat("  ", RateText(f.samples_per_s), " samples/s"), 3});
  if (f.tokens_per_s > 0) parts.push_back({absl::StrCat("  ", RateText(f.tokens_per_s), " tokens/s"), 6});
  if (!std::isnan(f.grad_norm)) parts.push_back({absl::StrFormat("  grad norm %.3g", f.grad_norm), 7});
  if (f.data_wait >= 0) parts.push_back({absl::StrFormat("  data wait %.0f%%", 100 * f.data_wait), 8});
  if (f.tflops > 0) {
    const std::string share = f.peak_share > 0 ? absl::StrFormat(" (%.0f%%)", 100 * f.peak_share) : "";
    parts.push_back({absl::StrFormat("  %.3g TFLOP/s%s", f.tflops, share), 9});
  }
  if (f.seconds_left >= 0) parts.push_back({absl::StrCat("  ", ClockText(f.seconds_left), " left"), 2});
  const auto joined = [&] {
    std::string text;
    for (const Part& p : parts) text += p.text;
    return text;
  };
  std::string text = joined();
  while (static_cast<int>(text.size()) > columns && parts.size() > 1) {
    parts.erase(
        std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.rank < b.rank; }));
    text = joined();
  }
  return text.substr(0, static_cast<size_t>(std::max(columns, 0)));
}

int64_t StepsPerLook(double step_seconds) {
  constexpr double kLook = 1e-3;
  constexpr int64_t kMost = 64;
  if (step_seconds * static_cast<double>(kMost) <= kLook) return kMost;
  return std::max<int64_t>(1, static_cast<int64_t>(kLook / step_seconds));
}

StatusLine::StatusLine(Progress* progress, const Options& options)
    : progress_(progress),
      console_(progress->console),
      options_(options),
      drawn_at_(Clock::now()),
      epoch_begun_(drawn_at_) {
  if (console_ != nullptr) console_->SetBeside([this] { Hide(); }, [this] { Show(); });
}

StatusLine::~StatusLine() {
  if (console_ != nullptr) console_->SetBeside(nullptr, nullptr);
  Hide();
}

void StatusLine::Hide() {
  if (!drawn_) return;
  drawn_ = false;
  std::fputs("\r\033[K", options_.out);
  std::fflush(options_.out);
}

void StatusLine::Show() {
  if (text_.empty()) return;
  // The cursor goes back to the first column, so that what another thread prints stands there.
  std::fprintf(options_.out, "\r%s\033[K\r", text_.c_str());
  std::fflush(options_.out);
  drawn_ = true;
}

Status StatusLine::AtStep(const TrainState& s) {
  const auto now = Clock::now();
  const double planned = PlannedSeconds();
  // The first step of this process also makes the kernels ready.
  if (seen_ >= 0 && s.step > seen_)
    pace_.Add(std::chrono::duration<double>(now - step_at_).count() - (planned - planned_by_then_), s.step - seen_);
  seen_ = s.step;
  step_at_ = now;
  planned_by_then_ = planned;
  if (marks_.empty()) AddMark(s, now);
  const bool terminal = options_.style == Options::Style::kTerminal;
  if (s.step > 0 && now - drawn_at_ >= (terminal ? kRedraw : kLine)) Draw(s, now);
  return absl::OkStatus();
}

Status StatusLine::AtEpochBegin(const TrainState&) {
  epoch_begun_ = Clock::now();
  return absl::OkStatus();
}

double StatusLine::SecondsPerStep() const {
  if (marks_.size() < 2) return 0;
  const int64_t steps = marks_.back().step - marks_.front().step;
  const double seconds = std::chrono::duration<double>(marks_.back().at - marks_.front().at).count();
  return steps > 0 ? seconds / static_cast<double>(steps) : 0;
}

double StatusLine::PlannedSeconds() const {
  double seconds = 0;
  for (const PlannedWork* work : progress_->planned) seconds += work->seconds();
  return seconds;
}

void StatusLine::AddMark(const TrainState& s, Clock::time_point now) {
  marks_.push_back({now, s.step, progress_->trainer == nullptr ? 0 : progress_->trainer->data_seconds()});
}

void StatusLine::AddWork(double seconds, StatusFields* f) {
  f->samples_per_s = options_.rows / seconds;
  f->tokens_per_s = options_.tokens / seconds;
  if (progress_->trainer == nullptr) return;
  const Executable& step = *progress_->trainer->executable();
  if (flops_ < 0) flops_ = FlopsOf(step);
  f->tflops = 1e-12 * flops_ / seconds;
  if (options_.peak_flops > 0) f->peak_share = flops_ / seconds / options_.peak_flops;
  f->grad_norm = GradNormOf(step);
  const double steps = static_cast<double>(marks_.back().step - marks_.front().step);
  const double waited = marks_.back().data_seconds - marks_.front().data_seconds;
  f->data_wait = std::clamp(waited / (steps * seconds), 0.0, 1.0);
}

StatusFields StatusLine::FieldsOf(const TrainState& s) {
  StatusFields f;
  f.epoch = s.epoch + 1;
  f.epochs = progress_->epochs;
  f.step = s.step_in_epoch;
  f.steps_per_epoch = progress_->steps_per_epoch;
  f.loss = s.loss;
  const double* mean = progress_->Find("loss");
  f.mean = mean == nullptr ? s.loss : *mean;
  f.lr = progress_->trainer == nullptr ? std::nan("") : progress_->trainer->ScalarNow(0);
  if (const double seconds = SecondsPerStep(); seconds > 0) {
    int64_t last = progress_->epochs * progress_->steps_per_epoch;
    if (options_.max_steps > 0) last = std::min(last, options_.max_steps);
    const int64_t done = s.epoch * progress_->steps_per_epoch + s.step_in_epoch;
    AddWork(seconds, &f);
    f.seconds_left = pace_.empty() ? static_cast<double>(std::max<int64_t>(0, last - done)) * seconds
                                   : TimeLeft(pace_, progress_->planned, done, last);
  }
  return f;
}

void StatusLine::Draw(const TrainState& s, Clock::time_point now) {
  drawn_at_ = now;
  pace_.Settle();
  AddMark(s, now);
  while (marks_.size() > 2 && now - marks_.front().at > kWindow) marks_.pop_front();
  stride_ = StepsPerLook(pace_.Median());
  if (options_.style == Options::Style::kLines) {
    if (console_ != nullptr) console_->Flush();
    std::fprintf(options_.out, "%s\n", StatusText(FieldsOf(s), INT_MAX).c_str());
    std::fflush(options_.out);
    return;
  }
  // One column stays free: a cursor behind the last one would begin a new line.
  text_ = StatusText(FieldsOf(s), std::max(ColumnsOf(fileno(options_.out), kColumns), kLeastColumns) - 1);
  Show();
}

Status StatusLine::AtEpochEnd(const TrainState& s) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - epoch_begun_).count();
  const double* mean = progress_->Find("loss");
  std::string line = absl::StrCat("epoch ", s.epoch, "/", progress_->epochs);
  if (mean != nullptr) absl::StrAppendFormat(&line, "  mean loss %.4g", *mean);
  absl::StrAppend(&line, "  ", seconds < 60 ? absl::StrFormat("%.3g s", seconds) : ClockText(seconds));
  if (progress_->evaluations > evaluations_) {
    evaluations_ = progress_->evaluations;
    std::string found;
    for (const auto& [name, value] : progress_->found) {
      absl::string_view metric = name;
      if (absl::ConsumePrefix(&metric, "eval_"))
        absl::StrAppendFormat(&found, "%s %s %.4g", found.empty() ? "  eval" : ",", metric, value);
    }
    line += found;
  }
  if (console_ != nullptr) console_->Flush();
  Hide();
  text_.clear();
  std::fprintf(options_.out, "%s\n", line.c_str());
  std::fflush(options_.out);
  drawn_at_ = now;
  return absl::OkStatus();
}

void StatusLine::AtEnd(const TrainState&, const Status&) {
  Hide();
  text_.clear();
}

}  // namespace mslua
