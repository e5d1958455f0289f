#include "collectives/backends/native/native.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "collectives/conformance.h"
#include "collectives/host/local_host.h"
#include "rendezvous/socket.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

// A short path: those of unix sockets end at 107 bytes.
class Folder {
 public:
  Folder() {
    char path[] = "/tmp/mslua-test-XXXXXX";
    path_ = mkdtemp(path);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

MakeRank MakeIn(const Folder& folder) {
  return [&folder](int rank, int size) {
    NativeOptions options;
    options.rank = rank;
    options.size = size;
    options.folder = folder.path();
    return MakeNativeWorld(options);
  };
}

// The ranks are threads here, each with its own mappings; native_process_test has processes.
class Native : public ::testing::TestWithParam<int> {
 protected:
  void Run(const std::function<void(Communicator&)>& body) { OnThreads(GetParam(), MakeIn(folder_), body); }
  Folder folder_;
};

TEST_P(Native, Collectives) {
  ConformanceOptions options;
  options.large = 200000;  // several rounds through the windows
  Run([&](Communicator& c) { CheckCollectives(c, options); });
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}
TEST_P(Native, Groups) {
  Run([](Communicator& c) { CheckGroups(c); });
}
TEST_P(Native, Asynchronous) { Run(CheckAsynchronous); }
TEST_P(Native, MessagesBesideCollectives) { Run(CheckMessagesBesideCollectives); }
TEST_P(Native, Messages) {
  Run([](Communicator& c) { CheckMessages(c); });
}
TEST_P(Native, LargestAndLeastOfNaN) {
  Run([](Communicator& c) { CheckNaN(c); });
}
TEST_P(Native, Repeatable) {
  Run([](Communicator& c) { CheckRepeatable(c); });
}
TEST_P(Native, Shared) {
  Run([](Communicator& c) { CheckShared(c); });
}
TEST_P(Native, Refusals) { Run(CheckRefusals); }
TEST_P(Native, Failures) {
  if (GetParam() < 2) GTEST_SKIP() << "needs a peer";
  Run(CheckMismatch);
  Run(CheckMessageMismatch);
  Run(CheckDeadline);
  Run(CheckAbort);
  std::vector<std::thread> threads;
  for (int r = 0; r < GetParam(); ++r) {
    threads.emplace_back([&, r] {
      auto comm = MakeIn(folder_)(r, GetParam());
      ASSERT_TRUE(comm.ok()) << comm.status();
      CheckLeaving(std::move(*comm));
    });
  }
  for (std::thread& t : threads) t.join();
}
INSTANTIATE_TEST_SUITE_P(Ranks, Native, ::testing::Values(1, 2, 3, 4, 8));

TEST(NativeWorld, NamesTheMissing) {
  const Folder folder;
  NativeOptions options;
  options.size = 3;
  options.folder = folder.path();
  options.timeout = absl::Milliseconds(100);
  auto world = MakeNativeWorld(options);
  EXPECT_EQ(world.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(world.status().message()), HasSubstr("ranks 1, 2 of this host have not come"));
  options.rank = 2;
  EXPECT_THAT(std::string(MakeNativeWorld(options).status().message()), HasSubstr("rank 0 of this host"));
  options.rank = 3;
  EXPECT_EQ(MakeNativeWorld(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.rank = 0;
  options.folder = std::string(200, 'x');
  EXPECT_THAT(std::string(MakeNativeWorld(options).status().message()), HasSubstr("at most 107"));
}

// One rank whose memory its peers may not read is enough for all to go through windows.
TEST(NativeWorld, MemoryThatPeersMayNotRead) {
  for (const int hidden : {1, 3}) {
    const Folder folder;
    const auto make = [&](int rank, int size) {
      NativeOptions options;
      options.rank = rank;
      options.size = size;
      options.folder = folder.path();
      options.fetch = rank >= hidden;
      return MakeNativeWorld(options);
    };
    OnThreads(3, make, [](Communicator& comm) {
      ConformanceOptions options;
      options.large = 300000;  // several rounds
      CheckCollectives(comm, options);
      CheckMessages(comm, options);
      CheckShared(comm, options);
    });
  }
}

TEST(NativeWorld, SegmentsOfDifferentSizesAreRefused) {
  const Folder folder;
  OnThreads(2, MakeIn(folder), [](Communicator& comm) {
    auto memory = comm.AllocateShared(4096 * (1 + comm.rank()), "a.lua:1");
    EXPECT_EQ(memory.status().code(), absl::StatusCode::kFailedPrecondition) << memory.status();
    EXPECT_THAT(std::string(memory.status().message()), HasSubstr("8192"));
  });
}

TEST(NativeWorld, RanksOfAnotherEpochDoNotMeet) {
  const Folder folder;
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      NativeOptions options;
      options.rank = static_cast<int>(r);
      options.size = 2;
      options.epoch = r;
      options.folder = folder.path();
      options.timeout = absl::Milliseconds(200);
      EXPECT_FALSE(MakeNativeWorld(options).ok());
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace mslua
