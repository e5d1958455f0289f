#include "attach/server/step_profile.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attach/server/answer_json.h"
#include "core/graph/collective_node.h"

namespace mslua::endpoint {
namespace {

constexpr int kCompute = 0, kCollectives = 1, kData = 2, kThreads = 3, kSteps = 3;  // the last is no thread's work

Json NameOfThread(int rank, int thread, const char* name) {
  return {{"ph", "M"}, {"pid", rank}, {"tid", thread}, {"name", "thread_name"}, {"args", {{"name", name}}}};
}

}  // namespace

int64_t StepProfile::Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

StepProfile::~StepProfile() { Measure(nullptr); }

void StepProfile::Measure(Executable* executable) {
  if (executable_ != nullptr) executable_->SetTimeline(nullptr);
  executable_ = executable;
  if (executable_ != nullptr) executable_->SetTimeline(&timeline_);
}

void StepProfile::AddStep(int64_t step) {
  if (executable_ == nullptr) return;
  const auto& launches = executable_->launches();
  if (!complete() && timeline_.size() == launches.size() + 2) {
    const Graph& graph = executable_->graph();
    if (first_ns_ == 0) first_ns_ = left_boundary_ns_;
    last_ns_ = timeline_.back();
    steps_.push_back({step, left_boundary_ns_, last_ns_ - left_boundary_ns_});
    events_.push_back({"data", "", "", left_boundary_ns_, timeline_.front() - left_boundary_ns_, kData});
    for (size_t i = 0; i < launches.size(); ++i) {
      const Node& n = graph.nodes[launches[i].first];
      events_.push_back(
          {n.op->name, launches[i].second,
           absl::StrCat(ToString(n.outputs[0]), n.location ? absl::StrCat(" ", ToString(*n.location)) : ""),
           timeline_[i], timeline_[i + 1] - timeline_[i], IsCollective(n) ? kCollectives : kCompute});
    }
    --left_;
  }
  timeline_.clear();
  Measure(nullptr);
}

void StepProfile::LeaveBoundary(Executable* next) {
  Measure(next);
  left_boundary_ns_ = Now();
}

std::string StepProfile::Serialize(int rank) const {
  std::array<int64_t, kThreads> sums = {};
  std::string events;
  for (const Event& e : events_) {
    sums[e.thread] += e.length_ns;
    const Json event = {{"ph", "X"},
                        {"pid", rank},
                        {"tid", e.thread},
                        {"name", e.name},
                        {"cat", e.kernel},
                        {"ts", static_cast<double>(e.begin_ns - zero_ns_) * 1e-3},
                        {"dur", static_cast<double>(e.length_ns) * 1e-3},
                        {"args", {{"result", e.detail}}}};
    absl::StrAppend(&events, ",\n", Dump(event));
  }
  for (const Step& s : steps_) {
    const Json event = {{"ph", "X"},
                        {"pid", rank},
                        {"tid", kSteps},
                        {"name", absl::StrCat("step ", s.number)},
                        {"cat", "step"},
                        {"ts", static_cast<double>(s.begin_ns - zero_ns_) * 1e-3},
                        {"dur", static_cast<double>(s.length_ns) * 1e-3}};
    absl::StrAppend(&events, ",\n", Dump(event));
  }
  absl::StrAppend(
      &events, ",\n",
      Dump({{"ph", "M"}, {"pid", rank}, {"name", "process_name"}, {"args", {{"name", absl::StrCat("rank ", rank)}}}}));
  absl::StrAppend(&events, ",\n", Dump(NameOfThread(rank, kSteps, "steps")));
  for (const auto& [thread, name] :
       {std::pair<int, const char*>{kCompute, "compute"}, {kCollectives, "collectives"}, {kData, "data"}})
    absl::StrAppend(&events, ",\n", Dump(NameOfThread(rank, thread, name)));
  return absl::StrCat(sums[kCompute], " ", sums[kCollectives], " ", sums[kData], " ", last_ns_ - first_ns_, "\n",
                      events);
}

MergedTrace StepProfile::Merge(const std::vector<std::string>& ranks) {
  MergedTrace merged;
  std::array<double, kThreads> sums = {};
  double total = 0, most = 0;
  size_t slowest = 0;
  std::string events;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const size_t end = ranks[r].find('\n');
    long long compute = 0, collectives = 0, data = 0, all = 0;
    if (end == std::string::npos ||
        std::sscanf(ranks[r].c_str(), "%lld %lld %lld %lld", &compute, &collectives, &data, &all) != 4)
      continue;
    sums[kCompute] += static_cast<double>(compute);
    sums[kCollectives] += static_cast<double>(collectives);
    sums[kData] += static_cast<double>(data);
    total += static_cast<double>(all);
    // Ranks wait for the slowest in their collectives: it is the one with the most of its own to do.
    if (static_cast<double>(compute + data) > most) most = static_cast<double>(compute + data), slowest = r;
    events += ranks[r].substr(end + 1);
  }
  merged.json = absl::StrCat("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", events.empty() ? "" : events.substr(1),
                             "\n]}\n");
  if (total == 0) return merged;
  const double mean = (sums[kCompute] + sums[kData]) / static_cast<double>(ranks.size());
  const double other = std::max(0.0, total - sums[kCompute] - sums[kCollectives] - sums[kData]);
  merged.summary = absl::StrFormat("compute %.0f%%  collectives %.0f%%  data %.0f%%  between steps %.0f%%",
                                   100 * sums[kCompute] / total, 100 * sums[kCollectives] / total,
                                   100 * sums[kData] / total, 100 * other / total);
  if (ranks.size() > 1 && mean > 0)
    absl::StrAppendFormat(&merged.summary, "  slowest rank %d (+%.0f%%)", slowest, 100 * (most / mean - 1));
  return merged;
}

}  // namespace mslua::endpoint
