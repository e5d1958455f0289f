// The store of a rank: parameters, optimizer state and running statistics, by name. Formats and addresses
// are fixed for the run; executables borrow it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/image/image.h"

namespace mslua {

// Memory that is 64-byte aligned and zeroed, on huge pages where it is large and the system allows.
class Block {
 public:
  Block() = default;
  explicit Block(int64_t bytes);
  // Memory of somebody else, who keeps it.
  static Block Over(void* data, int64_t bytes);
  ~Block();
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  bool borrowed() const { return borrowed_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  bool borrowed_ = false;
};

class StoreMirror;

class Store {
 public:
  struct Entry {
    std::string name;  // "Net/conv1.weight"; state of an optimizer: "moments.Net/conv1.weight"
    TensorType type;
    std::string kind;                 // kParameter or kState of core/graph
    Block memory;                     // with the newest values
    std::array<void*, 2> sides = {};  // in an image, where a step updates it: memory.data() is one of them
    TensorView view() const { return {type, memory.data()}; }
  };

  // Adds a zeroed tensor. An error when the name is taken.
  StatusOr<TensorView> Add(std::string name, absl::string_view kind, const TensorType& type);
  // Gives a tensor that nobody has borrowed another type, zeroed, and returns the memory that it had.
  StatusOr<Block> Retype(absl::string_view name, const TensorType& type);
  // Null when there is none of that name. Stable until the store goes.
  const Entry* Find(absl::string_view name) const;
  // In the order in which they were added.
  const std::vector<std::unique_ptr<Entry>>& entries() const { return entries_; }
  int64_t bytes() const;

  // The entries as an image has them, by name; `updated` are the names of those that its training's step updates.
  std::vector<ImageEntry> ImageEntries(const absl::flat_hash_set<std::string>& updated) const;
  // Moves all tensors into `image`, which was made for ImageEntries(updated). `adopt`: the values are those of its
  // committed turn; else they are the store's, and no turn is committed. Everybody's pointers into the store's memory
  // become invalid, but for executables.
  void Settle(std::shared_ptr<Image> image, const absl::flat_hash_set<std::string>& updated, bool adopt);
  // Null: the tensors live as long as this process.
  Image* image() const { return image_.get(); }
  // Which side of the image has the newest values, and which one a step may write: another one, where the newest are
  // committed. 0 without an image.
  int side() const { return side_; }
  int free_side() const { return side_ == committed_ ? 1 - side_ : side_; }
  // A step has written all that it updates on that side.
  void TurnTo(int side);
  // The newest values are committed: from now on the other side is written.
  void Committed() { committed_ = image_ == nullptr ? kNone : side_; }
  // Tensors that an accelerator updates have a mirror, whose values may be newer. Fetch brings the newest to the
  // entry's memory: before anything but a step reads it.
  Status Fetch(const Entry& entry) const;
  Status FetchAll() const;
  // The same before somebody writes the entry's memory.
  Status HostWrites(const Entry& entry) const;
  const std::shared_ptr<StoreMirror>& mirror() const { return mirror_; }
  void set_mirror(std::shared_ptr<StoreMirror> mirror) { mirror_ = std::move(mirror); }

  // Before anything but a step writes that entry: what is committed is kept. The newest values move to the side that
  // may be written; where the entry has one side alone, nothing is committed any more.
  Status PrepareToWrite(const Entry& entry);
  // Grows when tensors have moved.
  int64_t generation() const { return generation_; }

 private:
  static constexpr int kNone = -1;
  std::vector<Entry*> ByName() const;

  std::vector<std::unique_ptr<Entry>> entries_;
  absl::flat_hash_map<std::string, Entry*> by_name_;
  std::shared_ptr<Image> image_;
  std::shared_ptr<StoreMirror> mirror_;
  int side_ = 0, committed_ = kNone;
  int64_t generation_ = 0;
};

// Where an accelerator keeps the tensors of a store.
class StoreMirror {
 public:
  virtual ~StoreMirror() = default;
  // Brings the entry's memory up to date.
  virtual Status Fetch(const Store::Entry& entry) = 0;
  // The entry's memory, which is up to date, is going to be written: from now on its values are the newest.
  virtual void HostWrites(const Store::Entry& entry) = 0;
  // The entry gets another type: who asks for its address later gets new memory.
  virtual void Forget(const Store::Entry& entry) = 0;
};

}  // namespace mslua
