// A collective node of a device's step, over NCCL: what is enqueued on the step's stream, without the host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/nccl/nccl.h"
#include "core/device/device.h"
#include "core/graph/graph.h"
#include "core/runtime/collective_kernel.h"

namespace mslua {

// Whether NCCL can run the node: not messages between single ranks, which would wait for one another on one stream.
// Where it cannot, the node's ranks all stage it through host memory.
bool RunsOverNccl(const Graph& graph, const Node& node);

class DeviceCollective {
 public:
  // The collective of `node` in `group`, whose inputs and outputs lie at `pointers` of the device. `started`: of the
  // end of a bucket, its start; else null.
  static StatusOr<std::unique_ptr<DeviceCollective>> Make(const Graph& graph, int32_t node, NcclWorld* world,
                                                          NcclGroup* group, const std::vector<void*>& pointers,
                                                          const DeviceCollective* started, Device* device,
                                                          absl::Duration timeout);
  // What `stream` is given from now on comes behind the collective, but for the start of a bucket.
  Status Enqueue(DeviceStream& stream);

 private:
  struct Copy {
    void* to;
    const void* from;
    int64_t bytes;
  };

  NcclWorld* world_ = nullptr;
  NcclGroup* group_ = nullptr;
  const DeviceCollective* started_ = nullptr;
  bool starts_ = false;
  std::string source_;
  Call call_;
  std::vector<Copy> copies_;  // before the call; of the end of a bucket, after it
  Cut cut_in_, cut_out_;      // of blocks that do not follow one another
  const void* whole_in_ = nullptr;
  void* whole_out_ = nullptr;
  int64_t cleared_ = 0;  // bytes of the output that this rank does not get
  DeviceMemory scratch_;
  uint64_t number_ = 0;  // of the call in this run
};

}  // namespace mslua
