#include "core/train/console.h"

#include <unistd.h>

#include <charconv>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace mslua {

namespace {

// The number that follows the word, past which `line` then begins.
bool TakeNumber(absl::string_view word, absl::string_view* line, int64_t* value) {
  const size_t at = line->find(word);
  if (at == absl::string_view::npos) return false;
  line->remove_prefix(at + word.size());
  return std::from_chars(line->data(), line->data() + line->size(), *value).ec == std::errc();
}

// Lines with `prefix` before each.
std::string EachLine(const std::string& prefix, absl::string_view lines) {
  std::string text;
  lines.remove_suffix(1);  // the end of the last one
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) absl::StrAppend(&text, prefix, line, "\n");
  return text;
}

}  // namespace

bool ReadLossLine(absl::string_view line, int64_t* epoch, int64_t* step) {
  return TakeNumber("epoch: ", &line, epoch) && TakeNumber(" step: ", &line, step) &&
         line.find(", loss is ") != absl::string_view::npos;
}

bool ReadMeanLossLine(absl::string_view line, int64_t* epoch, int64_t* steps) {
  if (!TakeNumber("epoch: ", &line, epoch)) return false;
  *steps = std::numeric_limits<int64_t>::max();
  return line.find(", mean loss is ") != absl::string_view::npos || TakeNumber(", mean loss of ", &line, steps);
}

Console::Console(const Options& o, std::FILE* out)
    : enabled_(o.enabled),
      terminal_(isatty(fileno(out)) != 0),
      log_every_(o.log_every),
      prefix_(o.prefix),
      out_(out),
      flushed_(std::chrono::steady_clock::now()) {
  if (o.log_path.empty()) return;
  auto log = RecordFile::Open(o.log_path, /*lines=*/true, o.health);
  opened_ = log.status();
  if (log.ok()) log_ = *std::move(log);
}

Console::~Console() { Flush(); }

void Console::PrintLoss(int64_t epoch, int64_t step, float loss) {
  const auto number = [this](auto value) {
    char text[32];
    buffer_.append(text, std::to_chars(text, text + sizeof text, value).ptr);
  };
  buffer_.append("epoch: ");
  number(epoch);
  buffer_.append(" step: ");
  number(step);
  buffer_.append(", loss is ");
  number(loss);
  buffer_.push_back('\n');
  MaybeFlush();
}

void Console::Line(absl::string_view text) {
  buffer_.append(text.data(), text.size()).push_back('\n');
  MaybeFlush();
}

void Console::MaybeFlush() {
  constexpr size_t kFull = 1 << 16;
  if (!terminal_ && buffer_.size() < kFull) {
    const auto now = std::chrono::steady_clock::now();
    if (now - flushed_ < std::chrono::milliseconds(100)) return;
  }
  if (hide_) hide_();
  Write();
  if (show_) show_();
}

void Console::Flush() {
  if (hide_) hide_();
  Write();
}

void Console::Write() {
  if (buffer_.empty()) return;
  flushed_ = std::chrono::steady_clock::now();
  if (enabled_) {
    const std::string prefixed = prefix_.empty() ? "" : EachLine(prefix_, buffer_);
    const std::string& text = prefix_.empty() ? buffer_ : prefixed;
    std::fwrite(text.data(), 1, text.size(), out_);
    std::fflush(out_);
  }
  if (log_ != nullptr) {
    log_->AppendLines(buffer_);
    log_->Flush();
  }
  buffer_.clear();
}

}  // namespace mslua
