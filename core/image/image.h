// The state of a training in memory that outlives its process: a memfd with what the step updates on two sides, what it
// does not update once, and two records of where the training stood.
//
// A turn of the training reads the side that was committed last and writes the other one; or, where the sides are
// small, it has memory of its own, which is copied to the other side. Then it prepares (the free record is written)
// and, when all ranks have prepared, commits (one word). A process that ends at any moment leaves the committed side
// whole; where one rank has committed a turn, every rank has at least prepared it. So does a process that writes where
// it should not: what a turn is resumed from is read-only memory there (Protect).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/shape.h"
#include "core/base/status.h"

namespace mslua {

struct ImageEntry {
  std::string name;
  TensorType type;
  bool updated = false;  // by the training's step: it has two sides
};

// Who writes the side that is not committed: steps, or Prepare, which copies what they have made elsewhere.
enum class ImageWriter { kSteps, kCopies };

class Image {
 public:
  static constexpr int64_t kNoTurn = -1;
  static constexpr int64_t kRecordBytes = 4 << 20;  // the longest record; pages that are not used take no memory

  // Copies where a side has at most 1 MiB: to change which pages may be written takes as long, and on virtual machines
  // without page tables of their own ten times as long.
  static ImageWriter WriterFor(absl::Span<const ImageEntry> entries);

  // New memory for `entries`, zeroed. ResourceExhausted: there is none.
  static StatusOr<std::unique_ptr<Image>> Make(absl::Span<const ImageEntry> entries);
  // The image of a process that has ended. The descriptor stays the caller's. DataLoss: it is none, or damaged.
  static StatusOr<std::unique_ptr<Image>> Open(int descriptor);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  // Whether it was made for these entries: names, types and order.
  bool Holds(absl::Span<const ImageEntry> entries) const;
  int descriptor() const { return descriptor_; }
  int64_t bytes() const { return bytes_; }
  // Where each of `entries`, which it holds, lies on that side; of what is not updated both are the same.
  std::vector<char*> Addresses(absl::Span<const ImageEntry> entries, int side) const;

  // From now on this process cannot write the side of a turn that is committed or prepared, and with kCopies no side;
  // nor, while a turn is committed, what is not updated: a write at these addresses ends it by SIGSEGV. The header and
  // the records are so from the beginning, and written by the calls below alone. It was made for `entries`.
  void Protect(absl::Span<const ImageEntry> entries, ImageWriter writer);
  // All of it, as it is mapped here.
  absl::Span<char> memory() const { return {memory_, static_cast<size_t>(bytes_)}; }

  // The turn that was committed, or prepared, last; kNoTurn: none.
  int64_t committed() const;
  int64_t prepared() const;
  // The side of the committed turn; 0 where there is none.
  int side() const;
  // Writes the record of `turn`, whose values are on `side`: the committed one only where they are the same.
  // ResourceExhausted: the record is longer than kRecordBytes.
  Status Prepare(int64_t turn, int side, absl::string_view record);
  // With kCopies: the same, with values that it copies to the side that is not committed, on the compute threads.
  // ResourceExhausted, too: the addresses that a copy needs are not there. What is committed stays.
  struct Value {
    std::array<const char*, 2> places;  // on each side, as Addresses gives them, in their order
    const void* data;
    int64_t bytes;
  };
  Status PrepareCopy(int64_t turn, absl::Span<const Value> values, absl::string_view record);
  // The turn that was prepared last holds from now on.
  void Commit();
  // Before an image is used again: makes `turn` the committed one. NotFound: neither side holds it.
  Status GoTo(int64_t turn);
  // Nothing is committed any more.
  void Forget();
  // The record of a turn that is committed or prepared. NotFound, DataLoss.
  StatusOr<std::string> RecordOf(int64_t turn) const;
  // Steps that were begun, for people: how many are computed again. 0 where the number was written over.
  void Begin(int64_t step);
  int64_t begun() const;

 private:
  struct Header;
  // What is protected as a whole: each side, and what is not updated.
  struct Part {
    int64_t begin = 0, end = 0;
    bool writable = true;
  };
  static constexpr int kOnce = 2;

  Image(int descriptor, char* memory, int64_t bytes) : descriptor_(descriptor), memory_(memory), bytes_(bytes) {}
  const Header* header() const;
  std::atomic<uint64_t>* begun_word() const;
  Status CopyValues(int side, absl::Span<const Value> values);
  // Writes the free record, which no turn has until `prepared` says so; gives the word that does.
  StatusOr<uint64_t> WriteRecord(int64_t turn, int side, absl::string_view record);
  // A turn that is committed or prepared: its word in the header, and its record. NotFound, DataLoss.
  struct Held {
    uint64_t word;
    absl::string_view record;
  };
  StatusOr<Held> Find(int64_t turn) const;
  void SetWord(const std::atomic<uint64_t>& word, uint64_t value);
  void CloseHeader();
  void ProtectSides();
  void Access(int part, bool writable);

  const int descriptor_;
  char* const memory_;
  const int64_t bytes_;
  char* apart_ = nullptr;      // what follows the records, mapped again for copies, from the first on
  std::array<Part, 3> parts_;  // empty until they are protected
  ImageWriter writer_ = ImageWriter::kSteps;
};

}  // namespace mslua
