#include "core/base/write_keys.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/base/parallel_for.h"

namespace mslua {
namespace {

constexpr size_t kPage = 4096;

class WriteKeysTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!WriteKeys::Supported()) GTEST_SKIP() << "no protection keys here";
    pages_ = static_cast<char*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(pages_, MAP_FAILED);
    ASSERT_EQ(pipe(pipes_), 0);
    keys_ = WriteKeys::Take({absl::MakeSpan(pages_, kPage), absl::MakeSpan(pages_ + kPage, kPage)});
    ASSERT_NE(keys_, nullptr);
  }
  void TearDown() override {
    if (pages_ == nullptr) return;
    keys_.reset();
    munmap(pages_, 2 * kPage);
    for (const int end : pipes_) close(end);
  }

  // "w" or "-" for each area, by a call that gives an error where the calling thread may not write.
  std::string Writable() {
    std::string text;
    for (const size_t area : {0, 1}) {
      EXPECT_EQ(write(pipes_[1], "x", 1), 1);
      const bool can = read(pipes_[0], pages_ + area * kPage, 1) == 1;
      char byte;
      if (!can) {
        EXPECT_EQ(read(pipes_[0], &byte, 1), 1);
      }
      text += can ? 'w' : '-';
    }
    return text;
  }

  // Of all threads that compute for this one.
  std::set<std::string> OfComputeThreads() {
    std::mutex mutex;
    std::set<std::string> found;
    ParallelFor(ComputeThreads(), 1, [&](int64_t, int64_t) {
      const std::lock_guard<std::mutex> lock(mutex);
      found.insert(Writable());
    });
    return found;
  }

  char* pages_ = nullptr;
  int pipes_[2];
  std::unique_ptr<WriteKeys> keys_;
};

using Found = std::set<std::string>;

TEST_F(WriteKeysTest, EachAreaIsOpenedAndClosed) {
  EXPECT_EQ(Writable(), "ww");
  keys_->Allow(0, false);
  EXPECT_EQ(Writable(), "-w");
  keys_->Allow(1, false);
  EXPECT_EQ(Writable(), "--");
  keys_->Allow(0, true);
  EXPECT_EQ(Writable(), "w-");
  pages_[0] = 7;
  EXPECT_DEATH(pages_[kPage] = 1, "");
  EXPECT_EQ(pages_[0] + pages_[kPage], 7 + 'x');  // all can be read
  WriteKeys::AllowAll(true);
  EXPECT_EQ(Writable(), "ww");
  WriteKeys::AllowAll(false);
  EXPECT_EQ(Writable(), "--");
}

TEST_F(WriteKeysTest, ThreadsThatComputeFollowAfterShare) {
  SetComputeThreads(3);
  EXPECT_EQ(OfComputeThreads(), Found{"ww"});
  keys_->Allow(0, false);
  keys_->Share();
  EXPECT_EQ(OfComputeThreads(), Found{"-w"});
  keys_->Allow(0, true);
  keys_->Allow(1, false);
  keys_->Share();
  EXPECT_EQ(OfComputeThreads(), Found{"w-"});
}

TEST_F(WriteKeysTest, NewThreadsStartWithTheRightsOfTheirMaker) {
  keys_->Allow(1, false);
  std::string mine, all;
  std::thread([&] {
    mine = Writable();
    WriteKeys::AllowAll(true);
    all = Writable();
  }).join();
  EXPECT_EQ(mine, "w-");
  EXPECT_EQ(all, "ww");
  EXPECT_EQ(Writable(), "w-");
}

TEST_F(WriteKeysTest, KeysAreTakenOnceAndGivenBack) {
  std::vector<std::unique_ptr<WriteKeys>> taken;
  while (auto keys = WriteKeys::Take({})) taken.push_back(std::move(keys));
  const size_t others = taken.size();
  EXPECT_GE(others, 1u);
  taken.clear();
  keys_->Allow(0, false);
  keys_->Share();
  keys_.reset();
  EXPECT_EQ(Writable(), "ww");
  EXPECT_EQ(OfComputeThreads(), Found{"ww"});
  while (auto keys = WriteKeys::Take({})) taken.push_back(std::move(keys));
  EXPECT_EQ(taken.size(), others + 1);
}

}  // namespace
}  // namespace mslua
