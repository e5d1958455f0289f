// `mslua logs`, `plot` and `top`: what runs have written, and a running one refreshed.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "core/json/json.h"
#include "lua/run_folder.h"
#include "lua/verbs.h"
#include "repl/connection.h"
#include "repl/endpoint/snapshot.h"
#include "repl/interrupt.h"
#include "repl/verbs.h"

namespace mslua {
namespace {

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// A run's folder: a path; `last` or nothing, the last run that has `part`; a recipe's name, the last run of it; or a
// running job by its id. What was not given as a path is named on stderr.
StatusOr<std::string> FolderOf(const std::string& run, const std::string& part) {
  if (IsFolder(run)) return run;
  const std::string recipe = run == "last" ? "" : run;
  auto found = LastRunFolder(recipe, part);
  if (!found.ok()) {
    const auto job = endpoint::FindJob(run);
    if (job.ok() && !job->run.empty()) found = job->run;
  }
  if (found.ok())
    std::fprintf(stderr, "mslua: %s\n", found->c_str());
  else if (!recipe.empty())
    return absl::NotFoundError(absl::StrCat("'", run, "' is no run folder, no recipe with a run under runs/ that has ",
                                            part, ", and no running job (mslua ps)"));
  return found;
}

struct Curve {
  std::string name;
  std::vector<std::pair<int64_t, double>> points;
};

// The numbers called `key` of a run's metrics.jsonl; lines that are cut off are passed over, numbers that are
// NaN or infinite left out.
StatusOr<Curve> ReadCurve(const std::string& folder, const std::string& key) {
  Curve curve{absl::StrCat(folder, ": ", key), {}};
  std::ifstream file(folder + "/metrics.jsonl");
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", folder, "/metrics.jsonl: ", std::strerror(errno)));
  int64_t undefined = 0;  // JSON's null
  for (std::string line; std::getline(file, line);) {
    const auto json = ParseJson(line);
    if (!json.ok() || !json->is_object() || !json->contains(key)) continue;
    const auto step = json->find("step");
    if (step == json->end() || !step->is_number_integer()) continue;
    if ((*json)[key].is_null()) ++undefined;
    if (!(*json)[key].is_number()) continue;
    curve.points.emplace_back(step->get<int64_t>(), (*json)[key].get<double>());
  }
  if (curve.points.empty() && undefined > 0)
    return absl::NotFoundError(absl::StrCat(folder, "/metrics.jsonl: ", key, " is NaN or infinite each time"));
  if (curve.points.empty()) return absl::NotFoundError(absl::StrCat(folder, "/metrics.jsonl has no '", key, "'"));
  if (undefined > 0) {
    std::fprintf(stderr, "mslua: note: %s/metrics.jsonl: %lld values of %s are NaN or infinite and are left out\n",
                 folder.c_str(), static_cast<long long>(undefined), key.c_str());
  }
  return curve;
}

// One polyline a curve, over common axes.
std::string Svg(const std::vector<Curve>& curves) {
  constexpr double kWidth = 720, kHeight = 400, kMargin = 60;
  constexpr const char* kColours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf"};
  double x0 = HUGE_VAL, x1 = -HUGE_VAL, y0 = HUGE_VAL, y1 = -HUGE_VAL;
  for (const Curve& c : curves) {
    for (const auto& [x, y] : c.points) {
      x0 = std::min(x0, static_cast<double>(x));
      x1 = std::max(x1, static_cast<double>(x));
      y0 = std::min(y0, y);
      y1 = std::max(y1, y);
    }
  }
  const double dx = x1 > x0 ? x1 - x0 : 1, dy = y1 > y0 ? y1 - y0 : 1;
  std::string text = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
      "<path d=\"M%g %gV%gH%g\" fill=\"none\" stroke=\"black\"/>\n",
      kWidth, kHeight, kMargin, kMargin / 2, kHeight - kMargin, kWidth - kMargin / 2);
  absl::StrAppendFormat(&text, "<text x=\"4\" y=\"%g\">%.4g</text>\n<text x=\"4\" y=\"%g\">%.4g</text>\n", kMargin / 2,
                        y1, kHeight - kMargin, y0);
  absl::StrAppendFormat(&text, "<text x=\"%g\" y=\"%g\">step %g</text>\n<text x=\"%g\" y=\"%g\">%g</text>\n", kMargin,
                        kHeight - kMargin + 16, x0, kWidth - kMargin, kHeight - kMargin + 16, x1);
  for (size_t i = 0; i < curves.size(); ++i) {
    const char* const colour = kColours[i % std::size(kColours)];
    absl::StrAppendFormat(&text, "<polyline fill=\"none\" stroke=\"%s\" points=\"", colour);
    for (const auto& [x, y] : curves[i].points) {
      absl::StrAppendFormat(&text, "%.1f,%.1f ",
                            kMargin + (static_cast<double>(x) - x0) / dx * (kWidth - 1.5 * kMargin),
                            kHeight - kMargin - (y - y0) / dy * (kHeight - 1.5 * kMargin));
    }
    std::string name;
    for (const char c : curves[i].name) name += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
    absl::StrAppendFormat(&text, "\"/>\n<text x=\"%g\" y=\"%g\" fill=\"%s\">%s</text>\n", kMargin + 8,
                          kMargin / 2 + 14 * static_cast<double>(i + 1), colour, name);
  }
  return text + "</svg>\n";
}

}  // namespace

int RunLogs(const cli::CommandLine& command) {
  const std::string log = absl::StrCat("rank_", command.Int("rank"), ".log");
  const auto folder = FolderOf(command.positional.empty() ? "" : command.positional[0], log);
  if (!folder.ok()) return Report(folder.status());
  const std::string path = absl::StrCat(*folder, "/", log);
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    return Report(absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno))));
  }
  const repl::InterruptScope interrupts;
  char buffer[8192];
  while (!repl::InterruptPending()) {
    const size_t n = std::fread(buffer, 1, sizeof buffer, file);
    std::fputs(Printable(absl::string_view(buffer, n)).c_str(), stdout);
    std::fflush(stdout);
    if (n > 0) continue;
    if (!command.Bool("f")) break;
    std::clearerr(file);
    absl::SleepFor(absl::Milliseconds(200));
  }
  std::fclose(file);
  return kExitOk;
}

int RunPlot(const cli::CommandLine& command) {
  std::vector<Curve> curves;
  const std::string keys = command.Given("keys") ? command.String("keys") : "loss";
  for (const std::string& run : command.positional) {
    const auto folder = FolderOf(run, kRunMetrics);
    if (!folder.ok()) return Report(folder.status());
    for (const absl::string_view key : absl::StrSplit(keys, ',', absl::SkipEmpty())) {
      auto curve = ReadCurve(*folder, std::string(key));
      if (!curve.ok()) return Report(curve.status());
      curves.push_back(*std::move(curve));
    }
  }
  if (command.Given("svg")) return Report(WriteFileAtomically(command.String("svg"), Svg(curves)));
  for (const Curve& c : curves) {
    std::vector<float> values;
    for (const auto& point : c.points) values.push_back(static_cast<float>(point.second));
    std::printf("%s", Printable(endpoint::DrawCurve(values, c.points.front().first, 72, 12, c.name)).c_str());
  }
  return kExitOk;
}

int RunTop(const cli::CommandLine& command) {
  const auto job = endpoint::FindJob(command.positional.empty() ? "" : command.positional[0]);
  if (!job.ok()) return Report(job.status(), kExitEnvironment);
  auto connection = repl::Connection::Attach(*job, 0, absl::Seconds(3));
  if (!connection.ok()) return Report(connection.status(), kExitEnvironment);
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const repl::InterruptScope interrupts;
  while (!repl::InterruptPending()) {
    std::string text = absl::StrCat(job->id, " ", job->name, "  ");
    for (const char* line : {".status", ".ranks", ".mem", ".plot"}) {
      const auto answer = (*connection)->Call(line, false);
      if (absl::IsUnavailable(answer.status())) return kExitOk;
      if (answer.ok()) absl::StrAppend(&text, *answer, "\n");
    }
    std::printf("%s%s", terminal ? "\033[H\033[J" : "", Printable(text).c_str());
    std::fflush(stdout);
    if (!terminal) break;
    absl::SleepFor(absl::Seconds(1));
  }
  return kExitOk;
}

}  // namespace mslua
