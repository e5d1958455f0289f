#include "core/data/loader.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace mslua::data {
namespace {

// A column of a batch.
AlignedMemory Allocate(int64_t bytes) {
  AlignedMemory memory = AllocateAligned(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

Loader::Loader(std::shared_ptr<const Pipeline> pipeline, const LoaderOptions& options)
    : pipeline_(std::move(pipeline)),
      workers_(pipeline_->foreign() || pipeline_->immediate() ? 0 : std::max(options.workers, 0)) {
  const int ahead = options.prefetch > 0 ? options.prefetch : workers_ + 1;
  // One more for the batch that the caller holds.
  slots_.resize(workers_ == 0 ? 1 : static_cast<size_t>(ahead) + 1);
  for (Slot& slot : slots_) {
    for (const Column& column : pipeline_->schema()) {
      slot.memory.emplace_back(Allocate(column.type.bytes()));
      slot.columns.push_back(slot.memory.back().get());
    }
  }
  Start();
}

Loader::~Loader() { Stop(); }

void Loader::Start() {
  claimed_ = released_ = position_.epoch * pipeline_->size() + position_.batch;
  stop_ = false;
  for (Slot& slot : slots_) slot.ready = false;
  for (int i = 0; i < workers_; ++i) threads_.emplace_back([this] { Work(); });
}

void Loader::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Loader::Work() {
  Pipeline::Scratch scratch;
  Pipeline::Sequence unused;
  const int64_t size = pipeline_->size();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    // A batch of epoch e + 2 waits until epoch e is used up: its order takes the place of e's.
    work_.wait(lock, [&] {
      return stop_ ||
             (claimed_ < released_ + static_cast<int64_t>(slots_.size()) && claimed_ / size <= released_ / size + 1);
    });
    if (stop_) return;
    const int64_t number = claimed_++;
    Pipeline::Epoch& epoch = epochs_[number / size % 2];
    // Under the lock: the others need it too, and it happens once an epoch.
    if (epoch.number != number / size) pipeline_->MakeEpoch(number / size, &epoch);
    Slot& slot = slots_[number % slots_.size()];
    lock.unlock();
    StatusOr<int64_t> valid = pipeline_->Fill(epoch, number % size, &scratch, &unused, slot.columns);
    lock.lock();
    slot.status = valid.status();
    slot.valid = valid.ok() ? *valid : 0;
    slot.ready = true;
    done_.notify_one();
  }
}

Status Loader::FillInline(Slot* slot) {
  Pipeline::Epoch& epoch = epochs_[0];
  if (epoch.number != position_.epoch) pipeline_->MakeEpoch(position_.epoch, &epoch);
  ASSIGN_OR_RETURN(slot->valid, pipeline_->Fill(epoch, position_.batch, &scratch_, &sequence_, slot->columns));
  return absl::OkStatus();
}

StatusOr<bool> Loader::Next(Batch* batch) {
  if (position_.batch == pipeline_->size()) {
    position_ = {position_.epoch + 1, 0};
    return false;
  }
  const int64_t number = position_.epoch * pipeline_->size() + position_.batch;
  Slot& slot = slots_[number % slots_.size()];
  const auto start = std::chrono::steady_clock::now();
  if (workers_ == 0) {
    RETURN_IF_ERROR(FillInline(&slot));
  } else {
    std::unique_lock<std::mutex> lock(mutex_);
    if (released_ < number) {
      slots_[released_ % slots_.size()].ready = false;
      released_ = number;
      work_.notify_all();
    }
    done_.wait(lock, [&] { return slot.ready; });
    RETURN_IF_ERROR(slot.status);
  }
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  batch->position = position_;
  batch->valid = slot.valid;
  batch->columns.resize(slot.columns.size());
  for (size_t k = 0; k < slot.columns.size(); ++k) {
    batch->columns[k] = TensorView{pipeline_->schema()[k].type, slot.columns[k]};
  }
  ++position_.batch;
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
  const int64_t rows = pipeline.rows();
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
