// Channels-last layout. Operators with an attribute data_format are rewritten to "NHWC"; which of their tensors
// that permutes follows from their factor rules under both values. Elementwise operators, broadcasts, reductions, what
// joins, slices and pads between them, and reshapes from images of one row to sequences [n, c, l] and back follow.
// Transposes stand where a chain begins or ends; those that move no element are reshapes. A graph whose only operators
// on images are as fast in any layout stays as it is.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/graph/gradient_marks.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

// Channels last from channels first, and back; ranks 3 (sequences) and 4 (images).
const std::vector<int64_t>& ToLast(int64_t rank) {
  static const std::vector<int64_t> sequences = {0, 2, 1}, images = {0, 2, 3, 1};
  return rank == 3 ? sequences : images;
}
const std::vector<int64_t>& ToFirst(int64_t rank) {
  static const std::vector<int64_t> sequences = {0, 2, 1}, images = {0, 3, 1, 2};
  return rank == 3 ? sequences : images;
}

bool HasChannels(int64_t rank) { return rank == 3 || rank == 4; }

// Which tensors of a node data_format permutes: those whose dimensions come in another order under NHWC.
struct Permuted {
  std::vector<bool> inputs, outputs;
};

std::vector<bool> Differ(const std::vector<FactorRule::Tensor>& a, const FactorRule& ra,
                         const std::vector<FactorRule::Tensor>& b, const FactorRule& rb) {
  const auto names = [](const FactorRule::Tensor& t, const FactorRule& r) {
    std::string s;
    for (const FactorRule::Dim& d : t) {
      for (int f : d) s += r.factors[f].name + " ";
      s += "|";
    }
    return s;
  };
  std::vector<bool> out;
  for (size_t i = 0; i < a.size(); ++i) out.push_back(names(a[i], ra) != names(b[i], rb));
  return out;
}

StatusOr<Permuted> PermutedBy(const Node& n, const Attrs& last, absl::Span<const TensorType> inputs) {
  ASSIGN_OR_RETURN(const FactorRule a,
                   RuleOf(*n.op, n.attrs, inputs, absl::MakeConstSpan(n.outputs.data(), n.outputs.size())));
  ASSIGN_OR_RETURN(const FactorRule b,
                   RuleOf(*n.op, last, inputs, absl::MakeConstSpan(n.outputs.data(), n.outputs.size())));
  return Permuted{Differ(a.inputs, a, b.inputs, b), Differ(a.outputs, a, b.outputs, b)};
}

Shape Permute(const Shape& shape, const std::vector<int64_t>& perm) {
  Shape out;
  for (int64_t p : perm) out.push_back(shape[p]);
  return out;
}

class LayoutPass {
 public:
  explicit LayoutPass(const Graph& graph) : graph_(graph), to_(graph.name) {
    for (const Node& n : graph.nodes) {
      plain_.emplace_back(n.outputs.size());
      last_.emplace_back(n.outputs.size());
    }
  }

  Graph Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      Visit(static_cast<int32_t>(i), n);
      // Updates read gradients in the order of their parameters, which is what the marks are of.
      for (const GradientMark& mark : GradientMarksOf(n)) {
        if (!mark.inside) Plain({static_cast<int32_t>(i), mark.place});
      }
    }
    MoveGradientMarks(graph_, &to_.graph(), [this](Value old) { return Plain(old); });
    for (const GraphOutput& o : graph_.outputs) to_.Output(o.name, Plain(o.value), o.updates);
    auto done = to_.Finish();
    if (!done.ok()) {
      std::fprintf(stderr, "mslua: the layout pass broke the graph: %s\n", done.status().ToString().c_str());
      std::abort();
    }
    return *std::move(done);
  }

 private:
  bool HasLast(Value v) const { return last_[v.node][v.output].valid(); }

  // Moves dimensions, by a view where no element moves.
  Value Moved(Value x, const std::vector<int64_t>& perm) {
    const Shape from = to_.TypeOf(x).shape;
    std::vector<int64_t> kept;
    for (int64_t p : perm) {
      if (from[p] != 1) kept.push_back(p);
    }
    if (std::is_sorted(kept.begin(), kept.end())) return Reshape(to_, x, Permute(from, perm));
    return Transpose(to_, x, perm);
  }
  Value Plain(Value v) {
    Value& p = plain_[v.node][v.output];
    if (!p.valid()) p = Moved(last_[v.node][v.output], ToFirst(graph_.TypeOf(v).rank()));
    return p;
  }
  // The channels-last form of a value of rank 3 or 4.
  Value Last(Value v) {
    Value& l = last_[v.node][v.output];
    if (l.valid()) return l;
    const Node& n = graph_.nodes[v.node];
    const int64_t rank = graph_.TypeOf(v).rank();
    if (n.op->name == "broadcast_to") {  // the small side moves, not the large one
      Value x = n.inputs[0];
      const TensorType& type = graph_.TypeOf(x);
      Value small = type.rank() == rank ? Last(x) : Plain(x);
      if (type.rank() > 0 && type.rank() < rank) {
        Shape wide(static_cast<size_t>(rank - type.rank()), 1);
        wide.insert(wide.end(), type.shape.begin(), type.shape.end());
        small = Moved(Reshape(to_, small, wide), ToLast(rank));
      }
      l = BroadcastTo(to_, small, Permute(n.outputs[0].shape, ToLast(rank)));
    } else {
      l = Moved(Plain(v), ToLast(rank));
    }
    return l;
  }

  void Visit(int32_t i, const Node& n) {
    if (VisitImages(i, n) || VisitElementwise(i, n) || VisitReduction(i, n) || VisitPieces(i, n) ||
        VisitReshape(i, n)) {
      return;
    }
    std::vector<Value> inputs;
    for (Value v : n.inputs) inputs.push_back(Plain(v));
    const auto out = to_.Clone(n, inputs);
    for (size_t o = 0; o < out.size(); ++o) plain_[i][o] = out[o];
  }

  bool VisitImages(int32_t i, const Node& n) {
    const AttrValue* format = n.attrs.Find("data_format");
    if (format == nullptr || std::get<std::string>(*format) != "NCHW") return false;
    Node last = n;
    last.attrs.Set("data_format", std::string("NHWC"));
    std::vector<TensorType> types;
    for (Value v : n.inputs) types.push_back(graph_.TypeOf(v));
    const auto permuted = PermutedBy(n, last.attrs, types);
    if (!permuted.ok()) return false;
    // Normalisations, which have vectors beside images, follow a chain and begin none.
    bool begins = true, follows = false;
    for (size_t k = 0; k < types.size(); ++k) {
      begins = begins && types[k].rank() == 4;
      follows = follows || (permuted->inputs[k] && HasLast(n.inputs[k]));
    }
    if (!begins && !follows) return false;
    std::vector<Value> inputs;
    for (size_t k = 0; k < n.inputs.size(); ++k)
      inputs.push_back(permuted->inputs[k] ? Last(n.inputs[k]) : Plain(n.inputs[k]));
    const auto out = to_.Clone(last, inputs);
    for (size_t o = 0; o < out.size(); ++o) (permuted->outputs[o] ? last_ : plain_)[i][o] = out[o];
    return true;
  }

  bool VisitElementwise(int32_t i, const Node& n) {
    if (!n.op->elementwise || !HasChannels(n.outputs[0].rank()) || !IsLastAlone(n.inputs)) return false;
    std::vector<Value> inputs;
    for (Value v : n.inputs) inputs.push_back(Last(v));
    const auto out = to_.Clone(n, inputs);
    for (size_t o = 0; o < out.size(); ++o) last_[i][o] = out[o];
    return true;
  }

  // A reduction over some of n, c, h, w whose result keeps its order: (h, w), (n, h, w), everything.
  bool VisitReduction(int32_t i, const Node& n) {
    if (!n.attrs.Has("axis") || !n.attrs.Has("keep_dims") || n.inputs.size() != 1) return false;
    const int64_t rank = graph_.TypeOf(n.inputs[0]).rank();
    if (!HasChannels(rank)) return false;
    const auto* axes = std::get_if<std::vector<int64_t>>(n.attrs.Find("axis"));
    if (axes == nullptr || !HasLast(n.inputs[0])) return false;
    const auto reduced = [&](int64_t d) {
      return axes->empty() || std::find(axes->begin(), axes->end(), d) != axes->end();
    };
    const bool keep = n.attrs.Bool("keep_dims");
    if (!keep && !reduced(1) && !(reduced(2) && reduced(rank - 1))) return false;
    std::vector<int64_t> moved;
    for (int64_t d = 0; d < rank; ++d) {
      if (!axes->empty() && reduced(ToLast(rank)[static_cast<size_t>(d)])) moved.push_back(d);
    }
    Node last = n;
    last.attrs.Set("axis", moved);
    const auto out = to_.Clone(last, {Last(n.inputs[0])});
    for (size_t o = 0; o < out.size(); ++o) (keep ? last_ : plain_)[i][o] = out[o];
    return true;
  }

  // Images joined along a dimension, a piece of them, or images with padding.
  bool VisitPieces(int32_t i, const Node& n) {
    const bool joins = n.op->name == "concat";
    const int64_t rank = n.outputs[0].rank();
    if ((!joins && n.op->name != "strided_slice" && n.op->name != "pad") || !HasChannels(rank)) return false;
    if (!IsLastAlone(n.inputs)) return false;
    const std::vector<int64_t>& to_last = ToLast(rank);
    Node last = n;
    if (joins) {
      const auto axis = std::find(to_last.begin(), to_last.end(), n.attrs.Int("axis"));
      last.attrs.Set("axis", static_cast<int64_t>(axis - to_last.begin()));
    }
    for (const char* name : {"begin", "end", "strides", "low", "high", "interior"}) {
      const AttrValue* list = n.attrs.Find(name);
      if (list == nullptr) continue;
      const auto& numbers = std::get<std::vector<int64_t>>(*list);
      if (numbers.empty()) continue;
      if (static_cast<int64_t>(numbers.size()) != rank) return false;
      std::vector<int64_t> moved;
      for (int64_t d : to_last) moved.push_back(numbers[d]);
      last.attrs.Set(name, moved);
    }
    std::vector<Value> inputs;
    for (Value v : n.inputs) inputs.push_back(Last(v));
    last_[i][0] = to_.Clone(last, inputs)[0];
    return true;
  }

  // Images of one row or column to sequences, and back.
  bool VisitReshape(int32_t i, const Node& n) {
    if (n.op->name != "reshape" || !IsLastAlone(n.inputs)) return false;
    const Shape &from = graph_.TypeOf(n.inputs[0]).shape, &to = n.outputs[0].shape;
    if (from.size() + to.size() != 7 || !HasChannels(static_cast<int64_t>(to.size()))) return false;
    const Shape &image = from.size() == 4 ? from : to, &sequence = from.size() == 3 ? from : to;
    if (image[2] != 1 && image[3] != 1) return false;
    if (sequence != Shape{image[0], image[1], image[2] * image[3]}) return false;
    last_[i][0] = Reshape(to_, Last(n.inputs[0]), Permute(to, ToLast(static_cast<int64_t>(to.size()))));
    return true;
  }

  // Whether an input is there with channels last, and not in its own order as well.
  template <class Values>
  bool IsLastAlone(const Values& inputs) const {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](Value v) { return HasLast(v) && !plain_[v.node][v.output].valid(); });
  }

  const Graph& graph_;
  GraphBuilder to_;
  std::vector<std::vector<Value>> plain_, last_;
};

}  // namespace

Graph AssignLayout(const Graph& graph) {
  const bool images = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                  [](const Node& n) { return n.attrs.Has("data_format") && !n.op->any_layout; });
  return images ? LayoutPass(graph).Run() : graph;
}

}  // namespace mslua
