#include "launch/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "core/base/exit_code.h"

namespace mslua {
namespace {

class OutputTest : public ::testing::Test {
 protected:
  OutputTest() : wake_(eventfd(0, EFD_NONBLOCK)) {
    signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(pipe(ends_), 0);
  }
  // All that is in the pipe by now, at least `bytes`.
  std::string Read(size_t bytes) {
    std::string text(bytes, 0);
    for (size_t done = 0; done < bytes;) {
      const ssize_t n = read(ends_[0], &text[done], bytes - done);
      if (n <= 0) break;
      done += n;
    }
    return text;
  }

  int wake_;
  int ends_[2];
};

TEST_F(OutputTest, KeepsTheOrder) {
  Output output(ends_[1], wake_);
  std::string all;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    output.Write(line);
    all += line;
  }
  EXPECT_EQ(Read(all.size()), all);
  EXPECT_TRUE(output.Flush(absl::Seconds(60)));
}

TEST_F(OutputTest, DoesNotWaitForAReader) {
  Output output(ends_[1], wake_);
  const std::string line(1000, 'x');
  size_t written = 0;
  for (; !output.Full(); written += line.size()) output.Write(line);
  EXPECT_GE(written, size_t{1} << 20);
  EXPECT_FALSE(output.Flush(absl::Milliseconds(1)));
  EXPECT_EQ(Read(written).size(), written);
  EXPECT_TRUE(output.Flush(absl::Seconds(60)));
  EXPECT_FALSE(output.Full());
  pollfd space = {wake_, POLLIN, 0};
  EXPECT_EQ(poll(&space, 1, 60000), 1);  // there is space again
}

// Another program that has the pipe may have said that writes to it do not wait.
TEST_F(OutputTest, WaitsWhereAPipeThatDoesNotBlockIsFull) {
  ASSERT_EQ(fcntl(ends_[1], F_SETFL, O_NONBLOCK), 0);
  Output output(ends_[1], wake_);
  std::string all;
  for (int i = 0; i < 20000; ++i) all += "line " + std::to_string(i) + "\n";
  output.Write(all);
  EXPECT_FALSE(output.Flush(absl::Milliseconds(100)));  // the pipe holds 64 KiB
  EXPECT_EQ(Read(all.size()), all);
  EXPECT_TRUE(output.Flush(absl::Seconds(60)));
}

TEST_F(OutputTest, ReaderThatHasClosed) {
  Output output(ends_[1], wake_);
  close(ends_[0]);
  output.Write("nobody reads this\n");
  EXPECT_TRUE(output.Flush(absl::Seconds(60)));
  for (int i = 0; i < 10000; ++i) output.Write(std::string(1000, 'x'));
  EXPECT_FALSE(output.Full());
}

TEST_F(OutputTest, SaysWhyAWriteFailed) {
  Output closed(ends_[1], wake_);
  close(ends_[0]);
  closed.Write("nobody reads this\n");
  EXPECT_TRUE(closed.Flush(absl::Seconds(60)));
  EXPECT_EQ(closed.error(), EPIPE);
  const int device = open("/dev/full", O_WRONLY);
  Output full(device, wake_);
  EXPECT_EQ(full.error(), 0);
  full.Write("there is no space for this\n");
  EXPECT_TRUE(full.Flush(absl::Seconds(60)));
  EXPECT_EQ(full.error(), ENOSPC);
  close(device);
}

TEST(LossOfOutputTest, AClosedReaderIsNone) {
  EXPECT_TRUE(LossOfOutput(0).ok());
  EXPECT_TRUE(LossOfOutput(EPIPE).ok());
  const Status full = LossOfOutput(ENOSPC);
  EXPECT_EQ(ExitCodeIn(full), kExitStorage);
  EXPECT_THAT(std::string(full.message()), testing::HasSubstr("standard output: No space left on device"));
}

TEST_F(OutputTest, EndsWhileItsThreadWaits) {
  Output output(ends_[1], wake_);
  output.Write(std::string(4 << 20, 'x'));
}

}  // namespace
}  // namespace mslua
