// Writes docs/reference/: the command line, the commands of attach and the REPL, environment variables, exit codes, and
// the pages that library.lua makes of operators and the Lua library. Everything comes from the definitions that the
// program itself uses. tools/reference/generate runs it.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "attach/server/command.h"
#include "cli/topics.h"
#include "cli/usage.h"
#include "cli/verbs.h"
#include "gflags/gflags.h"
#include "lua/object.h"
#include "lua/open_session.h"
#include "lua/session.h"
#include "repl/help.h"

// The program contains the flags of mslua, --out among them.
DEFINE_string(folder, "", "folder for the pages");
DEFINE_string(library, "", "library.lua");

namespace mslua {
namespace {

using Pages = std::map<std::string, std::string>;  // file name -> Markdown

std::string Code(const std::string& text) { return absl::StrCat("`", text, "`"); }

// Text of one cell of a table.
std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string SectionOfVerb(const cli::VerbDef& verb) {
  std::string text = absl::StrCat("## mslua ", verb.name, "\n\n");
  absl::StrAppend(&text, "`mslua ", verb.name, " ", verb.usage, "`: ", verb.doc, ".\n\n");
  if (!verb.actions.empty()) absl::StrAppend(&text, "| action |\n| --- |\n");
  for (const cli::ActionDef& action : verb.actions) {
    const std::string usage = absl::StrCat(action.name, action.usage.empty() ? "" : " ", action.usage);
    absl::StrAppend(&text, "| ", Cell(Code(usage)), " |\n");
  }
  if (!verb.actions.empty()) absl::StrAppend(&text, "\n");
  if (!verb.flags.empty()) absl::StrAppend(&text, "| flag | default | meaning |\n| --- | --- | --- |\n");
  for (const cli::FlagDef& flag : verb.flags) {
    const std::string initial = flag.default_value.empty() ? "" : Code(flag.default_value);
    absl::StrAppend(&text, "| ", Cell(Code(cli::FlagUsage(flag))), " | ", Cell(initial), " | ", Cell(flag.help));
    for (const std::string& action : flag.actions)
      absl::StrAppend(&text, &action == &flag.actions[0] ? "; of " : ", ", action);
    absl::StrAppend(&text, " |\n");
  }
  if (!verb.flags.empty()) absl::StrAppend(&text, "\n");
  absl::StrAppend(&text, "```sh\n");
  for (const std::string& example : verb.examples) absl::StrAppend(&text, example, "\n");
  absl::StrAppend(&text, "```\n\n");
  return text;
}

std::string CommandLinePage() {
  std::string text =
      "# Command line\n\n`mslua VERB [argument ...] [key=value ...] [flags]`. Arguments, parameters and flags stand in "
      "any order behind the verb. `--flag VALUE` and `--flag=VALUE` are the same; `[=VALUE]` means that the value may "
      "be left out. `--no-FLAG` turns a switch off. `--` ends parameters and flags.\n\n| verb | |\n| --- | --- |\n";
  for (const cli::VerbDef& verb : cli::Verbs()) {
    absl::StrAppend(&text, "| [", verb.name, "](#mslua-", verb.name, ") | ", Cell(verb.doc), " |\n");
  }
  absl::StrAppend(&text, "\n");
  for (const cli::VerbDef& verb : cli::Verbs()) absl::StrAppend(&text, SectionOfVerb(verb));
  return text;
}

std::string TopicPage(const std::string& title, const cli::Topic& topic, const std::string& column) {
  std::string text = absl::StrCat("# ", title, "\n\n| ", column, " | meaning |\n| --- | --- |\n");
  for (const cli::TopicRow& row : topic.rows)
    absl::StrAppend(&text, "| ", Code(row.name), " | ", Cell(row.doc), " |\n");
  return text;
}

std::string InteractivePage() {
  std::string text =
      "# Commands of attach and the REPL\n\nEvery command begins with a dot. \"Answered\" says when: *at once*, "
      "whatever the rank is doing, or *between two steps*. Commands marked *steers* change the training; only the "
      "client that holds the writer lock (`.rw`) may give them.\n\n## Commands for a running job\n\n| command | "
      "meaning | answered | |\n| --- | --- | --- | --- |\n";
  for (const endpoint::CommandDef& command : endpoint::Commands()) {
    absl::StrAppend(&text, "| ",
                    Cell(Code(absl::StrCat(".", command.name, command.usage.empty() ? "" : " ", command.usage))), " | ",
                    Cell(command.doc), " | ", command.snapshot() ? "at once" : "between two steps", " | ",
                    command.writes ? "steers" : "", " |\n");
  }
  absl::StrAppend(&text, "\n## Commands of `mslua attach` itself\n\n```text\n", repl::AttachHelp(), "```\n");
  absl::StrAppend(&text, "\n## Commands of the REPL\n\n```text\n", repl::LoopHelp(), "```\n");
  absl::StrAppend(&text, "\nIn `mslua repl RECIPE`:\n\n```text\n", repl::RecipeHelp(), "```\n");
  return text;
}

// Adds the pages that the Lua file returns as a table.
Status AddLibrary(const std::string& file, Pages* pages) {
  ASSIGN_OR_RETURN(const auto session, OpenSession(SessionOptions()));
  RETURN_IF_ERROR(session->RunFile(file));
  lua_State* L = session->lua();
  if (lua_type(L, -1) != LUA_TTABLE) return absl::InternalError(absl::StrCat(file, " returns no table"));
  for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
    size_t size = 0;
    const char* const text = lua_tolstring(L, -1, &size);
    (*pages)[lua_tostring(L, -2)] = std::string(text, size);
  }
  return absl::OkStatus();
}

// The first page: the others by their titles.
std::string Index(const Pages& pages) {
  std::string text =
      "# Reference\n\nThese pages are generated from the definitions of operators, classes, verbs and commands by "
      "`tools/reference/generate`; a test fails where they are out of date.\n\n";
  for (const auto& [name, page] : pages)
    absl::StrAppend(&text, "- [", page.substr(2, page.find('\n') - 2), "](", name, ")\n");
  return text;
}

Status Generate() {
  Pages pages;
  pages["command_line.md"] = CommandLinePage();
  pages["interactive.md"] = InteractivePage();
  pages["environment.md"] = TopicPage("Environment variables", *cli::FindTopic("environment"), "variable");
  pages["exit_codes.md"] = TopicPage("Exit codes", *cli::FindTopic("exit-codes"), "code");
  RETURN_IF_ERROR(AddLibrary(FLAGS_library, &pages));
  pages["README.md"] = Index(pages);
  std::filesystem::create_directories(FLAGS_folder);
  for (const auto& [name, text] : pages) {
    std::ofstream file(absl::StrCat(FLAGS_folder, "/", name), std::ios::binary);
    file << text.substr(0, text.find_last_not_of('\n') + 1) << "\n";
    if (!file.flush()) return absl::UnavailableError(absl::StrCat("cannot write ", FLAGS_folder, "/", name));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace mslua

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (FLAGS_folder.empty() || FLAGS_library.empty() || argc > 1) {
    std::fprintf(stderr, "usage: reference_main --folder DIR --library library.lua\n");
    return 2;
  }
  const mslua::Status status = mslua::Generate();
  if (status.ok()) return 0;
  std::fprintf(stderr, "reference: %s\n", std::string(status.message()).c_str());
  return 1;
}
