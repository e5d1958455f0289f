// The time left of trainings whose steps, evaluations and saves took known times.
#include "core/train/time_left.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

namespace mslua {
namespace {

TEST(PlannedWork, CountsEachMomentOnce) {
  for (const auto& [every, epoch_every, at_end] : std::vector<std::tuple<int64_t, int64_t, bool>>{{0, 0, false},
                                                                                                  {0, 0, true},
                                                                                                  {4, 0, false},
                                                                                                  {4, 0, true},
                                                                                                  {0, 6, true},
                                                                                                  {4, 6, true},
                                                                                                  {4, 6, false},
                                                                                                  {1, 0, true}}) {
    const PlannedWork work(every, epoch_every, at_end);
    for (int64_t done = 0; done <= 25; ++done) {
      int64_t expected = 0;
      for (int64_t step = done + 1; step <= 25; ++step)
        expected +=
            (every > 0 && step % every == 0) || (epoch_every > 0 && step % epoch_every == 0) || (at_end && step == 25);
      EXPECT_EQ(work.Left(done, 25), expected) << every << " " << epoch_every << " " << at_end << " " << done;
    }
  }
}

TEST(PlannedWork, TakesWhatWasExpectedUntilItIsMeasured) {
  PlannedWork work(10, 0, true);
  EXPECT_EQ(work.SecondsOf(0.5), 0);
  work.Expect(48);
  EXPECT_EQ(work.SecondsOf(0.5), 24);
  work.Add(20);
  work.Add(22);
  EXPECT_EQ(work.SecondsOf(0.5), 21);
  EXPECT_EQ(work.seconds(), 42);
}

// What one step waits for.
struct Waited {
  double step = 0, evaluation = 0, save = 0;
};

// The largest error of the time left as a share of the true one, from a tenth of the run's time on until `still_left`
// seconds before its end.
double LargestError(const std::vector<Waited>& steps, PlannedWork evaluations, PlannedWork saves, double still_left) {
  double whole = 0, now = 0, settled = 0, largest = 0;
  for (const Waited& w : steps) whole += w.step + w.evaluation + w.save;
  StepPace pace;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Waited& w = steps[i];
    now += w.step + w.evaluation + w.save;
    if (w.evaluation > 0) evaluations.Add(w.evaluation);
    if (w.save > 0) saves.Add(w.save);
    if (i > 0) pace.Add(w.step);  // the first one compiles
    if (now - settled >= 0.1) {   // as often as the line is drawn
      pace.Settle();
      settled = now;
    }
    if (now < whole / 10 || whole - now < still_left) continue;
    const double left =
        TimeLeft(pace, {&evaluations, &saves}, static_cast<int64_t>(i) + 1, static_cast<int64_t>(steps.size()));
    largest = std::max(largest, std::abs(left - (whole - now)) / (whole - now));
  }
  return largest;
}

// Made after char_gpt: steps of 33 to 46 ms, now and then one of twice as much; an evaluation takes as long as
// 50 steps.
std::vector<Waited> CharGpt(int64_t steps, int64_t every) {
  std::vector<Waited> all;
  for (int64_t i = 1; i <= steps; ++i) {
    Waited w;
    w.step =
        0.033 + 0.013 * std::fmod(0.618 * static_cast<double>(i), 1.0) * std::fmod(0.33 * static_cast<double>(i), 1.0);
    if (i == 1) w.step = 0.4;
    if (i % 97 == 0) w.step *= 2;
    if (i % every == 0 || i == steps) w.evaluation = 1.9;
    if (i % every == 0 || i == steps) w.save = 0.02;
    all.push_back(w);
  }
  return all;
}

TEST(TimeLeft, IsRightBetweenEvaluations) {
  PlannedWork saves(100, 0, true);
  PlannedWork evaluations(100, 0, true);
  evaluations.Expect(48);
  EXPECT_LT(LargestError(CharGpt(1000, 100), evaluations, saves, 2), 0.1);
  // The first evaluation comes after a quarter, a half of the run, at its end.
  for (const int64_t every : {250, 500, 1000}) {
    PlannedWork rare(every, 0, true), rare_saves(every, 0, true);
    rare.Expect(48);
    EXPECT_LT(LargestError(CharGpt(1000, every), rare, rare_saves, 4), 0.1) << every;
  }
}

TEST(TimeLeft, ExpectsAgainWhatComesInEqualDistances) {
  std::vector<Waited> steps;
  // A user's function takes 5 s after each 25 steps of 0.5 s.
  for (int i = 1; i <= 600; ++i) steps.push_back({i % 25 == 1 ? 5.5 : 0.5, 0, 0});
  EXPECT_LT(LargestError(steps, {0, 0, false}, {0, 0, false}, 5), 0.03);
}

TEST(TimeLeft, DoesNotExpectAgainWhatCameOnce) {
  std::vector<Waited> steps;
  for (int i = 1; i <= 1000; ++i) steps.push_back({i == 20 ? 2 : 0.04, 0, 0});
  EXPECT_LT(LargestError(steps, {0, 0, false}, {0, 0, false}, 1), 0.01);
}

TEST(TimeLeft, FollowsStepsThatBecomeSlower) {
  StepPace pace;
  EXPECT_TRUE(pace.empty());
  for (int i = 0; i < 100; ++i) pace.Add(0.1);
  for (int i = 0; i < 50; ++i) pace.Add(0.2);
  EXPECT_NEAR(TimeLeft(pace, {}, 150, 250), 20, 1e-9);
  for (int i = 0; i < 50; ++i) pace.Add(3, 10);  // ten steps at a time
  EXPECT_NEAR(TimeLeft(pace, {}, 650, 750), 30, 1e-9);
  EXPECT_EQ(TimeLeft(pace, {}, 250, 250), 0);
  EXPECT_EQ(TimeLeft(pace, {}, 260, 250), 0);
}

}  // namespace
}  // namespace mslua
