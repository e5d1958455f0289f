// What moves elements and computes nothing: transposition, concatenation and splitting give the reference's bytes for
// every element type and shape.
#include <algorithm>
#include <numeric>
#include <random>

#include "absl/strings/str_join.h"
#include "core/base/parallel_for.h"
#include "core/op/registry.h"
#include "core/ops/testing/sample_run.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using testing::Memory;
using Ints = std::vector<int64_t>;

// Compares the fast kernel with the reference, on random bytes.
void ExpectSame(const char* op, const std::vector<TensorType>& types, const Attrs& attrs, std::mt19937* random) {
  std::vector<std::string> texts;
  for (const TensorType& t : types) texts.push_back(ToString(t));
  SCOPED_TRACE(absl::StrCat(op, " ", absl::StrJoin(texts, " ")));
  const auto call = testing::MakeCall(*Operators().Find(op), types, attrs);
  ASSERT_TRUE(call.ok()) << call.status();
  std::vector<Memory> inputs, outputs;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const TensorType& t : types) {
    inputs.emplace_back(t);
    auto* const bytes = static_cast<uint8_t*>(inputs.back().data());
    std::generate_n(bytes, t.bytes(), [&] { return static_cast<uint8_t>((*random)()); });
    in.push_back(inputs.back().data());
  }
  const auto wanted = testing::RunReference(*call, inputs);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  for (const TensorType& t : call->outputs) {
    outputs.emplace_back(t);
    out.push_back(outputs.back().data());
  }
  ASSERT_EQ(testing::RunFastKernel(*call, "", in.data(), out.data()), absl::OkStatus());
  for (size_t k = 0; k < outputs.size(); ++k) {
    EXPECT_TRUE(outputs[k].bytes() == (*wanted)[k].bytes()) << "output " << k;
    EXPECT_TRUE(outputs[k].intact()) << "output " << k;
  }
}

Shape RandomShape(size_t rank, int64_t most, std::mt19937* random) {
  Shape shape;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t kinds[] = {1, 2, 3, 8, static_cast<int64_t>((*random)() % 20)};
    shape.push_back(std::min(most, kinds[(*random)() % 5]));
  }
  return shape;
}

DType RandomType(std::mt19937* random) { return static_cast<DType>((*random)() % kNumDTypes); }

TEST(TransposeTest, AnyPermutationGivesTheReferencesBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 600; ++i) {
    const size_t rank = random() % 6;
    const Shape shape = RandomShape(rank, 24, &random);
    Ints perm(rank);
    std::iota(perm.begin(), perm.end(), 0);
    std::shuffle(perm.begin(), perm.end(), random);
    SetComputeThreads(i % 2 + 1);
    ExpectSame("transpose", {{RandomType(&random), shape}}, {{"perm", perm}}, &random);
  }
}

TEST(TransposeTest, LargeMatricesAreSplitAmongThreads) {
  std::mt19937 random(2);
  SetComputeThreads(4);
  for (const DType t : {DType::kU8, DType::kBF16, DType::kF32, DType::kF64}) {
    ExpectSame("transpose", {{t, {2100, 67}}}, {{"perm", Ints{1, 0}}}, &random);
    ExpectSame("transpose", {{t, {3, 5000}}}, {{"perm", Ints{1, 0}}}, &random);
    ExpectSame("transpose", {{t, {8, 33, 4, 32}}}, {{"perm", Ints{0, 2, 1, 3}}}, &random);
    ExpectSame("transpose", {{t, {4, 30, 31, 19}}}, {{"perm", Ints{0, 3, 1, 2}}}, &random);
    for (const int64_t channels : {2, 3, 4, 5}) {
      ExpectSame("transpose", {{t, {4, channels, 41, 43}}}, {{"perm", Ints{0, 2, 3, 1}}}, &random);
      ExpectSame("transpose", {{t, {4, 41, 43, channels}}}, {{"perm", Ints{0, 3, 1, 2}}}, &random);
    }
    // Lines that fall into the same places of the caches.
    for (const int64_t height : {512, 1024, 1050, 4096})
      ExpectSame("transpose", {{t, {height, 90}}}, {{"perm", Ints{1, 0}}}, &random);
  }
  SetComputeThreads(1);
}

TEST(TransposeTest, ResultsLargerThanTheCachesAreTheReferences) {
  std::mt19937 random(4);
  SetComputeThreads(2);
  const int64_t bytes = int64_t{9} << 20;
  for (const DType t : {DType::kU8, DType::kBF16, DType::kF32, DType::kF64}) {
    const int64_t size = SizeOf(t), line = 64 / size;
    // Rows of whole lines, with a rest below and beside; rows that begin in the middle of a line.
    for (const int64_t height : {32 * line, 33 * line, 32 * line + 3})
      ExpectSame("transpose", {{t, {height, bytes / size / height + 5}}}, {{"perm", Ints{1, 0}}}, &random);
    ExpectSame("transpose", {{t, {3, 40 * line, bytes / size / (90 * line)}}}, {{"perm", Ints{0, 2, 1}}}, &random);
  }
  SetComputeThreads(1);
}

TEST(TransposeTest, JoinedAndSplitRowsAreTheReferences) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    const size_t rank = random() % 4 + 1, axis = random() % rank, parts = random() % 4 + 1;
    const DType t = RandomType(&random);
    Shape shape = RandomShape(rank, 40, &random);
    std::vector<TensorType> types;
    for (size_t k = 0; k < parts; ++k) {
      shape[axis] = random() % 9;
      types.push_back({t, shape});
    }
    SetComputeThreads(i % 2 + 1);
    const Attrs along = {{"axis", static_cast<int64_t>(axis)}};
    ExpectSame("concat", types, along, &random);
    shape[axis] = static_cast<int64_t>(parts * (random() % 9));
    ExpectSame("split", {{t, shape}},
               {{"axis", static_cast<int64_t>(axis)}, {"output_num", static_cast<int64_t>(parts)}}, &random);
  }
  ExpectSame("concat", {{DType::kF32, {70000}}, {DType::kF32, {3}}}, {}, &random);
  ExpectSame("split", {{DType::kBF16, {640, 384}}}, {{"axis", int64_t{1}}, {"output_num", int64_t{3}}}, &random);
  SetComputeThreads(1);
}

TEST(TransposeTest, RolledElementsAreWhereTheirCoordinatesSay) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const size_t rank = random() % 4 + 1;
    const TensorType type = {RandomType(&random), RandomShape(rank, 9, &random)};
    Ints shifts, axes(rank);
    std::iota(axes.begin(), axes.end(), 0);
    std::shuffle(axes.begin(), axes.end(), random);
    axes.resize(random() % (rank + 1));
    for (size_t k = 0; k < axes.size(); ++k) shifts.push_back(static_cast<int64_t>(random() % 41) - 20);
    const auto call = testing::MakeCall(*Operators().Find("roll"), {type}, {{"shift", shifts}, {"axis", axes}});
    ASSERT_TRUE(call.ok()) << call.status();
    std::vector<Memory> x;
    x.emplace_back(type);
    std::generate_n(static_cast<uint8_t*>(x[0].data()), type.bytes(), [&] { return static_cast<uint8_t>(random()); });
    const auto y = testing::RunReference(*call, x);
    ASSERT_TRUE(y.ok()) << y.status();
    const Shape strides = RowMajorStrides(type.shape);
    const int64_t size = SizeOf(type.dtype);
    for (int64_t e = 0; e < type.elements(); ++e) {
      int64_t to = 0;
      for (size_t d = 0; d < rank; ++d) {
        int64_t at = e / strides[d] % type.shape[d];
        for (size_t k = 0; k < axes.size(); ++k) at += axes[k] == static_cast<int64_t>(d) ? shifts[k] : 0;
        to += (at % type.shape[d] + type.shape[d]) % type.shape[d] * strides[d];
      }
      ASSERT_EQ(x[0].bytes().compare(e * size, size, (*y)[0].bytes(), to * size, size), 0) << ToString(type);
    }
  }
}

}  // namespace
}  // namespace mslua
