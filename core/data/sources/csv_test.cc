#include <cmath>
#include <cstdlib>
#include <set>

#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Texts = std::map<std::string, std::string>;
using Names = std::vector<std::string>;

std::vector<double> Row(const Opened& reader, int64_t i) { return NumbersOf(**reader, i); }
std::string Columns(const Opened& reader) { return ColumnsOf(**reader); }

const Texts kTypes{{"age", "int"}, {"job", "category"}, {"city", "hash(50)"}, {"income", "category"}, {"id", "skip"}};
constexpr char kPeople[] =
    "age,job,hours,income,city,id\n"
    "39,clerk,40.5,low,Berlin,x1\n"
    "50,\"baker, and \"\"chef\"\"\",13,high,\"Rio\nde Janeiro\",x2\r\n"
    "\n"
    "-7,clerk,1e-3,low,Berlin,x3";

TEST(CsvTest, TypesOrderAndLabel) {
  const std::string path = Folder("csv") + "/people.csv";
  Put(path, absl::StrCat("\xef\xbb\xbf", kPeople));
  const Opened reader = Open("csv", {{"dataset_files", path}, {"columns", kTypes}, {"label", "income"}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(Columns(reader), "age i32[];job i32[];hours f32[];city i32[];income i32[];");
  ASSERT_EQ((*reader)->size(), 3);
  const std::vector<double> first = Row(reader, 0), second = Row(reader, 1), third = Row(reader, 2);
  EXPECT_THAT(first, ElementsAre(39, 1, 40.5, first[3], 1));  // "baker..." < "clerk", "high" < "low"
  EXPECT_THAT(second, ElementsAre(50, 0, 13, second[3], 0));
  EXPECT_THAT(third, ElementsAre(-7, 1, 0.001f, first[3], 1));
  EXPECT_LT(first[3], 50);
  EXPECT_NE(first[3], second[3]);
  EXPECT_EQ((*reader)->Where(1), path + ":3");
  EXPECT_EQ((*reader)->Where(2), path + ":6");
}

TEST(CsvTest, PackedColumns) {
  const std::string path = Folder("csv_pack") + "/people.csv";
  Put(path, kPeople);
  const Opened reader =
      Open("csv", {{"dataset_files", path}, {"columns", kTypes}, {"label", "income"}, {"pack", true}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(Columns(reader), "numbers f32[2];categories i32[2];income i32[];");
  const std::vector<double> second = Row(reader, 1);
  EXPECT_THAT(second, ElementsAre(50, 13, 0, second[3], 0));
}

TEST(CsvTest, PackedIntegersAreExact) {
  const std::string path = Folder("csv_exact") + "/x.csv";
  FieldMap fields{{"dataset_files", path}, {"columns", Texts{{"id", "int"}}}, {"pack", true}};
  Put(path, "id,y\n16777216,1\n-16777216,2\n33554432,3\n");
  Opened reader = Open("csv", fields);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_THAT(Row(reader, 1), ElementsAre(-16777216, 2));
  EXPECT_THAT(Row(reader, 2), ElementsAre(33554432, 3));
  Put(path, "id,y\n16777216,1\n16777217,1\n");
  EXPECT_THAT(Message(Open("csv", fields).status()),
              AllOf(HasSubstr(path + ":3: column 'id': 16777217 is no float32"), HasSubstr("\"hash(N)\"")));
  fields["label"] = "id";  // is not packed
  EXPECT_THAT(Row(Open("csv", fields), 1), ElementsAre(1, 16777217));
}

TEST(CsvTest, EmptyLinesAreNoRecordsButAnEmptyFieldIs) {
  const std::string path = Folder("csv_empty") + "/x.csv";
  Put(path, "x\n1\n\n\"\"\r\n\r\n2\n");
  const Opened reader = Open("csv", {{"dataset_files", path}, {"missing", Texts{{"x", "-1"}}}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ((*reader)->size(), 3);
  EXPECT_THAT(Row(reader, 1), ElementsAre(-1));
}

TEST(CsvTest, FilesWithoutHeaderAndMissingValues) {
  const std::string path = Folder("csv_files");
  Put(path + "/a.csv", "1;;b\n2;4;a\n");
  Put(path + "/b.csv", "3;  5 ;\n");
  FieldMap fields{{"dataset_files", Names{path + "/a.csv", path + "/b.csv"}},
                  {"column_names", Names{"n", "x", "c"}},
                  {"columns", Texts{{"c", "category"}}},
                  {"missing", Texts{{"x", "-1"}}},
                  {"field_delim", ";"}};
  const Opened reader = Open("csv", fields);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_THAT(Row(reader, 0), ElementsAre(1, -1, 2));
  EXPECT_THAT(Row(reader, 2), ElementsAre(3, 5, 0));  // no value is a category like others
  EXPECT_EQ((*reader)->Where(2), path + "/b.csv:1");
  Put(path + "/b.csv", "3;  ;z\n");
  const Opened blank = Open("csv", fields);
  ASSERT_TRUE(blank.ok()) << blank.status();
  EXPECT_THAT(Row(blank, 2), ElementsAre(3, -1, ::testing::_));
  fields.erase("missing");
  EXPECT_EQ(Message(Open("csv", fields).status()), path + "/a.csv:1: column 'x': no value; give one in `missing`");
}

// Numbers are rounded as strtof rounds them, short ones and long ones.
TEST(CsvTest, NumbersAreRoundedToTheNearest) {
  const std::string path = Folder("csv_numbers") + "/x.csv";
  std::vector<std::string> texts{"0",       "-0",      ".5",        "5.",     "16777215", "16777217", "0.1", "-123.456",
                                 "9.99999", "1.00001", "0.0000001", "3.4e38", "1e-45",    "1e-60",    "+7"};
  for (uint64_t i = 0; i < 2000; ++i) {
    const uint64_t digits = UniformIntAt(3, 1, i, 100'000'000);
    std::string text = absl::StrCat(digits);
    text.insert(UniformIntAt(3, 2, i, text.size() + 1), ".");
    if (i % 2 == 0) text.insert(0, "-");
    texts.push_back(text);
  }
  std::string file = "x\n";
  for (const std::string& text : texts) absl::StrAppend(&file, text, "\n");
  Put(path, file);
  const Opened reader = Open("csv", {{"dataset_files", path}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(Row(reader, static_cast<int64_t>(i))[0], std::strtof(texts[i].c_str(), nullptr)) << texts[i];
  Put(path, "x\n-\n");
  EXPECT_THAT(Message(Open("csv", {{"dataset_files", path}}).status()), HasSubstr("'-' is not a finite number"));
  Put(path, "x\n.\n");
  EXPECT_THAT(Message(Open("csv", {{"dataset_files", path}}).status()), HasSubstr("'.' is not a finite number"));
}

TEST(CsvTest, CategoriesOfOtherFiles) {
  const std::string path = Folder("csv_categories");
  Put(path + "/train.csv", "c\nred\ngreen\nblue\n");
  Put(path + "/test.csv", "c\nred\n");
  FieldMap fields{{"dataset_files", path + "/test.csv"}, {"column_type", "category"}};
  EXPECT_THAT(Row(Open("csv", fields), 0), ElementsAre(0));
  fields["categories_from"] = path + "/train.csv";
  EXPECT_THAT(Row(Open("csv", fields), 0), ElementsAre(2));
  Put(path + "/test.csv", "c\npink\n");
  EXPECT_THAT(Message(Open("csv", fields).status()),
              HasSubstr("test.csv:2: column 'c': 'pink' is not among the values of categories_from"));
}

// A file may lack columns that are skipped, such as the label of what is predicted; no others.
TEST(CsvTest, SkippedColumnsMayBeAbsent) {
  const std::string path = Folder("csv_absent");
  Put(path + "/train.csv", "age,job,risk\n1,a,low\n2,b,high\n");
  Put(path + "/new.csv", "age,job\n3,b\n");
  Put(path + "/less.csv", "age\n3\n");
  const Texts types{{"job", "category"}, {"risk", "skip"}};
  const auto open = [&](const char* name) {
    return Open("csv", {{"dataset_files", path + name}, {"columns", types}, {"categories_from", path + "/train.csv"}});
  };
  const Opened reader = open("/new.csv");
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_THAT(Row(reader, 0), ElementsAre(3, 1));
  EXPECT_THAT(Message(open("/less.csv").status()), HasSubstr("its header is not that of the other files of the data"));
}

TEST(CsvTest, CrossesJoinTheTextsOfColumns) {
  const std::string path = Folder("csv_crosses");
  Put(path + "/train.csv", "a,b,n,y\nx,p,1,0\nx,q,2,1\nz,p,1,0\n");
  Put(path + "/test.csv", "a,b,n,y\nz,p,3,1\n,p,3,1\n");
  FieldMap fields{
      {"dataset_files", path + "/train.csv"},
      {"columns", Texts{{"a", "skip"}, {"b", "category"}, {"y", "int"}, {"ab", "category"}, {"bn", "hash(1000000)"}}},
      {"crosses", Texts{{"ab", "a * b"}, {"bn", "b*n"}}},
      {"missing", Texts{{"a", "x"}}},
      {"label", "y"}};
  Opened reader = Open("csv", fields);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(Columns(reader), "b i32[];n f32[];ab i32[];bn i32[];y i32[];");
  const double pn = Row(reader, 0)[3];
  EXPECT_THAT(Row(reader, 0), ElementsAre(0, 1, 0, pn, 0));  // "x*p" < "x*q" < "z*p"
  EXPECT_THAT(Row(reader, 1), ElementsAre(1, 2, 1, testing::Ne(pn), 1));
  EXPECT_THAT(Row(reader, 2), ElementsAre(0, 1, 2, pn, 0));
  fields["pack"] = true;
  EXPECT_EQ(Columns(Open("csv", fields)), "numbers f32[1];categories i32[3];y i32[];");
  fields["dataset_files"] = path + "/test.csv";
  fields["categories_from"] = path + "/train.csv";
  reader = Open("csv", fields);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(Row(reader, 0)[2], 2);
  EXPECT_EQ(Row(reader, 1)[2], 0);  // the empty field is `missing`'s value
  Put(path + "/test.csv", "a,b,n,y\nz,q,3,1\n");
  EXPECT_THAT(Message(Open("csv", fields).status()),
              HasSubstr("test.csv:2: column 'ab': 'z*q' is not among the values of categories_from"));
  Put(path + "/test.csv", "b,n,y\np,3,1\n");  // a is skipped, but the cross needs it
  EXPECT_THAT(Message(Open("csv", fields).status()),
              HasSubstr("its header is not that of the other files of the data"));
}

// No two pairs of texts give the same joined text.
TEST(CsvTest, CrossesKeepTextsApart) {
  const std::string path = Folder("csv_crosses_apart") + "/x.csv";
  Put(path, "a,b\n1*,2\n1,*2\n\"1\\\",*2\n1\\*,2\n1,2\n1*2,\n,1*2\n");
  const Opened reader = Open("csv", {{"dataset_files", path},
                                     {"columns", Texts{{"a", "skip"}, {"b", "skip"}, {"c", "category"}}},
                                     {"crosses", Texts{{"c", "a * b"}}}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::set<double> seen;
  for (int i = 0; i < 7; ++i) seen.insert(Row(reader, i)[0]);
  EXPECT_EQ(seen.size(), 7);
}

TEST(CsvTest, WrongCrosses) {
  const std::string path = Folder("csv_crosses_bad") + "/x.csv";
  Put(path, "city,job\n1,2\n");
  const auto message = [&](const Texts& crosses, const Texts& columns) {
    return Message(Open("csv", {{"dataset_files", path}, {"columns", columns}, {"crosses", crosses}}).status());
  };
  const Texts hash{{"c", "hash(9)"}};
  EXPECT_EQ(message({{"c", "city * job"}}, hash), "");
  EXPECT_THAT(message({{"c", "city * jobs"}}, hash), HasSubstr("crosses: no column 'jobs' (did you mean 'job'?)"));
  EXPECT_THAT(message({{"c", "city"}}, hash), HasSubstr("crosses: c: expected two or more columns, \"a * b\", got"));
  EXPECT_THAT(message({{"c", "city * city"}}, hash), HasSubstr("crosses: c: column 'city' is named twice"));
  EXPECT_THAT(message({{"job", "city * job"}}, {{"job", "hash(9)"}}), HasSubstr("have a column of this name"));
  EXPECT_THAT(message({{"c", "city * job"}}, {}), HasSubstr("crosses: c: no type; give one in `columns`"));
  EXPECT_THAT(message({{"c", "city * job"}}, {{"c", "float"}}), HasSubstr("expected the type \"hash(N)\""));
}

TEST(CsvTest, Errors) {
  const std::string path = Folder("csv_bad") + "/x.csv";
  const auto message = [&](const std::string& text, FieldMap fields = {}) {
    Put(path, text);
    fields["dataset_files"] = path;
    return Message(Open("csv", fields).status());
  };
  EXPECT_EQ(message("a,b\n1,2\n"), "");
  EXPECT_EQ(message("a,b\n1,2\n3\n"), path + ":3: 1 column, expected 2, as in the header");
  EXPECT_EQ(message("a,b\n1,2,3\n"), path + ":2: 3 columns, expected 2, as in the header");
  EXPECT_EQ(message("a,b\n1,2\n3,4x\n"), path + ":3: column 'b': '4x' is not a finite number");
  EXPECT_EQ(message("a\ninf\n"), path + ":2: column 'a': 'inf' is not a finite number");
  EXPECT_EQ(message("a\n1e99\n"), path + ":2: column 'a': '1e99' is not a finite number");
  EXPECT_EQ(message("a\n3000000000\n", {{"column_type", "int"}}),
            path + ":2: column 'a': '3000000000' is not an integer of 32 bits");
  EXPECT_EQ(message("a\n1.5\n", {{"column_type", "int"}}), path + ":2: column 'a': '1.5' is not an integer of 32 bits");
  EXPECT_EQ(message("a\n\"1\n2\n"), path + ":2: a quote is not closed");
  EXPECT_EQ(message("a,b\n1,\"2\"3\n"), path + ":2: column 2: text stands behind a closing quote");
  EXPECT_THAT(message(""), HasSubstr("is empty: expected a header"));
  EXPECT_THAT(message("a,b\n"), HasSubstr("no record"));
  EXPECT_THAT(message("a,a\n1,2\n"), HasSubstr("two columns are called 'a'"));
  EXPECT_THAT(message("age\n1\n", {{"columns", Texts{{"aeg", "int"}}}}),
              HasSubstr("columns: no column 'aeg' (did you mean 'age'?); there are age"));
  EXPECT_THAT(message("age\n1\n", {{"label", "income"}}), HasSubstr("label: no column 'income'"));
  EXPECT_THAT(message("age;job;buy\n1;2;3\n", {{"label", "buy"}}),
              HasSubstr("label: no column 'buy'; there are age;job;buy: give field_delim = \";\""));
  EXPECT_THAT(message("age\tbuy\n1\t3\n", {{"label", "buy"}}), HasSubstr(": give field_delim = \"\\t\""));
  EXPECT_THAT(message("a\n1\n", {{"columns", Texts{{"a", "categry"}}}}),
              AllOf(HasSubstr("columns: a: expected \"float\""), HasSubstr("(did you mean 'category'?)")));
  EXPECT_THAT(message("a\n1\n", {{"columns", Texts{{"a", "hash"}}}}), HasSubstr("got \"hash\""));
  EXPECT_THAT(message("a\n1\n", {{"columns", Texts{{"a", "hash(0)"}}}}), HasSubstr("got \"hash(0)\""));
  EXPECT_THAT(message("a\nx\ny\n", {{"columns", Texts{{"a", "category(1)"}}}}),
              HasSubstr(":3: column 'a': 'y' is value 2, expected at most 1 (category(1))"));
  EXPECT_THAT(message("a\n1\n", {{"column_type", "skip"}}), HasSubstr("every column is skipped"));
  EXPECT_THAT(message("a,b\n1,2\n", {{"label", "b"}, {"columns", Texts{{"b", "skip"}}}}),
              HasSubstr("columns: the label 'b' is skipped"));
  EXPECT_THAT(message("a\n1\n", {{"field_delim", "::"}}), HasSubstr("expected one character"));
}

// A record that is longer than what is read at once, and one that ends where a piece does.
TEST(CsvTest, FilesThatAreNoTextOfLines) {
  const std::string path = Folder("csv_no_text") + "/x.csv";
  const auto message_of = [&](absl::string_view bytes) {
    Put(path, std::string(bytes));
    return Message(Open("csv", {{"dataset_files", path}}).status());
  };
  EXPECT_THAT(message_of("\x1f\x8b\x08\x08"), HasSubstr(path + " is compressed by gzip: expected text"));
  EXPECT_THAT(message_of("PK\x03\x04xlsx"), HasSubstr("is a ZIP archive, as spreadsheets are"));
  EXPECT_THAT(message_of(absl::string_view("\xff\xfe"
                                           "a\0,\0",
                                           6)),
              HasSubstr("is UTF-16: expected UTF-8"));
  EXPECT_THAT(message_of(absl::string_view("a,b\n1,\0\n", 8)), HasSubstr("has bytes that are 0"));
  EXPECT_THAT(message_of("a,b\r1,2\r3,4\r"), HasSubstr("end in carriage returns alone: expected line feeds"));
}

TEST(CsvTest, LongRecords) {
  const std::string path = Folder("csv_long") + "/x.csv";
  std::string text = "a,b\n";
  for (int i = 0; i < 3; ++i) absl::StrAppend(&text, "\"", std::string((4 << 20) - 3 + i, 'x'), "\"\"\",", i, "\r\n");
  Put(path, text);
  const Opened reader = Open("csv", {{"dataset_files", path}, {"columns", Texts{{"a", "category"}}}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Row(reader, i), ElementsAre(i, i));
}

TEST(CsvTest, ShufflesShardsAndResumes) {
  const std::string path = Folder("csv_order") + "/x.csv";
  std::string text = "x,label\n";
  for (int i = 0; i < 23; ++i) absl::StrAppend(&text, i * 0.5, ",", i, "\n");
  Put(path, text);
  CheckOrder(Source("csv", {{"dataset_files", path}, {"columns", Texts{{"label", "int"}}}, {"label", "label"}}));
}

TEST(CsvTest, DamagedFilesNeverCrash) {
  const std::string path = Folder("csv_fuzz") + "/x.csv";
  Fuzz(path, kPeople, 3000, [&] {
    return Open("csv", {{"dataset_files", path}, {"columns", kTypes}, {"label", "income"}});
  });
  Fuzz(path, kPeople, 1000, [&] { return Open("csv", {{"dataset_files", path}, {"column_type", "category"}}); });
  const Texts crossed{{"age", "skip"}, {"id", "skip"}, {"job_city", "category"}};
  Fuzz(path, kPeople, 1000, [&] {
    return Open("csv", {{"dataset_files", path},
                        {"columns", crossed},
                        {"column_type", "category"},
                        {"crosses", Texts{{"job_city", "job * city"}}}});
  });
}

}  // namespace
}  // namespace mslua::data
