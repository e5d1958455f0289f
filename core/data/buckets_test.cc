// Batches by length: the same for any number of workers and after a seek, and parts of one bucket for several feeds.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/data/loader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::data {
namespace {

using testing::HasSubstr;

// Sample i of n: i, i, ..., LengthOf(i) times.
int64_t LengthOf(int64_t i) { return i * 5 % 8 + 1; }

class Code : public SampleCode {
 public:
  explicit Code(int64_t n) : n_(n) {}

  class Function : public SampleFunction {
   public:
    explicit Function(int64_t n) : n_(n) {}
    int64_t length() const override { return n_; }
    Status Call(const CodeArguments& arguments, std::vector<TensorView>* results) override {
      values_.assign(static_cast<size_t>(LengthOf(arguments.index)), static_cast<int32_t>(arguments.index));
      *results = {{{DType::kI32, {LengthOf(arguments.index)}}, values_.data()}};
      return absl::OkStatus();
    }

   private:
    const int64_t n_;
    std::vector<int32_t> values_;
  };

  StatusOr<std::unique_ptr<SampleFunction>> Start() const override {
    return std::unique_ptr<SampleFunction>(new Function(n_));
  }
  std::string name() const override { return "rows.lua"; }
  std::string identity() const override { return "rows"; }
  std::string Locate(const CodeArguments&) const override { return ""; }
  double limit_seconds() const override { return 60; }

 private:
  const int64_t n_;
};

Dataset Ragged(int64_t n) {
  return Dataset(Source("generator", {{"source", std::shared_ptr<const SampleCode>(std::make_shared<Code>(n))},
                                      {"column_names", std::vector<std::string>{"x"}}}));
}

BatchOp ByLength(int64_t n, std::vector<int64_t> boundaries, std::vector<int64_t> sizes, bool drop = false) {
  auto lengths = std::make_shared<std::vector<int32_t>>();
  for (int64_t i = 0; i < n; ++i) lengths->push_back(static_cast<int32_t>(LengthOf(i)));
  BatchOp op;
  op.drop_remainder = drop;
  op.padding["x"] = {{-1}, -1};
  op.buckets = std::make_shared<const Buckets>(Buckets{std::move(lengths), std::move(boundaries), std::move(sizes)});
  return op;
}

// Each batch as text: its shape, its valid rows, and its numbers.
std::vector<std::string> Texts(Loader* loader, int epochs) {
  std::vector<std::string> all;
  Batch batch;
  while (epochs > 0) {
    const auto more = loader->Next(&batch);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok()) break;
    if (!*more) {
      --epochs;
      continue;
    }
    const TensorView& x = batch.columns[0];
    EXPECT_EQ(x.type, loader->pipeline().schema(batch.shape)[0].type);
    std::string text = absl::StrCat(ToString(x.type), " ", batch.valid);
    for (int64_t i = 0; i < x.type.elements(); ++i) absl::StrAppend(&text, " ", x.as<int32_t>()[i]);
    all.push_back(std::move(text));
  }
  return all;
}

std::shared_ptr<const Pipeline> Open(const Dataset& dataset, FeedOptions feed = {}) {
  auto pipeline = Pipeline::Open(dataset, feed);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  return *pipeline;
}

TEST(Buckets, ShapesFromTheLongest) {
  const auto pipeline = Open(Ragged(40).Batch(ByLength(40, {3, 5, 9, 12}, {8, 4, 2, 1})));
  ASSERT_EQ(pipeline->shapes(), 3);  // no sample is as long as 9
  EXPECT_EQ(ToString(pipeline->schema(0)[0].type), "i32[2,8]");
  EXPECT_EQ(ToString(pipeline->schema(1)[0].type), "i32[4,4]");
  EXPECT_EQ(ToString(pipeline->schema(2)[0].type), "i32[8,2]");
  EXPECT_EQ(pipeline->rows(2), 8);
  EXPECT_EQ(pipeline->size(), 10 + 3 + 2);
  EXPECT_DOUBLE_EQ(pipeline->share(1), 3.0 / 15);
  EXPECT_FALSE(pipeline->full_batches());
  EXPECT_TRUE(Open(Ragged(40).Batch(ByLength(40, {3, 9}, {10, 15})))->full_batches());
  EXPECT_EQ(pipeline->column_bytes(0), 16 * 4);
}

TEST(Buckets, DoNotDependOnWorkersAndContinueAfterASeek) {
  const auto pipeline = Open(Ragged(40).Shuffle({40}).Batch(ByLength(40, {3, 5, 9}, {8, 4, 2})), {7});
  Loader alone(pipeline, {0});
  const auto want = Texts(&alone, 3);
  ASSERT_EQ(want.size(), 45u);
  EXPECT_NE(std::vector<std::string>(want.begin(), want.begin() + 15),
            std::vector<std::string>(want.begin() + 15, want.begin() + 30));
  for (const int workers : {1, 3}) {
    Loader loader(pipeline, {workers, 5});
    EXPECT_EQ(Texts(&loader, 3), want) << workers << " workers";
    ASSERT_TRUE(loader.Seek({1, 6}).ok());
    EXPECT_EQ(Texts(&loader, 2), std::vector<std::string>(want.begin() + 21, want.end()));
  }
}

TEST(Buckets, FeedsHavePartsOfOneBucket) {
  const auto dataset = [](std::vector<int64_t> sizes) {
    return Ragged(40).Shuffle({40}).Batch(ByLength(40, {3, 5, 9}, std::move(sizes)));
  };
  Loader whole(Open(dataset({8, 4, 2}), {7}), {0});
  const auto want = Texts(&whole, 2);
  FeedOptions first, second;
  first.seed = second.seed = 7;
  first.feeds = second.feeds = 2;
  second.feed = 1;
  Loader a(Open(dataset({4, 2, 1}), first), {0}), b(Open(dataset({4, 2, 1}), second), {0});
  Batch one, two;
  Batch all;
  Loader again(Open(dataset({8, 4, 2}), {7}), {0});
  for (size_t i = 0; i < want.size() / 2; ++i) {
    ASSERT_TRUE(*a.Next(&one));
    ASSERT_TRUE(*b.Next(&two));
    ASSERT_TRUE(*again.Next(&all));
    EXPECT_EQ(one.shape, two.shape);
    EXPECT_EQ(one.shape, all.shape);
    EXPECT_EQ(one.valid + two.valid, all.valid);
    const int64_t half = one.columns[0].type.elements();
    for (int64_t k = 0; k < all.columns[0].type.elements(); ++k) {
      const Batch& part = k < half ? one : two;
      EXPECT_EQ(part.columns[0].as<int32_t>()[k % half], all.columns[0].as<int32_t>()[k]);
    }
  }
}

TEST(Buckets, HaveClearErrors) {
  const auto error = [](const BatchOp& op, Sharding sharding = {}) {
    const Dataset ragged = Ragged(40);
    return std::string(Pipeline::Open(Dataset(ragged.source(), sharding).Batch(op), {}).status().message());
  };
  EXPECT_THAT(error(ByLength(40, {3, 6}, {1, 1})),
              HasSubstr("sample 2 has length 6, and the longest bucket is for lengths below 6: give a last boundary "
                        "above 6"));
  EXPECT_THAT(error(ByLength(39, {9}, {1})), HasSubstr("expected a length for each of 40 samples, got 39"));
  EXPECT_THAT(error(ByLength(40, {9}, {64}, true)), HasSubstr("no bucket has a full batch of its size"));
  EXPECT_THAT(error(ByLength(40, {9}, {2}), {2, 0}), HasSubstr("leave num_shards out"));
  EXPECT_THAT(error(ByLength(40, {1, 9}, {1, 2, 3, 4})), HasSubstr("expected 2 sizes"));
}

}  // namespace
}  // namespace mslua::data
