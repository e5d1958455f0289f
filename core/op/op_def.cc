#include "core/op/op_def.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/text.h"
#include "core/op/formula.h"
#include "core/op/marks.h"

namespace mslua {
namespace {

Status Invalid(const OpDef& op, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(op.class_name.empty() ? op.name : op.class_name, ": ", what));
}

const InputDef& InputAt(const OpDef& op, size_t i) { return op.inputs[std::min(i, op.inputs.size() - 1)]; }

std::string InputName(const OpDef& op, size_t i) {
  const InputDef& def = InputAt(op, i);
  return def.variadic ? absl::StrCat(def.name, i - (op.inputs.size() - 1)) : def.name;
}

std::string Operands(const OpDef& op, absl::Span<const TensorType> inputs) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < inputs.size(); ++i)
    parts.push_back(absl::StrCat(InputName(op, i), " is ", ToString(inputs[i])));
  return absl::StrJoin(parts, " and ");
}

bool Allowed(const OpDef& op, DType t) {
  if (op.types.empty()) return IsFloat(t);
  return std::find(op.types.begin(), op.types.end(), t) != op.types.end();
}

Status CheckTypes(const OpDef& op, absl::Span<const TensorType> inputs) {
  const TensorType* first = nullptr;
  size_t first_at = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DType t = inputs[i].dtype;
    const std::string name = InputName(op, i);
    switch (InputAt(op, i).type) {
      case TypeClass::kT:
        if (!Allowed(op, t)) {
          const DType to = Allowed(op, DType::kF32) ? DType::kF32 : op.types[0];
          return Invalid(
              op, absl::StrCat(name, " is ", ToString(inputs[i]), ", expected ",
                               op.types.empty()
                                   ? "a float type"
                                   : absl::StrJoin(op.types, ", ", [](std::string* o, DType d) { o->append(Name(d)); }),
                               " (convert it with :astype(ms.", LongName(to), "))"));
        }
        if (first != nullptr && first->dtype != t) {
          return Invalid(op, absl::StrCat(InputName(op, first_at), " is ", ToString(*first), " and ", name, " is ",
                                          ToString(inputs[i]), ": element types differ (convert one with :astype)"));
        }
        if (first == nullptr) first = &inputs[i], first_at = i;
        break;
      case TypeClass::kIndex:
        if (t != DType::kI32 && t != DType::kI64)
          return Invalid(op, absl::StrCat(name, " is ", ToString(inputs[i]),
                                          ", expected i32 or i64 (convert it with :astype(ms.int32))"));
        break;
      case TypeClass::kBool:
        if (t != DType::kBool) return Invalid(op, absl::StrCat(name, " is ", ToString(inputs[i]), ", expected bool"));
        break;
      case TypeClass::kFloat:
        if (!IsFloat(t)) return Invalid(op, absl::StrCat(name, " is ", ToString(inputs[i]), ", expected a float type"));
        break;
      case TypeClass::kAny:
        break;
    }
  }
  return absl::OkStatus();
}

bool KindMatches(AttrKind kind, const AttrValue& v) {
  switch (kind) {
    case AttrKind::kBool:
      return std::holds_alternative<bool>(v);
    case AttrKind::kInt:
    case AttrKind::kAxis:
      return std::holds_alternative<int64_t>(v);
    case AttrKind::kFloat:
      return std::holds_alternative<double>(v);
    case AttrKind::kString:
      return std::holds_alternative<std::string>(v);
    case AttrKind::kInts:
    case AttrKind::kAxes:
      return std::holds_alternative<std::vector<int64_t>>(v);
    case AttrKind::kDType:
      return std::holds_alternative<DType>(v);
  }
  return false;
}

}  // namespace

std::string AxisOutOfRange(absl::string_view name, int64_t axis, absl::string_view dimensions) {
  return absl::StrCat(name, " ", axis < 0 ? axis : axis + 1, " is out of range for ", dimensions);
}

namespace {

// Axes may count from the end; afterwards they are in [0, rank). The first input has the axes.
Status NormaliseAxis(const OpDef& op, const std::string& name, int64_t rank, int64_t* axis) {
  if (*axis < -rank || *axis >= rank) {
    if (rank == 0 && !op.inputs.empty())
      return Invalid(op, absl::StrCat(op.inputs[0].name, " is a scalar, which has no axes"));
    return Invalid(op, AxisOutOfRange(name, *axis, Counted(rank, "dimension")));
  }
  if (*axis < 0) *axis += rank;
  return absl::OkStatus();
}

// Numbers beyond what sizes can be have no use, and sums with them could overflow.
Status CheckMagnitude(const OpDef& op, const AttrDef& def, const AttrValue& v) {
  if (def.name == "seed") return absl::OkStatus();  // no quantity
  absl::Span<const int64_t> numbers;
  if (const auto* one = std::get_if<int64_t>(&v)) numbers = absl::MakeConstSpan(one, 1);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&v)) numbers = *list;
  for (int64_t n : numbers) {
    if (HasTooManyElements({n < 0 ? -std::max(n, -std::numeric_limits<int64_t>::max()) : n}))
      return Invalid(op, absl::StrCat("attribute '", def.name, "' has ", n, ", expected numbers up to 1e15"));
  }
  return absl::OkStatus();
}

// Defaults, kinds, magnitudes, choices and axes; the result lists the attributes in the order of definition. Names that
// the definition does not have pass only when they are marks.
Status NormaliseAttrs(const OpDef& op, absl::Span<const TensorType> inputs, Attrs& attrs) {
  Attrs out;
  for (const AttrDef& def : op.attrs) {
    const AttrValue* given = attrs.Find(def.name);
    if (given == nullptr && def.required) return Invalid(op, absl::StrCat("attribute '", def.name, "' is required"));
    AttrValue v = given != nullptr ? *given : def.fallback;
    if (def.kind == AttrKind::kFloat && std::holds_alternative<int64_t>(v))
      v = static_cast<double>(std::get<int64_t>(v));
    if (def.kind == AttrKind::kAxes && std::holds_alternative<int64_t>(v))
      v = std::vector<int64_t>{std::get<int64_t>(v)};
    if (!KindMatches(def.kind, v))
      return Invalid(op, absl::StrCat("attribute '", def.name, "' has the wrong type: ", AttrText(v)));
    RETURN_IF_ERROR(CheckMagnitude(op, def, v));
    // A graph's attributes are compared. Of a composite no attribute stays.
    if (const auto* number = std::get_if<double>(&v); number != nullptr && std::isnan(*number) && !op.body)
      return Invalid(op, absl::StrCat("attribute '", def.name, "' is nan, expected a number"));
    if (!def.choices.empty()) {
      const std::string& s = std::get<std::string>(v);
      if (std::find(def.choices.begin(), def.choices.end(), s) == def.choices.end()) {
        return Invalid(op, absl::StrCat("attribute '", def.name, "' is '", s, "', expected one of ",
                                        absl::StrJoin(def.choices, ", ")));
      }
    }
    const int64_t rank = inputs.empty() ? 0 : inputs[0].rank();
    if (def.kind == AttrKind::kAxis && !inputs.empty())
      RETURN_IF_ERROR(NormaliseAxis(op, def.name, rank, &std::get<int64_t>(v)));
    if (def.kind == AttrKind::kAxes && !inputs.empty()) {
      auto& axes = std::get<std::vector<int64_t>>(v);
      for (int64_t& a : axes) RETURN_IF_ERROR(NormaliseAxis(op, def.name, rank, &a));
      for (size_t i = 0; i < axes.size(); ++i) {
        if (std::find(axes.begin() + i + 1, axes.end(), axes[i]) != axes.end())
          return Invalid(op, absl::StrCat(def.name, " names an axis twice"));
      }
    }
    out.Set(def.name, std::move(v));
  }
  for (const auto& item : attrs.items()) {
    if (out.Has(item.first)) continue;
    if (const std::string problem = MarkProblem(item.first, item.second); !problem.empty()) return Invalid(op, problem);
    out.Set(item.first, item.second);
  }
  attrs = std::move(out);
  return absl::OkStatus();
}

std::vector<int64_t> Ranks(absl::Span<const TensorType> types) {
  std::vector<int64_t> ranks;
  for (const TensorType& t : types) ranks.push_back(t.rank());
  return ranks;
}

StatusOr<std::vector<TensorType>> InferFromRule(const OpDef& op, const Attrs& attrs,
                                                absl::Span<const TensorType> inputs) {
  auto rule = ParseFactorRule(op.rule(attrs, inputs), Ranks(inputs));
  if (!rule.ok()) return Invalid(op, absl::StrCat(Operands(op, inputs), ": ", rule.status().message()));
  std::vector<Shape> shapes;
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    shapes.push_back(inputs[i].shape);
    names.push_back(InputName(op, i));
  }
  auto sizes = FactorSizes(*rule, shapes, names);
  if (!sizes.ok()) return Invalid(op, absl::StrCat(Operands(op, inputs), ": ", sizes.status().message()));
  DType dtype = inputs[0].dtype;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (InputAt(op, i).type == TypeClass::kT) {
      dtype = inputs[i].dtype;
      break;
    }
  }
  std::vector<TensorType> outputs;
  for (const FactorRule::Tensor& t : rule->outputs) {
    TensorType type;
    type.dtype = dtype;
    for (const FactorRule::Dim& dim : t) {
      int64_t size = 1;
      for (int f : dim) {
        if ((*sizes)[f] < 0) return Invalid(op, absl::StrCat("cannot infer the size of '", rule->factors[f].name, "'"));
        size *= (*sizes)[f];
      }
      type.shape.push_back(size);
    }
    outputs.push_back(std::move(type));
  }
  return outputs;
}

Status InvalidFor(const OpDef& op, absl::Span<const TensorType> inputs, absl::string_view what) {
  return Invalid(op, inputs.empty() ? std::string(what) : absl::StrCat(Operands(op, inputs), ": ", what));
}

}  // namespace

StatusOr<ScalarProgram> FormulaProgram(const OpDef& op, const Attrs& attrs) {
  FormulaNames names;
  for (const InputDef& i : op.inputs) names.inputs.push_back(i.name);
  for (const auto& a : attrs.items()) {
    if (const double* d = std::get_if<double>(&a.second)) names.constants.emplace_back(a.first, *d);
    if (const int64_t* i = std::get_if<int64_t>(&a.second))
      names.constants.emplace_back(a.first, static_cast<double>(*i));
    if (const bool* b = std::get_if<bool>(&a.second)) names.constants.emplace_back(a.first, *b ? 1.0 : 0.0);
  }
  return ParseFormula(op.formula, names);
}

Status CheckOperands(const OpDef& op, absl::Span<const TensorType> inputs, Attrs& attrs) {
  const bool variadic = !op.inputs.empty() && op.inputs.back().variadic;
  if (variadic ? inputs.size() < op.inputs.size() : inputs.size() != op.inputs.size()) {
    return Invalid(
        op,
        absl::StrCat("takes ", variadic ? "at least " : "", Counted(static_cast<int64_t>(op.inputs.size()), "input"),
                     " (", absl::StrJoin(op.inputs, ", ", [](std::string* o, const InputDef& d) { o->append(d.name); }),
                     "), got ", inputs.size()));
  }
  RETURN_IF_ERROR(CheckTypes(op, inputs));
  RETURN_IF_ERROR(NormaliseAttrs(op, inputs, attrs));
  if (op.check) {
    const Status s = op.check(attrs, inputs);
    if (!s.ok()) return InvalidFor(op, inputs, s.message());
  }
  return absl::OkStatus();
}

StatusOr<std::vector<TensorType>> CheckCall(const OpDef& op, absl::Span<const TensorType> inputs, Attrs& attrs) {
  RETURN_IF_ERROR(CheckOperands(op, inputs, attrs));
  auto outputs = op.infer ? op.infer(attrs, inputs) : InferFromRule(op, attrs, inputs);
  if (!outputs.ok()) return op.infer ? InvalidFor(op, inputs, outputs.status().message()) : outputs.status();
  for (const TensorType& type : *outputs) {
    if (std::any_of(type.shape.begin(), type.shape.end(), [](int64_t n) { return n < 0; }))
      return InvalidFor(op, inputs, absl::StrCat("the result ", ToString(type), " has a negative size"));
    if (HasTooManyElements(type.shape))
      return InvalidFor(op, inputs, absl::StrCat("the result ", ToString(type), " has too many elements"));
  }
  return outputs;
}

StatusOr<FactorRule> RuleOf(const OpDef& op, const Attrs& attrs, absl::Span<const TensorType> inputs,
                            absl::Span<const TensorType> outputs) {
  if (op.rule) return ParseFactorRule(op.rule(attrs, inputs), Ranks(inputs));
  FactorRule rule;
  const auto whole = [&](const TensorType& t, absl::string_view prefix, size_t n, bool output) {
    FactorRule::Tensor dims;
    for (int64_t d = 0; d < t.rank(); ++d) {
      dims.push_back({static_cast<int>(rule.factors.size())});
      FactorRule::Factor f;
      f.name = absl::StrCat(prefix, n, "_", d);
      f.whole = true;
      (output ? f.in_output : f.in_input) = true;
      rule.factors.push_back(f);
    }
    return dims;
  };
  for (size_t i = 0; i < inputs.size(); ++i) rule.inputs.push_back(whole(inputs[i], "x", i, false));
  for (size_t i = 0; i < outputs.size(); ++i) rule.outputs.push_back(whole(outputs[i], "y", i, true));
  return rule;
}

}  // namespace mslua
