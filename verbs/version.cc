// mslua version
#include "core/base/version.h"

#include <cstdio>

#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "core/base/parallel_for.h"
#include "core/base/processor.h"
#include "core/json/json_string.h"
#include "core/op/registry.h"
#include "lua/core_module.h"
#include "verbs/define.h"

namespace mslua {
namespace {

int RunVersion(const cli::CommandLine& command) {
  if (command.Bool("json")) {
    std::printf("{\"version\": %s, \"lua\": %s, \"cpu\": %s, \"threads\": %d, \"operators\": %zu}\n",
                JsonString(kVersion).c_str(), JsonString(LuaVersion()).c_str(), JsonString(InstructionSets()).c_str(),
                ComputeThreads(), Operators().all().size());
    return kExitOk;
  }
  std::printf("mslua %s\n%s\ncpu %s, %d compute threads\n%zu operators\n", kVersion, LuaVersion(),
              InstructionSets().c_str(), ComputeThreads(), Operators().all().size());
  return kExitOk;
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(version) {
  VerbDef verb;
  verb.name = "version";
  verb.usage = "[flags]";
  verb.doc = "version, libraries and processor features";
  verb.flags = {Json()};
  verb.examples = {"mslua version", "mslua --version", "mslua version --json"};
  verb.place = 705;
  verb.run = RunVersion;
  return verb;
}

}  // namespace mslua::cli
