#include "core/checkpoint/unfinished_save.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/hash.h"

namespace mslua::checkpoint {
namespace {

constexpr uint64_t kMagic = 0x31'65'76'61'73'73'6c'6d;  // "mlssave1"
constexpr int64_t kPage = 4096;

// The texts, path and manifest, lie where the longest file would end.
struct Header {
  std::atomic<uint64_t> magic;  // written last
  int64_t size, texts_at, path_bytes, manifest_bytes;
  uint32_t crc;  // of the texts
};
static_assert(sizeof(Header) <= kPage);

Status WriteAt(int descriptor, int64_t at, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = pwrite(descriptor, text.data() + done, text.size() - done, at + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::ErrnoToStatus(n == 0 ? EIO : errno, "memory for an unfinished save");
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<SaveMemory>> SaveMemory::Make(int64_t bytes) {
  const int descriptor = memfd_create("mslua save", MFD_CLOEXEC);
  const auto none = [&] {
    const int code = errno;
    if (descriptor >= 0) close(descriptor);
    return absl::ResourceExhaustedError(absl::StrCat("no memory of ", bytes, " bytes for a save: ", strerror(code)));
  };
  // Allocated now, so that a lack of memory is an error here and not a signal later.
  if (descriptor < 0 || TEMP_FAILURE_RETRY(fallocate(descriptor, 0, 0, kPage + bytes)) != 0) return none();
  void* const memory =
      mmap(nullptr, static_cast<size_t>(kPage + bytes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return none();
  new (memory) Header();
  return std::unique_ptr<SaveMemory>(new SaveMemory(descriptor, static_cast<char*>(memory), bytes));
}

SaveMemory::~SaveMemory() {
  munmap(memory_, static_cast<size_t>(kPage + bytes_));
  close(descriptor_);
}

char* SaveMemory::data() const { return memory_ + kPage; }

void SaveMemory::Clear() { reinterpret_cast<Header*>(memory_)->magic = 0; }

Status SaveMemory::Complete(const std::string& path, const std::string& manifest, int64_t size) {
  const std::string texts = path + manifest;
  auto* const header = reinterpret_cast<Header*>(memory_);
  header->size = size;
  header->texts_at = kPage + bytes_;
  header->path_bytes = static_cast<int64_t>(path.size());
  header->manifest_bytes = static_cast<int64_t>(manifest.size());
  header->crc = Crc32c(texts.data(), texts.size());
  RETURN_IF_ERROR(WriteAt(descriptor_, header->texts_at, texts));
  header->magic = kMagic;
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<UnfinishedSave>> UnfinishedSave::Open(int descriptor) {
  struct stat info;
  if (fstat(descriptor, &info) != 0) return absl::ErrnoToStatus(errno, "memory of an unfinished save");
  if (info.st_size < kPage) return absl::DataLossError("the memory of an unfinished save is too short");
  void* const memory = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, "memory of an unfinished save");
  std::unique_ptr<UnfinishedSave> save(new UnfinishedSave(static_cast<char*>(memory), info.st_size));
  RETURN_IF_ERROR(save->Read());
  return save;
}

UnfinishedSave::~UnfinishedSave() { munmap(memory_, static_cast<size_t>(bytes_)); }

Status UnfinishedSave::Read() {
  const auto* const header = reinterpret_cast<const Header*>(memory_);
  if (header->magic == 0) return absl::NotFoundError("there is no unfinished save");
  const int64_t rest = bytes_ - header->texts_at;
  const bool fits = header->magic == kMagic && header->texts_at >= kPage && rest >= 0 && header->size >= 0 &&
                    header->size <= header->texts_at - kPage && header->path_bytes >= 0 && header->path_bytes <= rest &&
                    header->manifest_bytes >= 0 && header->manifest_bytes <= rest - header->path_bytes;
  if (!fits) return absl::DataLossError("the memory of an unfinished save is damaged");
  const std::string texts(memory_ + header->texts_at, static_cast<size_t>(header->path_bytes + header->manifest_bytes));
  if (Crc32c(texts.data(), texts.size()) != header->crc)
    return absl::DataLossError("the memory of an unfinished save is damaged");
  path_ = texts.substr(0, static_cast<size_t>(header->path_bytes));
  manifest_text_ = texts.substr(static_cast<size_t>(header->path_bytes));
  ASSIGN_OR_RETURN(manifest_, ParseManifest(manifest_text_));
  if (manifest_.files.size() != 1 || manifest_.files[0].digest.size != header->size)
    return absl::DataLossError(absl::StrCat("the unfinished save of ", path_, " is not of one file"));
  return absl::OkStatus();
}

// By the chunks' checksums: a process that writes where it should not may have written there.
Status UnfinishedSave::CheckFile() const {
  const FileDigest& wanted = manifest_.files[0].digest;
  FileDigester digester(wanted.size, /*blake2b_tree=*/false);
  for (int64_t chunk = 0; chunk < digester.chunks(); ++chunk)
    digester.Hash(chunk, memory_ + kPage + chunk * kChunkBytes);
  if (digester.Finish().crc32c == wanted.crc32c) return absl::OkStatus();
  return absl::DataLossError("what was copied for it in memory is damaged");
}

Status UnfinishedSave::Finish(const Companions& companions) const {
  RETURN_IF_ERROR(CheckFile());
  ASSIGN_OR_RETURN(const auto writer, CheckpointWriter::Create(path_, companions));
  const DataFile& file = manifest_.files[0];
  RETURN_IF_ERROR(WriteFileOf(memory_ + kPage, file.digest.size, writer->folder(), file.name));
  RETURN_IF_ERROR(writer->CommitManifest(manifest_text_));
  return VerifyFolder(path_, VerifyDepth::kOnDisk);
}

Status WriteFileOf(const char* data, int64_t size, const std::string& folder, const std::string& name) {
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(absl::StrCat(folder, "/", name)));
  // Whole pages past the page cache, then the rest.
  constexpr int64_t kLargest = 8 << 20;
  const int64_t whole = size / kChunkBytes * kChunkBytes;
  for (int64_t at = 0; at < whole; at += kLargest) {
    RETURN_IF_ERROR(file->Write(data + at, static_cast<size_t>(std::min(kLargest, whole - at))));
  }
  if (size > whole) RETURN_IF_ERROR(file->Write(data + whole, static_cast<size_t>(size - whole)));
  return file->Commit();
}

}  // namespace mslua::checkpoint
