#include "lua/allocator.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/base/aligned_memory.h"

namespace mslua {
namespace {

// 64, 96, 128, 192, 256, ...: at most a third is wasted; a half of 3 MiB, which become two huge pages.
int64_t SizeClass(int64_t bytes) {
  int64_t size = 64;
  while (size < bytes) {
    if (size + size / 2 >= bytes) return size + size / 2;
    size *= 2;
  }
  return size;
}

}  // namespace

TensorAllocator::~TensorAllocator() {
  for (Bin& bin : bins_) {
    for (void* block : bin.blocks) std::free(block);
  }
}

TensorAllocator::Bin& TensorAllocator::BinOf(int64_t size) {
  for (Bin& bin : bins_) {
    if (bin.size == size) return bin;
  }
  bins_.push_back({size, {}});
  return bins_.back();
}

std::shared_ptr<void> TensorAllocator::Allocate(int64_t bytes) {
  const int64_t size = SizeClass(bytes);
  if (live_ + size - after_pressure_ >= kPressure && pressure_) {
    pressure_();
    after_pressure_ = live_;
  }
  Bin& bin = BinOf(size);
  void* block = nullptr;
  if (!bin.blocks.empty()) {
    block = bin.blocks.back();
    bin.blocks.pop_back();
    kept_ -= size;
  } else {
    block = AllocateAligned(size).release();
    if (block == nullptr) return nullptr;
  }
  live_ += size;
  return std::shared_ptr<void>(block, [self = shared_from_this(), size](void* p) { self->Free(p, size); });
}

void TensorAllocator::Free(void* block, int64_t size) {
  live_ -= size;
  after_pressure_ = std::min(after_pressure_, live_);
  if (kept_ + size > kKept) {
    std::free(block);
    return;
  }
  kept_ += size;
  BinOf(size).blocks.push_back(block);
}

}  // namespace mslua
