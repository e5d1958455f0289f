// A program without the code of devices says so, with the exit code of a machine that cannot.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "core/base/exit_code.h"
#include "core/device/device.h"

namespace mslua {
namespace {

TEST(NoDevice, IsOneLineThatNamesTheConfiguration) {
  for (const Status& status : {CheckDevices(), ListDevices().status(), cuda::OpenDriver().status()}) {
    EXPECT_EQ(ExitCodeIn(status), kExitEnvironment);
    EXPECT_TRUE(absl::StrContains(status.message(), "--config=cpu")) << status;
    EXPECT_FALSE(absl::StrContains(status.message(), "\n"));
  }
}

}  // namespace
}  // namespace mslua
