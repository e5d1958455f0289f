#include "train/run_config.h"

#include "gtest/gtest.h"

namespace mslua {
namespace {

const char kConfig[] = "require(\"mslua.params\").resolved {from = \"r.lua\"} return 1\n";

std::string Head(const std::string& folders) {
  return "require(\"mslua.params\").resolved {folders = {" + folders + "}, from = \"r.lua\"} return 1\n";
}

TEST(RunConfig, NamesTheFolderOfTheRecipe) {
  EXPECT_EQ(WithFolders(kConfig, "runs/a", "/data/u"), Head("\"../..\", \"/data/u\""));
  EXPECT_EQ(WithFolders(kConfig, "./runs//a/", "/data/u"), Head("\"../..\", \"/data/u\""));
  EXPECT_EQ(WithFolders(kConfig, "/data/u/a", "/data/u"), Head("\"..\", \"/data/u\""));
  EXPECT_EQ(WithFolders(kConfig, ".", "/data/u"), Head("\".\", \"/data/u\""));
}

TEST(RunConfig, NamesAnAbsoluteFolderForARunElsewhere) {
  EXPECT_EQ(WithFolders(kConfig, "../a", "/data/u"), Head("\"/data/u\""));
  EXPECT_EQ(WithFolders(kConfig, "/tmp/a", "/data/a \"b\\"), Head("\"/data/a \\\"b\\\\\""));
  EXPECT_EQ(WithFolders(kConfig, "/tmp/a", "/data/a\n\r"), Head("\"/data/a\\n\\r\""));
}

TEST(RunConfig, NamesFoldersFromTheRun) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(PathsFromRun("keep", "runs/a", "/data/u"), (Paths{"../../keep", "/data/u/keep"}));
  EXPECT_EQ(PathsFromRun("runs/a/keep/", "runs/a", "/data/u"), (Paths{"keep/", "/data/u/runs/a/keep/"}));
  EXPECT_EQ(PathsFromRun("/big/keep", "runs/a", "/data/u"), (Paths{"/big/keep"}));
  EXPECT_EQ(PathsFromRun("keep", "/tmp/a", "/data/u"), (Paths{"/data/u/keep"}));
}

TEST(RunConfig, LeavesOtherTextAlone) { EXPECT_EQ(WithFolders("return 1", "runs/a", "/data/u"), "return 1"); }

}  // namespace
}  // namespace mslua
