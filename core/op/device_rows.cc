#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/op/device_text.h"
#include "core/op/elementwise.h"

namespace mslua {
namespace {

constexpr int64_t kMostBlocks = 4096;   // beyond these, blocks loop
constexpr int64_t kOwnRow = 32;         // columns of a row that is one thread's work
constexpr int64_t kManyRows = 1 << 14;  // rows that fill a device, a thread each
constexpr int64_t kMostRegisters = 32;  // of 32 bits, for values that are held
constexpr int64_t kMostTurns = 16;      // of a loop that is unrolled
constexpr int64_t kSmallestTeam = 32, kLargestTeam = 256;

class RowText {
 public:
  RowText(const RowForm& form, const OpSpec& spec)
      : form_(form),
        spec_(spec),
        code_(form.program.scalars.code),
        results_(form.program.scalars.results),
        values_(RowValues::Of(form)),
        used_(code_.size(), false) {
    std::vector<TensorView> in, out;
    for (const TensorType& t : spec.inputs) in.push_back({t, nullptr});
    for (const TensorType& t : spec.outputs) out.push_back({t, nullptr});
    wide_ = ElementwiseComputeType(in, out) == DType::kF64;
    const std::vector<std::string> none(form.program.reads.size());
    lines_ = absl::StrSplit(DeviceScalars(form.program.scalars, none), '\n');
    for (size_t d = 0; d < form.shape.size(); ++d) {
      if (form.IsAxis(static_cast<int64_t>(d)))
        column_dims_.push_back(d);
      else
        row_dims_.push_back(d);
    }
    length_ = form.length();
    rows_ = form.rows();
    for (const int32_t r : results_) Use(r);
    for (size_t o = 0; o < results_.size(); ++o) {
      if (!form.reduced[o]) last_ = std::max(last_, values_.level[At(results_[o])]);
    }
    for (size_t v = 0; v < code_.size(); ++v) {
      if (used_[v] && IsReduction(v)) last_ = std::max(last_, values_.level[v] - 1);
      reduces_ = reduces_ || (used_[v] && IsReduction(v));
    }
  }

  StatusOr<DeviceProgram> Make() {
    DeviceProgram program;
    AddChecks(&program);
    if (!reduces_) {
      program.steps.push_back(Map());
    } else if (last_ == 0 && !ElementsNeedSums()) {
      DeviceProgram sums = Sums();
      program.scratch_bytes = sums.scratch_bytes;
      for (DeviceStep& step : sums.steps) program.steps.push_back(std::move(step));
    } else {
      program.steps.push_back(Rows());
    }
    return program;
  }

 private:
  static size_t At(int32_t v) { return static_cast<size_t>(v); }
  bool IsInput(size_t v) const { return code_[v].op == ScalarOp::kInput; }
  const RowRead& ReadOf(size_t v) const { return form_.program.reads[At(code_[v].args[0])]; }
  bool IsReduction(size_t v) const { return IsInput(v) && ReadOf(v).IsReduction(); }
  std::vector<size_t> ArgsOf(size_t v) const {
    std::vector<size_t> args;
    if (IsInput(v)) return args;
    for (int k = 0; k < Arity(code_[v].op); ++k) args.push_back(At(code_[v].args[k]));
    return args;
  }
  void Use(int32_t v) {
    if (used_[At(v)]) return;
    used_[At(v)] = true;
    if (IsReduction(At(v))) Use(ReadOf(At(v)).of);
    for (const size_t a : ArgsOf(At(v))) Use(static_cast<int32_t>(a));
  }
  bool ElementsNeedSums() const {
    for (size_t v = 0; v < code_.size(); ++v) {
      if (used_[v] && IsReduction(v) && values_.level[v] > 1) return true;
    }
    for (size_t o = 0; o < results_.size(); ++o) {
      if (!form_.reduced[o] && values_.level[At(results_[o])] > 0) return true;
    }
    return false;
  }

  // Operands whose elements name columns, each checked once.
  void AddChecks(DeviceProgram* program) const {
    std::vector<int32_t> checked;
    for (const RowRead& read : form_.program.reads) {
      if (read.kind != RowRead::kIsColumn || std::count(checked.begin(), checked.end(), read.of) > 0) continue;
      checked.push_back(read.of);
      absl::optional<int64_t> except;
      for (const RowRead& other : form_.program.reads) {
        if (other.kind == RowRead::kDiffers && other.of == read.of) except = other.number;
      }
      program->steps.push_back(CheckRange(read.of, rows_, 0, length_, except));
    }
  }

  // ---- Places ----

  // The share of the row, or of the column, in the place of an element of an operand of shape `s`.
  std::string Place(const std::vector<size_t>& dims, const std::string& index, const Shape& s) const {
    const Shape own = RowMajorStrides(s);
    std::vector<int64_t> sizes, strides;
    for (const size_t d : dims) {
      sizes.push_back(form_.shape[d]);
      strides.push_back(s[d] == 1 ? 0 : own[d]);
    }
    return StridedIndex(index, sizes, strides);
  }
  std::string RowPlace(const Shape& s) const { return Place(row_dims_, "row", s); }
  std::string ColumnPlace(const Shape& s) const { return Place(column_dims_, "k", s); }
  // Whether the columns of a row lie side by side in a tensor of shape `s`.
  bool IsDense(const Shape& s) const {
    if (column_dims_.empty() || column_dims_.back() + 1 != form_.shape.size()) return false;
    for (size_t i = 0; i < column_dims_.size(); ++i) {
      if (column_dims_[i] != form_.shape.size() - column_dims_.size() + i) return false;
      if (s[column_dims_[i]] != form_.shape[column_dims_[i]]) return false;
    }
    return true;
  }

  std::string Declare(size_t v, const std::string& value) const {
    return absl::StrCat("    const C v", v, " = (C)", value, ";\n");
  }
  // The value of an operand's element, whose text is given, or of what is asked of it.
  std::string Asked(size_t v, const std::string& element) const {
    const RowRead& read = ReadOf(v);
    if (read.kind == RowRead::kIsColumn) return Declare(v, absl::StrCat("((i64)k == (i64)", element, ")"));
    if (read.kind == RowRead::kDiffers) return Declare(v, absl::StrCat("((i64)", element, " != ", read.number, "ll)"));
    return Declare(v, element);
  }
  std::string Element(size_t v, const std::string& row, const std::string& column) const {
    return absl::StrCat("Get(x", ReadOf(v).of, "[", row, " + ", column, "])");
  }
  // Value v of an element: `k` and `row` are known.
  std::string ElementLine(size_t v) const {
    if (!IsInput(v)) return absl::StrCat(lines_[v], "\n");
    const Shape& s = form_.operands[At(ReadOf(v).of)];
    return Asked(v, Element(v, RowPlace(s), ColumnPlace(s)));
  }
  // Value v of a row that is no reduction.
  std::string RowLine(size_t v) const {
    if (!IsInput(v)) return absl::StrCat(lines_[v], "\n");
    return Asked(v, absl::StrCat("Get(x", ReadOf(v).of, "[", RowPlace(form_.operands[At(ReadOf(v).of)]), "])"));
  }
  const char* C() const { return wide_ ? "double" : "float"; }
  std::string TypeC() const { return absl::StrCat("  typedef ", C(), " C;\n"); }

  // ---- Without a reduction: each element alone ----

  DeviceStep Map() const {
    std::string text = absl::StrCat(TypeC(), "    const i64 row = ", Coordinates(row_dims_),
                                    ", k = ", Coordinates(column_dims_), ";\n");
    for (size_t v = 0; v < code_.size(); ++v) {
      if (used_[v]) text += values_.element[v] ? ElementLine(v) : RowLine(v);
    }
    for (size_t o = 0; o < results_.size(); ++o) absl::StrAppend(&text, "    Set(y", o, "[i], v", results_[o], ");\n");
    return EachElement(NumElements(form_.shape), text);
  }
  // The number, among coordinates along `dims`, of element i.
  std::string Coordinates(const std::vector<size_t>& dims) const {
    std::vector<int64_t> strides(form_.shape.size(), 0);
    int64_t stride = 1;
    for (size_t j = dims.size(); j-- > 0; stride *= form_.shape[dims[j]]) strides[dims[j]] = stride;
    return StridedIndex("i", form_.shape, strides);
  }

  // ---- Sums that nothing in a row waits for: parts of rows side by side ----

  DeviceProgram Sums() const {
    DeviceReduction r;
    r.outputs = rows_;
    r.length = length_;
    r.type = C();
    r.adjacent = DeviceReducedIndex(form_.shape, Reduced()).adjacent;
    std::string joined;
    for (size_t v = 0; v < code_.size(); ++v) {
      if (!used_[v]) continue;
      if (values_.level[v] == 0) r.element += values_.element[v] ? ElementLine(v) : RowLine(v);
      if (IsReduction(v)) {
        absl::StrAppend(&joined, "    const C a", r.joins.size(), " = v", ReadOf(v).of, ";\n");
        absl::StrAppend(&r.finish, "    const C v", v, " = t", r.joins.size(), ";\n");
        r.joins += ReadOf(v).kind == RowRead::kSum ? '+' : ReadOf(v).kind == RowRead::kMax ? 'M' : 'm';
      } else if (!values_.element[v]) {
        r.finish += RowLine(v);
      }
    }
    r.element += joined;
    for (size_t o = 0; o < results_.size(); ++o) {
      std::string* const to = form_.reduced[o] ? &r.finish : &r.element;
      const std::string at =
          form_.reduced[o] ? "row" : absl::StrCat(RowPlace(form_.shape), " + ", ColumnPlace(form_.shape));
      absl::StrAppend(to, "    Set(y", o, "[", at, "], v", results_[o], ");\n");
    }
    return DeviceReduce(r);
  }
  std::vector<bool> Reduced() const {
    std::vector<bool> reduced(form_.shape.size());
    for (size_t d = 0; d < reduced.size(); ++d) reduced[d] = form_.IsAxis(static_cast<int64_t>(d));
    return reduced;
  }

  // ---- Rows, one after the other reduction ----

  // How a row is shared: threads, elements that a thread moves at a time, turns of its loop.
  struct Shared {
    int64_t lanes = 1, width = 1, turns = 1;
    bool held = false;  // values stay in registers
  };
  Shared SharedRow() const {
    Shared s;
    const bool dense = IsDense(form_.shape);
    int64_t widest = 1;
    for (size_t o = 0; o < results_.size(); ++o) {
      if (!form_.reduced[o]) widest = std::max(widest, SizeOf(spec_.outputs[o].dtype));
    }
    for (size_t v = 0; v < code_.size(); ++v) {
      if (!used_[v] || !values_.element[v] || !IsInput(v) || ReadOf(v).kind != RowRead::kOperand) continue;
      const auto of = At(ReadOf(v).of);
      if (IsDense(form_.operands[of])) widest = std::max(widest, SizeOf(spec_.inputs[of].dtype));
    }
    const bool apart = !dense && rows_ >= kManyRows;  // rows side by side are read side by side
    if (length_ > kOwnRow && !apart) {
      if (dense) {
        for (s.width = 16 / widest; s.width > 1; s.width /= 2) {
          if (length_ % s.width == 0 && length_ / s.width >= kSmallestTeam) break;
        }
      }
      for (s.lanes = kSmallestTeam; s.lanes < kLargestTeam && s.lanes * 2 * s.width <= length_;) s.lanes *= 2;
    }
    s.turns = (length_ + s.lanes * s.width - 1) / (s.lanes * s.width);
    s.held = s.turns > 0 && s.turns <= (s.lanes == 1 ? kOwnRow : kMostTurns) &&
             MostHeld() * s.turns * s.width * (wide_ ? 2 : 1) <= kMostRegisters;
    return s;
  }

  // The pass in which value v of an element is computed where values are held: that of what needs it first.
  std::vector<int> Passes() const {
    std::vector<int> pass(code_.size(), last_ + 1);
    for (const int32_t r : results_) pass[At(r)] = last_;
    for (size_t v = 0; v < code_.size(); ++v) {
      if (used_[v] && IsReduction(v)) pass[At(ReadOf(v).of)] = std::min(pass[At(ReadOf(v).of)], values_.level[v] - 1);
    }
    for (size_t v = code_.size(); v-- > 0;) {
      for (const size_t a : ArgsOf(v)) {
        if (used_[v] && values_.element[v]) pass[a] = std::min(pass[a], pass[v]);
      }
    }
    return pass;
  }
  // The last pass that reads it.
  std::vector<int> LastReads(const std::vector<int>& pass) const {
    std::vector<int> last(code_.size(), -1);
    for (size_t o = 0; o < results_.size(); ++o) {
      if (!form_.reduced[o]) last[At(results_[o])] = last_;
    }
    for (size_t v = 0; v < code_.size(); ++v) {
      if (!used_[v]) continue;
      if (IsReduction(v)) last[At(ReadOf(v).of)] = std::max(last[At(ReadOf(v).of)], values_.level[v] - 1);
      for (const size_t a : ArgsOf(v)) {
        if (values_.element[v]) last[a] = std::max(last[a], pass[v]);
      }
    }
    return last;
  }
  bool IsHeld(size_t v, const std::vector<int>& pass, const std::vector<int>& last) const {
    return used_[v] && values_.element[v] && last[v] > pass[v];
  }
  // How many values of an element are held at once.
  int64_t MostHeld() const {
    const std::vector<int> pass = Passes(), last = LastReads(pass);
    int64_t most = 0;
    for (int p = 0; p < last_; ++p) {
      int64_t held = 0;
      for (size_t v = 0; v < code_.size(); ++v) held += IsHeld(v, pass, last) && pass[v] <= p && last[v] > p;
      most = std::max(most, held);
    }
    return most;
  }

  // Elements that are computed in a pass over the row.
  std::vector<bool> ComputedIn(int pass, bool held, const std::vector<int>& pass_of) const {
    std::vector<bool> computed(code_.size(), false);
    if (held) {
      for (size_t v = 0; v < code_.size(); ++v) computed[v] = used_[v] && values_.element[v] && pass_of[v] == pass;
      return computed;
    }
    for (size_t v = 0; v < code_.size(); ++v) {
      if (used_[v] && IsReduction(v) && values_.level[v] - 1 == pass) computed[At(ReadOf(v).of)] = true;
    }
    for (size_t o = 0; o < results_.size() && pass == last_; ++o) {
      if (!form_.reduced[o]) computed[At(results_[o])] = true;
    }
    for (size_t v = code_.size(); v-- > 0;) {
      for (const size_t a : ArgsOf(v)) computed[a] = computed[a] || computed[v];
    }
    for (size_t v = 0; v < code_.size(); ++v) computed[v] = computed[v] && values_.element[v];
    return computed;
  }

  std::string Pass(int pass, const Shared& s, const std::vector<int>& pass_of,
                   const std::vector<int>& last_read) const {
    const std::vector<bool> computed = ComputedIn(pass, s.held, pass_of);
    std::string before, inside, after;
    for (size_t v = 0; v < code_.size(); ++v) {
      if (!used_[v] || !values_.element[v]) continue;
      const bool held = s.held && IsHeld(v, pass_of, last_read);
      if (!computed[v]) {
        if (held && pass_of[v] < pass && last_read[v] >= pass)
          absl::StrAppend(&inside, "    const C v", v, " = h", v, "[s];\n");
        continue;
      }
      if (s.width > 1 && IsInput(v) && ReadOf(v).kind == RowRead::kOperand &&
          IsDense(form_.operands[At(ReadOf(v).of)])) {
        const int32_t of = ReadOf(v).of;
        absl::StrAppend(&before, "    const auto q", v, " = ((const Pack<", DeviceType(spec_.inputs[At(of)].dtype),
                        ", ", s.width, ">*)x", of, ")[(", RowPlace(form_.operands[At(of)]), " + first) / ", s.width,
                        "];\n");
        inside += Declare(v, absl::StrCat("Get(q", v, ".v[w])"));
      } else {
        inside += ElementLine(v);
      }
      if (held) absl::StrAppend(&inside, "    h", v, "[s] = v", v, ";\n");
    }
    for (size_t v = 0; v < code_.size(); ++v) {
      if (!used_[v] || !IsReduction(v) || values_.level[v] - 1 != pass) continue;
      const std::string t = absl::StrCat("t", v), of = absl::StrCat("v", ReadOf(v).of);
      const char* const name = ReadOf(v).kind == RowRead::kMax ? "Max" : "Min";
      absl::StrAppend(
          &inside, "    ", t, " = ",
          ReadOf(v).kind == RowRead::kSum ? absl::StrCat(t, " + ", of) : absl::StrCat(name, "<C>(", t, ", ", of, ")"),
          ";\n");
    }
    for (size_t o = 0; o < results_.size() && pass == last_; ++o) {
      if (form_.reduced[o]) continue;
      const char* const type = DeviceType(spec_.outputs[o].dtype);
      const std::string row = RowPlace(form_.shape);
      if (s.width > 1) {
        const std::string pack = absl::StrCat("Pack<", type, ", ", s.width, ">");
        absl::StrAppend(&before, "    ", pack, " p", o, ";\n");
        absl::StrAppend(&inside, "    Set(p", o, ".v[w], v", results_[o], ");\n");
        absl::StrAppend(&after, "    ((", pack, "*)y", o, ")[(", row, " + first) / ", s.width, "] = p", o, ";\n");
      } else {
        absl::StrAppend(&inside, "    Set(y", o, "[", row, " + ", ColumnPlace(form_.shape), "], v", results_[o],
                        ");\n");
      }
    }
    if (inside.empty()) return "";
    std::string text;
    if (s.held) {
      absl::StrAppend(&text, "#pragma unroll\n  for (int j = 0; j < ", s.turns, "; ++j) {\n    const int first = (j * ",
                      s.lanes, " + team.lane) * ", s.width, ";\n");
      if (s.turns * s.lanes * s.width != length_) absl::StrAppend(&text, "    if (first >= ", length_, ") continue;\n");
    } else {
      absl::StrAppend(&text, "  for (i64 first = team.lane * ", s.width, "; first < ", length_,
                      "; first += ", s.lanes * s.width, ") {\n");
    }
    absl::StrAppend(
        &text, before, "#pragma unroll\n  for (int w = 0; w < ", s.width, "; ++w) {\n    const auto k = first + w;\n",
        s.held ? absl::StrCat("    const int s = j * ", s.width, " + w;\n") : "", inside, "  }\n", after, "  }\n");
    return text;
  }

  DeviceStep Rows() const {
    const Shared s = SharedRow();
    const std::vector<int> pass_of = Passes(), last_read = LastReads(pass_of);
    std::string text = TypeC();
    for (size_t v = 0; v < code_.size() && s.held; ++v) {
      if (IsHeld(v, pass_of, last_read)) absl::StrAppend(&text, "  C h", v, "[", s.turns * s.width, "];\n");
    }
    for (int pass = 0; pass <= last_ + 1; ++pass) {
      for (size_t v = 0; v < code_.size(); ++v) {  // what is known of the row by now
        if (!used_[v] || values_.element[v] || values_.level[v] != pass) continue;
        const char* const join = !IsReduction(v)                   ? ""
                                 : ReadOf(v).kind == RowRead::kSum ? "Sum"
                                 : ReadOf(v).kind == RowRead::kMax ? "Max"
                                                                   : "Min";
        if (IsReduction(v))
          absl::StrAppend(&text, "  const C v", v, " = team.", join, "(t", v, ");\n");
        else
          text += RowLine(v);
      }
      if (pass > last_) break;
      for (size_t v = 0; v < code_.size(); ++v) {
        if (!used_[v] || !IsReduction(v) || values_.level[v] - 1 != pass) continue;
        const char* const start = ReadOf(v).kind == RowRead::kSum   ? "0"
                                  : ReadOf(v).kind == RowRead::kMax ? "-(C)INFINITY"
                                                                    : "INFINITY";
        absl::StrAppend(&text, "  C t", v, " = (C)", start, ";\n");
      }
      text += Pass(pass, s, pass_of, last_read);
    }
    std::string results;
    for (size_t o = 0; o < results_.size(); ++o) {
      if (form_.reduced[o]) absl::StrAppend(&results, "    Set(y", o, "[row], v", results_[o], ");\n");
    }
    if (!results.empty()) {
      // Other threads may still read what lies there.
      if (ResultsMayLieOverRows()) text += "  team.Meet();\n";
      absl::StrAppend(&text, "  if (team.lane == 0) {\n", results, "  }\n");
    }
    if (s.lanes == 1) return EachRow(rows_, 1, text);
    DeviceStep step;
    step.threads = static_cast<int>(s.lanes);
    step.blocks = std::clamp<int64_t>(rows_, 1, kMostBlocks);
    step.text =
        absl::StrCat("  const Team<", s.lanes, "> team = {(int)threadIdx.x};\n  for (i64 row = blockIdx.x; row < ",
                     rows_, "; row += ", step.blocks, ") {\n", text, "  }\n");
    return step;
  }
  bool ResultsMayLieOverRows() const {
    for (size_t o = 0; o < results_.size(); ++o) {
      for (const TensorType& t : spec_.inputs) {
        if (form_.reduced[o] && t == spec_.outputs[o]) return true;
      }
    }
    return false;
  }

  const RowForm& form_;
  const OpSpec& spec_;
  const std::vector<ScalarInstr>& code_;
  const std::vector<int32_t>& results_;
  const RowValues values_;
  std::vector<bool> used_;
  std::vector<std::string> lines_;  // of each value, the text of its instruction
  std::vector<size_t> row_dims_, column_dims_;
  int64_t length_ = 0, rows_ = 0;
  bool wide_ = false, reduces_ = false;
  int last_ = 0;  // the last pass over a row
};

}  // namespace

StatusOr<DeviceProgram> DeviceRows(const RowForm& form, const OpSpec& spec) { return RowText(form, spec).Make(); }

}  // namespace mslua
