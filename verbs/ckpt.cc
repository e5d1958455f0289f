// mslua ckpt
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "core/base/text.h"
#include "core/checkpoint/checkpoint.h"
#include "core/json/json_string.h"
#include "lua/open_session.h"
#include "train/run_folder.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_recipe.h"

DEFINE_string(to, "hf", "a model folder, a file, or adapters");

namespace mslua {
namespace {

// LoadCheckpoint of a user's path; what it passed over and ignored is printed.
StatusOr<std::unique_ptr<checkpoint::Checkpoint>> Load(const std::string& path) {
  ASSIGN_OR_RETURN(auto c, checkpoint::LoadCheckpoint(path));
  if (!c->note().empty()) std::fprintf(stderr, "mslua: note: %s\n", PrintableMessage(c->note()).c_str());
  return c;
}

// One line about a checkpoint.
void PrintCheckpoint(const checkpoint::Checkpoint& c, bool json) {
  int64_t bytes = 0;
  for (const auto& t : c.manifest().tensors) bytes += t.type.bytes();
  const auto& run = c.manifest().run;
  const int64_t epoch = run.step == 0 ? 0 : checkpoint::EpochInName(run.epoch, run.data_batch);
  if (json) {
    std::printf(
        "{\"path\": %s, \"job\": %s, \"epoch\": %lld, \"step\": %lld, \"tensors\": %zu, \"bytes\": %lld, "
        "\"missing\": %s}\n",
        JsonString(c.path()).c_str(), JsonString(run.job).c_str(), static_cast<long long>(epoch),
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
  ASSIGN_OR_RETURN(const auto c, one ? checkpoint::Checkpoint::OpenParts(path) : Load(path));
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

// The folders beside these checkpoints that have such names and no manifest, by which checkpoints are found.
void AddWithoutManifest(std::vector<std::string>* paths) {
  const std::string folder = paths->front().substr(0, paths->front().rfind('/'));
  std::error_code error;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = absl::StrCat(folder, "/", it->path().filename().string());
    if (absl::EndsWith(path, ".ckpt") && !absl::c_linear_search(*paths, path)) found.push_back(path);
  }
  std::sort(found.begin(), found.end());
  paths->insert(paths->end(), found.begin(), found.end());
}

// A checkpoint, or all of a directory; the first error after all were read.
Status Verify(const std::string& path) {
  std::vector<std::string> paths;
  if (const auto list = checkpoint::FindCheckpoints(path); list.ok()) {
    for (const auto& name : *list) paths.push_back(name.path);
    if (!list->empty()) AddWithoutManifest(&paths);
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
  ASSIGN_OR_RETURN(const auto source, Load(from));
  RETURN_IF_ERROR(checkpoint::ReshardCheckpoint(source->path(), to, ranks));
  return checkpoint::VerifyCheckpoint(to);
}

// Whatever ranks wrote it in whatever parts: one file of whole tensors.
Status Merge(const std::string& from, const std::string& to) {
  if (!absl::EndsWith(to, ".safetensors")) {
    return absl::InvalidArgumentError(
        absl::StrCat("ckpt merge: expected a file that ends in .safetensors, got ", to,
                     absl::EndsWith(to, ".npz") ? " (`mslua ckpt convert --to npz` writes NumPy's)" : ""));
  }
  ASSIGN_OR_RETURN(const auto source, Load(from));
  return checkpoint::MergeCheckpoint(source->path(), to);
}

// What the library does with folders as Hugging Face has them: the function of mslua.verbs, on words[1] and so on.
Status InLibrary(const cli::CommandLine& command, const std::vector<std::string>& words, const std::string& function) {
  SessionOptions options = OptionsOf(command);
  options.verb = "ckpt";
  options.file = words[1];
  options.args.assign(words.begin() + 2, words.end());
  options.flags.emplace_back("to", command.String("to"));
  ASSIGN_OR_RETURN(const auto session, OpenSession(std::move(options)));
  return CallVerb(*session, function);
}

bool IsPublishedFolder(const std::string& path) { return access((path + "/config.json").c_str(), F_OK) == 0; }

int RunCheckpoint(const cli::CommandLine& command) {
  std::vector<std::string> words = command.positional;
  const bool json = command.Bool("json");
  if (words.size() == 1) words.emplace_back("last");
  if (words[0] == "show" && IsPublishedFolder(words[1])) return Report(InLibrary(command, words, "show_folder"));
  if (words[0] == "convert" && IsPublishedFolder(words[1])) return Report(InLibrary(command, words, "convert"));
  if (words[0] == "verify" && IsPublishedFolder(words[1]) && access((words[1] + "/MANIFEST.json").c_str(), F_OK) != 0) {
    return Report(absl::InvalidArgumentError(
        absl::StrCat("ckpt verify: ", words[1],
                     " is a folder as Hugging Face has it, which has no checksums to verify: "
                     "expected a checkpoint of a training; `mslua ckpt show ",
                     words[1], "` lists its tensors")));
  }
  if (words[0] == "merge-lora") return Report(InLibrary(command, words, "merge_lora"));
  const auto place = CheckpointPlace(words[1], "", "");
  if (!place.ok()) return Report(place.status());
  words[1] = *place;
  if (words[0] == "ls") return Report(ListOne(words[1], json), 0);
  if (words[0] == "show") {
    const Status shown = ShowCheckpoint(words[1], json);
    return Report(shown, shown.ok() ? 0 : kExitStorage);
  }
  if (words[0] == "convert") return Report(InLibrary(command, words, "convert"));
  if (words[0] == "merge") {
    const Status merged = Merge(words[1], words[2]);
    return Report(merged, merged.ok() || absl::IsInvalidArgument(merged) ? 0 : kExitStorage);
  }
  if (words[0] == "reshard") {
    const Status done = Reshard(words[1], words[2], words[3]);
    return Report(done, done.ok() || absl::IsInvalidArgument(done) ? 0 : kExitStorage);
  }
  const Status verified = Verify(words[1]);
  return Report(verified, verified.ok() ? 0 : kExitStorage);
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(ckpt) {
  VerbDef verb;
  verb.name = "ckpt";
  verb.usage = "ACTION PATH [argument ...] [flags]";
  verb.doc = "checkpoints: show, verify, merge, reshard, convert; add adapters to weights";
  verb.flags = {Json().Of({"ls", "show"}), OneOf(FLAGS_to, "hf|safetensors|npz|peft").Of({"convert"})};
  verb.actions = {{"ls", "[DIR|last]", 0, 1},
                  {"show", "CKPT|DIR|last|best", 1, 1},
                  {"verify", "CKPT", 1, 1},
                  {"merge", "CKPT OUT.safetensors", 2, 2},
                  {"reshard", "CKPT OUT RANKS", 3, 3},
                  {"convert", "CKPT|DIR|last|best OUT", 2, 2},
                  {"merge-lora", "BASE ADAPTER OUT", 3, 3}};
  verb.examples = {"mslua ckpt show last", "mslua ckpt verify runs/a/ckpt",
                   "mslua ckpt convert /models/gpt2 gpt2.safetensors --to safetensors"};
  verb.place = 135;
  verb.run = RunCheckpoint;
  return verb;
}

}  // namespace mslua::cli
