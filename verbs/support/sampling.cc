#include "verbs/support/sampling.h"

#include <utility>

#include "core/base/folder.h"
#include "lua/recipe_files.h"
#include "verbs/support/run_recipe.h"

namespace mslua {

SessionOptions SamplingOptionsOf(const cli::CommandLine& command) {
  SessionOptions options = OptionsOf(command);
  options.has_seed = false;  // --seed is that of the draws
  options.flags.emplace_back("ckpt", command.String("ckpt"));
  options.flags.emplace_back("ckpt_given", command.Given("ckpt"));
  for (const auto& [flag, name] : {std::pair{"max-new", "max_new"}, {"top-k", "top_k"}})
    options.flags.emplace_back(name, static_cast<double>(command.Int(flag)));
  for (const auto& [flag, name] :
       {std::pair{"temperature", "temperature"}, {"top-p", "top_p"}, {"repetition-penalty", "repetition_penalty"}})
    options.flags.emplace_back(name, command.Float(flag));
  options.flags.emplace_back("dtype", command.String("dtype"));
  options.flags.emplace_back("dtype_given", command.Given("dtype"));
  options.flags.emplace_back("draws_seed", static_cast<double>(command.Int("seed")));
  return options;
}

Status CallForNetwork(Session& session, const std::string& name) {
  const std::string& file = session.options().file;
  if (!IsFolder(file)) RETURN_IF_ERROR(CheckRecipe(file));
  return CallVerb(session, name);
}

}  // namespace mslua
