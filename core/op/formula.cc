#include "core/op/formula.h"

#include <cctype>
#include <charconv>
#include <cstring>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/op/attrs.h"

namespace mslua {
namespace {

struct Info {
  const char* name;
  const char* short_name;
  int arity;
  ScalarResult result;
  int cost;
};
constexpr Info kInfo[] = {
    {"input", "", 0, ScalarResult::kExact, 1},
    {"const", "", 0, ScalarResult::kExact, 0},
#define MSLUA_SCALAR(id, name, short_name, arity, result, cost, ...) \
  {name, short_name, arity, ScalarResult::result, cost},
#include "core/op/scalar_functions-inl.h"
};

const Info& Of(ScalarOp op) { return kInfo[static_cast<int>(op)]; }

bool SameConstant(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// Appends `instr` unless an equal one is there; its number either way.
int32_t Intern(ScalarProgram& p, const ScalarInstr& instr) {
  for (size_t i = 0; i < p.code.size(); ++i) {
    if (p.code[i] == instr) return static_cast<int32_t>(i);
  }
  p.code.push_back(instr);
  return static_cast<int32_t>(p.code.size()) - 1;
}

// Recursive descent, one token of look-ahead.
class Parser {
 public:
  Parser(absl::string_view text, const FormulaNames& names, ScalarProgram& program)
      : text_(text), names_(names), program_(program) {}

  StatusOr<int32_t> Run() {
    ASSIGN_OR_RETURN(const int32_t value, Sum(0));
    Skip();
    if (at_ != text_.size()) return Error("unexpected text");
    return value;
  }

 private:
  static constexpr int kMaxDepth = 200;

  Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("formula '", text_, "': ", what, " at column ", at_ + 1));
  }
  void Skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Eat(char c) {
    Skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  int32_t Emit(ScalarOp op, int32_t a, int32_t b = -1, int32_t c = -1) {
    ScalarInstr i;
    i.op = op;
    i.args[0] = a, i.args[1] = b, i.args[2] = c;
    return Intern(program_, i);
  }
  int32_t Constant(double v) {
    ScalarInstr i;
    i.constant = v;
    return Intern(program_, i);
  }

  StatusOr<int32_t> Sum(int depth) {
    ASSIGN_OR_RETURN(int32_t left, Product(depth));
    while (true) {
      if (Eat('+')) {
        ASSIGN_OR_RETURN(const int32_t right, Product(depth));
        left = Emit(ScalarOp::kAdd, left, right);
      } else if (Eat('-')) {
        ASSIGN_OR_RETURN(const int32_t right, Product(depth));
        left = Emit(ScalarOp::kSub, left, right);
      } else {
        return left;
      }
    }
  }
  StatusOr<int32_t> Product(int depth) {
    ASSIGN_OR_RETURN(int32_t left, Unary(depth));
    while (true) {
      if (Eat('*')) {
        ASSIGN_OR_RETURN(const int32_t right, Unary(depth));
        left = Emit(ScalarOp::kMul, left, right);
      } else if (Eat('/')) {
        ASSIGN_OR_RETURN(const int32_t right, Unary(depth));
        left = Emit(ScalarOp::kDiv, left, right);
      } else {
        return left;
      }
    }
  }
  StatusOr<int32_t> Unary(int depth) {
    if (depth > kMaxDepth) return Error("nested too deeply");
    if (Eat('-')) {
      ASSIGN_OR_RETURN(const int32_t value, Unary(depth + 1));
      return Emit(ScalarOp::kNeg, value);
    }
    return Atom(depth);
  }
  StatusOr<int32_t> Atom(int depth) {
    Skip();
    if (Eat('(')) {
      ASSIGN_OR_RETURN(const int32_t value, Sum(depth + 1));
      if (!Eat(')')) return Error("expected ')'");
      return value;
    }
    const size_t start = at_;
    const auto digit = [&] { return isdigit(static_cast<unsigned char>(text_[at_])) != 0; };
    const auto letter = [&] { return isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'; };
    if (at_ < text_.size() && (digit() || text_[at_] == '.')) {
      double v;
      const auto r = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
      if (r.ec != std::errc()) return Error("expected a number");
      at_ = r.ptr - text_.data();
      return Constant(v);
    }
    while (at_ < text_.size() && letter()) ++at_;
    const absl::string_view name = text_.substr(start, at_ - start);
    if (name.empty()) return Error("expected a value");
    if (Eat('(')) return Call(name, depth);
    for (size_t i = 0; i < names_.inputs.size(); ++i) {
      if (names_.inputs[i] == name) return Emit(ScalarOp::kInput, static_cast<int32_t>(i));
    }
    for (const auto& c : names_.constants) {
      if (c.first == name) return Constant(c.second);
    }
    return Error(absl::StrCat("unknown name '", name, "'"));
  }
  StatusOr<int32_t> Call(absl::string_view name, int depth) {
    ASSIGN_OR_RETURN(const ScalarOp op, ParseScalarOp(name));
    if (Arity(op) == 0) return Error(absl::StrCat("'", name, "' is not a function"));
    int32_t args[3] = {-1, -1, -1};
    for (int i = 0; i < Arity(op); ++i) {
      if (i > 0 && !Eat(',')) return Error(absl::StrCat(name, " takes ", Arity(op), " values: expected ','"));
      ASSIGN_OR_RETURN(args[i], Sum(depth + 1));
    }
    if (!Eat(')')) return Error("expected ')'");
    return Emit(op, args[0], args[1], args[2]);
  }

  absl::string_view text_;
  const FormulaNames& names_;
  ScalarProgram& program_;
  size_t at_ = 0;
};

}  // namespace

bool operator==(const ScalarInstr& a, const ScalarInstr& b) {
  return a.op == b.op && std::memcmp(a.args, b.args, sizeof a.args) == 0 && SameConstant(a.constant, b.constant);
}

const char* Name(ScalarOp op) { return Of(op).name; }
int Arity(ScalarOp op) { return Of(op).arity; }
int CostOf(ScalarOp op) { return Of(op).cost; }
ScalarResult ResultOf(ScalarOp op) { return Of(op).result; }

StatusOr<ScalarOp> ParseScalarOp(absl::string_view name) {
  for (size_t i = 0; i < std::size(kInfo); ++i) {
    if (!name.empty() && (name == kInfo[i].name || name == kInfo[i].short_name)) return static_cast<ScalarOp>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat("'", name, "' is not a scalar function"));
}

ScalarProgram CopyProgram() {
  ScalarProgram copy;
  copy.num_inputs = 1;
  copy.code.push_back({ScalarOp::kInput, {0, -1, -1}, 0});
  copy.results = {0};
  return copy;
}

StatusOr<ScalarProgram> ParseFormula(const std::vector<std::string>& expressions, const FormulaNames& names) {
  ScalarProgram program;
  program.num_inputs = static_cast<int32_t>(names.inputs.size());
  for (const std::string& text : expressions) {
    ASSIGN_OR_RETURN(const int32_t value, Parser(text, names, program).Run());
    program.results.push_back(value);
  }
  return program;
}

std::string ToString(const ScalarProgram& p) {
  std::vector<std::string> parts;
  for (const ScalarInstr& i : p.code) {
    if (i.op == ScalarOp::kInput) {
      parts.push_back(absl::StrCat("i", i.args[0]));
    } else if (i.op == ScalarOp::kConst) {
      parts.push_back(AttrText(AttrValue(i.constant)));
    } else {
      parts.push_back(absl::StrCat(Name(i.op), "(", absl::StrJoin(i.args, i.args + Arity(i.op), ","), ")"));
    }
  }
  return absl::StrCat(p.num_inputs, ": ", absl::StrJoin(parts, "; "), " -> ", absl::StrJoin(p.results, ","));
}

StatusOr<ScalarProgram> ParseScalarProgram(absl::string_view text) {
  const auto bad = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("scalar program '", text, "': ", what));
  };
  ScalarProgram p;
  const size_t colon = text.find(": "), arrow = text.rfind(" -> ");
  if (colon == text.npos || arrow == text.npos || arrow < colon + 2) return bad("expected 'INPUTS: CODE -> RESULTS'");
  if (!absl::SimpleAtoi(text.substr(0, colon), &p.num_inputs) || p.num_inputs < 0) return bad("bad number of inputs");
  for (absl::string_view part : absl::StrSplit(text.substr(colon + 2, arrow - colon - 2), "; ")) {
    ScalarInstr instr;
    const int32_t here = static_cast<int32_t>(p.code.size());
    absl::string_view number = part;
    int32_t input;
    if (absl::ConsumePrefix(&number, "i") && absl::SimpleAtoi(number, &input)) {  // "i3", but not "inf."
      instr.op = ScalarOp::kInput;
      instr.args[0] = input;
      if (input < 0 || input >= p.num_inputs) return bad("input out of range");
    } else if (const size_t open = part.find('('); open != part.npos && part.back() == ')') {
      ASSIGN_OR_RETURN(instr.op, ParseScalarOp(part.substr(0, open)));
      const std::vector<absl::string_view> args = absl::StrSplit(part.substr(open + 1, part.size() - open - 2), ',');
      if (static_cast<int>(args.size()) != Arity(instr.op)) return bad("wrong number of operands");
      for (size_t i = 0; i < args.size(); ++i) {
        if (!absl::SimpleAtoi(args[i], &instr.args[i]) || instr.args[i] < 0 || instr.args[i] >= here)
          return bad("operand out of range");
      }
    } else {
      auto value = ParseAttrValue(part);
      if (!value.ok() || !std::holds_alternative<double>(*value)) return bad("expected a constant");
      instr.constant = std::get<double>(*value);
    }
    p.code.push_back(instr);
  }
  for (absl::string_view part : absl::StrSplit(text.substr(arrow + 4), ',')) {
    int32_t r;
    if (!absl::SimpleAtoi(part, &r) || r < 0 || r >= static_cast<int32_t>(p.code.size()))
      return bad("result out of range");
    p.results.push_back(r);
  }
  return p;
}

}  // namespace mslua
