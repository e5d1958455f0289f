#include "absl/strings/str_cat.h"
#include "core/onnx/recurrent.h"
#include "core/ops/declare/recurrence.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// Cho et al., 2014, as cuDNN and PyTorch have it: the reset gate acts after the product. Gates r, z and n; saved: these
// and the product of n with its bias.
RecurrentCell Gru(const Attrs&, bool through_saved) {
  const auto d = [&](int k) { return through_saved ? absl::StrCat(" + d", k) : std::string(); };
  RecurrentCell cell;
  cell.name = "gru";
  cell.gates = 3;
  cell.saved = 4;
  cell.own_products = cell.carries = true;
  const std::string r = "sigmoid(x0 + q0 + b0)", z = "sigmoid(x1 + q1 + b1)", q = "(q2 + b2)";
  const std::string n = absl::StrCat("tanh(x2 + ", r, " * ", q, ")");
  cell.forward = {r, z, n, q, absl::StrCat("(1 - ", z, ") * ", n, " + ", z, " * h")};
  const std::string dn = absl::StrCat("(dh * (1 - s1)", d(2), ") * (1 - s2 * s2)");
  const std::string dr = absl::StrCat("(", dn, " * s3", d(0), ") * s0 * (1 - s0)");
  const std::string dz = absl::StrCat("(dh * (h - s2)", d(1), ") * s1 * (1 - s1)");
  cell.backward = {dr, dz, dn, dr, dz, absl::StrCat(dn, " * s0", d(3)), "dh * s1"};
  return cell;
}

}  // namespace

MSLUA_OPERATOR(gru) {
  std::vector<OpDef> ops = RecurrentOps(Gru, [](OpDef&) {});
  ops[0].Doc(
      "A layer of gated recurrent units over whole sequences: with q = w h + b and x in three blocks r, z and n, h "
      "becomes (1 - z') n' + z' h, where r' = sigmoid(x_r + q_r), z' = sigmoid(x_z + q_z) and n' = tanh(x_n + r' q_n). "
      "x [t, n, 3 h], the inputs times their weights for all steps, w [3 h, h], b [3 h], h0 [n, h], lengths int32 or "
      "int64 [n], steps of each row; y [t, n, h], 0 after a row's last step, hn [n, h], the state after it, and saved "
      "[t, n, 4 h], what the gradient needs. nn.GRU calls it.");
  return ops;
}

MSLUA_ONNX(gru) {
  onnx::LowerRecurrent(c, "GRU", {1, 0, 2},
                       {{"hidden_size", c.TypeIn(1).shape[1]}, {"linear_before_reset", int64_t{1}}});
}

}  // namespace mslua
