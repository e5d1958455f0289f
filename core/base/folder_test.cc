#include "core/base/folder.h"

#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using ::testing::ElementsAre;
namespace fs = std::filesystem;

std::string Root(const std::string& name) {
  const char* base = getenv("TEST_TMPDIR");
  const std::string root = absl::StrCat(base != nullptr ? base : "/tmp", "/folder_", name);
  fs::remove_all(root);
  fs::create_directories(root);
  return fs::canonical(root).string();
}

#if defined(__x86_64__)
// The folders that `work`, in a process of its own, made and synced, in order: "mkdir NAME", "sync NAME", below `root`.
std::vector<std::string> FolderCalls(const std::string& root, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    work();
    _exit(0);
  }
  std::vector<std::string> calls;
  int status = 0;
  waitpid(child, &status, 0);
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);
  for (bool entry = true; !WIFEXITED(status) && !WIFSIGNALED(status); waitpid(child, &status, 0)) {
    if (WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      user_regs_struct registers;
      ptrace(PTRACE_GETREGS, child, nullptr, &registers);
      if (entry && registers.orig_rax == SYS_fsync) {
        char path[PATH_MAX];
        const std::string link = absl::StrCat("/proc/", child, "/fd/", registers.rdi);
        const ssize_t n = readlink(link.c_str(), path, sizeof path);
        const std::string folder(path, n > 0 ? static_cast<size_t>(n) : 0);
        if (folder.rfind(root, 0) == 0) calls.push_back("sync " + folder.substr(root.size()));
      }
      if (entry && registers.orig_rax == SYS_mkdir) {
        std::string path;
        for (unsigned long long at = registers.rdi; path.find('\0') == std::string::npos; at += sizeof(long)) {
          const long word = ptrace(PTRACE_PEEKDATA, child, reinterpret_cast<void*>(at), nullptr);
          path.append(reinterpret_cast<const char*>(&word), sizeof word);
        }
        path.resize(path.find('\0'));
        calls.push_back("mkdir " + path.substr(root.size()));
      }
      entry = !entry;
    }
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
  }
  return calls;
}

// A folder whose entry is not on disk takes with it what was saved in it.
TEST(Folder, TheEntryOfEachNewFolderIsSynced) {
  const std::string root = Root("synced");
  const auto make = [&] { (void)MakeFolders(root + "/runs/net/ckpt"); };
  EXPECT_THAT(FolderCalls(root, make), ElementsAre("mkdir /runs", "sync ", "mkdir /runs/net", "sync /runs",
                                                   "mkdir /runs/net/ckpt", "sync /runs/net", "sync /runs/net"));
  // Who made it may have been killed before its entry was synced.
  EXPECT_THAT(FolderCalls(root, make), ElementsAre("sync /runs/net"));
}
#endif

TEST(Folder, TellsFilesFromFoldersAndFollowsLinks) {
  const std::string root = Root("kinds");
  std::ofstream(root + "/file") << "x";
  fs::create_symlink("file", root + "/to_file");
  fs::create_directory_symlink(root, root + "/to_folder");
  fs::create_symlink("nothing", root + "/broken");
  for (const char* name : {"/file", "/to_file"}) {
    EXPECT_TRUE(IsFile(root + name)) << name;
    EXPECT_FALSE(IsFolder(root + name)) << name;
  }
  for (const char* name : {"", "/to_folder"}) {
    EXPECT_FALSE(IsFile(root + name)) << name;
    EXPECT_TRUE(IsFolder(root + name)) << name;
  }
  for (const char* name : {"/broken", "/none", "/file/inside"})
    EXPECT_FALSE(IsFile(root + name) || IsFolder(root + name));
}

TEST(Folder, ErrorsNameTheFolder) {
  const std::string root = Root("errors");
  EXPECT_TRUE(MakeFolders(root + "/a/b").ok());
  EXPECT_TRUE(MakeFolders(root + "/a/b").ok());
  EXPECT_EQ(MakeFolders("/proc/x/y").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExitCodeIn(MakeFolders("/proc/x/y")), kExitStorage);
  EXPECT_THAT(std::string(MakeFolders("/proc/x/y").message()), ::testing::HasSubstr("/proc/x: "));
  fclose(fopen((root + "/file").c_str(), "w"));
  EXPECT_THAT(std::string(MakeFolders(root + "/file").message()), ::testing::HasSubstr("is a file, not a folder"));
  EXPECT_THAT(std::string(MakeFolders(root + "/file/in").message()), ::testing::HasSubstr("/file/in: Not a directory"));
  EXPECT_EQ(ExitCodeIn(MakeFolders(root + "/file/in")), kExitOk);
}

}  // namespace
}  // namespace mslua
