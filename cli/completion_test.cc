#include "cli/completion.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "cli/verbs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Completion, NamesWhatIsBuiltAndNothingElse) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const StatusOr<std::string> script = CompletionScript(shell);
    ASSERT_TRUE(script.ok());
    for (const VerbDef& verb : Verbs()) {
      if (verb.built) {
        EXPECT_THAT(*script, HasSubstr(verb.name)) << shell;
      }
    }
    EXPECT_THAT(*script, HasSubstr(shell == std::string("fish") ? "-l resume" : "--resume")) << shell;
    EXPECT_THAT(*script, Not(HasSubstr("certs"))) << shell;
  }
  EXPECT_FALSE(CompletionScript("tcsh").ok());
}

TEST(Completion, BashCompletesVerbsAndFlags) {
  const std::string path = testing::TempDir() + "/mslua_completion.bash";
  std::ofstream(path) << *CompletionScript("bash") << "COMP_WORDS=(mslua tr); COMP_CWORD=1; _mslua\n"
                      << "[ \"${COMPREPLY[*]}\" = train ] || exit 1\n"
                      << "COMP_WORDS=(mslua train --res); COMP_CWORD=2; _mslua\n"
                      << "[ \"${COMPREPLY[*]}\" = --resume ] || exit 2\n"
                      << "COMP_WORDS=(mslua data m); COMP_CWORD=2; _mslua\n"
                      << "[ \"${COMPREPLY[*]}\" = make ] || exit 3\n";
  EXPECT_EQ(std::system(("bash " + path).c_str()), 0);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace mslua::cli
