#include "core/data/loader.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <set>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "core/data/testing/memory_sources.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

std::atomic<size_t> most_bytes{SIZE_MAX};  // that operator new gives at a time

}  // namespace

// Not inlined: g++ would see malloc meet delete, and warn.
__attribute__((noinline)) void* operator new(size_t bytes) {
  void* const memory = bytes <= most_bytes ? std::malloc(bytes) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace mslua::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Samples 0..n-1: column "x" f32[2] = (i, -i), column "y" i32[] = i.
Dataset Numbers(int64_t n, Sharding sharding = {}) {
  auto x = std::make_shared<std::vector<float>>();
  auto y = std::make_shared<std::vector<int32_t>>();
  for (int64_t i = 0; i < n; ++i) {
    x->push_back(static_cast<float>(i));
    x->push_back(static_cast<float>(-i));
    y->push_back(static_cast<int32_t>(i));
  }
  return Dataset(NumpySlices({{"x", {DType::kF32, {n, 2}}, {x, x->data()}}, {"y", {DType::kI32, {n}}, {y, y->data()}}}),
                 sharding);
}

// Images [h,w,3] of noise, a label each.
Dataset Images(int64_t n, int64_t h = 8, int64_t w = 8) {
  auto pixels = std::make_shared<std::vector<uint8_t>>(n * h * w * 3);
  for (size_t i = 0; i < pixels->size(); ++i) (*pixels)[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  return Dataset(NumpySlices({{"image", {DType::kU8, {n, h, w, 3}}, {pixels, pixels->data()}}}));
}

std::unique_ptr<Loader> Open(const Dataset& dataset, FeedOptions feed = {}, LoaderOptions options = {}) {
  auto pipeline = Pipeline::Open(dataset, feed);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  return std::make_unique<Loader>(*pipeline, options);
}

std::string ErrorOf(const Dataset& dataset, FeedOptions feed = {}) {
  return std::string(Pipeline::Open(dataset, feed).status().message());
}

// Bytes of every column of every batch of the next `epochs` epochs, valid rows only.
std::vector<std::vector<uint8_t>> Drain(Loader* loader, int epochs = 1, int64_t at_most = 1 << 30) {
  std::vector<std::vector<uint8_t>> all;
  Batch batch;
  while (epochs > 0 && at_most-- > 0) {
    const auto more = loader->Next(&batch);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok()) break;
    if (!*more) {
      --epochs;
      continue;
    }
    std::vector<uint8_t> bytes;
    for (const TensorView& c : batch.columns) {
      bytes.insert(bytes.end(), c.as<uint8_t>(), c.as<uint8_t>() + c.type.bytes());
    }
    bytes.push_back(static_cast<uint8_t>(batch.valid));
    all.push_back(std::move(bytes));
  }
  return all;
}

// The labels of column `column` of an epoch, batch after batch.
std::vector<std::vector<int32_t>> Labels(Loader* loader, size_t column = 1) {
  std::vector<std::vector<int32_t>> all;
  Batch batch;
  for (;;) {
    const auto more = loader->Next(&batch);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return all;
    const auto* p = batch.columns[column].as<int32_t>();
    all.emplace_back(p, p + batch.valid);
  }
}

TEST(LoaderTest, BatchesInOrderWithTail) {
  auto loader = Open(Numbers(5).Batch({2}));
  EXPECT_EQ(loader->pipeline().size(), 3);
  EXPECT_FALSE(loader->pipeline().full_batches());
  EXPECT_TRUE(Open(Numbers(6).Batch({2}))->pipeline().full_batches());
  EXPECT_TRUE(Open(Numbers(5).Batch({2, true}))->pipeline().full_batches());
  EXPECT_FALSE(Open(Numbers(3).Batch({2}).Repeat({2}))->pipeline().full_batches());
  EXPECT_EQ(ToString(loader->pipeline().schema()[0].type), "f32[2,2]");
  EXPECT_EQ(ToString(loader->pipeline().schema()[1].type), "i32[2]");
  Batch batch;
  ASSERT_TRUE(*loader->Next(&batch));
  EXPECT_EQ(batch.valid, 2);
  EXPECT_EQ(batch.columns[0].as<float>()[3], -1);
  ASSERT_TRUE(*loader->Next(&batch));
  ASSERT_TRUE(*loader->Next(&batch));
  EXPECT_EQ(batch.valid, 1);
  EXPECT_EQ(batch.columns[1].as<int32_t>()[0], 4);
  EXPECT_EQ(batch.columns[1].as<int32_t>()[1], 0);  // padding
  EXPECT_FALSE(*loader->Next(&batch));
  ASSERT_TRUE(*loader->Next(&batch));
  EXPECT_EQ(batch.position, (Position{1, 0}));
}

TEST(LoaderTest, OperationsInTheOrderGiven) {
  const auto labels = [](const Dataset& d) { return Labels(Open(d).get()); };
  using L = std::vector<int32_t>;
  EXPECT_THAT(labels(Numbers(7).Skip({1}).Take({4}).Batch({2})), ElementsAre(L{1, 2}, L{3, 4}));
  EXPECT_THAT(labels(Numbers(5).Batch({2, true}).Repeat({2})), ElementsAre(L{0, 1}, L{2, 3}, L{0, 1}, L{2, 3}));
  EXPECT_THAT(labels(Numbers(3).Repeat({2}).Batch({4})), ElementsAre(L{0, 1, 2, 0}, L{1, 2}));
  EXPECT_THAT(labels(Numbers(7).Batch({2}).Skip({2}).Take({1})), ElementsAre(L{4, 5}));
  EXPECT_THAT(labels(Numbers(2)), ElementsAre(L{0}, L{1}));
}

TEST(LoaderTest, ShuffleIsAPermutationThatChangesByEpochAndSeed) {
  auto loader = Open(Numbers(100).Shuffle({100}).Batch({100}), {/*seed=*/7});
  const auto first = Labels(loader.get())[0], second = Labels(loader.get())[0];
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<int32_t>(first.begin(), first.end()).size(), 100u);
  EXPECT_EQ(Labels(Open(Numbers(100).Shuffle({1000}).Batch({100}), {7}).get())[0], first);
  EXPECT_NE(Labels(Open(Numbers(100).Shuffle({100}).Batch({100}), {8}).get())[0], first);
}

TEST(LoaderTest, ABufferBoundsHowEarlyAnElementComes) {
  const auto order = Labels(Open(Numbers(1000).Shuffle({10}).Batch({1000})).get())[0];
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  for (int32_t at = 0; at < 1000; ++at) EXPECT_LT(order[at], at + 10);
  EXPECT_EQ(std::set<int32_t>(order.begin(), order.end()).size(), 1000u);
}

TEST(LoaderTest, RepeatShufflesAnew) {
  const auto twice = Labels(Open(Numbers(50).Shuffle({50}).Batch({50}).Repeat({2})).get());
  ASSERT_EQ(twice.size(), 2u);
  EXPECT_NE(twice[0], twice[1]);
}

Dataset Augmented(int64_t n) {
  return Images(n)
      .Map({{RandomCrop{8, 8, 2, 2, 2, 2}, RandomHorizontalFlip{}, Rescale{1 / 255.0}, HWC2CHW{}}, {"image"}})
      .Shuffle({16})
      .Batch({4});
}

TEST(Loader, AFewRowsOfArraysNeedNoWorker) {
  const auto immediate = [](const Dataset& d) { return (*Pipeline::Open(d, {}))->immediate(); };
  EXPECT_TRUE(immediate(Numbers(8).Batch({2, true})));
  EXPECT_FALSE(immediate(Numbers(8).Map({{TypeCast{DType::kF32}}, {"y"}}).Batch({2, true})));
  EXPECT_FALSE(immediate(Images(64, 32, 32).Batch({64, true})));
}

TEST(LoaderTest, TheSameForAnyNumberOfWorkers) {
  const auto expected = Drain(Open(Augmented(50), {3}, {/*workers=*/0}).get(), 3);
  EXPECT_EQ(expected.size(), 39u);
  for (int workers = 1; workers <= 4; ++workers) {
    for (int prefetch : {0, 1, 9, 40}) {
      EXPECT_EQ(Drain(Open(Augmented(50), {3}, {workers, prefetch}).get(), 3), expected) << workers;
    }
  }
}

TEST(LoaderTest, AKeptColumnStaysAsItIs) {
  for (const int workers : {0, 2}) {
    const auto loader = Open(Numbers(64).Batch({2}), {}, {workers});
    std::vector<std::shared_ptr<void>> kept;
    Batch batch;
    for (int round = 0; round < 3; ++round) {
      while (*loader->Next(&batch)) {
        void* const place = batch.columns[1].data;
        kept.push_back(loader->Keep(1));
        EXPECT_EQ(kept.back().get(), place);
        // The other column lies where it did.
        EXPECT_EQ(batch.columns[0].as<float>()[0], static_cast<float>(*batch.columns[1].as<int32_t>()));
      }
      ASSERT_EQ(kept.size(), 32u);
      for (size_t i = 0; i < kept.size(); ++i)
        EXPECT_EQ(static_cast<const int32_t*>(kept[i].get())[1], static_cast<int32_t>(2 * i + 1));
      kept.clear();
    }
  }
}

// Memory that comes from the system again has faults again.
TEST(LoaderTest, MemoryThatWasGivenBackIsUsedAgain) {
  constexpr int64_t kBlocks = 40, kSide = 592, kPages = kSide * kSide * 3 / 4096;
  const auto loader = Open(Images(kBlocks, kSide, kSide).Batch({1}), {}, {/*workers=*/1});
  Batch batch;
  std::vector<std::shared_ptr<void>> kept;
  const auto faults = [] {
    rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
  };
  const auto epoch = [&] {
    const auto before = faults();
    while (*loader->Next(&batch)) kept.push_back(loader->Keep(0));
    EXPECT_EQ(kept.size(), static_cast<size_t>(kBlocks));
    kept.clear();
    return faults() - before;
  };
  EXPECT_GT(epoch(), kBlocks * kPages / 2);
  // The loader's own blocks, of batches that it reads ahead, are new once.
  EXPECT_LT(epoch(), kBlocks * kPages / 4);
  EXPECT_LT(epoch(), kBlocks * kPages / 4);
}

TEST(LoaderTest, SeekGoesOnAsIfUndisturbed) {
  auto whole = Open(Augmented(50), {3}, {2});
  const auto expected = Drain(whole.get(), 3);
  for (int64_t at : {0, 5, 12, 13, 14, 38}) {
    auto loader = Open(Augmented(50), {3}, {2});
    Drain(loader.get(), 3, 3);
    ASSERT_TRUE(loader->Seek({at / 13, at % 13}).ok());
    const auto rest = Drain(loader.get(), 3 - static_cast<int>(at / 13));
    EXPECT_EQ(rest, std::vector<std::vector<uint8_t>>(expected.begin() + at, expected.end())) << at;
  }
  ASSERT_TRUE(whole->Seek({0, 13}).ok());
  Batch batch;
  EXPECT_FALSE(*whole->Next(&batch));
  EXPECT_EQ(whole->position(), (Position{1, 0}));
  EXPECT_THAT(std::string(whole->Seek({0, 14}).message()), HasSubstr("13 batches"));
}

TEST(LoaderTest, FeedsMakeUpTheGlobalBatch) {
  // 4 feeds of 2 = 1 feed of 8: rows, augmentation and tail alike.
  const auto make = [](int64_t b) {
    return Images(21).Map({{RandomCrop{8, 8, 2, 2, 2, 2}, RandomHorizontalFlip{}}}).Shuffle({5}).Batch({b});
  };
  auto whole = Open(make(8), {9});
  std::vector<std::unique_ptr<Loader>> feeds;
  for (int64_t r = 0; r < 4; ++r) feeds.push_back(Open(make(2), {9, 4, r}));
  Batch global, part;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(*whole->Next(&global));
    int64_t valid = 0;
    for (int64_t r = 0; r < 4; ++r) {
      ASSERT_TRUE(*feeds[r]->Next(&part));
      const int64_t bytes = part.columns[0].type.bytes();
      EXPECT_EQ(std::memcmp(part.columns[0].data, global.columns[0].as<uint8_t>() + r * bytes, bytes), 0);
      valid += part.valid;
    }
    EXPECT_EQ(valid, global.valid);
  }
  for (auto& feed : feeds) EXPECT_FALSE(*feed->Next(&part));
}

TEST(LoaderTest, WithoutBatchEachFeedHasAsManySamples) {
  const auto pipeline = Pipeline::Open(Numbers(13), {1, 2, 1});
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  EXPECT_EQ((*pipeline)->size(), 6);
  EXPECT_EQ((*pipeline)->left_out(), 1);
}

TEST(LoaderTest, ShardsAreDisjointCompleteAndEquallyLong) {
  for (int64_t n : {12, 13}) {
    std::multiset<int32_t> seen;
    for (int64_t s = 0; s < 4; ++s) {
      const auto part = Labels(Open(Numbers(n, {4, s}).Batch({100})).get())[0];
      EXPECT_EQ(part.size(), static_cast<size_t>((n + 3) / 4));
      seen.insert(part.begin(), part.end());
    }
    EXPECT_EQ(std::set<int32_t>(seen.begin(), seen.end()).size(), static_cast<size_t>(n));
  }
  // Sharded by hand: feeds have no effect.
  EXPECT_EQ(Labels(Open(Numbers(12, {4, 1}).Batch({3}), {0, 2, 1}).get()),
            Labels(Open(Numbers(12, {4, 1}).Batch({3})).get()));
}

TEST(LoaderTest, BadArgumentsHaveOneClearError) {
  EXPECT_THAT(ErrorOf(Numbers(4, {4, 4})), HasSubstr("shard_id = 4"));
  EXPECT_THAT(ErrorOf(Numbers(4).Batch({5, true})), HasSubstr("no full batch of 5 in 4 samples"));
  EXPECT_THAT(ErrorOf(Numbers(4).Batch({3, true}), {0, 2, 0}), HasSubstr("3 x 2 feeds"));
  EXPECT_THAT(ErrorOf(Numbers(4).Batch({2}).Batch({2})), HasSubstr("batched already"));
  EXPECT_THAT(ErrorOf(Numbers(4).Shuffle({0})), HasSubstr("shuffle: expected a positive integer, got 0"));
  EXPECT_THAT(ErrorOf(Numbers(4).Skip({4})), HasSubstr("gives nothing"));
  EXPECT_THAT(ErrorOf(Numbers(4).Repeat({int64_t{1} << 40})), HasSubstr("repeat"));
  EXPECT_THAT(ErrorOf(Numbers(4).Map({{}, {"z"}})), HasSubstr("no column 'z'; there are x, y"));
  EXPECT_THAT(ErrorOf(Numbers(4).Map({{Resize{2, 2}}, {"x"}})), HasSubstr("expected an image"));
  EXPECT_THAT(ErrorOf(Numbers(4), {0, 2, 2}), HasSubstr("out of range"));
}

KeepOp Keep(std::vector<int64_t> samples) { return {std::make_shared<const std::vector<int64_t>>(std::move(samples))}; }

TEST(LoaderTest, KeptSamplesAreTheSameInEveryOrder) {
  const KeepOp op = Keep({1, 2, 5, 6});
  EXPECT_EQ(Labels(Open(Numbers(8).Keep(op).Batch({4})).get()), Labels(Open(Numbers(8).Keep(op).Batch({4})).get()));
  EXPECT_THAT(Labels(Open(Numbers(8).Keep(op).Batch({4})).get())[0], ElementsAre(1, 2, 5, 6));
  EXPECT_THAT(Labels(Open(Numbers(8).Skip({2}).Keep(op).Batch({4})).get())[0], ElementsAre(2, 5, 6));
  EXPECT_THAT(Labels(Open(Numbers(8).Keep(op).Repeat({2}).Take({5}).Batch({5})).get())[0], ElementsAre(1, 2, 5, 6, 1));
  std::vector<int32_t> shuffled = Labels(Open(Numbers(8).Shuffle({8}).Keep(op).Batch({4})).get())[0];
  std::sort(shuffled.begin(), shuffled.end());
  EXPECT_THAT(shuffled, ElementsAre(1, 2, 5, 6));
  EXPECT_THAT(Labels(Open(Numbers(8).Keep(op).Batch({2}), {0, 2, 1}).get())[0], ElementsAre(5, 6));
  EXPECT_THAT(ErrorOf(Numbers(8).Shuffle({8}).Take({4}).Keep(op)), HasSubstr("would differ from epoch to epoch"));
  EXPECT_THAT(ErrorOf(Numbers(8).Batch({2}).Keep(op)), HasSubstr("before batch"));
  EXPECT_THAT(ErrorOf(Numbers(8, {2, 0}).Keep(op)), HasSubstr("leave num_shards out"));
  EXPECT_THAT(ErrorOf(Numbers(8).Take({1}).Keep(op)), HasSubstr("no sample is left"));
}

TEST(LoaderTest, ColumnsAreChosenAndRenamed) {
  const auto names = [](const Dataset& d) {
    std::vector<std::string> list;
    const auto loader = Open(d);
    for (const Column& c : loader->pipeline().schema()) list.push_back(c.name);
    return list;
  };
  EXPECT_THAT(names(Numbers(4).Project({{"y", "x"}, {}})), ElementsAre("y", "x"));
  EXPECT_THAT(names(Numbers(4).Project({{"x", "x"}, {"x", "target"}})), ElementsAre("x", "target"));
  EXPECT_THAT(names(Numbers(4).Rename({{"x", "y"}, {"y", "x"}})), ElementsAre("y", "x"));
  EXPECT_THAT(ErrorOf(Numbers(4).Project({{"z"}, {}})), HasSubstr("project: no column 'z'; there are x, y"));
  EXPECT_THAT(ErrorOf(Numbers(4).Rename({{"x"}, {"y"}})), HasSubstr("two columns have the name 'y'"));
  // A transform before the copy is the same in both, one behind it is of one alone.
  const Dataset copies = Images(4).Map({{RandomCrop{4, 4, 2, 2, 2, 2}}, {"image"}});
  const auto loader =
      Open(copies.Project({{"image", "image"}, {"a", "b"}}).Map({{Rescale{2}}, {"b"}}).Batch({4}), {7, 1, 0});
  Batch batch;
  ASSERT_TRUE(*loader->Next(&batch));
  for (int64_t i = 0; i < batch.columns[0].type.elements(); ++i)
    ASSERT_EQ(2.0 * batch.columns[0].as<uint8_t>()[i], batch.columns[1].as<float>()[i]) << i;
  // What has not changed its name has the random numbers that it has alone.
  EXPECT_EQ(
      Drain(Open(Images(4).Map({{RandomCrop{4, 4, 2, 2, 2, 2}}, {"image"}}).Batch({2})).get()),
      Drain(
          Open(Images(4).Project({{"image"}, {}}).Map({{RandomCrop{4, 4, 2, 2, 2, 2}}, {"image"}}).Batch({2})).get()));
}

TEST(LoaderTest, AnErrorOfARecordNamesItsSample) {
  const auto loader = Open(Numbers(8).Shuffle({8}).Batch({4}), {3, 1, 0});
  Batch batch;
  ASSERT_TRUE(*loader->Next(&batch));
  const int32_t label = batch.columns[1].as<int32_t>()[2];
  Status bad = absl::DataLossError("record 3 is bad");
  EXPECT_EQ(NameSample(bad, *loader, batch), bad) << "no record is named";
  bad.SetPayload("mslua/record", absl::Cord(absl::StrCat("2 4 ", label)));
  EXPECT_EQ(NameSample(bad, *loader, batch).message(),
            absl::StrCat("record 3 is bad (epoch 1, batch 1 of the epoch: NumpySlicesDataset, row ", label + 1, ")"));
  bad.SetPayload("mslua/record", absl::Cord(absl::StrCat("1 2 ", label)));  // of a micro-batch
  EXPECT_EQ(NameSample(bad, *loader, batch).message(), "record 3 is bad (epoch 1, batch 1 of the epoch)");
}

// The order of an epoch has 4 bytes a sample; it is made on a worker's thread.
TEST(LoaderTest, MissingMemoryForTheOrderOfAnEpochIsAnError) {
  const auto pipeline = Pipeline::Open(Numbers(1 << 20).Shuffle({1 << 20}).Batch({1 << 10}), {});
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  for (const int workers : {0, 2}) {
    LoaderOptions options;
    options.workers = workers;
    Batch batch;
    most_bytes = 1 << 20;
    auto loader = std::make_unique<Loader>(*pipeline, options);
    const auto next = loader->Next(&batch);
    most_bytes = SIZE_MAX;
    EXPECT_EQ(next.status().code(), absl::StatusCode::kResourceExhausted) << next.status();
    EXPECT_THAT(std::string(next.status().message()), HasSubstr("out of memory for the samples of batch 1 of epoch 1"));
    ASSERT_TRUE(loader->Seek({0, 0}).ok());
    EXPECT_EQ(Drain(loader.get()).size(), 1u << 10);
  }
}

TEST(LoaderTest, AnErrorComesInOrderAndStays) {
  auto loader = Open(Numbers(10).Map({{OneHot{5}}, {"y"}}).Batch({2}), {}, {3});
  Batch batch;
  EXPECT_TRUE(*loader->Next(&batch));
  EXPECT_TRUE(*loader->Next(&batch));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(std::string(loader->Next(&batch).status().message()),
                HasSubstr("row 6: OneHot: column 'y' is 5, expected 0..4"));
  }
  ASSERT_TRUE(loader->Seek({0, 1}).ok());
  EXPECT_TRUE(*loader->Next(&batch));
  EXPECT_FALSE(loader->Next(&batch).ok());
}

TEST(LoaderTest, TransformsOfNumbers) {
  auto loader = Open(
      Numbers(3).Map({{TypeCast{DType::kI64}, OneHot{3}, TypeCast{DType::kF32}, Rescale{2, 1}}, {"y"}}).Batch({3}));
  EXPECT_EQ(ToString(loader->pipeline().schema()[1].type), "f32[3,3]");
  Batch batch;
  ASSERT_TRUE(*loader->Next(&batch));
  const auto* p = batch.columns[1].as<float>();
  EXPECT_THAT(std::vector<float>(p, p + 9), ElementsAre(3, 1, 1, 1, 3, 1, 1, 1, 3));
}

// The first value of a column of one sample after a cast, or the error.
std::string CastTo(DType to, TensorType type, double value, std::vector<Transform> before = {}) {
  auto data = std::make_shared<std::vector<int64_t>>(1);
  StoreDouble(type.dtype, data->data(), 0, value);
  before.emplace_back(TypeCast{to});
  const Dataset source(NumpySlices({{"x", type, {data, data->data()}}}));
  const auto loader = Open(source.Map({before, {"x"}}).Batch({1}));
  Batch batch;
  const auto read = loader->Next(&batch);
  if (!read.ok()) return std::string(read.status().message());
  return absl::StrCat(static_cast<int64_t>(LoadAsDouble(to, batch.columns[0].data, 0)));
}

TEST(LoaderTest, CastsToIntegersHaveOneRule) {
  const TensorType f32{DType::kF32, {1}}, i64{DType::kI64, {1}};
  EXPECT_EQ(CastTo(DType::kU8, f32, -1.5), "0");
  EXPECT_EQ(CastTo(DType::kU8, f32, 379.5), "255");
  EXPECT_EQ(CastTo(DType::kU8, f32, 1e9), "255");
  EXPECT_EQ(CastTo(DType::kU8, f32, 3, {Rescale{1.5, -6}}), "0");
  EXPECT_EQ(CastTo(DType::kI32, f32, -7.9), "-7");
  EXPECT_EQ(CastTo(DType::kI32, f32, 16777215), "16777215");
  EXPECT_EQ(CastTo(DType::kI64, i64, 0x1p53), "9007199254740992");  // its own type
  EXPECT_THAT(CastTo(DType::kI32, f32, 16777216),
              HasSubstr("TypeCast: column 'x' is 16777216 in float32, which does not have all whole numbers from "));
  EXPECT_THAT(CastTo(DType::kI64, f32, -3e9), HasSubstr("column 'x' is -3000000000 in float32"));
  EXPECT_THAT(CastTo(DType::kI32, f32, std::nan("")), HasSubstr("column 'x' is NaN, expected a number for int32"));
  EXPECT_THAT(CastTo(DType::kI32, i64, 4294967301),
              HasSubstr("column 'x' is 4294967301, expected -2147483648 to 2147483647 of int32"));
  EXPECT_THAT(CastTo(DType::kU8, i64, -1), HasSubstr("column 'x' is -1, expected 0 to 255 of uint8"));
}

// Two columns of pixels, one the other's copy.
Dataset ImagesWithMasks(int64_t n) { return Images(n).Project({{"image", "image"}, {"image", "mask"}}); }

TEST(LoaderTest, SeveralColumnsHaveTheSameRandomNumbers) {
  const std::vector<Transform> chain{RandomCrop{4, 4, 2, 2, 2, 2}, RandomHorizontalFlip{},
                                     Vision{"random_rotation", {{"degrees", std::vector<double>{90}}}}};
  const auto same = [](const Dataset& d) {
    const auto loader = Open(d.Batch({16}), {7, 1, 0});
    Batch batch;
    EXPECT_TRUE(*loader->Next(&batch));
    return std::memcmp(batch.columns[0].data, batch.columns[1].data,
                       static_cast<size_t>(batch.columns[0].type.bytes())) == 0;
  };
  EXPECT_TRUE(same(ImagesWithMasks(16).Map({chain, {"image", "mask"}})));
  EXPECT_TRUE(same(ImagesWithMasks(16).Map({chain, {"mask", "image"}})));
  EXPECT_FALSE(same(ImagesWithMasks(16).Map({chain, {"image"}}).Map({chain, {"mask"}})));
  // The first column has the numbers that it has alone.
  EXPECT_EQ(Drain(Open(ImagesWithMasks(4).Map({chain, {"image", "mask"}}).Project({{"image"}, {}}).Batch({2})).get()),
            Drain(Open(Images(4).Map({chain, {"image"}}).Batch({2})).get()));
  const auto loader = Open(ImagesWithMasks(4).Map({chain, {"image", "mask"}, {"x", "y"}}).Batch({2}));
  EXPECT_EQ(loader->pipeline().schema()[0].name, "x");
  EXPECT_EQ(loader->pipeline().schema()[1].name, "y");
  EXPECT_THAT(ErrorOf(ImagesWithMasks(4).Map({chain, {"image", "mask"}, {"x"}})),
              HasSubstr("output_columns: expected 2, one for each of input_columns, got 1"));
  EXPECT_THAT(ErrorOf(ImagesWithMasks(4).Map({chain, {"image"}, {"mask"}})),
              HasSubstr("two columns have the name 'mask'"));
  EXPECT_THAT(ErrorOf(ImagesWithMasks(4).Map({chain, {"image", "image"}})), HasSubstr("'image' is named twice"));
  EXPECT_THAT(ErrorOf(ImagesWithMasks(4).Map({chain, {"image", "msk"}})), HasSubstr("no column 'msk'"));
}

// ---- Generators --------------------------------------------------------------------------------

class Counting : public Generator {
 public:
  Counting(int64_t n, bool random, bool sized) : n_(n), random_(random), sized_(sized) {}
  int64_t size() const override { return sized_ ? n_ : -1; }
  bool random_access() const override { return random_; }
  Status Get(int64_t i, Row* row) override {
    value_ = static_cast<int32_t>(i);
    *row = {TensorView{{DType::kI32, {}}, &value_}};
    ++calls;
    return absl::OkStatus();
  }
  Status Rewind() override {
    at_ = 0;
    ++rewinds;
    return absl::OkStatus();
  }
  StatusOr<bool> Next(Row* row) override {
    if (at_ == n_) return false;
    RETURN_IF_ERROR(Get(at_++, row));
    return true;
  }
  int calls = 0, rewinds = 0;

 private:
  const int64_t n_;
  const bool random_, sized_;
  int64_t at_ = 0;
  int32_t value_ = 0;
};

TEST(LoaderTest, ASequenceGivesWhatRandomAccessGives) {
  const auto shape = [](const Dataset& d) { return d.Shuffle({4}).Repeat({2}).Skip({1}).Batch({3}).Shuffle({2}); };
  for (bool sized : {false, true}) {
    const Dataset random(GeneratorSource(std::make_shared<Counting>(10, true, true), {"n"}));
    const Dataset sequence(GeneratorSource(std::make_shared<Counting>(10, false, sized), {"n"}));
    auto a = Open(shape(random), {5}), b = Open(shape(sequence), {5});
    for (int epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(Labels(a.get(), 0), Labels(b.get(), 0));
    ASSERT_TRUE(a->Seek({1, 3}).ok());
    ASSERT_TRUE(b->Seek({1, 3}).ok());
    EXPECT_EQ(Labels(a.get(), 0), Labels(b.get(), 0));
  }
}

// Sample i: tokens i32[i % 4 + 1] and pixels u8[i % 2 + 1, 2, 3], all i.
class Ragged : public Generator {
 public:
  explicit Ragged(bool random) : random_(random) {}
  int64_t size() const override { return 10; }
  bool random_access() const override { return random_; }
  Status Get(int64_t i, Row* row) override {
    tokens_.assign(static_cast<size_t>(i % 4 + 1), static_cast<int32_t>(i));
    pixels_.assign(static_cast<size_t>(i % 2 + 1) * 6, static_cast<uint8_t>(i));
    *row = {TensorView{{DType::kI32, {i % 4 + 1}}, tokens_.data()},
            TensorView{{DType::kU8, {i % 2 + 1, 2, 3}}, pixels_.data()}};
    return absl::OkStatus();
  }
  Status Rewind() override {
    at_ = 0;
    return absl::OkStatus();
  }
  StatusOr<bool> Next(Row* row) override {
    if (at_ == 10) return false;
    RETURN_IF_ERROR(Get(at_++, row));
    return true;
  }

 private:
  const bool random_;
  int64_t at_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<uint8_t> pixels_;
};

TEST(LoaderTest, PaddedBatches) {
  const std::map<std::string, Padding> padding{{"tokens", {{5}, -1}}, {"pixels", {{2, 3, 3}, 9}}};
  const auto dataset = [&](bool random) {
    return Dataset(GeneratorSource(std::make_shared<Ragged>(random), {"tokens", "pixels"}));
  };
  auto loader = Open(dataset(true).Batch({4, false, padding}));
  EXPECT_EQ(ToString(loader->pipeline().schema()[0].type), "i32[4,5]");
  EXPECT_EQ(ToString(loader->pipeline().schema()[1].type), "u8[4,2,3,3]");
  Batch batch;
  ASSERT_TRUE(*loader->Next(&batch));
  const auto* tokens = batch.columns[0].as<int32_t>();
  EXPECT_THAT(std::vector<int32_t>(tokens + 5, tokens + 15), ElementsAre(1, 1, -1, -1, -1, 2, 2, 2, -1, -1));
  const auto* pixels = batch.columns[1].as<uint8_t>();  // of sample 0: [1,2,3] in [2,3,3]
  EXPECT_THAT(std::vector<uint8_t>(pixels, pixels + 18),
              ElementsAre(0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9));
  // A sequence that a shuffle holds samples of, and random access, give the same.
  const auto mapped = [&](bool random) {
    return dataset(random)
        .Map({{Rescale{2}, HWC2CHW{}}, {"pixels"}})
        .Shuffle({7})
        .Batch({3, false, {{"tokens", {{4}, 0}}, {"pixels", {{3, 2, 2}, 0.5}}}});
  };
  EXPECT_EQ(Drain(Open(mapped(true), {5}).get(), 2), Drain(Open(mapped(false), {5}).get(), 2));
}

TEST(LoaderTest, PaddedBatchesHaveClearErrors) {
  const Dataset ragged(GeneratorSource(std::make_shared<Ragged>(true), {"tokens", "pixels"}));
  const auto error = [&](std::map<std::string, Padding> padding) {
    padding.insert({"pixels", {{2, 2, 3}, 0}});
    auto pipeline = Pipeline::Open(ragged.Batch({10, false, std::move(padding)}), {});
    if (!pipeline.ok()) return std::string(pipeline.status().message());
    Loader loader(*pipeline, {});
    Batch batch;
    return std::string(loader.Next(&batch).status().message());
  };
  EXPECT_EQ(error({{"tokens", {{4}, 0}}}), "");
  EXPECT_THAT(error({{"tokens", {{3}, 0}}}),
              HasSubstr("padded_batch: column 'tokens' is i32[4], larger than its pad_info, which has 3"));
  EXPECT_THAT(error({{"tokens", {{4, 1}, 0}}}), HasSubstr("its pad_info has 2 dimensions"));
  EXPECT_THAT(error({{"tokens", {{0}, 0}}}), HasSubstr("expected sizes of at least 1, got 0"));
  EXPECT_THAT(error({{"tokens", {{4}, 0.5}}}), HasSubstr("expected a pad value of that type, got 0.5"));
  const auto infinite = Pipeline::Open(
      ragged.Map({{Rescale{2}}, {"pixels"}}).Batch({10, false, {{"tokens", {{4}, 0}}, {"pixels", {{2, 2, 3}, 1e39}}}}),
      {});
  EXPECT_THAT(std::string(infinite.status().message()), HasSubstr("expected a pad value of that type, got 1e+39"));
  EXPECT_THAT(error({{"tokns", {{4}, 0}}}), HasSubstr("padded_batch: no column 'tokns'; there are tokens, pixels"));
  EXPECT_THAT(error({}), HasSubstr("all must be alike, but for columns that pad_info of padded_batch"));
  EXPECT_THAT(ErrorOf(Numbers(4).Batch({2, false, {{"x", {{3}, 0}}}}).Map({{Rescale{2}}, {"x"}})),
              HasSubstr("map: column 'x' is padded: call map before the batches are made"));
}

TEST(LoaderTest, ASequenceIsRunWholeByEveryFeed) {
  const Dataset d = Dataset(GeneratorSource(std::make_shared<Counting>(4, false, false), {"n"})).Batch({2});
  EXPECT_EQ(Labels(Open(d, {0, 2, 1}).get(), 0), Labels(Open(d).get(), 0));
}

// A sequence that gives `first` samples when it is run for the first time, `later` ones from then on.
class Changing : public Counting {
 public:
  Changing(int64_t first, int64_t later) : Counting(1 << 30, false, false), first_(first), later_(later) {}
  Status Rewind() override {
    given_ = 0;
    return Counting::Rewind();
  }
  StatusOr<bool> Next(Row* row) override {
    if (given_++ == (rewinds == 1 ? first_ : later_)) return false;
    return Counting::Next(row);
  }
  void Counted(int64_t samples) override { counted = samples; }
  int64_t counted = 1;

 private:
  const int64_t first_, later_;
  int64_t given_ = 0;
};

TEST(LoaderTest, ASequenceIsCountedUpToWhatIsUsed) {
  using L = std::vector<int32_t>;
  const auto labels = [&](const std::function<Dataset(const Dataset&)>& shape, int64_t counted, int64_t n = 1 << 30) {
    auto source = std::make_shared<Changing>(n, n);
    auto loader = Open(shape(Dataset(GeneratorSource(source, {"n"}))));
    EXPECT_EQ(source->counted, counted);
    std::vector<L> all = Labels(loader.get(), 0);
    EXPECT_EQ(Labels(loader.get(), 0).size(), all.size());
    return all;
  };
  EXPECT_THAT(labels([](const Dataset& d) { return d.Take({3}).Batch({2}); }, 3), ElementsAre(L{0, 1}, L{2}));
  EXPECT_THAT(labels([](const Dataset& d) { return d.Skip({2}).Take({3}).Shuffle({1}).Batch({3}); }, 5),
              ElementsAre(L{2, 3, 4}));
  EXPECT_THAT(labels(
                  [](const Dataset& d) {
                    return d.Rename({{"n"}, {"m"}}).Batch({2}).Skip({1}).Take({2});
                  },
                  6),
              ElementsAre(L{2, 3}, L{4, 5}));
  EXPECT_THAT(labels(
                  [](const Dataset& d) {
                    return d.Batch({2, true}).Take({9});
                  },
                  5, 5),
              ElementsAre(L{0, 1}, L{2, 3}));
  EXPECT_THAT(labels([](const Dataset& d) { return d.Take({1 << 30}).Batch({2}); }, 3, 3), ElementsAre(L{0, 1}, L{2}));
  // Behind a shuffle, any sample may be used.
  EXPECT_EQ(labels([](const Dataset& d) { return d.Shuffle({9}).Take({2}).Batch({2}); }, 9, 9).size(), 1u);
  auto source = std::make_shared<Changing>(1 << 30, 1 << 30);
  EXPECT_THAT(Labels(Open(Dataset(GeneratorSource(source, {"n"}), {3, 1}).Take({2}).Batch({2})).get(), 0),
              ElementsAre(L{1, 4}));
}

TEST(LoaderTest, ASequenceThatChangesItsLengthIsAnError) {
  const auto error = [](int64_t first, int64_t later, const std::function<Dataset(const Dataset&)>& shape) {
    auto loader = Open(shape(Dataset(GeneratorSource(std::make_shared<Changing>(first, later), {"n"}))));
    Batch batch;
    for (int i = 0; i < 8; ++i) {
      const auto more = loader->Next(&batch);
      if (!more.ok()) return std::string(more.status().message());
    }
    return std::string();
  };
  const auto batches = [](const Dataset& d) { return d.Batch({2}); };
  const auto repeated = [](const Dataset& d) { return d.Repeat({2}).Batch({3}); };
  EXPECT_EQ(error(4, 4, batches), "");
  EXPECT_THAT(error(4, 3, batches), HasSubstr("the source ended after 3 samples, expected 4"));
  EXPECT_THAT(error(4, 5, batches), HasSubstr("gives more than the 4 samples that it gave when it was counted"));
  EXPECT_THAT(error(4, 5, repeated), HasSubstr("gives more than the 4 samples that it gave when it was counted"));
  EXPECT_EQ(error(4, 5, [](const Dataset& d) { return d.Take({4}).Batch({2}); }), "");
}

TEST(LoaderTest, AGeneratorIsCalledForWhatIsUsedOnly) {
  auto counting = std::make_shared<Counting>(100, true, true);
  auto loader = Open(Dataset(GeneratorSource(counting, {"n"})).Batch({2}), {}, {4, 4});
  const int before = counting->calls;
  Batch batch;
  ASSERT_TRUE(*loader->Next(&batch));
  EXPECT_EQ(counting->calls, before + 2);
}

}  // namespace
}  // namespace mslua::data
