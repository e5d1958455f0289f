// What Lua of an attached client can reach: this test is the rank, and starts itself as the process for Lua.
#include "repl/session_lua.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "attach/server/lua_helper.h"

namespace mslua {
namespace {

using testing::HasSubstr;

class SessionLua : public testing::Test {
 protected:
  // What the process answers to `text`, or its error.
  std::string Run(const std::string& text) {
    answer_.clear();
    answered_ = false;
    helper_.Evaluate(0, "1", text);
    while (!answered_) {
      pollfd wait = {helper_.fd(), POLLIN, 0};
      if (poll(&wait, 1, 10) > 0) helper_.OnReadable();
      helper_.OnDeadline();
    }
    return answer_;
  }

  endpoint::LuaHelper helper_{2,
                              4,
                              {[this](uint64_t, const std::string&, const StatusOr<std::string>& answer) {
                                 answer_ = answer.ok() ? *answer : "error: " + std::string(answer.status().message());
                                 answered_ = true;
                               },
                               [](const std::string&) {}}};
  std::string answer_;
  bool answered_ = false;
};

TEST_F(SessionLua, ComputesWithTensors) {
  // It does not fit into the process's limit of addresses.
  if (std::getenv("ASAN_OPTIONS") != nullptr) GTEST_SKIP() << "AddressSanitizer takes terabytes of addresses";
  EXPECT_THAT(Run("1 + 1"), HasSubstr("2"));
  EXPECT_THAT(Run("ms.ones{64, 64}:matmul(ms.ones{64, 64}):sum():item()"), HasSubstr("262144"));
  EXPECT_THAT(Run("os.date('%Y', 0)"), HasSubstr("19"));
  EXPECT_THAT(Run("nn.Dense(3, 4)(ms.ones{2, 3}).shape[2]"), HasSubstr("4"));
  EXPECT_THAT(Run("load('return 3')() + loadstring('return 4')()"), HasSubstr("7"));
}

TEST_F(SessionLua, KnowsItsRank) {
  EXPECT_EQ(Run("ms.communication.get_rank()"), "2");
  EXPECT_EQ(Run("ms.communication.get_group_size()"), "4");
}

TEST_F(SessionLua, HasNoLoaderOfFilesOrCode) {
  for (const char* gone : {"io", "debug", "jit", "loadfile", "dofile", "string.dump", "package.loadlib",
                           "package.searchpath", "os.execute", "os.getenv", "os.remove", "os.exit"})
    EXPECT_EQ(Run(absl::StrCat(gone, " == nil")), "true") << gone;
  for (const char* module : {"ffi", "io", "debug", "jit", "jit.util"})
    EXPECT_THAT(Run(absl::StrCat("require '", module, "'")), HasSubstr("not found")) << module;
}

TEST_F(SessionLua, LoadsNoFileByAPath) {
  const std::string folder = testing::TempDir() + "/evil";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/evil.lua") << "return 'loaded'";
  std::ofstream(folder + "/evil.so") << "not a library";
  for (const char* path : {"path", "cpath"}) {
    EXPECT_THAT(Run(absl::StrCat("package.", path, " = '", folder, "/?.lua;", folder, "/?.so'; return require 'evil'")),
                HasSubstr("not found"));
  }
}

TEST_F(SessionLua, TakesNoBytecode) {
  EXPECT_THAT(Run("loadstring('\\27LJ\\2\\10\\0\\0')"), HasSubstr("attempt to load"));
  EXPECT_THAT(Run("load('\\27LJ\\2\\10\\0\\0', 'x', 'b')"), HasSubstr("attempt to load"));
  EXPECT_THAT(Run("load(function() return nil end, 'x', 'bt') ~= nil"), HasSubstr("true"));
  EXPECT_THAT(Run("\x1bLJ"), HasSubstr("error"));
}

// The library's own functions would open files: the system calls fail.
TEST_F(SessionLua, TouchesNoFile) {
  const std::string folder = testing::TempDir() + "/touched_by_lua";
  EXPECT_THAT(Run(absl::StrCat("ms.save_checkpoint({}, '", folder, "')")), HasSubstr("error"));
  EXPECT_FALSE(std::filesystem::exists(folder));
  for (const auto& entry : std::filesystem::directory_iterator(testing::TempDir()))
    EXPECT_EQ(entry.path().string().find("touched_by_lua"), std::string::npos) << entry.path();
  const std::string secret = testing::TempDir() + "/secret.safetensors";
  std::ofstream(secret) << std::string("\x02\0\0\0\0\0\0\0{}", 10);
  EXPECT_THAT(Run(absl::StrCat("ms.load_checkpoint('", secret, "')")), HasSubstr("error"));
}

}  // namespace
}  // namespace mslua

int main(int argc, char** argv) {
  if (const auto code = mslua::RunSessionLua(argc, argv)) return *code;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
