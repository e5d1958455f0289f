#include "core/train/schedule.h"

#include "gtest/gtest.h"

namespace mslua {
namespace {

Schedule Make(Schedule::Kind kind, double value, int64_t total) {
  Schedule s;
  s.kind = kind;
  s.value = value;
  s.total = total;
  return s;
}

// Values of torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=20), PyTorch 1.13.
TEST(Schedule, OneCycleIsPyTorchs) {
  const Schedule s = Make(Schedule::Kind::kOneCycle, 0.1, 20);
  EXPECT_NEAR(s.At(0), 0.004, 1e-12);
  EXPECT_NEAR(s.At(5), 0.1, 1e-12);
  EXPECT_NEAR(s.At(19), 4e-7, 1e-12);
  EXPECT_NEAR(s.At(12), 0.05000020000000001, 1e-9);
  EXPECT_EQ(s.At(25), s.At(19));
}

TEST(Schedule, CosineAndPolynomialReachTheirEnds) {
  Schedule s = Make(Schedule::Kind::kCosine, 1, 10);
  s.low = 0.1;
  EXPECT_DOUBLE_EQ(s.At(0), 1);
  EXPECT_NEAR(s.At(5), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(s.At(10), 0.1);
  EXPECT_DOUBLE_EQ(s.At(99), 0.1);
  s.kind = Schedule::Kind::kPolynomial;
  s.power = 2;
  EXPECT_NEAR(s.At(5), 0.9 * 0.25 + 0.1, 1e-12);
}

TEST(Schedule, WarmUpThenTheSchedule) {
  Schedule s = Make(Schedule::Kind::kCosine, 1, 10);
  s.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(s.At(0), 0.25);
  EXPECT_DOUBLE_EQ(s.At(3), 1);
  EXPECT_DOUBLE_EQ(s.At(4), 1);
  EXPECT_NEAR(s.At(9), 0.5, 1e-12);
}

TEST(Schedule, StepPiecewiseTable) {
  Schedule s = Make(Schedule::Kind::kStep, 1, 1);
  s.rate = 0.1;
  s.period = 3;
  EXPECT_DOUBLE_EQ(s.At(2), 1);
  EXPECT_NEAR(s.At(6), 0.01, 1e-15);
  s.kind = Schedule::Kind::kPiecewise;
  s.milestones = {2, 4};
  s.rates = {0.3, 0.2, 0.1};
  EXPECT_DOUBLE_EQ(s.At(1), 0.3);
  EXPECT_DOUBLE_EQ(s.At(2), 0.2);
  EXPECT_DOUBLE_EQ(s.At(9), 0.1);
  s.kind = Schedule::Kind::kTable;
  EXPECT_DOUBLE_EQ(s.At(1), 0.2);
  EXPECT_DOUBLE_EQ(s.At(7), 0.1);
}

TEST(Schedule, BadNumbersAreNamed) {
  Schedule s = Make(Schedule::Kind::kConstant, -1, 1);
  EXPECT_EQ(s.Check().message(), "learning rate: must be a number >= 0, got -1");
  s = Make(Schedule::Kind::kTable, 1, 1);
  EXPECT_EQ(s.Check().message(), "learning rate: the list of rates is empty");
  EXPECT_FALSE(ParseScheduleKind("cosin").ok());
}

}  // namespace
}  // namespace mslua
