#include "core/checkpoint/safetensors.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/base/hash.h"
#include "core/base/input_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::checkpoint {
namespace {

using ::testing::HasSubstr;

std::string TempPath(const std::string& name) {
  const char* base = getenv("TEST_TMPDIR");
  return std::string(base != nullptr ? base : "/tmp") + "/" + name;
}

// A file with this header and `data` zero bytes.
std::string FileOf(const std::string& header, size_t data = 0) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(data, '\0');
}

StatusOr<SafetensorsHeader> Parse(const std::string& file) {
  return ParseSafetensorsHeader(file, static_cast<int64_t>(file.size()));
}

std::string TreeDigest(absl::string_view bytes) {
  Blake2bTree tree(static_cast<int64_t>(bytes.size()));
  tree.Hash(0, bytes.data(), static_cast<int64_t>(bytes.size()));
  return tree.HexDigest();
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const std::vector<float> f = {1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> u = {7, 8, 9};
  const std::vector<int64_t> i = {-1};
  const std::string path = TempPath("a.safetensors");
  const auto digest = WriteSafetensors(path,
                                       {{"u", {DType::kU8, {3}}, u.data()},
                                        {"f", {DType::kF32, {2, 3}}, f.data()},
                                        {"empty", {DType::kF32, {0, 4}}, nullptr},
                                        {"scalar", {DType::kI64, {}}, i.data()}},
                                       {{"format", "pt"}});
  ASSERT_TRUE(digest.ok()) << digest.status();
  const auto file = ReadFile(path, 1 << 20);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(digest->size, static_cast<int64_t>(file->size()));
  EXPECT_EQ(digest->blake2b_tree, TreeDigest(*file));
  ASSERT_EQ(digest->crc32c.size(), 1u);
  EXPECT_EQ(digest->crc32c[0], Crc32c(file->data(), file->size()));
  const auto header = Parse(*file);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->metadata.at("format"), "pt");
  ASSERT_EQ(header->tensors.size(), 4u);
  for (const StoredTensor& t : header->tensors) {
    EXPECT_EQ(t.begin % SizeOf(t.type.dtype), 0) << t.name;
    const char* at = file->data() + t.begin;
    if (t.name == "u") {
      EXPECT_EQ(std::memcmp(at, u.data(), 3), 0);
    }
    if (t.name == "f") {
      EXPECT_EQ(std::memcmp(at, f.data(), 24), 0);
    }
    if (t.name == "scalar") {
      EXPECT_EQ(std::memcmp(at, i.data(), 8), 0);
    }
  }
  EXPECT_EQ(header->tensors[0].begin % 8, 0);
}

TEST(Safetensors, RefusesToWriteNonsense) {
  const float x = 0;
  const TensorType type{DType::kF32, {1}};
  const std::string path = TempPath("bad.safetensors");
  EXPECT_THAT(WriteSafetensors(path, {{"a", type, &x}, {"a", type, &x}}).status().message(), HasSubstr("'a'"));
  EXPECT_FALSE(WriteSafetensors(path, {{"__metadata__", type, &x}}).ok());
  EXPECT_THAT(WriteSafetensors(path, {{"\xff", type, &x}}).status().message(), HasSubstr("UTF-8"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Safetensors, ChunksAreCheckedOneByOne) {
  const std::vector<char> bytes(2 * kChunkBytes + 5, 'q');
  FileDigester digester(static_cast<int64_t>(bytes.size()));
  ASSERT_EQ(digester.chunks(), 3);
  for (const int64_t chunk : {2, 0, 1}) digester.Hash(chunk, bytes.data() + chunk * kChunkBytes);
  const FileDigest digest = digester.Finish();
  ASSERT_EQ(digest.crc32c.size(), 3u);
  EXPECT_EQ(digest.crc32c[0], Crc32c(bytes.data(), kChunkBytes));
  EXPECT_EQ(digest.crc32c[1], digest.crc32c[0]);
  EXPECT_EQ(digest.crc32c[2], Crc32c(bytes.data(), 5));
  EXPECT_EQ(digest.blake2b_tree, TreeDigest({bytes.data(), bytes.size()}));
}

TEST(Safetensors, OtherDtypesAreNamed) {
  const auto header = Parse(FileOf(R"({"w":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", 4));
  EXPECT_TRUE(absl::IsUnimplemented(header.status()));
  EXPECT_THAT(header.status().message(), HasSubstr("tensor 'w'"));
  EXPECT_THAT(header.status().message(), HasSubstr("F8_E4M3"));
}

TEST(Safetensors, EveryKindOfDamageIsAnError) {
  const std::string t = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  ASSERT_TRUE(Parse(FileOf("{\"a\":" + t + "}", 8)).ok());
  ASSERT_TRUE(Parse(FileOf("{}")).ok());
  const struct {
    std::string file, says;
  } cases[] = {
      {"", "0 bytes"},
      {"1234567", "7 bytes"},
      {std::string(8, '\xff'), "at most"},
      {std::string("\x10\0\0\0\0\0\0\0{}", 10), "16 bytes and has 10"},
      {FileOf(""), "JSON"},
      {FileOf("{"), "JSON"},
      {FileOf("[]"), "JSON"},
      {FileOf("{\"\xff\":" + t + "}", 8), "JSON"},
      {FileOf(std::string(5000, '[')), "deeper"},
      {FileOf("{\"a\":" + t + ",\"a\":" + t + "}", 8), "twice"},
      {FileOf(std::string("{}\0junk", 7)), "NUL"},
      {FileOf("\xef\xbb\xbf{}"), "byte order mark"},
      {FileOf("{\"a\":7}"), "object"},
      {FileOf("{\"a\":{}}"), "dtype"},
      {FileOf("{\"a\":" + t + "}", 7), "within"},
      {FileOf("{\"a\":" + t + "}", 9), "end"},
      {FileOf("{\"a\":" + t + ",\"b\":" + t + "}", 8), "overlap"},
      {FileOf(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3), "gap"},
      {FileOf(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), "12 bytes"},
      {FileOf(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "shape"},
      {FileOf(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), "shape"},
      {FileOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), "within"},
      {FileOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), "data_offsets"},
      {FileOf(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"), "no possible"},
      {FileOf(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0]}})"), "shape"},
      {FileOf(R"({"a":{"dtype":"F32","shape":[9223372036854775807,0],"data_offsets":[0,0]}})"), "no possible"},
      {FileOf(R"({"__metadata__":3})"), "__metadata__"},
      {FileOf(R"({"__metadata__":{"a":3}})"), "__metadata__"},
  };
  for (const auto& c : cases) {
    const auto header = Parse(c.file);
    EXPECT_FALSE(header.ok()) << c.file;
    EXPECT_THAT(header.status().message(), HasSubstr(c.says)) << c.file;
  }
}

// In quadratic time this takes many minutes.
TEST(Safetensors, ManyTensorsAreReadInLinearTime) {
  std::string header = "{";
  for (int i = 0; i < 100000; ++i) {
    header += (i > 0 ? ",\"t" : "\"t") + std::to_string(i) + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }
  const auto read = Parse(FileOf(header + "}"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tensors.size(), 100000u);
}

// Whatever the bytes: an error, or tensors that lie in the file.
TEST(Safetensors, FuzzedHeadersNeverLeadOutOfTheFile) {
  const std::string seed =
      FileOf(R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
             R"("b":{"dtype":"U8","shape":[3],"data_offsets":[24,27]},"c":{"dtype":"BOOL","shape":[],)"
             R"("data_offsets":[27,28]}})",
             28);
  const std::string alphabet = "0123456789{}[]\",:.-eE \\u\xff";
  uint64_t state = 1;
  const auto next = [&state](uint64_t n) {  // a linear congruential generator; the same run every time
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
  };
  int good = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file = seed;
    for (uint64_t edits = 1 + next(4); edits > 0 && !file.empty(); --edits) {
      const size_t at = next(file.size());
      switch (next(4)) {
        case 0:
          file[at] = static_cast<char>(next(256));
          break;
        case 1:
          file[at] = alphabet[next(alphabet.size())];
          break;
        case 2:
          file.erase(at, next(9));
          break;
        case 3:
          file.insert(at, file.substr(next(file.size()), next(30)));
          break;
      }
    }
    const auto header = Parse(file);
    if (!header.ok()) {
      EXPECT_FALSE(header.status().message().empty());
      continue;
    }
    ++good;
    for (const StoredTensor& t : header->tensors) {
      ASSERT_GE(t.begin, 8);
      ASSERT_GE(t.type.bytes(), 0);
      ASSERT_LE(t.begin + t.type.bytes(), static_cast<int64_t>(file.size()));
    }
  }
  EXPECT_GT(good, 100);  // some mutations are harmless: the loop reaches past the first checks
}

}  // namespace
}  // namespace mslua::checkpoint
