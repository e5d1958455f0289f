#include "core/ops/declare/device_attention.h"

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

constexpr int64_t kWholeBlock = 256;  // a row length that makes a team a block

std::string Sizes(const Attention& a, DType type, const AttentionPlaces& at) {
  return absl::StrCat("  typedef ", DeviceComputeType(type), " C;\n", Constant("T", a.t), Constant("S", a.s),
                      Constant("D", a.d), Constant("E", a.e), Constant("q_row", at.q_row), Constant("k_row", at.k_row),
                      Constant("v_row", at.v_row), Constant("y_row", at.y_row), "  const C scale = (C)",
                      NumberText(a.scale), ";\n  constexpr bool causal = ", a.causal, ";\n");
}

std::string Pointers(std::initializer_list<std::pair<const char*, std::string>> named) {
  std::string text;
  for (const auto& p : named) absl::StrAppend(&text, "  const auto ", p.first, " = ", p.second, ";\n");
  return text;
}

}  // namespace

DeviceProgram AttentionOnDevice(const Attention& a, DType type, const AttentionPlaces& at) {
  return OneStep(EachRow(a.heads * a.t, kWholeBlock,
                         absl::StrCat(Sizes(a, type, at), "  const i64 head = row / T, i = row % T;\n",
                                      Pointers({{"q", at.q}, {"k", at.k}, {"v", at.v}, {"y", at.y}, {"lse", at.lse}}),
                                      R"cuda(
  __shared__ C p[256];
  const i64 seen = causal ? i + 1 + S - T : S;
  const auto score = [&](i64 j) {
    C sum = 0;
    for (i64 l = 0; l < D; ++l) sum += (C)Get(q[i * q_row + l]) * scale * (C)Get(k[j * k_row + l]);
    return sum;
  };
  C max = -(C)INFINITY;
  for (i64 j = team.lane; j < seen; j += team.lanes) max = Max<C>(max, score(j));
  max = team.Max(max);
  C total = 0;
  for (i64 e0 = 0; e0 < E; e0 += 256) {
    const i64 c = e0 + team.lane;
    C sum = 0, part = 0;
    for (i64 j0 = 0; j0 < seen; j0 += 256) {
      const i64 j = j0 + team.lane;
      p[team.lane] = j < seen ? Exp(score(j) - max) : (C)0;
      part += p[team.lane];
      team.Meet();
      if (c < E) {
        for (int l = 0; l < 256 && j0 + l < seen; ++l) sum += p[l] * (C)Get(v[(j0 + l) * v_row + c]);
      }
      team.Meet();
    }
    total = team.Sum(part);
    if (c < E) Set(y[i * y_row + c], seen > 0 ? sum / total : (C)0);
  }
  if (team.lane == 0) lse[i] = max + Log(total);
)cuda")));
}

DeviceProgram AttentionGradOnDevice(const Attention& a, DType type, const AttentionPlaces& at) {
  const std::string operands = absl::StrCat(
      Pointers({{"q", at.q}, {"k", at.k}, {"v", at.v}, {"dy", at.dy}, {"lse", at.lse}, {"delta", at.delta}}),
      R"cuda(
  __shared__ C p[256], ds[256];
  const auto probability = [&](i64 i, i64 j) {
    C sum = 0;
    for (i64 l = 0; l < D; ++l) sum += (C)Get(q[i * q_row + l]) * scale * (C)Get(k[j * k_row + l]);
    return Exp(sum - lse[i]);
  };
  const auto slope = [&](i64 i, i64 j, C probability) {
    C sum = 0;
    for (i64 c = 0; c < E; ++c) sum += (C)Get(dy[i * y_row + c]) * (C)Get(v[j * v_row + c]);
    return probability * (sum - delta[i]) * scale;
  };
)cuda");
  DeviceProgram program;
  program.steps.push_back(EachRow(a.heads * a.t, kWholeBlock,
                                  absl::StrCat(Sizes(a, type, at), "  const i64 head = row / T, i = row % T;\n",
                                               operands, Pointers({{"dq", at.dq}}), R"cuda(
  const i64 seen = causal ? i + 1 + S - T : S;
  for (i64 d0 = 0; d0 < D; d0 += 256) {
    const i64 l = d0 + team.lane;
    C sum = 0;
    for (i64 j0 = 0; j0 < seen; j0 += 256) {
      const i64 j = j0 + team.lane;
      ds[team.lane] = j < seen ? slope(i, j, probability(i, j)) : (C)0;
      team.Meet();
      if (l < D) {
        for (int m = 0; m < 256 && j0 + m < seen; ++m) sum += ds[m] * (C)Get(k[(j0 + m) * k_row + l]);
      }
      team.Meet();
    }
    if (l < D) Set(dq[i * q_row + l], sum);
  }
)cuda")));
  program.steps.push_back(EachRow(a.heads * a.s, kWholeBlock,
                                  absl::StrCat(Sizes(a, type, at), "  const i64 head = row / S, j = row % S;\n",
                                               operands, Pointers({{"dk", at.dk}, {"dv", at.dv}}), R"cuda(
  i64 first = causal ? j + T - S : 0;
  if (first < 0) first = 0;
  const i64 widest = D > E ? D : E;
  for (i64 d0 = 0; d0 < widest; d0 += 256) {
    const i64 l = d0 + team.lane;
    C key = 0, value = 0;
    for (i64 i0 = first; i0 < T; i0 += 256) {
      const i64 i = i0 + team.lane;
      const C own = i < T ? probability(i, j) : (C)0;
      p[team.lane] = own;
      ds[team.lane] = i < T ? slope(i, j, own) : (C)0;
      team.Meet();
      for (int m = 0; m < 256 && i0 + m < T; ++m) {
        if (l < D) key += ds[m] * (C)Get(q[(i0 + m) * q_row + l]);
        if (l < E) value += p[m] * (C)Get(dy[(i0 + m) * y_row + l]);
      }
      team.Meet();
    }
    if (l < D) Set(dk[j * k_row + l], key);
    if (l < E) Set(dv[j * v_row + l], value);
  }
)cuda")));
  return program;
}

}  // namespace mslua
