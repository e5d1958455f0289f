#include "core/runtime/device_store.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/runtime/device_layout.h"

namespace mslua {
namespace {

constexpr int64_t kPiece = 16 << 20;  // bytes of pinned memory that a snapshot is read through, twice
constexpr int64_t kKeptFree = 20;     // a snapshot leaves one of so many parts of the device's memory free

}  // namespace

// Copies out piece by piece: while one is moved to its place the next one comes.
class DeviceStore::Snapshot : public StoreSnapshot {
 public:
  struct Tensor {
    const void* device = nullptr;  // null: host memory has it
    std::string host;
    int64_t bytes = 0;
  };

  Snapshot(DeviceStore* store, std::vector<Tensor> tensors) : store_(store), tensors_(std::move(tensors)) {}
  // Work that has been enqueued reads memory that the next snapshot writes.
  ~Snapshot() override {
    if (store_->device_->Enter().ok()) store_->read_stream_.Wait().IgnoreError();
  }

  Status Read(size_t i, void* to) override {
    const Tensor& t = tensors_[i];
    if (t.device == nullptr) {
      std::memcpy(to, t.host.data(), t.host.size());
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(store_->device_->Enter());
    DeviceStream& stream = store_->read_stream_;
    const auto size = [&](int64_t at) { return std::min(kPiece, t.bytes - at); };
    const auto enqueue = [&](int64_t at) -> Status {
      Piece& piece = store_->pieces_[at / kPiece % 2];
      RETURN_IF_ERROR(stream.CopyOut(piece.memory.data(), static_cast<const char*>(t.device) + at, size(at)));
      return stream.Record(piece.copied);
    };
    if (t.bytes > 0) RETURN_IF_ERROR(enqueue(0));
    for (int64_t at = 0; at < t.bytes; at += kPiece) {
      if (at + kPiece < t.bytes) RETURN_IF_ERROR(enqueue(at + kPiece));
      const Piece& piece = store_->pieces_[at / kPiece % 2];
      RETURN_IF_ERROR(piece.copied.Wait());
      std::memcpy(static_cast<char*>(to) + at, piece.memory.data(), static_cast<size_t>(size(at)));
    }
    return absl::OkStatus();
  }

 private:
  DeviceStore* const store_;
  const std::vector<Tensor> tensors_;
};

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

Status DeviceStore::Upload(DeviceStream& stream, int64_t* snapshot) {
  if (*snapshot != snapshots_) RETURN_IF_ERROR(stream.WaitFor(snapshot_taken_));
  *snapshot = snapshots_;
  if (host_newer_ == 0) return absl::OkStatus();
  for (auto& [entry, tensor] : tensors_) {
    if (tensor.newest != Newest::kHost) continue;
    RETURN_IF_ERROR(stream.CopyIn(tensor.memory.data(), Store::Address(*entry), entry->type.bytes()));
    tensor.newest = Newest::kBoth;
  }
  host_newer_ = 0;
  return absl::OkStatus();
}

Status DeviceStore::Fetch(const Store::Entry& entry) {
  const auto at = tensors_.find(&entry);
  if (at == tensors_.end() || at->second.newest != Newest::kDevice) return absl::OkStatus();
  RETURN_IF_ERROR(device_->Enter());
  RETURN_IF_ERROR(stream_.CopyOut(Store::Address(entry), at->second.memory.data(), entry.type.bytes()));
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

StatusOr<int64_t> DeviceStore::Reserve(std::vector<const Store::Entry*> entries) {
  RETURN_IF_ERROR(device_->Enter());
  snapshot_memory_ = DeviceMemory();
  snapshot_entries_ = std::move(entries);
  int64_t bytes = 0, most = 0;
  for (const Store::Entry* e : snapshot_entries_) {
    if (!tensors_.contains(e)) continue;
    bytes += SnapshotBytes(e->type);
    most = std::max(most, e->type.bytes());
  }
  ASSIGN_OR_RETURN(const int64_t free, device_->FreeBytes());
  if (bytes > free - device_->info().memory_bytes / kKeptFree)
    return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes, of which the device has ", free, " free"));
  ASSIGN_OR_RETURN(snapshot_memory_, device_->Allocate(bytes));
  ASSIGN_OR_RETURN(snapshot_taken_, device_->MakeEvent());
  ASSIGN_OR_RETURN(read_stream_, device_->MakeStream());
  for (Piece& piece : pieces_) {
    ASSIGN_OR_RETURN(piece.memory, device_->AllocatePinned(std::min(most, kPiece)));
    ASSIGN_OR_RETURN(piece.copied, device_->MakeEvent());
  }
  return bytes;
}

StatusOr<std::unique_ptr<StoreSnapshot>> DeviceStore::Take() {
  RETURN_IF_ERROR(device_->Enter());
  std::vector<Snapshot::Tensor> tensors;
  int64_t at = 0;
  for (const Store::Entry* e : snapshot_entries_) {
    Snapshot::Tensor t;
    t.bytes = e->type.bytes();
    const auto here = tensors_.find(e);
    const bool on_device = here != tensors_.end();
    if (on_device && here->second.newest != Newest::kHost) {
      char* const copy = static_cast<char*>(snapshot_memory_.data()) + at;
      RETURN_IF_ERROR(stream_.CopyWithin(copy, here->second.memory.data(), t.bytes));
      t.device = copy;
    } else {
      t.host.assign(static_cast<const char*>(Store::Address(*e)), static_cast<size_t>(t.bytes));
    }
    if (on_device) at += SnapshotBytes(e->type);
    tensors.push_back(std::move(t));
  }
  RETURN_IF_ERROR(stream_.Record(snapshot_taken_));
  ++snapshots_;
  RETURN_IF_ERROR(read_stream_.WaitFor(snapshot_taken_));
  return std::unique_ptr<StoreSnapshot>(std::make_unique<Snapshot>(this, std::move(tensors)));
}

void DeviceStore::Forget(const Store::Entry& entry) {
  const auto at = tensors_.find(&entry);
  if (at == tensors_.end()) return;
  if (at->second.newest == Newest::kHost) --host_newer_;
  forgotten_.push_back(std::move(at->second.memory));
  tensors_.erase(at);
}

}  // namespace mslua
