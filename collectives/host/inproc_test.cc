#include "collectives/host/inproc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "collectives/conformance.h"

namespace mslua {
namespace {

struct Variant {
  int ranks;
  bool private_buffers;
};

class Inproc : public ::testing::TestWithParam<Variant> {
 protected:
  std::vector<std::unique_ptr<Communicator>> World() const {
    InprocOptions options;
    options.private_buffers = GetParam().private_buffers;
    return MakeInprocWorld(GetParam().ranks, options);
  }
  void Run(const std::function<void(Communicator&)>& body) const { OnThreads(World(), body); }
};

TEST_P(Inproc, Collectives) {
  Run([](Communicator& c) { CheckCollectives(c); });
}
TEST_P(Inproc, Groups) {
  Run([](Communicator& c) { CheckGroups(c); });
}
TEST_P(Inproc, Asynchronous) { Run(CheckAsynchronous); }
TEST_P(Inproc, MessagesBesideCollectives) { Run(CheckMessagesBesideCollectives); }
TEST_P(Inproc, Messages) {
  Run([](Communicator& c) { CheckMessages(c); });
}
TEST_P(Inproc, LargestAndLeastOfNaN) {
  Run([](Communicator& c) { CheckNaN(c); });
}
TEST_P(Inproc, Repeatable) {
  Run([](Communicator& c) { CheckRepeatable(c); });
}
TEST_P(Inproc, Shared) {
  Run([](Communicator& c) { CheckShared(c); });
}
TEST_P(Inproc, Refusals) { Run(CheckRefusals); }

TEST_P(Inproc, Failures) {
  if (GetParam().ranks < 2) GTEST_SKIP() << "needs a peer";
  Run(CheckMismatch);
  Run(CheckMessageMismatch);
  Run(CheckDeadline);
  Run(CheckAbort);
  std::vector<std::thread> threads;
  for (auto& comm : World()) threads.emplace_back(CheckLeaving, std::move(comm));
  for (std::thread& t : threads) t.join();
}

INSTANTIATE_TEST_SUITE_P(Ranks, Inproc,
                         ::testing::Values(Variant{1, false}, Variant{2, false}, Variant{2, true}, Variant{3, false},
                                           Variant{3, true}, Variant{4, false}, Variant{5, true}, Variant{7, false},
                                           Variant{8, true}, Variant{16, false}, Variant{16, true}),
                         [](const ::testing::TestParamInfo<Variant>& info) {
                           return "Of" + std::to_string(info.param.ranks) +
                                  (info.param.private_buffers ? "Private" : "");
                         });

// As many ranks as a group on one host may have.
TEST(InprocMany, TwoHundredAndFiftySixRanks) {
  constexpr int kRanks = 256;
  for (const bool private_buffers : {false, true}) {
    InprocOptions options;
    options.private_buffers = private_buffers;
    OnThreads(MakeInprocWorld(kRanks, options), [](Communicator& comm) {
      std::vector<int64_t> x(5000, comm.rank());
      ASSERT_TRUE(comm.Run(Call::AllReduce(ReduceOp::kMax, DType::kI64, x.data(), x.data(), 5000)).ok());
      EXPECT_EQ(x[4999], kRanks - 1);
      int64_t sum = comm.rank();
      ASSERT_TRUE(comm.Run(Call::AllReduce(ReduceOp::kSum, DType::kI64, &sum, &sum, 1)).ok());
      EXPECT_EQ(sum, int64_t{kRanks} * (kRanks - 1) / 2);
      constexpr int64_t kBlock = 700;  // more than a page of each rank
      std::vector<int64_t> blocks(kRanks * kBlock), mine(kBlock);
      for (int64_t i = 0; i < kRanks * kBlock; ++i) blocks[static_cast<size_t>(i)] = i / kBlock;
      ASSERT_TRUE(comm.Run(Call::ReduceScatter(ReduceOp::kSum, DType::kI64, blocks.data(), mine.data(), kBlock)).ok());
      EXPECT_EQ(mine, std::vector<int64_t>(kBlock, int64_t{kRanks} * comm.rank()));
      ASSERT_TRUE(comm.Run(Call::AllGather(DType::kI64, mine.data(), blocks.data(), kBlock)).ok());
      EXPECT_EQ(blocks[kRanks * kBlock - 1], int64_t{kRanks} * (kRanks - 1));
    });
  }
}

TEST(FlightRecorder, KeepsTheLastCalls) {
  FlightRecorder recorder;
  for (int i = 0; i < 300; ++i) {
    const uint64_t ticket = recorder.Begin(Call::Broadcast(DType::kF32, nullptr, i, 0).At("a.lua:1"), i, 4);
    if (i != 299) recorder.End(ticket, i % 2 == 0);
  }
  const std::string text = recorder.Dump();
  EXPECT_THAT(text, ::testing::HasSubstr("#299 of 4 ranks  broadcast f32[299] root 0 at a.lua:1"));
  EXPECT_THAT(text, ::testing::HasSubstr("waiting\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("failed\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), FlightRecorder::kEntries);
  EXPECT_EQ(text.find("#171 "), std::string::npos);
  recorder.End(0, true);  // long overwritten
}

}  // namespace
}  // namespace mslua
