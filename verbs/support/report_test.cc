#include "verbs/support/report.h"

#include <gtest/gtest.h>

#include "core/base/exit_code.h"

namespace mslua {
namespace {

TEST(ReportTest, AnErrorsKindGivesTheExitCode) {
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), kExitUsage);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), kExitUsage);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("")), kExitData);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), kExitInternal);
}

TEST(ReportTest, WhatIsBusyOrDoesNotAnswerIsNotTheUsersMistake) {
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("the job has ended")), kExitEnvironment);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("does not answer")), kExitEnvironment);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("no memory")), kExitEnvironment);
}

TEST(ReportTest, AnErrorsOwnExitCodeComesFirst) {
  EXPECT_EQ(ExitCodeOf(WithExitCode(absl::UnavailableError("in use"), kExitStorage)), kExitStorage);
  EXPECT_EQ(Report(absl::UnavailableError("busy"), kExitHang), kExitHang);
}

}  // namespace
}  // namespace mslua
