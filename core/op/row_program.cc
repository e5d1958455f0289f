#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/op/elementwise.h"

namespace mslua {
namespace {

constexpr const char* kReadNames[] = {"x", "is_column", "differs", "sum", "max", "min"};

std::map<std::string, RowFormFn>& Table() {
  static auto* const table = new std::map<std::string, RowFormFn>;
  return *table;
}

Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("rows: ", what)); }

}  // namespace

std::string ToString(const std::vector<RowRead>& reads) {
  return absl::StrJoin(reads, " ", [](std::string* out, const RowRead& r) {
    absl::StrAppend(out, kReadNames[r.kind], r.of);
    if (r.kind == RowRead::kDiffers) absl::StrAppend(out, "(", r.number, ")");
  });
}

StatusOr<std::vector<RowRead>> ParseRowReads(absl::string_view text) {
  std::vector<RowRead> reads;
  for (absl::string_view part : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const absl::string_view whole = part;
    const auto bad = [&] { return Wrong(absl::StrCat("'", whole, "' is no input of a row's program")); };
    RowRead read;
    int kind = 0;
    while (kind < 6 && !absl::ConsumePrefix(&part, kReadNames[kind])) ++kind;
    if (kind == 6) return bad();
    read.kind = static_cast<RowRead::Kind>(kind);
    if (read.kind == RowRead::kDiffers) {
      const size_t open = part.find('(');
      if (open == part.npos || part.back() != ')') return bad();
      if (!absl::SimpleAtoi(part.substr(open + 1, part.size() - open - 2), &read.number)) return bad();
      part = part.substr(0, open);
    }
    if (!absl::SimpleAtoi(part, &read.of) || read.of < 0) return bad();
    reads.push_back(read);
  }
  return reads;
}

int64_t RowForm::length() const {
  int64_t n = 1;
  for (const int64_t d : axes) n *= shape[static_cast<size_t>(d)];
  return n;
}
int64_t RowForm::rows() const { return NumElements(RowShape()); }
bool RowForm::IsAxis(int64_t d) const { return std::find(axes.begin(), axes.end(), d) != axes.end(); }
Shape RowForm::RowShape() const {
  Shape s = shape;
  for (const int64_t d : axes) s[static_cast<size_t>(d)] = 1;
  return s;
}
bool RowForm::IsOfRows(size_t i) const {
  return std::all_of(axes.begin(), axes.end(), [&](int64_t d) { return operands[i][static_cast<size_t>(d)] == 1; });
}

RowValues RowValues::Of(const RowForm& form) {
  const ScalarProgram& p = form.program.scalars;
  RowValues v;
  v.element.assign(p.code.size(), false);
  v.level.assign(p.code.size(), 0);
  for (size_t i = 0; i < p.code.size(); ++i) {
    const ScalarInstr& instr = p.code[i];
    if (instr.op == ScalarOp::kInput) {
      const RowRead& read = form.program.reads[static_cast<size_t>(instr.args[0])];
      if (read.IsReduction())
        v.level[i] = v.level[static_cast<size_t>(read.of)] + 1;
      else
        v.element[i] = read.kind == RowRead::kIsColumn ||
                       (read.kind == RowRead::kOperand && !form.IsOfRows(static_cast<size_t>(read.of)));
      continue;
    }
    for (int k = 0; k < Arity(instr.op); ++k) {
      const auto arg = static_cast<size_t>(instr.args[k]);
      v.element[i] = v.element[i] || v.element[arg];
      v.level[i] = std::max(v.level[i], v.level[arg]);
    }
  }
  return v;
}

Status CheckRowForm(const RowForm& form, const OpSpec& spec) {
  const ScalarProgram& p = form.program.scalars;
  if (p.num_inputs != static_cast<int32_t>(form.program.reads.size()))
    return Wrong("the program has another number of inputs");
  if (form.operands.size() != spec.inputs.size() || p.results.size() != spec.outputs.size() ||
      form.reduced.size() != spec.outputs.size())
    return Wrong("the program has another number of operands or results");
  for (size_t a = 0; a < form.axes.size(); ++a) {
    const int64_t axis = form.axes[a];
    if (axis < 0 || axis >= static_cast<int64_t>(form.shape.size()) || (a > 0 && axis <= form.axes[a - 1]))
      return Wrong("axes have to increase");
  }
  for (size_t i = 0; i < form.operands.size(); ++i) {
    const Shape& s = form.operands[i];
    bool fits = s.size() == form.shape.size() && NumElements(s) == spec.inputs[i].elements();
    for (size_t d = 0; fits && d < s.size(); ++d) fits = s[d] == 1 || s[d] == form.shape[d];
    if (!fits) return Wrong(absl::StrCat("operand ", i, " does not broadcast to the elements"));
  }
  std::vector<bool> used(form.program.reads.size());
  for (size_t i = 0; i < p.code.size(); ++i) {
    if (p.code[i].op != ScalarOp::kInput) continue;
    const auto input = static_cast<size_t>(p.code[i].args[0]);
    used[input] = true;
    const RowRead& read = form.program.reads[input];
    const int32_t most = read.IsReduction() ? static_cast<int32_t>(i) : static_cast<int32_t>(spec.inputs.size());
    if (read.of >= most) return Wrong("an input reads what is not known yet");
    if (read.IsReduction() || read.kind == RowRead::kOperand) continue;
    const auto of = static_cast<size_t>(read.of);
    if (!form.IsOfRows(of) || IsFloat(spec.inputs[of].dtype)) return Wrong("a column is named by an integer a row");
  }
  if (std::find(used.begin(), used.end(), false) != used.end()) return Wrong("the program does not use an input");
  const RowValues values = RowValues::Of(form);
  for (size_t o = 0; o < form.reduced.size(); ++o) {
    const int64_t elements = form.reduced[o] ? form.rows() : NumElements(form.shape);
    if (spec.outputs[o].elements() != elements) return Wrong(absl::StrCat("result ", o, " has another size"));
    if (form.reduced[o] && values.element[static_cast<size_t>(p.results[o])])
      return Wrong(absl::StrCat("result ", o, " differs in a row"));
  }
  return absl::OkStatus();
}

namespace {

class FormulaReader {
 public:
  FormulaReader(const RowFormula& formula, RowForm* form) : formula_(formula), form_(*form) {
    for (size_t i = 0; i < formula.operands.size(); ++i) names_.inputs.push_back(formula.operands[i].name);
    values_.assign(formula.operands.size(), -1);  // read where they are used
    names_.constants = formula.constants;
  }

  Status Run() {
    for (const std::string& statement : formula_.statements) {
      const std::pair<std::string, std::string> sides = absl::StrSplit(statement, absl::MaxSplits(" = ", 1));
      ASSIGN_OR_RETURN(const int32_t value, Whole(sides.second));
      names_.inputs.push_back(sides.first);
      values_.push_back(value);
    }
    for (const RowFormula::Result& result : formula_.results) {
      ASSIGN_OR_RETURN(const int32_t value, Expression(result.name));
      code().results.push_back(value);
      form_.reduced.push_back(result.of_rows);
    }
    code().num_inputs = static_cast<int32_t>(form_.program.reads.size());
    return absl::OkStatus();
  }

 private:
  ScalarProgram& code() { return form_.program.scalars; }

  StatusOr<int32_t> Whole(absl::string_view text) {
    const absl::string_view all = text;
    if (!absl::ConsumeSuffix(&text, ")")) return Expression(all);
    for (const auto& [name, kind] :
         {std::make_pair("row_sum(", RowRead::kSum), {"row_max(", RowRead::kMax}, {"row_min(", RowRead::kMin}}) {
      if (!absl::ConsumePrefix(&text, name)) continue;
      ASSIGN_OR_RETURN(const int32_t value, Expression(text));
      return Read({kind, value});
    }
    if (absl::ConsumePrefix(&text, "is_column(")) {
      ASSIGN_OR_RETURN(const int32_t operand, Operand(text));
      return Read({RowRead::kIsColumn, operand});
    }
    if (absl::ConsumePrefix(&text, "differs(")) {
      const std::pair<absl::string_view, absl::string_view> args = absl::StrSplit(text, absl::MaxSplits(", ", 1));
      RowRead read = {RowRead::kDiffers};
      ASSIGN_OR_RETURN(read.of, Operand(args.first));
      if (!absl::SimpleAtoi(args.second, &read.number)) return Wrong(absl::StrCat("'", all, "' has no integer"));
      return Read(read);
    }
    return Expression(all);
  }

  StatusOr<int32_t> Operand(absl::string_view name) const {
    for (size_t i = 0; i < formula_.operands.size(); ++i) {
      if (formula_.operands[i].name == name) return static_cast<int32_t>(i);
    }
    return Wrong(absl::StrCat("'", name, "' is no operand"));
  }

  int32_t Add(const ScalarInstr& instr) {
    std::vector<ScalarInstr>& all = code().code;
    const auto same = std::find(all.begin(), all.end(), instr);
    const auto at = static_cast<int32_t>(same - all.begin());
    if (same == all.end()) all.push_back(instr);
    return at;
  }
  int32_t Read(const RowRead& read) {
    std::vector<RowRead>& reads = form_.program.reads;
    const auto same = std::find(reads.begin(), reads.end(), read);
    ScalarInstr instr;
    instr.op = ScalarOp::kInput;
    instr.args[0] = static_cast<int32_t>(same - reads.begin());
    if (same == reads.end()) reads.push_back(read);
    return Add(instr);
  }

  StatusOr<int32_t> Expression(absl::string_view text) {
    ASSIGN_OR_RETURN(const ScalarProgram part, ParseFormula({std::string(text)}, names_));
    std::vector<int32_t> at;
    for (ScalarInstr instr : part.code) {
      if (instr.op == ScalarOp::kInput) {
        const int32_t name = instr.args[0], known = values_[static_cast<size_t>(name)];
        at.push_back(known >= 0 ? known : Read({RowRead::kOperand, name}));
        continue;
      }
      for (int k = 0; k < Arity(instr.op); ++k) instr.args[k] = at[static_cast<size_t>(instr.args[k])];
      at.push_back(Add(instr));
    }
    return at[static_cast<size_t>(part.results[0])];
  }

  const RowFormula& formula_;
  RowForm& form_;
  FormulaNames names_;
  std::vector<int32_t> values_;  // of each name; -1: an operand
};

}  // namespace

StatusOr<RowForm> FormOf(const RowFormula& formula, const OpSpec& spec) {
  RowForm form;
  form.shape = formula.shape;
  form.axes = formula.axes;
  for (size_t i = 0; i < formula.operands.size(); ++i) {
    if (formula.operands[i].of_rows) {
      form.operands.push_back(form.RowShape());
      continue;
    }
    Shape s = spec.inputs[i].shape;
    s.insert(s.begin(), form.shape.size() - std::min(form.shape.size(), s.size()), 1);
    form.operands.push_back(std::move(s));
  }
  RETURN_IF_ERROR(FormulaReader(formula, &form).Run());
  RETURN_IF_ERROR(CheckRowForm(form, spec));
  return form;
}

bool RegisterRowForm(const char* op, RowFormFn form) { return Table().emplace(op, form).second; }
RowFormFn FindRowForm(const std::string& op) {
  const auto at = Table().find(op);
  return at == Table().end() ? nullptr : at->second;
}

namespace {

// Places of the elements of an operand: of row r and column k, rows[r] + columns[k].
struct Places {
  std::vector<int64_t> rows, columns;
};

// Of all coordinates along the axes, or along the others.
std::vector<int64_t> PlacesAlong(const RowForm& form, const Shape& operand, bool axes) {
  const Shape strides = RowMajorStrides(operand);
  std::vector<int64_t> places = {0};
  for (size_t d = 0; d < form.shape.size(); ++d) {
    if (form.IsAxis(static_cast<int64_t>(d)) != axes) continue;
    const int64_t stride = operand[d] == 1 ? 0 : strides[d];
    std::vector<int64_t> next;
    for (const int64_t place : places) {
      for (int64_t c = 0; c < form.shape[d]; ++c) next.push_back(place + c * stride);
    }
    places = std::move(next);
  }
  return places;
}

template <class C>
class Evaluator {
 public:
  Evaluator(const RowForm& form, absl::Span<const TensorView> inputs, absl::Span<const TensorView> outputs)
      : form_(form),
        program_(form.program.scalars),
        inputs_(inputs),
        outputs_(outputs),
        length_(form.length()),
        width_(std::max<int64_t>(length_, 1)),
        in_(form.program.reads.size(), std::vector<C>(static_cast<size_t>(width_))),
        value_(static_cast<size_t>(width_)),
        workspace_(program_.code.size() * static_cast<size_t>(width_)) {
    for (const RowRead& read : form.program.reads) {
      parts_.emplace_back();
      if (!read.IsReduction()) continue;
      parts_.back().num_inputs = program_.num_inputs;
      parts_.back().code.assign(program_.code.begin(), program_.code.begin() + read.of + 1);
      parts_.back().results = {read.of};
    }
    for (const Shape& s : form.operands) places_.push_back({PlacesAlong(form, s, false), PlacesAlong(form, s, true)});
    result_ = {PlacesAlong(form, form.shape, false), PlacesAlong(form, form.shape, true)};
    for (const auto& v : in_) in_at_.push_back(v.data());
    for (size_t o = 0; o < outputs.size(); ++o) out_.emplace_back(static_cast<size_t>(width_));
    for (auto& v : out_) out_at_.push_back(v.data());
  }

  void Run() {
    const int64_t rows = form_.rows();
    for (int64_t r = 0; r < rows; ++r) {
      for (size_t i = 0; i < in_.size(); ++i) {
        if (!form_.program.reads[i].IsReduction()) Load(form_.program.reads[i], r, &in_[i]);
      }
      for (const ScalarInstr& instr : program_.code) {
        if (instr.op != ScalarOp::kInput) continue;
        const auto i = static_cast<size_t>(instr.args[0]);
        if (form_.program.reads[i].IsReduction()) std::fill(in_[i].begin(), in_[i].end(), Reduced(i));
      }
      EvaluateTile<C>(program_, width_, in_at_.data(), out_at_.data(), workspace_.data());
      for (size_t o = 0; o < outputs_.size(); ++o) Store(o, r);
    }
  }

 private:
  void Load(const RowRead& read, int64_t r, std::vector<C>* to) const {
    const auto of = static_cast<size_t>(read.of);
    const Places& at = places_[of];
    const int64_t row = at.rows[static_cast<size_t>(r)];
    const bool of_rows = form_.IsOfRows(of);  // an empty row has it too
    DispatchDType(inputs_[of].type.dtype, [&](auto zero) {
      using T = decltype(zero);
      const T* const data = inputs_[of].as<T>() + row;
      for (int64_t k = 0; k < (of_rows ? width_ : length_); ++k) {
        const T x = data[of_rows ? 0 : at.columns[static_cast<size_t>(k)]];
        C& y = (*to)[static_cast<size_t>(k)];
        if (read.kind == RowRead::kOperand)
          y = static_cast<C>(static_cast<ComputeType<T>>(x));
        else if constexpr (std::is_integral_v<T>)
          y = read.kind == RowRead::kIsColumn ? static_cast<int64_t>(x) == k : static_cast<int64_t>(x) != read.number;
      }
    });
  }

  // What input i of the program is, a reduction.
  C Reduced(size_t i) {
    const RowRead& read = form_.program.reads[i];
    C* const result = value_.data();
    EvaluateTile<C>(parts_[i], width_, in_at_.data(), &result, workspace_.data());
    const auto end = value_.begin() + length_;
    constexpr C kInfinity = std::numeric_limits<C>::infinity();
    C best = read.kind == RowRead::kMax ? -kInfinity : kInfinity;
    double sum = 0;
    for (auto at = value_.begin(); at != end; ++at) {
      sum += static_cast<double>(*at);
      const bool first = read.kind == RowRead::kMax ? best > *at : best < *at;
      best = best != best || first ? best : *at;  // NaN wins
    }
    return read.kind == RowRead::kSum ? static_cast<C>(sum) : best;
  }

  void Store(size_t o, int64_t r) const {
    const TensorView& y = outputs_[o];
    DispatchDType(y.type.dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto put = [&](int64_t at, C v) {
        if constexpr (std::is_same_v<T, bool>)
          y.as<T>()[at] = v != 0;
        else
          y.as<T>()[at] = static_cast<T>(static_cast<ComputeType<T>>(v));
      };
      if (form_.reduced[o]) return put(r, out_[o][0]);
      for (int64_t k = 0; k < length_; ++k)
        put(result_.rows[static_cast<size_t>(r)] + result_.columns[static_cast<size_t>(k)],
            out_[o][static_cast<size_t>(k)]);
    });
  }

  const RowForm& form_;
  const ScalarProgram& program_;
  const absl::Span<const TensorView> inputs_, outputs_;
  const int64_t length_, width_;
  std::vector<std::vector<C>> in_, out_;
  std::vector<const C*> in_at_;
  std::vector<C*> out_at_;
  std::vector<C> value_, workspace_;
  std::vector<ScalarProgram> parts_;  // of each input that is a reduction: the values up to the one that is reduced
  std::vector<Places> places_;
  Places result_;
};

}  // namespace

Status EvaluateRows(const RowForm& form, absl::Span<const TensorView> inputs, absl::Span<const TensorView> outputs) {
  if (ElementwiseComputeType(inputs, outputs) == DType::kF64)
    Evaluator<double>(form, inputs, outputs).Run();
  else
    Evaluator<float>(form, inputs, outputs).Run();
  return absl::OkStatus();
}

StatusOr<RowForm> RowFormOf(const std::string& op, const OpCall& call) {
  std::vector<TensorType> inputs, outputs;
  for (const TensorView& v : call.inputs) inputs.push_back(v.type);
  for (const TensorView& v : call.outputs) outputs.push_back(v.type);
  return FindRowForm(op)({call.attrs, inputs, outputs});
}

void ComputesRows(OpDef& op) {
  const std::string name = op.name;
  op.Reference([name](const OpCall& c) -> Status {
    ASSIGN_OR_RETURN(const RowForm form, RowFormOf(name, c));
    return EvaluateRows(form, c.inputs, c.outputs);
  });
  op.OnDevice([name](const OpSpec& spec) -> StatusOr<DeviceProgram> {
    ASSIGN_OR_RETURN(const RowForm form, FindRowForm(name)(spec));
    return DeviceRows(form, spec);
  });
}

}  // namespace mslua
