#include "core/files/file_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

std::string TempPath(const std::string& name) {
  const char* base = getenv("TEST_TMPDIR");
  return absl::StrCat(base != nullptr ? base : "/tmp", "/", name);
}

TEST(FileLock, OneHolderWhichTheRefusalNames) {
  const std::string path = TempPath("one.lock");
  auto first = FileLock::Acquire(path);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE((*first)->locked());
  const auto second = FileLock::Acquire(path, absl::ZeroDuration());
  EXPECT_TRUE(absl::IsUnavailable(second.status()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat("in use by pid ", getpid(), " on ")));
  first->reset();
  EXPECT_TRUE(FileLock::Acquire(path, absl::ZeroDuration()).ok());
}

TEST(FileLock, EndsWithTheProcessThatHoldsIt) {
  const std::string path = TempPath("killed.lock");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FileLock::Acquire(path);
    if (write(ready[1], lock.ok() ? "y" : "n", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  EXPECT_TRUE(absl::IsUnavailable(FileLock::Acquire(path, absl::ZeroDuration()).status()));
  kill(child, SIGKILL);
  EXPECT_TRUE(FileLock::Acquire(path, absl::Seconds(60)).ok());  // waits for its end
  waitpid(child, nullptr, 0);
}

TEST(FileLock, TextOfAStrangerIsShownWithoutControlCharacters) {
  const std::string path = TempPath("text.lock");
  const auto lock = FileLock::Acquire(path);
  ASSERT_TRUE(lock.ok());
  FILE* file = fopen(path.c_str(), "w");
  fputs("\x1b]0;owned\x07 pid 1", file);
  fclose(file);
  const auto second = FileLock::Acquire(path, absl::ZeroDuration());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use by ?]0;owned? pid 1, which"));
}

TEST(FileLock, AFolderThatIsNotThereIsAnError) {
  EXPECT_TRUE(absl::IsNotFound(FileLock::Acquire(TempPath("none/x.lock")).status()));
}

}  // namespace
}  // namespace mslua
