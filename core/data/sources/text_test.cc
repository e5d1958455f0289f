#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Little(uint64_t value, int width) {
  std::string bytes;
  for (int k = 0; k < width; ++k) bytes.push_back(static_cast<char>(value >> (8 * k) & 255));
  return bytes;
}

TEST(TextTest, Tokens16) {
  const std::string path = Folder("tokens");
  FieldMap text{{"dataset_files", path}, {"format", "uint16"}, {"block", 2}};
  Put(path + "/train.bin", Little(5, 2) + Little(40000, 2) + Little(7, 2) + Little(8, 2));
  auto reader = Open("text", text);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), 1);
  ReadBuffers buffers;
  std::vector<RawColumn> row(2);
  ASSERT_TRUE((*reader)->Read(0, &buffers, absl::MakeSpan(row)).ok());
  EXPECT_EQ(static_cast<const int32_t*>(row[1].data)[0], 40000);
  text["stride"] = 1;
  EXPECT_EQ((*Open("text", text))->size(), 2);
  text["vocab_size"] = 100;
  EXPECT_THAT(Message(ReadAll(**Open("text", text))), HasSubstr("train.bin, token 1: 40000, expected 0..99"));
  Put(path + "/train.bin", "abc");
  EXPECT_THAT(Message(Open("text", text).status()), HasSubstr("expected pairs"));
}

TEST(TextTest, Errors) {
  const std::string path = Folder("text");
  FieldMap text{{"dataset_files", path}};
  EXPECT_THAT(Message(Open("text", text).status()),
              AllOf(HasSubstr("no file '" + path + "/input.txt'"), HasSubstr("mslua data make text " + path)));
  Put(path + "/input.txt", "too short");
  EXPECT_THAT(Message(Open("text", text).status()),
              HasSubstr("has 8 tokens in this part, a window of block 64 needs 65"));
  text["block"] = 0;
  EXPECT_THAT(Message(Open("text", text).status()),
              HasSubstr("TextDataset: block: expected an integer, at least 1 (tokens), got 0"));
}

TEST(TextTest, PartsDoNotOverlapAndCoverAll) {
  const std::string path = Folder("text_parts");
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes.push_back(static_cast<char>('0' + i % 10));
  Put(path + "/input.txt", bytes);
  FieldMap text{{"dataset_files", path + "/input.txt"}, {"block", 4}};
  const auto size = [&](const char* usage) {
    text["usage"] = usage;
    return (*Open("text", text))->size();
  };
  EXPECT_EQ(size("train"), 22);  // 90 tokens: 22 windows of 4 and one to predict
  EXPECT_EQ(size("test"), 2);
  EXPECT_EQ(size("all"), 24);
}

}  // namespace
}  // namespace mslua::data
