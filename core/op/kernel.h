// How an operator is run: a plain reference kernel, and kernels prepared for a plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/types/span.h"
#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/op/attrs.h"

namespace mslua {

// One execution with everything resolved. Inputs are never written. Tensors are row-major and dense.
struct OpCall {
  const Attrs& attrs;
  absl::Span<const TensorView> inputs;
  absl::Span<const TensorView> outputs;
};

// Plain C++, any dtype that the operator allows; what the fast kernels are tested against. An error
// is about values (a label out of range): types were checked when the graph was built.
using ReferenceKernel = std::function<Status(const OpCall&)>;

// What a kernel is prepared for. The spans live as long as the preparation only.
struct OpSpec {
  const Attrs& attrs;
  absl::Span<const TensorType> inputs;
  absl::Span<const TensorType> outputs;
};

// The memory of one run, in the order of the definition's inputs and outputs.
struct Buffers {
  const void* const* inputs;
  void* const* outputs;
  void* scratch;  // Kernel::scratch_bytes() bytes, 64-byte aligned, contents undefined
};

// A kernel prepared once for fixed types and run every step; it allocates nothing in Run.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual Status Run(const Buffers& buffers) = 0;
  virtual int64_t scratch_bytes() const { return 0; }
};

// A library-backed or hand-tuned implementation. Kernels are tried in order; the first that supports
// the spec is taken. Uses the calling thread's compute threads (core/base/parallel_for.h).
struct FastKernel {
  const char* name = "";  // "onednn", "highway"
  std::function<bool(const OpSpec&)> supports;
  std::function<StatusOr<std::unique_ptr<Kernel>>(const OpSpec&)> make;
  bool bf16_tiles = false;  // makes f32 products of bf16 tiles: left out by CompileOptions::vector_products
};

}  // namespace mslua
