// Conditions at which training pauses.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/train/trainer.h"

namespace mslua::endpoint {

// Belongs to a boundary. Ranks that train together have the same ones.
class Breaks {
 public:
  // "nan", "loss>V", "loss<V" or "step N", after `done` steps. ResourceExhausted: there are too many. InvalidArgument:
  // it is none of these, or step N is done.
  Status Add(uint64_t client, const std::string& text, int64_t done);
  size_t Clear();  // gives how many there were
  void Forget(uint64_t client);
  // The number of the first that is hit after this step, from 1, or 0.
  int32_t FindHit(const TrainState& state) const;
  // By its number, from 1.
  const std::string& text(int32_t hit) const { return list_[static_cast<size_t>(hit) - 1].text; }
  void Remove(int32_t hit);

  size_t size() const { return list_.size(); }
  // Any thread: whether there is one for NaN.
  bool has_nan() const { return has_nan_.load(std::memory_order_relaxed); }

 private:
  struct Break {
    uint64_t client;
    std::string text;
    enum class Kind { kNan, kAbove, kBelow, kStep } kind;
    double limit;
  };
  void Changed();

  std::vector<Break> list_;
  std::atomic<bool> has_nan_{false};
};

}  // namespace mslua::endpoint
