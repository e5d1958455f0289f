#include "core/json/json.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/json/json_string.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

std::string Repeat(absl::string_view text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) absl::StrAppend(&out, text);
  return out;
}

void ExpectRefused(const std::string& text, const std::string& message, const JsonLimits& limits = JsonLimits()) {
  const auto json = ParseJson(text, limits);
  ASSERT_FALSE(json.ok()) << text.substr(0, 100);
  EXPECT_EQ(json.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(json.status().message()), HasSubstr(message));
}

TEST(ParseJson, ReadsWhatTheLibraryReads) {
  for (const char* text :
       {"{}", "[]", "null", "true", "-3", "18446744073709551615", "1.5e3", "\"a\\u00e4\\n\"",
        "{\"a\":[1,{\"b\":[]},\"x\"],\"c\":{\"d\":{\"e\":null}}}", " [ 1 , [ 2 , [ 3 ] ] , { } ]\n"}) {
    const auto json = ParseJson(text);
    ASSERT_TRUE(json.ok()) << text << ": " << json.status();
    EXPECT_EQ(*json, Json::parse(text)) << text;
  }
}

TEST(ParseJson, RefusesWhatIsNotJsonWithItsPlace) {
  ExpectRefused("", "not JSON at line 1");
  ExpectRefused("{\"a\": 1,\n \"b\": oops}", "not JSON at line 2, column 7");
  ExpectRefused("{} {}", "not JSON at line 1, column 4");
  ExpectRefused("[1e999]", "not JSON");
  ExpectRefused("\"\xff\"", "not JSON");
}

TEST(JsonString, IsJsonWhateverTheTextIs) {
  EXPECT_EQ(JsonString("a \"b\"\\\n\x01 é"), "\"a \\\"b\\\"\\\\\\n\\u0001 é\"");
  EXPECT_EQ(JsonString("x\xff"), "\"x\xef\xbf\xbd\"");
}

TEST(ParseJson, RefusesAKeyGivenTwice) {
  ExpectRefused("{\"a\":{\"b\":1,\"b\":2}}", "'b' is given twice");
  EXPECT_TRUE(ParseJson("{\"a\":{\"b\":1},\"b\":2}").ok());
}

TEST(ParseJson, RefusesWhatFollowsANulAndAByteOrderMark) {
  ExpectRefused(std::string("{}\0junk", 7), "NUL at byte 2");
  ExpectRefused(std::string("{\"a\0b\":1}", 9), "NUL");
  ExpectRefused("\xef\xbb\xbf{}", "byte order mark");
}

// A tree this deep costs the stack when it is printed or compared.
TEST(ParseJson, RefusesDepth) {
  for (const int depth : {17, 100, 50000, 1000000}) {
    ExpectRefused(absl::StrCat(Repeat("[", depth), Repeat("]", depth)), "nested deeper than 16");
    ExpectRefused(Repeat("{\"a\":", depth), "nested deeper than 16");
    ExpectRefused(absl::StrCat("{\"a\":1,\"b\":", Repeat("[", depth)), "nested deeper than 16");
  }
  EXPECT_TRUE(ParseJson(absl::StrCat(Repeat("[", 16), Repeat("]", 16))).ok());
  EXPECT_TRUE(ParseJson(absl::StrCat("[", Repeat("[[]],", 1000), "[]]")).ok());  // wide, not deep
}

TEST(ParseJson, RefusesSize) {
  JsonLimits limits;
  limits.bytes = 10;
  ExpectRefused("\"123456789\"", "at most 10", limits);
  EXPECT_TRUE(ParseJson("\"12345678\"", limits).ok());
}

// In quadratic time this takes many minutes.
TEST(ParseJson, ReadsManyObjectsInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 300000; ++i) absl::StrAppend(&text, i > 0 ? "," : "", "\"t", i, "\":{\"shape\":[", i, "]}");
  text += "}";
  const auto json = ParseJson(text);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->size(), 300000u);
  EXPECT_EQ((*json)["t777"]["shape"][0], 777);
}

TEST(ShowJson, IsShort) {
  EXPECT_EQ(ShowJson(Json::parse("{\"a\": [1, \"\\u00e4\"]}")), "{\"a\":[1,\"\\u00e4\"]}");
  EXPECT_EQ(ShowJson(Json(std::string(1000, 'x'))).size(), 60u);
}

}  // namespace
}  // namespace mslua
