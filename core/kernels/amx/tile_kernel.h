// A kernel on the processor's tiles (amx.h), and the one beside it for operands that tiles cannot take.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "core/op/kernel.h"

namespace mslua::amx {

// An Operation has scratch_bytes() and Run(a, b, y, scratch), which is false where `plain` is to run: an operand is f32
// and has numbers that are not finite. T is its operands' and its result's type. `plain` may be null where that does
// not happen.
template <class T, class Operation>
class TileKernel : public Kernel {
 public:
  TileKernel(Operation operation, std::unique_ptr<Kernel> plain)
      : operation_(std::move(operation)), plain_(std::move(plain)) {}

  int64_t scratch_bytes() const override {
    return std::max(operation_.scratch_bytes(), plain_ == nullptr ? 0 : plain_->scratch_bytes());
  }

  Status Run(const Buffers& b) override {
    const bool done = operation_.Run(static_cast<const T*>(b.inputs[0]), static_cast<const T*>(b.inputs[1]),
                                     static_cast<T*>(b.outputs[0]), b.scratch);
    if (done) return absl::OkStatus();
    return plain_ == nullptr ? absl::InternalError("tiles met numbers that are not finite") : plain_->Run(b);
  }

 private:
  const Operation operation_;
  const std::unique_ptr<Kernel> plain_;
};

}  // namespace mslua::amx
