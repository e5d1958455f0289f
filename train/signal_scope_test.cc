#include "train/signal_scope.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "gtest/gtest.h"

namespace mslua {
namespace {

using Console = SignalScope::Console;

// How a child process ends that does this; -signal where a signal ends it.
int EndOf(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
    _exit(work());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(SignalScope, StopsOnceAndEndsTheProcessAtTheSecondSignal) {
  EXPECT_EQ(EndOf([] {
              int stops = 0;
              const SignalScope scope([&] { ++stops; }, Console::kLauncher);
              raise(SIGTERM);
              return stops * 10 + (SignalScope::Signal() == SIGTERM ? 1 : 0);
            }),
            11);
  EXPECT_EQ(EndOf([] {
              const SignalScope scope([] {}, Console::kLauncher);
              raise(SIGINT);
              raise(SIGINT);
              return 0;
            }),
            -SIGINT);
}

TEST(SignalScope, ASignalAfterItEndsTheProcess) {
  EXPECT_EQ(EndOf([] {
              {
                const SignalScope scope([] {}, Console::kLauncher);
              }
              raise(SIGTERM);
              return 0;
            }),
            -SIGTERM);
  EXPECT_EQ(EndOf([] {
              {
                const SignalScope scope([] {}, Console::kLauncher);
              }
              SignalScope::Stop(SIGTERM);
              return 0;
            }),
            -SIGTERM);
}

// Another rank got it first, and the ranks have stopped together.
TEST(SignalScope, ASignalThatComesAfterTheRanksHaveStoppedForItIsTheFirstOne) {
  const auto stop_for_another_rank = [](int request) {
    const SignalScope scope([] {}, Console::kLauncher);
    SignalScope::Heed(request);
  };
  EXPECT_EQ(EndOf([&] {
              stop_for_another_rank(SIGTERM);
              raise(SIGTERM);
              return SignalScope::Signal() == 0 ? 7 : 8;  // nobody has asked this rank while it trained
            }),
            7);
  EXPECT_EQ(EndOf([&] {
              stop_for_another_rank(SIGTERM);
              raise(SIGTERM);
              raise(SIGTERM);
              return 0;
            }),
            -SIGTERM);
}

TEST(SignalScope, ARequestToAllRanksIsOneForThoseWhoHearOfItLater) {
  int request = 0;
  {
    int stops = 0;
    const SignalScope scope([&] { ++stops; }, Console::kLauncher);
    EXPECT_EQ(SignalScope::Request(), 0);
    SignalScope::Stop(SIGINT);
    EXPECT_EQ(stops, 1);
    request = SignalScope::Request();
    EXPECT_GT(request, SIGINT);
    EXPECT_LT(request, SignalScope::kRequests);
  }
  EXPECT_EQ(EndOf([&] {
              {
                const SignalScope scope([] {}, Console::kLauncher);
                SignalScope::Heed(request);
              }
              SignalScope::Stop(SIGINT);
              return SignalScope::Signal() == SIGINT ? 7 : 8;
            }),
            7);
}

}  // namespace
}  // namespace mslua
