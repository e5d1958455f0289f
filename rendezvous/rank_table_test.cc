#include "rendezvous/rank_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/rng.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

const std::string& Good() {
  static const auto* text = new std::string(
      R"({"version":"1.0","server_count":"1","status":"completed","server_list":[{"server_id":"10.0.0.1","device":[)"
      R"({"device_id":"0","device_ip":"192.1.27.6","rank_id":"0"},{"device_id":"1","device_ip":"192.2.27.6",)"
      R"("rank_id":"1"}],"host_nic_ip":"reserve"}]})");
  return *text;
}

TEST(RankTable, Good) {
  const auto table = ParseRankTable(Good());
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->ranks.size(), 2u);
  EXPECT_EQ(table->ranks[1].device_ip, "192.2.27.6");
  EXPECT_EQ(table->ranks[1].device_id, 1);
  EXPECT_EQ(table->ranks[1].server_id, "10.0.0.1");
  EXPECT_TRUE(ParseRankTable(absl::StrReplaceAll(Good(), {{R"("rank_id":"1")", R"("rank_id":1)"}})).ok());
}

TEST(RankTable, Bad) {
  const std::vector<std::tuple<const char*, const char*, const char*>> cases = {
      {R"("version":"1.0",)", "", "a key \"version\""},
      {R"("1.0")", R"("2.0")", "version: expected \"1.0\", got \"2.0\""},
      {R"("completed")", R"("initializing")", "status: expected \"completed\""},
      {R"("server_count":"1")", R"("server_count":"2")", "server_count: expected 1, the length of server_list, got 2"},
      {R"("server_count":"1")", R"("server_count":[])", "server_count: expected a number"},
      {R"("rank_id":"1")", R"("rank_id":"0")", "rank_id: expected each rank once, got 0 twice"},
      {R"("rank_id":"1")", R"("rank_id":"2")", "expected ranks 0 to 1, got no rank 1"},
      {R"("rank_id":"1")", R"("rank_id":"-1")", "got \"-1\""},
      {R"("rank_id":"1")", R"("rank_id":"1e3")", "server_list[0].device[1].rank_id"},
      {R"("rank_id":"1")", R"("rank_id":1.5)", "got 1.5"},
      {R"("rank_id":"1")", R"("rank_id":"70000")", "got \"70000\""},
      {R"("device_id":"1")", R"("device_id":"0")", "each device of a server once"},
      {R"("device_ip":"192.2.27.6",)", "", "a key \"device_ip\""},
      {R"("server_id":"10.0.0.1",)", "", "a key \"server_id\""},
      {R"("server_id":"10.0.0.1")", R"("server_id":7)", "server_id: expected a string, got 7"},
      {R"("device":[)", R"("devices":[)", "a key \"device\""},
      {"}]}", "}", "not JSON at line"}};
  for (const auto& [from, to, why] : cases) {
    const auto table = ParseRankTable(absl::StrReplaceAll(Good(), {{from, to}}));
    EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument) << to;
    EXPECT_THAT(std::string(table.status().message()), HasSubstr(why));
  }
  for (const char* text : {"", "[]", "7", "null", "{\"version\":",
                           R"({"version":"1.0","status":"completed",)"
                           R"("server_count":"0","server_list":[]})"}) {
    EXPECT_EQ(ParseRankTable(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(ParseRankTable(std::string(17 << 20, '[')).ok());
  EXPECT_FALSE(ParseRankTable(std::string(1 << 20, '[')).ok());
}

// Mutations of a good table: an error or a table, never a crash.
TEST(RankTable, Fuzz) {
  int good = 0;
  for (uint64_t round = 0; round < 20000; ++round) {
    std::string text = Good();
    for (uint64_t k = 0; k < 1 + round % 4 && !text.empty(); ++k) {
      const auto words = Philox(2, round, k);
      const size_t at = words[0] % text.size();
      switch (words[1] % 4) {
        case 0:
          text[at] = static_cast<char>(words[2]);
          break;
        case 1:
          text.erase(at, words[2] % 20);
          break;
        case 2:
          text.insert(at, text.substr(words[2] % text.size(), words[3] % 20));
          break;
        default:
          text.resize(at + 1);
      }
    }
    const auto table = ParseRankTable(text);
    if (table.ok()) {
      ++good;
      EXPECT_FALSE(table->ranks.empty());
    } else {
      EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
  EXPECT_GT(good, 0);
}

// A tree this deep overflows the stack when it is shown in a message.
TEST(RankTable, DeepNestingIsRefused) {
  for (const int depth : {17, 50000, 200000, 1000000}) {
    const std::string deep = std::string(depth, '[') + std::string(depth, ']');
    for (const char* key : {"\"version\"", "\"server_list\"", "\"device_id\""}) {
      const auto table = ParseRankTable(absl::StrCat("{", key, ":", deep, "}"));
      EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(table.status().message()), HasSubstr("nested deeper than 16"));
    }
  }
}

}  // namespace
}  // namespace mslua
