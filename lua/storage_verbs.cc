// `mslua data` and `mslua ckpt`: what lies on disk, whether it is whole, and stand-ins for public data sets.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "core/base/text.h"
#include "core/checkpoint/checkpoint.h"
#include "core/data/inspect.h"
#include "core/data/stand_in.h"
#include "lua/json.h"
#include "lua/run_folder.h"
#include "lua/verbs.h"

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

// One line about a checkpoint.
void PrintCheckpoint(const checkpoint::Checkpoint& c, bool json) {
  int64_t bytes = 0;
  for (const auto& t : c.manifest().tensors) bytes += t.type.bytes();
  const auto& run = c.manifest().run;
  if (json) {
    std::printf(
        "{\"path\": %s, \"job\": %s, \"epoch\": %lld, \"step\": %lld, \"tensors\": %zu, \"bytes\": %lld, "
        "\"missing\": %s}\n",
        JsonString(c.path()).c_str(), JsonString(run.job).c_str(), static_cast<long long>(run.epoch),
        static_cast<long long>(run.step), c.manifest().tensors.size(), static_cast<long long>(bytes),
        c.has_all() ? "null" : JsonString(c.MissingText()).c_str());
  } else {
    std::printf("%s  step %lld, %zu tensors, %.2f MiB%s\n", Printable(c.path()).c_str(),
                static_cast<long long>(run.step), c.manifest().tensors.size(), static_cast<double>(bytes) / (1 << 20),
                c.has_all() ? "" : ", parts are missing");
  }
}

Status ListOne(const std::string& directory, bool json) {
  ASSIGN_OR_RETURN(const auto list, checkpoint::FindCheckpoints(directory));
  for (const auto& name : list) {
    const auto c = checkpoint::Checkpoint::OpenParts(name.path);
    if (c.ok())
      PrintCheckpoint(**c, json);
    else
      std::fprintf(stderr, "mslua: error: %s\n", PrintableMessage(c.status().message()).c_str());
  }
  if (list.empty()) return absl::NotFoundError(absl::StrCat("no checkpoint in ", directory));
  return absl::OkStatus();
}

Status ShowCheckpoint(const std::string& path, bool json) {
  const bool one = checkpoint::NamesOneCheckpoint(path);
  ASSIGN_OR_RETURN(const auto c, one ? checkpoint::Checkpoint::OpenParts(path) : checkpoint::LoadCheckpoint(path));
  PrintCheckpoint(*c, json);
  for (const auto& t : c->manifest().tensors) {
    if (json)
      std::printf("{\"tensor\": %s, \"type\": %s}\n", JsonString(t.name).c_str(), JsonString(ToString(t.type)).c_str());
    else
      std::printf("  %-40s %s\n", Printable(t.name).c_str(), ToString(t.type).c_str());
  }
  if (!c->has_all()) std::fprintf(stderr, "mslua: note: %s\n", PrintableMessage(c->MissingText()).c_str());
  return absl::OkStatus();
}

// A checkpoint, or all of a directory; the first error after all were read.
Status Verify(const std::string& path) {
  std::vector<std::string> paths;
  if (const auto list = checkpoint::FindCheckpoints(path); list.ok()) {
    for (const auto& name : *list) paths.push_back(name.path);
  }
  if (paths.empty()) paths.push_back(path);
  Status first;
  for (const std::string& one : paths) {
    const Status verified = checkpoint::VerifyCheckpoint(one);
    if (verified.ok()) std::printf("%s: ok\n", Printable(one).c_str());
    if (!verified.ok() && !first.ok())
      std::fprintf(stderr, "mslua: error: %s\n", PrintableMessage(verified.message()).c_str());
    first.Update(verified);
  }
  return first;
}

// In files for that many ranks, and read back whole before anybody trusts it.
Status Reshard(const std::string& from, const std::string& to, const std::string& count) {
  int64_t ranks = 0;
  if (!absl::SimpleAtoi(count, &ranks))
    return absl::InvalidArgumentError(absl::StrCat("ckpt reshard: expected a number of ranks, got '", count, "'"));
  RETURN_IF_ERROR(checkpoint::ReshardCheckpoint(from, to, ranks));
  return checkpoint::VerifyCheckpoint(to);
}

}  // namespace

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

int RunCheckpoint(const cli::CommandLine& command) {
  std::vector<std::string> words = command.positional;
  const bool json = command.Bool("json");
  if (words.size() == 1) words.emplace_back("last");
  const auto place = CheckpointPlace(words[1], "", "");
  if (!place.ok()) return Report(place.status());
  words[1] = *place;
  if (words[0] == "ls") return Report(ListOne(words[1], json), 0);
  if (words[0] == "show") return Report(ShowCheckpoint(words[1], json), 0);
  if (words[0] == "merge") {
    // Whatever ranks wrote it in whatever parts: one file of whole tensors.
    const Status merged = checkpoint::MergeCheckpoint(words[1], words[2]);
    return Report(merged, merged.ok() ? 0 : kExitStorage);
  }
  if (words[0] == "reshard") {
    const Status done = Reshard(words[1], words[2], words[3]);
    return Report(done, done.ok() || absl::IsInvalidArgument(done) ? 0 : kExitStorage);
  }
  const Status verified = Verify(words[1]);
  return Report(verified, verified.ok() ? 0 : kExitStorage);
}

}  // namespace mslua
