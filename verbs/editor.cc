// mslua editor
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "lua/object.h"
#include "lua/open_session.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_as_rank.h"
#include "verbs/support/run_recipe.h"
#include "verbs/support/write_files.h"

namespace mslua {
namespace {

constexpr char kLibrary[] = ".mslua/editor";  // below the folder
constexpr char kSettings[] = ".luarc.json";

// The table of texts on top of the stack.
Files FilesOf(lua_State* L) {
  Files files;
  for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
    size_t size = 0;
    const char* const text = lua_tolstring(L, -1, &size);
    files[lua_tostring(L, -2)] = std::string(text, size);
  }
  return files;
}

Status Write(const cli::CommandLine& command) {
  SessionOptions options = OptionsOf(command);
  const std::string folder = FolderOf(options.file);
  ASSIGN_OR_RETURN(const auto session, OpenSession(std::move(options)));
  RETURN_IF_ERROR(CallVerb(*session, "editor"));
  const std::string library = absl::StrCat(folder, "/", kLibrary), settings = absl::StrCat(folder, "/", kSettings);
  RETURN_IF_ERROR(WriteFiles(library, FilesOf(session->lua())));
  std::printf("wrote %s\n", library.c_str());
  const auto there = ReadTextFile(settings);
  if (there.ok()) {
    if (!absl::StrContains(*there, kLibrary))
      std::printf("%s is there already: add \"%s\" to its workspace.library\n", settings.c_str(), kLibrary);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(session->RunText(absl::StrCat("return require('mslua.editor').settings '", kLibrary, "'"), "=mslua"));
  size_t size = 0;
  const char* const text = lua_tolstring(session->lua(), -1, &size);
  RETURN_IF_ERROR(WriteFileAtomically(settings, absl::string_view(text, size)));
  std::printf("wrote %s\n", settings.c_str());
  return absl::OkStatus();
}

int RunEditor(const cli::CommandLine& command) { return Report(Write(command)); }

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(editor) {
  VerbDef verb;
  verb.name = "editor";
  verb.usage = "DIR";
  verb.doc = "writes what lua-language-server needs to know the names of mslua";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.examples = {"mslua editor .", "mslua editor my_project", "mslua editor recipes"};
  verb.place = 225;
  verb.run = RunEditor;
  return verb;
}

}  // namespace mslua::cli
