#include "collectives/host/inproc.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "collectives/host/shared_memory.h"

namespace mslua {
namespace {

constexpr int64_t kWindow = 32 << 10;  // small: tests of the staged way are to go through many rounds
constexpr int64_t kPiece = 4 << 10;

// Zeroed pages that cost nothing until touched.
std::shared_ptr<void> Pages(int64_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  return std::shared_ptr<void>(p, [bytes](void* q) { munmap(q, bytes); });
}

// What the threads share.
struct Shared {
  explicit Shared(int n) : ranks(n), segments(n) {}
  struct Segment {
    std::shared_ptr<void> memory;
    int64_t bytes;
  };
  const int ranks;
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<void>> boards;
  std::vector<std::vector<Segment>> segments;  // of each rank
};

class InprocHost : public Host {
 public:
  InprocHost(std::shared_ptr<Shared> shared, int rank, bool private_buffers)
      : shared_(std::move(shared)), rank_(rank), private_buffers_(private_buffers) {}

  int ranks() const override { return shared_->ranks; }
  std::string Gone(int) override { return ""; }

  // Segment 0 is the process's memory; the others are those of AddSegment.
  Address Locate(const void* data, int64_t bytes) const override {
    if (!private_buffers_) return {0, reinterpret_cast<uint64_t>(data)};
    std::lock_guard<std::mutex> lock(shared_->mutex);
    const auto& mine = shared_->segments[rank_];
    for (size_t i = 0; i < mine.size(); ++i) {
      const int64_t offset = static_cast<const char*>(data) - static_cast<const char*>(mine[i].memory.get());
      if (offset >= 0 && offset + bytes <= mine[i].bytes) {
        return {static_cast<int8_t>(i + 1), static_cast<uint64_t>(offset)};
      }
    }
    return {};
  }

  char* Resolve(int rank, Address address) const override {
    if (address.segment == 0) return reinterpret_cast<char*>(address.offset);
    std::lock_guard<std::mutex> lock(shared_->mutex);
    return static_cast<char*>(shared_->segments[rank][address.segment - 1].memory.get()) + address.offset;
  }

  Status Fetch(int rank, Address address, void* to, int64_t bytes) const override {
    std::memcpy(to, Resolve(rank, address), bytes);
    return absl::OkStatus();
  }

  StatusOr<Board> Join(const std::vector<int>& members, int, const std::string& key, absl::Duration) override {
    const int n = static_cast<int>(members.size());
    std::lock_guard<std::mutex> lock(shared_->mutex);
    std::shared_ptr<void> memory = shared_->boards[key].lock();
    if (memory == nullptr) {
      memory = Pages(Board::Bytes(n, kWindow, kPiece));
      if (memory == nullptr) return absl::ResourceExhaustedError("no memory for the board of a group");
      shared_->boards[key] = memory;
    }
    return Board(std::move(memory), n, kWindow, kPiece);
  }

  StatusOr<void*> AddSegment(int64_t bytes, absl::Duration) override {
    if (bytes <= 0) return absl::InvalidArgumentError(absl::StrCat("a segment of ", bytes, " bytes"));
    std::shared_ptr<void> memory = Pages(bytes);
    if (memory == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
    std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->segments[rank_].push_back({memory, bytes});
    return memory.get();
  }

 private:
  const std::shared_ptr<Shared> shared_;
  const int rank_;
  const bool private_buffers_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeInprocWorld(int ranks, const InprocOptions& options) {
  auto shared = std::make_shared<Shared>(ranks);
  std::vector<int> members(ranks);
  for (int r = 0; r < ranks; ++r) members[r] = r;
  std::vector<std::unique_ptr<Communicator>> world;
  for (int r = 0; r < ranks; ++r) {
    auto made = MakeSharedMemoryCommunicator(std::make_shared<InprocHost>(shared, r, options.private_buffers), members,
                                             r, "world", options.epoch, std::make_shared<FlightRecorder>(),
                                             absl::InfiniteDuration());
    if (!made.ok()) return {};
    world.push_back(std::move(*made));
  }
  return world;
}

}  // namespace mslua
