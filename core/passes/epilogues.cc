// Products with what follows them element by element, as a device's library makes them: a bias, another tensor that is
// added, and gelu by its tanh formula. What lies between is not written to memory and read again.
//
// Fusion comes before: such a chain is one fused node, whose program is compared with these forms as a whole.
#include <algorithm>
#include <vector>

#include "absl/types/optional.h"
#include "core/graph/gradient_marks.h"
#include "core/op/formula.h"
#include "core/op/registry.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

class EpiloguePass {
 public:
  explicit EpiloguePass(const Graph& graph) : graph_(graph), rewriter_(graph), uses_(graph.UseCounts()) {}

  Graph Run() {
    const int32_t count = static_cast<int32_t>(graph_.nodes.size());
    std::vector<absl::optional<Form>> forms(graph_.nodes.size());
    std::vector<char> gone(graph_.nodes.size(), 0);
    for (int32_t i = 0; i < count; ++i) {
      forms[i] = FormOf(i);
      if (forms[i]) gone[forms[i]->product] = 1;
    }
    for (int32_t i = 0; i < count; ++i) {
      if (forms[i])
        Emit(i, *forms[i]);
      else if (!gone[i])
        rewriter_.Copy(i);
    }
    return rewriter_.Finish();
  }

 private:
  // A fused node that is activation(product + bias + other).
  struct Form {
    int32_t product = 0;
    Value bias;
    absl::optional<Value> other;
    bool gelu = false;
    int sum_output = -1;  // which output is what the activation is of
  };

  // The places of the instructions that read `value`; of one that reads it twice, twice.
  static std::vector<int32_t> ReadersOf(const ScalarProgram& p, int32_t value) {
    std::vector<int32_t> readers;
    for (size_t i = 0; i < p.code.size(); ++i) {
      const ScalarInstr& instr = p.code[i];
      readers.insert(readers.end(), std::count(instr.args, instr.args + Arity(instr.op), value),
                     static_cast<int32_t>(i));
    }
    return readers;
  }
  // The one instruction that reads `value`, where that is an addition: its place, and its other operand.
  static absl::optional<std::pair<int32_t, int32_t>> AdditionOf(const ScalarProgram& p, int32_t value) {
    const std::vector<int32_t> readers = ReadersOf(p, value);
    if (readers.size() != 1 || p.code[readers[0]].op != ScalarOp::kAdd) return absl::nullopt;
    const ScalarInstr& add = p.code[readers[0]];
    return std::make_pair(readers[0], add.args[0] == value ? add.args[1] : add.args[0]);
  }

  // The value that is gelu of `of`, where all instructions but those of `known` compute it.
  static absl::optional<int32_t> GeluOf(const ScalarProgram& p, int32_t of, std::vector<bool> known) {
    const auto formula = FormulaProgram(*Operators().Find("gelu_tanh"), Attrs());
    if (!formula.ok()) return absl::nullopt;
    std::vector<int32_t> at;  // of the formula's values
    for (ScalarInstr instr : formula->code) {
      if (instr.op == ScalarOp::kInput) {
        at.push_back(of);
        continue;
      }
      for (int k = 0; k < Arity(instr.op); ++k) instr.args[k] = at[instr.args[k]];
      if (instr.op == ScalarOp::kConst) instr.constant = static_cast<double>(static_cast<float>(instr.constant));
      const auto same = std::find(p.code.begin(), p.code.end(), instr);
      if (same == p.code.end()) return absl::nullopt;
      at.push_back(static_cast<int32_t>(same - p.code.begin()));
      known[at.back()] = true;
    }
    if (std::find(known.begin(), known.end(), false) != known.end()) return absl::nullopt;
    return at[formula->results[0]];
  }

  absl::optional<Form> FormOf(int32_t node) const {
    const Node& n = graph_.nodes[node];
    if (n.op->name != "fused" || n.outputs.size() > 2 || !GradientMarksOf(n).empty()) return absl::nullopt;
    const auto program = ParseScalarProgram(n.attrs.Str("program"));
    if (!program.ok()) return absl::nullopt;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (!IsProductOf(n.inputs[i], n)) continue;
      const auto form = Match(n, *program, static_cast<int32_t>(i));
      if (form) return form;
    }
    return absl::nullopt;
  }

  // Whether `v` is a product of matrices that only `n` reads, and could be stored as n's results are.
  bool IsProductOf(Value v, const Node& n) const {
    const Node& product = graph_.nodes[v.node];
    const TensorType &type = graph_.TypeOf(v), &result = n.outputs[0];
    if (product.op->name != "matmul" || uses_[v.node][0] != 1 || product.region != n.region) return false;
    if (type.shape != result.shape || type.rank() != 2 || type.elements() == 0) return false;
    if (graph_.TypeOf(product.inputs[0]).elements() == 0 || !GradientMarksOf(product).empty()) return false;
    if (type.dtype != DType::kF32 && SizeOf(type.dtype) != 2) return false;
    const bool stored = result.dtype == type.dtype || result.dtype == DType::kF32;
    return IsFloat(type.dtype) && stored && n.outputs.back().dtype == result.dtype;
  }

  absl::optional<Form> Match(const Node& n, const ScalarProgram& p, int32_t product) const {
    const auto value_of = [&](int32_t input) {
      for (size_t i = 0; i < p.code.size(); ++i) {
        if (p.code[i].op == ScalarOp::kInput && p.code[i].args[0] == input) return static_cast<int32_t>(i);
      }
      return -1;
    };
    std::vector<bool> known(p.code.size(), false);
    const int32_t start = value_of(product);
    if (start < 0) return absl::nullopt;
    known[start] = true;
    Form form;
    form.product = n.inputs[product].node;
    const int64_t columns = n.outputs[0].shape[1];
    bool has_bias = false;
    int32_t sum = start;
    // The bias, and another tensor, in either order.
    for (int k = 0; k < 2; ++k) {
      const auto add = AdditionOf(p, sum);
      if (!add || p.code[add->second].op != ScalarOp::kInput) break;
      const Value v = n.inputs[p.code[add->second].args[0]];
      const TensorType& t = graph_.TypeOf(v);
      const bool row = t.elements() == columns && t.rank() > 0 && t.shape.back() == columns && IsFloat(t.dtype);
      if (row && !has_bias && t.dtype != DType::kF64) {
        has_bias = true;
        form.bias = v;
      } else if (!form.other && t == n.outputs[0]) {
        form.other = v;
      } else {
        break;
      }
      if (ReadersOf(p, add->second).size() != 1) break;
      known[add->second] = known[add->first] = true;
      sum = add->first;
    }
    if (!has_bias) return absl::nullopt;
    // Libraries' gelu is rougher than f32, and keeps rows of whole groups of 8 elements.
    int32_t result = sum;
    const bool done = std::find(known.begin(), known.end(), false) == known.end();
    if (!done) {
      const auto gelu = GeluOf(p, sum, known);
      if (!gelu || SizeOf(n.outputs[0].dtype) != 2 || columns % 8 != 0) return absl::nullopt;
      form.gelu = true;
      result = *gelu;
    }
    for (size_t o = 0; o < p.results.size(); ++o) {
      if (p.results[o] == sum && form.gelu)
        form.sum_output = static_cast<int>(o);
      else if (p.results[o] != result)
        return absl::nullopt;
    }
    if (p.results.size() == 2 && form.sum_output < 0) return absl::nullopt;
    return p.results.size() == 1 && form.sum_output >= 0 ? absl::nullopt : absl::make_optional(form);
  }

  void Emit(int32_t node, const Form& form) {
    const Node &n = graph_.nodes[node], &product = graph_.nodes[form.product];
    Node made = product;
    made.op = Operators().Find(form.other ? "matmul_bias_add" : "matmul_bias");
    made.attrs = {{"transpose_a", product.attrs.Bool("transpose_a")},
                  {"transpose_b", product.attrs.Bool("transpose_b")},
                  {"activation", std::string(form.gelu ? "gelu_tanh" : "none")},
                  {"keep", form.sum_output >= 0},
                  {"wide", n.outputs[0].dtype == DType::kF32 && product.outputs[0].dtype != DType::kF32}};
    std::vector<Value> in = rewriter_.MapInputs(product);
    in.push_back(rewriter_.Map(form.bias));
    if (form.other) in.push_back(rewriter_.Map(*form.other));
    const std::vector<Value> out = rewriter_.to().Clone(made, in);
    for (int32_t o = 0; o < static_cast<int32_t>(n.outputs.size()) && !out.empty(); ++o)
      rewriter_.Replace({node, o}, out[o == form.sum_output ? 1 : 0]);
  }

  const Graph& graph_;
  Rewriter rewriter_;
  const std::vector<std::vector<int32_t>> uses_;
};

}  // namespace

Graph FuseEpilogues(const Graph& graph) { return EpiloguePass(graph).Run(); }

}  // namespace mslua
