// Datasets as values: a source of samples and a list of operations on them. Nothing is opened or
// read here; Pipeline::Open (pipeline.h) does that, Loader (loader.h) runs it on worker threads.
//
//   Dataset train = Dataset(Cifar10{"cifar-10-batches-bin"})
//                       .Map({{RandomCrop{32, 32, 4, 4, 4, 4}, RandomHorizontalFlip{},
//                              Rescale{1 / 255.0}, HWC2CHW{}}, "image"})
//                       .Shuffle({50000})
//                       .Batch({128, /*drop_remainder=*/true});
//
// Names, defaults and meaning follow MindSpore's `mindspore.dataset`; where mslua differs, the
// comment says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/shape.h"
#include "core/base/status.h"

namespace mslua::data {

// ---- Sources -----------------------------------------------------------------------------------

// Which of a dataset's parts: its training samples, its test samples, or both in this order.
enum class Usage { kTrain, kTest, kAll };
StatusOr<Usage> ParseUsage(const std::string& name);  // "train", "test", "all"

// A folder with data_batch_1.bin ... data_batch_5.bin and test_batch.bin ("binary version"; those that
// are absent are left out with a notice), or with the same names without ".bin" ("python version").
// Columns: image u8[32,32,3], label i32[] in 0..9.
struct Cifar10 {
  std::string path;
  Usage usage = Usage::kTrain;
};

// A folder with train.bin and test.bin, or with the python version's train and test.
// Columns: image u8[32,32,3], coarse_label i32[] in 0..19, fine_label i32[] in 0..99.
struct Cifar100 {
  std::string path;
  Usage usage = Usage::kTrain;
};

// A folder with the IDX files train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-..., each plain or
// with ".gz". Columns: image u8[28,28,1], label i32[] in 0..9.
struct Mnist {
  std::string path;
  Usage usage = Usage::kTrain;
};

// A folder with a subfolder for each class; classes and files are taken in byte order of their names.
// Files *.jpg, *.jpeg, *.png; other files are ignored. Images are decoded to RGB (an alpha channel is
// dropped). Columns: image u8[height,width,3], label i32[].
struct ImageFolder {
  std::string path;
};

// Windows of a text for next-token prediction. Sample i holds the tokens from i * stride on:
// x = the first `block` of them, y = x moved on by one. Columns: x i32[block], y i32[block].
struct Text {
  enum class Format {
    kCharacters,  // a token is a byte; its id is its rank among the bytes that occur in the file
    kUint16,      // a token is a little-endian uint16
  };
  std::string path;  // a file, or a folder with input.txt (characters) or train.bin and val.bin (uint16)
  int64_t block = 64;
  Format format = Format::kCharacters;
  Usage usage = Usage::kTrain;
  double test_fraction = 0.1;  // the end of a single file that is the test part; not for train.bin/val.bin
  int64_t stride = 0;          // 0 stands for `block`: each token is predicted once an epoch
  int64_t vocab_size = 0;      // uint16 only: a token not below it is an error; 0 does not check
};

// Arrays in memory; sample i is row i of each.
struct NumpySlices {
  struct Array {
    std::string name;
    TensorType type;                   // rank >= 1; all arrays have the same first dimension
    std::shared_ptr<const void> data;  // dense, row-major, type.bytes() bytes
  };
  std::vector<Array> arrays;
};

// Samples that foreign code makes, a Lua function for one. Called on the thread that calls
// Pipeline::Open and Loader::Next only, never on a worker.
class Generator {
 public:
  // A column each; memory stays the generator's, valid until its next call.
  using Row = std::vector<TensorView>;

  virtual ~Generator() = default;
  // Samples there are. -1: a sequence whose end is found by running it.
  virtual int64_t size() const = 0;
  // True: Get works for any i in [0, size()). False: Rewind and Next do.
  virtual bool random_access() const = 0;
  virtual Status Get(int64_t i, Row* row);
  // Starts the sequence again; called at the start of each epoch.
  virtual Status Rewind();
  // False at the end of the sequence.
  virtual StatusOr<bool> Next(Row* row);
  // "recipe.lua:12: ", where its code is, for messages; empty when that is not known.
  virtual std::string place() const { return ""; }
};
// A sequence without random access and with size() -1 is run once by Pipeline::Open to count it.
struct GeneratorSource {
  std::shared_ptr<Generator> generator;
  std::vector<std::string> column_names;
};

using Source = std::variant<Cifar10, Cifar100, Mnist, ImageFolder, Text, NumpySlices, GeneratorSource>;

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

// For any column. To an integer type values are truncated towards zero.
struct TypeCast {
  DType dtype = DType::kF32;
};
// An integer label i in [0, num_classes) becomes a vector with 1 at i; same dtype.
struct OneHot {
  int64_t num_classes = 0;
};

// MindSpore's Compose is a list of these.
using Transform =
    std::variant<RandomCrop, RandomHorizontalFlip, Resize, CenterCrop, Rescale, Normalize, HWC2CHW, TypeCast, OneHot>;
const char* Name(const Transform& transform);

// ---- Operations --------------------------------------------------------------------------------

// Applies the transforms in order to one column. After a batch: to each of its rows.
struct MapOp {
  std::vector<Transform> transforms;
  std::string column;  // empty: the first
};
// A buffer of `buffer_size` elements from which a random one is drawn and replaced by the next; a buffer
// as long as the dataset shuffles it whole. The order is a pure function of (seed, epoch).
struct ShuffleOp {
  int64_t buffer_size = 0;
};
struct BatchOp {
  int64_t size = 0;
  bool drop_remainder = false;
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
using Op = std::variant<MapOp, ShuffleOp, BatchOp, RepeatOp, TakeOp, SkipOp, ProjectOp, RenameOp, KeepOp>;
const char* Name(const Op& op);

// The description. A value: each method returns a longer one and leaves this one alone.
class Dataset {
 public:
  explicit Dataset(Source source, Sharding sharding = {})
      : source_(std::make_shared<const Source>(std::move(source))), sharding_(sharding) {}

  Dataset Map(MapOp op) const { return With(std::move(op)); }
  Dataset Shuffle(ShuffleOp op) const { return With(op); }
  Dataset Batch(BatchOp op) const { return With(op); }
  Dataset Repeat(RepeatOp op) const { return With(op); }
  Dataset Take(TakeOp op) const { return With(op); }
  Dataset Skip(SkipOp op) const { return With(op); }
  Dataset Project(ProjectOp op) const { return With(std::move(op)); }
  Dataset Rename(RenameOp op) const { return With(std::move(op)); }
  Dataset Keep(KeepOp op) const { return With(std::move(op)); }

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
