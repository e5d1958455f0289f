#include "core/data/stand_in.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/data/file.h"
#include "core/data/inspect.h"
#include "core/data/loader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::data {
namespace {

using testing::HasSubstr;

// A path where nothing is.
std::string Folder(const std::string& name) {
  const std::string path = testing::TempDir() + "/make_test_" + name;
  std::filesystem::remove_all(path);
  return path;
}

std::vector<uint8_t> Bytes(const std::string& path) {
  std::vector<uint8_t> bytes;
  EXPECT_TRUE(ReadFile(path, 1 << 30, &bytes).ok()) << path;
  return bytes;
}

// All images as f32 vectors of unit length about their mean, with labels.
struct Set {
  std::vector<std::vector<float>> x;
  std::vector<int32_t> y;
};
Set All(const Source& source) {
  const auto pipeline = Pipeline::Open(Dataset(source).Map({{TypeCast{DType::kF32}}, {"image"}}), {});
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  Loader loader(*pipeline, {0});
  Set set;
  Batch batch;
  while (*loader.Next(&batch)) {
    const float* p = batch.columns[0].as<float>();
    set.x.emplace_back(p, p + batch.columns[0].type.elements());
    set.y.push_back(*batch.columns[1].as<int32_t>());
  }
  return set;
}

// Share of the test samples that have the label of their class's mean training image nearest to them.
double NearestMean(const Set& train, const Set& test) {
  std::map<int32_t, std::vector<double>> sum;
  std::map<int32_t, int> count;
  for (size_t i = 0; i < train.x.size(); ++i) {
    auto& s = sum[train.y[i]];
    s.resize(train.x[i].size());
    for (size_t d = 0; d < s.size(); ++d) s[d] += train.x[i][d];
    ++count[train.y[i]];
  }
  int right = 0;
  for (size_t i = 0; i < test.x.size(); ++i) {
    double best = 1e300;
    int32_t label = -1;
    for (const auto& [candidate, s] : sum) {
      double distance = 0;
      for (size_t d = 0; d < s.size(); ++d) {
        const double e = s[d] / count[candidate] - test.x[i][d];
        distance += e * e;
      }
      if (distance < best) best = distance, label = candidate;
    }
    right += label == test.y[i];
  }
  return static_cast<double>(right) / test.x.size();
}

TEST(MakeTest, Cifar10HasTheTrueFormat) {
  const std::string path = Folder("cifar");
  ASSERT_TRUE(MakeStandIn("cifar10", path, {500, 100}).ok());
  EXPECT_EQ(Bytes(path + "/data_batch_3.bin").size(), 100u * 3073);
  const auto report = Inspect(path, true);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->kind, "cifar10");
  EXPECT_TRUE(report->problems.empty());
  ASSERT_EQ(report->parts.size(), 2u);
  EXPECT_EQ(report->parts[0].samples, 500);
  EXPECT_EQ(report->parts[1].samples, 100);
  ASSERT_EQ(report->parts[0].histogram.size(), 10u);
  for (int64_t count : report->parts[0].histogram) EXPECT_GT(count, 25);
  // Colour alone tells something: far above chance, far below certainty, so there is something to learn.
  const double score = NearestMean(All(Source("cifar10", {{"dataset_dir", path}})),
                                   All(Source("cifar10", {{"dataset_dir", path}, {"usage", "test"}})));
  EXPECT_GT(score, 0.15);
  EXPECT_LT(score, 0.9);

  EXPECT_THAT(std::string(MakeStandIn("cifar10", path, {500, 100}).message()),
              HasSubstr("data_batch_1.bin exists and is kept"));
  const std::string again = Folder("cifar_again");
  ASSERT_TRUE(MakeStandIn("cifar10", again, {500, 100}).ok());
  EXPECT_EQ(Bytes(path + "/test_batch.bin"), Bytes(again + "/test_batch.bin"));
}

TEST(MakeTest, MnistIsReadAndLearnable) {
  const std::string path = Folder("mnist");
  ASSERT_TRUE(MakeStandIn("mnist", path, {1000, 200}).ok());
  const auto report = Inspect(path, true);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->kind, "mnist");
  EXPECT_EQ(ToString(report->parts[0].columns[0].type), "u8[28,28,1]");
  EXPECT_EQ(report->parts[1].samples, 200);
  EXPECT_GT(NearestMean(All(Source("mnist", {{"dataset_dir", path}})),
                        All(Source("mnist", {{"dataset_dir", path}, {"usage", "test"}}))),
            0.5);
}

TEST(MakeTest, TextHasAVocabularyAndTwoParts) {
  const std::string path = Folder("text");
  ASSERT_TRUE(MakeStandIn("text", path, {9000, 1000}).ok());
  EXPECT_EQ(Bytes(path + "/input.txt").size(), 10000u);
  const auto bytes = Bytes(path + "/input.txt");
  const std::set<uint8_t> distinct(bytes.begin(), bytes.end());
  const std::vector<uint8_t> vocabulary(distinct.begin(), distinct.end());
  EXPECT_GT(vocabulary.size(), 25u);
  const auto reader = OpenSource(Source("text", {{"dataset_files", path}, {"block", 8}}));
  ASSERT_TRUE(reader.ok());
  ReadBuffers buffers;
  std::vector<RawColumn> row(2);
  ASSERT_TRUE((*reader)->Read(3, &buffers, absl::MakeSpan(row)).ok());
  for (int k = 0; k < 8; ++k) {
    EXPECT_EQ(vocabulary[static_cast<const int32_t*>(row[0].data)[k]], bytes[24 + k]);
    EXPECT_EQ(vocabulary[static_cast<const int32_t*>(row[1].data)[k]], bytes[25 + k]);
  }
  EXPECT_EQ((*reader)->size(), (9000 - 1) / 8);
}

TEST(InspectTest, DamageIsAProblemNotAnError) {
  const std::string path = Folder("damaged");
  ASSERT_TRUE(MakeStandIn("cifar10", path, {50, 20}).ok());
  std::fstream file(path + "/data_batch_2.bin", std::ios::in | std::ios::out | std::ios::binary);
  for (int record = 0; record < 10; ++record) {
    file.seekp(record * 3073);
    file.put(static_cast<char>(200));
  }
  file.close();
  std::filesystem::resize_file(path + "/test_batch.bin", 5000);
  const auto report = Inspect(path, true);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->problems.size(), 10u);
  EXPECT_TRUE(report->more_problems);
  EXPECT_THAT(report->problems[0], HasSubstr("data_batch_2.bin, record 0: label is 200"));
  const auto listed = Inspect(path, false);
  ASSERT_EQ(listed->problems.size(), 1u);
  EXPECT_THAT(listed->problems[0], HasSubstr("test_batch.bin is truncated in record 1"));
  EXPECT_TRUE(listed->parts[0].histogram.empty());
  EXPECT_THAT(std::string(Inspect(path + "/none", true).status().message()), HasSubstr("is no dataset"));
}

TEST(InspectTest, ANegativeLabelIsAProblem) {
  const std::string path = Folder("criteo") + "/c.txt";
  std::filesystem::create_directories(Folder("criteo"));
  std::ofstream file(path);
  for (const char* click : {"1", "-1", "0"}) {
    file << click;
    for (int i = 0; i < 13; ++i) file << "\t" << i;
    for (int i = 0; i < 26; ++i)
      file << "\t"
           << "68fd1e64";
    file << "\n";
  }
  file.close();
  const auto report = Inspect(path, true, "criteo");
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_THAT(report->problems[0], HasSubstr("the label is -1, expected 0 or more"));
}

TEST(MakeTest, BadCounts) {
  EXPECT_THAT(std::string(MakeStandIn("mnist", Folder("bad"), {0, 1}).message()), HasSubstr("at least one training"));
  const std::string file = Folder("file");
  std::ofstream(file) << "x";
  EXPECT_FALSE(MakeStandIn("text", file, {}).ok());
}

}  // namespace
}  // namespace mslua::data
