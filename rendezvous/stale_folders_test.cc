#include "rendezvous/stale_folders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

namespace fs = std::filesystem;

std::string Root() {
  const char* base = getenv("TEST_TMPDIR");
  const std::string root = absl::StrCat(base != nullptr ? base : "/tmp", "/stale");
  fs::remove_all(root);
  fs::create_directories(root);
  return root;
}

void MakeFolder(const std::string& folder) {
  fs::create_directory(folder);
  std::ofstream(folder + "/token") << "secret";
}

TEST(StaleFolders, ThoseOfAKilledProcessAreRemovedAndHeldOnesAreNot) {
  const std::string root = Root();
  MakeFolder(root + "/mine");
  ASSERT_TRUE(HoldFolder(root + "/mine"));
  MakeFolder(root + "/theirs");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (!HoldFolder(root + "/theirs") || write(ready[1], "y", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(RemoveStaleFolders(root), 0);
  EXPECT_TRUE(fs::exists(root + "/theirs/token"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(RemoveStaleFolders(root), 1);
  EXPECT_FALSE(fs::exists(root + "/theirs"));
  EXPECT_TRUE(fs::exists(root + "/mine/token"));
  ReleaseFolder(root + "/mine");
  EXPECT_EQ(RemoveStaleFolders(root), 1);
}

TEST(StaleFolders, AHeldFolderIsNotRemovedForAnEarlierOneOfItsName) {
  const std::string folder = Root() + "/job";
  fs::create_directory(folder);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_GE(fd, 0);
  // Meanwhile another process removes it, and a third makes a new one.
  fs::remove(folder);
  fs::create_directory(folder);
  ASSERT_TRUE(HoldFolder(folder));
  EXPECT_FALSE(RemoveStaleFolder(folder, fd));
  EXPECT_TRUE(fs::exists(folder));
  close(fd);
  ReleaseFolder(folder);
}

TEST(StaleFolders, AFolderThatIsGoneCannotBeHeld) {
  const std::string root = Root();
  EXPECT_FALSE(HoldFolder(root + "/none"));
  EXPECT_EQ(RemoveStaleFolders(root + "/none"), 0);
}

TEST(StaleFolders, LinksAreNotFollowed) {
  const std::string root = Root();
  const std::string outside = root + "_outside";
  fs::remove_all(outside);
  MakeFolder(outside);
  fs::create_symlink(outside, root + "/link");
  EXPECT_EQ(RemoveStaleFolders(root), 0);
  EXPECT_TRUE(fs::exists(outside + "/token"));
}

}  // namespace
}  // namespace mslua
