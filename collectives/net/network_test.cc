// Ranks of several hosts, which are threads here: each "host" has a folder of its own, and TCP goes over loopback.
#include "collectives/net/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "collectives/backends/native/testing.h"
#include "collectives/conformance.h"
#include "core/base/clock.h"
#include "rendezvous/handshake.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

class Network : public ::testing::TestWithParam<const char*> {
 protected:
  void Run(const std::function<void(Communicator&)>& body) {
    World world(GetParam());
    OnThreads(
        world.size(), [&](int rank, int) { return world.Make(rank); }, body);
  }
};

TEST_P(Network, Collectives) {
  Run([](Communicator& c) { CheckCollectives(c); });
}
TEST_P(Network, Groups) {
  Run([](Communicator& c) { CheckGroups(c); });
}
TEST_P(Network, Asynchronous) { Run(CheckAsynchronous); }
TEST_P(Network, MessagesBesideCollectives) { Run(CheckMessagesBesideCollectives); }
TEST_P(Network, Messages) {
  Run([](Communicator& c) { CheckMessages(c); });
}
TEST_P(Network, LargestAndLeastOfNaN) {
  Run([](Communicator& c) { CheckNaN(c); });
}
TEST_P(Network, Repeatable) {
  Run([](Communicator& c) { CheckRepeatable(c); });
}
TEST_P(Network, Shared) {
  Run([](Communicator& c) { CheckShared(c); });
}
// Payloads that come in many packets, of which the last are few; all_reduce in parts, of which the last is short.
TEST_P(Network, Large) {
  Run([](Communicator& c) {
    ConformanceOptions options;
    options.large = 700001;
    CheckMessages(c, options);
    const int n = c.size();
    std::vector<int32_t> x(n * 200000 + 1, 0), sum(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<int32_t>(i) * (c.rank() + 1);
      sum[i] = static_cast<int32_t>(i) * (n * (n + 1) / 2);
    }
    const Status status =
        c.Run(Call::AllReduce(ReduceOp::kSum, DType::kI32, x.data(), x.data(), static_cast<int64_t>(x.size())));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(x == sum);
  });
}
TEST_P(Network, Refusals) { Run(CheckRefusals); }
TEST_P(Network, Mismatch) { Run(CheckMismatch); }
TEST_P(Network, MessageMismatch) { Run(CheckMessageMismatch); }
TEST_P(Network, Deadline) { Run(CheckDeadline); }
TEST_P(Network, Abort) { Run(CheckAbort); }
TEST_P(Network, Leaving) {
  World world(GetParam());
  std::vector<std::thread> threads;
  for (int r = 0; r < world.size(); ++r) {
    threads.emplace_back([&, r] {
      auto comm = world.Make(r);
      ASSERT_TRUE(comm.ok()) << comm.status();
      CheckLeaving(std::move(*comm));
    });
  }
  for (std::thread& t : threads) t.join();
}
INSTANTIATE_TEST_SUITE_P(Hosts, Network, ::testing::Values("ab", "abc", "aabb", "abaca", "+ab", "+abaca"),
                         [](const ::testing::TestParamInfo<const char*>& info) {
                           return absl::StrReplaceAll(info.param, {{"+", "Tls_"}});
                         });

// The halves are no function of each other, as those of two CRCs of one polynomial are.
TEST(NetworkWorld, IdsOfGroupsHave64Bits) {
  std::set<uint64_t> differences;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t id = GroupId(absl::StrCat("group ", 1000 + i));
    differences.insert((id >> 32) ^ (id & 0xffffffff));
  }
  EXPECT_GT(differences.size(), 990u);
}

TEST(NetworkWorld, NamesTheMissing) {
  World world("abc");
  world.timeout = absl::Milliseconds(100);
  auto made = world.Make(0);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("ranks 1, 2 of other hosts have not come"));
  EXPECT_THAT(std::string(world.Make(1).status().message()), HasSubstr("rank 0 at 127.0.0.1:"));
}

TEST(NetworkWorld, StrangersAreTurnedAway) {
  World world("ab");
  auto intruder = ConnectTcp(world.peers_[0].endpoint, MonotonicTime::InfiniteFuture());
  ASSERT_TRUE(intruder.ok());
  ASSERT_TRUE(SendAll(*intruder, "GET / HTTP/1.1\r\nHost: somebody\r\n\r\n", MonotonicTime::InfiniteFuture()).ok());
  OnThreads(
      2, [&](int rank, int) { return world.Make(rank); },
      [](Communicator& comm) { EXPECT_TRUE(comm.Run(Call::Barrier()).ok()); });
}

// Greetings are taken at once, not one after the other.
TEST(NetworkWorld, ManyWhoSayNothing) {
  World world("abc");
  std::vector<Fd> idle;
  for (int i = 0; i < 500; ++i) {
    for (const RankAddress& peer : world.peers_) {
      if (i < 250 || peer.host == "a") idle.push_back(*ConnectTcp(peer.endpoint, MonotonicTime::InfiniteFuture()));
    }
  }
  OnThreads(
      3, [&](int rank, int) { return world.Make(rank); },
      [](Communicator& comm) { EXPECT_TRUE(comm.Run(Call::Barrier()).ok()); });
}

TEST(NetworkWorld, ARankWithoutTheSecretIsRefused) {
  World world("ab");
  world.secrets[1] = "another secret, as long";
  world.timeout = absl::Seconds(3);
  StatusOr<std::unique_ptr<Communicator>> made[2] = {absl::UnknownError(""), absl::UnknownError("")};
  std::thread other([&] { made[1] = world.Make(1); });
  made[0] = world.Make(0);
  other.join();
  EXPECT_EQ(made[0].status().code(), absl::StatusCode::kDeadlineExceeded) << made[0].status();
  EXPECT_EQ(made[1].status().code(), absl::StatusCode::kPermissionDenied) << made[1].status();
  EXPECT_THAT(std::string(made[1].status().message()), HasSubstr("rank 1: rank 0 at 127.0.0.1:"));
  ASSERT_EQ(world.log().size(), 1u);
  EXPECT_THAT(world.log()[0], HasSubstr("refused a connection of 127.0.0.1:"));
  EXPECT_THAT(world.log()[0], HasSubstr("MSLUA_JOB_SECRET_FILE"));
}

// The secret alone does not make a rank of this job.
TEST(NetworkWorld, AnotherJobEpochOrRankIsRefused) {
  World world("ab");
  ConnectionUse right;
  right.kind = ConnectionUse::Kind::kData;
  right.job = "test";
  right.from = 1;
  right.to = 0;
  std::vector<ConnectionUse> wrong(6, right);
  wrong[0].job = "another";
  wrong[1].epoch = 1;
  wrong[2].from = 0;
  wrong[3].from = 7;
  wrong[4].to = 1;
  wrong[5] = ConnectionUse();
  std::thread first([&] { EXPECT_TRUE(world.Make(0).ok()); });
  const MonotonicTime deadline = MonotonicNow() + absl::Seconds(20);
  for (const ConnectionUse& use : wrong) {
    const Fd socket = *ConnectTcp(world.peers_[0].endpoint, deadline);
    EXPECT_EQ(Authenticate(socket, "the secret of a test", use, deadline).status().code(),
              absl::StatusCode::kPermissionDenied);
  }
  EXPECT_TRUE(world.Make(1).ok());
  first.join();
}

}  // namespace
}  // namespace mslua
