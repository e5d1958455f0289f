// The store of a rank: parameters, optimizer state and running statistics, by name. Formats and addresses
// are fixed for the run; executables borrow it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "core/base/shape.h"
#include "core/base/status.h"

namespace mslua {

// Memory that is 64-byte aligned and zeroed, on huge pages where it is large and the system allows.
class Block {
 public:
  Block() = default;
  explicit Block(int64_t bytes);
  ~Block();
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

class Store {
 public:
  struct Entry {
    std::string name;  // "Net/conv1.weight"; state of an optimizer: "moments.Net/conv1.weight"
    TensorType type;
    std::string kind;  // kParameter or kState of core/graph
    Block memory;
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

 private:
  std::vector<std::unique_ptr<Entry>> entries_;
  absl::flat_hash_map<std::string, Entry*> by_name_;
};

}  // namespace mslua
