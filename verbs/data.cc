// mslua data
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "core/base/text.h"
#include "core/data/inspect.h"
#include "core/data/stand_in.h"
#include "core/json/json_string.h"
#include "core/text/make_files.h"
#include "train/run_folder.h"
#include "verbs/define.h"
#include "verbs/support/report.h"

DEFINE_int64(samples, 0, "training samples, of text characters; a fifth as many are for tests");
DEFINE_int64(data_seed, 1, "seed");
DEFINE_int64(vocab, 0, "tokens of the vocabulary, special ones included");
DEFINE_string(kind, "bpe", "a byte-level BPE, or WordPiece");
DEFINE_bool(cased, false, "a WordPiece that keeps capital letters and accents");
DEFINE_string(special, "", "a special token; may be repeated; a BPE has <|endoftext|>");
DEFINE_string(tokenizer, "", "folder or file of the tokenizer");
DEFINE_string(end_of_text, "", "a token of the tokenizer that is put behind each file");
DEFINE_double(test_fraction, -1, "the end of the text that becomes val.bin, 0.1 if left out");
DEFINE_string(o, "", "new folder for what is made");

namespace mslua {
namespace {

constexpr int kMostFiles = 1 << 20;

std::string ColumnsText(const std::vector<data::Column>& columns) {
  return absl::StrJoin(columns, ", ", [](std::string* out, const data::Column& c) {
    absl::StrAppend(out, c.name, " ", ToString(c.type));
  });
}

void PrintReport(const std::string& path, const data::DataReport& report, bool json) {
  for (const data::PartReport& part : report.parts) {
    if (json) {
      std::printf("{\"path\": %s, \"format\": %s, \"part\": %s, \"samples\": %lld, \"columns\": %s}\n",
                  JsonString(path).c_str(), JsonString(data::FormatName(report.kind)).c_str(),
                  JsonString(part.name).c_str(), static_cast<long long>(part.samples),
                  JsonString(ColumnsText(part.columns)).c_str());
    } else {
      std::printf("%s  %s %s  %lld samples  %s\n", path.c_str(), data::FormatName(report.kind).c_str(),
                  part.name.c_str(), static_cast<long long>(part.samples), ColumnsText(part.columns).c_str());
      if (!part.histogram.empty()) std::printf("  of each label: %s\n", absl::StrJoin(part.histogram, " ").c_str());
    }
  }
  for (const std::string& notice : report.notices)
    std::fprintf(stderr, "mslua: note: %s\n", PrintableMessage(notice).c_str());
  for (const std::string& problem : report.problems)
    std::fprintf(stderr, "mslua: error: %s\n", PrintableMessage(problem).c_str());
  if (report.more_problems) std::fprintf(stderr, "mslua: error: and more\n");
}

Status MakeData(const std::string& kind, const std::string& path, const cli::CommandLine& command) {
  data::MakeOptions options;
  options.seed = static_cast<uint64_t>(command.Int("seed"));
  if (command.Given("samples")) {
    options.train = command.Int("samples");
    options.test = std::max<int64_t>(1, options.train / 5);
  }
  return data::MakeStandIn(kind, path, options);
}

Status Required(const cli::CommandLine& command, const std::string& action, const std::string& flag,
                const std::string& value) {
  if (command.Given(flag)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("data ", action, ": expected ", flag.size() == 1 ? "-" : "--", flag, " ", value));
}

// data tokenizer FILE... and data tokenize FILE...
Status MakeTokens(const cli::CommandLine& command) {
  const std::string& action = command.positional[0];
  const std::vector<std::string> files(command.positional.begin() + 1, command.positional.end());
  const std::string out = command.String("o");
  if (action == "tokenizer") {
    RETURN_IF_ERROR(Required(command, action, "vocab", "N"));
    RETURN_IF_ERROR(Required(command, action, "o", "DIR"));
    text::TrainOptions options;
    options.vocab_size = command.Int("vocab");
    options.word_piece = command.String("kind") == "wordpiece";
    options.lowercase = !command.Bool("cased");
    if (command.Bool("cased") && !options.word_piece)
      return absl::InvalidArgumentError("data tokenizer: --cased is for --kind wordpiece; a BPE keeps all letters");
    if (!options.word_piece) options.special = {"<|endoftext|>"};
    if (command.Given("special")) options.special = command.Strings("special");
    ASSIGN_OR_RETURN(const int64_t size, text::TrainTokenizer(files, options, out));
    std::printf("%s/tokenizer.json  %lld tokens\n", out.c_str(), static_cast<long long>(size));
    if (size < options.vocab_size) std::fprintf(stderr, "mslua: note: the text has no more pairs that occur twice\n");
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Required(command, action, "tokenizer", "DIR"));
  RETURN_IF_ERROR(Required(command, action, "o", "DIR"));
  text::TokenizeOptions options;
  if (command.Given("test-fraction")) options.test_fraction = command.Float("test-fraction");
  options.end_of_text = command.String("end-of-text");
  if (!(options.test_fraction < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--test-fraction: expected at least 0 and below 1, got ", options.test_fraction));
  }
  ASSIGN_OR_RETURN(const auto report, text::TokenizeFiles(files, command.String("tokenizer"), options, out));
  const char* const type = report.width == 2 ? "uint16" : "uint32";
  std::printf("%s  %lld tokens to train on, %lld to test with, %s\n", out.c_str(), static_cast<long long>(report.train),
              static_cast<long long>(report.val), type);
  return absl::OkStatus();
}

int RunData(const cli::CommandLine& command) {
  const auto& words = command.positional;
  const bool json = command.Bool("json");
  if (words[0] == "tokenizer" || words[0] == "tokenize") {
    const Status made = MakeTokens(command);
    return Report(absl::IsInvalidArgument(made) ? made : WithExitCode(made, kExitData));
  }
  if (words[0] == "make") {
    const Status made = MakeData(words[1], words[2], command);
    return Report(made, made.ok() || absl::IsInvalidArgument(made) ? 0 : kExitStorage);
  }
  // `ls` without a path looks at $DATA_PATH, or in the working folder.
  const char* variable = std::getenv("DATA_PATH");
  std::string path = variable != nullptr ? variable : ".";
  std::string wanted;
  if (words[0] == "verify") {
    wanted = words[1], path = words[2];
    const Status known = data::FindSource(wanted).status();
    if (!known.ok()) return Report(known);
  }
  if (words[0] == "ls" && words.size() > 1) path = words[1];
  const auto report = data::Inspect(path, words[0] == "verify", wanted);
  if (!report.ok()) return Report(report.status(), kExitData);
  PrintReport(path, *report, json);
  if (words[0] == "verify" && report->kind != wanted) {
    return Report(
        absl::InvalidArgumentError(absl::StrCat(path, " holds ", data::FormatName(report->kind), ", not ", wanted)),
        kExitData);
  }
  return report->problems.empty() ? kExitOk : kExitData;
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(data) {
  VerbDef verb;
  verb.name = "data";
  verb.usage = "ACTION [argument ...] [flags]";
  verb.doc = "data sets: list, make a stand-in, verify; train a tokenizer, make token files";
  verb.flags = {Integer(FLAGS_samples, "N", 1).Of({"make"}),
                Integer(FLAGS_data_seed, "S", 0).As("seed").Of({"make"}),
                Json().Of({"ls", "verify"}),
                Integer(FLAGS_vocab, "N", 2).Of({"tokenizer"}),
                OneOf(FLAGS_kind, "bpe|wordpiece").Of({"tokenizer"}),
                Switch(FLAGS_cased).Of({"tokenizer"}),
                Text(FLAGS_special, "TOKEN").Repeated().Of({"tokenizer"}),
                Text(FLAGS_tokenizer, "DIR").Of({"tokenize"}),
                Text(FLAGS_end_of_text, "TOKEN").Of({"tokenize"}),
                Number(FLAGS_test_fraction, "F", 0).Of({"tokenize"}),
                Text(FLAGS_o, "DIR").Of({"tokenizer", "tokenize"})};
  verb.actions = {{"ls", "[PATH]", 0, 1},
                  {"make", absl::StrCat(absl::StrJoin(data::StandIns(), "|"), " PATH"), 2, 2},
                  {"verify", "KIND PATH", 2, 2},
                  {"tokenizer", "TEXT...", 1, kMostFiles},
                  {"tokenize", "TEXT...", 1, kMostFiles}};
  verb.examples = {"mslua data ls /data/mnist", "mslua data make cifar10 /data/cifar-10-batches-bin",
                   "mslua data verify mnist /data/mnist"};
  verb.place = 210;
  verb.run = RunData;
  return verb;
}

}  // namespace mslua::cli
