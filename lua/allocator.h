// Memory of eager tensors: blocks are kept for the next tensor of about their size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace mslua {

class TensorAllocator : public std::enable_shared_from_this<TensorAllocator> {
 public:
  // Bytes that free blocks may hold before they go back to the system.
  static constexpr int64_t kKept = int64_t{256} << 20;
  // `pressure` is called before an allocation, each time that so many more bytes are in use.
  static constexpr int64_t kPressure = int64_t{64} << 20;

  ~TensorAllocator();
  void SetPressure(std::function<void()> pressure) { pressure_ = std::move(pressure); }

  // 64-byte aligned, contents undefined; null when the system has no more. The block outlives the allocator's
  // last other user.
  std::shared_ptr<void> Allocate(int64_t bytes);

  int64_t live_bytes() const { return live_; }

 private:
  struct Bin {
    int64_t size;
    std::vector<void*> blocks;
  };
  Bin& BinOf(int64_t size);
  void Free(void* block, int64_t size);

  std::vector<Bin> bins_;  // few sizes: powers of two and their halves between
  int64_t live_ = 0, kept_ = 0;
  int64_t after_pressure_ = 0;  // live bytes after the last call of `pressure_`, or the fewest since
  std::function<void()> pressure_;
};

}  // namespace mslua
