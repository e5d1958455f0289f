// Convolutions over channels-last images as matrix products, where a product is faster than a convolution's kernel. A
// convolution of 1 x 1 with stride 1 is a product of its pixels' channels; others are products of their patches
// (unfold), which pays where results have few pixels and the weight is most of what is read. So are the gradients.
// Products take the weight as it lies, where a convolution's kernel wants it in blocks of its own and reorders it in
// every step.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/passes/decisions.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

// Up to how many pixels of the results a product is the faster one, measured on 64 to 2048 channels.
//   1 x 1, stride 1: in f32 the convolution's weight gradient wins beyond, since it splits the pixels over
//   accumulators; in bf16 the product is faster throughout.
constexpr int64_t kMostPixels = 16384;
//   1 x 1 with a stride, in f32; in bf16 the product is faster throughout
constexpr int64_t kMostStridedPixels = 2048;
//   larger windows
constexpr int64_t kMostPatches = 256, kMostPatches16 = 512;
// Beyond this many pixels nobody asks whether patches of larger windows would be faster: they take too much memory.
constexpr int64_t kMostAsked = 8192;

class PointwisePass {
 public:
  PointwisePass(const Graph& graph, Decisions* decisions) : graph_(graph), decisions_(*decisions), rewriter_(graph) {}

  Graph Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      if (const Form form = FormOf(n); form != Form::kConvolution)
        rewriter_.Replace({static_cast<int32_t>(i), 0}, Product(rewriter_.to(), n, form, rewriter_.MapInputs(n)));
      else
        rewriter_.Copy(static_cast<int32_t>(i));
    }
    return rewriter_.Finish();
  }

 private:
  enum class Form { kConvolution, kPixels, kPatches };

  static bool AllOne(const std::vector<int64_t>& v) {
    return std::all_of(v.begin(), v.end(), [](int64_t x) { return x == 1; });
  }

  static bool IsWeightGradient(const Node& n) { return n.op->name == "conv2d_grad_weight"; }
  static bool IsInputGradient(const Node& n) { return n.op->name == "conv2d_grad_input"; }

  Form FormOf(const Node& n) {
    if (n.op->name != "conv2d" && !IsInputGradient(n) && !IsWeightGradient(n)) return Form::kConvolution;
    if (n.attrs.Str("data_format") != "NHWC" || n.attrs.Int("group") != 1) return Form::kConvolution;
    const TensorType& type = graph_.TypeOf(n.inputs[0]);
    if (!IsFloat(type.dtype) || type.elements() == 0) return Form::kConvolution;
    const Shape& w = IsWeightGradient(n) ? n.outputs[0].shape : graph_.TypeOf(n.inputs[1]).shape;
    const Shape& x = IsInputGradient(n) ? n.outputs[0].shape : type.shape;
    const Shape& y = IsInputGradient(n)    ? type.shape
                     : IsWeightGradient(n) ? graph_.TypeOf(n.inputs[1]).shape
                                           : n.outputs[0].shape;
    const bool half = SizeOf(type.dtype) == 2;
    const int64_t pixels = y[0] * y[1] * y[2];
    // With images before and after of the same size and stride 1 there is no padding either.
    const bool one = w[2] == 1 && w[3] == 1;
    if (one && AllOne(n.attrs.Ints("stride")) && x[1] == y[1] && x[2] == y[2])
      return Decide(n, Form::kPixels, half || pixels <= kMostPixels);
    if (one) return Decide(n, Form::kPatches, half || pixels <= kMostStridedPixels);
    if (pixels > kMostAsked) return Form::kConvolution;
    return Decide(n, Form::kPatches, pixels <= (half ? kMostPatches16 : kMostPatches));
  }

  // A product of that form or a convolution; as ways, graphs of the node alone. `usual`: the product.
  Form Decide(const Node& n, Form form, bool usual) {
    std::string question = n.op->name;
    for (const char* name : {"stride", "pad_mode", "padding", "dilation"})
      absl::StrAppend(&question, " ", AttrText(*n.attrs.Find(name)));
    for (Value v : n.inputs) absl::StrAppend(&question, " ", ToString(graph_.TypeOf(v)));
    absl::StrAppend(&question, " -> ", ToString(n.outputs[0]));
    const auto alone = [&](bool product) -> StatusOr<Graph> {
      GraphBuilder g;
      std::vector<Value> in;
      for (Value v : n.inputs) in.push_back(g.Input(absl::StrCat("x", in.size()), kData, graph_.TypeOf(v)));
      g.Output("y", product ? Product(g, n, form, in) : g.Clone(n, in)[0]);
      return g.Finish();
    };
    const Decisions::Way ways[] = {{"convolution", [&] { return alone(false); }},
                                   {form == Form::kPixels ? "product" : "patches", [&] { return alone(true); }}};
    return decisions_.Choose(question, ways, usual ? 1 : 0) == 1 ? form : Form::kConvolution;
  }

  static Value Flat(GraphBuilder& g, Value images) {
    const Shape s = g.TypeOf(images).shape;
    return Reshape(g, images, {s[0] * s[1] * s[2], s[3]});
  }
  static Value Matrix(GraphBuilder& g, Value weight) {
    const Shape s = g.TypeOf(weight).shape;
    return Reshape(g, weight, {s[0], s[1] * s[2] * s[3]});
  }

  // The attributes of the unfolding that makes the patches of convolution `n`.
  static Attrs Unfolding(const Node& n, const Shape& weight) {
    Attrs attrs;
    for (const char* name : {"stride", "pad_mode", "padding", "dilation", "data_format"})
      attrs.Set(name, *n.attrs.Find(name));
    return attrs.Set("kernel_size", std::vector<int64_t>{weight[2], weight[3]});
  }

  static Value Product(GraphBuilder& g, const Node& n, Form form, const std::vector<Value>& in) {
    g.SetLocation(n.location);
    g.SetRegion(n.region);
    const auto product = [&](Value a, Value b, bool ta, bool tb) {
      return g.Op("matmul", {a, b}, {{"transpose_a", ta}, {"transpose_b", tb}});
    };
    const Attrs unfolding = Unfolding(n, IsWeightGradient(n) ? n.outputs[0].shape : g.TypeOf(in[1]).shape);
    const auto rows = [&](Value x) { return Flat(g, form == Form::kPatches ? g.Op("unfold", {x}, unfolding) : x); };
    Value y;
    if (IsWeightGradient(n)) {
      y = product(Flat(g, in[1]), rows(in[0]), true, false);
    } else if (IsInputGradient(n)) {
      y = product(Flat(g, in[0]), Matrix(g, in[1]), false, false);
      if (form == Form::kPatches) y = Sum(g, n, g.TypeOf(in[0]).shape, unfolding, y);
    } else {
      y = product(rows(in[0]), Matrix(g, in[1]), false, true);
    }
    y = Reshape(g, y, n.outputs[0].shape);
    g.SetRegion(0);
    g.SetLocation(nullptr);
    return y;
  }

  // The images whose patches' gradients are the rows of `patches`, one for each pixel of the results' shape `y`.
  static Value Sum(GraphBuilder& g, const Node& n, const Shape& y, Attrs attrs, Value patches) {
    const Shape& x = n.outputs[0].shape;
    attrs.Set("input_size", std::vector<int64_t>{x[1], x[2]});
    return g.Op("fold", {Reshape(g, patches, {y[0], y[1], y[2], g.TypeOf(patches).shape[1]})}, attrs);
  }

  const Graph& graph_;
  Decisions& decisions_;
  Rewriter rewriter_;
};

}  // namespace

Graph PointwiseConvolutions(const Graph& graph, Decisions* decisions) { return PointwisePass(graph, decisions).Run(); }

}  // namespace mslua
