// Attention as CUDA text: no score matrix is kept; a block makes a query's result, or a key's gradients.
#pragma once

#include <string>

#include "core/kernels/attention.h"
#include "core/op/device_text.h"

namespace mslua {

// Where the operands of head `head` are: CUDA expressions of pointers, and the elements between rows.
struct AttentionPlaces {
  std::string q, k, v, y, dy, dq, dk, dv;  // "x0 + head * 640"
  int64_t q_row, k_row, v_row, y_row;      // of q and dq, of k and dk, of v and dv, of y and dy
  std::string lse, delta;                  // of head `head`, dense
};

// Forward: y and lse. `type`: of q; statistics are f32, f64 for f64.
DeviceProgram AttentionOnDevice(const Attention& a, DType type, const AttentionPlaces& at);
// Backward: dq, dk and dv from lse and delta.
DeviceProgram AttentionGradOnDevice(const Attention& a, DType type, const AttentionPlaces& at);

}  // namespace mslua
