#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/base/rng.h"
#include "core/kernels/dispatch.h"
#include "core/op/device_text.h"
#include "core/op/marks.h"
#include "core/ops/declare/random.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

constexpr int64_t kGrain = 16384;  // weights that are worth a thread
constexpr int64_t kWrongWeight = -1;

int64_t Classes(const TensorType& probs) { return probs.shape.back(); }

int64_t LeavesFor(int64_t classes) {
  int64_t leaves = 1;
  while (leaves < classes) leaves *= 2;
  return leaves;
}

// The sums of a row's weights, of pairs, of pairs of pairs and so on: node 1 is the whole, and the children of node i
// are 2 i and 2 i + 1. A sum is always that of its children, so that what was taken out leaves no rounding error.
class Sums {
 public:
  explicit Sums(int64_t classes) : leaves_(LeavesFor(classes)), sums_(static_cast<size_t>(2 * leaves_)) {}

  double& weight(int64_t k) { return sums_[static_cast<size_t>(leaves_ + k)]; }
  double whole() const { return sums_[1]; }
  void Add() {
    for (int64_t i = leaves_ - 1; i > 0; --i) AddAt(i);
  }
  // The class of the number u in [0, 1): each has a part of this range that is as long as its weight; 0 is never found.
  int64_t Find(double u) const {
    double at = u * whole();
    int64_t i = 1;
    while (i < leaves_) {
      const double left = sums_[static_cast<size_t>(2 * i)], right = sums_[static_cast<size_t>(2 * i + 1)];
      const bool goes_left = right == 0 || (left > 0 && at < left);
      if (!goes_left) at -= left;
      i = 2 * i + (goes_left ? 0 : 1);
    }
    return i - leaves_;
  }
  void TakeOut(int64_t k) {
    weight(k) = 0;
    for (int64_t i = (leaves_ + k) / 2; i > 0; i /= 2) AddAt(i);
  }

 private:
  void AddAt(int64_t i) {
    sums_[static_cast<size_t>(i)] = sums_[static_cast<size_t>(2 * i)] + sums_[static_cast<size_t>(2 * i + 1)];
  }

  int64_t leaves_;
  std::vector<double> sums_;
};

// The place in the whole tensor of element `at` of the part that the attributes describe.
int64_t PlaceInWhole(const Attrs& attrs, const Shape& shape, int64_t at) {
  if (!mark::kBegin.Has(attrs)) return at;
  const auto &begin = mark::kBegin.Get(attrs), &global = mark::kGlobal.Get(attrs);
  int64_t place = 0, stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    place += (begin[d] + at % shape[d]) * stride;
    at /= shape[d];
    stride *= global[d];
  }
  return place;
}

Status WrongWeight(int64_t at, int64_t classes, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("probs: weight ", at % classes + 1, " of row ", at / classes + 1, " is ",
                                          what, ", expected a finite number, at least 0"));
}

Status TooFew(int64_t row, int64_t found, int64_t wanted) {
  return absl::DataLossError(
      absl::StrCat("probs: row ", row + 1, " has ", found, " weights above 0, expected at least ", wanted));
}

// Weights above 0 that a row needs.
int64_t Needed(const Attrs& attrs) { return attrs.Bool("replacement") ? 1 : attrs.Int("num_samples"); }

template <class T>
Status DrawRow(const OpCall& c, const RandomStream& random, int64_t row, Sums& sums) {
  const int64_t classes = Classes(c.inputs[0].type), n = c.attrs.Int("num_samples");
  const T* weights = c.inputs[0].as<T>() + row * classes;
  int64_t found = 0;
  for (int64_t k = 0; k < classes; ++k) {
    const double w = static_cast<double>(static_cast<ComputeType<T>>(weights[k]));
    if (!std::isfinite(w) || w < 0) return WrongWeight(row * classes + k, classes, absl::StrCat(w));
    sums.weight(k) = w;
    found += w > 0 ? 1 : 0;
  }
  if (found < Needed(c.attrs)) return TooFew(row, found, Needed(c.attrs));
  sums.Add();
  if (!std::isfinite(sums.whole())) return WrongWeight(row * classes, classes, "part of an infinite sum");
  for (int64_t j = 0; j < n; ++j) {
    const auto place = static_cast<uint64_t>(PlaceInWhole(c.attrs, c.outputs[0].type.shape, row * n + j));
    // 48 bits: the least of many classes gets its share.
    const double u = UniformAt(random.seed, random.stream, 2 * place) +
                     UniformAt(random.seed, random.stream, 2 * place + 1) * std::ldexp(1.0, -24);
    const int64_t k = sums.Find(u);
    if (!c.attrs.Bool("replacement")) sums.TakeOut(k);
    c.outputs[0].as<int32_t>()[row * n + j] = static_cast<int32_t>(k);
  }
  return absl::OkStatus();
}

Status Draw(const OpCall& c) {
  const int64_t classes = Classes(c.inputs[0].type), n = c.attrs.Int("num_samples");
  const int64_t rows = c.outputs[0].type.elements() / n;
  const RandomStream random(c.attrs, c.inputs[1].type.dtype, c.inputs[1].data);
  std::vector<Status> results(static_cast<size_t>(rows));
  DispatchFloat(c.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    ParallelFor(rows, std::max<int64_t>(1, kGrain / (classes + n)), [&](int64_t begin, int64_t end) {
      Sums sums(classes);
      for (int64_t row = begin; row < end; ++row) results[static_cast<size_t>(row)] = DrawRow<T>(c, random, row, sums);
    });
  });
  for (const Status& s : results) RETURN_IF_ERROR(s);
  return absl::OkStatus();
}

DeviceProgram DrawOnDevice(const OpSpec& spec) {
  const int64_t classes = Classes(spec.inputs[0]), leaves = LeavesFor(classes), n = spec.attrs.Int("num_samples");
  const int64_t rows = spec.outputs[0].elements() / n;
  DeviceProgram program;
  program.scratch_bytes = rows * 2 * leaves * static_cast<int64_t>(sizeof(double));
  program.steps.push_back(
      EachElement(rows, absl::StrCat(Constant("classes", classes), Constant("leaves", leaves), Constant("n", n),
                                     Constant("needed", Needed(spec.attrs)),
                                     "  constexpr bool replacement = ", spec.attrs.Bool("replacement"), ";\n", R"cuda(
  const i64 own_row = i;
  double* const sums = (double*)scratch + own_row * 2 * leaves;
  i64 found = 0, wrong = -1;
  for (i64 k = 0; k < leaves; ++k) {
    const double w = k < classes ? (double)Get(x0[own_row * classes + k]) : 0;
    if (wrong < 0 && !(w >= 0 && w < INFINITY)) wrong = k;
    sums[leaves + k] = w;
    found += w > 0;
  }
  for (i64 k = leaves - 1; k > 0; --k) sums[k] = sums[2 * k] + sums[2 * k + 1];
  if (wrong < 0 && !(sums[1] < INFINITY)) wrong = 0;
  if (wrong >= 0 || found < needed) {
    if (!fault->set) {
      fault->set = 1;
      fault->at = own_row * classes + (wrong < 0 ? 0 : wrong);
      fault->value = wrong < 0 ? found : )cuda",
                                     kWrongWeight, R"cuda(;
    }
    continue;
  }
  for (i64 j = 0; j < n; ++j) {
    const i64 i = own_row * n + j;
)cuda",
                                     DeviceRandom(spec.attrs, spec.outputs[0].shape, 1), R"cuda(
    double at = (UniformAt(seed, stream, 2 * index) + UniformAt(seed, stream, 2 * index + 1) * 0x1p-24) * sums[1];
    i64 node = 1;
    while (node < leaves) {
      const double left = sums[2 * node], right = sums[2 * node + 1];
      const bool goes_left = right == 0 || (left > 0 && at < left);
      if (!goes_left) at -= left;
      node = 2 * node + (goes_left ? 0 : 1);
    }
    Set(y0[i], node - leaves);
    if (replacement) continue;
    sums[node] = 0;
    for (i64 k = node / 2; k > 0; k /= 2) sums[k] = sums[2 * k] + sums[2 * k + 1];
  }
)cuda")));
  return program;
}

Status DrawFault(const OpSpec& spec, const DeviceFault& fault) {
  const int64_t classes = Classes(spec.inputs[0]);
  if (fault.value == kWrongWeight) return WrongWeight(fault.at, classes, "no such number");
  return TooFew(fault.at / classes, fault.value, Needed(spec.attrs));
}

}  // namespace

MSLUA_OPERATOR(multinomial) {
  OpDef op("multinomial");
  op.Class("Multinomial")
      .Doc(
          "num_samples classes for each row of probs [.., classes], which has weights: finite, at least 0 and not "
          "all 0. A class, counted from 0, is drawn with its weight's share of the row's sum; without replacement no "
          "class of a row twice. Others at every `step` (the training step's number). i32 [.., num_samples].");
  op.Input("probs").ZeroGrad();
  DeclareRandom(op);
  op.attrs.insert(op.attrs.begin(),
                  {{"num_samples", AttrKind::kInt, {}, true, "classes that are drawn for each row", {}},
                   {"replacement", AttrKind::kBool, true, false, "true: a class may be drawn again", {}}});
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    if (in[0].rank() == 0 || Classes(in[0]) == 0)
      return absl::InvalidArgumentError("probs should have a class or more");
    if (in[1].rank() != 0) return absl::InvalidArgumentError("step should be a scalar");
    const int64_t n = a.Int("num_samples"), most = a.Bool("replacement") ? int64_t{1} << 31 : Classes(in[0]);
    if (n >= 1 && n <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("num_samples is ", n, ", expected 1 to ", most));
  });
  op.Rule("*r !k, -> *r !n");
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    TensorType y{DType::kI32, in[0].shape};
    y.shape.back() = a.Int("num_samples");
    return std::vector<TensorType>{y};
  });
  op.Reference(Draw).OnDevice([](const OpSpec& spec) -> StatusOr<DeviceProgram> { return DrawOnDevice(spec); },
                              DrawFault);
  op.AddSample({{{DType::kF32, {4, 5}}, {DType::kI64, {}}}, {{"num_samples", int64_t{6}}}, 0.1, 1});
  op.AddSample({{{DType::kF32, {2, 3, 7}}, {DType::kI32, {}}},
                {{"num_samples", int64_t{3}}, {"replacement", false}, {"seed", int64_t{3}}},
                0.1,
                1});
  return {op};
}

}  // namespace mslua
