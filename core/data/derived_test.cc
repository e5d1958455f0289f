// Datasets made of datasets: zip, concat, cache; weighted sampling; batches that are mixed; code on the loader's
// threads.
#include "core/data/derived.h"

#include <fstream>
#include <map>
#include <thread>

#include "core/data/sample_code.h"
#include "core/data/testing/memory_sources.h"
#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Samples with x = first, first + 1, ...: f32[].
Dataset Numbers(int64_t n, float first = 0, const std::string& name = "x") {
  auto x = std::make_shared<std::vector<float>>();
  for (int64_t i = 0; i < n; ++i) x->push_back(first + static_cast<float>(i));
  return Dataset(NumpySlices({{name, {DType::kF32, {n}}, {x, x->data()}}}));
}

std::shared_ptr<const Dataset> Shared(Dataset dataset) { return std::make_shared<const Dataset>(std::move(dataset)); }

// The first column of an epoch, sample by sample; the first error as text.
struct Read {
  std::vector<float> values;
  std::string error;
};
Read ReadEpoch(Loader* loader) {
  Read read;
  Batch batch;
  while (true) {
    const auto more = loader->Next(&batch);
    if (!more.ok()) return read.error = Message(more.status()), read;
    if (!*more) return read;
    const float* x = batch.columns[0].as<float>();
    read.values.insert(read.values.end(), x,
                       x + batch.valid * batch.columns[0].type.elements() / batch.columns[0].type.shape[0]);
  }
}
std::unique_ptr<Loader> LoaderOf(const Dataset& dataset, int workers = 0, FeedOptions options = {}) {
  const auto pipeline = Pipeline::Open(dataset, options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  return std::make_unique<Loader>(*pipeline, LoaderOptions{workers});
}
std::string ErrorOf(const Dataset& dataset) { return Message(Pipeline::Open(dataset, {}).status()); }

TEST(DerivedTest, ConcatAndZip) {
  const Dataset both(ConcatSource({Shared(Numbers(3)), Shared(Numbers(4, 10).Skip({1}))}));
  EXPECT_THAT(ReadEpoch(LoaderOf(both.Batch({2}), 2).get()).values, ElementsAre(0, 1, 2, 11, 12, 13));
  const Dataset pair(ZipSource({Shared(Numbers(3)), Shared(Numbers(5, 10, "y"))}));
  EXPECT_EQ(LoaderOf(pair)->pipeline().size(), 3);
  EXPECT_EQ(LoaderOf(pair)->pipeline().schema()[1].name, "y");
  EXPECT_THAT(ReadEpoch(LoaderOf(pair.Project({{"y"}, {}}).Batch({3})).get()).values, ElementsAre(10, 11, 12));
  EXPECT_THAT(ErrorOf(Dataset(ZipSource({Shared(Numbers(3)), Shared(Numbers(3))}))), HasSubstr("have a column 'x'"));
  EXPECT_THAT(ErrorOf(Dataset(ConcatSource({Shared(Numbers(3)), Shared(Numbers(3, 0, "y"))}))),
              HasSubstr("concat: dataset 2 has (y f32[]), dataset 1 has (x f32[])"));
  EXPECT_THAT(ErrorOf(Dataset(ConcatSource({Shared(Numbers(3)), Shared(Numbers(3).Shuffle({3}))}))),
              HasSubstr("concat: a part is shuffled: call shuffle on the result (dataset 2)"));
  EXPECT_THAT(ErrorOf(Dataset(ZipSource({Shared(Numbers(3).Batch({2})), Shared(Numbers(3))}))),
              HasSubstr("batched already"));
}

// Counts how often its function was called.
class Doubling : public SampleCode {
 public:
  explicit Doubling(bool draws = false) : draws_(draws) {}
  StatusOr<std::unique_ptr<SampleFunction>> Start() const override {
    class Function : public SampleFunction {
     public:
      explicit Function(const Doubling* code) : code_(code) {}
      int64_t length() const override { return 6; }
      Status Call(const CodeArguments& arguments, std::vector<TensorView>* results) override {
        ++code_->calls;
        if (arguments.frozen && code_->draws_) return absl::InvalidArgumentError("draws");
        const float x = arguments.index >= 0 ? static_cast<float>(arguments.index) : *arguments.columns[0].as<float>();
        if (x == 99) std::this_thread::sleep_for(std::chrono::seconds(2));
        if (x == 98) return absl::InvalidArgumentError("bad sample");
        value_ = 2 * x + (code_->draws_ ? static_cast<float>(arguments.key % 1000) * 1000 : 0);
        results->assign(1, TensorView{{DType::kF32, {}}, &value_});
        return absl::OkStatus();
      }

     private:
      const Doubling* code_;
      float value_ = 0;
    };
    return std::unique_ptr<SampleFunction>(std::make_unique<Function>(this));
  }
  std::string name() const override { return "double.lua"; }
  std::string identity() const override { return draws_ ? "drawing" : "doubling"; }
  std::string Locate(const CodeArguments&) const override { return "double.lua:3"; }
  double limit_seconds() const override { return 0.3; }

  mutable std::atomic<int> calls{0};

 private:
  const bool draws_;
};

TEST(SampleCodeTest, SameForAnyWorkersAndResumed) {
  const auto code = std::make_shared<Doubling>(true);
  const Dataset dataset = Numbers(20).Call({code, {}, {}}).Shuffle({20}).Batch({3});
  const auto inline_loader = LoaderOf(dataset, 0);
  const auto first = ReadEpoch(inline_loader.get()).values, second = ReadEpoch(inline_loader.get()).values;
  EXPECT_NE(first, second);
  const auto one = LoaderOf(dataset, 1), three = LoaderOf(dataset, 3);
  EXPECT_EQ(ReadEpoch(one.get()).values, first);
  EXPECT_EQ(ReadEpoch(three.get()).values, first);
  EXPECT_EQ(ReadEpoch(three.get()).values, second);
  ASSERT_TRUE(three->Seek({1, 2}).ok());
  EXPECT_EQ(ReadEpoch(three.get()).values, std::vector<float>(second.begin() + 6, second.end()));
}

TEST(SampleCodeTest, ErrorsNameTheSample) {
  const auto code = std::make_shared<Doubling>();
  EXPECT_THAT(ErrorOf(Numbers(4, 98).Call({code, {}, {}})), HasSubstr("bad sample (NumpySlicesDataset, row 1)"));
  const auto bad = LoaderOf(Numbers(4, 95).Call({code, {}, {}}).Batch({2}), 2);
  EXPECT_THAT(ReadEpoch(bad.get()).error, HasSubstr("bad sample (NumpySlicesDataset, row 4)"));
  EXPECT_THAT(ErrorOf(Numbers(4).Call({code, {}, {"a", "b"}})), HasSubstr("should give 2 values, got 1"));
  EXPECT_THAT(ErrorOf(Numbers(4).Batch({2}).Call({code, {}, {}})), HasSubstr("call it before batch"));
}

// A function that takes longer than its limit is named; the loader can be destroyed, and the rest of it read.
TEST(SampleCodeTest, SlowFunctionsAreNamed) {
  const auto code = std::make_shared<Doubling>();
  EXPECT_THAT(ErrorOf(Numbers(4, 99).Call({code, {}, {}})),
              HasSubstr("double.lua:3: the function has not returned after 0.3 s (NumpySlicesDataset, row 1)"));
  const Dataset late = Numbers(103).Take({100}).Call({code, {}, {}}).Batch({33});
  const auto loader = LoaderOf(late, 2);
  EXPECT_THAT(ReadEpoch(loader.get()).error, testing::AnyOf(HasSubstr("row 98"), HasSubstr("row 99")));
}

TEST(SampleCodeTest, Generators) {
  const auto code = std::make_shared<Doubling>();
  const Dataset dataset(Source("generator", {{"source", std::shared_ptr<const SampleCode>(code)},
                                             {"column_names", std::vector<std::string>{"x"}}}));
  EXPECT_THAT(ReadEpoch(LoaderOf(dataset.Batch({4}), 2).get()).values, ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_TRUE(LoaderOf(dataset)->pipeline().runs_code());
  EXPECT_FALSE(LoaderOf(dataset)->pipeline().foreign());
}

TEST(CacheTest, MakesEachSampleOnce) {
  const auto code = std::make_shared<Doubling>();
  for (const std::string& folder : {std::string(), Folder("cache")}) {
    const Dataset part = Numbers(10).Call({code, {}, {}});
    const Dataset cached = Dataset(CacheSource(Shared(part), folder)).Shuffle({10}).Batch({3});
    const auto loader = LoaderOf(cached, 2);
    const auto first = ReadEpoch(loader.get()).values;
    const int after_first = code->calls;
    const auto second = ReadEpoch(loader.get()).values;
    EXPECT_EQ(code->calls, after_first) << folder;
    EXPECT_NE(first, second);
    const auto plain = LoaderOf(part.Batch({3}), 1),
               again = LoaderOf(Dataset(CacheSource(Shared(part), folder)).Batch({3}));
    EXPECT_EQ(ReadEpoch(plain.get()).values, ReadEpoch(again.get()).values);
  }
  const Dataset random = Numbers(10).Call({std::make_shared<Doubling>(true), {}, {}});
  EXPECT_THAT(ErrorOf(Dataset(CacheSource(Shared(random), ""))), HasSubstr("draws"));
}

TEST(CacheTest, FoldersOfOtherData) {
  const std::string folder = Folder("cache_other");
  const auto open = [&](const Dataset& part) { return ErrorOf(Dataset(CacheSource(Shared(part), folder))); };
  const Dataset part = Numbers(6).Map({{Rescale{2}}, {"x"}});
  const auto loader = LoaderOf(Dataset(CacheSource(Shared(part), folder)).Batch({2}));
  ReadEpoch(loader.get());
  EXPECT_EQ(open(part), "");
  EXPECT_THAT(open(Numbers(6).Map({{Rescale{3}}, {"x"}})),
              HasSubstr("was made of other data, or with other transforms: remove it"));
  EXPECT_THAT(open(Numbers(6, 1).Map({{Rescale{2}}, {"x"}})), HasSubstr("other data"));
  EXPECT_THAT(open(Numbers(7).Map({{Rescale{2}}, {"x"}})), HasSubstr("it has 6 samples, the dataset 7"));
  // Damaged samples are made again.
  std::ofstream(folder + "/samples", std::ios::in | std::ios::out | std::ios::binary) << std::string(64, '\xff');
  const auto again = LoaderOf(Dataset(CacheSource(Shared(part), folder)).Batch({6}));
  EXPECT_THAT(ReadEpoch(again.get()).values, ElementsAre(0, 2, 4, 6, 8, 10));
  Put(folder + "/index", "no index");
  EXPECT_THAT(open(part), HasSubstr("is no index of this version"));
  const std::string used = Folder("cache_used");
  Put(used + "/notes.txt", "mine");
  EXPECT_THAT(ErrorOf(Dataset(CacheSource(Shared(part), used))), HasSubstr("has other files, such as notes.txt"));
}

// /dev/full stands for a full disk.
TEST(CacheTest, FullFolder) {
  const std::string folder = Folder("cache_full");
  std::filesystem::create_symlink("/dev/full", folder + "/samples");
  const auto loader = LoaderOf(Dataset(CacheSource(Shared(Numbers(6)), folder)).Batch({2}));
  EXPECT_THAT(ReadEpoch(loader.get()).error,
              HasSubstr("No space left on device: free some space, or give another folder"));
}

TEST(WeightedTest, DrawsByWeight) {
  const auto weights = std::make_shared<const std::vector<double>>(std::vector<double>{1, 0, 3, 4});
  const auto loader = LoaderOf(Numbers(4).Weighted({weights, 8000}).Batch({100}), 1, {/*seed=*/3});
  const auto first = ReadEpoch(loader.get()).values;
  std::map<float, int> counts;
  for (const float x : first) ++counts[x];
  ASSERT_EQ(first.size(), 8000u);
  EXPECT_EQ(counts[1], 0);
  EXPECT_NEAR(counts[0], 1000, 120);
  EXPECT_NEAR(counts[2], 3000, 180);
  EXPECT_NE(ReadEpoch(loader.get()).values, first);
  std::vector<float> shared;  // of two feeds
  const auto halves = [&](int64_t feed) {
    return ReadEpoch(LoaderOf(Numbers(4).Weighted({weights, 8000}).Batch({50}), 1, {3, 2, feed}).get()).values;
  };
  EXPECT_EQ(halves(0)[0], first[0]);
  EXPECT_EQ(halves(1)[0], first[50]);
}

TEST(WeightedTest, WithoutReplacement) {
  const auto weights = std::make_shared<const std::vector<double>>(std::vector<double>{1, 0, 3, 4});
  int heavy = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    auto drawn = ReadEpoch(LoaderOf(Numbers(4).Weighted({weights, 3, false}).Batch({3}), 0, {seed}).get()).values;
    heavy += drawn[0] == 3;
    std::sort(drawn.begin(), drawn.end());
    EXPECT_THAT(drawn, ElementsAre(0, 2, 3));
  }
  EXPECT_NEAR(heavy, 200, 40);  // half of the weight
  EXPECT_THAT(ErrorOf(Numbers(4).Weighted({weights, 4, false})),
              HasSubstr("at most 3, the samples of positive weight"));
  EXPECT_THAT(ErrorOf(Numbers(5).Weighted({weights})), HasSubstr("expected a weight for each of 5 samples, got 4"));
  EXPECT_THAT(ErrorOf(Numbers(4).Shuffle({4}).Weighted({weights})), HasSubstr("call it before shuffle"));
  const auto bad = std::make_shared<const std::vector<double>>(std::vector<double>{1, -1, 3, 4});
  EXPECT_THAT(ErrorOf(Numbers(4).Weighted({bad})), HasSubstr("weights[2]: expected a number of at least 0, got -1"));
}

// Images [4,4,1] of one value each, with its one-hot label.
Dataset Plain(int64_t n) {
  auto x = std::make_shared<std::vector<float>>(), y = std::make_shared<std::vector<float>>();
  for (int64_t i = 0; i < n; ++i) {
    x->insert(x->end(), 16, static_cast<float>(i));
    for (int64_t k = 0; k < n; ++k) y->push_back(k == i);
  }
  return Dataset(NumpySlices(
      {{"image", {DType::kF32, {n, 4, 4, 1}}, {x, x->data()}}, {"label", {DType::kF32, {n, n}}, {y, y->data()}}}));
}

TEST(MixTest, RowsAndLabelsAgreeForAnyFeeds) {
  for (const bool cut : {false, true}) {
    const Dataset mixed = Plain(6).Batch({6}).Mix({cut, 0.8, 1, "image", "label"});
    const auto pipeline = Pipeline::Open(mixed, {/*seed=*/5});
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    Loader loader(*pipeline, {0});
    Batch batch;
    ASSERT_TRUE(*loader.Next(&batch));
    const float *image = batch.columns[0].as<float>(), *label = batch.columns[1].as<float>();
    for (int64_t r = 0; r < 6; ++r) {
      const int64_t before = (r + 5) % 6;
      const float kept = label[r * 6 + r];
      EXPECT_NEAR(label[r * 6 + before], 1 - kept, 1e-6);
      double mean = 0;
      for (int64_t i = 0; i < 16; ++i) mean += image[r * 16 + i] / 16.0;
      EXPECT_NEAR(mean, kept * static_cast<float>(r) + (1 - kept) * static_cast<float>(before), 1e-4);
    }
    // The same rows where three feeds share the batch.
    for (int64_t feed = 0; feed < 3; ++feed) {
      const auto part = Pipeline::Open(Plain(6).Batch({2}).Mix({cut, 0.8, 1, "image", "label"}), {5, 3, feed});
      Loader shared(*part, {1});
      Batch rows;
      ASSERT_TRUE(*shared.Next(&rows));
      for (int64_t i = 0; i < 2 * 16; ++i) EXPECT_EQ(rows.columns[0].as<float>()[i], image[feed * 32 + i]);
      for (int64_t i = 0; i < 2 * 6; ++i) EXPECT_EQ(rows.columns[1].as<float>()[i], label[feed * 12 + i]);
    }
  }
}

// The columns of the first batch, as numbers.
std::map<std::string, std::vector<float>> FirstBatch(const Dataset& dataset) {
  const auto pipeline = Pipeline::Open(dataset, {/*seed=*/5});
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  Loader loader(*pipeline, {0});
  Batch batch;
  EXPECT_TRUE(*loader.Next(&batch));
  std::map<std::string, std::vector<float>> columns;
  for (size_t k = 0; k < batch.columns.size(); ++k) {
    const float* p = batch.columns[k].as<float>();
    columns[(*pipeline)->schema()[k].name].assign(p, p + batch.columns[k].type.elements());
  }
  return columns;
}

TEST(MixTest, ColumnsMayBeMovedCopiedAndDroppedLater) {
  for (const bool cut : {false, true}) {
    const Dataset mixed = Plain(6).Batch({6}).Mix({cut, 0.8, 1, "image", "label"});
    auto want = FirstBatch(mixed);
    EXPECT_NE(want["label"], FirstBatch(Plain(6).Batch({6}))["label"]);
    EXPECT_EQ(FirstBatch(mixed.Project({{"label", "image"}, {}})), want);
    EXPECT_EQ(FirstBatch(mixed.Project({{"label"}, {}}))["label"], want["label"]);
    EXPECT_EQ(FirstBatch(mixed.Project({{"image"}, {}}))["image"], want["image"]);
    auto other = FirstBatch(mixed.Rename({{"image", "label"}, {"label", "image"}}));
    EXPECT_EQ(other["label"], want["image"]);
    EXPECT_EQ(other["image"], want["label"]);
    other = FirstBatch(mixed.Project({{"label", "image", "image"}, {"y", "a", "b"}}));
    EXPECT_EQ(other["a"], want["image"]);
    EXPECT_EQ(other["b"], want["image"]);
    EXPECT_EQ(other["y"], want["label"]);
  }
  // A column that takes the name of a mixed one is not mixed.
  const Dataset named = Plain(6).Project({{"image", "label", "image"}, {"image", "label", "plain"}}).Batch({6});
  const Dataset mixed = named.Mix({false, 0.8, 1, "image", "label"});
  EXPECT_EQ(FirstBatch(mixed.Project({{"plain", "label"}, {"image", "label"}}))["image"], FirstBatch(named)["plain"]);
}

TEST(MixTest, Errors) {
  EXPECT_THAT(ErrorOf(Plain(4).Mix({false, 1, 1, "image", "label"})), HasSubstr("MixUpBatch: call batch first"));
  EXPECT_THAT(ErrorOf(Numbers(4).Batch({2}).Mix({true, 1, 1, "x", "x"})),
              HasSubstr("CutMixBatch: column 'x': expected images of float32, got f32[]"));
  EXPECT_THAT(
      ErrorOf(
          Plain(4).Project({{"image", "image"}, {"image", "label"}}).Batch({2}).Mix({false, 1, 1, "image", "label"})),
      HasSubstr("expected a float32 vector of the classes, got f32[4,4,1]"));
  EXPECT_THAT(
      ErrorOf(Numbers(4).Project({{"x", "x"}, {"x", "y"}}).Batch({2}).Mix({true, 1, 1, "x", "y"}).Project({{"y"}, {}})),
      HasSubstr("CutMixBatch: column 'x': expected images of float32, got f32[]"));
}

}  // namespace
}  // namespace mslua::data
