// What holds for every source of the folder.
#include <set>

#include "core/data/inspect.h"
#include "core/data/stand_in.h"
#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::HasSubstr;

TEST(SourcesTest, DeclarationsAreWhole) {
  std::set<std::string> classes, titles;
  for (const SourceDef& def : Sources()) {
    SCOPED_TRACE(def.kind);
    EXPECT_TRUE(classes.insert(def.class_name).second);
    EXPECT_TRUE(titles.insert(def.title).second);
    EXPECT_NE(def.doc, "");
    std::set<std::string> names;
    FieldMap required;
    for (const FieldDef& field : def.fields) {
      EXPECT_TRUE(names.insert(field.name).second) << field.name;
      EXPECT_NE(field.doc, "") << field.name;
      EXPECT_FALSE(field.required && !std::holds_alternative<std::monostate>(field.fallback)) << field.name;
    }
    EXPECT_EQ(def.fits == nullptr, def.PathField() == nullptr);
    EXPECT_EQ(def.fits == nullptr, def.expects.empty());
    // Defaults are in range: they pass as values.
    FieldMap values;
    for (const FieldDef& field : def.fields) values[field.name] = field.fallback;
    if (def.PathField() == nullptr) continue;
    values[def.PathField()->name] = "somewhere";
    EXPECT_TRUE(CheckFields(def.class_name, def.fields, values).ok())
        << CheckFields(def.class_name, def.fields, values).status();
  }
}

TEST(SourcesTest, WrongFieldsAreNamed) {
  const auto message = [](const std::string& kind, const FieldMap& fields) {
    return Message(Open(kind, fields).status());
  };
  EXPECT_EQ(message("mnst", {}), "dataset: unknown source 'mnst' (did you mean 'mnist'?)");
  EXPECT_EQ(message("mnist", {}), "MnistDataset: dataset_dir is missing: expected a string");
  EXPECT_EQ(message("mnist", {{"dataset_dir", "d"}, {"usge", "test"}}),
            "MnistDataset: unknown key 'usge' (did you mean 'usage'?); keys: dataset_dir, usage");
  EXPECT_EQ(message("mnist", {{"dataset_dir", "d"}, {"usage", "valid"}}),
            "MnistDataset: usage: expected one of \"train\", \"test\", \"all\", got \"valid\"");
  EXPECT_EQ(message("mnist", {{"dataset_dir", 3}}), "MnistDataset: dataset_dir: expected a string, got 3");
  EXPECT_EQ(message("text", {{"dataset_files", "f"}, {"test_fraction", 1.0}}),
            "TextDataset: test_fraction: expected a number, at least 0 and below 1, got 1");
}

TEST(SourcesTest, AnAbsentPathIsNamed) {
  for (const SourceDef& def : Sources()) {
    if (def.PathField() == nullptr) continue;
    FieldMap fields = def.inspect;
    const std::string path = testing::TempDir() + "/nothing_is_here";
    fields[def.PathField()->name] = path;
    const Status status = OpenSource(Source(def.kind, fields)).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << def.kind << ": " << status;
    EXPECT_THAT(Message(status), HasSubstr(path));
    EXPECT_THAT(Message(status), HasSubstr(def.class_name));
  }
}

// The bytes with which files of pyarrow 14 begin and end.
TEST(SourcesTest, TablesOfOtherFormatsAreRefusedWithTheLineThatConvertsThem) {
  const std::string folder = Folder("columnar");
  const std::string parquet = std::string("PAR1\x15\x04\x15\x20\x15\x22L\x15\x04\x15\0\x12\0\0\x10\0\0\0PAR1", 26),
                    arrow = std::string("ARROW1\0\0\xff\xff\xff\xff\xa8\0\0\0", 16) + std::string(200, '\0') + "ARROW1",
                    feather = std::string("FEA1\0\0\0\0", 8) + "FEA1",
                    stream = std::string("\xff\xff\xff\xff\xa8\0\0\0\x10\0\0\0", 12);
  const auto problem = [&](const std::string& kind, const std::string& name, const std::string& bytes) {
    const std::string place = Folder("columnar_" + kind);
    Put(place + "/" + name, bytes);
    FieldMap fields = (*FindSource(kind))->inspect;
    const std::string key = (*FindSource(kind))->PathField()->name;
    fields[key] = place + "/" + name;
    const std::string file = Message(Open(kind, fields).status());
    fields[key] = place;
    return std::make_pair(file, Message(Open(kind, fields).status()));
  };
  for (const char* kind : {"csv", "jsonl", "text", "image_folder", "tar", "numpy", "mnist", "cifar10"}) {
    SCOPED_TRACE(kind);
    const auto [file, whole] = problem(kind, "train-0.parquet", parquet);
    EXPECT_THAT(file, HasSubstr("train-0.parquet' is a Parquet file: convert it first: python3 -c 'import pandas; "
                                "pandas.read_parquet(\""));
    EXPECT_THAT(file, HasSubstr("\").to_csv(\"data.csv\", index=False)', then CsvDataset(\"data.csv\")"));
    EXPECT_THAT(whole, HasSubstr("' holds a Parquet file, train-0.parquet: convert it first: python3 -c"));
  }
  EXPECT_THAT(problem("csv", "x.feather", arrow).first, HasSubstr("an Arrow file: convert it first: python3 -c 'import "
                                                                  "pandas; pandas.read_feather("));
  EXPECT_THAT(problem("csv", "x.feather", feather).first, HasSubstr("pandas.read_feather("));
  EXPECT_THAT(problem("csv", "data-0.arrow", stream).first, HasSubstr("pyarrow.ipc.open_stream("));
  EXPECT_THAT(problem("tar", "data-0.arrow", stream).second, HasSubstr("import pyarrow.dataset as d; d.dataset("));
  // Other bytes, and a folder with what the source reads beside such a file, are none of it.
  EXPECT_THAT(problem("csv", "x.csv", "PAR2,b\n1,2\n").first, testing::Not(HasSubstr("convert")));
  Put(folder + "/input.txt", "abcabcabcabc");
  Put(folder + "/other.parquet", parquet);
  const Status text = Open("text", {{"dataset_files", folder}, {"block", int64_t{2}}}).status();
  EXPECT_TRUE(text.ok()) << text;
}

TEST(SourcesTest, StandInsAreRecognisedAndWhole) {
  for (const std::string& kind : StandIns()) {
    const std::string path = absl::StrCat(testing::TempDir(), "/stand_in_of_", kind);
    std::filesystem::remove_all(path);
    ASSERT_TRUE(MakeStandIn(kind, path, {2000, 400}).ok()) << kind;
    const auto report = Inspect(path, true, kind);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->kind, kind);
    EXPECT_TRUE(report->problems.empty()) << report->problems[0];
    EXPECT_EQ(report->parts.size(), 2u) << kind;
    EXPECT_TRUE(absl::IsAlreadyExists(MakeStandIn(kind, path, {2000, 400}))) << kind;
  }
  EXPECT_THAT(Message(MakeStandIn("mnst", "somewhere", {})), HasSubstr("got 'mnst' (did you mean 'mnist'?)"));
}

}  // namespace
}  // namespace mslua::data
