#include "core/base/authentication.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace mslua {
namespace {

// RFC 4231, test cases 1, 2, 3 and 6.
TEST(Authentication, HmacOfTheStandard) {
  const auto hex = [](absl::string_view key, absl::string_view text) {
    return absl::BytesToHexString(HmacSha256(key, text));
  };
  EXPECT_EQ(hex(std::string(20, 0x0b), "Hi There"), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(hex(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Authentication, ComparesWholeSecrets) {
  EXPECT_TRUE(SameSecret("", ""));
  EXPECT_TRUE(SameSecret("abc", "abc"));
  EXPECT_FALSE(SameSecret("abc", "abd"));
  EXPECT_FALSE(SameSecret("abc", "ab"));
  EXPECT_FALSE(SameSecret("", "a"));
}

TEST(Authentication, RandomBytesDiffer) {
  const auto a = RandomBytes(32), b = RandomBytes(32);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->size(), 32u);
  EXPECT_NE(*a, *b);
}

}  // namespace
}  // namespace mslua
