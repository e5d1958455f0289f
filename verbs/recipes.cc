// mslua recipes
#include <unistd.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/common_flags.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "core/base/folder.h"
#include "core/base/text.h"
#include "core/json/json_string.h"
#include "lua/embedded.h"
#include "lua/object.h"
#include "lua/open_session.h"
#include "lua/recipe_files.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_recipe.h"

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
  if (IsFolder(path)) absl::StrAppend(&path, "/", name, ".lua");
  if (access(path.c_str(), F_OK) == 0)
    return absl::AlreadyExistsError(absl::StrCat(path, " is there already; give another PATH"));
  RETURN_IF_ERROR(WriteFileAtomically(path, chunk->source));
  std::fprintf(stderr, "mslua: wrote %s\n", path.c_str());
  return absl::OkStatus();
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

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(recipes) {
  VerbDef verb;
  verb.name = "recipes";
  verb.usage = "ACTION [argument ...] [flags]";
  verb.doc = "the recipe library: list, show, copy, check";
  verb.overrides = true;
  verb.flags = {Json().Of({"ls"})};
  verb.actions = {{"ls", "", 0, 0},
                  {"show", "RECIPE [key=value ...]", 1, 1},
                  {"copy", "RECIPE PATH", 2, 2},
                  {"check", "RECIPE [key=value ...]", 1, 1}};
  verb.examples = {"mslua recipes ls", "mslua recipes show quickstart", "mslua recipes check my_recipe.lua"};
  verb.place = 205;
  verb.run = RunRecipes;
  return verb;
}

}  // namespace mslua::cli
