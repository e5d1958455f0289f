// mslua generate
#include "cli/common_flags.h"
#include "lua/object.h"
#include "verbs/define.h"
#include "verbs/support/run_as_rank.h"
#include "verbs/support/sampling.h"

DEFINE_string(prompt, "", "the text to continue");
DEFINE_string(prompt_file, "", "the same, from a file; - reads the standard input");
DEFINE_string(ids, "", "the same as token ids: 1,2,3");
DEFINE_string(stop_text, "", "end before this text");
DEFINE_int64(texts, 1, "how many texts to draw");

namespace mslua {
namespace {

int RunGenerate(const cli::CommandLine& command) {
  SessionOptions options = SamplingOptionsOf(command);
  for (const char* flag : {"prompt", "prompt-file", "ids", "stop"}) {
    if (!command.Given(flag)) continue;
    std::string name = flag;
    if (name == "prompt-file") name = "prompt_file";
    options.flags.emplace_back(name, command.String(flag));
  }
  options.flags.emplace_back("texts", static_cast<double>(command.Int("texts")));
  return RunAsRank(command, std::move(options), Joins::kAtOnce, [](Session& session) -> StatusOr<int> {
    RETURN_IF_ERROR(CallForNetwork(session, "generate"));
    return static_cast<int>(lua_tonumber(session.lua(), -1));
  });
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
  verb.flags =
      SamplingFlags({Text(FLAGS_prompt, "TEXT"), Text(FLAGS_prompt_file, "FILE|-"), Text(FLAGS_ids, "LIST"),
                     Text(FLAGS_stop_text, "TEXT").As("stop"), Integer(FLAGS_texts, "K", 1), Ranks(), Backend()});
  verb.examples = {"mslua generate recipes/char_gpt.lua data_path=/data/tinyshakespeare --prompt the --max-new 300",
                   "mslua generate /models/gpt2 --ids 1,2,3 --temperature 0.8 --top-k 50 --max-new 20",
                   "mslua generate /models/gpt2 --ids 1,2,3 --temperature 0 --json"};
  verb.place = 125;
  verb.run = RunGenerate;
  return verb;
}

}  // namespace mslua::cli
