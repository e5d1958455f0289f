#include "core/data/order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/rng.h"
#include "core/base/round_up.h"

namespace mslua::data {
namespace {

constexpr int64_t kMaxSamples = int64_t{1} << 31;  // of an epoch, so that 32 bits number them

// Emits the elements from `begin` on in the order of a buffered shuffle: draw a random element of the
// buffer, put the next element in its place; at the end draw until it is empty. Works in place: emitted
// elements need one place each, and the buffer is the part behind them.
template <class T>
void BufferedShuffle(std::vector<T>* all, size_t begin, int64_t buffer_size, uint64_t seed, uint64_t stream) {
  const size_t n = all->size() - begin;
  T* element = all->data() + begin;
  for (size_t i = 0; i + 1 < n; ++i) {
    // The buffer is [i, i + held). Swapping puts what comes next behind what is drawn.
    const size_t held = std::min<size_t>(static_cast<size_t>(buffer_size), n - i);
    std::swap(element[i], element[i + UniformIntAt(seed, stream, i, held)]);
  }
}

template <class T>
void Drop(std::vector<T>* all, size_t begin, int64_t skip) {
  const size_t n = std::min<size_t>(static_cast<size_t>(skip), all->size() - begin);
  all->erase(all->begin() + begin, all->begin() + begin + n);
}

template <class T>
void Keep(std::vector<T>* all, size_t begin, int64_t take) {
  all->resize(begin + std::min<size_t>(static_cast<size_t>(take), all->size() - begin));
}

// Numbers of the elements that are drawn, from 0. `sums`: the weights up to each element, added.
std::vector<size_t> DrawWeighted(const WeightedOp& op, const std::vector<double>& sums, uint64_t seed,
                                 uint64_t stream) {
  constexpr uint64_t kSteps = uint64_t{1} << 53;
  const auto uniform = [&](uint64_t i) {  // in [0, 1)
    return static_cast<double>(UniformIntAt(seed, stream, i, kSteps)) / static_cast<double>(kSteps);
  };
  const auto count = static_cast<size_t>(op.count);
  std::vector<size_t> drawn(count);
  if (op.replacement) {
    // Below the sum after rounding too, so that no element of weight 0 is found.
    const double most = std::nextafter(sums.back(), 0.0);
    for (size_t i = 0; i < count; ++i) {
      const auto at = std::upper_bound(sums.begin(), sums.end(), std::min(uniform(i) * sums.back(), most));
      drawn[i] = static_cast<size_t>(at - sums.begin());
    }
    return drawn;
  }
  // The largest of u^(1/w), in that order, have the distribution of draws one after another (Efraimidis and Spirakis,
  // "Weighted random sampling with a reservoir", 2006). Its logarithm does not underflow.
  std::vector<std::pair<double, size_t>> keys(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    const double weight = (*op.weights)[i];
    keys[i] = {weight > 0 ? std::log1p(-uniform(i)) / weight : -std::numeric_limits<double>::infinity(), i};
  }
  const auto first = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  std::partial_sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count), keys.end(), first);
  for (size_t i = 0; i < count; ++i) drawn[i] = keys[i].second;
  return drawn;
}

int64_t CountOf(const Op& op) {
  if (const auto* shuffle = std::get_if<ShuffleOp>(&op)) return shuffle->buffer_size;
  if (const auto* repeat = std::get_if<RepeatOp>(&op)) return repeat->count;
  if (const auto* take = std::get_if<TakeOp>(&op)) return take->count;
  if (const auto* skip = std::get_if<SkipOp>(&op)) return skip->count;
  return 1;
}

// That of the length; behind the last one: no bucket has it.
size_t BucketOf(const Buckets& buckets, int64_t length) {
  const auto above = std::upper_bound(buckets.boundaries.begin(), buckets.boundaries.end(), length);
  return static_cast<size_t>(above - buckets.boundaries.begin());
}

// The longest length of a bucket; -1: it has no longest one.
int64_t LengthOf(const Buckets& buckets, size_t bucket) {
  return bucket < buckets.boundaries.size() ? buckets.boundaries[bucket] - 1 : -1;
}

bool PadsToLength(const BatchOp& op) {
  return std::any_of(op.padding.begin(), op.padding.end(), [](const auto& padding) {
    const std::vector<int64_t>& shape = padding.second.shape;
    return std::find(shape.begin(), shape.end(), -1) != shape.end();
  });
}

Status CheckBuckets(const Buckets& buckets, int64_t feeds) {
  const auto refuse = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("bucket_batch_by_length: ", what));
  };
  const std::vector<int64_t>&boundaries = buckets.boundaries, &sizes = buckets.sizes;
  bool increasing = !boundaries.empty() && boundaries[0] > 0;
  for (size_t i = 1; i < boundaries.size(); ++i) increasing &= boundaries[i] > boundaries[i - 1];
  if (!increasing)
    return refuse(absl::StrCat("bucket_boundaries: expected positive integers, each larger than the one before, got {",
                               absl::StrJoin(boundaries, ", "), "}"));
  const size_t n = boundaries.size();
  if (sizes.size() != n && sizes.size() != n + 1)
    return refuse(absl::StrCat("bucket_batch_sizes: expected ", n, " sizes, one for each of bucket_boundaries, or ",
                               n + 1, " with one for longer samples, got ", sizes.size()));
  for (const int64_t size : sizes) {
    if (size < 1 || size > kMaxSamples / feeds)
      return refuse(
          absl::StrCat("bucket_batch_sizes: expected positive integers up to ", kMaxSamples / feeds, ", got ", size));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Order> Order::Make(int64_t size, Sharding sharding, const std::vector<Op>& ops, int64_t feeds,
                            const std::function<std::string(int64_t sample)>& where) {
  if (sharding.num_shards < 0 || sharding.shard_id < 0 ||
      sharding.shard_id >= std::max<int64_t>(sharding.num_shards, 1)) {
    return absl::InvalidArgumentError(absl::StrCat("num_shards = ", sharding.num_shards,
                                                   ", shard_id = ", sharding.shard_id,
                                                   ": expected num_shards >= 1 and 0 <= shard_id < num_shards"));
  }
  Order order;
  order.size_ = size;
  order.sharding_ = sharding;
  order.feeds_ = feeds;
  int64_t n = sharding.num_shards > 0 ? CeilDiv(size, sharding.num_shards) : size;
  int64_t passes = 1;
  int64_t groups = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    if (std::holds_alternative<MapOp>(op) || std::holds_alternative<ProjectOp>(op) ||
        std::holds_alternative<RenameOp>(op) || std::holds_alternative<CallOp>(op) || std::holds_alternative<MixOp>(op))
      continue;
    if (const auto* weighted = std::get_if<WeightedOp>(&op)) {
      RETURN_IF_ERROR(order.AddWeighted(*weighted, i, &n));
      continue;
    }
    if (const auto* keep = std::get_if<KeepOp>(&op)) {
      RETURN_IF_ERROR(order.AddKept(*keep, i, &n));
      continue;
    }
    if (const auto* batch = std::get_if<BatchOp>(&op)) {
      if (order.batch_ != nullptr)
        return absl::InvalidArgumentError(absl::StrCat(Name(op), ": the dataset is batched already"));
      RETURN_IF_ERROR(batch->buckets == nullptr ? order.AddBatch(*batch, i, n, &groups)
                                                : order.AddBuckets(*batch, i, where, &groups));
      continue;
    }
    const int64_t count = CountOf(op);
    if (count < 1 && !(count == 0 && std::holds_alternative<SkipOp>(op))) {
      return absl::InvalidArgumentError(absl::StrCat(Name(op), ": expected a positive integer, got ", count));
    }
    int64_t* elements = order.batch_ != nullptr ? &groups : &n;
    if (std::holds_alternative<RepeatOp>(op)) {
      const int64_t longest = std::max<int64_t>({n, passes * size, 1});
      if (count > kMaxSamples / longest) {
        return absl::InvalidArgumentError(
            absl::StrCat("repeat: ", count, " times ", n, " samples is too long for one epoch; train more epochs"));
      }
      n *= count;
      groups *= count;
      order.left_out_ *= count;
      passes *= count;
    } else if (std::holds_alternative<TakeOp>(op)) {
      *elements = std::min(*elements, count);
    } else if (std::holds_alternative<SkipOp>(op)) {
      *elements = std::max<int64_t>(*elements - count, 0);
    }
    order.names_.push_back(i);
    order.ops_.push_back(op);
  }
  if (passes * size > kMaxSamples) {
    return absl::InvalidArgumentError(
        absl::StrCat(size, " samples are more than an epoch may have (", kMaxSamples, ")"));
  }
  // The tail of a feed may be empty, an epoch may not. Samples without a batch have no place for a mark of their own
  // that says that they are empty: each feed has as many.
  order.groups_ = order.batch_ != nullptr ? groups : n / feeds;
  if (order.batch_ == nullptr) order.left_out_ = n % feeds;
  if (order.groups_ < 1) {
    return absl::InvalidArgumentError(absl::StrCat("the dataset gives nothing: ", size,
                                                   " samples in the source, none left after its operations",
                                                   feeds > 1 ? absl::StrCat(" for ", feeds, " feeds") : ""));
  }
  return order;
}

Status Order::AddBatch(const BatchOp& op, size_t name, int64_t n, int64_t* groups) {
  if (op.size < 1) return absl::InvalidArgumentError(absl::StrCat("batch: expected a positive integer, got ", op.size));
  if (op.size > kMaxSamples / feeds_)
    return absl::InvalidArgumentError(absl::StrCat("batch: ", op.size, " is too large"));
  const int64_t rows = op.size * feeds_;
  if (n < rows && op.drop_remainder) {
    return absl::InvalidArgumentError(absl::StrCat("batch: no full batch of ", op.size,
                                                   feeds_ > 1 ? absl::StrCat(" x ", feeds_, " feeds") : "", " in ", n,
                                                   " samples; make the batch smaller or set drop_remainder = false"));
  }
  *groups = op.drop_remainder ? n / rows : CeilDiv(n, rows);
  full_ = n % rows == 0;
  left_out_ = op.drop_remainder ? n % rows : 0;
  batch_ = std::make_shared<const BatchOp>(op);
  shapes_ = {{op.size, -1, *groups}};
  ops_.push_back(op);
  names_.push_back(name);
  return absl::OkStatus();
}

Status Order::AddBuckets(const BatchOp& op, size_t name, const std::function<std::string(int64_t sample)>& where,
                         int64_t* groups) {
  const auto refuse = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("bucket_batch_by_length: ", what));
  };
  const Buckets& buckets = *op.buckets;
  RETURN_IF_ERROR(CheckBuckets(buckets, feeds_));
  if (static_cast<int64_t>(buckets.lengths->size()) != size_)
    return refuse(absl::StrCat("expected a length for each of ", size_, " samples, got ", buckets.lengths->size()));
  if (sharding_.num_shards > 0)
    return refuse(
        "the parts of num_shards would have other buckets at the same step: leave num_shards out, ranks share the "
        "samples");
  if (const std::string varies = Varies(); !varies.empty())
    return refuse(
        absl::StrCat("how many batches there are would differ from epoch to epoch: leave ", varies, " before it out"));
  EpochOrder first;
  Pass pass;
  Append(ops_.size(), 0, &pass, &first);
  // What a column is padded to must be known.
  const size_t usable = PadsToLength(op) ? buckets.boundaries.size() : buckets.sizes.size();
  for (const uint32_t id : first.samples) {
    const int64_t sample = id % size_, length = (*buckets.lengths)[static_cast<size_t>(sample)];
    if (length < 0) return refuse(absl::StrCat(where(sample), " has length ", length, ", expected at least 0"));
    if (BucketOf(buckets, length) < usable) continue;
    const int64_t longest = buckets.boundaries.back();
    return refuse(absl::StrCat(where(sample), " has length ", length, ", and the longest bucket is for lengths below ",
                               longest, ": give a last boundary above ", length, ", or leave longer samples out with ",
                               "filter"));
  }
  batch_ = std::make_shared<const BatchOp>(op);
  for (size_t b = 0; b < buckets.sizes.size(); ++b) shape_of_.push_back(static_cast<uint32_t>(b));
  left_out_ = static_cast<int64_t>(first.samples.size());
  AppendBuckets(op, 0, &first);
  std::vector<int64_t> batches(buckets.sizes.size(), 0);
  full_ = true;
  for (const EpochOrder::Group& group : first.groups) {
    ++batches[group.shape];
    left_out_ -= group.count;
    full_ &= group.count == buckets.sizes[group.shape] * feeds_;
  }
  *groups = static_cast<int64_t>(first.groups.size());
  if (*groups == 0)
    return refuse(absl::StrCat("no bucket has a full batch of its size",
                               feeds_ > 1 ? absl::StrCat(" x ", feeds_, " feeds") : "",
                               "; make the batches smaller or set drop_remainder = false"));
  shapes_.clear();
  for (size_t b = buckets.sizes.size(); b-- > 0;) {
    if (batches[b] == 0) continue;
    shape_of_[b] = static_cast<uint32_t>(shapes_.size());
    shapes_.push_back({buckets.sizes[b], LengthOf(buckets, b), batches[b]});
  }
  ops_.push_back(op);
  names_.push_back(name);
  return absl::OkStatus();
}

std::string Order::Varies() const {
  bool shuffled = false;
  for (const Op& op : ops_) {
    if (std::holds_alternative<WeightedOp>(op)) return "weighted";
    const bool selects = std::holds_alternative<TakeOp>(op) || std::holds_alternative<SkipOp>(op);
    if (shuffled && selects) return "shuffle and take or skip";
    shuffled = shuffled || std::holds_alternative<ShuffleOp>(op);
  }
  return "";
}

Status Order::AddKept(const KeepOp& op, size_t name, int64_t* n) {
  const auto refuse = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("filter, split: ", what));
  };
  if (batch_ != nullptr) return refuse("call them before batch");
  if (sharding_.num_shards > 0)
    return refuse(
        "the parts of num_shards would be of different length: leave num_shards out, ranks share the samples");
  if (const std::string varies = Varies(); !varies.empty())
    return refuse(
        absl::StrCat("how many samples are left would differ from epoch to epoch: call them before ", varies));
  auto kept = std::make_shared<std::vector<bool>>(static_cast<size_t>(size_), false);
  for (const int64_t sample : *op.samples) {
    if (sample < 0 || sample >= size_)
      return absl::InternalError(absl::StrCat("filter: sample ", sample, " of ", size_));
    (*kept)[static_cast<size_t>(sample)] = true;
  }
  kept_[ops_.size()] = std::move(kept);
  ops_.push_back(op);
  names_.push_back(name);
  EpochOrder first;
  Pass pass;
  Append(ops_.size(), 0, &pass, &first);
  *n = static_cast<int64_t>(first.samples.size());
  if (*n == 0) return refuse("no sample is left");
  return absl::OkStatus();
}

Status Order::AddWeighted(const WeightedOp& op, size_t name, int64_t* n) {
  const auto refuse = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("weighted: ", what));
  };
  if (batch_ != nullptr) return refuse("call it before batch");
  if (sharding_.num_shards > 0)
    return refuse(
        "each part of num_shards would draw from its own samples: leave num_shards out, ranks share the samples");
  for (const Op& before : ops_) {
    if (std::holds_alternative<ShuffleOp>(before) || std::holds_alternative<WeightedOp>(before))
      return refuse(absl::StrCat("weights belong to samples in their order: call it before ", Name(before)));
  }
  if (static_cast<int64_t>(op.weights->size()) != *n)
    return refuse(absl::StrCat("expected a weight for each of ", *n, " samples, got ", op.weights->size()));
  std::vector<double> sums;
  double sum = 0;
  int64_t positive = 0;
  for (size_t i = 0; i < op.weights->size(); ++i) {
    const double weight = (*op.weights)[i];
    if (!(weight >= 0) || std::isinf(weight))
      return refuse(absl::StrCat("weights[", i + 1, "]: expected a number of at least 0, got ", weight));
    positive += weight > 0;
    sums.push_back(sum += weight);
  }
  if (!(sum > 0) || std::isinf(sum)) return refuse(absl::StrCat("expected a positive sum of weights, got ", sum));
  const int64_t count = op.count > 0 ? op.count : *n;
  if (!op.replacement && count > positive)
    return refuse(absl::StrCat("num_samples: expected at most ", positive,
                               ", the samples of positive weight, without replacement, got ", count));
  if (count > kMaxSamples) return refuse(absl::StrCat("num_samples: ", count, " are more than an epoch may have"));
  sums_[ops_.size()] = std::move(sums);
  WeightedOp counted = op;
  counted.count = *n = count;
  ops_.emplace_back(std::move(counted));
  names_.push_back(name);
  return absl::OkStatus();
}

void Order::Evaluate(uint64_t seed, int64_t epoch, EpochOrder* order) const {
  order->samples.clear();
  order->groups.clear();
  Pass pass;
  pass.seed = seed;
  Append(ops_.size(), static_cast<uint64_t>(epoch), &pass, order);
}

void Order::Append(size_t count, uint64_t epoch, Pass* pass, EpochOrder* order) const {
  std::vector<uint32_t>& samples = order->samples;
  std::vector<EpochOrder::Group>& groups = order->groups;
  const size_t first_sample = samples.size(), first_group = groups.size();
  if (count == 0) {
    const int64_t base = int64_t{pass->number++} * size_;
    if (sharding_.num_shards == 0) {
      for (int64_t i = 0; i < size_; ++i) samples.push_back(static_cast<uint32_t>(base + i));
      return;
    }
    const int64_t shards = sharding_.num_shards;
    for (int64_t k = 0; k < CeilDiv(size_, shards); ++k) {
      samples.push_back(static_cast<uint32_t>(base + (k * shards + sharding_.shard_id) % size_));
    }
    return;
  }
  const Op& op = ops_[count - 1];
  if (const auto* repeat = std::get_if<RepeatOp>(&op)) {
    for (int64_t k = 0; k < repeat->count; ++k) {
      Append(count - 1, epoch * static_cast<uint64_t>(repeat->count) + static_cast<uint64_t>(k), pass, order);
    }
    return;
  }
  Append(count - 1, epoch, pass, order);
  const bool grouped = groups.size() > first_group;
  if (const auto* shuffle = std::get_if<ShuffleOp>(&op)) {
    const uint64_t stream = StreamOf(absl::StrCat("data/shuffle/", names_[count - 1]), epoch);
    if (grouped) {
      BufferedShuffle(&groups, first_group, shuffle->buffer_size, pass->seed, stream);
    } else {
      BufferedShuffle(&samples, first_sample, shuffle->buffer_size, pass->seed, stream);
    }
  } else if (std::holds_alternative<KeepOp>(op)) {
    const std::vector<bool>& kept = *kept_.at(count - 1);
    const auto lost = [&](uint32_t id) { return !kept[static_cast<size_t>(id % size_)]; };
    samples.erase(std::remove_if(samples.begin() + static_cast<std::ptrdiff_t>(first_sample), samples.end(), lost),
                  samples.end());
  } else if (const auto* weighted = std::get_if<WeightedOp>(&op)) {
    const uint64_t stream = StreamOf(absl::StrCat("data/weighted/", names_[count - 1]), epoch);
    const std::vector<uint32_t> from(samples.begin() + static_cast<std::ptrdiff_t>(first_sample), samples.end());
    samples.resize(first_sample);
    for (const size_t i : DrawWeighted(*weighted, sums_.at(count - 1), pass->seed, stream)) samples.push_back(from[i]);
  } else if (const auto* take = std::get_if<TakeOp>(&op)) {
    grouped ? Keep(&groups, first_group, take->count) : Keep(&samples, first_sample, take->count);
  } else if (const auto* skip = std::get_if<SkipOp>(&op)) {
    grouped ? Drop(&groups, first_group, skip->count) : Drop(&samples, first_sample, skip->count);
  } else if (const auto* batch = std::get_if<BatchOp>(&op); batch != nullptr && batch->buckets != nullptr) {
    AppendBuckets(*batch, first_sample, order);
  } else if (batch != nullptr) {
    const size_t rows = static_cast<size_t>(batch->size * feeds_);
    for (size_t begin = first_sample; begin < samples.size(); begin += rows) {
      const size_t held = std::min(rows, samples.size() - begin);
      if (held < rows && batch->drop_remainder) break;
      groups.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(held), 0});
    }
  }
}

void Order::AppendBuckets(const BatchOp& op, size_t first, EpochOrder* order) const {
  const Buckets& buckets = *op.buckets;
  std::vector<uint32_t>& samples = order->samples;
  const std::vector<uint32_t> from(samples.begin() + static_cast<std::ptrdiff_t>(first), samples.end());
  samples.resize(first);
  std::vector<std::vector<uint32_t>> held(buckets.sizes.size());
  const auto make_group = [&](size_t b) {
    order->groups.push_back(
        {static_cast<uint32_t>(samples.size()), static_cast<uint32_t>(held[b].size()), shape_of_[b]});
    samples.insert(samples.end(), held[b].begin(), held[b].end());
    held[b].clear();
  };
  for (const uint32_t id : from) {
    const size_t b = BucketOf(buckets, (*buckets.lengths)[static_cast<size_t>(id % size_)]);
    held[b].push_back(id);
    if (static_cast<int64_t>(held[b].size()) == buckets.sizes[b] * feeds_) make_group(b);
  }
  for (size_t b = 0; b < held.size(); ++b) {
    if (!held[b].empty() && !op.drop_remainder) make_group(b);
  }
}

}  // namespace mslua::data
