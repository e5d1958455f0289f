#include "absl/strings/str_join.h"
#include "core/data/inspect.h"
#include "core/data/stand_in.h"
#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::HasSubstr;

// A line with these numbers and categories, the rest empty.
std::string Line(const std::string& click, const std::string& number, const std::string& category) {
  std::vector<std::string> fields(40);
  fields[0] = click, fields[2] = number, fields[39] = category;
  return absl::StrJoin(fields, "\t");
}

TEST(CriteoTest, NumbersCategoriesAndClicks) {
  const std::string path = Folder("criteo") + "/day.txt";
  Put(path, absl::StrCat(Line("1", "-3", "05db9164"), "\n", Line("0", "17", ""), "\r\n", Line("1", "", "05db9164")));
  const Opened reader = Open("criteo", {{"dataset_files", path}, {"hash", 1000}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(ColumnsOf(**reader), "numbers f32[13];categories i32[26];click i32[];");
  ASSERT_EQ((*reader)->size(), 3);
  const std::vector<double> first = NumbersOf(**reader, 0), second = NumbersOf(**reader, 1),
                            third = NumbersOf(**reader, 2);
  EXPECT_EQ(first[1], -3);
  EXPECT_EQ(second[1], 17);
  EXPECT_EQ(third[1], 0);
  EXPECT_EQ(first[38], third[38]);
  EXPECT_NE(first[38], second[38]);
  for (int k = 13; k < 39; ++k) EXPECT_TRUE(first[k] >= 0 && first[k] < 1000) << k;
  EXPECT_EQ(first[39], 1);
  EXPECT_EQ(second[39], 0);
  EXPECT_EQ((*reader)->Where(2), path + ":3");
}

TEST(CriteoTest, Errors) {
  const std::string path = Folder("criteo_bad") + "/day.txt";
  const auto message = [&](const std::string& text) {
    Put(path, text);
    return Message(Open("criteo", {{"dataset_files", path}}).status());
  };
  const std::string good = Line("1", "5", "05db9164") + "\n";
  EXPECT_THAT(message(good + "1\t2\n"), HasSubstr("day.txt:2: 2 columns, expected 40 between tabs"));
  EXPECT_THAT(message(good + good + "\t" + good), HasSubstr("day.txt:3: 41 columns"));
  EXPECT_THAT(message(Line("yes", "5", "")), HasSubstr("day.txt:1: column 'click': 'yes' is not an integer"));
  EXPECT_THAT(message(good + Line("1", "5x", "")), HasSubstr("day.txt:2: column 'i2': '5x' is not a finite number"));
  EXPECT_THAT(message(std::string(3 << 20, 'x')), HasSubstr("a line of more than 1 MiB"));
  EXPECT_THAT(message(""), HasSubstr("no record"));
  EXPECT_THAT(Message(Open("criteo", {{"dataset_files", path}, {"hash", 0}}).status()), HasSubstr("hash: expected"));
  Fuzz(path, good + good + good, 300, [&] { return Open("criteo", {{"dataset_files", path}}); });
}

TEST(CriteoTest, StandInIsRecognisedAndHasBothClasses) {
  const std::string path = Folder("criteo_made");
  ASSERT_TRUE(MakeStandIn("criteo", path, {2000, 300}).ok());
  const auto report = Inspect(path + "/train.txt", true);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->kind, "criteo");
  EXPECT_TRUE(report->problems.empty());
  EXPECT_EQ(report->parts[0].samples, 2000);
  const Opened reader = Open("criteo", {{"dataset_files", path + "/test.txt"}, {"hash", 100}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  int clicks = 0;
  for (int64_t i = 0; i < (*reader)->size(); ++i) clicks += LabelOf(**reader, i);
  EXPECT_GT(clicks, 50);
  EXPECT_LT(clicks, 200);
}

}  // namespace
}  // namespace mslua::data
