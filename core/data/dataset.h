// Datasets as values: a source of samples and a list of operations on them. Nothing is opened or
// read here; Pipeline::Open (pipeline.h) does that, Loader (loader.h) runs it on worker threads.
//
//   Dataset train = Dataset(Source("cifar10", {{"dataset_dir", "cifar-10-batches-bin"}}))
//                       .Map({{RandomCrop{32, 32, 4, 4, 4, 4}, RandomHorizontalFlip{},
//                              Rescale{1 / 255.0}, HWC2CHW{}}, {"image"}})
//                       .Shuffle({50000})
//                       .Batch({128, /*drop_remainder=*/true});
//
// Names, defaults and meaning follow MindSpore's `mindspore.dataset`; where mslua differs, the
// comment says so.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/data/source.h"

namespace mslua::data {

// Part `shard_id` of `num_shards` of the source, taken before every operation: elements shard_id,
// shard_id + num_shards, ... As in MindSpore all shards are equally long: where num_shards does not
// divide the size, the last ones wrap round to the source's first elements, so that no rank runs out of
// batches before the others.
struct Sharding {
  int64_t num_shards = 0;  // 0: not sharded by hand
  int64_t shard_id = 0;
};

// ---- Transforms of a column --------------------------------------------------------------------

// Vision. An image is [height,width,channels] until HWC2CHW; u8 until Rescale, Normalize or TypeCast.
// All vision transforms of a column run as one chain in f32; a result of type u8 is rounded once, at its
// end (MindSpore rounds after Resize too).

// Pads with zeros, then crops [height,width] at a random place.
struct RandomCrop {
  int64_t height = 0, width = 0;
  int64_t left = 0, top = 0, right = 0, bottom = 0;  // padding; MindSpore's order
};
struct RandomHorizontalFlip {
  double prob = 0.5;
};
// Bilinear with half-pixel centres, edges clamped, no smoothing when shrinking: OpenCV's INTER_LINEAR,
// torch's interpolate(align_corners=False). width 0: the shorter edge becomes `height`, the aspect stays.
struct Resize {
  int64_t height = 0, width = 0;
};
// The middle [height,width]; a smaller image is padded with zeros.
struct CenterCrop {
  int64_t height = 0, width = 0;
};
// x * scale + shift, f32. For any column.
struct Rescale {
  double scale = 1;
  double shift = 0;
};
// (x - mean) / std for each channel, f32. One value, or one for each channel.
struct Normalize {
  std::vector<double> mean, std;
};
// [height,width,channels] to [channels,height,width]; the last vision transform but for Rescale.
struct HWC2CHW {};

// For any column. To an integer type floats are truncated towards zero and saturate. Errors: NaN, an integer beyond the
// range, and a float so large that another integer may have been meant (2^24 in float32).
struct TypeCast {
  DType dtype = DType::kF32;
};
// An integer label i in [0, num_classes) becomes a vector with 1 at i; same dtype.
struct OneHot {
  int64_t num_classes = 0;
};

// A vision transform that core/data/transforms declares.
struct Vision {
  std::string kind;  // "color_jitter"
  FieldMap fields;
};

// MindSpore's Compose is a list of these.
using Transform = std::variant<RandomCrop, RandomHorizontalFlip, Resize, CenterCrop, Rescale, Normalize, HWC2CHW,
                               TypeCast, OneHot, Vision>;
const char* Name(const Transform& transform);

// ---- Operations --------------------------------------------------------------------------------

// Applies the transforms in order to a column. After a batch: to each of its rows. To several columns: each of them
// goes through the same transforms with the same random numbers, as an image and the mask of its pixels do.
struct MapOp {
  std::vector<Transform> transforms;
  std::vector<std::string> columns = {};  // empty: the first
  std::vector<std::string> names = {};    // of the results, as many as columns; empty: as they are called
};
// A buffer of `buffer_size` elements from which a random one is drawn and replaced by the next; a buffer
// as long as the dataset shuffles it whole. The order is a pure function of (seed, epoch).
struct ShuffleOp {
  int64_t buffer_size = 0;
};
// What a column of a padded batch holds: samples of `shape`, with `value` behind what a sample has in each dimension.
struct Padding {
  std::vector<int64_t> shape;  // with buckets, -1 stands for the longest length of the batch's bucket
  double value = 0;
};
// Samples of similar length, which make batches with each other alone. Bucket i has the lengths below boundaries[i]
// that the buckets before it do not have; where there is one more size than boundaries, the last bucket has all others.
struct Buckets {
  std::shared_ptr<const std::vector<int32_t>> lengths;  // of each sample of the source
  std::vector<int64_t> boundaries;                      // increasing, positive
  std::vector<int64_t> sizes;                           // of the batches of each bucket
};
// A batch is complete when so many samples have come, with buckets as many samples of one bucket; what is left in the
// end makes smaller ones. With buckets the number of batches must not depend on the epoch: not behind weighted, nor
// behind shuffle with take or skip; and not for datasets that are sharded by hand.
struct BatchOp {
  int64_t size = 0;  // without buckets
  bool drop_remainder = false;
  std::map<std::string, Padding> padding = {};  // by column; of those, samples may differ in shape
  std::shared_ptr<const Buckets> buckets = {};  // null: all batches are alike
};
// The operations before it, `count` times an epoch; shuffles and random transforms differ each time.
struct RepeatOp {
  int64_t count = 0;
};
// The first `count` elements: samples before a batch, batches after it.
struct TakeOp {
  int64_t count = 0;
};
struct SkipOp {
  int64_t count = 0;
};
// The columns of these names, in this order, under new names; a column may be taken twice.
struct ProjectOp {
  std::vector<std::string> columns;
  std::vector<std::string> names;  // as many; empty: as they are called
};
// Other names for columns.
struct RenameOp {
  std::vector<std::string> from, to;
};
// The elements that are these samples of the source. Not for datasets that are sharded by hand, and before batch; how
// many they are must not depend on a shuffle.
struct KeepOp {
  std::shared_ptr<const std::vector<int64_t>> samples;  // numbers from 0
};
// `count` elements drawn by their weights, other ones in each epoch. Not for datasets that are sharded by hand, and
// before batch.
struct WeightedOp {
  std::shared_ptr<const std::vector<double>> weights;  // of each element, not negative; their sum is positive
  int64_t count = 0;                                   // 0: as many as there are
  bool replacement = true;                             // an element may be drawn again
};
// The code's function gets the columns `inputs` of a sample, and what it gives becomes the columns `outputs`: they take
// the place of the first input; with as many outputs as inputs, of each. Before batch.
struct CallOp {
  std::shared_ptr<const SampleCode> code;
  std::vector<std::string> inputs;   // empty: the first column
  std::vector<std::string> outputs;  // empty: as the inputs
};
// Mixes each row of a batch with the row before it, of the first with the last: torchvision's MixUp and CutMix. The
// labels, vectors of floats such as OneHot gives, are mixed in the same proportion.
struct MixOp {
  bool cut = false;  // a box of the image is replaced; else the whole image is blended
  double alpha = 1;  // the proportion is drawn from Beta(alpha, alpha), once for a batch
  double prob = 1;   // how likely a batch is mixed
  std::string image, label;
};
using Op = std::variant<MapOp, ShuffleOp, BatchOp, RepeatOp, TakeOp, SkipOp, ProjectOp, RenameOp, KeepOp, WeightedOp,
                        CallOp, MixOp>;
const char* Name(const Op& op);

// The description. A value: each method returns a longer one and leaves this one alone.
class Dataset {
 public:
  explicit Dataset(Source source, Sharding sharding = {})
      : source_(std::make_shared<const Source>(std::move(source))), sharding_(sharding) {}

  Dataset Map(MapOp op) const { return With(std::move(op)); }
  Dataset Shuffle(ShuffleOp op) const { return With(op); }
  Dataset Batch(BatchOp op) const { return With(std::move(op)); }
  Dataset Repeat(RepeatOp op) const { return With(op); }
  Dataset Take(TakeOp op) const { return With(op); }
  Dataset Skip(SkipOp op) const { return With(op); }
  Dataset Project(ProjectOp op) const { return With(std::move(op)); }
  Dataset Rename(RenameOp op) const { return With(std::move(op)); }
  Dataset Keep(KeepOp op) const { return With(std::move(op)); }
  Dataset Weighted(WeightedOp op) const { return With(std::move(op)); }
  Dataset Call(CallOp op) const { return With(std::move(op)); }
  Dataset Mix(MixOp op) const { return With(std::move(op)); }

  const Source& source() const { return *source_; }
  const Sharding& sharding() const { return sharding_; }
  const std::vector<Op>& ops() const { return ops_; }

 private:
  Dataset With(Op op) const {
    Dataset longer = *this;
    longer.ops_.push_back(std::move(op));
    return longer;
  }

  std::shared_ptr<const Source> source_;
  Sharding sharding_;
  std::vector<Op> ops_;
};

}  // namespace mslua::data
