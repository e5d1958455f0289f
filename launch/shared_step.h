// The step that rank 0 has done, in memory that its launcher sees: the progress of a job that keeps nothing else there
// (--recover=disk).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "launch/image_keeper.h"

namespace mslua {

class SharedStep {
 public:
  static constexpr int64_t kNone = -1;  // no step yet

  // Makes it, and gives it to the job's keeper.
  static StatusOr<std::unique_ptr<SharedStep>> Make(ImageKeeper& keeper);
  // That of the job's launcher; null: it has made none.
  static StatusOr<std::unique_ptr<SharedStep>> Find(ImageKeeper& keeper);
  ~SharedStep();
  SharedStep(const SharedStep&) = delete;
  SharedStep& operator=(const SharedStep&) = delete;

  void Set(int64_t step) { *step_ = step; }
  int64_t Get() const { return *step_; }

 private:
  explicit SharedStep(std::atomic<int64_t>* step) : step_(step) {}
  static StatusOr<std::unique_ptr<SharedStep>> Map(const Fd& memory);

  std::atomic<int64_t>* const step_;
};

}  // namespace mslua
