#include "core/step/mixed_precision.h"

#include "core/step/operator_info.h"

namespace mslua {
absl::optional<DType> MixTypes(Trace& trace, const OpDef& op, const std::vector<bool>& numbers,
                               std::vector<Value>* values) {
  const DType narrow = *trace.amp();
  GraphBuilder& g = trace.g();
  const auto type_of = [&](size_t i) { return g.TypeOf((*values)[i]).dtype; };
  const auto cast_all = [&](DType to) {
    for (size_t i = 0; i < values->size(); ++i) {
      const DType from = type_of(i);
      if (InputAt(op, i).type != TypeClass::kT || from == to || (from != narrow && from != DType::kF32)) continue;
      (*values)[i] = Cast(g, (*values)[i], to);
    }
  };
  // Of one operand there is no product.
  const bool multiplies = op.precision == Precision::kNarrow && values->size() > 1;
  if (multiplies || (op.precision == Precision::kNarrowBF16 && narrow == DType::kBF16)) {
    cast_all(narrow);
    return absl::nullopt;
  }
  bool some_narrow = false, some_f32 = false, some_wide = op.precision == Precision::kWide, number = false;
  bool computed = false;
  for (size_t i = 0; i < values->size(); ++i) {
    if (InputAt(op, i).type != TypeClass::kT) continue;
    if (numbers[i]) {
      number = true;
      continue;
    }
    // A bias is rounded to what it is added to.
    const bool parameter = g.IsParameter((*values)[i]);
    computed = computed || !parameter;
    some_narrow = some_narrow || type_of(i) == narrow;
    some_f32 = some_f32 || type_of(i) == DType::kF32;
    some_wide = some_wide || (type_of(i) == DType::kF32 && !(parameter && Broadcasts(op)));
  }
  if (!some_narrow) return absl::nullopt;
  if (!computed && !some_wide) {
    // What is taken from a 16-bit parameter, such as rows of a table, is as if the parameter was f32.
    if (some_f32 || number) cast_all(DType::kF32);
    return absl::make_optional(DType::kF32);
  }
  // Numbers are not rounded to 16 bits: the operator computes in f32, and its result is rounded.
  cast_all(some_wide || number ? DType::kF32 : narrow);
  return number && !some_wide ? absl::make_optional(narrow) : absl::nullopt;
}

}  // namespace mslua
