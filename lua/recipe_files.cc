#include "lua/recipe_files.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/folder.h"
#include "core/base/sandbox.h"
#include "core/base/text.h"
#include "lua/embedded.h"

namespace mslua {
namespace {

// The words of the comment that a file begins with, up to its first empty line.
std::string FirstComment(absl::string_view source) {
  std::string text;
  for (absl::string_view line : absl::StrSplit(source, '\n')) {
    if (!absl::ConsumePrefix(&line, "-- ")) break;
    absl::StrAppend(&text, text.empty() ? "" : " ", line);
  }
  return text;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// "quickstart" of "recipes/quickstart.lua".
std::string Stem(const std::string& path) {
  return std::string(absl::StripSuffix(path.substr(FolderOf(path).size()), ".lua"));
}

void AddLuaFiles(const std::string& folder, std::vector<std::string>* paths) {
  DIR* const entries = opendir(folder.empty() ? "." : folder.c_str());
  if (entries == nullptr) return;
  std::vector<std::string> found;
  while (const dirent* entry = readdir(entries)) {
    if (absl::EndsWith(entry->d_name, ".lua")) found.push_back(folder + entry->d_name);
  }
  closedir(entries);
  std::sort(found.begin(), found.end());
  paths->insert(paths->end(), found.begin(), found.end());
}

// " (did you mean 'recipes/quickstart.lua'?)", or nothing. Looks beside the file, in recipes/ and in the library, for
// other files: a link to nothing has an entry too.
std::string NearestFile(const std::string& file, bool library) {
  std::vector<std::string> paths, stems;
  AddLuaFiles(FolderOf(file), &paths);
  if (FolderOf(file).empty()) AddLuaFiles("recipes/", &paths);
  if (library) {
    for (const auto& recipe : LibraryRecipeDocs()) paths.push_back(recipe.first);
  }
  paths.erase(std::remove(paths.begin(), paths.end(), file), paths.end());
  for (const std::string& path : paths) stems.push_back(Stem(path));
  const std::string nearest = Closest(Stem(file), stems);
  if (nearest.empty()) return "";
  return absl::StrCat(" (did you mean '", paths[std::find(stems.begin(), stems.end(), nearest) - stems.begin()], "'?)");
}

// Whether the file begins with bytes that no text has. Bytecode of LuaJIT, which does too, is Lua.
bool IsBinary(const std::string& file) {
  char bytes[512];
  std::ifstream input(file, std::ios::binary);
  input.read(bytes, sizeof bytes);
  const absl::string_view begin(bytes, static_cast<size_t>(input.gcount()));
  return !absl::StartsWith(begin, "\033LJ") && begin.find('\0') != absl::string_view::npos;
}

Status CheckFile(const std::string& file, bool library) {
  if (IsFolder(file)) return absl::InvalidArgumentError(absl::StrCat(file, " is a folder, expected a Lua file"));
  if (access(file.c_str(), R_OK) == 0) {
    if (!IsFile(file) || !IsBinary(file)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(file, " is no Lua file: it has bytes that no text has",
                                                   library ? "; expected a recipe, such as recipe.lua" : ""));
  }
  const int error = errno;
  return absl::NotFoundError(absl::StrCat("cannot read ", file, ": ", std::strerror(error),
                                          error == ENOENT ? NearestFile(file, library) : ""));
}

}  // namespace

const EmbeddedChunk* FindRecipe(const std::string& name) {
  return name.find_first_of("/.") == std::string::npos ? FindEmbedded("recipes." + name) : nullptr;
}

std::vector<std::pair<std::string, std::string>> LibraryRecipeDocs() {
  std::vector<std::pair<std::string, std::string>> recipes;
  for (const EmbeddedChunk& chunk : EmbeddedChunks()) {
    absl::string_view name = chunk.module;
    if (absl::ConsumePrefix(&name, "recipes.") && name.find('.') == absl::string_view::npos)
      recipes.emplace_back(name, FirstComment(chunk.source));
  }
  return recipes;
}

Status CheckLuaFile(const std::string& file) { return CheckFile(file, /*library=*/false); }

Status CheckRecipe(const std::string& recipe) {
  return FindRecipe(recipe) != nullptr ? absl::OkStatus() : CheckFile(recipe, /*library=*/true);
}

Status ReadThenEnterSandbox(Session& session) {
  RETURN_IF_ERROR(
      session.RunText("require 'mslua.verbs' "
                      "require('mslua.recipe').read_ahead(require('mslua.core').options.file)",
                      "=mslua/verb"));
  return EnterSandbox({-1, true});
}

}  // namespace mslua
