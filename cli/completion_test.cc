#include "cli/completion.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

using Words = std::vector<std::string>;

// The candidates of the table for a line, without their text.
Words Offered(const Words& words, const std::vector<Candidate>& more = {}) {
  Words found;
  for (const absl::string_view line : absl::StrSplit(CompletionLines(SlotOf(words), more), '\n', absl::SkipEmpty())) {
    found.emplace_back(line.substr(0, line.find('\t')));
  }
  return found;
}

TEST(Completion, Verbs) {
  EXPECT_THAT(Offered({"tr"}), ElementsAre("train"));
  EXPECT_THAT(Offered({"help", "tr"}), ElementsAre("train"));
  EXPECT_THAT(Offered({"help", "exi"}), ElementsAre("exit-codes"));
  EXPECT_THAT(Offered({""}), Contains("help"));
  EXPECT_THAT(Offered({"nosuch", ""}), IsEmpty());
  EXPECT_THAT(Offered({}), Contains("train"));
}

TEST(Completion, FlagsAndTheirValues) {
  EXPECT_THAT(Offered({"train", "--res"}), ElementsAre("--resume"));
  EXPECT_THAT(Offered({"train", "r.lua", "--device", ""}), ElementsAre("cpu", "cuda"));
  EXPECT_THAT(Offered({"train", "r.lua", "--device=cu"}), ElementsAre("--device=cuda"));
  EXPECT_THAT(Offered({"train", "--resume=b"}), ElementsAre("--resume=best"));
  EXPECT_THAT(Offered({"train", "--log-every", "e"}), ElementsAre("epoch"));
  EXPECT_TRUE(SlotOf({"train", "--out", "ru"}).file);
  EXPECT_FALSE(SlotOf({"train", "--seed", ""}).file);
}

TEST(Completion, Actions) {
  EXPECT_THAT(Offered({"data", "m"}), ElementsAre("make"));
  EXPECT_THAT(Offered({"data", "make", ""}), ElementsAre("cifar10", "criteo", "mnist", "text"));
  EXPECT_TRUE(SlotOf({"data", "make", "mnist", ""}).file);
  EXPECT_THAT(Offered({"data", "ls", "--"}), ElementsAre("--json", "--help"));
  EXPECT_THAT(Offered({"ckpt", "c"}), ElementsAre("convert"));
  EXPECT_TRUE(SlotOf({"recipes", "show", ""}).recipe);
}

TEST(Completion, RecipesPresetsParametersAndRuns) {
  EXPECT_TRUE(SlotOf({"train", ""}).recipe);
  EXPECT_TRUE(SlotOf({"graph", ""}).recipe);
  const Slot preset = SlotOf({"train", "r.lua", "-n", "2", "--preset", "s"});
  EXPECT_TRUE(preset.preset);
  EXPECT_EQ(preset.recipe_file, "r.lua");
  const Slot parameter = SlotOf({"train", "--out", "runs/a", "r.lua", "l"});
  EXPECT_TRUE(parameter.parameter);
  EXPECT_EQ(parameter.recipe_file, "r.lua");
  EXPECT_TRUE(SlotOf({"recipes", "check", "r.lua", ""}).parameter);
  EXPECT_THAT(Offered({"train", "r.lua", "l"}, {{"lr=", "0.1"}, {"width=", ""}}), ElementsAre("lr="));
  EXPECT_TRUE(SlotOf({"train", "r.lua", "data_path=/d"}).file);
  EXPECT_THAT(Offered({"train", "r.lua", "data_path=/d"}, {{"/data/", ""}}), ElementsAre("data_path=/data/"));
  for (const char* verb : {"attach", "stop", "diag", "logs", "plot", "top"})
    EXPECT_TRUE(SlotOf({verb, ""}).run) << verb;
  EXPECT_TRUE(SlotOf({"plot", "runs/a", ""}).run);
  EXPECT_FALSE(SlotOf({"stop", "runs/a", ""}).run);
}

TEST(Completion, AnyWordsAreTaken) {
  std::mt19937 random(1);
  const Words words = {"train", "data", "make", "--", "-",     "--device=", "--device",
                       "=",     "-n",   "",     "a=", "r.lua", "\xff"};
  for (int i = 0; i < 20000; ++i) {
    Words line;
    for (int n = random() % 6; n > 0; --n) line.push_back(words[random() % words.size()]);
    CompletionLines(SlotOf(line), {});
  }
}

// What `shell` completes of `mslua ...`; the stand-in prints its arguments and then the lines that the program prints.
class Shells : public testing::Test {
 protected:
  Shells() {
    folder_ = testing::TempDir() + "/shells";
    mkdir(folder_.c_str(), 0700);
    Write("mslua", "#!/bin/sh\nprintf '%s|' \"$@\" >>words\nprintf '%s\\n' $OFFERS\n");
    chmod((folder_ + "/mslua").c_str(), 0700);
  }

  void Write(const std::string& name, const std::string& text) const { std::ofstream(folder_ + "/" + name) << text; }

  std::string Output(const std::string& command) const {
    std::string text;
    FILE* const pipe = popen(("cd " + folder_ + " && rm -f words && " + command + " 2>/dev/null").c_str(), "r");
    for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
    pclose(pipe);
    return text;
  }

  // The replies of bash; its COMP_WORDS are split at = as bash does.
  std::string Bash(const std::string& line, const std::string& words, const std::string& offers) const {
    Write("complete.bash", *CompletionScript("bash"));
    return Output(
        "OFFERS='" + offers + "' bash -c '. ./complete.bash; COMP_LINE=\"" + line +
        "\"; COMP_POINT=${#COMP_LINE}; COMP_WORDS=(" + words +
        "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _mslua ./mslua; printf \"<%s>\" \"${COMPREPLY[@]}\"; cat words'");
  }

  std::string folder_;
};

TEST_F(Shells, Bash) {
  EXPECT_EQ(Bash("./mslua tr", "./mslua tr", "train"), "<train >__complete|tr|");
  EXPECT_EQ(Bash("./mslua train ", "./mslua train \"\"", "recipes/ quickstart"),
            "<recipes/><quickstart >__complete|train||");
  EXPECT_EQ(Bash("./mslua train r.lua data_path=/d", "./mslua train r.lua data_path = /d", "data_path=/data/"),
            "</data/>__complete|train|r.lua|data_path=/d|");
  EXPECT_EQ(Bash("./mslua train --resume=", "./mslua train --resume =", "--resume=last"),
            "<last >__complete|train|--resume=|");
}

TEST_F(Shells, BashAsksTheProgramOfACloneThatIsBuilt) {
  const std::string tools = folder_ + "/tools", build = folder_ + "/.build";
  mkdir(tools.c_str(), 0700);
  Write("tools/build.sh", "");
  EXPECT_EQ(Bash("./mslua tr", "./mslua tr", "train"), "<>");  // nothing is asked, so that nothing is built
  mkdir(build.c_str(), 0700);
  Write(".build/mslua", "#!/bin/sh\nprintf 'built|' >>words\nprintf '%s\\n' $OFFERS\n");
  chmod((build + "/mslua").c_str(), 0700);
  EXPECT_EQ(Bash("./mslua tr", "./mslua tr", "train"), "<train >built|");
  std::filesystem::remove_all(tools);
  std::filesystem::remove_all(build);
}

TEST_F(Shells, Fish) {
  if (Output("command -v fish").empty()) GTEST_SKIP() << "no fish on this machine";
  Write("mslua.fish", *CompletionScript("fish"));
  EXPECT_EQ(Output("OFFERS=train fish -c 'source mslua.fish; complete -C \"./mslua tr\"; cat words'"),
            "train\n__complete|tr|");
}

TEST_F(Shells, Zsh) {
  if (Output("command -v zsh").empty()) GTEST_SKIP() << "no zsh on this machine";
  Write("_mslua", *CompletionScript("zsh"));
  // compadd works in a line editor only: the stand-in prints what it is given.
  EXPECT_EQ(Output("OFFERS='recipes/ quickstart' zsh -fc 'compdef() { }; compadd() { print -n -- \"<$*>\" }; "
                   "source ./_mslua; words=(./mslua train \"\"); CURRENT=3; _mslua; cat words'"),
            "<-- quickstart><-S  -- recipes/>__complete|train||");
}

TEST(Completion, OnlyKnownShells) { EXPECT_FALSE(CompletionScript("tcsh").ok()); }

}  // namespace
}  // namespace mslua::cli
