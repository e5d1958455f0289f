// What the work of a node is, and what a machine or a device reaches at most.
#pragma once

#include "core/base/status.h"
#include "core/graph/graph.h"

namespace mslua {

class Device;

// What a node does in a run: floating point operations, and the bytes of operands and results, each once.
struct NodeWork {
  double flops = 0, bytes = 0;
  DType type = DType::kF32;  // of the operands
};
NodeWork WorkOf(const Graph& graph, const Node& node);

// Floating point operations a second of products of matrices by type, and bytes a second that are read and written of
// arrays larger than caches.
struct MachineLimits {
  double f32_flops = 0, bf16_flops = 0, f16_flops = 0, f64_flops = 0;  // 0: not measured
  double bandwidth = 0;
  double launch_seconds = 0;  // that a kernel takes which does nothing, behind another one
  double copy_bandwidth = 0;  // of a device: bytes a second to the host
};
// Of the CPU with the calling thread's compute threads.
StatusOr<MachineLimits> MeasureMachine();
// Of a device, in about a second. f32 as it is set there: with TF32 where any operation may use it.
StatusOr<MachineLimits> MeasureDevice(Device* device);

}  // namespace mslua
