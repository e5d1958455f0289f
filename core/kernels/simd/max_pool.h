// Maximum pooling: its sizes, and kernels over Highway.
#pragma once

#include "core/kernels/window.h"

namespace mslua {

struct Pooling {
  Image x, y;
  Window window;

  // The input positions that output position `i` covers along axis `a` (0: rows, 1: columns); never none.
  struct Range {
    int64_t begin, end;
  };
  Range Covered(int a, int64_t i) const {
    const int64_t start = window.Start(a, i), size = a == 0 ? x.h : x.w;
    return {start < 0 ? 0 : start, start + window.size[a] > size ? size : start + window.size[a]};
  }
};

// Of attributes kernel_size and those of DeclareWindow.
StatusOr<Pooling> ResolvePooling(const Attrs& attrs, const TensorType& x);

// f32 and bf16, vectors over channels: for images with channels last.
FastKernel HighwayMaxPool();
FastKernel HighwayMaxPoolGrad();

}  // namespace mslua
