#include "attach/server/snapshot.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "attach/server/stack.h"
#include "nlohmann/json.hpp"

namespace mslua::endpoint {
namespace {

using Json = nlohmann::json;

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string HostName() {
  char name[256] = "?";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string Bytes(int64_t n) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto v = static_cast<double>(n);
  int u = 0;
  for (; v >= 1024 && u < 4; ++u) v /= 1024;
  return absl::StrFormat("%.*f %s", u == 0 ? 0 : 1, v, units[u]);
}

int64_t ResidentBytes() {
  std::FILE* f = std::fopen("/proc/self/statm", "re");
  if (f == nullptr) return 0;
  long long total = 0, resident = 0;
  const int read = std::fscanf(f, "%lld %lld", &total, &resident);
  std::fclose(f);
  return read == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace

Snapshots::Snapshots(const TrainingView& view)
    : view_(view),
      host_(HostName()),
      report_(view.trainer->executable()->report()),
      graph_(ToString(view.trainer->executable()->graph())) {
  for (const auto& e : view.store->entries())
    stored_.push_back({e->name, e->kind, e->type, view.place ? view.place(e->name) : TensorPlace()});
  store_bytes_ = view.store->bytes();
}

StatusOr<Answer> Snapshots::Take(const Command& command) {
  const std::string& name = command.def->name;
  if (name == "ranks") return Ranks();
  if (name == "params") return Params(command);
  if (name == "layout") return Layout(command);
  if (name == "mem") return Memory();
  if (name == "graph") return GraphText(command);
  if (name == "plan") return Plan();
  if (name == "diag") return Diagnosis();
  if (name == "stack") return Stack();
  if (name == "plot") return Plot(command);
  if (name == "tail") return Tail(command);
  if (name == "comm") return Calls(command);
  return absl::InternalError(absl::StrCat(".", name, " is no snapshot"));
}

std::string Snapshots::RankHeading() {
  return absl::StrFormat("%-5s%-16s%-9s%-15s%-9s%-11s%-10s%s\n", "rank", "host", "pid", "phase", "step", "samples/s",
                         "rss", "age");
}

std::string Snapshots::RankLine() {
  const TrainProgress& p = view_.trainer->progress();
  const double samples_per_s = p.SamplesPerSecond();
  const std::string rate = absl::StrFormat(samples_per_s < 10 ? "%.3g" : "%.1f", samples_per_s);
  return absl::StrFormat("%-5d%-16s%-9d%-15s%-9d%-11s%-10s%.1fs\n", view_.rank, host_, getpid(),
                         PhaseName(p.phase.load()), p.step.load(), rate, Bytes(ResidentBytes()),
                         1e-9 * static_cast<double>(TrainProgress::CoarseNow() - p.since_ns.load()));
}

Answer Snapshots::Ranks() {
  TrainProgress& p = view_.trainer->progress();
  const Json json = {{"rank", view_.rank},
                     {"host", host_},
                     {"pid", getpid()},
                     {"phase", PhaseName(p.phase.load())},
                     {"step", p.step.load()},
                     {"epoch", p.epoch.load() + 1},
                     {"samples_per_s", p.SamplesPerSecond()},
                     {"rss", ResidentBytes()}};
  return {RankHeading() + RankLine(), Dump(json)};
}

StatusOr<Answer> Snapshots::Params(const Command& command) const {
  const std::string pattern = command.args.empty() ? "" : command.args[0];
  std::string text;
  Json list = Json::array();
  int64_t count = 0, elements = 0;
  for (const StoredType& s : stored_) {
    if (!absl::StrContains(s.name, pattern)) continue;
    absl::StrAppendFormat(&text, "%-48s %-20s %-10s %s\n", s.name, mslua::ToString(s.type), s.kind,
                          Bytes(s.type.bytes()));
    list.push_back({{"name", s.name}, {"type", mslua::ToString(s.type)}, {"kind", s.kind}, {"bytes", s.type.bytes()}});
    ++count;
    elements += s.type.elements();
  }
  if (count == 0) return absl::NotFoundError(absl::StrCat("no parameter or state contains '", pattern, "'"));
  absl::StrAppendFormat(&text, "%d tensors, %d elements\n", count, elements);
  return Answer{text, Dump({{"tensors", list}})};
}

// Of this rank; the hub draws the parts of all.
StatusOr<Answer> Snapshots::Layout(const Command& command) const {
  for (const StoredType& s : stored_) {
    if (s.name != command.args[0] && !absl::EndsWith(s.name, "." + command.args[0]) &&
        !absl::EndsWith(s.name, "/" + command.args[0]))
      continue;
    const bool all = s.place.whole.empty();
    const Json json = {{"rank", view_.rank},
                       {"name", s.name},
                       {"dtype", Name(s.type.dtype)},
                       {"whole", all ? s.type.shape : s.place.whole},
                       {"begin", all ? Shape(s.type.shape.size(), 0) : s.place.begin},
                       {"part", s.type.shape},
                       {"bytes", s.type.bytes()},
                       {"own", s.place.own},
                       {"layout", s.place.layout}};
    return Answer{absl::StrFormat("%s  %s\n", s.name, mslua::ToString(s.type)), Dump(json)};
  }
  return absl::NotFoundError(absl::StrCat("there is no parameter or state '", command.args[0], "' (.params)"));
}

// The last calls of this rank's flight recorder; the hub joins those of all ranks.
StatusOr<Answer> Snapshots::Calls(const Command& command) const {
  int64_t most = 10;
  if (!command.args.empty()) {
    ASSIGN_OR_RETURN(most, ParseCount(command.args[0], 1, ".comm"));
  }
  if (!view_.calls) return absl::FailedPreconditionError("the job has one rank and calls no collectives");
  std::string text;
  Json list = Json::array();
  for (const RecordedCall& c : view_.calls(static_cast<int>(std::min<int64_t>(most, 60)))) {
    absl::StrAppendFormat(&text, "#%d of %d ranks  %s  %s %.3f s\n", c.sequence, c.group_size, c.what, c.state,
                          c.seconds);
    list.push_back({{"n", c.sequence}, {"of", c.group_size}, {"what", c.what}, {"state", c.state}, {"s", c.seconds}});
  }
  return Answer{text.empty() ? "no collective call yet\n" : text, Dump({{"rank", view_.rank}, {"calls", list}})};
}

Answer Snapshots::Memory() const {
  const int64_t resident = ResidentBytes();
  const Json json = {{"resident", resident},
                     {"store", store_bytes_},
                     {"activations", report_.workspace_bytes},
                     {"activations_without_reuse", report_.sum_of_value_bytes}};
  return {absl::StrFormat("resident      %s\nstore         %s in %d tensors\nactivations   %s (%s without reuse)\n",
                          Bytes(resident), Bytes(store_bytes_), stored_.size(), Bytes(report_.workspace_bytes),
                          Bytes(report_.sum_of_value_bytes)),
          Dump(json)};
}

Answer Snapshots::Plan() const {
  const Json json = {
      {"nodes", report_.nodes},   {"kernels", report_.kernels},           {"in_place", report_.in_place},
      {"copies", report_.copies}, {"workspace", report_.workspace_bytes}, {"compile_seconds", report_.compile_seconds}};
  return {
      absl::StrFormat("%d nodes in %d kernels, %d written in place, %d copied; %s of activations; compiled in %.2f s\n",
                      report_.nodes, report_.kernels, report_.in_place, report_.copies, Bytes(report_.workspace_bytes),
                      report_.compile_seconds),
      Dump(json)};
}

StatusOr<Answer> Snapshots::GraphText(const Command& command) const {
  if (command.args.empty()) return Answer{graph_, ""};
  std::string text;
  for (const absl::string_view line : absl::StrSplit(graph_, '\n')) {
    if (absl::StrContains(line, command.args[0])) absl::StrAppend(&text, line, "\n");
  }
  if (text.empty()) return absl::NotFoundError(absl::StrCat("no node of the graph contains '", command.args[0], "'"));
  return Answer{text, ""};
}

Answer Snapshots::Diagnosis() const {
  TrainProgress& p = view_.trainer->progress();
  const auto phase = p.phase.load();
  const double age = 1e-9 * static_cast<double>(TrainProgress::CoarseNow() - p.since_ns.load());
  const std::string lua = view_.lua_at ? view_.lua_at() : "";
  const std::vector<RecordedCall> last = view_.calls ? view_.calls(1) : std::vector<RecordedCall>();
  const bool waits = !last.empty() && last[0].state == "waiting";
  const std::string call = waits ? absl::StrCat(last[0].what, " #", last[0].sequence) : "";
  const char* what = phase == TrainProgress::Phase::kData      ? "waits for data"
                     : phase == TrainProgress::Phase::kCompute ? "computes"
                     : phase == TrainProgress::Phase::kPaused  ? "is paused (.resume continues)"
                                                               : PhaseName(phase);
  const std::string in = waits ? absl::StrFormat(", %.1f s of them in %s", last[0].seconds, call) : "";
  std::string text =
      absl::StrFormat("rank %d (pid %d, host %s) %s after step %d, for %.1f s%s%s%s\n", view_.rank, getpid(), host_,
                      what, p.step.load(), age, lua.empty() ? "" : ", in Lua at ", lua, in);
  const Json json = {{"rank", view_.rank},    {"pid", getpid()}, {"host", host_}, {"phase", PhaseName(phase)},
                     {"step", p.step.load()}, {"seconds", age},  {"lua", lua},    {"collective", call}};
  return {text, Dump(json)};
}

Answer Snapshots::Stack() const {
  const std::string native = NativeStack(view_.thread, absl::Milliseconds(300));
  const std::string lua = view_.lua_stack ? view_.lua_stack() : "";
  return {absl::StrCat("rank ", view_.rank, ", native\n", native.empty() ? "  (no answer in 0.3 s)\n" : native,
                       lua.empty() ? "" : absl::StrCat("Lua\n", lua)),
          Dump({{"rank", view_.rank}, {"native", native}, {"lua", lua}})};
}

std::vector<float> Snapshots::Losses(int64_t most, int64_t* first) const {
  TrainProgress& p = view_.trainer->progress();
  const int64_t done = p.step.load();
  const int64_t n = std::min({most, done - p.first_step, TrainProgress::kLosses - 1});
  std::vector<float> losses;
  for (int64_t s = done - n; s < done; ++s) losses.push_back(p.losses[s % TrainProgress::kLosses].load());
  *first = done - n + 1;
  return losses;
}

StatusOr<Answer> Snapshots::Tail(const Command& command) const {
  int64_t n = 10, first = 0;
  if (!command.args.empty()) {
    ASSIGN_OR_RETURN(n, ParseCount(command.args[0], 1, ".tail"));
  }
  std::string text;
  Json list = Json::array();
  for (const float loss : Losses(n, &first)) {
    absl::StrAppend(&text, "step ", first++, "  loss ", loss, "\n");
    list.push_back(loss);
  }
  return Answer{text.empty() ? "no step yet\n" : text, Dump({{"losses", list}, {"last_step", first - 1}})};
}

StatusOr<Answer> Snapshots::Plot(const Command& command) const {
  if (!command.args.empty() && command.args[0] != "loss")
    return absl::InvalidArgumentError(".plot draws the loss; `mslua plot RUN --keys K` draws what metrics.jsonl holds");
  int64_t first = 0;
  const std::vector<float> losses = Losses(TrainProgress::kLosses, &first);
  if (losses.empty()) return absl::FailedPreconditionError("no step yet");
  return Answer{DrawCurve(losses, first, 64, 10, absl::StrCat(view_.name, ", loss")),
                Dump({{"first_step", first}, {"losses", losses}})};
}

std::string DrawCurve(const std::vector<float>& values, int64_t first, int width, int height,
                      const std::string& title) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const float v : values) {
    if (!std::isfinite(v)) continue;
    low = std::min<double>(low, v);
    high = std::max<double>(high, v);
  }
  if (!(low <= high)) return title + ": no finite value\n";
  const double range = high > low ? high - low : 1;
  std::vector<std::string> rows(static_cast<size_t>(height), std::string(static_cast<size_t>(width), ' '));
  const size_t n = values.size();
  // A column is the mean of its steps, or one of them where there are fewer steps than columns.
  const auto columns = std::min<size_t>(static_cast<size_t>(width), n);
  for (size_t c = 0; c < columns; ++c) {
    double sum = 0;
    int64_t count = 0;
    for (size_t i = c * n / columns; i < std::max((c + 1) * n / columns, c * n / columns + 1); ++i) {
      if (std::isfinite(values[i])) sum += values[i], ++count;
    }
    if (count == 0) continue;
    const double level = (high - sum / static_cast<double>(count)) / range * (height - 1);
    rows[static_cast<size_t>(std::lround(level))][c] = '*';
  }
  std::string text = title + "\n";
  for (int r = 0; r < height; ++r) {
    const bool labelled = r == 0 || r == height - 1 || r == height / 2;
    const std::string label =
        labelled ? absl::StrFormat("%10.4g", high - range * r / std::max(1, height - 1)) : std::string(10, ' ');
    std::string row = rows[static_cast<size_t>(r)];
    row.erase(row.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, label, " |", row, "\n");
  }
  const auto best = std::min_element(values.begin(), values.end());
  absl::StrAppendFormat(&text, "%10s  step %d..%d   last %.6g   least %.6g@%d\n", "", first,
                        first + static_cast<int64_t>(n) - 1, values.back(), *best, first + (best - values.begin()));
  return text;
}

}  // namespace mslua::endpoint
