#include <cmath>

#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Texts = std::map<std::string, std::string>;
using Names = std::vector<std::string>;

const Texts kTypes{{"age", "int"}, {"job", "category"}, {"city", "hash(50)"}, {"income", "category"}, {"tags", "skip"}};
constexpr char kPeople[] =
    "{\"job\": \"clerk\", \"age\": 39, \"hours\": 40.5, \"income\": \"low\", \"city\": \"Berlin\", \"tags\": [1, 2]}\n"
    "\r\n"
    "  {\"age\": 50, \"income\": \"high\", \"job\": \"b\\u00e4ker\", \"city\": \"Rio\\nde Janeiro\", \"hours\": 13}\r\n"
    "{\"age\": -7, \"job\": \"clerk\", \"hours\": 1e-3, \"income\": \"low\", \"city\": \"Berlin\", \"tags\": null}";

TEST(JsonlTest, TypesOrderAndLabel) {
  const std::string path = Folder("jsonl") + "/people.jsonl";
  Put(path, absl::StrCat("\xef\xbb\xbf", kPeople));
  const Opened reader = Open("jsonl", {{"dataset_files", path}, {"columns", kTypes}, {"label", "income"}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(ColumnsOf(**reader), "age i32[];city i32[];hours f32[];job i32[];income i32[];");
  ASSERT_EQ((*reader)->size(), 3);
  const std::vector<double> first = NumbersOf(**reader, 0), second = NumbersOf(**reader, 1);
  EXPECT_THAT(first, ElementsAre(39, first[1], 40.5, 1, 1));
  EXPECT_THAT(second, ElementsAre(50, second[1], 13, 0, 0));
  EXPECT_THAT(NumbersOf(**reader, 2), ElementsAre(-7, first[1], 0.001f, 1, 1));
  EXPECT_NE(first[1], second[1]);
  EXPECT_EQ((*reader)->Where(1), path + ":3");
}

// The same values give the same samples as in a CSV file.
TEST(JsonlTest, IsAsCsv) {
  const std::string path = Folder("jsonl_csv");
  Put(path + "/x.csv", "a,b,c,d\n1.5,7,red,x\n,16777216,,\"y\"\n0.1,-3,blue,true\n");
  Put(path + "/x.jsonl",
      "{\"a\": 1.5, \"b\": 7, \"c\": \"red\", \"d\": \"x\"}\n{\"b\": 16777216, \"c\": null, \"d\": \"y\"}\n"
      "{\"a\": \"0.1\", \"b\": -3, \"c\": \"blue\", \"d\": true}\n");
  for (const bool pack : {false, true}) {
    FieldMap fields{{"columns", Texts{{"b", "int"}, {"c", "category"}, {"d", "hash(1000)"}}},
                    {"missing", Texts{{"a", "-1"}}},
                    {"pack", pack}};
    fields["dataset_files"] = path + "/x.csv";
    const Opened csv = Open("csv", fields);
    fields["dataset_files"] = path + "/x.jsonl";
    const Opened jsonl = Open("jsonl", fields);
    ASSERT_TRUE(csv.ok() && jsonl.ok()) << csv.status() << jsonl.status();
    EXPECT_EQ(ColumnsOf(**csv), ColumnsOf(**jsonl));
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(NumbersOf(**csv, i), NumbersOf(**jsonl, i)) << i;
  }
}

TEST(JsonlTest, SeveralFilesAndColumnsThatTheFirstRecordLacks) {
  const std::string path = Folder("jsonl_files");
  Put(path + "/a.jsonl", "{\"x\": 1}\n");
  Put(path + "/b.jsonl", "{\"x\": 2, \"y\": 3}\n{\"y\": 4, \"x\": 5}\n");
  FieldMap fields{{"dataset_files", Names{path + "/a.jsonl", path + "/b.jsonl"}}};
  EXPECT_THAT(Message(Open("jsonl", fields).status()),
              AllOf(HasSubstr("b.jsonl:1: key 'y' is not in the data read before this file, whose keys are x; give"),
                    HasSubstr("\"skip\"")));
  Put(path + "/b.jsonl", "{\"y\": 3}\n");
  EXPECT_THAT(Message(Open("jsonl", fields).status()), HasSubstr("whose keys are x; missing here: 'x'; give"));
  Put(path + "/b.jsonl", "{\"x\": 2, \"y\": 3}\n{\"y\": 4, \"x\": 5}\n");
  fields["columns"] = Texts{{"y", "int"}};
  EXPECT_EQ(Message(Open("jsonl", fields).status()), path + "/a.jsonl:1: column 'y': no value; give one in `missing`");
  fields["missing"] = Texts{{"y", "0"}};
  const Opened reader = Open("jsonl", fields);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_THAT(NumbersOf(**reader, 0), ElementsAre(1, 0));
  EXPECT_THAT(NumbersOf(**reader, 2), ElementsAre(5, 4));
  EXPECT_EQ((*reader)->Where(2), path + "/b.jsonl:2");
}

TEST(JsonlTest, Errors) {
  const std::string path = Folder("jsonl_bad") + "/x.jsonl";
  const auto message = [&](const std::string& text, FieldMap fields = {}) {
    Put(path, text);
    fields["dataset_files"] = path;
    return Message(Open("jsonl", fields).status());
  };
  EXPECT_EQ(message("{\"a\": 1}\n"), "");
  EXPECT_THAT(message("{\"a\": 1}\n{\"a\": 1\n"), HasSubstr(path + ":2: is no JSON: "));
  EXPECT_THAT(message("{\"a\": 1} {\"a\": 2}\n"), HasSubstr(path + ":1: is no JSON: "));
  EXPECT_THAT(message("{\"a\": 1, \"a\": 2}\n"), HasSubstr(path + ":1: is no JSON: "));
  EXPECT_EQ(message("{\"a\": 1}\n[1]\n"), path + ":2: expected an object, got [1]");
  EXPECT_EQ(message("{\"a\": \"x\"}\n"), path + ":1: column 'a': 'x' is not a finite number");
  EXPECT_EQ(message("{\"a\": true}\n"), path + ":1: column 'a': 'true' is not a finite number");
  EXPECT_EQ(message("{\"a\": [1, 2]}\n"), path + ":1: column 'a': '[1,2]' is not a finite number");
  EXPECT_EQ(message("{\"a\": 3000000000}\n", {{"column_type", "int"}}),
            path + ":1: column 'a': '3000000000' is not an integer of 32 bits");
  EXPECT_EQ(message("{\"a\": 1.0}\n", {{"column_type", "int"}}),
            path + ":1: column 'a': '1.0' is not an integer of 32 bits");
  EXPECT_THAT(message("{\"a\": 16777217}\n", {{"column_type", "int"}, {"pack", true}}),
              HasSubstr(path + ":1: column 'a': 16777217 is no float32"));
  EXPECT_THAT(message("{\"a\": 1}\n{\"b\": 1}\n"), HasSubstr(":2: the first record has no key 'b'"));
  EXPECT_THAT(message(""), HasSubstr("has no record"));
  EXPECT_THAT(message("\n\n"), HasSubstr("has no record"));
  EXPECT_THAT(message("{}\n"), HasSubstr("every column is skipped"));
  EXPECT_THAT(message("{\"a\": 1}\n", {{"label", "b"}}), HasSubstr("label: no column 'b'; there are a"));
}

TEST(JsonlTest, ShufflesShardsAndResumes) {
  const std::string path = Folder("jsonl_order") + "/x.jsonl";
  std::string text;
  for (int i = 0; i < 23; ++i) absl::StrAppend(&text, "{\"x\": ", i * 0.5, ", \"label\": ", i, "}\n");
  Put(path, text);
  CheckOrder(Source("jsonl", {{"dataset_files", path}, {"columns", Texts{{"label", "int"}}}, {"label", "label"}}));
}

TEST(JsonlTest, DamagedFilesNeverCrash) {
  const std::string path = Folder("jsonl_fuzz") + "/x.jsonl";
  Fuzz(path, kPeople, 3000, [&] {
    return Open("jsonl", {{"dataset_files", path}, {"columns", kTypes}, {"label", "income"}});
  });
  Fuzz(path, kPeople, 1000, [&] { return Open("jsonl", {{"dataset_files", path}, {"column_type", "category"}}); });
}

}  // namespace
}  // namespace mslua::data
