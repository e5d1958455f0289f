#include "core/base/input_file.h"
#include "core/data/inspect.h"
#include "core/data/testing/source_testing.h"
#include "core/files/token_file.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
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

// The tokens of window i.
std::vector<int32_t> Window(const Reader& reader, int64_t i) {
  ReadBuffers buffers;
  std::vector<RawColumn> row(2);
  EXPECT_TRUE(reader.Read(i, &buffers, absl::MakeSpan(row)).ok());
  const auto* x = static_cast<const int32_t*>(row[0].data);
  std::vector<int32_t> tokens(x, x + row[0].type.bytes() / 4);
  tokens.push_back(static_cast<const int32_t*>(row[1].data)[tokens.size() - 1]);
  return tokens;
}

TEST(TextTest, SeveralFilesAreOneText) {
  const std::string path = Folder("several");
  Put(path + "/a", Little(1, 2) + Little(2, 2));
  Put(path + "/b", "");
  ASSERT_TRUE(WriteTokenFile(path + "/c", {3, 4, 5, 6}, 2).ok());
  const std::vector<std::string> files{path + "/a", path + "/b", path + "/c"};
  FieldMap text{{"dataset_files", files}, {"format", "uint16"}, {"block", 4}, {"stride", 1}, {"usage", "all"}};
  auto reader = Open("text", text);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ((*reader)->size(), 2);
  EXPECT_THAT(Window(**reader, 0), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(Window(**reader, 1), ElementsAre(2, 3, 4, 5, 6));
  text["vocab_size"] = 6;
  EXPECT_THAT(Message(ReadAll(**Open("text", text))), HasSubstr("/c, token 3: 6, expected 0..5 (vocab_size)"));
  Put(path + "/a", "ab");
  Put(path + "/c", "abc");
  FieldMap characters{{"dataset_files", files}, {"block", 4}, {"usage", "all"}};
  EXPECT_THAT(Window(**Open("text", characters), 0), ElementsAre(0, 1, 0, 1, 2));
}

TEST(TextTest, InspectFindsTokens) {
  const std::string path = Folder("tokenized");
  const std::vector<int32_t> tokens(40, 3);  // of one file, the last tenth is the part to test with
  ASSERT_TRUE(WriteTokenFile(path + "/train.bin", tokens, 2).ok());
  ASSERT_TRUE(WriteTokenFile(path + "/val.bin", {3, 4}, 2).ok());
  for (const std::string& place : {path, path + "/train.bin"}) {
    for (const char* wanted : {"", "text", "cifar100"}) {
      const auto report = Inspect(place, true, wanted);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(report->kind, "text") << place;
      EXPECT_TRUE(report->problems.empty()) << report->problems[0];
    }
  }
  const auto report = Inspect(path, true);
  ASSERT_EQ(report->parts.size(), 2u);
  EXPECT_EQ(report->parts[0].samples, 39);
  EXPECT_EQ(report->parts[1].samples, 1);
  Put(path + "/train.bin", Little(20240520, 4) + Little(1, 4) + Little(5, 4));  // the begin of llm.c's header
  EXPECT_THAT(Inspect(path, true)->problems, ElementsAre(HasSubstr("its header says 5 tokens of 2 bytes")));
  // Without headers, as nanoGPT writes them, nothing says how wide tokens are.
  Put(path + "/train.bin", Little(5, 2));
  EXPECT_THAT(Message(Inspect(path, true).status()), HasSubstr("is no dataset: expected"));
}

TEST(TextTest, RowsGoOnFromBatchToBatch) {
  const std::string path = Folder("rows");
  std::string bytes;
  for (uint64_t token = 0; token < 16; ++token) bytes += Little(token, 2);
  Put(path + "/a", bytes);
  FieldMap text{{"dataset_files", path + "/a"}, {"format", "uint16"}, {"block", 2}, {"usage", "all"}, {"rows", 3}};
  auto reader = Open("text", text);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ((*reader)->size(), 6);  // of 7 windows
  const std::vector<std::vector<int32_t>> wanted{{0, 1, 2}, {4, 5, 6}, {8, 9, 10}, {2, 3, 4}, {6, 7, 8}, {10, 11, 12}};
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(Window(**reader, i), wanted[i]) << i;
  text["rows"] = 8;
  EXPECT_THAT(Message(Open("text", text).status()),
              HasSubstr("has 7 windows in this part, rows = 8 needs one for each"));
}

TEST(TextTest, HeadersTellTheWidth) {
  const std::string path = Folder("headers");
  ASSERT_TRUE(WriteTokenFile(path + "/train.bin", {70000, 1, 2}, 4).ok());
  FieldMap text{{"dataset_files", path}, {"format", "tokens"}, {"block", 2}};
  EXPECT_THAT(Window(**Open("text", text), 0), ElementsAre(70000, 1, 2));
  text["format"] = "uint32";
  EXPECT_THAT(Window(**Open("text", text), 0), ElementsAre(70000, 1, 2));
  text["format"] = "uint16";
  EXPECT_THAT(Message(Open("text", text).status()), HasSubstr("train.bin holds uint32 tokens, expected uint16"));
  Put(path + "/train.bin", Little(70000, 4) + Little(1, 4) + Little(0xffffffff, 4));
  text["format"] = "uint32";
  EXPECT_THAT(Message(ReadAll(**Open("text", text))), HasSubstr("train.bin, token 2: 4294967295, expected 0.."));
  text["format"] = "tokens";
  EXPECT_THAT(Message(Open("text", text).status()), HasSubstr("train.bin has no header of llm.c"));
  ASSERT_TRUE(WriteTokenFile(path + "/train.bin", {1, 2, 3, 4}, 4).ok());
  const std::string whole = *ReadFile(path + "/train.bin", 1 << 20);
  Put(path + "/train.bin", whole.substr(0, whole.size() - 4));
  EXPECT_THAT(Message(Open("text", text).status()), HasSubstr("its header says 4 tokens"));
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
