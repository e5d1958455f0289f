#include "core/runtime/device_store.h"

#include "absl/strings/str_cat.h"

namespace mslua {

StatusOr<std::shared_ptr<DeviceStore>> DeviceStore::Of(Store* store, Device* device) {
  if (auto* const there = dynamic_cast<DeviceStore*>(store->mirror().get())) {
    if (there->device_ != device) return absl::InternalError("the store is on another device");
    return std::static_pointer_cast<DeviceStore>(store->mirror());
  }
  ASSIGN_OR_RETURN(DeviceStream stream, device->MakeStream());
  auto made = std::shared_ptr<DeviceStore>(new DeviceStore(device, std::move(stream)));
  store->set_mirror(made);
  return made;
}

StatusOr<void*> DeviceStore::AddressOf(const Store::Entry& entry) {
  const auto at = tensors_.find(&entry);
  if (at != tensors_.end()) return at->second.memory.data();
  Tensor tensor;
  auto memory = device_->Allocate(entry.type.bytes() + guard_);
  if (!memory.ok()) return Annotate(memory.status(), absl::StrCat("'", entry.name, "' ", ToString(entry.type)));
  tensor.memory = *std::move(memory);
  tensor.guarded = guard_ > 0;
  ++host_newer_;
  return tensors_.emplace(&entry, std::move(tensor)).first->second.memory.data();
}

void* DeviceStore::GuardOf(const Store::Entry& entry) const {
  const auto at = tensors_.find(&entry);
  if (at == tensors_.end() || !at->second.guarded) return nullptr;
  return static_cast<char*>(at->second.memory.data()) + entry.type.bytes();
}

Status DeviceStore::Upload(DeviceStream& stream) {
  if (host_newer_ == 0) return absl::OkStatus();
  for (auto& [entry, tensor] : tensors_) {
    if (tensor.newest != Newest::kHost) continue;
    RETURN_IF_ERROR(stream.CopyIn(tensor.memory.data(), entry->memory.data(), entry->type.bytes()));
    tensor.newest = Newest::kBoth;
  }
  host_newer_ = 0;
  return absl::OkStatus();
}

Status DeviceStore::Fetch(const Store::Entry& entry) {
  const auto at = tensors_.find(&entry);
  if (at == tensors_.end() || at->second.newest != Newest::kDevice) return absl::OkStatus();
  RETURN_IF_ERROR(device_->Enter());
  RETURN_IF_ERROR(stream_.CopyOut(entry.memory.data(), at->second.memory.data(), entry.type.bytes()));
  RETURN_IF_ERROR(stream_.Wait());
  at->second.newest = Newest::kBoth;
  return absl::OkStatus();
}

void DeviceStore::HostWrites(const Store::Entry& entry) {
  const auto at = tensors_.find(&entry);
  if (at == tensors_.end() || at->second.newest == Newest::kHost) return;
  at->second.newest = Newest::kHost;
  ++host_newer_;
}

void DeviceStore::Forget(const Store::Entry& entry) {
  const auto at = tensors_.find(&entry);
  if (at == tensors_.end()) return;
  if (at->second.newest == Newest::kHost) --host_newer_;
  forgotten_.push_back(std::move(at->second.memory));
  tensors_.erase(at);
}

}  // namespace mslua
