#include "core/ops/declare/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/base/rng.h"
#include "core/kernels/dispatch.h"
#include "core/op/device_text.h"
#include "core/op/marks.h"

namespace mslua {
namespace {

constexpr int64_t kGrain = 8192;  // numbers that are worth a thread
constexpr int64_t kTile = 1024;

// The largest number of T, BF16 or F16, below `end`.
template <class T>
float LargestBelow(double end) {
  T number(static_cast<float>(end));
  if (number < end) return number;
  if (number == 0) return -std::numeric_limits<float>::min();
  number.bits = static_cast<uint16_t>(number > 0 ? number.bits - 1 : number.bits + 1);
  return number;
}

// The largest float or double below `end`. Below 0 it is a normal number, where `low` is not above that: others may
// count as 0.
template <class T>
T LargestBelow(double low, double end) {
  const T number = static_cast<T>(end);
  if (number < end) return number;
  constexpr T kLeast = std::numeric_limits<T>::min();
  return number == 0 && low <= -kLeast ? -kLeast : std::nextafter(number, -std::numeric_limits<T>::infinity());
}

// Numbers beside the end of a range may round to it, although the range does not have it: the largest one of the type
// that is left. Infinity for an empty range.
double LargestLeft(DType type, double low, double high) {
  if (!(low < high)) return std::numeric_limits<double>::infinity();
  switch (type) {
    case DType::kBF16:
      return LargestBelow<BF16>(high);
    case DType::kF16:
      return LargestBelow<F16>(high);
    case DType::kF64:
      return LargestBelow<double>(low, high);
    default:
      return LargestBelow<float>(low, high);
  }
}

}  // namespace

RandomStream::RandomStream(const Attrs& attrs, DType step_type, const void* step) {
  const int64_t at = step_type == DType::kI64 ? *static_cast<const int64_t*>(step) : *static_cast<const int32_t*>(step);
  seed = static_cast<uint64_t>(attrs.Int("seed"));
  const auto words = Philox(seed, static_cast<uint64_t>(mark::kRng.Get(attrs)), static_cast<uint64_t>(at));
  stream = static_cast<uint64_t>(words[0]) << 32 | words[1];
}

void ForEachRun(const Attrs& attrs, const Shape& shape, absl::FunctionRef<void(int64_t, int64_t, int64_t)> f) {
  const int64_t total = NumElements(shape);
  if (!mark::kBegin.Has(attrs)) {
    ParallelFor(total, kGrain, [&](int64_t begin, int64_t end) { f(begin, begin, end - begin); });
    return;
  }
  const auto &begin = mark::kBegin.Get(attrs), &global = mark::kGlobal.Get(attrs);
  const Shape strides = RowMajorStrides(global);
  // Inner dimensions that are whole lie in one run with the one before them.
  int64_t run = 1, d = static_cast<int64_t>(shape.size());
  while (d > 0) {
    run *= shape[--d];
    if (shape[d] != global[d]) break;
  }
  if (total == 0) return;
  ParallelFor(total / run, std::max<int64_t>(1, kGrain / run), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      int64_t rest = r * run, index = 0;
      for (int64_t k = static_cast<int64_t>(shape.size()) - 1; k >= 0; --k) {
        index += (begin[k] + rest % shape[k]) * strides[k];
        rest /= shape[k];
      }
      f(r * run, index, run);
    }
  });
}

std::string DeviceRandom(const Attrs& attrs, const Shape& shape, int step) {
  std::string index = "(i64)i";
  if (mark::kBegin.Has(attrs)) {
    const auto &begin = mark::kBegin.Get(attrs), &global = mark::kGlobal.Get(attrs);
    const Shape strides = RowMajorStrides(global);
    int64_t first = 0;
    for (size_t d = 0; d < strides.size(); ++d) first += begin[d] * strides[d];
    index = StridedIndex("i", shape, strides, first);
  }
  return absl::StrCat(
      "  const u64 seed = ", static_cast<uint64_t>(attrs.Int("seed")), "ull;\n  const Words own = Philox(seed, ",
      static_cast<uint64_t>(mark::kRng.Get(attrs)), "ull, (u64)(i64)Get(x", step,
      "[0]));\n  const u64 stream = (u64)own.at[0] << 32 | own.at[1];\n  const u64 index = ", index, ";\n");
}

StatusOr<Attrs> LocalizeRandom(const LocalizeCall& c) {
  Attrs attrs = c.attrs;
  const Shape &begin = c.output_begin[0], &global = c.global_outputs[0].shape, &local = c.local_outputs[0].shape;
  if (attrs.Has("shape")) attrs.Set("shape", std::vector<int64_t>(local.begin(), local.end()));
  mark::kBegin.Set(attrs, {begin.begin(), begin.end()});
  return mark::kGlobal.Set(attrs, {global.begin(), global.end()});
}

void DeclareRandom(OpDef& op) {
  op.Input("step", TypeClass::kIndex).Attr("seed", AttrKind::kInt, int64_t{0}, "numbers differ between seeds");
  op.Random().Localize(LocalizeRandom);
}

OpDef RandomTensorOp(std::string name, FillFn fill, const char* scale, const char* shift, bool scale_is_end) {
  OpDef op(std::move(name));
  DeclareRandom(op);
  op.ZeroGrad();
  op.Required("shape", AttrKind::kInts, "of the result").Attr("dtype", AttrKind::kDType, DType::kF32, "a float type");
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) {
    std::string rule = " -> ";
    for (size_t d = 0; d < a.Ints("shape").size(); ++d) absl::StrAppend(&rule, "d", d, " ");
    return rule;
  });
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    const auto& shape = a.Ints("shape");
    if (in[0].rank() != 0) return absl::InvalidArgumentError("step should be a scalar");
    if (!IsFloat(a.Type("dtype")))
      return absl::InvalidArgumentError(absl::StrCat("dtype is ", Name(a.Type("dtype")), ", expected a float type"));
    for (int64_t n : shape) {
      if (n < 0)
        return absl::InvalidArgumentError(
            absl::StrCat("shape ", ToString(absl::MakeConstSpan(shape)), " has a negative size"));
    }
    return std::vector<TensorType>{{a.Type("dtype"), Shape(shape.begin(), shape.end())}};
  });
  op.Reference([=](const OpCall& c) {
    const RandomStream random(c.attrs, c.inputs[0].type.dtype, c.inputs[0].data);
    const double add = c.attrs.Float(shift), times = scale_is_end ? c.attrs.Float(scale) - add : c.attrs.Float(scale);
    const double most = scale_is_end ? LargestLeft(c.outputs[0].type.dtype, add, c.attrs.Float(scale))
                                     : std::numeric_limits<double>::infinity();
    DispatchFloat(c.outputs[0].type.dtype, [&](auto zero) {
      using T = decltype(zero);
      using N = std::conditional_t<std::is_same_v<T, double>, double, float>;
      T* y = c.outputs[0].as<T>();
      const N end = static_cast<N>(most);
      ForEachRun(c.attrs, c.outputs[0].type.shape, [&](int64_t offset, int64_t index, int64_t n) {
        float numbers[kTile];
        for (int64_t at = 0; at < n; at += kTile) {
          const int64_t count = std::min(kTile, n - at);
          fill(random.seed, random.stream, static_cast<uint64_t>(index + at), static_cast<uint64_t>(count), numbers);
          for (int64_t i = 0; i < count; ++i)
            y[offset + at + i] = static_cast<T>(std::min(static_cast<N>(numbers[i] * times + add), end));
        }
      });
    });
    return absl::OkStatus();
  });
  const bool normal = fill == FillNormal;
  op.OnDevice([=](const OpSpec& spec) {
    const double add = spec.attrs.Float(shift);
    const double times = scale_is_end ? spec.attrs.Float(scale) - add : spec.attrs.Float(scale);
    const bool wide = spec.outputs[0].dtype == DType::kF64;
    const std::string drawn = absl::StrCat(normal ? "NormalAt" : "UniformAt", "(seed, stream, index)");
    // In f64 nothing is contracted, so that the bits are the CPU's.
    std::string number =
        wide ? absl::StrCat("__dadd_rn(__dmul_rn(", drawn, ", ", NumberText(times), "), ", NumberText(add), ")")
             : absl::StrCat("(float)(", drawn, " * ", NumberText(times), " + ", NumberText(add), ")");
    const double most = LargestLeft(spec.outputs[0].dtype, add, spec.attrs.Float(scale));
    if (scale_is_end && std::isfinite(most))
      number = absl::StrCat("Min<", wide ? "double" : "float", ">(", number, ", ", NumberText(most), ")");
    return OneStep(
        EachElement(spec.outputs[0].elements(),
                    absl::StrCat(DeviceRandom(spec.attrs, spec.outputs[0].shape, 0), "  Set(y0[i], ", number, ");")));
  });
  op.AddSample({{{DType::kI64, {}}}, {{"shape", std::vector<int64_t>{4, 6}}, {"seed", int64_t{7}}}});
  op.AddSample({{{DType::kI64, {}}}, {{"shape", std::vector<int64_t>{2, 3, 4}}}});
  return op;
}

}  // namespace mslua
