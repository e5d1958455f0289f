#include "core/base/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {
bool without_rename_flags = false;  // as on NFS
}

// In place of the C library's.
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned int flags) noexcept {
  if (without_rename_flags && flags != 0) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

namespace mslua {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* base = getenv("TEST_TMPDIR");
    folder_ = std::string(base != nullptr ? base : "/tmp") + "/atomic_file";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  std::string At(const std::string& name) const { return folder_ + "/" + name; }
  int Entries() const { return static_cast<int>(std::distance(fs::directory_iterator(folder_), {})); }

  std::string folder_;
};

std::string Contents(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST_F(AtomicFileTest, WritesAndReplaces) {
  ASSERT_TRUE(WriteFileAtomically(At("a"), "one").ok());
  EXPECT_EQ(Contents(At("a")), "one");
  ASSERT_TRUE(WriteFileAtomically(At("a"), std::string(3 << 20, 'x')).ok());
  EXPECT_EQ(fs::file_size(At("a")), 3u << 20);
  EXPECT_EQ(Entries(), 1);
}

TEST_F(AtomicFileTest, CommitNewReplacesNothing) {
  const auto put = [&](const std::string& text) {
    const auto file = AtomicFile::Create(At("a"));
    EXPECT_TRUE(file.ok() && (*file)->Write(text.data(), text.size()).ok());
    return (*file)->CommitNew();
  };
  EXPECT_TRUE(put("one").ok());
  EXPECT_EQ(put("two").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Contents(At("a")), "one");
  EXPECT_EQ(Entries(), 1);
}

TEST_F(AtomicFileTest, AFileGetsTheModeThatIsWanted) {
  const mode_t before = umask(077);
  ASSERT_TRUE((*AtomicFile::Create(At("open"), 0644))->Commit().ok());
  umask(0);
  ASSERT_TRUE((*AtomicFile::Create(At("closed"), 0600))->Commit().ok());
  umask(before);
  EXPECT_EQ(static_cast<int>(fs::status(At("open")).permissions()), 0644);
  EXPECT_EQ(static_cast<int>(fs::status(At("closed")).permissions()), 0600);
}

TEST_F(AtomicFileTest, ErrorsNameTheFileThatIsWanted) {
  const Status file = WriteFileAtomically(At("none/a"), "one");
  EXPECT_THAT(std::string(file.message()), HasSubstr("cannot write " + At("none/a") + ": No such file")) << file;
  EXPECT_EQ(ExitCodeIn(file), kExitStorage);
  const Status folder = AtomicFolder::Create(At("none/b")).status();
  EXPECT_THAT(std::string(folder.message()), HasSubstr(At("none/b") + ": No such file")) << folder;
  EXPECT_EQ(ExitCodeIn(folder), kExitStorage);
}

TEST_F(AtomicFileTest, PipesAndDevicesStayWhatTheyAre) {
  const std::string pipe = At("pipe"), link = At("link");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_TRUE(WriteFileAtomically(pipe, "one").ok());
  char text[8] = {};
  EXPECT_EQ(read(reader, text, sizeof text), 3);
  EXPECT_STREQ(text, "one");
  close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));

  fs::create_symlink("/dev/null", link);
  EXPECT_TRUE(WriteFileAtomically(link, "one").ok());
  EXPECT_TRUE(fs::is_symlink(link) && fs::is_character_file("/dev/null"));
  for (const std::string& path : {pipe, link}) {
    const Status folder = AtomicFolder::Create(path).status();
    EXPECT_THAT(std::string(folder.message()), HasSubstr(path + ": a device or a pipe is there")) << folder;
  }
  EXPECT_EQ(Entries(), 2);
}

TEST_F(AtomicFileTest, NothingChangesWithoutCommit) {
  ASSERT_TRUE(WriteFileAtomically(At("a"), "old").ok());
  {
    auto file = AtomicFile::Create(At("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Write("new", 3).ok());
    EXPECT_EQ(Contents(At("a")), "old");
  }
  EXPECT_EQ(Contents(At("a")), "old");
  EXPECT_EQ(Entries(), 1);
}

TEST_F(AtomicFileTest, ErrorsNameThePathAndTheCause) {
  const Status status = WriteFileAtomically(At("missing/a"), "x");
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(status.message(), HasSubstr(At("missing/a")));
  EXPECT_THAT(status.message(), HasSubstr("No such file"));

  fs::create_directories(At("folder/inside"));
  EXPECT_FALSE(WriteFileAtomically(At("folder"), "x").ok());
  EXPECT_TRUE(fs::is_directory(At("folder/inside")));
}

TEST_F(AtomicFileTest, AFailedWriteLeavesTheOldFile) {
  ASSERT_TRUE(WriteFileAtomically(At("a"), "old").ok());
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = WriteFileAtomically(At("a"), std::string(5000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(At("a")));
  EXPECT_THAT(status.message(), HasSubstr("File too large"));
  EXPECT_EQ(Contents(At("a")), "old");
  EXPECT_EQ(Entries(), 1);
}

TEST_F(AtomicFileTest, FoldersAreCommittedWholeAndReplaced) {
  for (const auto& [text, flags] : {std::pair("one", true), {"two", true}, {"three", false}, {"two", false}}) {
    without_rename_flags = !flags;
    auto folder = AtomicFolder::Create(At("f/"));
    ASSERT_TRUE(folder.ok()) << folder.status();
    ASSERT_TRUE(WriteFileAtomically((*folder)->path() + "/x", text).ok());
    ASSERT_TRUE((*folder)->Commit().ok());
    without_rename_flags = false;
    EXPECT_EQ(Contents(At("f/x")), text);
    EXPECT_EQ(Entries(), 1);
  }
  {
    auto folder = AtomicFolder::Create(At("f"));
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE(WriteFileAtomically((*folder)->path() + "/x", "three").ok());
  }
  EXPECT_EQ(Contents(At("f/x")), "two");
  EXPECT_EQ(Entries(), 1);
}

TEST_F(AtomicFileTest, TemporaryNames) {
  EXPECT_TRUE(IsTemporaryName("a.tmp-12-0"));
  EXPECT_TRUE(IsTemporaryName("net-1_2.ckpt.tmp-7-13"));
  for (const char* name :
       {"a", "a.tmp-", "a.tmp-1", "a.tmp-1-", "a.tmp--1", "a.tmp-1-x", ".tmp-1-2", "a.tmp-1-2.txt"}) {
    EXPECT_FALSE(IsTemporaryName(name)) << name;
  }
}

TEST_F(AtomicFileTest, LeftoversOfAKilledWriterAreRemovedAndLiveOnesKept) {
  const pid_t child = fork();
  if (child == 0) {
    auto file = AtomicFile::Create(At("a"));
    auto folder = AtomicFolder::Create(At("f"));
    const bool ok = file.ok() && folder.ok() && WriteFileAtomically((*folder)->path() + "/x", "x").ok();
    raise(ok ? SIGKILL : SIGTERM);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  ASSERT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
  EXPECT_EQ(Entries(), 2);
  ASSERT_TRUE(WriteFileAtomically(At("kept"), "x").ok());
  auto live_file = AtomicFile::Create(At("b"));
  auto live_folder = AtomicFolder::Create(At("g"));
  ASSERT_TRUE(live_file.ok() && live_folder.ok());
  EXPECT_EQ(RemoveLeftovers(folder_), 2);
  EXPECT_EQ(Entries(), 3);
  EXPECT_TRUE((*live_file)->Commit().ok());
  EXPECT_TRUE((*live_folder)->Commit().ok());
  EXPECT_EQ(Entries(), 3);
  EXPECT_EQ(RemoveLeftovers(folder_), 0);
  EXPECT_EQ(RemoveLeftovers(At("nowhere")), 0);
}

TEST_F(AtomicFileTest, RemovesFoldersWhole) {
  fs::create_directories(At("f/inside"));
  EXPECT_TRUE(RemoveAtomically(At("f/")).ok());
  EXPECT_EQ(Entries(), 0);
  EXPECT_TRUE(RemoveAtomically(At("f")).ok());
}

}  // namespace
}  // namespace mslua
