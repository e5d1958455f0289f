// mslua version
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

namespace mslua::cli {

VerbDef VersionVerb() {
  VerbDef verb;
  verb.name = "version";
  verb.usage = "[flags]";
  verb.doc = "version, libraries and processor features";
  verb.flags = {Json()};
  verb.examples = {"mslua version", "mslua --version", "mslua version --json"};
  return verb;
}

}  // namespace mslua::cli
