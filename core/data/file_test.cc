#include "core/data/file.h"

#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::HasSubstr;

TEST(FileTest, ReadsNoMoreThanTheLimit) {
  const std::string path = Folder("file") + "/x";
  Put(path, "old");
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(ReadFile(path, 100, &bytes).ok());
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "old");
  EXPECT_THAT(Message(ReadFile(path, 2, &bytes)), HasSubstr("has 3 bytes, at most 2"));
}

}  // namespace
}  // namespace mslua::data
