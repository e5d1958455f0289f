#include "core/files/token_file.h"

#include "core/base/atomic_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using testing::HasSubstr;

std::string Path(const std::string& name) { return testing::TempDir() + "/token_file_test_" + name; }

TEST(TokenFileTest, HeaderTellsWidthAndCount) {
  for (const int64_t width : {2, 4}) {
    const std::string path = Path("written");
    ASSERT_TRUE(WriteTokenFile(path, {0, 1, 65535}, width).ok());
    const auto file = InputFile::Open(path);
    const auto header = ReadTokenHeader(**file);
    ASSERT_TRUE(header.ok() && header->has_value()) << header.status();
    EXPECT_EQ((*header)->width, width);
    EXPECT_EQ((*header)->tokens, 3);
    const std::string bytes = *ReadFile(path, 1 << 20);
    EXPECT_EQ(bytes.size(), 1024 + 3 * static_cast<size_t>(width));
    EXPECT_EQ(static_cast<uint8_t>(bytes[1024 + static_cast<size_t>(width)]), 1);
  }
}

TEST(TokenFileTest, PlainFileHasNoHeader) {
  const std::string path = Path("plain");
  ASSERT_TRUE(WriteFileAtomically(path, "plain tokens of some length").ok());
  const auto header = ReadTokenHeader(**InputFile::Open(path));
  ASSERT_TRUE(header.ok());
  EXPECT_FALSE(header->has_value());
}

TEST(TokenFileTest, TruncatedFileIsAnError) {
  const std::string path = Path("truncated");
  ASSERT_TRUE(WriteTokenFile(path, {1, 2, 3}, 2).ok());
  const std::string bytes = *ReadFile(path, 1 << 20);
  for (const size_t size : {size_t{12}, size_t{1024}, bytes.size() - 1}) {
    ASSERT_TRUE(WriteFileAtomically(path, bytes.substr(0, size)).ok());
    EXPECT_THAT(std::string(ReadTokenHeader(**InputFile::Open(path)).status().message()),
                HasSubstr("its header says 3 tokens of 2 bytes, 1030 bytes in all"));
  }
}

TEST(TokenFileTest, WidthFollowsTheVocabulary) {
  EXPECT_EQ(TokenWidth(65536), 2);
  EXPECT_EQ(TokenWidth(65537), 4);
  EXPECT_THAT(std::string(WriteTokenFile(Path("wide"), {65536}, 2).message()), HasSubstr("does not fit 2 bytes"));
}

}  // namespace
}  // namespace mslua
