// A checkpoint's plan on the machine that it was made for, and on another.
#include "core/step/plan_decisions.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

struct Resumed {
  Decisions decisions;
  std::string printed;
};
Resumed ResumeOn(const std::string& machine, const std::string& plan) {
  ::testing::internal::CaptureStderr();
  const auto decisions = DecidePlan({}, {}, false, nullptr, plan, machine);
  Resumed resumed = {decisions.ok() ? *decisions : Decisions(), ::testing::internal::GetCapturedStderr()};
  EXPECT_TRUE(decisions.ok()) << decisions.status();
  return resumed;
}

TEST(PlanDecisionsTest, ChoicesOfLibrariesAreOfOneMachine) {
  const std::string product = absl::StrCat(kLibraryQuestion, "matmul f32[2,2] f32[2,2]");
  Decisions made;
  made.Record("conv as product", "product");
  made.Record(product, "0123");
  const std::string plan = PlanText(made, "H200 with cuBLASLt 13.0.2");
  const Resumed same = ResumeOn("H200 with cuBLASLt 13.0.2", plan);
  EXPECT_EQ(same.decisions.ToText(), made.ToText());
  EXPECT_EQ(same.printed, "");
  const Resumed other = ResumeOn("H200 with cuBLASLt 13.1.0", plan);
  EXPECT_EQ(other.decisions.Find(product), "");
  EXPECT_EQ(other.decisions.Find("conv as product"), "product");
  EXPECT_EQ(other.printed,
            "mslua: note: the checkpoint's plan is for H200 with cuBLASLt 13.0.2; here it is for H200 with cuBLASLt "
            "13.1.0: the same mathematics, not the same bits\n");
}

TEST(PlanDecisionsTest, APlanThatIsDamagedIsSaid) {
  const Resumed resumed = ResumeOn("H200", "for H200\nno answer\n");
  EXPECT_EQ(resumed.decisions.size(), 0);
  EXPECT_TRUE(absl::StrContains(resumed.printed, "the checkpoint's plan is not used")) << resumed.printed;
}

}  // namespace
}  // namespace mslua
