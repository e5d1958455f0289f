// mslua predict
#include <utility>

#include "cli/common_flags.h"
#include "lua/open_session.h"
#include "lua/recipe_files.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_recipe.h"

DEFINE_int64(top, 5, "how many of the likeliest classes to print");

namespace mslua {
namespace {

StatusOr<int> Predict(const cli::CommandLine& command) {
  RETURN_IF_ERROR(CheckRecipe(command.positional[0]));
  SessionOptions options = OptionsOf(command);
  options.flags.emplace_back("ckpt", command.String("ckpt"));
  if (command.Given("top")) options.flags.emplace_back("top", static_cast<double>(command.Int("top")));
  ASSIGN_OR_RETURN(const auto session, OpenSession(std::move(options)));
  RETURN_IF_ERROR(CallVerb(*session, "predict"));
  return static_cast<int>(lua_tonumber(session->lua(), -1));
}

int RunPredict(const cli::CommandLine& command) {
  const auto code = Predict(command);
  return code.ok() ? *code : Report(code.status());
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(predict) {
  VerbDef verb;
  verb.name = "predict";
  verb.usage = "RECIPE FILE|- ... [key=value ...] [flags]";
  verb.doc = "what a trained network gives for pictures, CSV rows or text";
  verb.min_positional = 2;
  verb.max_positional = kUnlimited;
  verb.overrides = true;
  verb.flags = {Checkpoint(), Integer(FLAGS_top, "N", 1), Device(), Preset(), Json(), Traceback()};
  verb.examples = {"mslua predict recipes/resnet18_cifar10.lua cat.ppm --ckpt runs/a/ckpt --top 3",
                   "mslua predict recipes/resnet18_cifar10.lua cat.ppm dog.ppm --ckpt runs/a/ckpt --json",
                   "mslua predict recipes/examples/circle.lua - --ckpt runs/c/ckpt < points.csv"};
  verb.place = 110;
  verb.run = RunPredict;
  return verb;
}

}  // namespace mslua::cli
