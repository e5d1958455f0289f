#include "collectives/host/board.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/base/round_up.h"

namespace mslua {
namespace {

constexpr int64_t Aligned(int64_t bytes) { return RoundUp(bytes, 64); }
// Pairs of lines, which the processor fetches together: an announcement and 80 bytes of payload.
constexpr int64_t Paired(int64_t bytes) { return RoundUp(bytes, 128); }
constexpr int64_t kSlotBytes = Paired(sizeof(Slot));

}  // namespace

int64_t Board::Bytes(int ranks, int64_t window, int64_t piece) {
  return Paired(sizeof(AbortNote)) +
         ranks * (kSlots * kSlotBytes + static_cast<int64_t>(sizeof(RankWords)) + Aligned(window)) +
         ranks * ranks * (Aligned(sizeof(Channel)) + 2 * Aligned(piece));
}

Board::Board(std::shared_ptr<void> memory, int ranks, int64_t window, int64_t piece)
    : memory_(std::move(memory)),
      base_(static_cast<char*>(memory_.get())),
      ranks_(ranks),
      window_(Aligned(window)),
      piece_(Aligned(piece)) {}

Slot& Board::slot(int rank, uint32_t call) const {
  return *reinterpret_cast<Slot*>(base_ + Paired(sizeof(AbortNote)) +
                                  (rank * kSlots + static_cast<int>(call % kSlots)) * kSlotBytes);
}

RankWords& Board::words(int rank) const {
  return *reinterpret_cast<RankWords*>(base_ + Paired(sizeof(AbortNote)) + ranks_ * kSlots * kSlotBytes +
                                       rank * static_cast<int64_t>(sizeof(RankWords)));
}

char* Board::window(int rank) const { return reinterpret_cast<char*>(&words(ranks_)) + rank * window_; }

Channel& Board::channel(int from, int to) const {
  return *reinterpret_cast<Channel*>(window(ranks_) +
                                     (from * ranks_ + to) * Aligned(static_cast<int64_t>(sizeof(Channel))));
}

char* Board::piece(int from, int to, int half) const {
  return reinterpret_cast<char*>(&channel(ranks_, 0)) + ((from * ranks_ + to) * 2 + half) * piece_;
}

void Board::Abort(const Status& why) const {
  AbortNote& note = *reinterpret_cast<AbortNote*>(base_);
  uint32_t none = 0;
  if (!note.state.compare_exchange_strong(none, 1)) return;
  note.code = static_cast<uint32_t>(why.code());
  const size_t size = std::min(why.message().size(), sizeof note.reason - 1);
  std::memcpy(note.reason, why.message().data(), size);
  note.reason[size] = 0;
  note.state.store(2);
}

Status Board::Aborted() const {
  const AbortNote& note = *reinterpret_cast<const AbortNote*>(base_);
  return note.state.load() == 2 ? AsSeenByOthers(Status(static_cast<absl::StatusCode>(note.code), note.reason))
                                : absl::OkStatus();
}

void FutexWait(std::atomic<uint32_t>& word, uint32_t value, absl::Duration limit) {
  const timespec t = absl::ToTimespec(limit);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value, &t, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

int UsableCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

}  // namespace mslua
