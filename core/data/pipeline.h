// An opened dataset: its files found, its operations checked, its types and sizes known.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "core/data/order.h"
#include "core/data/reader.h"
#include "core/data/transform.h"

namespace mslua::data {

// Which rows of each batch are wanted here (docs/howto/data_parallel.md, "The global batch").
struct FeedOptions {
  uint64_t seed = 0;  // of shuffles and random transforms
  // A global batch is `feeds` batches of the dataset's size b; this one is rows [feed * b, (feed + 1) * b)
  // of it. No effect on a dataset sharded by hand, nor on a generator that is a sequence: there every
  // feed runs the whole of it.
  int64_t feeds = 1, feed = 0;
  // The samples are the parts of another dataset's, which reads them in any epoch (core/data/part.h): what would
  // differ from epoch to epoch is an error, and so is a batch. The name of what reads them, "zip", for messages.
  const char* part_of = nullptr;
  // Samples are read one by one (ReadRow): their columns may differ in shape.
  bool ragged = false;
};

struct ColumnState;  // of Pipeline::Open

// Two columns that are changed at the same places, such as an image and the mask of its pixels, and what is done to
// each before that: there they have one size.
struct ChangedTogether {
  struct Side {
    std::string name;
    size_t source = 0;  // the column that it is made of
    ColumnChain before;
  };
  Side first, second;
  std::string transform;
};

// Immutable but for a generator's own state: with one, only the thread that opened it may use it.
class Pipeline {
 public:
  static StatusOr<std::shared_ptr<const Pipeline>> Open(const Dataset& dataset, const FeedOptions& options);
  // The same with another seed, on the files that are open.
  std::shared_ptr<const Pipeline> WithSeed(uint64_t seed) const;

  // Shapes that batches have, more than one with buckets: from the longest bucket on.
  int64_t shapes() const { return static_cast<int64_t>(shapes_.size()); }
  // A column of a batch of that shape: [rows, ...] of a batched dataset, else one sample's type.
  const std::vector<Column>& schema(int64_t shape = 0) const { return shapes_[static_cast<size_t>(shape)].schema; }
  int64_t rows(int64_t shape = 0) const { return shapes_[static_cast<size_t>(shape)].rows; }  // 1 without batch
  // Which part of an epoch's batches has that shape; they add up to 1.
  double share(int64_t shape) const { return shapes_[static_cast<size_t>(shape)].share; }
  // Bytes of a column of the largest batch.
  int64_t column_bytes(size_t column) const;
  // Batches of an epoch: MindSpore's get_dataset_size().
  int64_t size() const { return order_.groups(); }
  bool batched() const { return order_.batched(); }
  bool full_batches() const { return order_.full_batches(); }  // none is truncated
  int64_t left_out() const { return order_.left_out(); }       // samples an epoch, by drop_remainder or without batch
  int64_t source_size() const { return source_size_; }         // samples in the source
  const std::vector<std::string>& notices() const { return notices_; }
  uint64_t seed() const { return options_.seed; }
  // Only the thread that opened it may use it: samples come from a Generator.
  bool foreign() const { return generator_ != nullptr || reader_->bound_to_thread(); }
  // Filling a batch runs code of users, through CodeCalls.
  bool runs_code() const { return !stages_.empty() || (reader_ != nullptr && reader_->runs_code()); }
  // Names of the classes that labels 0, 1, ... stand for, as the source knows them; empty where it knows none.
  std::vector<std::string> class_names() const {
    return reader_ != nullptr ? reader_->class_names() : std::vector<std::string>();
  }
  // Filling a batch takes less than a hand-over between threads: a few rows of arrays in memory, as they are.
  bool immediate() const { return immediate_; }

  // What is fixed for an epoch. Its memory is reused for the next epoch.
  struct Epoch {
    int64_t number = -1;
    EpochOrder order;
    std::vector<std::vector<uint64_t>> streams;  // of each column
    struct StageStreams {
      std::vector<std::vector<uint64_t>> columns;
      uint64_t code = 0;
    };
    std::vector<StageStreams> stages;
    std::vector<uint64_t> mixes;
  };
  void MakeEpoch(int64_t number, Epoch* epoch) const;

  int64_t ShapeOf(const Epoch& epoch, int64_t batch) const {
    return batched() ? epoch.order.groups[static_cast<size_t>(batch)].shape : 0;
  }
  // "data_batch_1.bin, record 17": the sample in a valid row of a batch.
  std::string SampleAt(const Epoch& epoch, int64_t batch, int64_t row) const;

  // A thread's working memory.
  struct Scratch {
    // `calls`: the thread's functions; null: its own.
    explicit Scratch(CodeCalls* calls = nullptr) { buffers.code = calls != nullptr ? calls : &own_calls; }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    CodeCalls own_calls;
    ReadBuffers buffers;
    std::vector<RawColumn> row;
    ImageScratch image;
    Generator::Row foreign;
    std::vector<uint8_t> unpadded;
    // Of each stage, and of ReadRow: its columns, and what its code gave.
    struct StageMemory {
      std::vector<std::vector<uint8_t>> columns;
      std::vector<RawColumn> row;
      std::vector<TensorView> results;
    };
    std::vector<StageMemory> stages;
    std::vector<uint8_t> before;   // the row before a batch's first, for MixOp
    std::vector<uint8_t*> places;  // of a row, in the batch's columns
  };

  // Where a foreign sequence stands, and what it gave ahead of its use: shuffles want samples early.
  struct Sequence {
    int64_t epoch = -1, batch = -1;             // that it is ready for
    int64_t start = 0;                          // Generator::starts when it began
    int64_t next = 0;                           // id of the sample that it gives next, pass * source_size() + index
    bool passed = false;                        // it has given the last sample of a pass, but not said that it ends
    std::vector<bool> wanted;                   // by id: the rest of the epoch uses it
    absl::flat_hash_map<int64_t, size_t> held;  // id to place in `places`
    struct Place {
      std::vector<uint8_t> bytes;  // the columns one after another
      std::vector<TensorType> types;
    };
    std::vector<Place> places;
    std::vector<size_t> free;
  };

  // Fills batch `batch` of the epoch into `columns`, of schema(ShapeOf(epoch, batch)); rows behind the last valid one
  // become zero. Returns the number of valid rows. `sequence` is used by foreign pipelines only.
  StatusOr<int64_t> Fill(const Epoch& epoch, int64_t batch, Scratch* scratch, Sequence* sequence,
                         const std::vector<void*>& columns) const;
  // Sample i of an epoch without batches, its columns as they are, each of its own shape. Valid until the next call
  // with the same scratch. Not for sequences.
  Status ReadRow(const Epoch& epoch, int64_t i, Scratch* scratch, absl::Span<RawColumn> row) const;
  // Of ReadRow's samples; a dimension -1 differs from sample to sample.
  const std::vector<TensorType>& row_types() const { return row_types_; }
  // "data_batch_1.bin, record 17": the source's sample that sample i of an epoch without batches is.
  std::string WhereRow(const Epoch& epoch, int64_t i) const { return Where(epoch.order.samples[i]); }

 private:
  // Columns after transforms, and code that makes the columns of the next stage of them.
  struct Stage {
    std::vector<ColumnChain> chains;
    std::vector<size_t> from;  // column of the stage before
    std::shared_ptr<const SampleCode> code;
    std::vector<size_t> inputs;  // of the code, among the chains
    size_t outputs = 0;          // that it must give
    std::vector<int> columns;    // of the next stage: chain k, or result -1 - k
    std::string stream;          // of its random numbers
    std::vector<Column> made;    // the next stage's columns
    std::vector<ChangedTogether> together;
  };
  struct Mix {
    MixOp op;
    std::string stream;
    // Columns of the schema. Operations behind the mix may have moved, copied or dropped the two that it names.
    std::vector<size_t> images, labels;
    // Where no image is left, what the proportion is drawn for: its samples, by shape.
    std::vector<TensorType> dropped;
    bool planar = false;  // these are [channels,height,width]
  };

  // What all batches of a shape have in common.
  struct Shaped {
    int64_t rows = 1;
    double share = 1;
    std::vector<TensorType> samples;                // of a transformed sample, by column
    std::vector<absl::optional<Padding>> paddings;  // none: all samples have one shape
    std::vector<Column> schema;
  };

  void MakeShapes();
  Status OpenSource(const Dataset& dataset);
  Status OpenForeign(const Dataset& dataset);
  // Checks what does not depend on samples, then reads the first one where types depend on it.
  Status CompileColumns(const std::vector<Op>& ops, CodeCalls* calls);
  // Ends a stage with the code of `op`; `columns` become those of the next one.
  Status AddStage(const CallOp& op, size_t place, std::vector<ColumnState>* columns, Scratch* first);
  // Marks the columns that the mix changes.
  Status AddMix(const MixOp& op, size_t place, std::vector<ColumnState>* columns);
  Status CheckMixes() const;
  // Which columns are changed together, of those whose sizes are not known yet; an error where known ones differ.
  StatusOr<std::vector<ChangedTogether>> FindTogether(const std::vector<ColumnState>& columns);
  void FindDirect();  // makes direct_
  // What is wrong with operations of a dataset that another one is made of.
  Status CheckPart(const Dataset& dataset) const;
  // The next column, which is of that type before it is padded, to shape s.
  Status AddColumn(const std::string& name, TensorType type, absl::optional<Padding> padding, size_t s);
  // The type of a column's samples in shape s, which are of type `type` before they are padded. Puts the length of the
  // bucket in the padding.
  StatusOr<TensorType> SampleType(const std::string& name, const TensorType& type, absl::optional<Padding>* padding,
                                  size_t s) const;
  // Which of the columns that code or a generator made may differ in shape from sample to sample: those that are
  // padded, and those that code gets.
  void FreeShapes(const std::vector<ColumnState>& columns, bool last, std::vector<Column>* made) const;
  std::vector<Column>& LastColumns() { return stages_.empty() ? source_columns_ : stages_.back().made; }
  // `raw` after the chain, in `memory` unless it stays as it is.
  static Status Transformed(const ColumnChain& chain, const RawColumn& raw, const Draws& draws, ImageScratch* image,
                            std::vector<uint8_t>* memory, RawColumn* out);
  // scratch->row, columns of stage s, becomes columns of the next one.
  Status RunStage(size_t s, const Epoch::StageStreams& streams, int64_t place, int64_t id, Scratch* scratch) const;
  Status RunStages(const Epoch& epoch, int64_t place, int64_t id, Scratch* scratch) const;
  // Sample number `at` of epoch.order.samples, transformed, to `columns`, a place in each column.
  Status FillRow(const Epoch& epoch, int64_t at, const Shaped& shape, Scratch* scratch, Sequence* sequence,
                 const std::vector<uint8_t*>& columns) const;
  Status MixRows(const Epoch& epoch, int64_t batch, int64_t rows, Scratch* scratch, Sequence* sequence,
                 const std::vector<void*>& columns) const;
  // Column k of the sample in scratch->row, transformed, to `out`.
  Status FillColumn(size_t k, const Draws& draws, const Shaped& shape, Scratch* scratch, uint8_t* out) const;
  // The type of the samples of a padded column, which are of type `type` before.
  StatusOr<TensorType> Padded(const std::string& name, const TensorType& type, const Padding& padding) const;
  // Lets the reader fetch the samples of a batch.
  void ReadAhead(const Epoch& epoch, int64_t batch) const;
  // Sample `id` into scratch->row.
  Status ReadSample(int64_t id, Scratch* scratch, Sequence* sequence) const;
  void StartSequence(const Epoch& epoch, int64_t batch, Sequence* sequence) const;
  // The sequence's next sample into scratch->foreign, checked.
  Status PullSequence(Scratch* scratch, Sequence* sequence) const;
  // An error where a sequence that has given the last sample of a pass has more.
  Status CheckEnd(Scratch* scratch, Sequence* sequence) const;
  Status CheckForeign(const Generator::Row& row, int64_t id) const;
  // The error of a generator, with its sample.
  Status AtSample(const Status& status, int64_t id) const;
  std::string Where(int64_t id) const;
  // Where this feed's rows of a batch are in epoch.order.samples.
  EpochOrder::Group RowsOf(const Epoch& epoch, int64_t batch) const;

  FeedOptions options_;
  Sharding sharding_;
  std::shared_ptr<const Reader> reader_;
  std::shared_ptr<Generator> generator_;
  std::vector<Column> source_columns_;
  int64_t source_size_ = 0;
  bool cut_ = false;  // a sequence was counted up to what the operations use: it may have more samples
  Order order_;
  std::vector<std::string> names_;   // of the columns
  std::vector<ColumnChain> chains_;  // of each column
  std::vector<size_t> from_;         // the source's column that it is made of
  std::vector<Shaped> shapes_;
  std::vector<Stage> stages_;
  std::vector<Mix> mixes_;
  std::vector<ChangedTogether> together_;
  std::vector<TensorType> row_types_;
  std::vector<std::string> notices_;
  bool immediate_ = false;
  std::vector<int> direct_;  // for each of the source's columns, the one that has its samples as they are; -1: none
};

}  // namespace mslua::data
