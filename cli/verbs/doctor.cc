// mslua doctor
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

DEFINE_bool(calibrate, false, "measure what strategy search counts with, and keep it");

namespace mslua::cli {

VerbDef DoctorVerb() {
  VerbDef verb;
  verb.name = "doctor";
  verb.usage = "[flags]";
  verb.doc = "check this machine and say what to fix";
  verb.flags = {Switch(FLAGS_calibrate), Json()};
  verb.examples = {"mslua doctor", "mslua doctor --json", "mslua doctor --calibrate"};
  return verb;
}

}  // namespace mslua::cli
