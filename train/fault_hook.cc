#include "train/fault_hook.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace mslua {

StatusOr<Fault> ParseFault(const std::string& text) {
  Fault fault;
  const std::pair<std::string, std::string> words = absl::StrSplit(text, absl::MaxSplits('@', 1));
  bool good = words.first == "abort" || words.first == "scribble";
  if (words.first == "scribble") fault.kind = Fault::Kind::kScribble;
  bool has_rank = false, has_step = false;
  for (const absl::string_view item : absl::StrSplit(words.second, ',')) {
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(item, absl::MaxSplits('=', 1));
    if (field.first == "rank" && !std::exchange(has_rank, true)) {
      good = good && absl::SimpleAtoi(field.second, &fault.rank) && fault.rank >= 0;
    } else if (field.first == "step" && !std::exchange(has_step, true)) {
      good = good && absl::SimpleAtoi(field.second, &fault.step) && fault.step >= 1;
    } else {
      good = false;
    }
  }
  if (good && has_rank && has_step) return fault;
  return absl::InvalidArgumentError(absl::StrCat(
      "MSLUA_FAULT: expected abort@rank=R,step=S or scribble@rank=R,step=S, ranks from 0 and steps from 1, got '", text,
      "'"));
}

Status FaultHook::AtStep(const TrainState& state) {
  if (state.step != fault_.step) return absl::OkStatus();
  if (fault_.kind == Fault::Kind::kScribble) Scribble();
  std::abort();
}

void FaultHook::Scribble() {
  constexpr int kWrites = 20000;
  constexpr size_t kLongest = 4096;
  const absl::Span<char> memory = store_.image()->memory();
  std::mt19937_64 random{std::random_device{}()};
  // The kernel writes where this process may, and gives an error elsewhere: one crash would end it too early.
  const int noise = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  for (int i = 0; i < kWrites; ++i) {
    const size_t at = random() % memory.size();
    const size_t size = std::min<size_t>(1 + random() % kLongest, memory.size() - at);
    if (read(noise, memory.data() + at, size) < 0) continue;
  }
  for (const char* const place : store_.CommittedPlaces()) {
    volatile char* const committed = const_cast<char*>(place);
    *committed = static_cast<char>(~*committed);
  }
}

}  // namespace mslua
