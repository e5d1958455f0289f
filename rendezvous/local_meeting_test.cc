#include "rendezvous/local_meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

class LocalMeeting : public ::testing::Test {
 protected:
  LocalMeeting() {
    char path[] = "/tmp/mslua-test-XXXXXX";
    root_ = mkdtemp(path);
    setenv("XDG_RUNTIME_DIR", root_.c_str(), 1);
  }
  ~LocalMeeting() override { std::filesystem::remove_all(root_); }
  std::string root_;
};

TEST_F(LocalMeeting, AddressesOfTheHostHaveOneName) {
  const std::string name = MeetingName({"127.0.0.1", 8117});
  EXPECT_THAT(name, HasSubstr("meet-8117-"));
  EXPECT_EQ(MeetingName({"localhost", 8117}), name);
  EXPECT_EQ(MeetingName({"::1", 8117}), name);
  EXPECT_NE(MeetingName({"127.0.0.1", 8118}), name);
  EXPECT_NE(MeetingName({"127.0.0.2", 8117}), name);
  EXPECT_NE(MeetingName({"node1", 8117}), name);
  EXPECT_NE(*NewMeetingName(), *NewMeetingName());
  EXPECT_LE(name.size(), 32u);
}

TEST_F(LocalMeeting, OneProcessHoldsAFolder) {
  const std::string name = MeetingName({"127.0.0.1", 8117});
  auto folder = MeetingFolder::Make(name);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->path(), *MeetingPath(name));
  EXPECT_TRUE(IsHeld((*folder)->path()));
  EXPECT_EQ(MeetingFolder::Make(name).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ConnectMeeting((*folder)->socket()).status().code(), absl::StatusCode::kUnavailable);
  auto listener = (*folder)->Listen();
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(ConnectMeeting((*folder)->socket()).ok());
  const std::string path = (*folder)->path();
  (*folder)->Remove();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(IsHeld(path));
  auto next = MeetingFolder::Make(name);
  ASSERT_TRUE(next.ok());
  folder->reset();
  EXPECT_TRUE(std::filesystem::exists(path)) << "it is the next one's";
}

TEST_F(LocalMeeting, WhatAKilledProcessLeftIsRemoved) {
  const std::string name = MeetingName({"127.0.0.1", 8117});
  const pid_t child = fork();
  if (child == 0) {
    auto folder = MeetingFolder::Make(name);
    auto listener = (*folder)->Listen();
    _exit(listener.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const std::string path = *MeetingPath(name);
  ASSERT_TRUE(std::filesystem::exists(MeetingSocket(path)));
  EXPECT_FALSE(IsHeld(path));
  auto held = MeetingFolder::Make("meet-held");
  RemoveDeadMeetings();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::exists((*held)->path()));
  EXPECT_TRUE(MeetingFolder::Make(name).ok());
}

TEST_F(LocalMeeting, TheNextProcessOfThatNameFindsTheFilesOfAKilledOne) {
  const std::string name = MeetingName({"127.0.0.1", 8117});
  const pid_t child = fork();
  if (child == 0) {
    auto folder = MeetingFolder::Make(name);
    const bool made = folder.ok() && (*folder)->Listen().ok();
    std::ofstream((*folder)->path() + "/run_folder.0") << "runs/one";
    _exit(made ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  auto next = MeetingFolder::Make(name);
  ASSERT_TRUE(next.ok()) << next.status();
  std::string text;
  std::getline(std::ifstream((*next)->path() + "/run_folder.0"), text);
  EXPECT_EQ(text, "runs/one");
  EXPECT_FALSE(std::filesystem::exists((*next)->socket()));
  EXPECT_TRUE((*next)->Listen().ok());
}

// A folder that others can enter is no place to meet, nor is a process of another user one to speak with.
TEST_F(LocalMeeting, AFolderIsMadeWhileAnotherProcessLooksForDeadOnes) {
  const pid_t child = fork();
  if (child == 0) {
    while (true) RemoveDeadMeetings();
  }
  for (int i = 0; i < 2000; ++i) {
    const auto name = NewMeetingName();
    ASSERT_TRUE(name.ok());
    const auto made = MeetingFolder::Make(*name);
    ASSERT_EQ(made.status(), absl::OkStatus()) << i;
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(LocalMeeting, OtherUsersAreRefused) {
  auto folder = MeetingFolder::Make("meet-open");
  auto listener = (*folder)->Listen();
  ASSERT_TRUE(listener.ok());
  ASSERT_EQ(chmod((*folder)->path().c_str(), 0755), 0);
  EXPECT_EQ(ConnectMeeting((*folder)->socket()).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(MeetingFolder::Make("meet-open").status().code(), absl::StatusCode::kPermissionDenied);
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  // Another user's socket in this user's folder, as after a mistake of root.
  auto other = MeetingFolder::Make("meet-other");
  const std::string path = (*other)->socket();
  ASSERT_EQ(chmod(root_.c_str(), 0711), 0);
  ASSERT_EQ(chmod((root_ + "/mslua").c_str(), 0711), 0);
  int ready[2], end[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(end), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    if (setegid(65534) != 0 || chmod((*other)->path().c_str(), 0777) != 0 || seteuid(65534) != 0) _exit(1);
    auto listening = (*other)->Listen();
    if (seteuid(0) != 0 || chmod((*other)->path().c_str(), 0700) != 0) _exit(1);
    char byte = listening.ok() ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1 || read(end[0], &byte, 1) != 1) _exit(1);
    _exit(0);
  }
  close(ready[1]);  // so that a child that fails ends the read
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1) << "the child could not become another user";
  ASSERT_EQ(byte, 'y');
  const auto connected = ConnectMeeting(path);
  EXPECT_EQ(connected.status().code(), absl::StatusCode::kPermissionDenied) << connected.status();
  EXPECT_THAT(std::string(connected.status().message()), HasSubstr("of user 65534 listens"));
  ASSERT_EQ(write(end[1], "x", 1), 1);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace mslua
