#include "core/image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "absl/strings/str_cat.h"
#include "core/base/hash.h"
#include "core/base/parallel_for.h"
#include "core/base/round_up.h"

namespace mslua {
namespace {

constexpr uint64_t kMagic = 0x33'65'67'61'6d'69'73'6d;  // "msimage3"
constexpr int64_t kPage = 4096, kHugePage = 2 << 20;
constexpr int64_t kAlignment = 64;
constexpr int64_t kLargestCopied = 1 << 20;
// The header, the number of steps that were begun, and the two records.
constexpr int64_t kBegun = kPage, kRecords = 2 * kPage, kRecordStride = Image::kRecordBytes + kPage;

// A turn, which of the two records is its, and its side, in the one word that is stored at once; 0: none.
uint64_t WordOf(int64_t turn, int record, int side) {
  return (static_cast<uint64_t>(turn) + 1) << 2 | static_cast<uint64_t>(record) << 1 | static_cast<uint64_t>(side);
}
int64_t TurnOf(uint64_t word) { return static_cast<int64_t>(word >> 2) - 1; }
int RecordOfWord(uint64_t word) { return static_cast<int>(word >> 1 & 1); }
int SideOf(uint64_t word) { return static_cast<int>(word & 1); }

struct RecordHead {
  uint32_t bytes;
  uint32_t crc;
  uint64_t word;  // that names it
};

int64_t OffsetOf(int record) { return kRecords + record * kRecordStride; }

// A number of steps with 16 bits that follow from it: memory that was written over has others.
uint64_t BegunWord(int64_t step) {
  const auto n = static_cast<uint64_t>(step);
  return n << 16 | (n * 0x9e3779b97f4a7c15) >> 48;
}

// Where the parts of an image lie.
struct Layout {
  int64_t sides[2], once, bytes;
  std::vector<int64_t> offsets;  // of each entry in its part
  uint64_t hash;
};

Layout LayoutOf(absl::Span<const ImageEntry> entries) {
  Layout layout = {};
  std::string text;
  int64_t updated = 0, once = 0;
  for (const ImageEntry& e : entries) {
    absl::StrAppend(&text, e.name, "\n", ToString(e.type), e.updated ? " updated\n" : "\n");
    int64_t& end = e.updated ? updated : once;
    layout.offsets.push_back(end);
    end += RoundUp(e.type.bytes(), kAlignment);
  }
  const std::string digest = Blake2bHex(text);
  layout.hash = std::stoull(digest.substr(0, 16), nullptr, 16);
  // Sides of several huge pages begin where one does.
  const int64_t unit = updated + once >= 2 * kHugePage ? kHugePage : kPage;
  layout.sides[0] = RoundUp(OffsetOf(2), unit);
  layout.sides[1] = layout.sides[0] + RoundUp(updated, unit);
  layout.once = layout.sides[1] + RoundUp(updated, unit);
  layout.bytes = layout.once + RoundUp(once, unit);
  return layout;
}

// Huge pages for the part from `begin` on, where the kernel has them: it collapses what has a page already.
void UseHugePages(char* memory, int64_t begin, int64_t end) {
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
  if (end - begin < 2 * kHugePage) return;
  for (int64_t at = begin; at < end; at += kHugePage) memory[at] = 0;
  madvise(memory + begin, static_cast<size_t>(end - begin), MADV_COLLAPSE);
}

// At a multiple of the huge page, where huge pages can be.
char* MapAligned(int descriptor, int64_t bytes) {
  const auto room = static_cast<size_t>(bytes + kHugePage);
  char* const raw = static_cast<char*>(mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (raw == MAP_FAILED) return nullptr;
  char* const data = reinterpret_cast<char*>(RoundUp(reinterpret_cast<intptr_t>(raw), kHugePage));
  if (data > raw) munmap(raw, static_cast<size_t>(data - raw));
  const int64_t end = RoundUp(bytes, kPage);
  if (raw + room > data + end) munmap(data + end, static_cast<size_t>(raw + room - data - end));
  void* const mapped =
      mmap(data, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0);
  if (mapped != MAP_FAILED) return data;
  munmap(data, static_cast<size_t>(end));
  return nullptr;
}

// The file's pages from `begin` on once more, writable, with nothing on either side: what runs over the ends of other
// memory does not reach them, and no pointer to them leaves this file. Null: there are no addresses left, and errno
// says so.
constexpr int64_t kApart = 16 << 20;
char* MapApart(int descriptor, int64_t begin, int64_t bytes) {
  const auto all = static_cast<size_t>(bytes + 2 * kApart);
  void* const raw = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* const data = static_cast<char*>(raw) + kApart;
  void* const mapped =
      mmap(data, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, begin);
  if (mapped != MAP_FAILED) return data;
  const int code = errno;
  munmap(raw, all);
  errno = code;
  return nullptr;
}
void UnmapApart(char* data, int64_t bytes) { munmap(data - kApart, static_cast<size_t>(bytes + 2 * kApart)); }

// By the kernel, which does not look at the mapping's protection: a write of this program elsewhere cannot be one here.
// It uses `pieces` up, of which there are few.
Status WriteAll(int descriptor, absl::Span<iovec> pieces, int64_t offset) {
  size_t done = 0;  // of the first piece
  while (true) {
    while (!pieces.empty() && done >= pieces[0].iov_len) {
      done -= pieces[0].iov_len;
      pieces.remove_prefix(1);
    }
    if (pieces.empty()) return absl::OkStatus();
    pieces[0].iov_base = static_cast<char*>(pieces[0].iov_base) + done;
    pieces[0].iov_len -= done;
    done = 0;
    const ssize_t n = pwritev(descriptor, pieces.data(), static_cast<int>(pieces.size()), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::ResourceExhaustedError(absl::StrCat("an image cannot be written: ", strerror(errno)));
    offset += n;
    done = static_cast<size_t>(n);
  }
}

}  // namespace

struct Image::Header {
  uint64_t magic;
  int64_t bytes;
  uint64_t layout;
  std::atomic<uint64_t> committed, prepared;
};

const Image::Header* Image::header() const { return reinterpret_cast<const Header*>(memory_); }
std::atomic<uint64_t>* Image::begun_word() const { return reinterpret_cast<std::atomic<uint64_t>*>(memory_ + kBegun); }

void Image::SetWord(const std::atomic<uint64_t>& word, uint64_t value) {
  iovec piece = {&value, sizeof value};
  const Status written = WriteAll(descriptor_, {&piece, 1}, reinterpret_cast<const char*>(&word) - memory_);
  if (written.ok()) return;
  // Its page is there. Without the word nothing may be done on either side.
  std::fprintf(stderr, "mslua: %s\n", std::string(written.message()).c_str());
  std::abort();
}

void Image::CloseHeader() {
  mprotect(memory_, kPage, PROT_READ);
  mprotect(memory_ + kRecords, static_cast<size_t>(OffsetOf(2) - kRecords), PROT_READ);
}

ImageWriter Image::WriterFor(absl::Span<const ImageEntry> entries) {
  int64_t updated = 0;
  for (const ImageEntry& e : entries) updated += e.updated ? e.type.bytes() : 0;
  return updated <= kLargestCopied ? ImageWriter::kCopies : ImageWriter::kSteps;
}

void Image::Protect(absl::Span<const ImageEntry> entries, ImageWriter writer) {
  const Layout layout = LayoutOf(entries);
  writer_ = writer;
  parts_[0].begin = layout.sides[0];
  parts_[0].end = parts_[1].begin = layout.sides[1];
  parts_[1].end = parts_[kOnce].begin = layout.once;
  parts_[kOnce].end = layout.bytes;
  ProtectSides();
}

// What is committed, and, where steps write, nothing else.
void Image::ProtectSides() {
  const bool none = committed() == kNoTurn;
  for (const int s : {0, 1}) Access(s, writer_ == ImageWriter::kSteps && (none || s != side()));
  Access(kOnce, none);
}

void Image::Access(int part, bool writable) {
  Part& p = parts_[static_cast<size_t>(part)];
  if (p.begin == p.end || p.writable == writable) return;
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  if (mprotect(memory_ + p.begin, static_cast<size_t>(p.end - p.begin), access) == 0) {
    p.writable = writable;
  } else if (writable) {
    std::fprintf(stderr, "mslua: an image cannot be opened for the next step: mprotect: %s\n", strerror(errno));
    std::abort();
  }
}

StatusOr<std::unique_ptr<Image>> Image::Make(absl::Span<const ImageEntry> entries) {
  const Layout layout = LayoutOf(entries);
  const int descriptor = memfd_create("mslua image", MFD_CLOEXEC);
  const auto none = [&] {
    const int code = errno;
    if (descriptor >= 0) close(descriptor);
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for an image of ", layout.bytes, " bytes: ", strerror(code)));
  };
  // What the tensors need is allocated now, so that a lack of memory is an error here and not a signal later.
  if (descriptor < 0 || ftruncate(descriptor, layout.bytes) != 0) return none();
  char* const memory = MapAligned(descriptor, layout.bytes);
  if (memory == nullptr) return none();
  std::unique_ptr<Image> image(new Image(descriptor, memory, layout.bytes));
  UseHugePages(memory, layout.sides[0], layout.bytes);
  if (layout.bytes > layout.sides[0] &&
      TEMP_FAILURE_RETRY(fallocate(descriptor, 0, layout.sides[0], layout.bytes - layout.sides[0])) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for an image of ", layout.bytes, " bytes: ", strerror(errno)));
  }
  Header* const header = new (memory) Header();
  header->bytes = layout.bytes;
  header->layout = layout.hash;
  header->magic = kMagic;
  image->CloseHeader();
  return image;
}

StatusOr<std::unique_ptr<Image>> Image::Open(int from) {
  const int descriptor = fcntl(from, F_DUPFD_CLOEXEC, 0);
  struct stat info;
  const auto bad = [&](absl::string_view why) {
    if (descriptor >= 0) close(descriptor);
    return absl::DataLossError(absl::StrCat("not the image of a training: ", why));
  };
  if (descriptor < 0 || fstat(descriptor, &info) != 0) return bad(strerror(errno));
  const Layout least = LayoutOf({});
  if (info.st_size < least.bytes) return bad(absl::StrCat(info.st_size, " bytes"));
  char* const memory = MapAligned(descriptor, info.st_size);
  if (memory == nullptr) return bad(strerror(errno));
  std::unique_ptr<Image> image(new Image(descriptor, memory, info.st_size));
  const Header& header = *image->header();
  if (header.magic != kMagic || header.bytes != info.st_size)
    return absl::DataLossError("not the image of a training: its header is damaged");
  image->CloseHeader();
  return image;
}

Image::~Image() {
  if (apart_ != nullptr) UnmapApart(apart_, bytes_ - OffsetOf(2));
  munmap(memory_, static_cast<size_t>(RoundUp(bytes_, kPage)));
  close(descriptor_);
}

bool Image::Holds(absl::Span<const ImageEntry> entries) const {
  const Layout layout = LayoutOf(entries);
  return header()->layout == layout.hash && bytes_ == layout.bytes;
}

std::vector<char*> Image::Addresses(absl::Span<const ImageEntry> entries, int side) const {
  const Layout layout = LayoutOf(entries);
  std::vector<char*> addresses;
  for (size_t i = 0; i < entries.size(); ++i)
    addresses.push_back(memory_ + (entries[i].updated ? layout.sides[side] : layout.once) + layout.offsets[i]);
  return addresses;
}

int64_t Image::committed() const { return TurnOf(header()->committed.load()); }
int64_t Image::prepared() const { return TurnOf(header()->prepared.load()); }
int Image::side() const { return SideOf(header()->committed.load()); }

StatusOr<uint64_t> Image::WriteRecord(int64_t turn, int side, absl::string_view record) {
  if (static_cast<int64_t>(record.size()) > kRecordBytes - static_cast<int64_t>(sizeof(RecordHead))) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the record of step-by-step recovery has ", record.size(), " bytes, more than ", kRecordBytes));
  }
  const uint64_t committed = header()->committed.load();
  const int free = 1 - RecordOfWord(committed);
  // Not prepared, while its record or its values are half there.
  if (header()->prepared.load() != committed) SetWord(header()->prepared, committed);
  const uint64_t word = WordOf(turn, free, side);
  RecordHead head = {static_cast<uint32_t>(record.size()), Crc32c(record.data(), record.size()), word};
  iovec pieces[] = {{&head, sizeof head}, {const_cast<char*>(record.data()), record.size()}};
  RETURN_IF_ERROR(WriteAll(descriptor_, absl::MakeSpan(pieces), OffsetOf(free)));
  return word;
}

Status Image::Prepare(int64_t turn, int side, absl::string_view record) {
  ASSIGN_OR_RETURN(const uint64_t word, WriteRecord(turn, side, record));
  Access(side, false);
  SetWord(header()->prepared, word);
  return absl::OkStatus();
}

Status Image::PrepareCopy(int64_t turn, absl::Span<const Value> values, absl::string_view record) {
  const int to = committed() == kNoTurn ? 0 : 1 - side();
  ASSIGN_OR_RETURN(const uint64_t word, WriteRecord(turn, to, record));
  RETURN_IF_ERROR(CopyValues(to, values));
  SetWord(header()->prepared, word);
  return absl::OkStatus();
}

// Each thread copies one range of all bytes, the same one every time: what it has written is in its core's cache.
Status Image::CopyValues(int side, absl::Span<const Value> values) {
  constexpr int64_t kGrain = 64 << 10;
  if (values.empty()) return absl::OkStatus();
  if (apart_ == nullptr) apart_ = MapApart(descriptor_, OffsetOf(2), bytes_ - OffsetOf(2));
  if (apart_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("an image of ", bytes_, " bytes cannot be mapped twice: ", strerror(errno)));
  }
  int64_t all = 0;
  for (const Value& v : values) all += v.bytes;
  ParallelFor(all, kGrain, [&](int64_t begin, int64_t end) {
    int64_t at = 0;  // of this value among all bytes
    for (const Value& v : values) {
      const int64_t from = std::max<int64_t>(begin - at, 0), to = std::min(end - at, v.bytes);
      if (from < to) {
        char* const place = apart_ + (v.places[static_cast<size_t>(side)] - memory_ - OffsetOf(2));
        memcpy(place + from, static_cast<const char*>(v.data) + from, static_cast<size_t>(to - from));
      }
      at += v.bytes;
    }
  });
  return absl::OkStatus();
}

void Image::Commit() {
  SetWord(header()->committed, header()->prepared.load());
  ProtectSides();
}

Status Image::GoTo(int64_t turn) {
  ASSIGN_OR_RETURN(const Held held, Find(turn));
  if (header()->committed.load() != held.word) SetWord(header()->committed, held.word);
  SetWord(header()->prepared, held.word);
  ProtectSides();
  return absl::OkStatus();
}

void Image::Forget() {
  SetWord(header()->prepared, 0);
  SetWord(header()->committed, 0);
  ProtectSides();
}

StatusOr<Image::Held> Image::Find(int64_t turn) const {
  for (const std::atomic<uint64_t>* word : {&header()->committed, &header()->prepared}) {
    const uint64_t w = word->load();
    if (w == 0 || TurnOf(w) != turn) continue;
    const char* const at = memory_ + OffsetOf(RecordOfWord(w));
    RecordHead head;
    memcpy(&head, at, sizeof head);
    const bool whole =
        head.word == w && head.bytes <= kRecordBytes - sizeof head && head.crc == Crc32c(at + sizeof head, head.bytes);
    if (!whole) return absl::DataLossError(absl::StrCat("the record of turn ", turn, " is damaged"));
    return Held{w, {at + sizeof head, head.bytes}};
  }
  return absl::NotFoundError(absl::StrCat("the image holds turn ", committed(), " and not ", turn));
}

StatusOr<std::string> Image::RecordOf(int64_t turn) const {
  ASSIGN_OR_RETURN(const Held held, Find(turn));
  return std::string(held.record);
}

void Image::Begin(int64_t step) { begun_word()->store(BegunWord(step), std::memory_order_relaxed); }
int64_t Image::begun() const {
  const uint64_t word = begun_word()->load(std::memory_order_relaxed);
  const auto step = static_cast<int64_t>(word >> 16);
  return word == BegunWord(step) ? step : 0;
}

}  // namespace mslua
