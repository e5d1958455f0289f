#include "collectives/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "collectives/host/inproc.h"
#include "core/base/exit_code.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

void OnRanks(int n, const std::function<void(Groups&)>& body) {
  std::vector<std::unique_ptr<Communicator>> world = MakeInprocWorld(n);
  std::vector<std::thread> threads;
  for (auto& comm : world) {
    threads.emplace_back([&body, c = std::move(comm)]() mutable {
      Groups groups(std::move(c));
      body(groups);
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(Groups, MakesAGroupOnceAndKeepsItsOrder) {
  OnRanks(4, [](Groups& groups) {
    const std::vector<int64_t> all = {0, 1, 2, 3}, mine = groups.rank() < 2 ? std::vector<int64_t>{1, 0} : all;
    EXPECT_EQ(*groups.Get(all, ""), &groups.world());
    if (groups.rank() >= 2) return;
    const auto pair = groups.Get(mine, "");
    ASSERT_TRUE(pair.ok()) << pair.status();
    EXPECT_EQ((*pair)->rank(), 1 - groups.rank());
    EXPECT_EQ(*groups.Get(mine, ""), *pair);
    int32_t value = groups.rank() + 1;
    EXPECT_TRUE((*pair)->Run(Call::AllReduce(ReduceOp::kSum, DType::kI32, &value, &value, 1)).ok());
    EXPECT_EQ(value, 3);
  });
}

TEST(Groups, SharedMemoryGrowsAndIsReused) {
  OnRanks(2, [](Groups& groups) {
    EXPECT_EQ(*groups.Shared(0), nullptr);
    // The ranks may need different sizes: each gets the largest.
    const auto first = groups.Shared(groups.rank() == 0 ? 100 : 4000);
    ASSERT_TRUE(first.ok()) << first.status();
    static_cast<char*>(*first)[3999] = 1;
    EXPECT_EQ(*groups.Shared(4000), *first);
    EXPECT_NE(*groups.Shared(8000), *first);
  });
}

TEST(Groups, AnotherOrderIsFoundAtOnce) {
  OnRanks(3, [](Groups& groups) {
    const std::vector<int64_t> lists[] = {{2, 0, 1}, {1, 2, 0}, {2, 0, 1}};
    const Status status = groups.Get(lists[groups.rank()], "").status();
    EXPECT_EQ(ExitCodeIn(status), kExitHang);
    EXPECT_THAT(
        status.message(),
        HasSubstr(groups.rank() == 1 ? "the group of ranks {1, 2, 0}, in this order: rank 0 makes it with {2, 0, 1}"
                                     : "the group of ranks {2, 0, 1}, in this order: rank 1 makes it with {1, 2, 0}"));
  });
  // The sorted list needs no check: the first call finds the difference.
  OnRanks(2, [](Groups& groups) {
    float x = 1, y[2];
    const std::vector<int64_t> mine = groups.rank() == 0 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{1, 0};
    const auto group = groups.Get(mine, "");
    const Status status =
        group.ok() ? (*group)->Run(Call::AllGather(DType::kF32, &x, y, 1).At("a.lua:1")) : group.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("the group of ranks {1, 0}, in this order"));
  });
}

TEST(Groups, ThatRanksListOtherwiseEndInTime) {
  for (const std::vector<int64_t>& other : {std::vector<int64_t>{1, 0}, {0, 1}}) {
    OnRanks(3, [&](Groups& groups) {
      if (groups.rank() == 2) return;
      groups.set_timeout(absl::Milliseconds(300));
      const bool first = groups.rank() == 0;
      const Status status = groups.Get(first ? std::vector<int64_t>{0, 2, 1} : other, "a.lua:1").status();
      EXPECT_THAT(status.message(), HasSubstr(first ? "the group of ranks {0, 2, 1}, which each of them makes with the "
                                                      "same list, in the same order"
                                                    : "the group of ranks {"));
      EXPECT_EQ(ExitCodeIn(status), kExitHang);
    });
  }
}

TEST(Groups, RefusesStrangers) {
  OnRanks(2, [](Groups& groups) {
    EXPECT_THAT(groups.Get({0, 2}, "").status().message(), HasSubstr("there is no rank 2: the job has 2"));
    const int64_t other = 1 - groups.rank();
    EXPECT_THAT(groups.Get({other}, "").status().message(), HasSubstr("is not in the group"));
    EXPECT_THAT(groups.Get({0, 1, 0}, "").status().message(), HasSubstr("rank"));
  });
}

TEST(Groups, HealthIsThatOfEveryGroup) {
  OnRanks(2, [](Groups& groups) {
    EXPECT_TRUE(groups.Health().ok());
    const auto pair = groups.Get({1, 0}, "");
    ASSERT_TRUE(pair.ok()) << pair.status();
    // The two ranks differ, so both see the group end.
    float x = 1, y[2];
    const Call call = groups.rank() == 0 ? Call::AllReduce(ReduceOp::kSum, DType::kF32, &x, &x, 1)
                                         : Call::AllGather(DType::kF32, &x, y, 1);
    EXPECT_EQ((*pair)->Run(call).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(groups.Health().code(), absl::StatusCode::kFailedPrecondition);
  });
}

}  // namespace
}  // namespace mslua
