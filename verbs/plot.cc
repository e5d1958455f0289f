// mslua plot
#include "repl/plot.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/flags.h"
#include "core/base/atomic_file.h"
#include "core/base/printable.h"
#include "core/base/terminal.h"
#include "core/base/text.h"
#include "train/run_folder.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_record.h"

DEFINE_string(keys, "loss", "metrics, each in a panel of its own");
DEFINE_string(log, "", "logarithmic axes");
DEFINE_string(svg, "", "write an SVG");
DEFINE_string(x, "step", "what the x axis is: a metric such as lr");

namespace mslua {
namespace {

Status CheckKey(const RunRecord& record, const std::string& key) {
  if (record.values.count(key) > 0) return absl::OkStatus();
  const std::string path = absl::StrCat(record.folder, "/", kRunMetrics);
  if (record.undefined.count(key) > 0)
    return absl::NotFoundError(absl::StrCat(path, ": ", key, " is NaN or infinite each time"));
  const std::vector<std::string> known = record.Keys();
  return absl::NotFoundError(absl::StrCat(path, " has no '", key, "'", DidYouMean(key, known), "; it has ",
                                          known.empty() ? "nothing" : absl::StrJoin(known, ", ")));
}

// `key` over the steps, or over the key `x`: at the step of each value the latest one of x.
StatusOr<repl::Curve> CurveOf(const RunRecord& record, const std::string& key, const std::string& x) {
  RETURN_IF_ERROR(CheckKey(record, key));
  RETURN_IF_ERROR(CheckKey(record, x));
  repl::Curve curve{record.folder, {}};
  const auto& over = record.values.at(x);
  for (const auto& [step, value] : record.values.at(key)) {
    auto at = over.upper_bound(step);
    if (at == over.begin()) continue;
    curve.points.emplace_back((--at)->second, value);
  }
  if (const auto undefined = record.undefined.find(key); undefined != record.undefined.end()) {
    std::fprintf(stderr, "mslua: note: %s/%s: %lld values of %s are NaN or infinite and are left out\n",
                 record.folder.c_str(), kRunMetrics, static_cast<long long>(undefined->second), key.c_str());
  }
  return curve;
}

repl::PlotOptions OptionsOf(const cli::CommandLine& command, size_t panels) {
  repl::PlotOptions options;
  if (command.Given("x")) options.x_label = command.String("x");
  const std::string log = command.Given("log") ? command.String("log") : "";
  options.log_x = log == "x" || log == "xy";
  options.log_y = log == "y" || log == "xy";
  const TerminalSize terminal = TerminalSizeOf(STDOUT_FILENO);
  if (terminal.columns > 0) options.columns = terminal.columns;
  // All panels on one screen, with title, axis, two lines of numbers and the prompt, while they stay readable.
  constexpr int kOther = 5, kLeast = 8, kMost = 40;
  if (terminal.rows > 0) options.rows = std::clamp(terminal.rows / static_cast<int>(panels) - kOther, kLeast, kMost);
  return options;
}

Status Plot(const cli::CommandLine& command) {
  ASSIGN_OR_RETURN(const std::vector<RunRecord> records, ReadRunRecords(command.positional));
  const std::string keys = command.Given("keys") ? command.String("keys") : "loss";
  std::vector<repl::Panel> panels;
  for (const absl::string_view key : absl::StrSplit(keys, ',', absl::SkipEmpty())) {
    repl::Panel panel{std::string(key), {}};
    std::vector<Status> missing;
    for (const RunRecord& record : records) {
      auto curve = CurveOf(record, panel.title, command.Given("x") ? command.String("x") : kStepKey);
      if (curve.ok())
        panel.curves.push_back(*std::move(curve));
      else
        missing.push_back(curve.status());
    }
    if (panel.curves.empty()) return missing[0];
    for (const Status& why : missing) {
      std::fprintf(stderr, "mslua: note: %s; it has no curve\n", Printable(why.message()).c_str());
    }
    panels.push_back(std::move(panel));
  }
  if (panels.empty()) return absl::InvalidArgumentError("plot: --keys names no metric, expected such as loss,lr");
  const repl::PlotOptions options = OptionsOf(command, panels.size());
  if (const int64_t hidden = repl::HiddenByLog(panels, options); hidden > 0) {
    std::fprintf(stderr, "mslua: note: %lld values are not above 0: --log leaves them out\n",
                 static_cast<long long>(hidden));
  }
  if (command.Given("svg")) return WriteFileAtomically(command.String("svg"), repl::SvgPlot(panels, options));
  for (size_t i = 0; i < panels.size(); ++i)
    std::printf("%s%s", i > 0 ? "\n" : "", Printable(repl::TextPlot(panels[i], options)).c_str());
  return absl::OkStatus();
}

int RunPlot(const cli::CommandLine& command) { return Report(Plot(command)); }

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(plot) {
  VerbDef verb;
  verb.name = "plot";
  verb.usage = "RUN ... [flags]";
  verb.doc = "curves of runs, in the terminal or as SVG";
  verb.min_positional = 1;
  verb.max_positional = kUnlimited;
  verb.flags = {Text(FLAGS_keys, "K,..."), Text(FLAGS_x, "K"), OneOf(FLAGS_log, "y|x|xy").Bare("y"),
                Text(FLAGS_svg, "FILE")};
  verb.examples = {"mslua plot last --log", "mslua plot runs/a runs/b --keys loss,eval_loss",
                   "mslua plot last -x lr --log=x --svg loss.svg"};
  verb.place = 410;
  verb.run = RunPlot;
  return verb;
}

}  // namespace mslua::cli
