// sort, top_k, gather_d and scatter_d give the reference's bytes, whatever the numbers and wherever they lie.
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/op/registry.h"
#include "core/ops/testing/sample_run.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using testing::Memory;

struct Found {
  Status status;
  std::vector<Memory> outputs;
};

Found RunFast(const testing::Call& call, const std::vector<Memory>& inputs) {
  Found found;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Memory& m : inputs) in.push_back(m.data());
  for (const TensorType& t : call.outputs) {
    found.outputs.emplace_back(t);
    out.push_back(found.outputs.back().data());
  }
  found.status = testing::RunFastKernel(call, "", in.data(), out.data());
  return found;
}

void ExpectReference(const char* op, const std::vector<Memory>& inputs, const Attrs& attrs) {
  std::vector<TensorType> types;
  for (const Memory& m : inputs) types.push_back(m.type());
  SCOPED_TRACE(absl::StrCat(op, " ", ToString(types[0]), " along ", attrs.Int("axis")));
  const auto call = testing::MakeCall(*Operators().Find(op), types, attrs);
  ASSERT_TRUE(call.ok()) << call.status();
  const auto wanted = testing::RunReference(*call, inputs);
  const Found found = RunFast(*call, inputs);
  if (absl::IsNotFound(found.status)) return;  // these types have the reference alone
  ASSERT_EQ(found.status, wanted.status());
  if (!wanted.ok()) return;
  for (size_t k = 0; k < found.outputs.size(); ++k) {
    EXPECT_TRUE(found.outputs[k].bytes() == (*wanted)[k].bytes()) << "output " << k;
    EXPECT_TRUE(found.outputs[k].intact()) << "output " << k;
  }
}

// Numbers of which many are equal, and those that are no numbers in the usual order.
void FillWithTies(const Memory& m, std::mt19937* random) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const double special[] = {0.0, -0.0, infinity, -infinity, nan, -nan, 1.0, -1.0};
  const bool is_float = IsFloat(m.type().dtype);
  for (int64_t i = 0; i < m.type().elements(); ++i) {
    const uint32_t draw = (*random)();
    double value = static_cast<double>(draw >> 8) - (1 << 23);
    if (draw % 4 == 0) value = static_cast<double>(draw >> 8 & 3);
    if (is_float && draw % 4 == 1) value = special[draw >> 8 & 7];
    StoreDouble(m.type().dtype, m.data(), i, value);
  }
}

Shape RandomShape(size_t rank, size_t axis, int64_t most, std::mt19937* random) {
  Shape shape;
  for (size_t d = 0; d < rank; ++d) shape.push_back(1 + static_cast<int64_t>((*random)() % (d == axis ? most : 4)));
  return shape;
}

TEST(SortTest, TiesAndNaNsAreInTheReferencesOrder) {
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const DType types[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kF64, DType::kI64};
    const size_t rank = random() % 3 + 1, axis = random() % rank;
    const Shape shape = RandomShape(rank, axis, i % 3 == 0 ? 900 : 40, &random);
    std::vector<Memory> x;
    x.emplace_back(TensorType{types[i % 6], shape});
    FillWithTies(x[0], &random);
    SetComputeThreads(i % 2 + 1);
    ExpectReference("sort", x, {{"axis", static_cast<int64_t>(axis)}, {"descending", random() % 2 == 0}});
    const int64_t n = shape[axis], k = 1 + static_cast<int64_t>(random() % (i % 2 == 0 ? n : std::min<int64_t>(n, 16)));
    ExpectReference("top_k", x, {{"axis", static_cast<int64_t>(axis)}, {"k", k}, {"largest", random() % 2 == 0}});
    if (HasFailure()) break;
  }
  SetComputeThreads(1);
}

TEST(GatherDTest, ElementsSumsAndWrongIndicesAreTheReferences) {
  std::mt19937 random(2);
  for (int i = 0; i < 400; ++i) {
    const size_t rank = random() % 3 + 1, axis = random() % rank;
    const DType t = static_cast<DType>(random() % kNumDTypes), of_index = i % 2 == 0 ? DType::kI32 : DType::kI64;
    Shape table = RandomShape(rank, axis, 30, &random), index = table;
    if (i % 5 == 0) table[rank - 1] = index[rank - 1] = 700;  // more columns than a thread takes at once
    index[axis] = static_cast<int64_t>(random() % 20);
    const int64_t rows = table[axis];
    std::vector<Memory> gather, scatter;
    gather.emplace_back(TensorType{t, table});
    FillWithTies(gather[0], &random);
    gather.emplace_back(TensorType{of_index, index});
    scatter.emplace_back(TensorType{of_index, index});
    for (int64_t e = 0; e < gather[1].type().elements(); ++e) {
      const bool wrong = i % 8 == 7 && random() % 50 == 0;
      const double at =
          wrong ? (random() % 2 == 0 ? -1 : static_cast<double>(rows)) : static_cast<double>(random() % rows);
      for (const Memory* m : {&gather[1], &scatter[0]}) StoreDouble(of_index, m->data(), e, at);
    }
    SetComputeThreads(i % 3 + 1);
    const Attrs along = {{"axis", static_cast<int64_t>(axis)}};
    Attrs elements = along;
    ExpectReference("gather_d", gather, elements.Set("labels", i % 16 > 7));
    if (t == DType::kBool) continue;
    scatter.emplace_back(TensorType{t, index});
    const double most = t == DType::kI32 ? 2147483647.0 : 15.0;  // sums wrap round, or are exact
    for (int64_t e = 0; e < scatter[1].type().elements(); ++e)
      StoreDouble(t, scatter[1].data(), e, most - static_cast<double>(random() % 16));
    Attrs sums = along;
    ExpectReference("scatter_d", scatter, sums.Set("size", rows));
    if (HasFailure()) break;
  }
  SetComputeThreads(1);
}

TEST(GatherDTest, AWrongLabelIsNamedWithItsRecord) {
  std::vector<Memory> inputs;
  inputs.emplace_back(TensorType{DType::kF32, {3, 5}});
  inputs.emplace_back(TensorType{DType::kI32, {3, 1}});
  for (int64_t i = 0; i < 15; ++i) StoreDouble(DType::kF32, inputs[0].data(), i, 0);
  for (int64_t i = 0; i < 3; ++i) StoreDouble(DType::kI32, inputs[1].data(), i, i == 2 ? 7 : 0);
  const auto call = testing::MakeCall(*Operators().Find("gather_d"), {inputs[0].type(), inputs[1].type()},
                                      {{"axis", int64_t{1}}, {"labels", true}});
  ASSERT_TRUE(call.ok()) << call.status();
  const Status wanted = RunFast(*call, inputs).status;
  EXPECT_EQ(wanted.message(), "the label of record 3 is 7, expected 0 to 4 for 5 classes");
  EXPECT_TRUE(wanted.GetPayload("mslua/record").has_value());
  EXPECT_EQ(testing::RunReference(*call, inputs).status(), wanted);
  DeviceFault fault;
  fault.at = 2;
  fault.value = 7;
  EXPECT_EQ(Operators().Find("gather_d")->device_fault({call->attrs, call->inputs, call->outputs}, fault), wanted);
}

}  // namespace
}  // namespace mslua
