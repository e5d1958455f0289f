// The verbs that run a Lua file: a script, or a recipe in one of the ways of mslua.verbs.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "core/base/text.h"
#include "lua/embedded.h"
#include "lua/json.h"
#include "lua/object.h"
#include "lua/open_session.h"
#include "lua/rank_verb.h"
#include "lua/recipe_files.h"
#include "lua/verbs.h"

namespace mslua {

namespace {

int ListRecipes(bool json) {
  for (const auto& [name, doc] : LibraryRecipeDocs()) {
    if (json)
      std::printf("{\"name\": %s, \"doc\": %s}\n", JsonString(name).c_str(), JsonString(doc).c_str());
    else
      std::printf("%-18s %s\n", name.c_str(), doc.c_str());
  }
  return kExitOk;
}

// Writes the library's recipe `name` as the file `path`, or into that folder; never over a file that is there.
Status CopyRecipe(const std::string& name, std::string path) {
  const EmbeddedChunk* chunk = FindRecipe(name);
  if (chunk == nullptr) {
    std::vector<std::string> known;
    for (const auto& recipe : LibraryRecipeDocs()) known.push_back(recipe.first);
    return absl::NotFoundError(absl::StrCat("the library has no recipe '", name, "'", DidYouMean(name, known),
                                            "; `mslua recipes ls` lists them"));
  }
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) absl::StrAppend(&path, "/", name, ".lua");
  if (access(path.c_str(), F_OK) == 0)
    return absl::AlreadyExistsError(absl::StrCat(path, " is there already; give another PATH"));
  RETURN_IF_ERROR(WriteFileAtomically(path, chunk->source));
  std::fprintf(stderr, "mslua: wrote %s\n", path.c_str());
  return absl::OkStatus();
}

// Calls a function of mslua.verbs and leaves its result on the stack.
Status CallVerb(Session& session, const std::string& name) {
  RETURN_IF_ERROR(session.RunText(absl::StrCat("return require('mslua.verbs').", name, "()"), "=mslua/verb"));
  return absl::OkStatus();
}

}  // namespace

SessionOptions OptionsOf(const cli::CommandLine& command) {
  SessionOptions options;
  options.verb = command.verb;
  if (!command.positional.empty()) {
    options.file = command.positional[0];
    options.args.assign(command.positional.begin() + 1, command.positional.end());
  }
  options.overrides = command.overrides;
  options.preset = command.String("preset");
  if (command.Given("device")) options.device = command.String("device");
  if (command.Given("seed")) {
    options.has_seed = true;
    options.seed = static_cast<uint64_t>(command.Int("seed"));
  }
  const auto number = [&](const char* flag, const char* option) {
    if (command.Given(flag) && command.Int(flag) > 0)
      options.flags.emplace_back(option, static_cast<double>(command.Int(flag)));
  };
  number("max-steps", "max_steps");
  number("fast-dev-run", "fast_dev_run");
  number("overfit", "overfit");
  number("steps", "steps");
  number("log-every", "log_every");
  if (command.Given("log-every") && command.Int("log-every") == 0)
    options.flags.emplace_back("log_every", command.String("log-every"));
  for (const char* flag : {"out", "resume", "trace", "cluster", "progress"}) {
    if (command.Given(flag)) options.flags.emplace_back(flag, command.String(flag));
  }
  if (command.Given("init-from")) options.flags.emplace_back("init_from", command.String("init-from"));
  if (command.Given("attach") && !command.Bool("attach")) options.flags.emplace_back("no_attach", 1.0);
  if (command.Given("n")) options.flags.emplace_back("ranks_given", true);
  if (command.Bool("json")) options.flags.emplace_back("json", true);
  options.traceback = command.Bool("traceback");
  if (command.Bool("partial")) options.flags.emplace_back("partial", true);
  if (command.Bool("steps-only")) options.flags.emplace_back("steps_only", true);
  return options;
}

int ExitCodeOf(const Status& status) {
  if (ExitCodeIn(status) != kExitOk) return ExitCodeIn(status);
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
      return kExitData;
    case absl::StatusCode::kResourceExhausted:
      return kExitEnvironment;
    case absl::StatusCode::kInternal:
      return kExitInternal;
    default:
      return kExitUsage;
  }
}

void PrintTraceback(const Status& status) {
  const std::string frames = TracebackOf(status);
  if (!frames.empty()) std::fprintf(stderr, "%s\n", frames.c_str());
}

int Report(const Status& status, int exit_code) {
  if (status.ok()) return kExitOk;
  std::fflush(stdout);
  std::fprintf(stderr, "mslua: error: %s\n", PrintableMessage(status.message()).c_str());
  PrintTraceback(status);
  return exit_code != kExitOk ? exit_code : ExitCodeOf(status);
}

int RunScript(const cli::CommandLine& command) {
  return RunAsRank(command, OptionsOf(command), Joins::kWhenAsked, [](Session& session) -> StatusOr<int> {
    RETURN_IF_ERROR(CheckLuaFile(session.options().file));
    lua_State* L = session.lua();
    lua_settop(L, 0);
    RETURN_IF_ERROR(session.RunFile(session.options().file));
    lua_settop(L, 1);
    RETURN_IF_ERROR(session.RunText("return require('mslua.verbs').after_script", "=mslua/verb"));
    lua_insert(L, 1);
    RETURN_IF_ERROR(session.Call(1, 0));
    return kExitOk;
  });
}

int RunRecipe(const cli::CommandLine& command) {
  SessionOptions options = OptionsOf(command);
  if (command.verb == "eval") options.flags.emplace_back("ckpt", command.String("ckpt"));
  return RunAsRank(command, std::move(options), Joins::kAtOnce, [&](Session& session) -> StatusOr<int> {
    RETURN_IF_ERROR(CheckRecipe(session.options().file));
    RETURN_IF_ERROR(CallVerb(session, command.verb));
    return static_cast<int>(lua_tonumber(session.lua(), -1));
  });
}

int RunRecipes(const cli::CommandLine& command) {
  const std::string action = command.positional[0];
  if (action == "ls") return ListRecipes(command.Bool("json"));
  if (action == "copy") return Report(CopyRecipe(command.positional[1], command.positional[2]));
  SessionOptions options = OptionsOf(command);
  options.verb = "recipes";
  options.file = command.positional[1];
  options.args.clear();
  auto session = OpenSession(std::move(options));
  if (!session.ok()) return Report(session.status());
  const std::string& file = (*session)->options().file;
  Status status = CheckRecipe(file);
  // A file may be somebody else's, and to show it is not to trust it.
  if (status.ok() && action == "show" && FindRecipe(file) == nullptr) status = ReadThenEnterSandbox(**session);
  if (status.ok()) status = CallVerb(**session, action);
  if (!status.ok()) return Report(status);
  return static_cast<int>(lua_tonumber((*session)->lua(), -1));
}

}  // namespace mslua
