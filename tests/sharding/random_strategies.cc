// Trains random networks with random strategies on ranks that are threads, and compares losses and all stored values
// with those of one rank. random_strategies.lua draws the cases.
//
//   bazel run //tests/sharding:random_strategies -- --seed 1 --cases 2000
//   random_strategies --only 17    one case, with its strategies and differences
//
// Prints a line for each case that differs or fails and a summary; the exit code is 1 where there is one.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "collectives/groups.h"
#include "core/base/dtype.h"
#include "core/checkpoint/checkpoint.h"
#include "gflags/gflags.h"
#include "lua/testing/rank_sessions.h"

DEFINE_string(script, "", "random_strategies.lua");
DECLARE_int64(seed);  // of cli/common_flags.cc, which is part of this program: here the seed of the first case
DEFINE_int64(cases, 40, "number of cases");
DEFINE_int64(only, -1, "run the case of this seed alone, and print its strategies and differences");

namespace mslua {
namespace {

using testing::Numbers;
using testing::RunSessions;

// What one rank says of its training: the chunk's results.
struct Report {
  std::string head, error;  // "ranks limit kind | ..."; an error where it failed
  std::vector<double> losses, metrics;
  std::string strategies;
};

// Stored values by name.
using Values = std::map<std::string, std::vector<double>>;

Report Parse(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, absl::MaxSplits('\n', 3));
  Report r;
  if (lines.size() < 3 || lines[0].find(" | ") == std::string::npos || Numbers(lines[1]).empty()) {
    r.error = text;
    return r;
  }
  r.head = lines[0];
  r.losses = Numbers(lines[1]);
  r.metrics = Numbers(lines[2]);
  if (lines.size() > 3) r.strategies = lines[3];
  return r;
}

// The values of the checkpoint in a run's folder; a failure is stored in `error`.
Values ValuesIn(const std::string& folder, std::string* error) {
  Values values;
  auto found = checkpoint::LoadCheckpoint(folder + "/ckpt");
  if (!found.ok()) {
    *error = found.status().ToString();
    return values;
  }
  for (const auto& t : (*found)->manifest().tensors) {
    std::string bytes(static_cast<size_t>(t.type.bytes()), '\0');
    const Status read = (*found)->Read(t.name, &bytes[0]);
    if (!read.ok()) {
      *error = read.ToString();
      return values;
    }
    std::vector<double>& v = values[t.name];
    for (int64_t i = 0; i < t.type.elements(); ++i) v.push_back(LoadAsDouble(t.type.dtype, bytes.data(), i));
  }
  return values;
}

struct Run {
  std::vector<Report> ranks;
  Values values;
  std::string error;
};

class Driver {
 public:
  explicit Driver(std::string folder) : folder_(std::move(folder)) {}

  int Go() {
    const int64_t first = FLAGS_only >= 0 ? FLAGS_only : FLAGS_seed,
                  last = FLAGS_only >= 0 ? FLAGS_only : FLAGS_seed + FLAGS_cases - 1;
    for (int64_t seed = first; seed <= last; ++seed) Case(seed);
    for (const auto& [kind, counts] : kinds_)
      std::printf("%-9s %4d cases, %4d equal, %3d ill-conditioned, %3d differ, %3d fail\n", kind.c_str(), counts.cases,
                  counts.equal, counts.ill, counts.differ, counts.fail);
    std::printf("%d cases diverge on one rank\n", diverged_);
    std::printf("largest difference of the equal ones: float64 %.2g, float32 %.2g; %.0f s of processor time\n",
                largest_[0], largest_[1], static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
    return wrong_ == 0 ? 0 : 1;
  }

 private:
  struct Counts {
    int cases = 0, equal = 0, ill = 0, differ = 0, fail = 0;
  };

  // `perturb`: with weights whose last bits differ; `in_double`: in float64 whatever the seed draws.
  Run Train(int64_t seed, int ranks, bool perturb, bool in_double = false) {
    const std::string out = folder_ + "/run";
    std::filesystem::remove_all(out);
    const std::string code =
        absl::StrCat("return dofile('", FLAGS_script, "')(", seed, ", {alone = ", ranks == 1 ? "true" : "false",
                     ", perturb = ", perturb ? "true" : "false", ", double = ", in_double ? "true" : "false",
                     ", folder = '", out, "', describe = ", FLAGS_only >= 0 ? "true" : "false", "})");
    Run run;
    for (const std::string& text : RunSessions(ranks, code)) run.ranks.push_back(Parse(text));
    for (const Report& r : run.ranks) {
      if (run.error.empty()) run.error = r.error;
    }
    if (run.error.empty()) run.values = ValuesIn(out, &run.error);
    return run;
  }

  // The largest difference of two runs relative to the largest element of what differs, and its name. In data parallel
  // training the loss of a step is the mean of the ranks' losses.
  static double Difference(const Run& want, const Run& got, bool mean, std::string* where) {
    double worst = 0;
    const auto compare = [&](const std::vector<double>& a, const std::vector<double>& b, const std::string& name) {
      double most = 0, apart = a.size() == b.size() ? 0 : HUGE_VAL;
      for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
        most = std::max(most, std::abs(a[i]));
        const double d = std::abs(a[i] - b[i]);
        apart = std::isfinite(d) ? std::max(apart, d) : HUGE_VAL;
      }
      // Means of what has been centred are rounding errors.
      const double floor = absl::EndsWith(name, "moving_mean") ? 1e-3 : 1e-300;
      const double relative = apart / std::max(most, floor);
      if (apart == 0 || relative <= worst) return;
      worst = relative;
      *where = name;
    };
    std::vector<double> losses;
    for (size_t i = 0; i < got.ranks[0].losses.size(); ++i) {
      double sum = 0;
      for (const Report& r : got.ranks) sum += i < r.losses.size() ? r.losses[i] : NAN;
      losses.push_back(sum / static_cast<double>(got.ranks.size()));
    }
    for (size_t r = 0; r < got.ranks.size(); ++r) {
      compare(want.ranks[0].losses, mean ? losses : got.ranks[r].losses, absl::StrCat("losses of rank ", r));
    }
    // Metrics are float32 numbers.
    for (size_t r = 0; r < got.ranks.size(); ++r) {
      const std::vector<double>&a = want.ranks[0].metrics, &b = got.ranks[r].metrics;
      if (a.size() == b.size() && (a.empty() || std::abs(a[0] - b[0]) <= 1e-5 * std::abs(a[0]))) continue;
      worst = HUGE_VAL;
      *where = absl::StrCat("evaluation of rank ", r);
    }
    for (const auto& [name, values] : want.values) {
      const auto found = got.values.find(name);
      compare(values, found == got.values.end() ? std::vector<double>() : found->second, name);
    }
    if (want.values.size() != got.values.size()) {
      worst = HUGE_VAL;
      *where = "the number of stored values";
    }
    return worst;
  }

  void Case(int64_t seed) {
    const Run alone = Train(seed, 1, false);
    if (alone.error.find("the loss is ") != std::string::npos) {
      ++diverged_;  // there is nothing to compare with
      return;
    }
    if (!alone.error.empty()) return Fail(seed, "alone", absl::StrCat("on one rank: ", alone.error));
    const std::vector<std::string> words = absl::StrSplit(alone.ranks[0].head, ' ');
    int ranks = 0;
    double limit = 0;
    if (!absl::SimpleAtoi(words[0], &ranks) || !absl::SimpleAtod(words[1], &limit))
      return Fail(seed, "alone", alone.ranks[0].head);
    const std::string& kind = words[2];
    const Run together = Train(seed, ranks, false);
    if (!together.error.empty()) return Fail(seed, kind, together.error);
    Counts& counts = kinds_[kind];
    ++counts.cases;
    std::string where;
    const double apart = Difference(alone, together, kind == "local", &where);
    if (FLAGS_only >= 0)
      std::printf("%s\n%s\ndifference %.3g at %s\n", alone.ranks[0].head.c_str(), together.ranks[0].strategies.c_str(),
                  apart, where.c_str());
    if (apart <= limit) {
      ++counts.equal;
      double& largest = largest_[limit > 1e-8 ? 1 : 0];
      largest = std::max(largest, apart);
      return;
    }
    // Weights that differ in their last bits may make as large a difference on one rank.
    std::string own_where;
    const Run perturbed = Train(seed, 1, true);
    const double own = perturbed.error.empty() ? Difference(alone, perturbed, false, &own_where) : HUGE_VAL;
    if (apart <= 30 * own || (limit > 1e-8 && apart < 1e-3 && EqualInDouble(seed, ranks, kind))) {
      ++counts.ill;
      return;
    }
    ++counts.differ;
    ++wrong_;
    std::printf("%d differs: %.3g at %s (last bits of the weights: %.3g at %s)\n  %s\n", static_cast<int>(seed), apart,
                where.c_str(), own, own_where.c_str(), alone.ranks[0].head.c_str());
    std::fflush(stdout);
  }

  // Sums in another order may cost float32 more digits than other weights do; float64 tells them from wrong numbers.
  bool EqualInDouble(int64_t seed, int ranks, const std::string& kind) {
    const Run alone = Train(seed, 1, false, true), together = Train(seed, ranks, false, true);
    std::string where;
    return alone.error.empty() && together.error.empty() &&
           Difference(alone, together, kind == "local", &where) <= 1e-10;
  }

  void Fail(int64_t seed, const std::string& kind, const std::string& what) {
    ++kinds_[kind].cases;
    ++kinds_[kind].fail;
    ++wrong_;
    std::printf("%d fails: %s\n", static_cast<int>(seed), what.c_str());
    std::fflush(stdout);
  }

  const std::string folder_;
  std::map<std::string, Counts> kinds_;
  double largest_[2] = {0, 0};  // of cases in float64, float32
  int wrong_ = 0, diverged_ = 0;
};

int Main(int argc, char** argv) {
  gflags::SetCommandLineOptionWithMode("seed", "1", gflags::SET_FLAGS_DEFAULT);
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (FLAGS_script.empty() || argc > 1) {
    std::fprintf(stderr, "usage: random_strategies --script FILE [--seed S] [--cases N] [--only S]\n");
    return 2;
  }
  // Runs and plans of the search stay out of the user's folders.
  std::string folder = std::filesystem::temp_directory_path().string() + "/random_strategies_XXXXXX";
  if (::mkdtemp(&folder[0]) == nullptr) return 2;
  ::setenv("XDG_CACHE_HOME", (folder + "/cache").c_str(), 1);
  FLAGS_script = std::filesystem::absolute(FLAGS_script).string();
  const int code = Driver(folder).Go();
  std::filesystem::remove_all(folder);
  return code;
}

}  // namespace
}  // namespace mslua

int main(int argc, char** argv) { return mslua::Main(argc, argv); }
