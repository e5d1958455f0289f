#include "core/base/tree_hash.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"
#include "core/base/round_up.h"
#include "core/base/target_clones.h"

namespace mslua {
namespace {

constexpr int kLanes = 8;
constexpr size_t kBlockBytes = 128;
constexpr int kRounds = 12;
using Lanes = uint64_t __attribute__((vector_size(8 * kLanes)));

constexpr uint64_t kInitial[8] = {0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
                                  0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u};

constexpr int kSigma[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

// A node of the tree as its parameter block names it.
struct Node {
  uint64_t offset;  // among the nodes of its level
  uint64_t depth;   // 0: a leaf
  bool last;        // of its level
};

#define MSLUA_INLINE __attribute__((always_inline)) inline

// Words w and up of a block: message[i] lane j is word w + i of lane j's block. An 8 x 8 transpose in three steps, of
// pairs, of pairs of pairs, and of halves.
MSLUA_INLINE void LoadWords(const uint8_t* const (&data)[kLanes], size_t at, Lanes* message) {
  Lanes rows[kLanes], pairs[kLanes], fours[kLanes];
  for (int j = 0; j < kLanes; ++j) std::memcpy(&rows[j], data[j] + at, sizeof(Lanes));
  for (int j = 0; j < kLanes; j += 2) {
    pairs[j] = __builtin_shufflevector(rows[j], rows[j + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    pairs[j + 1] = __builtin_shufflevector(rows[j], rows[j + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int j = 0; j < kLanes; j += 4) {
    for (int k = 0; k < 2; ++k) {
      fours[j + k] = __builtin_shufflevector(pairs[j + k], pairs[j + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      fours[j + k + 2] = __builtin_shufflevector(pairs[j + k], pairs[j + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int k = 0; k < 4; ++k) {
    message[k] = __builtin_shufflevector(fours[k], fours[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    message[k + 4] = __builtin_shufflevector(fours[k], fours[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

MSLUA_INLINE void Rotate(Lanes& x, int right) { x = x >> right | x << (64 - right); }

MSLUA_INLINE void Mix(Lanes& a, Lanes& b, Lanes& c, Lanes& d, const Lanes& x, const Lanes& y) {
  a += b + x, d ^= a, Rotate(d, 32);
  c += d, b ^= c, Rotate(b, 24);
  a += b + y, d ^= a, Rotate(d, 16);
  c += d, b ^= c, Rotate(b, 63);
}

// The digests of kLanes nodes, of `size` bytes each. RFC 7693, section 3, with the parameters of a tree.
MSLUA_VECTORS void HashNodes(const Node (&nodes)[kLanes], const uint8_t* const (&data)[kLanes], size_t size,
                             uint8_t* const (&digests)[kLanes]) {
  Lanes h[8], last_node;
  for (int i = 0; i < 8; ++i) h[i] = Lanes{} + kInitial[i];
  // Digest of 64 bytes, no key, any fanout, 2 levels, the size of a leaf; then offset, depth and size of a digest.
  h[0] ^= Lanes{} + (uint64_t{64} | uint64_t{2} << 24 | static_cast<uint64_t>(Blake2bTree::kLeafBytes) << 32);
  for (int j = 0; j < kLanes; ++j) {
    h[1][j] ^= nodes[j].offset;
    h[2][j] ^= nodes[j].depth | uint64_t{64} << 8;
    last_node[j] = nodes[j].last ? ~uint64_t{0} : 0;
  }
  for (size_t at = 0; at == 0 || at < size; at += kBlockBytes) {
    const size_t n = std::min(kBlockBytes, size - at);
    const bool last = at + n == size;
    uint8_t padded[kLanes][kBlockBytes];
    const uint8_t* block[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      block[j] = data[j] + at;
      if (n == kBlockBytes) continue;
      std::memset(padded[j], 0, kBlockBytes);
      std::memcpy(padded[j], block[j], n);
      block[j] = padded[j];
    }
    Lanes m[16], v[16];
    LoadWords(block, 0, m);
    LoadWords(block, kBlockBytes / 2, m + 8);
    for (int i = 0; i < 8; ++i) v[i] = h[i], v[i + 8] = Lanes{} + kInitial[i];
    v[12] ^= Lanes{} + static_cast<uint64_t>(at + n);
    if (last) v[14] = ~v[14], v[15] ^= last_node;
#pragma GCC unroll 12
    for (int round = 0; round < kRounds; ++round) {
      const int* s = kSigma[round % 10];
      Mix(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
      Mix(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
      Mix(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
      Mix(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
      Mix(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
      Mix(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
      Mix(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
      Mix(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; ++i) h[i] ^= v[i] ^ v[i + 8];
  }
  for (int j = 0; j < kLanes; ++j) {
    uint64_t words[8];
    for (int i = 0; i < 8; ++i) words[i] = h[i][j];
    std::memcpy(digests[j], words, sizeof(words));
  }
}

// `count` nodes from `first` on, of `size` bytes each, one after the other in memory. Lanes left over hash the last
// again.
void HashRow(Node first, int64_t count, bool ends, const uint8_t* data, size_t size, uint8_t* digests) {
  for (int64_t i = 0; i < count; i += kLanes) {
    Node nodes[kLanes];
    const uint8_t* from[kLanes];
    uint8_t* to[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      const int64_t k = std::min(i + j, count - 1);
      nodes[j] = {first.offset + static_cast<uint64_t>(k), first.depth, ends && k == count - 1};
      from[j] = data + static_cast<size_t>(k) * size;
      to[j] = digests + 64 * k;
    }
    HashNodes(nodes, from, size, to);
  }
}

}  // namespace

Blake2bTree::Blake2bTree(int64_t size)
    : size_(size), digests_(static_cast<size_t>(kDigestBytes * std::max<int64_t>(1, CeilDiv(size, kLeafBytes)))) {
  if (size == 0) Hash(0, "", 0);
}

void Blake2bTree::Hash(int64_t begin, const void* data, int64_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  const int64_t leaf = begin / kLeafBytes, whole = size / kLeafBytes, rest = size % kLeafBytes;
  uint8_t* digests = digests_.data() + kDigestBytes * leaf;
  const bool ends = begin + size == size_;
  HashRow({static_cast<uint64_t>(leaf), 0, false}, whole, ends && rest == 0, bytes, kLeafBytes, digests);
  if (rest == 0 && size_ > 0) return;
  HashRow({static_cast<uint64_t>(leaf + whole), 0, false}, 1, ends, bytes + whole * kLeafBytes,
          static_cast<size_t>(rest), digests + kDigestBytes * whole);
}

std::string Blake2bTree::HexDigest() const {
  uint8_t root[kDigestBytes];
  HashRow({0, 1, false}, 1, true, digests_.data(), digests_.size(), root);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(root), sizeof(root)));
}

}  // namespace mslua
