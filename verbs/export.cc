// mslua export
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/common_flags.h"
#include "lua/open_session.h"
#include "lua/recipe_files.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_recipe.h"

DEFINE_string(dtype, "f32", "the type in which float32 parameters are stored");

namespace mslua {
namespace {

StatusOr<int> Export(const cli::CommandLine& command) {
  RETURN_IF_ERROR(CheckRecipe(command.positional[0]));
  if (!absl::EndsWith(command.positional[1], ".onnx"))
    return absl::InvalidArgumentError(
        absl::StrCat("export: expected a file that ends in .onnx, got '", command.positional[1], "'"));
  SessionOptions options = OptionsOf(command);
  options.flags.emplace_back("ckpt", command.String("ckpt"));
  options.flags.emplace_back("dtype", command.String("dtype"));
  ASSIGN_OR_RETURN(const auto session, OpenSession(std::move(options)));
  RETURN_IF_ERROR(CallVerb(*session, "export"));
  return static_cast<int>(lua_tonumber(session->lua(), -1));
}

int RunExport(const cli::CommandLine& command) {
  const auto code = Export(command);
  return code.ok() ? *code : Report(code.status());
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(export) {
  VerbDef verb;
  verb.name = "export";
  verb.usage = "RECIPE OUT.onnx [key=value ...] [flags]";
  verb.doc = "a trained network as an ONNX model for any batch size";
  verb.min_positional = 2;
  verb.max_positional = 2;
  verb.overrides = true;
  verb.flags = {Checkpoint(), OneOf(FLAGS_dtype, "f32|f16|bf16"), Preset(), Traceback()};
  verb.examples = {"mslua export recipes/resnet18_cifar10.lua resnet18.onnx --ckpt runs/a/ckpt",
                   "mslua export recipes/resnet18_cifar10.lua resnet18.onnx --ckpt runs/a/ckpt --dtype bf16",
                   "mslua export recipes/examples/circle.lua circle.onnx --ckpt runs/c/ckpt"};
  verb.place = 120;
  verb.run = RunExport;
  return verb;
}

}  // namespace mslua::cli
