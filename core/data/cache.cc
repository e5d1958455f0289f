#include "core/data/cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "core/base/folder.h"
#include "core/base/hash.h"
#include "core/base/round_up.h"
#include "core/data/file.h"

namespace mslua::data {
namespace {

constexpr int64_t kAlignment = 16;

int64_t Aligned(int64_t bytes) { return RoundUp(bytes, kAlignment); }

// A sample as bytes: the sizes of all dimensions, then the columns.
void Pack(absl::Span<const RawColumn> row, std::vector<uint8_t>* out) {
  int64_t dimensions = 0, bytes = 0;
  for (const RawColumn& c : row) dimensions += c.type.rank(), bytes += Aligned(c.type.bytes());
  out->assign(static_cast<size_t>(Aligned(dimensions * 8) + bytes), 0);
  uint8_t* at = out->data();
  for (const RawColumn& c : row) {
    for (const int64_t size : c.type.shape) {
      std::memcpy(at, &size, 8);
      at += 8;
    }
  }
  at = out->data() + Aligned(dimensions * 8);
  for (const RawColumn& c : row) {
    std::memcpy(at, c.data, static_cast<size_t>(c.type.bytes()));
    at += Aligned(c.type.bytes());
  }
}

void Unpack(const std::vector<Column>& columns, const uint8_t* packed, absl::Span<RawColumn> row) {
  const uint8_t* at = packed;
  for (size_t k = 0; k < columns.size(); ++k) {
    row[k] = RawColumn{nullptr, columns[k].type};
    for (int64_t& size : row[k].type.shape) {
      std::memcpy(&size, at, 8);
      at += 8;
    }
  }
  at = packed + Aligned(at - packed);
  for (RawColumn& c : row) {
    c.data = at;
    at += Aligned(c.type.bytes());
  }
}

// What both kinds share: the part that is kept.
class CacheReader : public Reader {
 public:
  explicit CacheReader(std::shared_ptr<Part> part) : part_(std::move(part)) {
    columns_ = part_->columns();
    size_ = part_->size();
    notices_ = part_->pipeline().notices();
  }
  bool bound_to_thread() const override { return part_->pipeline().foreign(); }
  bool runs_code() const override { return part_->pipeline().runs_code(); }
  std::vector<std::string> class_names() const override { return part_->pipeline().class_names(); }
  std::string Where(int64_t i) const override { return part_->Where(i); }

 protected:
  // Sample i, made, into `packed`.
  Status Make(int64_t i, ReadBuffers* buffers, std::vector<uint8_t>* packed) const {
    std::vector<RawColumn> row(columns_.size());
    RETURN_IF_ERROR(part_->Read(i, PartMemory(1, buffers)[0].get(), absl::MakeSpan(row)));
    Pack(row, packed);
    return absl::OkStatus();
  }

  // The same on a thread that is watched, where code of users runs.
  static StatusOr<std::vector<uint8_t>> MakeWatched(const std::shared_ptr<Part>& part, int64_t i) {
    auto packed = std::make_shared<std::vector<uint8_t>>();
    const auto make = [part, i, packed](CodeCalls* calls) -> Status {
      Pipeline::Scratch scratch(calls);
      std::vector<RawColumn> row(part->columns().size());
      RETURN_IF_ERROR(part->Read(i, &scratch, absl::MakeSpan(row)));
      Pack(row, packed.get());
      return absl::OkStatus();
    };
    CodeCalls calls;
    RETURN_IF_ERROR(part->pipeline().foreign() ? make(&calls) : CodeCalls::RunWatched(make));
    return *packed;
  }

  const std::shared_ptr<Part> part_;
};

// "20 kB", "1.5 GB"
std::string Amount(double bytes) {
  constexpr double kStep = 1000, kMega = 1e6, kGiga = 1e9;
  if (bytes < kMega) return absl::StrFormat("%.0f kB", std::ceil(bytes / kStep));
  return bytes < kGiga ? absl::StrFormat("%.1f MB", bytes / kMega) : absl::StrFormat("%.1f GB", bytes / kGiga);
}

class MemoryCache : public CacheReader {
 public:
  explicit MemoryCache(std::shared_ptr<Part> part)
      : CacheReader(std::move(part)), samples_(static_cast<size_t>(size_)) {}
  ~MemoryCache() override {
    for (auto& sample : samples_) delete sample.load();
  }

  Status CheckSize() const {
    ASSIGN_OR_RETURN(const std::vector<uint8_t> first, MakeWatched(part_, 0));
    const double wanted = static_cast<double>(first.size()) * static_cast<double>(size_);
    const double free = static_cast<double>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    const double all = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    if (wanted <= all * 0.9) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat("cache: ", size_, " samples as large as the first take ",
                                                     Amount(wanted), ", the machine has ", Amount(all), " (",
                                                     Amount(free), " free): give a folder, ds:cache \"DIR\""));
  }

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    auto& place = samples_[static_cast<size_t>(i)];
    const std::vector<uint8_t>* packed = place.load(std::memory_order_acquire);
    if (packed == nullptr) {
      auto made = std::make_unique<std::vector<uint8_t>>();
      RETURN_IF_ERROR(Make(i, buffers, made.get()));
      made->shrink_to_fit();
      // Where another thread was faster, its copy stays.
      if (place.compare_exchange_strong(packed, made.get())) packed = made.release();
    }
    Unpack(columns_, packed->data(), row);
    return absl::OkStatus();
  }

 private:
  mutable std::vector<std::atomic<const std::vector<uint8_t>*>> samples_;
};

// ---- In a folder ---------------------------------------------------------------------------------------------------

// The file `index`, mapped by all that use the folder.
struct IndexHeader {
  char magic[16];
  uint64_t samples;
  char identity[32];          // the first digits of a digest
  std::atomic<uint64_t> end;  // of the file `samples`: where the next one goes
  char unused[64];
};
struct IndexEntry {
  std::atomic<uint64_t> place;  // offset + 1; 0: not kept yet. Written last
  uint64_t bytes;
  uint32_t checksum;
  uint32_t unused;
};
static_assert(sizeof(IndexHeader) == 128 && sizeof(IndexEntry) == 24);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
constexpr char kMagic[17] = "mslua cache 1\n\0\0";

Status CannotDo(const char* what, const std::string& path) {
  const int error = errno;
  const std::string text = absl::StrCat("cache: cannot ", what, " '", path, "': ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT)
    return WithExitCode(absl::ResourceExhaustedError(text + ": free some space, or give another folder"), kExitStorage);
  return WithExitCode(absl::FailedPreconditionError(text), kExitStorage);
}

class FolderCache : public CacheReader {
 public:
  FolderCache(std::shared_ptr<Part> part, std::string folder)
      : CacheReader(std::move(part)), folder_(std::move(folder)), checked_(static_cast<size_t>(size_)) {}
  ~FolderCache() override {
    if (header_ != nullptr) munmap(header_, MappedBytes());
    if (samples_ >= 0) close(samples_);
  }

  Status Open(const std::string& identity) {
    RETURN_IF_ERROR(Annotate(MakeFolders(folder_), "cache"));
    const std::string path = folder_ + "/index";
    if (access(path.c_str(), F_OK) != 0) RETURN_IF_ERROR(Create(path, identity));
    RETURN_IF_ERROR(MapIndex(path, identity));
    const std::string samples = folder_ + "/samples";
    samples_ = open(samples.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (samples_ < 0) return CannotDo("open", samples);
    return CheckContents();
  }

  Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const override {
    std::vector<uint8_t>& packed = buffers->bytes;
    if (!Find(i, &packed)) {
      RETURN_IF_ERROR(Make(i, buffers, &packed));
      RETURN_IF_ERROR(Keep(i, packed));
    }
    Unpack(columns_, packed.data(), row);
    return absl::OkStatus();
  }

 private:
  size_t MappedBytes() const { return sizeof(IndexHeader) + static_cast<size_t>(size_) * sizeof(IndexEntry); }
  IndexEntry& EntryOf(int64_t i) const { return reinterpret_cast<IndexEntry*>(header_ + 1)[i]; }

  // Puts an empty index at `path`, unless another process is faster.
  Status Create(const std::string& path, const std::string& identity) const {
    ASSIGN_OR_RETURN(const auto names, ListFolder(folder_));
    for (const std::string& name : names) {
      if (!absl::StartsWith(name, "index") && name != "samples")
        return absl::FailedPreconditionError(absl::StrCat("cache: the folder '", folder_, "' has other files, such as ",
                                                          name, ": give an empty folder"));
    }
    ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path));
    std::string empty(MappedBytes(), 0);
    IndexHeader header{};
    std::memcpy(header.magic, kMagic, sizeof(header.magic));
    header.samples = static_cast<uint64_t>(size_);
    std::memcpy(header.identity, identity.data(), sizeof(header.identity));
    std::memcpy(empty.data(), &header, sizeof(header));
    RETURN_IF_ERROR(file->Write(empty.data(), empty.size()));
    const Status made = file->CommitNew();
    return absl::IsAlreadyExists(made) ? absl::OkStatus() : made;
  }

  Status MapIndex(const std::string& path, const std::string& identity) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return CannotDo("open", path);
    struct stat info {};
    const bool sized = fstat(fd, &info) == 0 && static_cast<size_t>(info.st_size) >= sizeof(IndexHeader);
    IndexHeader header{};
    const bool read = sized && pread(fd, &header, sizeof(header), 0) == sizeof(header);
    if (!read || std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0) {
      close(fd);
      return absl::DataLossError(
          absl::StrCat("cache: '", path, "' is no index of this version of mslua: remove the folder, or give another"));
    }
    const bool as_many = header.samples == static_cast<uint64_t>(size_);
    if (!as_many || std::memcmp(header.identity, identity.data(), sizeof(header.identity)) != 0 ||
        static_cast<size_t>(info.st_size) != MappedBytes()) {
      close(fd);
      return OtherData(as_many ? "" : absl::StrCat("it has ", header.samples, " samples, the dataset ", size_));
    }
    void* memory = mmap(nullptr, MappedBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) return CannotDo("map", path);
    header_ = static_cast<IndexHeader*>(memory);
    return absl::OkStatus();
  }

  Status OtherData(const std::string& how) const {
    return absl::FailedPreconditionError(
        absl::StrCat("cache: the folder '", folder_, "' was made of other data, or with other transforms",
                     how.empty() ? "" : absl::StrCat(" (", how, ")"), ": remove it, or give another folder"));
  }

  // Three samples are made again: files may have changed under their names. And whether the rest fits on the disk.
  Status CheckContents() const {
    std::vector<uint8_t> kept;
    int64_t missing = 0;
    for (int64_t i = 0; i < size_; ++i) missing += EntryOf(i).place.load(std::memory_order_relaxed) == 0;
    double bytes = 0;
    for (const int64_t i : {int64_t{0}, size_ / 2, size_ - 1}) {
      ASSIGN_OR_RETURN(const std::vector<uint8_t> made, MakeWatched(part_, i));
      if (i == 0) bytes = static_cast<double>(made.size());
      if (Find(i, &kept) && kept != made) return OtherData(absl::StrCat(Where(i), " differs"));
    }
    struct statvfs disk {};
    if (statvfs(folder_.c_str(), &disk) != 0) return absl::OkStatus();
    const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
    const double wanted = bytes * static_cast<double>(missing);
    if (wanted <= free) return absl::OkStatus();
    return WithExitCode(absl::ResourceExhaustedError(absl::StrCat(
                            "cache: '", folder_, "': ", missing, " samples take about ", Amount(wanted),
                            ", the disk has ", Amount(free), " free: free some space, or give another folder")),
                        kExitStorage);
  }

  // Sample i out of the file; false where it is not there, or damaged.
  bool Find(int64_t i, std::vector<uint8_t>* packed) const {
    const IndexEntry& entry = EntryOf(i);
    const uint64_t place = entry.place.load(std::memory_order_acquire);
    if (place == 0 || entry.bytes > header_->end.load()) return false;
    packed->resize(entry.bytes);
    for (size_t done = 0; done < entry.bytes;) {
      const ssize_t n =
          pread(samples_, packed->data() + done, entry.bytes - done, static_cast<off_t>(place - 1 + done));
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    // Once a process: a machine that lost power may have the entry without its bytes.
    auto& checked = checked_[static_cast<size_t>(i)];
    if (checked.load(std::memory_order_relaxed)) return true;
    if (Crc32c(packed->data(), packed->size()) != entry.checksum) return false;
    checked.store(true, std::memory_order_relaxed);
    return true;
  }

  Status Keep(int64_t i, const std::vector<uint8_t>& packed) const {
    const uint64_t offset = header_->end.fetch_add(packed.size());
    for (size_t done = 0; done < packed.size();) {
      const ssize_t n = pwrite(samples_, packed.data() + done, packed.size() - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return CannotDo("write", folder_ + "/samples");
      done += static_cast<size_t>(n);
    }
    // Threads that keep the same sample write the same bytes and checksum; either place is right.
    IndexEntry& entry = EntryOf(i);
    entry.bytes = packed.size();
    entry.checksum = Crc32c(packed.data(), packed.size());
    entry.place.store(offset + 1, std::memory_order_release);
    return absl::OkStatus();
  }

  const std::string folder_;
  IndexHeader* header_ = nullptr;
  int samples_ = -1;
  mutable std::vector<std::atomic<bool>> checked_;
};

}  // namespace

StatusOr<std::unique_ptr<Reader>> OpenMemoryCache(std::unique_ptr<Part> part) {
  auto cache = std::make_unique<MemoryCache>(std::shared_ptr<Part>(std::move(part)));
  RETURN_IF_ERROR(cache->CheckSize());
  return std::unique_ptr<Reader>(std::move(cache));
}

StatusOr<std::unique_ptr<Reader>> OpenFolderCache(std::unique_ptr<Part> part, const std::string& folder,
                                                  const std::string& identity) {
  std::string text = identity;
  for (const Column& column : part->columns()) absl::StrAppend(&text, "|", column.name, " ", ToString(column.type));
  for (int64_t i = 0; i < part->size(); ++i) absl::StrAppend(&text, "|", part->Where(i));
  auto cache = std::make_unique<FolderCache>(std::shared_ptr<Part>(std::move(part)), folder);
  RETURN_IF_ERROR(cache->Open(Blake2bHex(text)));
  return std::unique_ptr<Reader>(std::move(cache));
}

}  // namespace mslua::data
