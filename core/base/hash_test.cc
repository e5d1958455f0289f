#include "core/base/hash.h"

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace mslua {
namespace {

// RFC 3720, section B.4, and the check value of the CRC catalogue.
TEST(Hash, Crc32cKnownValues) {
  const std::string zeros(32, '\0'), ones(32, '\xff');
  std::string up(32, 0), down(32, 0);
  for (int i = 0; i < 32; ++i) up[i] = static_cast<char>(i), down[i] = static_cast<char>(31 - i);
  for (auto* crc : {&Crc32c, &Crc32cPortable}) {
    EXPECT_EQ(crc(nullptr, 0, 0), 0u);
    EXPECT_EQ(crc("123456789", 9, 0), 0xe3069283u);
    EXPECT_EQ(crc(zeros.data(), 32, 0), 0x8a9136aau);
    EXPECT_EQ(crc(ones.data(), 32, 0), 0x62a8ab43u);
    EXPECT_EQ(crc(up.data(), 32, 0), 0x46dd794eu);
    EXPECT_EQ(crc(down.data(), 32, 0), 0x113fdb5cu);
  }
}

TEST(Hash, Crc32cGoesOnFromAnyCutAndBothWaysAgree) {
  std::string bytes(13001, 0);  // some of every loop
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i * 31 + i);
  const uint32_t whole = Crc32c(bytes.data(), bytes.size());
  EXPECT_EQ(whole, Crc32cPortable(bytes.data(), bytes.size()));
  for (size_t cut = 0; cut <= bytes.size(); cut += cut < 1100 ? 1 : 997) {
    const uint32_t first = Crc32c(bytes.data(), cut);
    EXPECT_EQ(first, Crc32cPortable(bytes.data(), cut));
    EXPECT_EQ(Crc32c(bytes.data() + cut, bytes.size() - cut, first), whole);
  }
}

// RFC 7693, appendix A, and `b2sum` of nothing.
TEST(Hash, Blake2bKnownValues) {
  EXPECT_EQ(Blake2bHex("abc"),
            "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
            "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923");
  EXPECT_EQ(Blake2bHex(""),
            "786a02f742015903c6c6fd852552d272912f4740e15847618a86e217f71f5419"
            "d25e1031afee585313896444934eb04b903a685b1448b755d56f701afe9be2ce");
}

TEST(Hash, Blake2bInPiecesAndAnew) {
  Blake2b hash;
  for (int round = 0; round < 2; ++round) {
    hash.Update("a", 1);
    hash.Update("", 0);
    hash.Update("bc", 2);
    EXPECT_EQ(hash.HexDigest(), Blake2bHex("abc"));
  }
}

}  // namespace
}  // namespace mslua
