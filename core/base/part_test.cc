#include "core/base/part.h"

#include <gtest/gtest.h>

namespace mslua {
namespace {

TEST(Part, TheWholeHasEveryElement) {
  const Part part = Part::Of({4, 6});
  EXPECT_TRUE(part.all());
  EXPECT_TRUE(part.valid());
  EXPECT_EQ(part.begin, (Shape{0, 0}));
  EXPECT_EQ(part.end(), (Shape{4, 6}));
  EXPECT_TRUE(Part().all()) << "without dimensions";
}

TEST(Part, ASliceEndsWithTheTensor) {
  // 7 elements in slices of 3, and a rank more than there are slices.
  EXPECT_EQ(Part::Slice(7, 3, 3), (Part{{7}, {3}, {3}}));
  EXPECT_EQ(Part::Slice(7, 6, 3), (Part{{7}, {6}, {1}}));
  EXPECT_EQ(Part::Slice(7, 9, 3), (Part{{7}, {7}, {0}}));
  EXPECT_TRUE(Part::Slice(7, 9, 3).valid());
  EXPECT_FALSE(Part::Slice(7, 6, 3).all());
}

TEST(Part, AnInvalidPartIsNoBoxOrLeavesItsTensor) {
  EXPECT_TRUE((Part{{4, 6}, {2, 0}, {2, 6}}).valid());
  EXPECT_FALSE((Part{{4, 6}, {3, 0}, {2, 6}}).valid());
  EXPECT_FALSE((Part{{4, 6}, {-1, 0}, {2, 6}}).valid());
  EXPECT_FALSE((Part{{4, 6}, {0, 0}, {-2, 6}}).valid());
  EXPECT_FALSE((Part{{4, 6}, {0}, {2}}).valid());
  // Sums of such numbers do not fit into 64 bits.
  EXPECT_FALSE((Part{{4}, {INT64_MAX}, {INT64_MAX}}).valid());
}

}  // namespace
}  // namespace mslua
