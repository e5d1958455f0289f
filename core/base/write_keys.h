// Which memory a thread may write, by the processor's protection keys (pkeys(7)): two bits a key in a register of each
// thread, which change in 20 ns. A change of page tables takes 6 to 180 us.
#pragma once

#include <array>
#include <memory>

#include "absl/types/span.h"

namespace mslua {

// Keys of two areas, such as the sides of an image. Threads may write both until they say otherwise; new ones start
// with what the thread that makes them may. All can read both.
class WriteKeys {
 public:
  // Whether processor and kernel have keys.
  static bool Supported();
  // Keys of these whole pages, which are readable and writable from now on. Null: there are no keys, or all are taken.
  static std::unique_ptr<WriteKeys> Take(const std::array<absl::Span<char>, 2>& areas);
  // The calling thread and those that compute for it may write all areas again.
  ~WriteKeys();
  WriteKeys(const WriteKeys&) = delete;
  WriteKeys& operator=(const WriteKeys&) = delete;

  // Whether the calling thread may write that area. Those that compute for it may after Share.
  void Allow(size_t area, bool write);
  void Share() const;
  // Whether the calling thread, which computes for no other, may write what keys protect, of whomever they are.
  static void AllowAll(bool write);

 private:
  explicit WriteKeys(size_t pair) : pair_(pair) {}
  void Apply() const;

  const size_t pair_;
  std::array<bool, 2> writable_ = {true, true};
};

}  // namespace mslua
