// mslua data
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/common_flags.h"
#include "cli/verbs/all.h"
#include "core/data/stand_in.h"

DEFINE_int64(samples, 0, "number of training samples");
DEFINE_int64(data_seed, 1, "seed");

namespace mslua::cli {

VerbDef DataVerb() {
  VerbDef verb;
  verb.name = "data";
  verb.usage = "ACTION [argument ...] [flags]";
  verb.doc = "data sets: list, make a learnable stand-in, verify";
  verb.flags = {Integer(FLAGS_samples, "N", 1).Of({"make"}), Integer(FLAGS_data_seed, "S", 0).As("seed").Of({"make"}),
                Json().Of({"ls", "verify"})};
  verb.actions = {{"ls", "[PATH]", 0, 1},
                  {"make", absl::StrCat(absl::StrJoin(data::StandIns(), "|"), " PATH"), 2, 2},
                  {"verify", "KIND PATH", 2, 2}};
  verb.examples = {"mslua data ls /data/mnist", "mslua data make cifar10 /data/cifar-10-batches-bin",
                   "mslua data verify mnist /data/mnist"};
  return verb;
}

}  // namespace mslua::cli
