// mslua init
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lua/embedded.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/write_files.h"

namespace mslua {
namespace {

// The files of recipes/starter.
Files Starter() {
  Files files;
  for (const EmbeddedChunk& chunk : EmbeddedChunks()) {
    absl::string_view path = chunk.path;
    if (absl::ConsumePrefix(&path, "recipes/starter/")) files[std::string(path)] = std::string(chunk.source);
  }
  return files;
}

Status Init(const std::string& folder) {
  const Files files = Starter();
  RETURN_IF_ERROR(NoneIsThere(folder, files));
  RETURN_IF_ERROR(WriteFiles(folder, files));
  std::printf("wrote %s/recipe.lua, data.lua and recipe_test.lua\n", folder.c_str());
  std::printf("train it:  mslua train %s/recipe.lua\n", folder.c_str());
  std::printf("test it:   mslua run %s/recipe_test.lua\n", folder.c_str());
  return absl::OkStatus();
}

int RunInit(const cli::CommandLine& command) { return Report(Init(FolderOf(command.positional[0]))); }

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(init) {
  VerbDef verb;
  verb.name = "init";
  verb.usage = "DIR";
  verb.doc = "writes a recipe, its data and a test into a folder, to start from";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.examples = {"mslua init circles", "mslua train circles/recipe.lua", "mslua run circles/recipe_test.lua"};
  verb.place = 200;
  verb.run = RunInit;
  return verb;
}

}  // namespace mslua::cli
