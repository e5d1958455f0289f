// mslua sample
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/common_flags.h"
#include "lua/open_session.h"
#include "lua/recipe_files.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_recipe.h"

namespace mslua {
namespace {

StatusOr<int> Sample(const cli::CommandLine& command) {
  RETURN_IF_ERROR(CheckRecipe(command.positional[0]));
  if (!absl::EndsWith(command.positional[1], ".png"))
    return absl::InvalidArgumentError(
        absl::StrCat("sample: expected a file that ends in .png, got '", command.positional[1], "'"));
  SessionOptions options = OptionsOf(command);
  options.flags.emplace_back("ckpt", command.String("ckpt"));
  ASSIGN_OR_RETURN(const auto session, OpenSession(std::move(options)));
  RETURN_IF_ERROR(CallVerb(*session, "sample"));
  return static_cast<int>(lua_tonumber(session->lua(), -1));
}

int RunSample(const cli::CommandLine& command) {
  const auto code = Sample(command);
  return code.ok() ? *code : Report(code.status());
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(sample) {
  VerbDef verb;
  verb.name = "sample";
  verb.usage = "RECIPE OUT.png [key=value ...] [flags]";
  verb.doc = "pictures that a trained network draws, as a PNG file";
  verb.min_positional = 2;
  verb.max_positional = 2;
  verb.overrides = true;
  verb.flags = {Checkpoint(), Preset(), Traceback()};
  verb.examples = {"mslua sample recipes/dcgan_mnist.lua digits.png",
                   "mslua sample recipes/dcgan_mnist.lua digits.png --ckpt runs/g/ckpt",
                   "mslua sample recipes/dcgan_mnist.lua digits.png --preset smoke --ckpt runs/g/ckpt"};
  verb.place = 115;
  verb.run = RunSample;
  return verb;
}

}  // namespace mslua::cli
