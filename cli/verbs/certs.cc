// mslua certs
#include "cli/flags.h"
#include "cli/verbs/all.h"

DEFINE_int64(days, 30, "how long they hold");

namespace mslua::cli {

VerbDef CertsVerb() {
  VerbDef verb;
  verb.name = "certs";
  verb.usage = "ACTION DIR [flags]";
  verb.doc = "test certificates";
  verb.flags = {Integer(FLAGS_days, "N", 1)};
  verb.actions = {{"init", "DIR", 1, 1}, {"show", "DIR", 1, 1}};
  verb.examples = {"mslua certs init certs", "mslua certs init certs --days 7", "mslua certs show certs"};
  verb.built = false;
  return verb;
}

}  // namespace mslua::cli
