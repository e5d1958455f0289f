#include "core/runtime/store.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {
// From this size on a block is mapped by itself and asks for huge pages.
constexpr int64_t kMapped = 4 << 20;
constexpr int64_t kHugePage = 2 << 20;
int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
}  // namespace

Block::Block(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const int64_t unit = bytes >= kMapped ? kHugePage : 64;
  data_ = std::aligned_alloc(static_cast<size_t>(unit), static_cast<size_t>(RoundUp(bytes, unit)));
  if (data_ == nullptr) {
    // The plan has said how much memory the run needs; a system that overcommits does not come here.
    std::fprintf(stderr, "mslua: out of memory: %lld bytes\n", static_cast<long long>(bytes));
    std::abort();
  }
  if (bytes >= kMapped) madvise(data_, static_cast<size_t>(RoundUp(bytes, unit)), MADV_HUGEPAGE);
  std::memset(data_, 0, static_cast<size_t>(bytes));
}

Block::~Block() { std::free(data_); }

Block& Block::operator=(Block&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

StatusOr<TensorView> Store::Add(std::string name, absl::string_view kind, const TensorType& type) {
  if (by_name_.contains(name)) return absl::AlreadyExistsError(absl::StrCat("a second tensor named '", name, "'"));
  auto entry = std::make_unique<Entry>();
  entry->name = std::move(name);
  entry->type = type;
  entry->kind = std::string(kind);
  entry->memory = Block(type.bytes());
  by_name_[entry->name] = entry.get();
  entries_.push_back(std::move(entry));
  return entries_.back()->view();
}

const Store::Entry* Store::Find(absl::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

int64_t Store::bytes() const {
  int64_t sum = 0;
  for (const auto& e : entries_) sum += e->type.bytes();
  return sum;
}

}  // namespace mslua
