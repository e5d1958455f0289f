// mslua generate
#include <sys/stat.h>

#include <utility>

#include "cli/common_flags.h"
#include "lua/object.h"
#include "lua/open_session.h"
#include "lua/recipe_files.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_recipe.h"

DEFINE_string(generate_ckpt, "last", "the weights to load: of this recipe's last run");
DEFINE_string(prompt, "", "the text to continue");
DEFINE_string(prompt_file, "", "the same, from a file; - reads the standard input");
DEFINE_string(ids, "", "the same as token ids: 1,2,3");
DEFINE_int64(max_new, 128, "tokens to generate at most");
DEFINE_double(temperature, 1, "of the softmax; 0 takes the most likely token");
DEFINE_int64(top_k, 0, "draw from the K most likely tokens; 0: from all");
DEFINE_double(top_p, 1, "draw from the fewest tokens that have this probability together");
DEFINE_int64(generate_seed, 1, "the same seed draws the same text");
DEFINE_string(stop_text, "", "end before this text");
DEFINE_int64(texts, 1, "how many texts to draw");

namespace mslua {
namespace {

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

int RunGenerate(const cli::CommandLine& command) {
  SessionOptions options = OptionsOf(command);
  options.has_seed = false;  // --seed is that of the draws
  for (const char* flag : {"prompt", "prompt-file", "ids", "stop"}) {
    if (!command.Given(flag)) continue;
    std::string name = flag;
    if (name == "prompt-file") name = "prompt_file";
    options.flags.emplace_back(name, command.String(flag));
  }
  options.flags.emplace_back("ckpt", command.String("ckpt"));
  options.flags.emplace_back("ckpt_given", command.Given("ckpt"));
  for (const auto& [flag, name] : {std::pair{"max-new", "max_new"}, {"top-k", "top_k"}, {"texts", "texts"}})
    options.flags.emplace_back(name, static_cast<double>(command.Int(flag)));
  for (const auto& [flag, name] : {std::pair{"temperature", "temperature"}, {"top-p", "top_p"}})
    options.flags.emplace_back(name, command.Float(flag));
  options.flags.emplace_back("draws_seed", static_cast<double>(command.Int("seed")));
  auto session = OpenSession(std::move(options));
  if (!session.ok()) return Report(session.status());
  const std::string& file = (*session)->options().file;
  Status status;
  if (!IsFolder(file)) status = CheckRecipe(file);
  if (status.ok()) status = CallVerb(**session, "generate");
  if (!status.ok()) return Report(status);
  return static_cast<int>(lua_tonumber((*session)->lua(), -1));
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(generate) {
  VerbDef verb;
  verb.name = "generate";
  verb.usage = "RECIPE|DIR [key=value ...] [flags]";
  verb.doc = "text from a recipe's trained network, or from a folder as Hugging Face has it";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = {Text(FLAGS_generate_ckpt, "best|last|PATH").As("ckpt"),
                Text(FLAGS_prompt, "TEXT"),
                Text(FLAGS_prompt_file, "FILE|-"),
                Text(FLAGS_ids, "LIST"),
                Integer(FLAGS_max_new, "N", 1),
                Number(FLAGS_temperature, "T", 0),
                Integer(FLAGS_top_k, "K", 0),
                Number(FLAGS_top_p, "P", 0),
                Integer(FLAGS_generate_seed, "S", 0).As("seed"),
                Text(FLAGS_stop_text, "TEXT").As("stop"),
                Integer(FLAGS_texts, "K", 1),
                Preset(),
                Json(),
                Traceback()};
  verb.examples = {"mslua generate recipes/char_gpt.lua data_path=/data/tinyshakespeare --prompt the --max-new 300",
                   "mslua generate /models/gpt2 --ids 1,2,3 --temperature 0.8 --top-k 50 --max-new 20",
                   "mslua generate /models/gpt2 --ids 1,2,3 --temperature 0 --json"};
  verb.place = 25;
  verb.run = RunGenerate;
  return verb;
}

}  // namespace mslua::cli
