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
