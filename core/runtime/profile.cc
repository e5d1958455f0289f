#include "core/runtime/profile.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/atomic_file.h"
#include "core/base/parallel_for.h"
#include "core/op/registry.h"
#include "core/runtime/device_run.h"
#include "core/runtime/limits.h"
#include "core/runtime/shaped_executable.h"

namespace mslua {

namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The best of a few runs of `work`, in seconds.
template <class F>
double BestOf(int runs, F work) {
  double best = 1e9;
  for (int i = 0; i < runs; ++i) {
    const double begin = Seconds();
    work();
    best = std::min(best, Seconds() - begin);
  }
  return best;
}

StatusOr<double> MatmulFlops(DType dtype) {
  constexpr int64_t n = 1024;
  const TensorType type = {dtype, {n, n}};
  const OpDef* op = Operators().Find("matmul");
  Attrs attrs;
  const std::vector<TensorType> inputs = {type, type};
  ASSIGN_OR_RETURN(const std::vector<TensorType> outputs, CheckCall(*op, inputs, attrs));
  const OpSpec spec{attrs, inputs, outputs};
  for (const FastKernel& fast : op->fast) {
    if (!fast.supports(spec)) continue;
    ASSIGN_OR_RETURN(const auto kernel, fast.make(spec));
    const Block a(type.bytes()), b(type.bytes()), y(type.bytes()), scratch(kernel->scratch_bytes());
    const void* in[] = {a.data(), b.data()};
    void* out[] = {y.data()};
    Status status;
    const double best = BestOf(8, [&] { status.Update(kernel->Run({in, out, scratch.data()})); });
    RETURN_IF_ERROR(status);
    return 2.0 * n * n * n / best;
  }
  return absl::UnimplementedError("no fast matmul");
}

double Bandwidth() {
  constexpr int64_t n = 16 << 20;
  const Block from(n * 4), to(n * 4);
  const float* x = static_cast<const float*>(from.data());
  float* y = static_cast<float*>(to.data());
  const double best = BestOf(5, [&] {
    ParallelFor(n, n / ComputeThreads(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = y[i] + x[i];
    });
  });
  return 3.0 * n * 4 / best;
}

double FlopsOf(const MachineLimits& limits, DType type) {
  const double own = type == DType::kBF16  ? limits.bf16_flops
                     : type == DType::kF16 ? limits.f16_flops
                     : type == DType::kF64 ? limits.f64_flops
                                           : limits.f32_flops;
  return own > 0 ? own : limits.f32_flops;
}

double FloorMs(const NodeWork& w, const MachineLimits& limits) {
  return 1e3 * std::max(w.flops / FlopsOf(limits, w.type), w.bytes / limits.bandwidth);
}

// Of all nodes that a launch computes.
NodeWork WorkOfLaunch(const Executable& executable, size_t launch) {
  const Graph& graph = executable.graph();
  const DeviceRun* const device = DeviceRunOf(&executable);
  if (device == nullptr) return WorkOf(graph, graph.nodes[executable.launches()[launch].first]);
  NodeWork all;
  for (const int32_t node : device->NodesOf(launch)) {
    const NodeWork w = WorkOf(graph, graph.nodes[node]);
    all.flops += w.flops;
    all.bytes += w.bytes;
    all.type = w.type;
  }
  return all;
}

// The timelines of steps, gathered.
class Profile {
 public:
  explicit Profile(const Executable& executable)
      : executable_(executable), lengths_(executable.launches().size() + 1) {}

  void Add(const std::vector<int64_t>& timeline) {
    if (timeline.size() != lengths_.size() + 1) return;  // a step that failed
    for (size_t i = 0; i < lengths_.size(); ++i) lengths_[i].push_back(timeline[i + 1] - timeline[i]);
    last_ = timeline;
  }

  // Launches of one operator and kernel together, by falling time. Times are medians over the steps, summed over
  // launches.
  struct Row {
    std::string op, kernel;
    int64_t launches = 0;
    double ms = 0, flops = 0;  // a step
    double bytes = 0;          // a step: operands read and results written once
    double floor_ms = 0;       // the larger of arithmetic and traffic at the machine's limits, launch by launch
  };
  std::vector<Row> Operators(const MachineLimits& limits) const;

  struct LaunchTime {
    size_t launch = 0;
    int32_t node = 0;
    double ms = 0, floor_ms = 0;
  };
  // By falling time.
  std::vector<LaunchTime> ByLaunch(const MachineLimits& limits) const;

  // All launches and the copies at the end, in a step.
  double StepMs() const {
    double sum = 0;
    for (size_t i = 0; i < lengths_.size(); ++i) sum += Milliseconds(i);
    return sum;
  }

  // The last step, as the Trace Event Format that chrome://tracing and Perfetto read.
  std::string ChromeTrace() const;

 private:
  double Milliseconds(size_t launch) const;
  const Graph& graph() const { return executable_.graph(); }

  const Executable& executable_;
  std::vector<std::vector<int64_t>> lengths_;  // [launch][step], nanoseconds
  std::vector<int64_t> last_;                  // the last timeline
};

double Profile::Milliseconds(size_t launch) const {
  std::vector<int64_t> v = lengths_[launch];
  if (v.empty()) return 0;
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return static_cast<double>(v[v.size() / 2]) * 1e-6;
}

std::vector<Profile::Row> Profile::Operators(const MachineLimits& limits) const {
  std::map<std::pair<std::string, std::string>, Row> rows;
  const auto& launches = executable_.launches();
  for (size_t i = 0; i < launches.size(); ++i) {
    const Node& n = graph().nodes[launches[i].first];
    Row& row = rows[std::make_pair(n.op->name, std::string(launches[i].second))];
    row.op = n.op->name;
    row.kernel = launches[i].second;
    const NodeWork c = WorkOfLaunch(executable_, i);
    ++row.launches;
    row.ms += Milliseconds(i);
    row.flops += c.flops;
    row.bytes += c.bytes;
    row.floor_ms += FloorMs(c, limits);
  }
  std::vector<Row> out;
  for (auto& r : rows) out.push_back(std::move(r.second));
  if (const double copies = Milliseconds(launches.size()); copies > 0.001) {
    Row row;
    row.op = "store update";
    row.kernel = "memcpy";
    row.ms = copies;
    out.push_back(row);
  }
  std::sort(out.begin(), out.end(), [](const Row& a, const Row& b) { return a.ms > b.ms; });
  return out;
}

std::vector<Profile::LaunchTime> Profile::ByLaunch(const MachineLimits& limits) const {
  std::vector<LaunchTime> out;
  const auto& launches = executable_.launches();
  for (size_t i = 0; i < launches.size(); ++i) {
    const int32_t node = launches[i].first;
    out.push_back({i, node, Milliseconds(i), FloorMs(WorkOfLaunch(executable_, i), limits)});
  }
  std::sort(out.begin(), out.end(), [](const LaunchTime& a, const LaunchTime& b) { return a.ms > b.ms; });
  return out;
}

std::string Profile::ChromeTrace() const {
  std::string out = "{\"traceEvents\": [\n";
  out +=
      "{\"ph\": \"M\", \"pid\": 0, \"name\": \"process_name\", \"args\": {\"name\": \"mslua prof\"}},\n"
      "{\"ph\": \"M\", \"pid\": 0, \"tid\": 0, \"name\": \"thread_name\", \"args\": {\"name\": \"compute\"}}";
  if (last_.size() > 1) {
    absl::StrAppendFormat(&out,
                          ",\n{\"ph\": \"X\", \"pid\": 0, \"tid\": 0, \"name\": \"step\", \"ts\": 0, \"dur\": %.3f}",
                          static_cast<double>(last_.back() - last_[0]) * 1e-3);
  }
  const auto& launches = executable_.launches();
  for (size_t i = 0; i + 2 < last_.size(); ++i) {
    const Node& n = graph().nodes[launches[i].first];
    absl::StrAppend(&out, ",\n", "{\"ph\": \"X\", \"pid\": 0, \"tid\": 0, \"cat\": \"", launches[i].second,
                    "\", \"name\": \"", n.op->name, "\", ",
                    absl::StrFormat("\"ts\": %.3f, \"dur\": %.3f", static_cast<double>(last_[i] - last_[0]) * 1e-3,
                                    static_cast<double>(last_[i + 1] - last_[i]) * 1e-3),
                    ", \"args\": {\"type\": \"", ToString(n.outputs[0]), "\", \"from\": \"",
                    n.location ? absl::CEscape(ToString(*n.location)) : "", "\"}}");
  }
  return out + "\n], \"displayTimeUnit\": \"ms\"}\n";
}

// What lies in the workspace at the node where it is fullest, largest first.
std::vector<ArenaEntry> ArenaAtPeak(const std::vector<ArenaEntry>& arena) {
  std::vector<ArenaEntry> peak;
  int64_t most = -1;
  for (const ArenaEntry& at : arena) {  // the fullest node is one at which something begins
    const auto lives = [&](const ArenaEntry& e) { return e[4] <= at[4] && at[4] <= e[5]; };
    int64_t bytes = 0;
    for (const ArenaEntry& e : arena) bytes += lives(e) ? e[3] : 0;
    if (bytes <= most) continue;
    most = bytes;
    peak.clear();
    std::copy_if(arena.begin(), arena.end(), std::back_inserter(peak), lives);
  }
  std::stable_sort(peak.begin(), peak.end(), [](const ArenaEntry& a, const ArenaEntry& b) { return a[3] > b[3]; });
  return peak;
}

constexpr double kMiB = 1 << 20;

using StepFn = std::function<Status()>;

double Milliseconds() { return Seconds() * 1e3; }

// The times of `count` steps in ms, sorted.
StatusOr<std::vector<double>> TimeSteps(const StepFn& step, int64_t count) {
  std::vector<double> ms(static_cast<size_t>(count));
  for (double& t : ms) {
    const double begin = Milliseconds();
    RETURN_IF_ERROR(step());
    t = Milliseconds() - begin;
  }
  std::sort(ms.begin(), ms.end());
  return ms;
}

double PeakMiB() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double Rate(double amount, double ms) { return ms > 0 ? amount / ms * 1e-6 : 0; }

// `device`: null where the step runs on the CPU.
void PrintSteps(const std::vector<double>& ms, const PlanReport& plan, const DeviceRun* device, bool json) {
  const double median = ms[ms.size() / 2];
  const double device_mib = device == nullptr ? 0 : static_cast<double>(device->device_bytes()) / kMiB;
  if (json) {
    std::printf(
        "{\"step_ms\": %.6g, \"min_ms\": %.6g, \"max_ms\": %.6g, \"steps\": %zu, \"threads\": %d, \"kernels\": %lld, "
        "\"workspace_mb\": %.1f, \"peak_mb\": %.1f%s}\n",
        median, ms.front(), ms.back(), ms.size(), ComputeThreads(), static_cast<long long>(plan.kernels),
        static_cast<double>(plan.workspace_bytes) / kMiB, PeakMiB(),
        device == nullptr ? "" : absl::StrFormat(", \"device_mb\": %.1f", device_mib).c_str());
    return;
  }
  std::printf(
      "step %.4g ms (median of %zu; %.4g to %.4g), %d threads, %lld kernels, %.1f MiB of activations, peak %.1f "
      "MiB%s\n",
      median, ms.size(), ms.front(), ms.back(), ComputeThreads(), static_cast<long long>(plan.kernels),
      static_cast<double>(plan.workspace_bytes) / kMiB, PeakMiB(),
      device == nullptr ? "" : absl::StrFormat(", %.1f MiB of the device", device_mib).c_str());
}

std::string LimitsText(const MachineLimits& l, const Device* device) {
  if (device == nullptr)
    return absl::StrFormat("machine: %.0f GFLOP/s f32, %.0f bf16, %.1f GB/s", l.f32_flops * 1e-9, l.bf16_flops * 1e-9,
                           l.bandwidth * 1e-9);
  return absl::StrFormat(
      "device: %.4g TFLOP/s f32, %.4g bf16, %.4g f16, %.4g f64, %.4g GB/s, %.3g us a launch, %.3g GB/s to the host",
      l.f32_flops * 1e-12, l.bf16_flops * 1e-12, l.f16_flops * 1e-12, l.f64_flops * 1e-12, l.bandwidth * 1e-9,
      l.launch_seconds * 1e6, l.copy_bandwidth * 1e-9);
}

std::string LimitsJson(const MachineLimits& l) {
  return absl::StrFormat(
      "{\"ceilings\": {\"f32_flops\": %.4g, \"bf16_flops\": %.4g, \"f16_flops\": %.4g, \"f64_flops\": %.4g, "
      "\"bytes_per_second\": %.4g, \"launch_seconds\": %.4g, \"copy_bytes_per_second\": %.4g}}",
      l.f32_flops, l.bf16_flops, l.f16_flops, l.f64_flops, l.bandwidth, l.launch_seconds, l.copy_bandwidth);
}

void PrintOperators(const Profile& profile, const MachineLimits& limits, const Device* device, bool json) {
  const std::vector<Profile::Row> rows = profile.Operators(limits);
  double total = 0, floor = 0;
  for (const Profile::Row& r : rows) total += r.ms, floor += r.floor_ms;
  if (!json) {
    std::printf("%s\n\n", LimitsText(limits, device).c_str());
    std::printf("%-34s %-9s %5s %9s %6s %8s %7s %9s\n", "operator", "kernel", "count", "ms", "%", "GFLOP/s", "GB/s",
                "floor ms");
  }
  for (const Profile::Row& r : rows) {
    if (json) {
      std::printf(
          "{\"operator\": \"%s\", \"kernel\": \"%s\", \"count\": %lld, \"ms\": %.6g, \"gflops\": %.4g, \"gbs\": %.4g, "
          "\"floor_ms\": %.6g}\n",
          r.op.c_str(), r.kernel.c_str(), static_cast<long long>(r.launches), r.ms, Rate(r.flops, r.ms),
          Rate(r.bytes, r.ms), r.floor_ms);
    } else {
      std::printf("%-34s %-9s %5lld %9.4f %6.1f %8.1f %7.1f %9.4f\n", r.op.c_str(), r.kernel.c_str(),
                  static_cast<long long>(r.launches), r.ms, 100 * r.ms / total, Rate(r.flops, r.ms),
                  Rate(r.bytes, r.ms), r.floor_ms);
    }
  }
  if (!json) std::printf("%-34s %-9s %5s %9.4f %6.1f %8s %7s %9.4f\n", "sum", "", "", total, 100.0, "", "", floor);
}

std::string Describe(const Graph& graph, int32_t node) {
  const Node& n = graph.nodes[node];
  std::string operands;
  for (Value v : n.inputs) absl::StrAppend(&operands, operands.empty() ? "" : ", ", ToString(graph.TypeOf(v)));
  if (operands.size() > 90) operands = operands.substr(0, 87) + "...";
  return absl::StrCat("%", node, " ", n.op->name, "(", operands, ") -> ", ToString(n.outputs[0]),
                      n.location ? absl::StrCat("  ", n.location->scope) : "");
}

// What a launch reaches of the limit that its work meets first, and what its kernels take of the device.
std::string OnDeviceText(const Executable& executable, const Profile::LaunchTime& l) {
  const NodeWork w = WorkOfLaunch(executable, l.launch);
  const KernelUse use = DeviceRunOf(&executable)->UseOf(l.launch);
  std::string text = absl::StrFormat("%7.1f GB/s %8.3f TFLOP/s %5.1f %%", Rate(w.bytes, l.ms),
                                     Rate(w.flops, l.ms) * 1e-3, l.ms > 0 ? 100 * l.floor_ms / l.ms : 0);
  if (use.registers > 0)
    absl::StrAppendFormat(&text, "  %d registers, %d B shared, %d B spilled", use.registers, use.shared_bytes,
                          use.spilled_bytes);
  return text;
}

void PrintLaunchesJson(const Profile& profile, const Executable& executable, const MachineLimits& limits) {
  std::printf("%s\n", LimitsJson(limits).c_str());
  for (const Profile::LaunchTime& l : profile.ByLaunch(limits)) {
    const Node& n = executable.graph().nodes[l.node];
    const NodeWork w = WorkOfLaunch(executable, l.launch);
    const KernelUse use = DeviceRunOf(&executable)->UseOf(l.launch);
    std::printf(
        "{\"launch\": %zu, \"operator\": \"%s\", \"kernel\": \"%s\", \"from\": \"%s\", \"ms\": %.6g, "
        "\"floor_ms\": %.6g, \"gbs\": %.4g, \"tflops\": %.4g, \"kernels\": %d, \"registers\": %d, "
        "\"shared_bytes\": %d, \"spilled_bytes\": %d}\n",
        l.launch, n.op->name.c_str(), executable.launches()[l.launch].second,
        n.location ? absl::CEscape(ToString(*n.location)).c_str() : "", l.ms, l.floor_ms, Rate(w.bytes, l.ms),
        Rate(w.flops, l.ms) * 1e-3, use.kernels, use.registers, use.shared_bytes, use.spilled_bytes);
  }
}

// The same step in two ways: launch by launch, and as the captured graph that a training runs.
void PrintTotals(double one_by_one, double captured, bool json) {
  std::printf(json ? "{\"one_by_one_ms\": %.6g, \"captured_ms\": %.6g}\n"
                   : "\nlaunches one by one %.4g ms, captured step %.4g ms\n",
              one_by_one, captured);
}

void PrintDetails(const Profile& profile, const Executable& executable, const MachineLimits& limits) {
  constexpr size_t kShown = 20;
  std::printf("\nslowest launches\n");
  const std::vector<Profile::LaunchTime> launches = profile.ByLaunch(limits);
  for (size_t i = 0; i < std::min(kShown, launches.size()); ++i) {
    std::printf("%9.4f ms, floor %.4f  %s\n", launches[i].ms, launches[i].floor_ms,
                Describe(executable.graph(), launches[i].node).c_str());
    if (DeviceRunOf(&executable) != nullptr)
      std::printf("             %s\n", OnDeviceText(executable, launches[i]).c_str());
  }
  std::printf("\nworkspace where it is fullest\n");
  const std::vector<ArenaEntry> arena = ArenaAtPeak(executable.arena());
  for (size_t i = 0; i < std::min(kShown, arena.size()); ++i) {
    const ArenaEntry& e = arena[i];
    std::printf("%9.2f MiB at %9.2f, nodes %lld to %lld  %s%s\n", static_cast<double>(e[3]) / kMiB,
                static_cast<double>(e[2]) / kMiB, static_cast<long long>(e[4]), static_cast<long long>(e[5]),
                e[1] < 0 ? "scratch of " : "", Describe(executable.graph(), static_cast<int32_t>(e[0])).c_str());
  }
}

}  // namespace

NodeWork WorkOf(const Graph& graph, const Node& n) {
  NodeWork w;
  std::vector<TensorType> inputs;
  for (Value v : n.inputs) {
    inputs.push_back(graph.TypeOf(v));
    w.bytes += static_cast<double>(inputs.back().bytes());
  }
  for (const TensorType& t : n.outputs) w.bytes += static_cast<double>(t.bytes());
  if (!inputs.empty()) w.type = inputs[0].dtype;
  const auto outputs = absl::MakeConstSpan(n.outputs.data(), n.outputs.size());
  if (n.op->flops)
    w.flops = n.op->flops(n.attrs, inputs, outputs);
  else
    for (const TensorType& t : n.outputs) w.flops += static_cast<double>(t.elements());
  return w;
}

StatusOr<MachineLimits> MeasureMachine() {
  MachineLimits limits;
  ASSIGN_OR_RETURN(limits.f32_flops, MatmulFlops(DType::kF32));
  ASSIGN_OR_RETURN(limits.bf16_flops, MatmulFlops(DType::kBF16));
  limits.bandwidth = Bandwidth();
  return limits;
}

double FlopsOf(const Executable& executable) {
  double flops = 0;
  if (const ShapedExecutable* const shaped = ShapedOf(&executable)) {
    for (int64_t s = 0; s < shaped->shapes(); ++s) flops += shaped->share(s) * FlopsOf(shaped->plan(s));
    return flops;
  }
  for (size_t i = 0; i < executable.launches().size(); ++i) flops += WorkOfLaunch(executable, i).flops;
  return flops;
}

Status ReportProfile(Executable* executable, const std::function<Status()>& step, int64_t steps, bool steps_only,
                     bool json, const std::string& trace) {
  const double begin = Milliseconds();
  RETURN_IF_ERROR(step());
  if (json) {
    std::printf("{\"first_step_ms\": %.6g, \"compile_s\": %.4g}\n", Milliseconds() - begin,
                executable->report().compile_seconds);
    std::fflush(stdout);
  }
  for (int64_t i = 0; i < std::min<int64_t>(steps / 5 + 1, 20); ++i) RETURN_IF_ERROR(step());
  ASSIGN_OR_RETURN(const std::vector<double> ms, TimeSteps(step, steps));
  const DeviceRun* const on_device = DeviceRunOf(executable);
  PrintSteps(ms, executable->report(), on_device, json);
  if (steps_only) return absl::OkStatus();
  Device* const device = on_device == nullptr ? nullptr : on_device->device();
  ASSIGN_OR_RETURN(const MachineLimits limits, device == nullptr ? MeasureMachine() : MeasureDevice(device));
  Profile profile(*executable);
  std::vector<int64_t> timeline;
  executable->SetTimeline(&timeline);
  Status status;
  for (int64_t i = 0; i < steps && status.ok(); ++i) {
    status = step();
    profile.Add(timeline);
  }
  executable->SetTimeline(nullptr);
  RETURN_IF_ERROR(status);
  PrintOperators(profile, limits, device, json);
  if (device != nullptr) PrintTotals(profile.StepMs(), ms[ms.size() / 2], json);
  if (device != nullptr && json) PrintLaunchesJson(profile, *executable, limits);
  if (!json) PrintDetails(profile, *executable, limits);
  return trace.empty() ? absl::OkStatus() : WriteFileAtomically(trace, profile.ChromeTrace());
}

}  // namespace mslua
