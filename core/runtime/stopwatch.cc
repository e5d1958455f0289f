#include "core/runtime/stopwatch.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "core/runtime/executable.h"

namespace mslua {
namespace {

// Runs until this much time is spent, but at least kLeastRuns and at most kMostRuns.
constexpr double kSeconds = 0.02;
constexpr int kLeastRuns = 3, kMostRuns = 50;

// Values of mixed sign near 1, repeated: kernels take no shortcut and nothing becomes denormal.
Block MakeUp(const TensorType& type) {
  constexpr int64_t kPeriod = 1021;
  Block block(std::max<int64_t>(type.bytes(), 1));
  const int64_t n = std::min(type.elements(), kPeriod), size = SizeOf(type.dtype);
  auto* const data = static_cast<char*>(block.data());
  for (int64_t i = 0; i < n; ++i) StoreDouble(type.dtype, data, i, IsFloat(type.dtype) ? (i % 7 - 3) * 0.25 : i % 2);
  for (int64_t i = n; i < type.elements(); i += n) {
    std::memcpy(data + i * size, data, static_cast<size_t>(std::min(n, type.elements() - i) * size));
  }
  return block;
}

}  // namespace

StatusOr<double> SecondsOf(const Graph& graph) {
  CompileOptions options;
  options.optimize = false;
  ASSIGN_OR_RETURN(const auto executable, Executable::Compile(graph, nullptr, options));
  std::vector<Block> data;
  for (int32_t i : graph.Inputs()) {
    const Node& n = graph.nodes[i];
    data.push_back(MakeUp(n.outputs[0]));
    RETURN_IF_ERROR(executable->BindInput(n.attrs.Str("name"), data.back().data()));
  }
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
  double least = std::numeric_limits<double>::infinity();
  // The first run warms up and does not count.
  for (int run = 0; run <= kMostRuns && (run <= kLeastRuns || since(begin) < kSeconds); ++run) {
    const auto start = Clock::now();
    RETURN_IF_ERROR(executable->Run());
    if (run > 0) least = std::min(least, since(start));
  }
  return least;
}

}  // namespace mslua
