// The groups of a rank: its world, and parts of it by their list of world ranks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/base/status.h"

namespace mslua {

class Communicator;

// Used by the rank's own thread.
class Groups {
 public:
  explicit Groups(std::unique_ptr<Communicator> world);
  ~Groups();

  Communicator& world() const { return *world_; }
  int rank() const;
  int size() const;

  // The group of these ranks of the world, in this order; lives as long as this. Made on first use by its members
  // together: all ranks ask for their groups in one order, as the nodes of a program that they share do. `source` is
  // the recipe line, for messages. InvalidArgument: no such ranks, or this one not among them. Another error, with
  // kExitHang, where the others do not make it within the timeout, or list it in another order.
  StatusOr<Communicator*> Get(absl::Span<const int64_t> ranks, absl::string_view source);

  // At least `bytes` of memory that the peers of the host reach without a copy, for one program at a time: the next
  // call may give the same. Called by all ranks of the world; null for 0 bytes on every rank.
  StatusOr<void*> Shared(int64_t bytes);

  // OK, or the error that has ended a group.
  Status Health();

  // The line of a script that runs now ("train.lua:88"), for calls that have none of their own.
  const std::string& caller() const { return caller_; }
  void set_caller(std::string caller) { caller_ = std::move(caller); }

  // How long a call of a program waits without any rank's progress: others may compile or write a checkpoint meanwhile.
  absl::Duration timeout() const { return timeout_; }
  void set_timeout(absl::Duration timeout) { timeout_ = timeout; }

 private:
  std::unique_ptr<Communicator> world_;
  std::map<std::vector<int>, std::unique_ptr<Communicator>> parts_;  // after world_: they go first
  void* shared_ = nullptr;
  int64_t shared_bytes_ = 0;
  std::string caller_;
  absl::Duration timeout_ = absl::Minutes(5);
};

}  // namespace mslua
