// Each schedule against numbers that were worked out by hand or come from the library whose schedule it is.
#include <memory>
#include <set>

#include "core/schedule/registry.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using Values = std::vector<std::pair<std::string, std::vector<double>>>;

// With the defaults of the fields that are not given.
Schedule Make(const char* name, const Values& values) {
  Schedule s;
  s.def = FindSchedule(name);
  EXPECT_NE(s.def, nullptr) << name;
  for (const ScheduleField& field : s.def->fields) {
    if (!field.fallback.empty()) s.settings.Set(field.name, field.fallback);
  }
  for (const auto& [field, v] : values) s.settings.Set(field, v);
  EXPECT_TRUE(s.Check().ok()) << s.Check();
  return s;
}

// Values of torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=20), PyTorch 1.13.
TEST(Schedule, OneCycleIsPyTorchs) {
  const Schedule s = Make("one_cycle_lr", {{"max_lr", {0.1}}, {"total_step", {20}}});
  EXPECT_NEAR(s.At(0), 0.004, 1e-12);
  EXPECT_NEAR(s.At(5), 0.1, 1e-12);
  EXPECT_NEAR(s.At(19), 4e-7, 1e-12);
  EXPECT_NEAR(s.At(12), 0.05000020000000001, 1e-9);
  EXPECT_EQ(s.At(25), s.At(19));
}

TEST(Schedule, CosineAndPolynomialReachTheirEnds) {
  const Schedule cosine = Make("cosine_decay_lr", {{"min_lr", {0.1}}, {"max_lr", {1}}, {"total_step", {10}}});
  EXPECT_DOUBLE_EQ(cosine.At(0), 1);
  EXPECT_NEAR(cosine.At(5), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(cosine.At(10), 0.1);
  EXPECT_DOUBLE_EQ(cosine.At(99), 0.1);
  const Schedule polynomial =
      Make("polynomial_decay_lr",
           {{"learning_rate", {1}}, {"end_learning_rate", {0.1}}, {"total_step", {10}}, {"power", {2}}});
  EXPECT_NEAR(polynomial.At(5), 0.9 * 0.25 + 0.1, 1e-12);
}

// mindspore.nn.cosine_decay_lr(0.01, 0.1, 6, 2, 2)
TEST(Schedule, EpochsOfSeveralStepsAreMindSpores) {
  const Schedule s =
      Make("cosine_decay_lr",
           {{"min_lr", {0.01}}, {"max_lr", {0.1}}, {"total_step", {6}}, {"step_per_epoch", {2}}, {"decay_epoch", {2}}});
  const double wanted[] = {0.1, 0.1, 0.055, 0.055, 0.01, 0.01, 0.01};
  for (int64_t step = 0; step < 7; ++step) EXPECT_NEAR(s.At(step), wanted[step], 1e-12);
}

TEST(Schedule, WarmUpThenTheSchedule) {
  Schedule s = Make("cosine_decay_lr", {{"min_lr", {0}}, {"max_lr", {1}}, {"total_step", {10}}});
  Schedule warm;
  warm.def = FindSchedule("warmup_lr");
  for (const auto& [field, v] : Values{{"step_per_epoch", {1}}, {"warmup_epoch", {4}}, {"warmup_from", {0}}})
    warm.settings.Set(field, v);
  EXPECT_EQ(warm.Check().message(), "warmup_lr: learning_rate is missing");
  warm.settings.inner = std::make_shared<Schedule>(s);
  EXPECT_TRUE(warm.Check().ok()) << warm.Check();
  EXPECT_DOUBLE_EQ(warm.At(0), 0.25);
  EXPECT_DOUBLE_EQ(warm.At(3), 1);
  EXPECT_DOUBLE_EQ(warm.At(4), 1);
  EXPECT_NEAR(warm.At(9), 0.5, 1e-12);
  EXPECT_EQ(warm.highest(), 1);
  Schedule twice = warm;
  twice.settings.inner = std::make_shared<Schedule>(warm);
  EXPECT_EQ(twice.Check().message(), "warmup_lr: learning_rate has a warm-up already");
}

TEST(Schedule, StepPiecewiseTable) {
  const Schedule step = Make("step_decay_lr", {{"learning_rate", {1}}, {"decay_rate", {0.1}}, {"period", {3}}});
  EXPECT_DOUBLE_EQ(step.At(2), 1);
  EXPECT_NEAR(step.At(6), 0.01, 1e-15);
  const Schedule pieces = Make("piecewise_constant_lr", {{"milestone", {2, 4}}, {"learning_rates", {0.3, 0.2}}});
  EXPECT_DOUBLE_EQ(pieces.At(1), 0.3);
  EXPECT_DOUBLE_EQ(pieces.At(2), 0.2);
  EXPECT_DOUBLE_EQ(pieces.At(9), 0.2);
  const Schedule table = Make("table", {{"rates", {0.3, 0.2, 0.1}}});
  EXPECT_DOUBLE_EQ(table.At(1), 0.2);
  EXPECT_DOUBLE_EQ(table.At(7), 0.1);
  EXPECT_EQ(table.highest(), 0.3);
}

TEST(Schedule, BadNumbersAreNamed) {
  EXPECT_EQ(Schedule::Constant(-1).Check().message(), "learning rate: must be a number >= 0, got -1");
  Schedule table = Make("table", {{"rates", {1}}});
  table.settings.Set("rates", {});
  EXPECT_EQ(table.Check().message(), "learning rate: the list of rates is empty");
  Schedule step = Make("step_decay_lr", {{"learning_rate", {1}}, {"decay_rate", {0.1}}, {"period", {3}}});
  step.settings.Set("period", {2.5});
  EXPECT_EQ(step.Check().message(), "step_decay_lr: period is 2.5, expected an integer");
  step.settings.Set("period", {0});
  EXPECT_EQ(step.Check().message(), "step_decay_lr: period is 0, expected 1 or more");
  EXPECT_EQ(FindSchedule("cosin"), nullptr);
}

TEST(Schedules, DefinitionsAreWhole) {
  std::set<std::string> names;
  for (const ScheduleDef& def : Schedules()) {
    EXPECT_TRUE(names.empty() || *names.rbegin() < def.name) << def.name;
    EXPECT_TRUE(names.insert(def.name).second) << def.name;
    EXPECT_TRUE(def.rate && def.highest) << def.name;
    EXPECT_FALSE(def.doc.empty()) << def.name;
    for (const ScheduleField& field : def.fields) {
      EXPECT_FALSE(field.doc.empty()) << def.name << " " << field.name;
      for (double v : field.fallback) EXPECT_EQ(LimitProblem(field.limits, v), "") << def.name << " " << field.name;
    }
  }
}

}  // namespace
}  // namespace mslua
