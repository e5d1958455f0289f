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
  // Where memory is guarded (guard.h): takes the access away, of borrowed memory from whole pages alone, and gives it
  // back.
  void Close() const;
  void Open() const;

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  bool borrowed_ = false;
};

class StoreMirror;

class Store {
 public:
  class Entry {
   public:
    std::string name;  // "Net/conv1.weight"; state of an optimizer: "moments.Net/conv1.weight"
    TensorType type;
    std::string kind;  // kParameter or kState of core/graph

   private:
    friend class Store;
    Block memory_;                     // with the newest values
    std::array<void*, 2> sides_ = {};  // in an image, where a step updates it: memory_.data() is one of them
    mutable bool open_ = true;         // false: its memory is closed (guard.h)
  };

  // Adds a zeroed tensor and gives its memory as Write does. An error when the name is taken.
  StatusOr<TensorView> Add(std::string name, absl::string_view kind, const TensorType& type);
  // Gives a tensor that nobody has borrowed another type, zeroed, and returns the memory that it had. An error in an
  // image, which has places for the types that it was made for.
  StatusOr<Block> Retype(absl::string_view name, const TensorType& type);
  // Null when there is none of that name. Stable until the store goes.
  const Entry* Find(absl::string_view name) const;
  // All but steps reach values through these three, which give a tensor's memory until the next step. Read: the newest
  // values. Write: to be written, while what is committed is kept: the newest values move to the side that may be
  // written; where the entry has one side alone, nothing is committed any more. WriteInPlace: to be written where the
  // newest values are, before the first turn is committed.
  StatusOr<TensorView> Read(const Entry& entry) const;
  StatusOr<TensorView> Write(const Entry& entry);
  StatusOr<TensorView> WriteInPlace(const Entry& entry) const;
  // In the order in which they were added.
  const std::vector<std::unique_ptr<Entry>>& entries() const { return entries_; }
  int64_t bytes() const;

  // The entries as an image has them, by name; `updated` are the names of those that its training's step updates.
  std::vector<ImageEntry> ImageEntries(const absl::flat_hash_set<std::string>& updated) const;
  // Moves all tensors into `image`, which was made for ImageEntries(updated); with kCopies those that are updated stay
  // in memory of their own. `adopt`: the values are those of its committed turn; else they are the store's, and no turn
  // is committed. Everybody's pointers into the store's memory become invalid, but for executables.
  void Settle(std::shared_ptr<Image> image, const absl::flat_hash_set<std::string>& updated, ImageWriter writer,
              bool adopt);
  // Null: the tensors live as long as this process.
  Image* image() const { return image_.get(); }
  // Which side of the image has the newest values, and which one a step may write: another one, where the newest are
  // committed. 0 without an image.
  int side() const { return side_; }
  int free_side() const { return side_ == committed_ ? 1 - side_ : side_; }
  // A step has written all that it updates on that side.
  void TurnTo(int side);
  // In an image: prepares the newest values with that record of their turn; commits what was prepared, so that from now
  // on the other side is written.
  Status PrepareTurn(int64_t turn, absl::string_view record);
  void CommitTurn();
  // Where the committed values of the tensors that are updated lie in the image.
  std::vector<const char*> CommittedPlaces() const;

  // ---- For steps and mirrors

  // Where the newest values lie, and where the tensor lies on a side.
  static void* Address(const Entry& entry) { return entry.memory_.data(); }
  static void* Address(const Entry& entry, int side);
  // Whether a step that is kept in an image writes another side than it reads.
  static bool HasSides(const Entry& entry) { return entry.sides_[0] != nullptr; }
  // Whether it lies in an image.
  static bool InImage(const Entry& entry) { return entry.memory_.borrowed(); }
  // Tensors that an accelerator updates have a mirror, whose values may be newer. Fetch brings the newest to the
  // entry's memory; HostWrites also says that they are going to be written there.
  Status Fetch(const Entry& entry) const;
  Status HostWrites(const Entry& entry) const;
  Status PrepareToWrite(const Entry& entry);
  const std::shared_ptr<StoreMirror>& mirror() const { return mirror_; }
  void set_mirror(std::shared_ptr<StoreMirror> mirror) { mirror_ = std::move(mirror); }
  // Where memory is guarded: gives access to a tensor; to all, and takes it away.
  void Open(const Entry& entry) const;
  void OpenAll() const;
  // Opens the tensor whose memory begins at the address, if there is one.
  void OpenAt(const void* data) const;
  void CloseAll() const;

  // Grows when tensors have moved.
  int64_t generation() const { return generation_; }

 private:
  static constexpr int kNone = -1;
  std::vector<Entry*> ByName() const;

  std::vector<std::unique_ptr<Entry>> entries_;
  absl::flat_hash_map<std::string, Entry*> by_name_;
  // What is copied into the image when a turn is prepared, and where to.
  struct Copied {
    const Entry* entry;
    std::array<const char*, 2> places;
  };

  std::shared_ptr<Image> image_;
  ImageWriter writer_ = ImageWriter::kSteps;
  std::vector<Copied> copied_;
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
