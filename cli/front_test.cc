#include "cli/front.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/topics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

DEFINE_int64(sample_n, 0, "a number");
DEFINE_bool(sample_f, false, "a switch");
DEFINE_bool(sample_color, true, "a switch that is on");
DEFINE_string(sample_e, "", "a text, repeated");
DEFINE_double(sample_timeout, -2, "seconds");

namespace mslua::cli {
namespace {

using Arguments = std::vector<std::string>;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

CommandLine Parsed(const Arguments& arguments) {
  StatusOr<CommandLine> command = ParseCommandLine(arguments);
  EXPECT_TRUE(command.ok()) << command.status();
  return command.ok() ? *std::move(command) : CommandLine();
}

std::string Refused(const Arguments& arguments) {
  const StatusOr<CommandLine> command = ParseCommandLine(arguments);
  EXPECT_FALSE(command.ok());
  return std::string(command.status().message());
}

TEST(Front, SeparatesArgumentsOverridesAndFlags) {
  const CommandLine c = Parsed({"train", "r.lua", "lr=0.1", "--out", "runs/a", "train.epochs=3", "lr=", "--seed=7"});
  EXPECT_EQ(c.verb, "train");
  EXPECT_THAT(c.positional, ElementsAre("r.lua"));
  EXPECT_THAT(c.overrides, ElementsAre(Pair("lr", "0.1"), Pair("train.epochs", "3"), Pair("lr", "")));
  EXPECT_EQ(c.String("out"), "runs/a");
  EXPECT_EQ(c.Int("seed"), 7);
  EXPECT_TRUE(c.Given("seed"));
}

TEST(Front, ValuesOfOverridesAreKeptAsTyped) {
  const CommandLine c = Parsed({"train", "r.lua", "a={1, 2}", "b=x=y", "_c.d_1=--out"});
  EXPECT_THAT(c.overrides, ElementsAre(Pair("a", "{1, 2}"), Pair("b", "x=y"), Pair("_c.d_1", "--out")));
}

TEST(Front, DefaultsAreNotGiven) {
  const CommandLine c = Parsed({"train", "r.lua"});
  EXPECT_EQ(c.String("device"), "cpu");
  EXPECT_EQ(c.Int("log-every"), 1);
  EXPECT_FALSE(c.Given("device"));
  EXPECT_EQ(c.String("out"), "");
  EXPECT_EQ(c.Int("max-steps"), 0);
  EXPECT_FALSE(Parsed({"version"}).Bool("json"));
}

TEST(Front, AnOptionalValueStandsAfterEqualsOnly) {
  CommandLine c = Parsed({"train", "--resume", "r.lua"});
  EXPECT_EQ(c.String("resume"), "last");
  EXPECT_THAT(c.positional, ElementsAre("r.lua"));
  c = Parsed({"train", "--resume=best", "--fast-dev-run", "r.lua"});
  EXPECT_EQ(c.String("resume"), "best");
  EXPECT_EQ(c.Int("fast-dev-run"), 1);
  EXPECT_EQ(Parsed({"train", "r.lua", "--fast-dev-run=5"}).Int("fast-dev-run"), 5);
  EXPECT_THAT(Refused({"train", "r.lua", "--resume", "runs/a"}),
              HasSubstr("unexpected argument 'runs/a' (did you mean '--resume=runs/a'?)"));
  EXPECT_THAT(Refused({"train", "--fast-dev-run", "5", "r.lua"}), HasSubstr("(did you mean '--fast-dev-run=5'?)"));
  EXPECT_THAT(Refused({"train", "--resume", "a=1", "r.lua", "runs/a"}),
              HasSubstr("(parameters are written key=value)"));
}

// A verb of the tests' own, for the kinds of flag that no verb has in all spellings.
VerbDef Sample() {
  VerbDef verb;
  verb.name = "sample";
  verb.max_positional = 9;
  verb.flags = {Integer(FLAGS_sample_n, "V", 1).As("n"), Switch(FLAGS_sample_f).As("f"),
                Text(FLAGS_sample_e, "V").As("e").Repeated(), Number(FLAGS_sample_timeout, "V", -1).As("timeout"),
                Switch(FLAGS_sample_color).As("color")};
  return verb;
}

TEST(Front, FlagsOfOneLetter) {
  for (const Arguments& arguments : {Arguments{"-n", "4"}, {"-n4"}, {"-n=4"}, {"--n", "4"}, {"--n=4"}}) {
    const StatusOr<CommandLine> c = ParseVerb(Sample(), arguments);
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_EQ(c->Int("n"), 4);
    EXPECT_TRUE(c->positional.empty());
  }
  EXPECT_TRUE(ParseVerb(Sample(), {"-f"})->Bool("f"));
  EXPECT_FALSE(ParseVerb(Sample(), {"-f=false"})->Bool("f"));
  EXPECT_THAT(ParseVerb(Sample(), {"-fx"}).status().message(), HasSubstr("unknown flag '-fx'"));
  EXPECT_THAT(ParseVerb(Sample(), {"-n"}).status().message(), HasSubstr("-n needs a value: -n V"));
  EXPECT_THAT(ParseVerb(Sample(), {"-nx"}).status().message(), HasSubstr("-n expects an integer from 1, got 'x'"));
  EXPECT_THAT(Refused({"recipes", "ls", "-n", "4"}), HasSubstr("unknown flag '-n'; it belongs to train"));
  EXPECT_THAT(Refused({"eval", "r.lua", "-json"}), HasSubstr("(did you mean '--json'?)"));
}

TEST(Front, RepeatedFlagsAreCollectedInOrder) {
  const StatusOr<CommandLine> c = ParseVerb(Sample(), {"-e", ".pause", "x", "-e.save", "-e", ".pause"});
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_THAT(c->Strings("e"), ElementsAre(".pause", ".save", ".pause"));
  EXPECT_THAT(c->positional, ElementsAre("x"));
  EXPECT_TRUE(c->Strings("n").empty());
}

TEST(Front, Numbers) {
  EXPECT_EQ(ParseVerb(Sample(), {"--timeout", "-.5"})->Float("timeout"), -0.5);
  EXPECT_EQ(ParseVerb(Sample(), {"--timeout=1e-3"})->Float("timeout"), 1e-3);
  for (const char* bad : {"nan", "inf", "-2", "1s", "1e999"}) {
    EXPECT_FALSE(ParseVerb(Sample(), {std::string("--timeout=") + bad}).ok()) << bad;
  }
}

TEST(Front, WordsOrNumbers) {
  EXPECT_EQ(Parsed({"train", "r.lua", "--log-every", "20"}).Int("log-every"), 20);
  const CommandLine c = Parsed({"train", "r.lua", "--log-every=epoch"});
  EXPECT_EQ(c.String("log-every"), "epoch");
  EXPECT_EQ(c.Int("log-every"), 0);
}

TEST(Front, BooleansMayBeSpeltOut) {
  EXPECT_TRUE(Parsed({"version", "--json"}).Bool("json"));
  EXPECT_TRUE(Parsed({"version", "--json=true"}).Bool("json"));
  EXPECT_FALSE(Parsed({"version", "--json=false"}).Bool("json"));
  EXPECT_THAT(Refused({"version", "--json=maybe"}), HasSubstr("--json expects true or false, got 'maybe'"));
}

// As in gflags: --no-FLAG and --noFLAG turn a boolean off, and _ is - in a name.
TEST(Front, SpellingsOfGflags) {
  for (const char* off : {"--no-json", "--nojson", "--json=false", "--json=f", "--no_json"}) {
    EXPECT_FALSE(Parsed({"version", off}).Bool("json")) << off;
    EXPECT_TRUE(Parsed({"version", off}).Given("json")) << off;
  }
  EXPECT_TRUE(ParseVerb(Sample(), {})->Bool("color"));
  EXPECT_TRUE(ParseVerb(Sample(), {"--color"})->Bool("color"));
  EXPECT_FALSE(ParseVerb(Sample(), {"--no-color"})->Bool("color"));
  EXPECT_EQ(Parsed({"train", "r.lua", "--max_steps=3"}).Int("max-steps"), 3);
  EXPECT_EQ(Refused({"version", "--no-json=true"}), "version: --no-json takes no value, got '--no-json=true'");
  EXPECT_THAT(Refused({"train", "r.lua", "--no-out"}), HasSubstr("unknown flag '--no-out'"));
  EXPECT_THAT(Refused({"version", "--json", "--no-json"}), HasSubstr("--no-json is given twice"));
  EXPECT_THAT(Parsed({"train", "r.lua", "--no-attach"}).Ignored(), ElementsAre("--no-attach"));
}

// Flags of the library that read files and the environment, or print and exit, belong to no verb.
TEST(Front, OwnFlagsOfGflagsAreUnknown) {
  for (const char* flag : {"--flagfile=/etc/passwd", "--fromenv=seed", "--tryfromenv=seed", "--undefok=zz", "--helpxml",
                           "--helpfull", "--tab_completion_word=x"}) {
    EXPECT_THAT(Refused({"train", "r.lua", flag}), HasSubstr("unknown flag '--")) << flag;
  }
}

// The text is one gflags flag of the verb's file: defaults, help and value come from there.
TEST(Front, FlagsAreGflagsFlags) {
  for (const VerbDef& verb : Verbs()) {
    for (const FlagDef& flag : verb.flags) {
      gflags::CommandLineFlagInfo info;
      ASSERT_TRUE(gflags::GetCommandLineFlagInfo(flag.gflag.c_str(), &info)) << verb.name << " " << flag.name;
      EXPECT_EQ(info.flag_ptr, flag.storage);
      EXPECT_TRUE(info.has_validator_fn) << flag.gflag;
      EXPECT_TRUE(
          absl::EndsWith(info.filename, absl::StrCat("verbs/", absl::StrReplaceAll(verb.name, {{"-", "_"}}), ".cc")) ||
          absl::EndsWith(info.filename, "cli/common_flags.cc"))
          << info.filename << " " << flag.gflag;
    }
  }
}

// One command line leaves nothing behind for the next.
TEST(Front, ACommandLineLeavesGflagsAsTheyWere) {
  EXPECT_EQ(Parsed({"train", "r.lua", "--seed=7", "--resume"}).Int("seed"), 7);
  EXPECT_EQ(gflags::GetCommandLineFlagInfoOrDie("seed").current_value, "-1");
  EXPECT_EQ(Parsed({"train", "r.lua"}).String("resume"), "");
}

TEST(Front, TwoDashesEndFlags) {
  const CommandLine c = Parsed({"run", "s.lua", "a=1", "--", "-5", "b=2", "--help", "--"});
  EXPECT_THAT(c.positional, ElementsAre("s.lua", "-5", "b=2", "--help", "--"));
  EXPECT_THAT(c.overrides, ElementsAre(Pair("a", "1")));
}

TEST(Front, Actions) {
  const CommandLine c = Parsed({"data", "make", "cifar10", "/d", "--samples", "100"});
  EXPECT_THAT(c.positional, ElementsAre("make", "cifar10", "/d"));
  EXPECT_EQ(c.Int("samples"), 100);
  EXPECT_EQ(c.Int("seed"), 1);
  EXPECT_THAT(Refused({"data"}), HasSubstr("data: needs one of: ls make verify"));
  EXPECT_THAT(Refused({"data", "mkae", "x"}), HasSubstr("got 'mkae' (did you mean 'make'?)"));
  EXPECT_THAT(Refused({"data", "make", "cifar10"}), HasSubstr("too few arguments: mslua data make"));
  EXPECT_THAT(Refused({"data", "ls", "a=b"}), HasSubstr("takes no key=value"));
}

// A flag of another action, and a flag that nothing asked for, are no flags that were ignored.
TEST(Front, FlagsBelongToActions) {
  EXPECT_EQ(Refused({"data", "ls", "--samples", "3"}), "data: --samples has no effect on ls: it belongs to data make");
  EXPECT_EQ(Refused({"ckpt", "verify", "c", "--json"}),
            "ckpt: --json has no effect on verify: it belongs to ckpt ls, show");
  EXPECT_EQ(Refused({"recipes", "show", "r", "--json"}),
            "recipes: --json has no effect on show: it belongs to recipes ls");
}

TEST(Front, SaysWhichFlagsNothingRead) {
  const CommandLine c = Parsed({"train", "r.lua", "--seed", "4", "--out", "a", "-n", "2", "--no-attach"});
  EXPECT_THAT(c.Ignored(), testing::UnorderedElementsAre("--seed", "--out", "-n", "--no-attach"));
  EXPECT_EQ(c.Int("seed"), 4);
  EXPECT_TRUE(c.Given("out"));
  EXPECT_FALSE(c.Bool("attach"));
  EXPECT_THAT(c.Ignored(), testing::ElementsAre("-n"));
  c.HandOn();
  EXPECT_TRUE(c.Ignored().empty());
}

TEST(Front, ParametersHaveNoDashes) {
  EXPECT_EQ(Refused({"train", "r.lua", "--lr=0.1"}),
            "train: unknown flag '--lr'; `mslua help train` lists its flags; a parameter of the recipe has no dashes: "
            "write 'lr=0.1'");
  EXPECT_THAT(Refused({"train", "r.lua", "--epochs", "2"}), HasSubstr("write 'epochs=2'"));
  EXPECT_THAT(Refused({"train", "--batch-size", "r.lua"}), HasSubstr("write 'batch_size=VALUE'"));
  EXPECT_THAT(Refused({"train", "r.lua", "--steps=3"}), HasSubstr("it belongs to lr-find, prof; a parameter"));
  EXPECT_THAT(Refused({"doctor", "--lr=0.1"}), testing::Not(HasSubstr("parameter")));
}

TEST(Front, Help) {
  EXPECT_EQ(HelpFor(Parsed({"help"})), OverviewText());
  EXPECT_EQ(HelpFor(Parsed({"--help"})), OverviewText());
  EXPECT_EQ(HelpFor(Parsed({"help", "train"})), HelpText(*FindVerb("train")));
  EXPECT_EQ(HelpFor(Parsed({"train", "--help"})), HelpText(*FindVerb("train")));
  EXPECT_EQ(HelpFor(Parsed({"--help", "train"})), HelpText(*FindVerb("train")));
  EXPECT_EQ(HelpFor(Parsed({"train", "r.lua", "--bogus", "-h"})), HelpText(*FindVerb("train")));
  EXPECT_THAT(Refused({"help", "trian"}), HasSubstr("(did you mean 'train'?)"));
  EXPECT_EQ(Parsed({"--version"}).verb, "version");
}

TEST(Front, TopicsOfHelp) {
  EXPECT_THAT(HelpFor(Parsed({"help", "exit-codes"})), HasSubstr("\n  75   stopped after a checkpoint was saved"));
  EXPECT_THAT(HelpFor(Parsed({"help", "exit-codes"})), HasSubstr("\n  1    a line failed that repl or chat read"));
  EXPECT_THAT(HelpFor(Parsed({"help", "environment"})), HasSubstr("\n  OMP_NUM_THREADS "));
  EXPECT_THAT(HelpFor(Parsed({"help", "last"})), HasSubstr("\n  runs rm                        the run that began"));
  for (const Topic& topic : Topics()) {
    for (const absl::string_view line : absl::StrSplit(TopicText(topic), '\n')) EXPECT_LE(line.size(), 100u) << line;
    EXPECT_THAT(Refused({topic.name}), HasSubstr("unknown verb"));
  }
}

TEST(Front, MistakesGiveOneLineWithTheMend) {
  EXPECT_THAT(Refused({}), HasSubstr("needs a verb"));
  EXPECT_EQ(Refused({"trian", "r.lua"}), "unknown verb 'trian' (did you mean 'train'?)");
  EXPECT_EQ(Refused({"r.lua"}), "unknown verb 'r.lua'; to train it: mslua train r.lua");
  EXPECT_THAT(Refused({"--json", "version"}), HasSubstr("the verb comes first"));
  EXPECT_THAT(Refused({""}), HasSubstr("unknown verb ''"));
  EXPECT_EQ(Refused({"train", "r.lua", "--log-evry", "3"}),
            "train: unknown flag '--log-evry' (did you mean '--log-every'?)");
  EXPECT_THAT(Refused({"train", "r.lua", "--zzzzzz"}), HasSubstr("`mslua help train` lists its flags"));
  EXPECT_THAT(Refused({"train"}), HasSubstr("too few arguments: mslua train RECIPE"));
  EXPECT_THAT(Refused({"train", "r.lua", "lr"}),
              HasSubstr("unexpected argument 'lr' (parameters are written key=value)"));
  EXPECT_THAT(Refused({"train", "r.lua", "max-steps=3"}), HasSubstr("(did you mean '--max-steps=3'?)"));
  EXPECT_EQ(Refused({"train", "r.lua", "--out"}), "train: --out needs a value: --out DIR");
  EXPECT_EQ(Refused({"train", "r.lua", "--out", "--resume"}), "train: --out needs a value: --out DIR");
  EXPECT_THAT(Refused({"train", "r.lua", "--out="}), HasSubstr("--out expects a text, got ''"));
  EXPECT_THAT(Refused({"train", "r.lua", "--max-steps", "0"}), HasSubstr("expects an integer from 1, got '0'"));
  EXPECT_THAT(Refused({"train", "r.lua", "--max-steps", "-1"}), HasSubstr("expects an integer from 1, got '-1'"));
  EXPECT_THAT(Refused({"train", "r.lua", "--max-steps=1e3"}), HasSubstr("got '1e3'"));
  EXPECT_THAT(Refused({"train", "r.lua", "--max-steps=99999999999999999999"}), HasSubstr("expects an integer"));
  EXPECT_THAT(Refused({"train", "r.lua", "--log-every=epcoh"}), HasSubstr("(did you mean 'epoch'?)"));
  EXPECT_THAT(Refused({"train", "r.lua", "--device=gpu"}), HasSubstr("--device expects cpu or cuda, got 'gpu'"));
  EXPECT_THAT(Refused({"train", "r.lua", "--out", "a", "--out", "b"}), HasSubstr("--out is given twice"));
  EXPECT_THAT(Refused({"version", "x"}), HasSubstr("unexpected argument 'x'"));
  EXPECT_THAT(Refused({"help", "\x1b[31mred"}), HasSubstr("'?[31mred'"));
  EXPECT_LT(Refused({std::string(100000, 'a')}).size(), 200u);
}

TEST(Verbs, TheTableIsSound) {
  std::set<std::string> names;
  for (const VerbDef& verb : Verbs()) {
    EXPECT_TRUE(names.insert(verb.name).second) << verb.name;
    EXPECT_EQ(verb.examples.size(), 3u) << verb.name;
    std::set<std::string> flags;
    for (const FlagDef& flag : verb.flags) {
      EXPECT_TRUE(flags.insert(flag.name).second) << verb.name << " " << flag.name;
      EXPECT_FALSE(flag.help.empty());
      EXPECT_FALSE(flag.repeated && !flag.default_value.empty());
    }
  }
}

TEST(Verbs, TheOverviewHasALineForEachUnderTheHeadingOfItsGroup) {
  const std::string overview = OverviewText();
  const size_t jobs = overview.find("\n\nrunning jobs\n"), ps = overview.find("\n  ps          running jobs\n"),
               runs = overview.find("\n\nfinished runs\n");
  EXPECT_LT(overview.find("\n  train       train a recipe; "), jobs) << overview;
  EXPECT_LT(jobs, ps) << overview;
  EXPECT_LT(ps, runs) << overview;
  EXPECT_NE(runs, std::string::npos) << overview;
  std::set<absl::string_view> headings;
  for (const absl::string_view line : absl::StrSplit(overview, '\n')) {
    EXPECT_LE(line.size(), 100u) << line;
    if (!line.empty() && line[0] != ' ') {
      EXPECT_TRUE(headings.insert(line).second) << line << " stands twice";
    }
  }
  for (const VerbDef& verb : Verbs()) {
    EXPECT_THAT(overview, HasSubstr(absl::StrCat("\n  ", verb.name, " ")));
    EXPECT_GE(verb.place, 100) << verb.name << " is in no group";
    EXPECT_LT(verb.place, 800) << verb.name << " is in no group";
  }
}

TEST(Verbs, HelpPagesAreShortAndNarrow) {
  std::vector<std::string> pages;
  for (const VerbDef& verb : Verbs()) pages.push_back(HelpText(verb));
  for (const std::string& page : pages) {
    const std::vector<std::string> lines = absl::StrSplit(page, '\n');
    EXPECT_LT(lines.size(), 44u) << page;
    for (const std::string& line : lines) EXPECT_LE(line.size(), 100u) << line;
  }
}

// Each example of a verb is accepted, so that the help cannot drift from the parser.
TEST(Verbs, ExamplesParse) {
  for (const VerbDef& verb : Verbs()) {
    for (const std::string& example : verb.examples) {
      EXPECT_TRUE(absl::StrContains(example, "mslua ")) << example;
      if (!absl::StartsWith(example, "mslua ")) continue;
      Arguments arguments;
      for (const auto& word : absl::StrSplit(example.substr(6), ' ')) {
        if (word == ">" || word == "|") break;
        arguments.emplace_back(word);
      }
      EXPECT_TRUE(ParseCommandLine(arguments).ok()) << example << ": " << ParseCommandLine(arguments).status();
    }
  }
}

// Random command lines neither crash nor give an error of more than one line.
TEST(Front, AnyArgumentsEndInACommandOrOneLine) {
  std::mt19937 random(1);
  const Arguments words = {
      "train", "data", "make", "help",     "--",          "-", "=",  "--=",    "-n", "-n4", "--out",  "--out=x",
      "a=b",   "a.b=", ".=",   "--resume", "--max-steps", "9", "-h", "--json", "",   "\n",  "--\x80", "-\xff="};
  for (int i = 0; i < 20000; ++i) {
    Arguments arguments;
    for (int n = random() % 6; n > 0; --n) {
      std::string word = words[random() % words.size()];
      if (!word.empty() && random() % 4 == 0) word[random() % word.size()] = static_cast<char>(random());
      arguments.push_back(word);
    }
    const StatusOr<CommandLine> command = ParseCommandLine(arguments);
    if (command.ok()) continue;
    const std::string message(command.status().message());
    EXPECT_FALSE(message.empty());
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace mslua::cli
