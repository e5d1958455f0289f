// mslua: one program, one verb a use (cli/verbs.h).
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "cli/front.h"
#include "lua/verbs.h"

namespace {

int Help(const mslua::cli::CommandLine& command) {
  std::fputs(mslua::cli::HelpFor(command).c_str(), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using mslua::cli::CommandLine;
  const auto command = mslua::cli::ParseCommandLine(std::vector<std::string>(argv + 1, argv + argc));
  if (!command.ok()) {
    std::fprintf(stderr, "mslua: error: %s\n", std::string(command.status().message()).c_str());
    return 2;
  }
  const std::map<std::string, int (*)(const CommandLine&)> verbs = {
      {"help", Help}, {"run", mslua::RunScript}, {"repl", mslua::RunRepl}, {"version", mslua::RunVersion}};
  const auto verb = verbs.find(command->verb);
  if (verb == verbs.end()) {
    std::fprintf(stderr, "mslua: error: %s is not part of this build\n", command->verb.c_str());
    return 2;
  }
  return verb->second(*command);
}
