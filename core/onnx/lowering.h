// How an operator becomes nodes of ONNX (opset 17). Its form stands in the operator's file in core/ops:
//
//   MSLUA_ONNX(transpose) { c.Result(c.Op("Transpose", {c.In(0)}, {{"perm", c.attrs().Ints("perm")}})); }
//
// Operators with a formula need none: their nodes follow from it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/onnx/model.h"

namespace mslua::onnx {

// One node of a graph that is exported. The graph was traced for two sizes of a batch: `node` is that of the first.
// Errors are kept, the first one counts.
class Lowering {
 public:
  // `other` is the same node of the trace with `rows[1]` rows, `node` of that with `rows[0]`; `batch`: the name of a
  // tensor i64[1] with the rows of a batch, which is made when it is first asked for.
  Lowering(const Graph& graph, const Graph& other, int32_t node, const int64_t (&rows)[2],
           const std::function<std::string()>& batch, Model* model, std::vector<std::vector<std::string>>* names)
      : graph_(graph), other_(other), node_(node), rows_(rows), batch_(batch), model_(*model), names_(*names) {}

  const OpDef& op() const { return *graph_.nodes[node_].op; }
  const Attrs& attrs() const { return graph_.nodes[node_].attrs; }
  size_t inputs() const { return graph_.nodes[node_].inputs.size(); }
  // The tensor of input i, and the type that it has in the first trace.
  std::string In(size_t i) const;
  std::vector<std::string> AllInputs() const;
  const TensorType& TypeIn(size_t i = 0) const { return graph_.TypeOf(graph_.nodes[node_].inputs[i]); }
  const TensorType& TypeOut(size_t i = 0) const { return graph_.nodes[node_].outputs[i]; }
  size_t outputs() const { return graph_.nodes[node_].outputs.size(); }

  // The dimensions of an output for any batch; the attributes of these names say no more than that.
  std::vector<Dim> DimsOut(size_t i, const std::vector<std::string>& said_by = {});
  // The numbers of an attribute for any batch.
  std::vector<Dim> DimsOf(const std::string& attr);

  // Whether an attribute of the second trace begins with what it is in the first, or the first with the second; it says
  // no more than the dimensions then.
  bool OtherFollows(const std::string& attr);
  // The one number of an attribute that holds the bytes of a tensor, where it is the rows of a batch times a number
  // that both traces have, or that number divided by the rows; empty: it is neither.
  std::string NumberOfBatch(const std::string& attr, DType dtype);

  // Appends a node: its output, or all of them.
  std::string Op(const std::string& op, std::vector<std::string> inputs, NamedAttrs attrs = {});
  std::vector<std::string> OpMulti(const std::string& op, std::vector<std::string> inputs, size_t outputs,
                                   NamedAttrs attrs = {});
  // Tensors that are known: i64[n], one number [] of a type, any.
  std::string Ints(const std::vector<int64_t>& values);
  std::string Number(double value, DType dtype);
  std::string Tensor(const TensorType& type, std::string bytes);
  // i64[n], with the rows of the batch where a dimension has them.
  std::string Shape(const std::vector<Dim>& dims);
  std::string Cast(const std::string& x, DType dtype);
  std::string Transpose(const std::string& x, const std::vector<int64_t>& perm);
  std::string Reshape(const std::string& x, const std::vector<Dim>& dims);

  // The node's output i is this tensor.
  void Result(const std::string& name, size_t i = 0);

  void Fail(const std::string& what);
  // After the node: an error too where an attribute depends on the batch and no one asked for it by DimsOf or DimsOut.
  Status Finish();

 private:
  Dim Solve(int64_t first, int64_t second, const std::string& what);

  const Graph& graph_;
  const Graph& other_;
  const int32_t node_;
  const int64_t (&rows_)[2];
  const std::function<std::string()>& batch_;
  Model& model_;
  std::vector<std::vector<std::string>>& names_;
  std::vector<std::string> said_;
  Status status_;
};

using Form = void (*)(Lowering& c);

// Called by MSLUA_ONNX. The forms by the operator's name.
bool RegisterForm(const char* op, Form form);
const std::map<std::string, Form>& Forms();

// An operator with a formula.
void LowerFormula(Lowering& c);

// Images of data_format NHWC as NCHW, and back.
std::string ToChannelsFirst(Lowering& c, const std::string& x);
std::string FromChannelsFirst(Lowering& c, const std::string& x);
// The result is left x X x right for each image X of x [n, c, h, w], in data_format: left [p, h] and right [w, q].
void LowerImageProducts(Lowering& c, std::vector<float> left, std::vector<float> right);
// ReduceSum and others over the attribute `axis`, keep_dims as it says.
void LowerReduction(Lowering& c, const std::string& op);

}  // namespace mslua::onnx

#define MSLUA_ONNX(name)                                                                                     \
  static void OnnxForm_##name(::mslua::onnx::Lowering& c);                                                   \
  [[maybe_unused]] static const bool kOnnxForm_##name = ::mslua::onnx::RegisterForm(#name, OnnxForm_##name); \
  static void OnnxForm_##name([[maybe_unused]] ::mslua::onnx::Lowering& c)
