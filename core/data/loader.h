// The loader: worker threads that fill batches ahead of their use.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/aligned_memory.h"
#include "core/data/pipeline.h"

namespace mslua::data {

struct LoaderOptions {
  int workers = 1;   // threads; 0 fills batches in Next. A pipeline that is foreign() always does
  int prefetch = 0;  // batches kept ready or in the making; 0 stands for workers + 1
};

// A place in the sequence of batches; what a checkpoint keeps.
struct Position {
  int64_t epoch = 0;
  int64_t batch = 0;  // of the epoch
  friend bool operator==(const Position& a, const Position& b) { return a.epoch == b.epoch && a.batch == b.batch; }
};

struct Batch {
  Position position;
  std::vector<TensorView> columns;  // as Pipeline::schema(shape) says
  int64_t valid = 0;  // rows from the dataset; those behind them are zero (the tail of drop_remainder = false)
  int64_t shape = 0;
};

// Batches in an order and with contents that depend on (dataset, feed options, epoch) only: neither on
// `workers` and `prefetch` nor on timing. One thread uses a Loader.
class Loader {
 public:
  Loader(std::shared_ptr<const Pipeline> pipeline, const LoaderOptions& options);
  ~Loader();  // stops and joins the workers
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  const Pipeline& pipeline() const { return *pipeline_; }

  // The next batch; its memory is valid until the next call of Next or Seek. False, once, at an epoch's
  // end: the call after it begins the next epoch. An error (file and record) stays until Seek. One is code of users
  // that does not return (CodeCalls::Overdue): its thread is left alone then.
  StatusOr<bool> Next(Batch* batch);
  // Has `check` look at the next batch, once, in Next, which gives its error.
  void CheckNext(std::function<Status(const Batch&)> check) { check_ = std::move(check); }

  // A column's memory that callers have kept and given back is used again, up to so many bytes and two blocks: callers
  // that keep more at once make the system clear pages for each batch.
  static constexpr int64_t kSpareBytes = int64_t{64} << 20;
  // The memory of a column of the batch that Next gave last, for as long as the pointer lives. Once for each column,
  // and before the next call of Next or Seek.
  std::shared_ptr<void> Keep(size_t column);

  // Of the batch that Next gives next; {e, Pipeline::size()} before the end of epoch e is reported.
  Position position() const { return position_; }
  // Continues from there, exactly as an uninterrupted run would. {e, Pipeline::size()} is epoch e's end.
  Status Seek(Position position);

  // Seconds that Next has waited for workers so far (or spent filling, without workers).
  double wait_seconds() const { return wait_seconds_; }

 private:
  struct Slot {
    std::vector<AlignedMemory> memory;
    std::vector<void*> columns;
    int64_t valid = 0, shape = 0;
    bool ready = false;
    Status status;
  };
  // What the threads use. Each holds it, for one that is left alone may outlive the loader.
  struct Shared {
    std::shared_ptr<const Pipeline> pipeline;
    std::vector<Slot> slots;  // batch number t goes to slot t % slots
    // A batch's number counts on over epochs. Guarded by mutex while threads run.
    std::mutex mutex;
    std::condition_variable work;  // there may be a batch to fill
    std::condition_variable done;  // one was filled, or a thread has ended
    int64_t claimed = 0;           // number of the next batch to fill
    int64_t released = 0;          // batches before this number are no longer used
    bool stop = false;
    int running = 0;            // threads
    Pipeline::Epoch epochs[2];  // by parity: a batch is filled at most one epoch ahead of its use
  };
  struct Worker {
    std::thread thread;
    std::shared_ptr<CodeCalls> calls;
  };

  // Blocks of the columns that callers have kept and given back.
  class Spares;

  void MakeShared();
  void Start();
  void Stop();
  static void Work(Shared* shared, CodeCalls* calls);
  Status FillInline(Slot* slot);
  // Until the slot is ready, or a thread's code is overdue.
  Status WaitFor(const Slot& slot, std::unique_lock<std::mutex>* lock);
  // Of the threads' calls: OK, or the error of one that takes too long.
  Status Overdue() const;

  const std::shared_ptr<const Pipeline> pipeline_;
  const int workers_;
  const int ahead_;
  std::shared_ptr<Shared> shared_;
  std::vector<std::shared_ptr<Spares>> spares_;  // of each column
  Slot* given_ = nullptr;                        // by Next
  Position position_;
  double wait_seconds_ = 0;
  Pipeline::Sequence sequence_;
  Pipeline::Scratch scratch_;  // for filling inline
  std::vector<Worker> threads_;
  Status overdue_;  // once a thread is left alone
  std::function<Status(const Batch&)> check_;
};

// An error of the computation on `batch`, a batch of `loader`: where it names a record of a column (payload
// "mslua/record": number, count and value of the records), with the place in the epoch and the sample's in its source.
Status NameSample(const Status& status, const Loader& loader, const Batch& batch);

}  // namespace mslua::data
