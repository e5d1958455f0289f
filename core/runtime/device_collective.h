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

class DeviceCollective {
 public:
  // The collective of `node` in `group`, whose inputs and outputs lie at `pointers` of the device. `scratch`: BlocksOf
  // bytes, for what comes before the call and then for what comes after.
  static std::unique_ptr<DeviceCollective> Make(const Graph& graph, int32_t node, NcclWorld* world, NcclGroup* group,
                                                const std::vector<void*>& pointers, void* scratch,
                                                absl::Duration timeout);
  // What comes before the call, on the stream that computes.
  Status Pack(DeviceStream& stream) const;
  // The call, on NCCL's stream, behind what `stream` has been given.
  Status Enqueue(DeviceStream& stream);
  // What `stream` is given from now on comes behind the call that was enqueued last.
  Status After(DeviceStream& stream) const;
  // What comes after the call, on the stream that computes.
  Status Unpack(DeviceStream& stream) const;

 private:
  struct Copy {
    void* to;
    const void* from;
    int64_t bytes;
  };

  NcclWorld* world_ = nullptr;
  NcclGroup* group_ = nullptr;
  std::string source_;
  Call call_;
  std::vector<Copy> copies_, copies_back_;  // before the call, after it
  Split split_in_, split_out_;              // of blocks that do not follow one another
  const void* whole_in_ = nullptr;
  void* whole_out_ = nullptr;
  int64_t cleared_ = 0;  // bytes of the output that this rank does not get
  bool called_ = false;
  uint64_t number_ = 0;  // of the newest call
};

}  // namespace mslua
