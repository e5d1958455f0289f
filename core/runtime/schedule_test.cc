// Schedules of random steps: they order all that must be ordered, and no wait of them can be left out.
#include "core/runtime/schedule.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "absl/strings/match.h"

namespace mslua {
namespace {

constexpr Lane kAll[] = {Lane::kCompute, Lane::kCommunication, Lane::kCopy};

// Mostly computing, as steps are; every work reads some pieces of a few spaces and writes one.
std::vector<Work> RandomWorks(std::mt19937* random) {
  const auto below = [random](int n) { return static_cast<int>((*random)() % static_cast<unsigned>(n)); };
  std::vector<Work> works(2 + below(40));
  const int spaces = 1 + below(4), often = 2 + below(8);
  for (Work& w : works) {
    w.lane = below(often) != 0 ? Lane::kCompute : kAll[below(3)];
    for (int k = below(3); k >= 0; --k) {
      const int64_t begin = below(12);
      const int space = below(spaces);
      w.touched.push_back({space, begin, begin + 1 + below(4), k == 0, space == 3});
    }
  }
  return works;
}

TEST(Schedule, OrdersRandomStepsAndNoWaitCanBeLeftOut) {
  constexpr int kGraphs = 500;
  std::mt19937 random(7);
  int waits = 0, reported = 0, crossing = 0;
  for (int g = 0; g < kGraphs; ++g) {
    const std::vector<Work> works = RandomWorks(&random);
    const StepSchedule schedule = MakeSchedule(works);
    const Status verified = VerifySchedule(works, schedule);
    ASSERT_TRUE(verified.ok()) << "graph " << g << ": " << verified;
    for (size_t w = 0; w < schedule.size(); ++w) {
      for (size_t k = 0; k < schedule[w].size(); ++k) {
        StepSchedule without = schedule;
        without[w].erase(without[w].begin() + static_cast<std::ptrdiff_t>(k));
        ++waits;
        crossing += schedule[w][k].steps_before > 0;
        reported += !VerifySchedule(works, without).ok();
      }
    }
  }
  std::printf("%d graphs, %d waits, %d of them for an earlier step; each left out: %d reported\n", kGraphs, waits,
              crossing, reported);
  EXPECT_EQ(reported, waits);
  EXPECT_GT(crossing, 100);
  EXPECT_GT(waits, 1000);
}

// The order that random timing gives to works under a schedule is one in which each reads what it should.
TEST(Schedule, RandomTimingGivesWhatOneLaneGives) {
  std::mt19937 random(11);
  for (int g = 0; g < 200; ++g) {
    const std::vector<Work> works = RandomWorks(&random);
    const StepSchedule schedule = MakeSchedule(works);
    constexpr int kSteps = 4;
    // memory[space][parity][byte] after all; a work writes a number made of its own and what it has read.
    using Memory = std::vector<uint64_t>;
    const auto run = [&](bool in_order) {
      Memory memory(4 * 2 * 16, 1);
      std::vector<std::vector<bool>> done(kSteps, std::vector<bool>(works.size(), false));
      const auto may_run = [&](int step, size_t w) {
        for (int s = 0; s <= step; ++s) {
          for (size_t v = 0; v < (s == step ? w : works.size()); ++v) {
            if (works[v].lane == works[w].lane && !done[s][v]) return false;
          }
        }
        for (const WorkEnd& e : schedule[w]) {
          if (step >= e.steps_before && !done[step - e.steps_before][static_cast<size_t>(e.work)]) return false;
        }
        return true;
      };
      const auto at = [](const MemoryRange& r, int step, int64_t byte) {
        return static_cast<size_t>((r.space * 2 + (r.turns ? step % 2 : 0)) * 16 + byte);
      };
      for (size_t left = kSteps * works.size(); left > 0; --left) {
        std::vector<std::pair<int, size_t>> ready;
        for (int s = 0; s < kSteps; ++s) {
          for (size_t w = 0; w < works.size(); ++w) {
            if (!done[s][w] && may_run(s, w)) ready.emplace_back(s, w);
          }
        }
        if (ready.empty()) return Memory();
        const auto [step, w] = ready[in_order ? 0 : random() % ready.size()];
        uint64_t sum = w + 1 + 1000 * static_cast<uint64_t>(step);
        for (const MemoryRange& r : works[w].touched) {
          for (int64_t b = r.begin; b < r.end; ++b) sum = sum * 1099511628211u + memory[at(r, step, b)];
        }
        for (const MemoryRange& r : works[w].touched) {
          for (int64_t b = r.begin; b < r.end && r.written; ++b)
            memory[at(r, step, b)] = sum + static_cast<uint64_t>(b);
        }
        done[step][w] = true;
      }
      return memory;
    };
    const Memory wanted = run(true);
    ASSERT_FALSE(wanted.empty());
    for (int draw = 0; draw < 3; ++draw) EXPECT_EQ(run(false), wanted) << "graph " << g;
  }
}

TEST(Schedule, AnErrorNamesTheTwoWorks) {
  std::vector<Work> works(2);
  works[0].touched = {{0, 0, 8, true}};
  works[1].lane = Lane::kCommunication;
  works[1].touched = {{0, 4, 6, false}};
  EXPECT_TRUE(absl::StrContains(VerifySchedule(works, StepSchedule(2)).message(), "work 1 may run before work 0"));
  const StepSchedule made = MakeSchedule(works);
  EXPECT_EQ(made[1], (std::vector<WorkEnd>{{0, 0}}));
  EXPECT_EQ(made[0], (std::vector<WorkEnd>{{1, 1}}));              // the next step's write waits for the read
  EXPECT_FALSE(VerifySchedule(works, {{{1, 0}}, {{0, 0}}}).ok());  // of a work that comes later
}

}  // namespace
}  // namespace mslua
