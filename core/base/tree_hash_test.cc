#include "core/base/tree_hash.h"

#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace mslua {
namespace {

std::vector<uint8_t> Bytes(int64_t n) {
  std::vector<uint8_t> bytes(static_cast<size_t>(n));
  for (uint64_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * i * 31 + i * 7 + (i >> 8));
  return bytes;
}

// By Python's hashlib.blake2b with the parameters that tree_hash.h names, of the bytes (31 i^2 + 7 i + (i >> 8)) & 255.
TEST(TreeHash, KnownValues) {
  const struct {
    int64_t size;
    std::string begins;
  } cases[] = {{0, "da1a5af862af940a9549d8b1d9bb67e1"},      {1, "6de7f57d60c11834080b71e17b67e3fc"},
               {127, "296a0a5103764c22e851057164ba2b6b"},    {128, "4217f135ab14b77bcf6da0b2f2896f4c"},
               {129, "3bf751262aac6f92bab8c7df54c23d59"},    {16384, "b4ec29f48f061ecd6d10b53b5a62006f"},
               {16385, "d3a02ad348f076a4b9fa45f659e72e4b"},  {49152, "98a3eba2058aedccbb61cfbcfe14197f"},
               {147533, "faa2417033e95f8ed237967affb1eb32"}, {1048576, "44bc34392e8a02b0b28bccfcdf1e9dbe"},
               {1000003, "4cbe9121355826f4adce8bc153914d6c"}};
  for (const auto& c : cases) {
    const std::vector<uint8_t> bytes = Bytes(c.size);
    Blake2bTree tree(c.size);
    if (c.size > 0) tree.Hash(0, bytes.data(), c.size);
    EXPECT_EQ(tree.HexDigest().size(), 128u);
    EXPECT_EQ(tree.HexDigest().substr(0, 32), c.begins) << c.size << " bytes";
  }
}

TEST(TreeHash, PiecesInAnyOrderFromSeveralThreads) {
  const int64_t size = 40 * Blake2bTree::kLeafBytes + 5;
  const std::vector<uint8_t> bytes = Bytes(size);
  Blake2bTree whole(size), pieces(size);
  whole.Hash(0, bytes.data(), size);
  const int64_t cut = 13 * Blake2bTree::kLeafBytes;
  std::thread last([&] { pieces.Hash(cut, bytes.data() + cut, size - cut); });
  pieces.Hash(0, bytes.data(), cut);
  last.join();
  EXPECT_EQ(pieces.HexDigest(), whole.HexDigest());
}

TEST(TreeHash, EveryByteAndTheLengthCount) {
  const int64_t size = 9 * Blake2bTree::kLeafBytes;
  std::vector<uint8_t> bytes = Bytes(size);
  const auto digest = [&](int64_t n) {
    Blake2bTree tree(n);
    tree.Hash(0, bytes.data(), n);
    return tree.HexDigest();
  };
  const std::string before = digest(size);
  EXPECT_NE(digest(size - 1), before);
  for (int64_t at = 0; at < size; at += 1009) {
    bytes[static_cast<size_t>(at)] ^= 1;
    EXPECT_NE(digest(size), before) << at;
    bytes[static_cast<size_t>(at)] ^= 1;
  }
}

}  // namespace
}  // namespace mslua
