#include "absl/strings/str_cat.h"
#include "core/onnx/recurrent.h"
#include "core/ops/declare/recurrence.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// Hochreiter and Schmidhuber, 1997, with the forget gate of Gers et al., 2000. Gates i, f, g and o; saved: these and c.
RecurrentCell Lstm(const Attrs&, bool through_saved) {
  const auto d = [&](int k) { return through_saved ? absl::StrCat(" + d", k) : std::string(); };
  RecurrentCell cell;
  cell.name = "lstm";
  cell.gates = 4;
  cell.saved = 5;
  cell.memory = true;
  const auto gate = [](const char* f, int k) { return absl::StrCat(f, "(x", k, " + q", k, " + b", k, ")"); };
  const std::string i = gate("sigmoid", 0), f = gate("sigmoid", 1), g = gate("tanh", 2), o = gate("sigmoid", 3);
  const std::string c = absl::StrCat("(", f, " * c + ", i, " * ", g, ")");
  cell.forward = {i, f, g, o, c, absl::StrCat(o, " * tanh(", c, ")")};
  const std::string dc = absl::StrCat("(dc + dh * s3 * (1 - tanh(s4) * tanh(s4))", d(4), ")");
  cell.backward = {absl::StrCat("(", dc, " * s2", d(0), ") * s0 * (1 - s0)"),
                   absl::StrCat("(", dc, " * c", d(1), ") * s1 * (1 - s1)"),
                   absl::StrCat("(", dc, " * s0", d(2), ") * (1 - s2 * s2)"),
                   absl::StrCat("(dh * tanh(s4)", d(3), ") * s3 * (1 - s3)"), absl::StrCat(dc, " * s1")};
  return cell;
}

}  // namespace

MSLUA_OPERATOR(lstm) {
  std::vector<OpDef> ops = RecurrentOps(Lstm, [](OpDef&) {});
  ops[0].Doc(
      "A layer of LSTM over whole sequences: with a = x + w h + b in four blocks i, f, g and o, c becomes sigmoid(f) c "
      "+ "
      "sigmoid(i) tanh(g), h becomes sigmoid(o) tanh(c). x [t, n, 4 h], the inputs times their weights for all steps, "
      "w "
      "[4 h, h], b [4 h], h0 and c0 [n, h], lengths int32 or int64 [n], steps of each row; y [t, n, h], 0 after a "
      "row's "
      "last step, hn and cn [n, h], the states after it, and saved [t, n, 5 h], the gates and c of each step. nn.LSTM "
      "calls it.");
  return ops;
}

MSLUA_ONNX(lstm) { onnx::LowerRecurrent(c, "LSTM", {0, 3, 1, 2}, {{"hidden_size", c.TypeIn(1).shape[1]}}); }

}  // namespace mslua
