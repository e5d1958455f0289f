#include "launch/crash_file.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/crash_note.h"

// As assembly of a library may be: libgcc ends the process at the instruction in its table, which there is none of.
asm(R"(
  .text
  .globl CrashesWithABadTable
  .type CrashesWithABadTable, @function
CrashesWithABadTable:
  .cfi_startproc
  .cfi_escape 0x3f
  ud2
  .cfi_endproc
  .size CrashesWithABadTable, . - CrashesWithABadTable
)");
extern "C" void CrashesWithABadTable();

namespace mslua {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

volatile int* volatile nowhere = nullptr;

[[gnu::noinline, gnu::no_sanitize("undefined", "address")]] void WritesToNowhere() { *nowhere = 1; }

[[gnu::noinline]] int Deeper(volatile char* above) {
  volatile char page[4096];
  page[0] = above[0];
  return above[0] == 0 ? 0 : Deeper(page) + page[0];
}

struct Crash {
  int status = 0;
  std::string errors;
};

// What a process leaves that does that.
Crash CrashOf(const std::string& path, const std::function<void()>& what) {
  const std::string errors = path + ".errors";
  std::atomic<int64_t> step{7};
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen(errors.c_str(), "w", stderr) == nullptr) _exit(1);
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const CrashFile file(path, "rank 1/4 (pid 812, host a)", &step);
    what();
    _exit(0);
  }
  Crash crash;
  waitpid(child, &crash.status, 0);
  crash.errors = TextOf(errors);
  return crash;
}

std::string Place(const char* name) { return testing::TempDir() + "/" + name; }

TEST(CrashFile, HasSignalAddressStepAndBacktrace) {
  const std::string path = Place("write.crash");
  const Crash crash = CrashOf(path, WritesToNowhere);
  ASSERT_TRUE(WIFSIGNALED(crash.status));
  EXPECT_EQ(WTERMSIG(crash.status), SIGSEGV);
  const std::string text = TextOf(path);
  EXPECT_THAT(text,
              HasSubstr("rank 1/4 (pid 812, host a) crashed: signal 11 (Segmentation fault) at address 0x0, after "
                        "step 7, thread "));
  EXPECT_THAT(text, HasSubstr("WritesToNowhere"));
  EXPECT_THAT(text, HasSubstr("crash_file_test"));  // among the modules
  EXPECT_THAT(crash.errors, HasSubstr("crashed: signal 11"));
  EXPECT_THAT(crash.errors, HasSubstr("; backtrace in " + path));
  EXPECT_EQ(CrashNote(path, "pid 812, host a"), "; backtrace in " + path);
  EXPECT_EQ(CrashNote(path, "pid 81, host a"), "");
  EXPECT_EQ(CrashNote(path + ".none", "pid 812, host a"), "");
}

TEST(CrashFile, OfAnotherThread) {
  const std::string path = Place("thread.crash");
  const Crash crash = CrashOf(path, [] { std::thread([] { std::abort(); }).join(); });
  ASSERT_TRUE(WIFSIGNALED(crash.status));
  EXPECT_EQ(WTERMSIG(crash.status), SIGABRT);
  EXPECT_THAT(TextOf(path), HasSubstr("signal 6 (Aborted), after step 7"));
  EXPECT_THAT(TextOf(path), HasSubstr("abort"));
}

TEST(CrashFile, OfAStackThatOverflows) {
  const std::string path = Place("stack.crash");
  const Crash crash = CrashOf(path, [] {
    char first = 1;
    std::exit(Deeper(&first));
  });
  ASSERT_TRUE(WIFSIGNALED(crash.status));
  EXPECT_EQ(WTERMSIG(crash.status), SIGSEGV);
  EXPECT_THAT(TextOf(path), HasSubstr("Deeper"));
}

TEST(CrashFile, InCodeWhoseTableIsWrong) {
  const std::string path = Place("table.crash");
  const Crash crash = CrashOf(path, CrashesWithABadTable);
  ASSERT_TRUE(WIFSIGNALED(crash.status));
  EXPECT_EQ(WTERMSIG(crash.status), SIGILL);
  EXPECT_THAT(TextOf(path), HasSubstr("crashed: signal 4 (Illegal instruction)"));
  EXPECT_THAT(TextOf(path), HasSubstr("registers: rip 0x"));
  EXPECT_THAT(TextOf(path), HasSubstr("CrashesWithABadTable"));
}

TEST(CrashFile, ReportThatCrashesEndsByTheFirstSignal) {
  const std::string path = Place("twice.crash");
  void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const CrashFile file(path, "rank 0/1", static_cast<const std::atomic<int64_t>*>(page));
    std::abort();
  }
  int status = 0;
  waitpid(child, &status, 0);
  munmap(page, 4096);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
}

TEST(CrashFile, GoesToStandardErrorWhereItCannotBeWritten) {
  const std::string path = Place("no/such/folder.crash");
  const std::string errors = Place("other");
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen(errors.c_str(), "w", stderr) == nullptr) _exit(1);
    const CrashFile file(path, "rank 0/1", nullptr);
    WritesToNowhere();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(TextOf(errors), HasSubstr("WritesToNowhere"));
  EXPECT_THAT(TextOf(errors), Not(HasSubstr("backtrace in")));
}

TEST(CrashFile, ProcessWithoutOneEndsAsEver) {
  const std::string path = Place("after.crash");
  const Crash crash = CrashOf(path, [] { raise(SIGTERM); });
  EXPECT_EQ(WTERMSIG(crash.status), SIGTERM);
  EXPECT_EQ(TextOf(path), "");
}

}  // namespace
}  // namespace mslua
