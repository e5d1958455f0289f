// BLAKE2b as a tree of two levels (Aumasson et al., "BLAKE2: simpler, smaller, fast as MD5", section 2.10): leaves of
// 16 KiB that are hashed side by side in vector registers and by several threads, and a root over their digests. What
// Python makes with hashlib.blake2b(fanout=0, depth=2, leaf_size=16384, inner_size=64, node_offset, node_depth,
// last_node), several times as fast as BLAKE2b of the whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mslua {

class Blake2bTree {
 public:
  static constexpr int64_t kLeafBytes = 16 << 10;

  // For `size` bytes in all; >= 0.
  explicit Blake2bTree(int64_t size);

  // Takes bytes [begin, begin + size) of the whole. `begin` is a multiple of kLeafBytes, and so is `size` unless these
  // are the last bytes. Several threads may give different ranges at once.
  void Hash(int64_t begin, const void* data, int64_t size);
  // The root's 64 bytes in 128 lower-case hexadecimal digits, once every byte has been given.
  std::string HexDigest() const;

 private:
  static constexpr int64_t kDigestBytes = 64;
  int64_t size_;
  std::vector<uint8_t> digests_;  // of the leaves, kDigestBytes each
};

}  // namespace mslua
