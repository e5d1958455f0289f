// The order of an epoch: which sample comes where, as a pure function of (seed, epoch).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/data/dataset.h"

namespace mslua::data {

// An epoch's samples and how they are grouped. Its vectors keep their capacity when they are filled again.
struct EpochOrder {
  struct Group {
    uint32_t begin = 0;  // in `samples`
    uint32_t count = 0;
    uint32_t shape = 0;  // Order::shapes()[shape]
  };
  // pass * size + index: `index` of the source, in pass 0, 1, ... of it (more than one by repeat).
  std::vector<uint32_t> samples;
  // What batch made; empty without it.
  std::vector<Group> groups;
};

// What batches of one shape have in common.
struct BatchShape {
  int64_t rows = 1;     // of a full batch; 1 without batch
  int64_t length = -1;  // the longest length of its bucket; -1: there is none
  int64_t batches = 0;  // of an epoch, before operations behind batch
};

class Order {
 public:
  // `size` samples in the source; `feeds` batches make a group. Checks the operations and their
  // arguments; errors name the operation, and a sample as `where` does, by its number from 0.
  static StatusOr<Order> Make(int64_t size, Sharding sharding, const std::vector<Op>& ops, int64_t feeds,
                              const std::function<std::string(int64_t sample)>& where);

  bool batched() const { return batch_ != nullptr; }
  const BatchOp* batch() const { return batch_.get(); }
  // Groups of each epoch.
  int64_t groups() const { return groups_; }
  // Whether no batch is truncated: none may be, or the samples divide.
  bool full_batches() const { return batch_ != nullptr && (batch_->drop_remainder || full_); }
  // Samples of an epoch that drop_remainder leaves out.
  int64_t left_out() const { return left_out_; }
  // Of the batches: with buckets one for each bucket that has any, from the longest on; else one.
  const std::vector<BatchShape>& shapes() const { return shapes_; }

  void Evaluate(uint64_t seed, int64_t epoch, EpochOrder* order) const;

 private:
  struct Pass {
    uint64_t seed = 0;
    uint32_t number = 0;  // passes over the source so far in this epoch
  };
  // What makes the number of samples behind the operations so far differ from epoch to epoch; empty: nothing does.
  std::string Varies() const;
  // Adds the operation; *n is how many elements are left.
  Status AddKept(const KeepOp& op, size_t name, int64_t* n);
  Status AddWeighted(const WeightedOp& op, size_t name, int64_t* n);
  Status AddBatch(const BatchOp& op, size_t name, int64_t n, int64_t* groups);
  Status AddBuckets(const BatchOp& op, size_t name, const std::function<std::string(int64_t sample)>& where,
                    int64_t* groups);
  // The groups of the samples from place `first` on, which they are put in order by.
  void AppendBuckets(const BatchOp& op, size_t first, EpochOrder* order) const;
  // Appends what the first `count` operations give.
  void Append(size_t count, uint64_t epoch, Pass* pass, EpochOrder* order) const;

  int64_t size_ = 0;
  Sharding sharding_;
  std::vector<Op> ops_;                                              // all but map
  std::map<size_t, std::shared_ptr<const std::vector<bool>>> kept_;  // by place in ops_: which samples stay
  std::map<size_t, std::vector<double>> sums_;  // by place in ops_: the weights of the elements up to each, added
  std::vector<uint64_t> names_;                 // of the shuffles: their place among all operations
  std::shared_ptr<const BatchOp> batch_;
  std::vector<BatchShape> shapes_ = {{}};
  std::vector<uint32_t> shape_of_;  // of each bucket
  int64_t feeds_ = 1;
  int64_t groups_ = 0;
  int64_t left_out_ = 0;
  bool full_ = false;
};

}  // namespace mslua::data
