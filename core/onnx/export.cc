#include "core/onnx/export.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/dtype.h"
#include "core/base/version.h"
#include "core/onnx/lowering.h"

namespace mslua::onnx {
namespace {

std::string Place(const Node& n) {
  const Location* at = n.location.get();
  return at == nullptr || at->file.empty() ? "" : absl::StrCat(at->file, ":", at->line, ": ");
}

std::vector<bool> Live(const Graph& graph) {
  std::vector<bool> live(graph.nodes.size());
  for (const GraphOutput& o : graph.outputs) live[static_cast<size_t>(o.value.node)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    for (const Value v : graph.nodes[i].inputs)
      live[static_cast<size_t>(v.node)] = live[static_cast<size_t>(v.node)] || live[i];
  }
  return live;
}

// The numbers in another type; the place of the first that becomes infinite, or -1.
template <class T>
int64_t Narrow(const TensorView& value, std::string& bytes) {
  const float* from = value.as<float>();
  T* to = reinterpret_cast<T*>(bytes.data());
  int64_t lost = -1;
  for (int64_t k = 0; k < value.type.elements(); ++k) {
    to[k] = static_cast<T>(from[k]);
    if (lost < 0 && std::isfinite(from[k]) && !std::isfinite(static_cast<float>(to[k]))) lost = k;
  }
  return lost;
}

class Exporter {
 public:
  Exporter(const Graph& first, const Graph& second, DType weights, const ValueOfParameter& value_of)
      : first_(first), second_(second), weights_(weights), value_of_(value_of), live_(Live(first)) {
    for (const Node& n : first.nodes) names_.emplace_back(n.outputs.size());
    make_batch_ = [this] { return Batch(); };
  }

  StatusOr<Model> Run() {
    model_.name = first_.name;
    model_.producer_version = kVersion;
    RETURN_IF_ERROR(CheckAlike());
    FindRows();
    for (size_t i = 0; i < first_.nodes.size(); ++i) {
      if (!live_[i] && first_.nodes[i].op->name != "input") continue;
      const Status status = LowerNode(static_cast<int32_t>(i));
      if (!status.ok()) problems_.insert(std::string(status.message()));
    }
    if (!problems_.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems_, "\n"));
    for (const GraphOutput& o : first_.outputs) AddOutput(o);
    return std::move(model_);
  }

 private:
  Status CheckAlike() const {
    const auto& a = first_.nodes;
    const auto& b = second_.nodes;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (a[i].op == b[i].op && a[i].inputs == b[i].inputs) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(Place(a[i]), "export: the network computes other operators for another size of the batch, from ",
                       a[i].op->name, " on: it must not use the number of rows as a number"));
    }
    if (a.size() == b.size()) return absl::OkStatus();
    const Node& n = a.size() > b.size() ? a[b.size()] : b[a.size()];
    return absl::InvalidArgumentError(
        absl::StrCat(Place(n), "export: the network computes other operators for another size of the batch, from ",
                     n.op->name, " on: it must not use the number of rows as a number"));
  }

  // How many rows each of the traces has, and an input that has them first. Without one the model has one size.
  void FindRows() {
    for (const int32_t i : first_.Inputs()) {
      const Node &a = first_.nodes[i], &b = second_.nodes[i];
      if (a.attrs.Str("kind") != kData || a.outputs[0].rank() == 0) continue;
      if (a.outputs[0].shape[0] == b.outputs[0].shape[0]) continue;
      rows_[0] = a.outputs[0].shape[0];
      rows_[1] = b.outputs[0].shape[0];
      batched_ = a.attrs.Str("name");
      return;
    }
  }

  std::string Batch() {
    if (batch_.empty()) {
      const auto add = [&](const std::string& op, std::vector<std::string> inputs, const std::string& output) {
        model_.nodes.push_back({op, output, std::move(inputs), {output}, {}});
      };
      // Tensors of the model, as Lowering::Tensor makes them.
      Initializer zero{"_batch_axis", {DType::kI64, {1}}, std::string(sizeof(int64_t), '\0')};
      model_.initializers.push_back(zero);
      add("Shape", {batched_}, "_batch_shape");
      add("Gather", {"_batch_shape", "_batch_axis"}, "_batch_rows");
      batch_ = "_batch_rows";
    }
    return batch_;
  }

  Status LowerNode(int32_t i) {
    const Node& n = first_.nodes[i];
    if (n.op->name == "input") return AddInput(i);
    const auto form = Forms().find(n.op->name);
    if (form == Forms().end() && n.op->formula.empty())
      return absl::InvalidArgumentError(absl::StrCat(Place(n), "export: ", n.op->name, " has no ONNX form"));
    for (const Value v : n.inputs) {
      if (!names_[v.node][v.output].empty()) continue;
      const Node& from = first_.nodes[v.node];
      if (from.op->name == "input" && from.attrs.Str("kind") == kScalar) {
        return absl::InvalidArgumentError(absl::StrCat(Place(n), "export: ", n.op->name, " reads '",
                                                       from.attrs.Str("name"), "', a number of training"));
      }
      // One that failed is named already.
      if (names_[v.node][0].empty()) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(Place(from), "export: the result ", from.op->outputs[v.output],
                                                     " of ", from.op->name, " has no ONNX form"));
    }
    Lowering c(first_, second_, i, rows_, make_batch_, &model_, &names_);
    if (form == Forms().end())
      LowerFormula(c);
    else
      form->second(c);
    const Status status = c.Finish();
    if (status.ok()) return status;
    for (std::string& name : names_[static_cast<size_t>(i)]) name.clear();
    return absl::InvalidArgumentError(absl::StrCat(Place(n), "export: ", n.op->name, ": ", status.message()));
  }

  Status AddInput(int32_t i) {
    const Node& n = first_.nodes[i];
    const std::string &name = n.attrs.Str("name"), &kind = n.attrs.Str("kind");
    if (kind == kData) {
      Lowering c(first_, second_, i, rows_, make_batch_, &model_, &names_);
      model_.inputs.push_back({name, n.outputs[0].dtype, c.DimsOut(0, {"shape"})});
      c.Result(name);
      return c.Finish();
    }
    if (!live_[static_cast<size_t>(i)]) return absl::OkStatus();
    if (kind == kScalar) return absl::OkStatus();  // who reads it is named
    ASSIGN_OR_RETURN(const TensorView value, value_of_(name));
    if (value.type.dtype != DType::kF32 || weights_ == DType::kF32) {
      model_.initializers.push_back({name, value.type, "", value.data});
      names_[static_cast<size_t>(i)][0] = name;
      return absl::OkStatus();
    }
    return AddNarrow(i, name, value);
  }

  // A parameter that is stored in 16 bits.
  Status AddNarrow(int32_t i, const std::string& name, const TensorView& value) {
    Initializer stored;
    stored.name = absl::StrCat(name, ".stored");
    stored.type = {weights_, value.type.shape};
    stored.bytes.resize(static_cast<size_t>(stored.type.bytes()));
    const int64_t lost =
        weights_ == DType::kBF16 ? Narrow<BF16>(value, stored.bytes) : Narrow<F16>(value, stored.bytes);
    if (lost >= 0) {
      return absl::InvalidArgumentError(absl::StrCat("export: ", name, " has the number ", value.as<float>()[lost],
                                                     ", which ", LongName(weights_),
                                                     " does not hold: use bf16 or f32"));
    }
    model_.initializers.push_back(std::move(stored));
    model_.nodes.push_back({"Cast",
                            absl::StrCat(name, ".cast"),
                            {model_.initializers.back().name},
                            {name},
                            {{"to", int64_t{ElementType(DType::kF32)}}}});
    names_[static_cast<size_t>(i)][0] = name;
    return absl::OkStatus();
  }

  void AddOutput(const GraphOutput& o) {
    Lowering c(first_, second_, o.value.node, rows_, make_batch_, &model_, &names_);
    const size_t k = static_cast<size_t>(o.value.output);
    model_.nodes.push_back(
        {"Identity", absl::StrCat("output_", o.name), {names_[static_cast<size_t>(o.value.node)][k]}, {o.name}, {}});
    model_.outputs.push_back({o.name, first_.TypeOf(o.value).dtype, c.DimsOut(k)});
  }

  const Graph& first_;
  const Graph& second_;
  const DType weights_;
  const ValueOfParameter& value_of_;
  const std::vector<bool> live_;
  Model model_;
  int64_t rows_[2] = {1, 2};
  std::string batched_, batch_;
  std::function<std::string()> make_batch_;
  std::vector<std::vector<std::string>> names_;  // of each node's outputs
  std::set<std::string> problems_;
};

// Numbers of constants that two pairs of sizes say may differ in their last bits.
bool SameContents(const Initializer& a, const Initializer& b) {
  if (!(a.type == b.type)) return false;
  if (a.contents() == b.contents()) return true;
  if (!IsFloat(a.type.dtype)) return false;
  for (int64_t i = 0; i < a.type.elements(); ++i) {
    const double x = LoadAsDouble(a.type.dtype, a.contents().data(), i),
                 y = LoadAsDouble(a.type.dtype, b.contents().data(), i);
    if (!(std::abs(x - y) <= 1e-6 * std::abs(x))) return false;
  }
  return true;
}

bool SameNode(const OnnxNode& a, const OnnxNode& b) {
  return a.op == b.op && a.inputs == b.inputs && a.outputs == b.outputs && a.attrs == b.attrs;
}

}  // namespace

Status CheckOtherSizes(const Graph& first, const Graph& second, absl::Span<const Graph* const> others,
                       const ValueOfParameter& value_of) {
  ASSIGN_OR_RETURN(const Model model, ExportGraph(first, second, DType::kF32, value_of));
  for (const Graph* third : others) {
    ASSIGN_OR_RETURN(const Model other, ExportGraph(*third, second, DType::kF32, value_of));
    if (absl::c_equal(model.nodes, other.nodes, SameNode) &&
        absl::c_equal(model.initializers, other.initializers, SameContents))
      continue;
    return absl::InvalidArgumentError(
        "export: the network computes with the number of rows, and not alike for all numbers: it must not use it as a "
        "number");
  }
  return absl::OkStatus();
}

StatusOr<Model> ExportGraph(const Graph& first, const Graph& second, DType weights, const ValueOfParameter& value_of) {
  return Exporter(first, second, weights, value_of).Run();
}

}  // namespace mslua::onnx
