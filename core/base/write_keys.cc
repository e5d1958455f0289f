#include "core/base/write_keys.h"

#include <sys/mman.h>

#include <atomic>

#include "core/base/parallel_for.h"

namespace mslua {
namespace {

struct Pair {
  std::array<int, 2> keys;
  std::atomic<bool> taken{false};
};

// A thread that is older than a key could not even read what it protects, so all are made before there is a thread. A
// process has 15; each rank takes a pair, and in tests ranks are threads of one process.
struct AllKeys {
  std::array<Pair, 4> pairs;
  size_t count = 0;

  AllKeys() {
    for (Pair& p : pairs) {
      for (int& key : p.keys) {
        key = pkey_alloc(0, 0);
        if (key < 0) return;
      }
      ++count;
    }
  }
} all_keys;

int Rights(bool write) { return write ? 0 : PKEY_DISABLE_WRITE; }

}  // namespace

bool WriteKeys::Supported() { return all_keys.count > 0; }

std::unique_ptr<WriteKeys> WriteKeys::Take(const std::array<absl::Span<char>, 2>& areas) {
  constexpr int kNoKey = 0;  // that of all other memory
  const auto mark = [&](size_t area, int key) {
    const absl::Span<char> pages = areas[area];
    return pages.empty() || pkey_mprotect(pages.data(), pages.size(), PROT_READ | PROT_WRITE, key) == 0;
  };
  for (size_t i = 0; i < all_keys.count; ++i) {
    Pair& pair = all_keys.pairs[i];
    if (pair.taken.exchange(true)) continue;
    std::unique_ptr<WriteKeys> keys(new WriteKeys(i));
    keys->Apply();
    if (mark(0, pair.keys[0]) && mark(1, pair.keys[1])) return keys;
    mark(0, kNoKey);
    mark(1, kNoKey);
    return nullptr;
  }
  return nullptr;
}

WriteKeys::~WriteKeys() {
  writable_ = {true, true};
  Share();
  all_keys.pairs[pair_].taken = false;
}

void WriteKeys::Apply() const {
  for (const size_t area : {0, 1}) pkey_set(all_keys.pairs[pair_].keys[area], Rights(writable_[area]));
}

void WriteKeys::Allow(size_t area, bool write) {
  writable_[area] = write;
  Apply();
}

void WriteKeys::Share() const {
  ParallelFor(ComputeThreads(), 1, [this](int64_t, int64_t) { Apply(); });  // one range each
}

void WriteKeys::AllowAll(bool write) {
  for (size_t i = 0; i < all_keys.count; ++i) {
    for (const int key : all_keys.pairs[i].keys) pkey_set(key, Rights(write));
  }
}

}  // namespace mslua
