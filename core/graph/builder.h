// Builds graphs: from a trace, in gradients, in passes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/graph/graph.h"

namespace mslua {

// Appends nodes to a graph. The first error is kept and later calls do nothing (they give invalid values),
// so gradients and passes read like mathematics; the owner of the builder calls status() once.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name = "graph") { graph_.name = std::move(name); }
  // Continues a graph.
  explicit GraphBuilder(Graph graph) : graph_(std::move(graph)) {}

  // Where following nodes come from; null: nowhere.
  void SetLocation(std::shared_ptr<const Location> location) { location_ = std::move(location); }
  const std::shared_ptr<const Location>& location() const { return location_; }
  void SetRegion(int32_t region) { region_ = region; }

  Value Input(absl::string_view name, absl::string_view kind, const TensorType& type);
  // A scalar of that type, or a tensor filled with it.
  Value Constant(double value, DType dtype, absl::Span<const int64_t> shape = {});
  // A tensor's bytes.
  Value Literal(const TensorType& type, std::string bytes);

  // Applies an operator: its only output, or all of them. Errors carry the location.
  Value Op(absl::string_view op, absl::Span<const Value> inputs, Attrs attrs = {});
  Value Op(absl::string_view op, std::initializer_list<Value> inputs, Attrs attrs = {}) {
    return Op(op, absl::Span<const Value>(inputs.begin(), inputs.size()), std::move(attrs));
  }
  std::vector<Value> OpMulti(absl::string_view op, absl::Span<const Value> inputs, Attrs attrs = {});
  // A copy of `node` (of any graph) over other inputs: attributes (with _rng), location and region kept; types inferred
  // again.
  std::vector<Value> Clone(const Node& node, absl::Span<const Value> inputs);

  // Adds a graph output.
  void Output(std::string name, Value value, std::string updates = "");

  const TensorType& TypeOf(Value v) const;
  const Node& NodeOf(Value v) const { return graph_.nodes[v.node]; }
  bool IsParameter(Value v) const { return NodeOf(v).op->name == "input" && NodeOf(v).attrs.Str("kind") == kParameter; }
  const Graph& graph() const { return graph_; }
  Graph& graph() { return graph_; }
  const Status& status() const { return status_; }
  void Fail(Status status);
  // The graph, or the first error.
  StatusOr<Graph> Finish();

 private:
  Graph graph_;
  Status status_;
  std::shared_ptr<const Location> location_;
  int32_t region_ = 0;
  std::vector<std::pair<std::string, uint64_t>> rng_counts_;  // random nodes made in each scope
};

// What a gradient rule sees of its node.
struct GradContext {
  GraphBuilder& g;
  const OpDef& op;
  const Attrs& attrs;
  absl::Span<const Value> inputs;
  absl::Span<const Value> outputs;
  absl::Span<const Value> dy;       // invalid where nothing flows back into that output
  const std::vector<bool>& needed;  // which inputs' gradients are wanted
  Value x(size_t i) const { return inputs[i]; }
};

// The gradient rule of an elementwise operator: one formula for each input, over the names of inputs, outputs
// and attributes and `dy`; an empty one: no gradient.
//   Define: OpDef("tanh")....Grad(GradFormula({"dy * (1 - y * y)"}))
GradFn GradFormula(std::vector<std::string> formulas);

// Mathematics on values. Binary ones broadcast as NumPy does; a number takes the other side's type.
Value Add(GraphBuilder& g, Value a, Value b);
Value Sub(GraphBuilder& g, Value a, Value b);
Value Mul(GraphBuilder& g, Value a, Value b);
Value Div(GraphBuilder& g, Value a, Value b);
Value Mul(GraphBuilder& g, Value a, double b);
Value Add(GraphBuilder& g, Value a, double b);
// Any elementwise operator of two or three inputs with broadcasting ("maximum", "select").
Value Elementwise(GraphBuilder& g, absl::string_view op, absl::Span<const Value> inputs, Attrs attrs = {});
Value Reshape(GraphBuilder& g, Value x, absl::Span<const int64_t> shape);
Value Transpose(GraphBuilder& g, Value x, absl::Span<const int64_t> permutation);
Value BroadcastTo(GraphBuilder& g, Value x, absl::Span<const int64_t> shape);
Value ReduceSum(GraphBuilder& g, Value x, absl::Span<const int64_t> axes, bool keep_dims);
Value Cast(GraphBuilder& g, Value x, DType dtype);
Value ZerosLike(GraphBuilder& g, Value x);
// The shape that inputs of these shapes broadcast to, or the error that names both.
StatusOr<Shape> BroadcastShape(absl::Span<const int64_t> a, absl::Span<const int64_t> b);

// The type in which chains of arithmetic on `t` are computed: f32 for 16-bit floats, else `t` itself.
inline DType ArithmeticType(DType t) { return IsFloat(t) && SizeOf(t) == 2 ? DType::kF32 : t; }

// Emits a formula as graph nodes: "dy * (1 - y * y)" with the values of its names. What it computes of numbers alone is
// computed in f64. Several steps of arithmetic on 16-bit floats are f32 and rounded once, at the end.
Value EmitFormula(GraphBuilder& g, absl::string_view formula, const std::vector<std::pair<std::string, Value>>& values,
                  const Attrs& constants = {});

}  // namespace mslua
