// The order of an epoch: which sample comes where, as a pure function of (seed, epoch).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/data/dataset.h"

namespace mslua::data {

// An epoch's samples and how they are grouped. Its vectors keep their capacity when they are filled again.
struct EpochOrder {
  struct Group {
    uint32_t begin = 0;  // in `samples`
    uint32_t count = 0;
  };
  // pass * size + index: `index` of the source, in pass 0, 1, ... of it (more than one by repeat).
  std::vector<uint32_t> samples;
  // What batch made; empty without it.
  std::vector<Group> groups;
};

class Order {
 public:
  // `size` samples in the source; `feeds` batches make a group. Checks the operations and their
  // arguments; errors name the operation.
  static StatusOr<Order> Make(int64_t size, Sharding sharding, const std::vector<Op>& ops, int64_t feeds);

  bool batched() const { return batch_ != nullptr; }
  const BatchOp* batch() const { return batch_.get(); }
  // Samples and groups of each epoch.
  int64_t samples() const { return samples_; }
  int64_t groups() const { return groups_; }
  // Whether no batch is truncated: none may be, or the samples divide.
  bool full_batches() const {
    return batch_ != nullptr && (batch_->drop_remainder || groups_ * feeds_ * batch_->size == samples_);
  }

  void Evaluate(uint64_t seed, int64_t epoch, EpochOrder* order) const;

 private:
  struct Pass {
    uint64_t seed = 0;
    uint32_t number = 0;  // passes over the source so far in this epoch
  };
  // Adds the operation; *n is how many elements are left.
  Status AddKept(const KeepOp& op, size_t name, int64_t* n);
  Status AddWeighted(const WeightedOp& op, size_t name, int64_t* n);
  // Appends what the first `count` operations give.
  void Append(size_t count, uint64_t epoch, Pass* pass, EpochOrder* order) const;

  int64_t size_ = 0;
  Sharding sharding_;
  std::vector<Op> ops_;                                              // all but map
  std::map<size_t, std::shared_ptr<const std::vector<bool>>> kept_;  // by place in ops_: which samples stay
  std::map<size_t, std::vector<double>> sums_;  // by place in ops_: the weights of the elements up to each, added
  std::vector<uint64_t> names_;                 // of the shuffles: their place among all operations
  std::shared_ptr<const BatchOp> batch_;
  int64_t feeds_ = 1;
  int64_t samples_ = 0, groups_ = 0;
};

}  // namespace mslua::data
