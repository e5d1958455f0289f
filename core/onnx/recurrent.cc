#include "core/onnx/recurrent.h"

namespace mslua::onnx {

void LowerRecurrent(Lowering& c, const std::string& op, const std::vector<int64_t>& order, NamedAttrs attrs) {
  const TensorType &x = c.TypeIn(0), &w = c.TypeIn(1);
  const DType type = x.dtype, wide = type == DType::kF64 ? type : DType::kF32;
  const int64_t g = w.shape[0], h = w.shape[1];
  const auto in = [&](size_t i) { return type == wide ? c.In(i) : c.Cast(c.In(i), wide); };
  std::vector<int64_t> rows;
  for (const int64_t block : order) {
    for (int64_t j = 0; j < h; ++j) rows.push_back(block * h + j);
  }
  const std::string place = c.Ints(rows), one = c.Ints({0});
  const auto ordered = [&](const std::string& v) { return c.Op("Gather", {v, place}, {{"axis", int64_t{0}}}); };
  const auto direction = [&](const std::string& v) { return c.Op("Unsqueeze", {v, one}); };
  // Made when the model is loaded: in the file it would be g * g numbers.
  const std::string zeros = c.Op("Expand", {c.Number(0, wide), c.Ints({g, g})});
  const std::string select = direction(ordered(c.Op("EyeLike", {zeros})));
  const std::string none = c.Op("Expand", {c.Number(0, wide), c.Ints({g})});
  // The bias of the product with the state is the second half.
  const std::string bias = direction(c.Op("Concat", {none, ordered(in(2))}, {{"axis", int64_t{0}}}));
  const size_t last = c.inputs() - 1;
  const std::string lengths = c.TypeIn(last).dtype == DType::kI32 ? c.In(last) : c.Cast(c.In(last), DType::kI32);
  std::vector<std::string> operands = {in(0), select, direction(ordered(in(1))), bias, lengths, direction(in(3))};
  if (last == 5) operands.push_back(direction(in(4)));
  attrs.emplace_back("direction", std::string(c.attrs().Bool("reverse") ? "reverse" : "forward"));
  const std::vector<std::string> y = c.OpMulti(op, operands, last == 5 ? 3 : 2, std::move(attrs));
  // y is [t, 1, n, h], the states are [1, n, h].
  for (size_t o = 0; o < y.size(); ++o) {
    const std::string out = c.Op("Squeeze", {y[o], c.Ints({o == 0 ? 1 : 0})});
    c.Result(type == wide ? out : c.Cast(out, type), o);
  }
}

}  // namespace mslua::onnx
