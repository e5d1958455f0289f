// The values that a store's tensors had between two steps, while later steps run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/runtime/store.h"

namespace mslua {

class StoreSnapshot {
 public:
  virtual ~StoreSnapshot() = default;
  // Copies the values of tensor `i`, as they were given to Reserve, to host memory. One thread uses a snapshot.
  virtual Status Read(size_t i, void* to) = 0;
};

// An accelerator that has the store's tensors, and memory for copies of them.
class StoreSnapshots {
 public:
  virtual ~StoreSnapshots() = default;
  // Sets memory aside for a snapshot of these tensors, until the next call; gives its bytes. ResourceExhausted: there
  // is too little.
  virtual StatusOr<int64_t> Reserve(std::vector<const Store::Entry*> entries) = 0;
  // Their values between two steps. The next step waits for the copy, the caller does not. The snapshot before has
  // gone; the store outlives this one.
  virtual StatusOr<std::unique_ptr<StoreSnapshot>> Take() = 0;
};

// Null: the store's tensors are in host memory alone.
inline StoreSnapshots* SnapshotsOf(const Store& store) { return dynamic_cast<StoreSnapshots*>(store.mirror().get()); }

}  // namespace mslua
