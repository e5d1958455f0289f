#include "core/onnx/recurrent.h"
#include "core/ops/declare/recurrence.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// Elman, 1990.
RecurrentCell Rnn(const Attrs& attrs, bool) {
  RecurrentCell cell;
  cell.name = "rnn";
  const bool relu = attrs.Str("nonlinearity") == "relu";
  cell.forward = {relu ? "max(x0 + q0 + b0, 0)" : "tanh(x0 + q0 + b0)"};
  cell.backward = {relu ? "dh * greater(y, 0)" : "dh * (1 - y * y)"};
  return cell;
}

}  // namespace

MSLUA_OPERATOR(rnn) {
  std::vector<OpDef> ops = RecurrentOps(Rnn, [](OpDef& op) {
    op.Choice("nonlinearity", {"tanh", "relu"}, "of the units");
  });
  ops[0].Doc(
      "A layer of Elman's recurrent units over whole sequences: h becomes tanh(x + w h + b), or relu of it. x [t, n, "
      "h], "
      "the inputs times their weights for all steps, w [h, h], b [h], h0 [n, h], lengths int32 or int64 [n], steps of "
      "each row; y [t, n, h], 0 after a row's last step, and hn [n, h], the state after it. nn.RNN calls it.");
  for (OpDef& op : ops) {
    Sample relu = op.samples[0];
    relu.attrs.Set("nonlinearity", std::string("relu"));
    op.AddSample(std::move(relu));
  }
  return ops;
}

MSLUA_ONNX(rnn) {
  const std::string f = c.attrs().Str("nonlinearity") == "relu" ? "Relu" : "Tanh";
  onnx::LowerRecurrent(c, "RNN", {0},
                       {{"hidden_size", c.TypeIn(1).shape[1]}, {"activations", std::vector<std::string>{f}}});
}

}  // namespace mslua
