// What the status line of a training says, and that it fits the terminal.
#include "core/train/status_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace mslua {
namespace {

using testing::HasSubstr;
using testing::Not;

StatusFields Fields() {
  StatusFields f;
  f.epoch = 3;
  f.epochs = 10;
  f.step = 120;
  f.steps_per_epoch = 250;
  f.loss = 0.041;
  f.mean = 0.052;
  f.lr = 0.018;
  f.samples_per_s = 8412;
  f.seconds_left = 74;
  return f;
}

TEST(StatusText, SaysAllWhereThereIsRoom) {
  EXPECT_EQ(StatusText(Fields(), 100),
            "epoch 3/10  step 120/250  loss 0.041 (mean 0.052)  lr 0.018  8.4k samples/s  1:14 left");
}

TEST(StatusText, FitsEveryWidth) {
  for (int columns = 0; columns <= 120; ++columns)
    EXPECT_LE(static_cast<int>(StatusText(Fields(), columns).size()), columns);
  EXPECT_EQ(StatusText(Fields(), 50), "epoch 3/10  step 120/250  loss 0.041  1:14 left");
  EXPECT_EQ(StatusText(Fields(), 24), "epoch 3/10  loss 0.041");
}

TEST(StatusText, LeavesOutWhatIsNotKnown) {
  StatusFields f = Fields();
  f.samples_per_s = 0;
  f.seconds_left = -1;
  f.lr = std::nan("");
  EXPECT_EQ(StatusText(f, 100), "epoch 3/10  step 120/250  loss 0.041 (mean 0.052)");
}

TEST(StatusText, SaysWhatAStepDoes) {
  StatusFields f = Fields();
  f.tokens_per_s = 2.5e6;
  f.grad_norm = 1.25;
  f.data_wait = 0.02;
  f.tflops = 0.31;
  EXPECT_EQ(StatusText(f, 200),
            "epoch 3/10  step 120/250  loss 0.041 (mean 0.052)  lr 0.018  8.4k samples/s  2.5M tokens/s  grad norm 1.25"
            "  data wait 2%  0.31 TFLOP/s  1:14 left");
  f.peak_share = 0.424;
  EXPECT_THAT(StatusText(f, 200), HasSubstr("  0.31 TFLOP/s (42%)  1:14 left"));
  f.peak_share = 0;
  EXPECT_THAT(StatusText(f, 110), HasSubstr("samples/s  2.5M tokens/s  1:14 left"));
}

TEST(StatusText, TimesAndRates) {
  EXPECT_EQ(ClockText(0.2), "0:01");
  EXPECT_EQ(ClockText(3599), "59:59");
  EXPECT_EQ(ClockText(7384), "2:03:04");
  EXPECT_THAT(ClockText(HUGE_VAL), Not(HasSubstr("-")));
  EXPECT_EQ(RateText(3.14), "3.1");
  EXPECT_EQ(RateText(812), "812");
  EXPECT_EQ(RateText(8412), "8.4k");
  EXPECT_EQ(RateText(37885), "38k");
  EXPECT_EQ(RateText(1234567), "1.2M");
}

TEST(StatusLine, LooksAtShortStepsSeldom) {
  EXPECT_EQ(StepsPerLook(0), 64);
  EXPECT_EQ(StepsPerLook(1e-6), 64);
  EXPECT_EQ(StepsPerLook(1e-4), 10);
  EXPECT_EQ(StepsPerLook(6e-4), 1);
  EXPECT_EQ(StepsPerLook(5), 1);
}

}  // namespace
}  // namespace mslua
