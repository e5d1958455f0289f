#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "collectives/groups.h"
#include "collectives/host/inproc.h"
#include "core/graph/builder.h"
#include "core/op/marks.h"
#include "core/train/agreement.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

// What ranks 0 and 1 say of two sums over both; `calls`: which of its collectives each rank has first.
std::vector<Status> Compared(const std::vector<int64_t>& calls, const Shape& shape_of_last = {4}) {
  std::vector<Status> statuses(2);
  auto world = MakeInprocWorld(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Groups groups(std::move(world[static_cast<size_t>(rank)]));
      GraphBuilder g;
      for (int64_t k = 0; k < 2; ++k) {
        const Value x =
            g.Input(k == 0 ? "x" : "y", kData, {DType::kF32, rank == 1 && k == 1 ? shape_of_last : Shape{4}});
        Attrs attrs{{"group", std::vector<int64_t>{0, 1}}};
        mark::kCalls.Set(attrs, {k == 0 ? calls[static_cast<size_t>(rank)] : 1 - calls[static_cast<size_t>(rank)]});
        mark::kBegins.Set(attrs, k + 7 * rank);
        g.Output(k == 0 ? "a" : "b", g.Op("all_reduce", {x}, std::move(attrs)));
      }
      statuses[static_cast<size_t>(rank)] = CompareSchedules(groups, *g.Finish());
    });
  }
  for (std::thread& t : threads) t.join();
  return statuses;
}

TEST(CompareSchedules, EqualCallsAreRight) {
  for (const Status& s : Compared({0, 0})) EXPECT_EQ(s, absl::OkStatus());
}

TEST(CompareSchedules, EqualSumsOfOtherValuesAreAnError) {
  for (const Status& s : Compared({0, 1}))
    EXPECT_THAT(std::string(s.message()), HasSubstr("the program of rank 1 has other collectives than rank 0's"));
}

TEST(CompareSchedules, OtherSizesAreAnError) {
  for (const Status& s : Compared({0, 0}, {8})) EXPECT_TRUE(absl::IsFailedPrecondition(s)) << s;
}

}  // namespace
}  // namespace mslua
