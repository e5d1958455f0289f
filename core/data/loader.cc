#include "core/data/loader.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/exit_code.h"
#include "core/base/parallel_for.h"

namespace mslua::data {
namespace {

constexpr auto kLook = std::chrono::milliseconds(200);  // how often a wait for users' code asks how long it takes

// A column of a batch.
AlignedMemory Allocate(int64_t bytes) {
  AlignedMemory memory = AllocateAligned(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// Missing memory is an error: an exception that leaves a thread ends the process.
Status OutOfMemory(int64_t epoch, int64_t batch) {
  return WithExitCode(
      absl::ResourceExhaustedError(absl::StrCat("out of memory for the samples of batch ", batch + 1, " of epoch ",
                                                epoch + 1, "; fix: smaller samples, or fewer num_parallel_workers")),
      kExitEnvironment);
}

// Pipeline::MakeEpoch for batch `batch`, unless `epoch` is that one already.
Status PrepareEpoch(const Pipeline& pipeline, int64_t number, int64_t batch, Pipeline::Epoch* epoch) {
  if (epoch->number == number) return absl::OkStatus();
  try {
    pipeline.MakeEpoch(number, epoch);
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    epoch->number = -1;  // it is half of one
    return OutOfMemory(number, batch);
  }
}

// Pipeline::Fill.
StatusOr<int64_t> FillBatch(const Pipeline& pipeline, const Pipeline::Epoch& epoch, int64_t batch,
                            Pipeline::Scratch* scratch, Pipeline::Sequence* sequence,
                            const std::vector<void*>& columns) {
  try {
    return pipeline.Fill(epoch, batch, scratch, sequence, columns);
  } catch (const std::bad_alloc&) {
    return OutOfMemory(epoch.number, batch);
  }
}

}  // namespace

class Loader::Spares {
 public:
  explicit Spares(int64_t bytes) : bytes_(bytes) {}

  AlignedMemory Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (blocks_.empty()) return Allocate(bytes_);
    AlignedMemory block = std::move(blocks_.back());
    blocks_.pop_back();
    return block;
  }
  void GiveBack(AlignedMemory block) {
    const int64_t most = kSpareBytes / std::max<int64_t>(bytes_, 1) + 2;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (static_cast<int64_t>(blocks_.size()) < most) blocks_.push_back(std::move(block));
  }

 private:
  const int64_t bytes_;
  std::mutex mutex_;
  std::vector<AlignedMemory> blocks_;
};

Loader::Loader(std::shared_ptr<const Pipeline> pipeline, const LoaderOptions& options)
    : pipeline_(std::move(pipeline)),
      workers_(pipeline_->foreign() || pipeline_->immediate() ? 0 : std::max(options.workers, 0)),
      ahead_(options.prefetch > 0 ? options.prefetch : workers_ + 1) {
  for (size_t k = 0; k < pipeline_->schema().size(); ++k)
    spares_.push_back(std::make_shared<Spares>(pipeline_->column_bytes(k)));
  MakeShared();
  Start();
}

std::shared_ptr<void> Loader::Keep(size_t column) {
  AlignedMemory next = spares_[column]->Take();
  given_->columns[column] = next.get();
  std::swap(given_->memory[column], next);
  return {next.release(),
          [spares = spares_[column]](void* memory) { spares->GiveBack(AlignedMemory(static_cast<char*>(memory))); }};
}

Loader::~Loader() { Stop(); }

void Loader::MakeShared() {
  shared_ = std::make_shared<Shared>();
  shared_->pipeline = pipeline_;
  // One more for the batch that the caller holds.
  shared_->slots.resize(workers_ == 0 ? 1 : static_cast<size_t>(ahead_) + 1);
  for (Slot& slot : shared_->slots) {
    for (size_t k = 0; k < pipeline_->schema().size(); ++k) {
      slot.memory.emplace_back(Allocate(pipeline_->column_bytes(k)));
      slot.columns.push_back(slot.memory.back().get());
    }
  }
}

void Loader::Start() {
  shared_->claimed = shared_->released = position_.epoch * pipeline_->size() + position_.batch;
  shared_->stop = false;
  for (Slot& slot : shared_->slots) slot.ready = false;
  shared_->running = workers_;
  for (int i = 0; i < workers_; ++i) {
    auto calls = std::make_shared<CodeCalls>();
    threads_.push_back({std::thread([shared = shared_, calls] { Work(shared.get(), calls.get()); }), calls});
  }
}

void Loader::Stop() {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->stop = true;
  shared_->work.notify_all();
  const auto ended = [&] { return shared_->running == 0; };
  while (pipeline_->runs_code() && overdue_.ok() && !ended()) {
    if (shared_->done.wait_for(lock, kLook, ended)) break;
    lock.unlock();
    overdue_ = Overdue();
    lock.lock();
  }
  // A thread in a call that never returns keeps what it uses; so may others beside it.
  const bool leave = !overdue_.ok() && !shared_->done.wait_for(lock, kLook, ended);
  lock.unlock();
  for (Worker& worker : threads_) leave ? worker.thread.detach() : worker.thread.join();
  threads_.clear();
  if (leave) MakeShared();
  overdue_ = absl::OkStatus();
}

void Loader::Work(Shared* shared, CodeCalls* calls) {
  // Tensors of users' code are small: one thread each.
  if (shared->pipeline->runs_code()) SetComputeThreads(1);
  const Pipeline& pipeline = *shared->pipeline;
  Pipeline::Scratch scratch(calls);
  Pipeline::Sequence unused;
  const int64_t size = pipeline.size();
  std::unique_lock<std::mutex> lock(shared->mutex);
  while (true) {
    // A batch of epoch e + 2 waits until epoch e is used up: its order takes the place of e's.
    shared->work.wait(lock, [&] {
      return shared->stop || (shared->claimed < shared->released + static_cast<int64_t>(shared->slots.size()) &&
                              shared->claimed / size <= shared->released / size + 1);
    });
    if (shared->stop) break;
    const int64_t number = shared->claimed++;
    Pipeline::Epoch& epoch = shared->epochs[number / size % 2];
    // Under the lock: the others need it too, and it happens once an epoch.
    Slot& slot = shared->slots[number % shared->slots.size()];
    slot.status = PrepareEpoch(pipeline, number / size, number % size, &epoch);
    slot.valid = 0;
    if (slot.status.ok()) {
      slot.shape = pipeline.ShapeOf(epoch, number % size);
      lock.unlock();
      StatusOr<int64_t> valid = FillBatch(pipeline, epoch, number % size, &scratch, &unused, slot.columns);
      lock.lock();
      slot.status = valid.status();
      slot.valid = valid.ok() ? *valid : 0;
    }
    slot.ready = true;
    shared->done.notify_one();
  }
  --shared->running;
  shared->done.notify_one();
}

Status Loader::FillInline(Slot* slot) {
  Pipeline::Epoch& epoch = shared_->epochs[0];
  RETURN_IF_ERROR(PrepareEpoch(*pipeline_, position_.epoch, position_.batch, &epoch));
  slot->shape = pipeline_->ShapeOf(epoch, position_.batch);
  ASSIGN_OR_RETURN(slot->valid, FillBatch(*pipeline_, epoch, position_.batch, &scratch_, &sequence_, slot->columns));
  return absl::OkStatus();
}

Status Loader::Overdue() const {
  for (const Worker& worker : threads_) RETURN_IF_ERROR(worker.calls->Overdue());
  return absl::OkStatus();
}

Status Loader::WaitFor(const Slot& slot, std::unique_lock<std::mutex>* lock) {
  const auto ready = [&] { return slot.ready; };
  if (!pipeline_->runs_code()) {
    shared_->done.wait(*lock, ready);
    return slot.status;
  }
  while (overdue_.ok() && !shared_->done.wait_for(*lock, kLook, ready)) {
    lock->unlock();
    overdue_ = Overdue();
    lock->lock();
  }
  return overdue_.ok() ? slot.status : overdue_;
}

StatusOr<bool> Loader::Next(Batch* batch) {
  if (position_.batch == pipeline_->size()) {
    position_ = {position_.epoch + 1, 0};
    return false;
  }
  const int64_t number = position_.epoch * pipeline_->size() + position_.batch;
  Slot& slot = shared_->slots[number % shared_->slots.size()];
  const auto start = std::chrono::steady_clock::now();
  if (workers_ == 0) {
    RETURN_IF_ERROR(FillInline(&slot));
  } else {
    std::unique_lock<std::mutex> lock(shared_->mutex);
    if (shared_->released < number) {
      shared_->slots[shared_->released % shared_->slots.size()].ready = false;
      shared_->released = number;
      shared_->work.notify_all();
    }
    RETURN_IF_ERROR(WaitFor(slot, &lock));
  }
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  given_ = &slot;
  batch->position = position_;
  batch->valid = slot.valid;
  batch->shape = slot.shape;
  batch->columns.resize(slot.columns.size());
  for (size_t k = 0; k < slot.columns.size(); ++k) {
    batch->columns[k] = TensorView{pipeline_->schema(slot.shape)[k].type, slot.columns[k]};
  }
  ++position_.batch;
  if (check_) RETURN_IF_ERROR(std::exchange(check_, nullptr)(*batch));
  return true;
}

Status Loader::Seek(Position position) {
  if (position.epoch < 0 || position.batch < 0 || position.batch > pipeline_->size()) {
    return absl::InvalidArgumentError(absl::StrCat("position (epoch ", position.epoch, ", batch ", position.batch,
                                                   ") is outside the dataset, which has ", pipeline_->size(),
                                                   " batches an epoch"));
  }
  Stop();
  position_ = position;
  sequence_.epoch = -1;
  Start();
  return absl::OkStatus();
}

Status NameSample(const Status& status, const Loader& loader, const Batch& batch) {
  if (status.ok()) return status;
  const auto payload = status.GetPayload("mslua/record");
  if (!payload) return status;
  const std::string text(*payload);
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  int64_t record = 0, records = 0, value = 0;
  if (words.size() != 3 || !absl::SimpleAtoi(words[0], &record) || !absl::SimpleAtoi(words[1], &records) ||
      !absl::SimpleAtoi(words[2], &value))
    return status;
  std::string where =
      absl::StrCat("epoch ", batch.position.epoch + 1, ", batch ", batch.position.batch + 1, " of the epoch");
  const Pipeline& pipeline = loader.pipeline();
  const int64_t rows = pipeline.rows(batch.shape);
  for (const TensorView& column : batch.columns) {
    // Micro-batches are other rows than the batch's.
    if (column.type.elements() != records || records % rows != 0) continue;
    if (LoadAsDouble(column.type.dtype, column.data, record) != static_cast<double>(value)) continue;
    Pipeline::Epoch epoch;
    pipeline.MakeEpoch(batch.position.epoch, &epoch);
    absl::StrAppend(&where, ": ", pipeline.SampleAt(epoch, batch.position.batch, record / (records / rows)));
    break;
  }
  return {status.code(), absl::StrCat(status.message(), " (", where, ")")};
}

}  // namespace mslua::data
