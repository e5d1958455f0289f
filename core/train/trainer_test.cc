// What a training remembers of itself: numbers that need not be finite.
#include "core/train/trainer.h"

#include <cmath>

#include "core/train/eval_hook.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

TEST(SavedNumbers, EveryNumberComesBackByAFiniteCounter) {
  Counters counters = {{"other.a", 1}};
  SaveNumber("value.", "a", 0.1, &counters);
  SaveNumber("value.", "nan", std::nan(""), &counters);
  SaveNumber("value.", "more", HUGE_VAL, &counters);
  SaveNumber("value.", "less", -HUGE_VAL, &counters);
  for (const auto& [name, value] : counters) EXPECT_TRUE(std::isfinite(value)) << name;
  auto numbers = SavedNumbers("value.", counters);
  EXPECT_TRUE(std::isnan(numbers["nan"]));
  numbers.erase("nan");
  EXPECT_EQ(numbers, (Counters{{"a", 0.1}, {"more", HUGE_VAL}, {"less", -HUGE_VAL}}));
}

// Older versions saved the step of the newest evaluation without its values.
TEST(SavedNumbers, AnEvaluationWithoutValuesIsMadeAgain) {
  EXPECT_EQ(EvalHook::DoneIn({{"eval.done", 10}}), 0);
  EXPECT_EQ(EvalHook::DoneIn({{"eval.done", 10}, {"eval.count", 2}}), 10);
  EXPECT_EQ(EvalHook::DoneIn({}), 0);
}

}  // namespace
}  // namespace mslua
