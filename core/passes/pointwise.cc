// A convolution of 1 x 1 over channels-last images, stride 1, is a matrix product of its pixels' channels; so are its
// gradients. Products take the weight as it lies, where a convolution's kernel wants it in blocks of its own and
// reorders it in every step.
#include <algorithm>
#include <string>

#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

// In f32 the weight gradient over more pixels than this is faster as a convolution, which splits the pixels over
// accumulators; measured on 64 to 2048 channels. In bf16 the product is faster throughout.
constexpr int64_t kMostPixels = 16384;

class PointwisePass {
 public:
  explicit PointwisePass(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Graph Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      if (IsPointwise(n))
        rewriter_.Replace({static_cast<int32_t>(i), 0}, Product(n, rewriter_.MapInputs(n)));
      else
        rewriter_.Copy(static_cast<int32_t>(i));
    }
    return rewriter_.Finish();
  }

 private:
  GraphBuilder& g() { return rewriter_.to(); }

  static bool AllOne(const std::vector<int64_t>& v) {
    return std::all_of(v.begin(), v.end(), [](int64_t x) { return x == 1; });
  }

  // The images before and after have the same pixels, so with stride 1 there is no padding either.
  bool IsPointwise(const Node& n) const {
    const std::string& op = n.op->name;
    const bool weight_gradient = op == "conv2d_grad_weight";
    if (op != "conv2d" && op != "conv2d_grad_input" && !weight_gradient) return false;
    if (n.attrs.Str("data_format") != "NHWC" || n.attrs.Int("group") != 1 || !AllOne(n.attrs.Ints("stride")))
      return false;
    const TensorType& type = graph_.TypeOf(n.inputs[0]);
    if (!IsFloat(type.dtype) || type.elements() == 0) return false;
    const Shape& weight = weight_gradient ? n.outputs[0].shape : graph_.TypeOf(n.inputs[1]).shape;
    const Shape &x = type.shape, &y = weight_gradient ? graph_.TypeOf(n.inputs[1]).shape : n.outputs[0].shape;
    if (weight[2] != 1 || weight[3] != 1 || x[1] != y[1] || x[2] != y[2]) return false;
    return type.dtype == DType::kBF16 || x[0] * x[1] * x[2] <= kMostPixels;
  }

  Value Flat(Value images) {
    const Shape s = g().TypeOf(images).shape;
    return Reshape(g(), images, {s[0] * s[1] * s[2], s[3]});
  }
  Value Matrix(Value weight) {
    const Shape s = g().TypeOf(weight).shape;
    return Reshape(g(), weight, {s[0], s[1]});
  }

  Value Product(const Node& n, const std::vector<Value>& in) {
    g().SetLocation(n.location);
    g().SetRegion(n.region);
    const auto product = [&](Value a, Value b, bool ta, bool tb) {
      return g().Op("matmul", {a, b}, {{"transpose_a", ta}, {"transpose_b", tb}});
    };
    Value y;
    if (n.op->name == "conv2d")
      y = product(Flat(in[0]), Matrix(in[1]), false, true);
    else if (n.op->name == "conv2d_grad_input")
      y = product(Flat(in[0]), Matrix(in[1]), false, false);
    else
      y = product(Flat(in[1]), Flat(in[0]), true, false);
    y = Reshape(g(), y, n.outputs[0].shape);
    g().SetRegion(0);
    g().SetLocation(nullptr);
    return y;
  }

  const Graph& graph_;
  Rewriter rewriter_;
};

}  // namespace

Graph PointwiseConvolutions(const Graph& graph) { return PointwisePass(graph).Run(); }

}  // namespace mslua
