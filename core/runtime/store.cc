#include "core/runtime/store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/round_up.h"
#include "core/runtime/guard.h"

namespace mslua {
namespace {

// From this size on a block is mapped by itself and asks for huge pages.
constexpr int64_t kMapped = 4 << 20;
constexpr int64_t kHugePage = 2 << 20, kPage = 4096;

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(int64_t bytes) : what_(absl::StrCat("a block of ", bytes, " bytes is not to be had")) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  const std::string what_;
};

// Pages that the system zeroes when they are first touched, by the thread that touches them: nothing is written twice.
// Null: there is no memory.
void* MapHuge(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes + kHugePage);
  char* const raw = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (raw == MAP_FAILED) return nullptr;
  char* const data = reinterpret_cast<char*>(RoundUp(reinterpret_cast<intptr_t>(raw), kHugePage));
  if (data > raw) munmap(raw, static_cast<size_t>(data - raw));
  if (raw + size > data + bytes) munmap(data + bytes, static_cast<size_t>(raw + size - data - bytes));
  madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return data;
}

// Pages that no other block has, zeroed: what is guarded. Null: there is no memory.
void* MapPages(int64_t bytes) {
  void* const data =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

}  // namespace

Block::Block(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const bool huge = bytes >= kMapped;
  const bool mapped = huge || GuardsMemory();
  data_ = huge     ? MapHuge(RoundUp(bytes, kHugePage))
          : mapped ? MapPages(bytes)
                   : std::aligned_alloc(64, static_cast<size_t>(RoundUp(bytes, 64)));
  if (data_ == nullptr) throw OutOfMemory(bytes);
  if (!mapped) std::memset(data_, 0, static_cast<size_t>(bytes));
}

Block Block::Over(void* data, int64_t bytes) {
  Block block;
  block.data_ = data;
  block.bytes_ = bytes;
  block.borrowed_ = true;
  return block;
}

Block::~Block() {
  if (borrowed_ || data_ == nullptr) return;
  if (bytes_ >= kMapped)
    munmap(data_, static_cast<size_t>(RoundUp(bytes_, kHugePage)));
  else if (GuardsMemory())
    munmap(data_, static_cast<size_t>(bytes_));
  else
    std::free(data_);
}

void Block::Close() const {
  if (bytes_ > 0) CloseMemory(data_, borrowed_ ? bytes_ : RoundUp(bytes_, kPage));
}
void Block::Open() const { OpenMemory(data_, bytes_); }

Block& Block::operator=(Block&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(borrowed_, other.borrowed_);
  return *this;
}

StatusOr<TensorView> Store::Add(std::string name, absl::string_view kind, const TensorType& type) {
  if (by_name_.contains(name)) return absl::AlreadyExistsError(absl::StrCat("a second tensor named '", name, "'"));
  auto entry = std::make_unique<Entry>();
  entry->name = std::move(name);
  entry->type = type;
  entry->kind = std::string(kind);
  entry->memory_ = Block(type.bytes());
  by_name_[entry->name] = entry.get();
  entries_.push_back(std::move(entry));
  return TensorView{type, Address(*entries_.back())};
}

StatusOr<Block> Store::Retype(absl::string_view name, const TensorType& type) {
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) return absl::NotFoundError(absl::StrCat("no tensor named '", name, "'"));
  if (image_ != nullptr) return absl::FailedPreconditionError(absl::StrCat("tensor '", name, "' is kept for recovery"));
  RETURN_IF_ERROR(Read(*it->second).status());
  if (mirror_) mirror_->Forget(*it->second);
  Block memory(type.bytes());
  std::swap(memory, it->second->memory_);
  it->second->type = type;
  it->second->sides_ = {};
  ++generation_;
  return memory;
}

const Store::Entry* Store::Find(absl::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

std::vector<Store::Entry*> Store::ByName() const {
  std::vector<Entry*> sorted;
  for (const auto& e : entries_) sorted.push_back(e.get());
  std::sort(sorted.begin(), sorted.end(), [](const Entry* a, const Entry* b) { return a->name < b->name; });
  return sorted;
}

std::vector<ImageEntry> Store::ImageEntries(const absl::flat_hash_set<std::string>& updated) const {
  std::vector<ImageEntry> entries;
  for (const Entry* e : ByName()) entries.push_back({e->name, e->type, updated.contains(e->name)});
  return entries;
}

void Store::Settle(std::shared_ptr<Image> image, const absl::flat_hash_set<std::string>& updated, ImageWriter writer,
                   bool adopt) {
  const std::vector<ImageEntry> entries = ImageEntries(updated);
  const std::array<std::vector<char*>, 2> sides = {image->Addresses(entries, 0), image->Addresses(entries, 1)};
  const int side = adopt ? image->side() : 0;
  const std::vector<Entry*> sorted = ByName();
  copied_.clear();
  for (size_t i = 0; i < entries.size(); ++i) {
    Entry& e = *sorted[i];
    char* const to = sides[static_cast<size_t>(side)][i];
    Open(e);
    if (writer == ImageWriter::kCopies && entries[i].updated) {
      if (adopt) std::memcpy(e.memory_.data(), to, static_cast<size_t>(e.type.bytes()));
      copied_.push_back({&e, {sides[0][i], sides[1][i]}});
      continue;
    }
    if (!adopt) std::memcpy(to, e.memory_.data(), static_cast<size_t>(e.type.bytes()));
    e.memory_ = Block::Over(to, e.type.bytes());
    e.sides_ = {};
    if (entries[i].updated) e.sides_ = {sides[0][i], sides[1][i]};
  }
  image_ = std::move(image);
  // Guarded memory is opened and closed as a whole.
  if (!GuardsMemory()) image_->Protect(entries, writer);
  writer_ = writer;
  side_ = side;
  committed_ = adopt ? side : kNone;
  ++generation_;
}

void Store::TurnTo(int side) {
  if (side == side_) return;
  side_ = side;
  for (const auto& e : entries_) {
    if (HasSides(*e)) e->memory_ = Block::Over(e->sides_[static_cast<size_t>(side)], e->type.bytes());
  }
}

Status Store::PrepareTurn(int64_t turn, absl::string_view record) {
  if (writer_ == ImageWriter::kSteps) return image_->Prepare(turn, side_, record);
  std::vector<Image::Value> values;
  values.reserve(copied_.size());
  for (const Copied& c : copied_) {
    ASSIGN_OR_RETURN(const TensorView newest, Read(*c.entry));
    values.push_back({c.places, newest.data, newest.type.bytes()});
  }
  return image_->PrepareCopy(turn, values, record);
}

void Store::CommitTurn() {
  image_->Commit();
  committed_ = side_;
}

std::vector<const char*> Store::CommittedPlaces() const {
  const auto side = static_cast<size_t>(image_->side());
  std::vector<const char*> places;
  for (const Copied& c : copied_) {
    if (c.entry->type.bytes() > 0) places.push_back(c.places[side]);
  }
  for (const auto& e : entries_) {
    if (HasSides(*e) && e->type.bytes() > 0) places.push_back(static_cast<const char*>(e->sides_[side]));
  }
  return places;
}

Status Store::Fetch(const Entry& entry) const { return mirror_ ? mirror_->Fetch(entry) : absl::OkStatus(); }

StatusOr<TensorView> Store::Read(const Entry& entry) const {
  Open(entry);
  RETURN_IF_ERROR(Fetch(entry));
  return TensorView{entry.type, Address(entry)};
}

StatusOr<TensorView> Store::WriteInPlace(const Entry& entry) const {
  Open(entry);
  RETURN_IF_ERROR(HostWrites(entry));
  return TensorView{entry.type, Address(entry)};
}

StatusOr<TensorView> Store::Write(const Entry& entry) {
  Open(entry);
  RETURN_IF_ERROR(PrepareToWrite(entry));
  return TensorView{entry.type, Address(entry)};
}

void* Store::Address(const Entry& entry, int side) {
  return HasSides(entry) ? entry.sides_[static_cast<size_t>(side)] : entry.memory_.data();
}

void Store::Open(const Entry& entry) const {
  if (entry.open_) return;
  for (const int side : {0, 1}) OpenMemory(Address(entry, side), entry.type.bytes());
  entry.open_ = true;
}

void Store::OpenAll() const {
  for (const auto& e : entries_) Open(*e);
}

void Store::OpenAt(const void* data) const {
  for (const auto& e : entries_) {
    if (Address(*e, 0) == data || Address(*e, 1) == data) return Open(*e);
  }
}

void Store::CloseAll() const {
  if (!GuardsMemory()) return;
  for (const auto& e : entries_) {
    if (HasSides(*e)) {
      for (void* const side : e->sides_) CloseMemory(side, e->type.bytes());
    } else {
      e->memory_.Close();
    }
    e->open_ = false;
  }
}

Status Store::HostWrites(const Entry& entry) const {
  RETURN_IF_ERROR(Fetch(entry));
  if (mirror_) mirror_->HostWrites(entry);
  return absl::OkStatus();
}

Status Store::PrepareToWrite(const Entry& entry) {
  RETURN_IF_ERROR(HostWrites(entry));
  if (committed_ == kNone) return absl::OkStatus();
  if (!HasSides(entry)) {
    if (!InImage(entry)) return absl::OkStatus();
    image_->Forget();
    committed_ = kNone;
    return absl::OkStatus();
  }
  const int side = free_side();
  if (side == side_) return absl::OkStatus();
  for (const auto& e : entries_) {
    if (!HasSides(*e)) continue;
    Open(*e);
    std::memcpy(Address(*e, side), Address(*e, side_), static_cast<size_t>(e->type.bytes()));
  }
  TurnTo(side);
  return absl::OkStatus();
}

int64_t Store::bytes() const {
  int64_t sum = 0;
  for (const auto& e : entries_) sum += e->type.bytes();
  return sum;
}

}  // namespace mslua
