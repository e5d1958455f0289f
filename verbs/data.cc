// mslua data
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "core/base/text.h"
#include "core/data/inspect.h"
#include "core/data/stand_in.h"
#include "lua/json.h"
#include "lua/run_folder.h"
#include "verbs/define.h"
#include "verbs/support/report.h"

DEFINE_int64(samples, 0, "number of training samples");
DEFINE_int64(data_seed, 1, "seed");

namespace mslua {
namespace {

std::string ColumnsText(const std::vector<data::Column>& columns) {
  return absl::StrJoin(columns, ", ", [](std::string* out, const data::Column& c) {
    absl::StrAppend(out, c.name, " ", ToString(c.type));
  });
}

void PrintReport(const std::string& path, const data::DataReport& report, bool json) {
  for (const data::PartReport& part : report.parts) {
    if (json) {
      std::printf("{\"path\": %s, \"format\": %s, \"part\": %s, \"samples\": %lld, \"columns\": %s}\n",
                  JsonString(path).c_str(), JsonString(data::FormatName(report.kind)).c_str(),
                  JsonString(part.name).c_str(), static_cast<long long>(part.samples),
                  JsonString(ColumnsText(part.columns)).c_str());
    } else {
      std::printf("%s  %s %s  %lld samples  %s\n", path.c_str(), data::FormatName(report.kind).c_str(),
                  part.name.c_str(), static_cast<long long>(part.samples), ColumnsText(part.columns).c_str());
      if (!part.histogram.empty()) std::printf("  of each label: %s\n", absl::StrJoin(part.histogram, " ").c_str());
    }
  }
  for (const std::string& notice : report.notices)
    std::fprintf(stderr, "mslua: note: %s\n", PrintableMessage(notice).c_str());
  for (const std::string& problem : report.problems)
    std::fprintf(stderr, "mslua: error: %s\n", PrintableMessage(problem).c_str());
  if (report.more_problems) std::fprintf(stderr, "mslua: error: and more\n");
}

Status MakeData(const std::string& kind, const std::string& path, const cli::CommandLine& command) {
  data::MakeOptions options;
  options.seed = static_cast<uint64_t>(command.Int("seed"));
  if (command.Given("samples")) {
    options.train = command.Int("samples");
    options.test = std::max<int64_t>(1, options.train / 5);
  }
  return data::MakeStandIn(kind, path, options);
}

int RunData(const cli::CommandLine& command) {
  const auto& words = command.positional;
  const bool json = command.Bool("json");
  if (words[0] == "make") {
    const Status made = MakeData(words[1], words[2], command);
    return Report(made, made.ok() || absl::IsInvalidArgument(made) ? 0 : kExitStorage);
  }
  // `ls` without a path looks at $DATA_PATH, or in the working folder.
  const char* variable = std::getenv("DATA_PATH");
  std::string path = variable != nullptr ? variable : ".";
  std::string wanted;
  if (words[0] == "verify") {
    wanted = words[1], path = words[2];
    const Status known = data::FindSource(wanted).status();
    if (!known.ok()) return Report(known);
  }
  if (words[0] == "ls" && words.size() > 1) path = words[1];
  const auto report = data::Inspect(path, words[0] == "verify", wanted);
  if (!report.ok()) return Report(report.status(), kExitData);
  PrintReport(path, *report, json);
  if (words[0] == "verify" && report->kind != wanted) {
    return Report(
        absl::InvalidArgumentError(absl::StrCat(path, " holds ", data::FormatName(report->kind), ", not ", wanted)),
        kExitData);
  }
  return report->problems.empty() ? kExitOk : kExitData;
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(data) {
  VerbDef verb;
  verb.name = "data";
  verb.usage = "ACTION [argument ...] [flags]";
  verb.doc = "data sets: list, make a learnable stand-in, verify";
  verb.flags = {Integer(FLAGS_samples, "N", 1).Of({"make"}), Integer(FLAGS_data_seed, "S", 0).As("seed").Of({"make"}),
                Json().Of({"ls", "verify"})};
  verb.actions = {{"ls", "[PATH]", 0, 1},
                  {"make", absl::StrCat(absl::StrJoin(data::StandIns(), "|"), " PATH"), 2, 2},
                  {"verify", "KIND PATH", 2, 2}};
  verb.examples = {"mslua data ls /data/mnist", "mslua data make cifar10 /data/cifar-10-batches-bin",
                   "mslua data verify mnist /data/mnist"};
  verb.place = 60;
  verb.run = RunData;
  return verb;
}

}  // namespace mslua::cli
