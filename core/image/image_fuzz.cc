// The header and the records of an image that another process has left, anything: an error, or nothing outside it is
// read, and a turn that it holds has the record whose checksum is right.
//
// An input is the header's words, then the first bytes of each record; the rest of the image is zero. Lengths and
// checksums of the records are put right where the input's first byte asks for it, so that damage reaches what is
// behind them.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/hash.h"
#include "core/image/image.h"

namespace {

using mslua::Image;

constexpr size_t kHeader = 40, kBegun = 8, kHead = 16;
constexpr int64_t kBegunAt = 4096, kFirstRecord = 8192, kBetweenRecords = Image::kRecordBytes + 4096;

const std::vector<mslua::ImageEntry>& Entries() {
  static const auto* const entries = new std::vector<mslua::ImageEntry>{{"weight", {mslua::DType::kF32, {3, 5}}, true},
                                                                        {"bias", {mslua::DType::kBF16, {7}}, false}};
  return *entries;
}

// The memory that all inputs are written to: to make one takes longer than to read it.
Image& Memory() {
  static Image* const image = [] {
    auto made = Image::Make(Entries());
    if (!made.ok()) std::abort();
    return made->release();
  }();
  return *image;
}

void Write(int64_t at, const std::string& bytes) {
  if (pwrite(Memory().descriptor(), bytes.data(), bytes.size(), at) != static_cast<ssize_t>(bytes.size())) std::abort();
}

void LookAt(Image& image) {
  (void)image.Holds(Entries());
  if (image.side() != 0 && image.side() != 1) std::abort();
  for (const int64_t turn : {image.committed(), image.prepared(), int64_t{7}}) {
    const auto record = image.RecordOf(turn);
    if (record.ok() && static_cast<int64_t>(record->size()) > Image::kRecordBytes) std::abort();
  }
  if (image.begun() < 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto take = [&text](size_t most) {
    std::string taken(text.substr(0, most));
    text.remove_prefix(taken.size());
    return taken;
  };
  const std::string choice = take(1);
  const int sealed = choice.empty() ? 0 : choice[0];
  std::string header = take(kHeader), begun = take(kBegun);
  header.resize(kHeader);
  begun.resize(kBegun);
  Write(0, header);
  Write(kBegunAt, begun);
  const size_t half = text.size() / 2;
  std::string records[2] = {take(half), take(half)};
  for (int r = 0; r < 2; ++r) {
    std::string& record = records[r];
    record.resize(std::max(record.size(), kHead));
    if ((sealed >> r & 1) != 0) {
      const auto bytes = static_cast<uint32_t>(record.size() - kHead);
      const uint32_t crc = mslua::Crc32c(record.data() + kHead, bytes);
      std::memcpy(&record[0], &bytes, sizeof bytes);
      std::memcpy(&record[4], &crc, sizeof crc);
    }
    Write(kFirstRecord + r * kBetweenRecords, record);
  }
  const auto opened = Image::Open(Memory().descriptor());
  if (!opened.ok()) return 0;
  Image& image = **opened;
  LookAt(image);
  const int64_t turn = image.prepared();
  if (turn != Image::kNoTurn && image.GoTo(turn).ok()) {
    if (image.committed() != turn || image.prepared() != turn || !image.RecordOf(turn).ok()) std::abort();
  }
  LookAt(image);
  image.Forget();
  if (image.committed() != Image::kNoTurn || image.RecordOf(turn).ok()) std::abort();
  return 0;
}
