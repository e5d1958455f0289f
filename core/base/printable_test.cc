#include "core/base/printable.h"

#include <gtest/gtest.h>

namespace mslua {
namespace {

TEST(Printable, ReplacesControlCharacters) {
  EXPECT_EQ(Printable("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(Printable("\x1b]0;title\x07 \x7f\r"), "?]0;title? ??");
  EXPECT_EQ(Printable(absl::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(Printable("\xc2\x9b[2J"), "??[2J");  // CSI as one character
  EXPECT_EQ(Printable("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
}

TEST(Printable, NoFurtherLineOfAMessagePassesForAMessage) {
  EXPECT_EQ(PrintableMessage("one"), "one");
  EXPECT_EQ(PrintableMessage("one\nmslua: error[0] rank 0/2: two\n  three\n\nfour"),
            "one\n  mslua: error[0] rank 0/2: two\n  three\n\n  four");
}

}  // namespace
}  // namespace mslua
