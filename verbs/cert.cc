// mslua certs
#include "cli/flags.h"
#include "verbs/define.h"

DEFINE_int64(days, 30, "how long they hold");

namespace mslua::cli {

MSLUA_VERB(certs) {
  VerbDef verb;
  verb.name = "certs";
  verb.usage = "ACTION DIR [flags]";
  verb.doc = "test certificates";
  verb.flags = {Integer(FLAGS_days, "N", 1)};
  verb.actions = {{"init", "DIR", 1, 1}, {"show", "DIR", 1, 1}};
  verb.examples = {"mslua certs init certs", "mslua certs init certs --days 7", "mslua certs show certs"};
  verb.built = false;
  verb.place = 230;
  return verb;
}

}  // namespace mslua::cli
