// The tensors of a store in a device's memory: where steps read and update them. Host memory and the device's are
// brought together on demand, tensor by tensor.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/device/device.h"
#include "core/runtime/store.h"
#include "core/runtime/store_snapshot.h"

namespace mslua {

class DeviceStore : public StoreMirror, public StoreSnapshots {
 public:
  // The store's mirror on `device`, made where it has none.
  static StatusOr<std::shared_ptr<DeviceStore>> Of(Store* store, Device* device);

  // Where the device has the tensor; stable until the store goes.
  StatusOr<void*> AddressOf(const Store::Entry& entry);
  // So many bytes that nothing has lie behind each tensor of which the address has not been asked yet.
  void SetGuard(int64_t bytes) { guard_ = bytes; }
  // Where they are; null: there are none.
  void* GuardOf(const Store::Entry& entry) const;
  // Before a step on `stream`: it waits for the newest snapshot, unless `*snapshot` says that the stream does, and
  // copies what host code has written since to the device.
  Status Upload(DeviceStream& stream, int64_t* snapshot);
  // A step has updated the tensor.
  void DeviceWrote(const Store::Entry& entry) { tensors_.at(&entry).newest = Newest::kDevice; }

  Status Fetch(const Store::Entry& entry) override;
  void HostWrites(const Store::Entry& entry) override;
  void Forget(const Store::Entry& entry) override;
  StatusOr<int64_t> Reserve(std::vector<const Store::Entry*> entries) override;
  StatusOr<std::unique_ptr<StoreSnapshot>> Take() override;

 private:
  class Snapshot;
  enum class Newest { kHost, kDevice, kBoth };
  struct Tensor {
    DeviceMemory memory;
    bool guarded = false;
    Newest newest = Newest::kHost;
  };
  // Pinned memory that a part of a snapshot is copied to.
  struct Piece {
    PinnedMemory memory;
    DeviceEvent copied;
  };
  DeviceStore(Device* device, DeviceStream stream) : device_(device), stream_(std::move(stream)) {}

  Device* device_;
  DeviceStream stream_;
  absl::flat_hash_map<const Store::Entry*, Tensor> tensors_;
  std::vector<DeviceMemory> forgotten_;  // executables may still have its address
  int host_newer_ = 0;
  int64_t guard_ = 0;
  std::vector<const Store::Entry*> snapshot_entries_;
  DeviceMemory snapshot_memory_;
  DeviceEvent snapshot_taken_;
  int64_t snapshots_ = 0;
  // Of the thread that reads a snapshot.
  DeviceStream read_stream_;
  std::array<Piece, 2> pieces_;
};

}  // namespace mslua
