#include "absl/strings/str_cat.h"
#include "core/op/device_scalars.h"
#include "core/op/device_text.h"
#include "core/op/formula.h"
#include "core/ops/declare/recurrence_rows.h"

namespace mslua {
namespace {

constexpr int64_t kBlock = 256;  // a row length that makes a team a block

std::string Sizes(const RecurrentSizes& s, DType type, int64_t lengths) {
  return absl::StrCat("  typedef ", DeviceComputeType(type), " C;\n", Constant("T", s.t), Constant("N", s.n),
                      Constant("H", s.h), Constant("G", s.gates), Constant("S", s.saved),
                      "  constexpr bool reverse = ", s.reverse, ";\n  const i64 n = row;\n  i64 length = Get(x",
                      lengths, "[n]);\n  length = length < 0 ? 0 : length > T ? T : length;\n");
}

// "(time of the step before is within the row) ? of : first", for element j of a state of `step` numbers a step.
std::string Before(const std::string& inside, const std::string& first) {
  return absl::StrCat("(before >= 0 && before < length ? (C)Get(", inside, ") : (C)Get(", first, "))");
}

std::string SetZero(const std::string& output, const std::string& blocks) {
  return absl::StrCat("      for (i64 k = 0; k < ", blocks, "; ++k) Set(", output, "[(place * ", blocks,
                      " + k) * H + j], (C)0);\n");
}

DeviceProgram Forward(const RecurrentCell& cell, const OpSpec& spec) {
  const RecurrentSizes s = RecurrentSizes::Of(cell, spec.attrs, spec.outputs[0].shape);
  const ScalarProgram program = ForwardProgram(cell);
  const std::string saved = absl::StrCat("y", 2 + s.memory);
  std::vector<std::string> in;
  for (int64_t k = 0; k < s.gates; ++k) in.push_back(absl::StrCat("Get(x0[(place * G + ", k, ") * H + j])"));
  for (int64_t k = 0; k < s.gates; ++k) in.push_back(absl::StrCat("q[", k, "]"));
  for (int64_t k = 0; k < s.gates; ++k) in.push_back(absl::StrCat("Get(x2[", k, " * H + j])"));
  in.push_back("h[j]");
  if (s.memory) in.push_back("c[j]");
  std::string results;
  for (int64_t k = 0; k < s.saved; ++k)
    absl::StrAppend(&results, "      Set(", saved, "[(place * S + ", k, ") * H + j], v", program.results[k], ");\n");
  const std::string state = absl::StrCat("v", program.results[s.saved]);
  absl::StrAppend(&results, "      Set(y0[place * H + j], ", state, ");\n      next[j] = ", state, ";\n");
  if (s.memory) absl::StrAppend(&results, "      c[j] = v", program.results[s.saved - 1], ";\n");
  DeviceProgram device;
  device.scratch_bytes = 3 * s.n * s.h * (spec.inputs[0].dtype == DType::kF64 ? 8 : 4);
  const int lengths = static_cast<int>(spec.inputs.size()) - 1;
  device.steps.push_back(CheckRange(lengths, s.n, 0, s.t + 1));
  device.steps.push_back(
      EachRow(s.n, kBlock,
              absl::StrCat(Sizes(s, spec.inputs[0].dtype, lengths), R"cuda(
  C* h = (C*)scratch + n * H;
  C* next = (C*)scratch + (N + n) * H;
  C* c = (C*)scratch + (2 * N + n) * H;
  for (i64 j = team.lane; j < H; j += team.lanes) {
    h[j] = Get(x3[n * H + j]);
)cuda",
                           s.memory ? "    c[j] = Get(x4[n * H + j]);\n" : "", R"cuda(
  }
  team.Meet();
  for (i64 step = 0; step < T; ++step) {
    const i64 time = reverse ? T - 1 - step : step, place = time * N + n;
    if (time >= length) {
      for (i64 j = team.lane; j < H; j += team.lanes) {
        Set(y0[place * H + j], (C)0);
)cuda",
                           s.saved > 0 ? SetZero(saved, "S") : "", R"cuda(
      }
      continue;
    }
    for (i64 j = team.lane; j < H; j += team.lanes) {
      C q[G];
      for (i64 k = 0; k < G; ++k) {
        q[k] = 0;
        for (i64 l = 0; l < H; ++l) q[k] += (C)Get(x1[(k * H + j) * H + l]) * h[l];
      }
)cuda",
                           DeviceScalars(program, in), results, R"cuda(
    }
    C* const last = h;
    h = next;
    next = last;
    team.Meet();
  }
  for (i64 j = team.lane; j < H; j += team.lanes) {
    Set(y1[n * H + j], h[j]);
)cuda",
                           s.memory ? "    Set(y2[n * H + j], c[j]);\n" : "", "  }\n  team.Meet();\n")));
  return device;
}

// The operands of the gradient, by number.
struct BackwardOperands {
  explicit BackwardOperands(const RecurrentCell& cell)
      : y(cell.saved > 0 ? 2 : 1),
        h0(y + 1),
        c0(y + 2),
        lengths(y + 2 + cell.memory),
        dy(lengths + 1),
        dhn(dy + 1),
        dcn(dy + 2),
        dsaved(dy + 2 + cell.memory) {}
  static constexpr int kSaved = 1;
  const int y, h0, c0, lengths, dy, dhn, dcn, dsaved;
};

std::string Unit(int operand, const std::string& at) { return absl::StrCat("Get(x", operand, "[", at, "])"); }

// The inputs of the cell's program, of one step of one unit.
std::vector<std::string> BackwardInputs(const BackwardOperands& x, const RecurrentSizes& s, bool through) {
  std::vector<std::string> in;
  const auto part = [](int operand, int64_t k) {
    return absl::StrCat("Get(x", operand, "[(place * S + ", k, ") * H + j])");
  };
  for (int64_t k = 0; k < s.saved; ++k) in.push_back(part(x.kSaved, k));
  in.push_back(Unit(x.y, "place * H + j"));
  in.push_back("h");
  if (s.memory) {
    in.push_back(Before(absl::StrCat("x", x.kSaved, "[((before * N + n) * S + S - 1) * H + j]"),
                        absl::StrCat("x", x.c0, "[n * H + j]")));
  }
  in.push_back(Unit(x.dy, "place * H + j"));
  in.insert(in.end(), {"carried[j]", "through[j]"});
  if (s.memory) in.push_back("dc[j]");
  for (int64_t k = 0; through && k < s.saved; ++k) in.push_back(part(x.dsaved, k));
  return in;
}

// What becomes of its results.
std::string BackwardResults(const ScalarProgram& program, const RecurrentSizes& s) {
  std::string results;
  size_t r = 0;
  for (int o = 0; o < (s.own_products ? 2 : 1); ++o) {
    for (int64_t k = 0; k < s.gates; ++k, ++r) {
      absl::StrAppend(&results, "      Set(y", o, "[(place * G + ", k, ") * H + j], v", program.results[r], ");\n");
      if (o == s.own_products) absl::StrAppend(&results, "      dq[", k, " * H + j] = v", program.results[r], ";\n");
    }
  }
  absl::StrAppend(&results, "      carried[j] = ", s.carries ? absl::StrCat("v", program.results[r++]) : "0", ";\n");
  if (s.memory) absl::StrAppend(&results, "      dc[j] = v", program.results[r], ";\n");
  return results;
}

DeviceProgram Backward(const RecurrentCellFn& cell_of, const OpSpec& spec) {
  const BackwardOperands x(cell_of(spec.attrs, false));
  const bool through = static_cast<int>(spec.inputs.size()) > x.dsaved;
  const RecurrentCell cell = cell_of(spec.attrs, through);
  const RecurrentSizes s = RecurrentSizes::Of(cell, spec.attrs, spec.inputs[x.y].shape);
  const ScalarProgram program = BackwardProgram(cell, through);
  const int state = s.own_products ? 2 : 1, dh0 = state + 1;
  DeviceProgram device;
  device.scratch_bytes = (3 + s.gates) * s.n * s.h * (spec.inputs[0].dtype == DType::kF64 ? 8 : 4);
  device.steps.push_back(CheckRange(x.lengths, s.n, 0, s.t + 1));
  device.steps.push_back(EachRow(
      s.n, kBlock,
      absl::StrCat(Sizes(s, spec.inputs[0].dtype, x.lengths), R"cuda(
  C* const carried = (C*)scratch + n * H;
  C* const dc = (C*)scratch + (N + n) * H;
  C* const through = (C*)scratch + (2 * N + n) * H;
  C* const dq = (C*)scratch + (3 * N + n * G) * H;
  for (i64 j = team.lane; j < H; j += team.lanes) {
    for (i64 k = 0; k < G; ++k) dq[k * H + j] = 0;
)cuda",
                   "    carried[j] = ", Unit(x.dhn, "n * H + j"),
                   ";\n    dc[j] = ", s.memory ? Unit(x.dcn, "n * H + j") : "0", R"cuda(;
  }
  team.Meet();
  const auto product = [&](i64 j) {
    C sum = 0;
    for (i64 l = 0; l < G * H; ++l) sum += dq[l] * (C)Get(x0[l * H + j]);
    return sum;
  };
  for (i64 step = 0; step < T; ++step) {
    const i64 time = reverse ? step : T - 1 - step, place = time * N + n, before = reverse ? time + 1 : time - 1;
    if (time >= length) {
      for (i64 j = team.lane; j < H; j += team.lanes) {
        Set(y)cuda",
                   state, "[place * H + j], (C)0);\n", SetZero("y0", "G"), s.own_products ? SetZero("y1", "G") : "",
                   R"cuda(
      }
      continue;
    }
    for (i64 j = team.lane; j < H; j += team.lanes) through[j] = product(j);
    team.Meet();
    for (i64 j = team.lane; j < H; j += team.lanes) {
      const C h = )cuda",
                   Before(absl::StrCat("x", x.y, "[(before * N + n) * H + j]"), absl::StrCat("x", x.h0, "[n * H + j]")),
                   ";\n", DeviceScalars(program, BackwardInputs(x, s, through)), BackwardResults(program, s),
                   "      Set(y", state, R"cuda([place * H + j], h);
    }
    team.Meet();
  }
  for (i64 j = team.lane; j < H; j += team.lanes) {
    Set(y)cuda",
                   dh0, "[n * H + j], carried[j] + product(j));\n",
                   s.memory ? absl::StrCat("    Set(y", dh0 + 1, "[n * H + j], dc[j]);\n") : "",
                   "  }\n  team.Meet();\n")));
  return device;
}

}  // namespace

DeviceFn RecurrentDevice(const RecurrentCellFn& cell, bool gradient) {
  return [cell, gradient](const OpSpec& spec) -> StatusOr<DeviceProgram> {
    return gradient ? Backward(cell, spec) : Forward(cell(spec.attrs, false), spec);
  };
}

}  // namespace mslua
