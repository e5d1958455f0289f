#include "launch/image_keeper.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "rendezvous/local_meeting.h"

namespace mslua {
namespace {

// How many processes that are started as keepers a signal ends at once: the length of that file.
constexpr char kKilledAtOnce[] = "MSLUA_TEST_KILLED_AT_ONCE";

void KillAtOnce(int times) { std::ofstream(getenv(kKilledAtOnce)) << std::string(static_cast<size_t>(times), 'x'); }

// The test is the program that Connect starts as `mslua keep JOB --seconds S`.
int KeeperMain(int argc, char** argv) {
  std::error_code error;
  const std::string file = getenv(kKilledAtOnce);
  const auto left = std::filesystem::file_size(file, error);
  if (!error && left > 0) {
    std::filesystem::resize_file(file, left - 1);
    raise(SIGKILL);
  }
  return argc == 5 ? RunImageKeeper(argv[2], absl::Seconds(atof(argv[4]))) : 2;
}

// The process that keeps the images of that job; 0: none.
pid_t KeeperOf(const std::string& job) {
  const std::string words = std::string("mslua") + '\0' + "keep" + '\0' + job + '\0';
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    std::string line(words.size(), ' ');
    if (file.read(&line[0], static_cast<std::streamsize>(line.size())) && line == words)
      return static_cast<pid_t>(atoi(entry.path().filename().c_str()));
  }
  return 0;
}

void KillKeeperOf(const std::string& job) {
  const pid_t keeper = KeeperOf(job);
  ASSERT_GT(keeper, 0);
  ASSERT_EQ(kill(keeper, SIGKILL), 0);
}

Fd Memory(const std::string& text) {
  Fd fd(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return fd;
}

std::string Text(const Fd& fd) {
  char bytes[64] = "";
  const ssize_t n = pread(fd.get(), bytes, sizeof bytes, 0);
  return std::string(bytes, static_cast<size_t>(std::max<ssize_t>(n, 0)));
}

bool Eventually(const std::function<bool()>& holds) {
  const MonotonicTime deadline = MonotonicNow() + absl::Seconds(60);
  while (!holds()) {
    if (MonotonicNow() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

class Keeper : public ::testing::Test {
 protected:
  Keeper() {
    char path[] = "/tmp/mslua-test-XXXXXX";
    root_ = mkdtemp(path);
    setenv("XDG_RUNTIME_DIR", path, 1);
    setenv(kKilledAtOnce, (root_ + "/killed_at_once").c_str(), 1);
  }
  // Keepers that end remove their folders meanwhile.
  ~Keeper() override {
    constexpr auto kFailed = static_cast<std::uintmax_t>(-1);
    std::error_code error;
    EXPECT_TRUE(Eventually([&] { return std::filesystem::remove_all(root_, error) != kFailed; }));
  }
  bool Running() const {
    std::error_code error;
    for (std::filesystem::directory_iterator folder(root_ + "/mslua", error), end; folder != end;
         folder.increment(error)) {
      if (error) return true;
      if (std::filesystem::exists(folder->path() / "socket", error)) return true;
    }
    return false;
  }
  std::string root_;
};

TEST_F(Keeper, HoldsNoPipeOfTheProcessThatStartsIt) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);  // as a rank that writes to a program has it
  auto connection = ImageKeeper::Connect("pipes");
  ASSERT_TRUE(connection.ok()) << connection.status();
  close(ends[1]);
  pollfd entry = {ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 60000), 1);  // its end
  EXPECT_TRUE((*connection)->End().ok());
  close(ends[0]);
}

TEST_F(Keeper, ImagesOutliveTheConnectionThatPutThem) {
  auto first = ImageKeeper::Connect("job1");
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE((*first)->Put(ImageOf(0, 1, 0), Memory("one").get()).ok());
  first->reset();
  const auto second = ImageKeeper::Connect("job1");
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(Text(*(*second)->Get(ImageOf(0, 1, 0))), "one");
  EXPECT_FALSE(*(*second)->Get(ImageOf(0, 2, 0)));
  ASSERT_TRUE((*second)->Put(ImageOf(0, 1, 0), Memory("two").get()).ok());
  EXPECT_EQ(Text(*(*second)->Get(ImageOf(0, 1, 0))), "two");
  ASSERT_TRUE((*second)->Drop(ImageOf(0, 1, 0)).ok());
  EXPECT_FALSE(*(*second)->Get(ImageOf(0, 1, 0)));
  // Another job's are its own.
  const auto other = ImageKeeper::Connect("job2");
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(*(*other)->Get(ImageOf(0, 1, 0)));
  ASSERT_TRUE((*second)->End().ok());
  ASSERT_TRUE((*other)->End().ok());
  EXPECT_TRUE(Eventually([this] { return !Running(); }));
}

TEST_F(Keeper, ListsWhatItKeepsByName) {
  auto images = ImageKeeper::Connect("job5");
  ASSERT_TRUE(images.ok());
  for (const std::string& name : {ImageOf(0, 10, 0), ImageOf(0, 1, 2), ImageOf(1, 1, 0), ImageOf(0, 1, 0)})
    ASSERT_TRUE((*images)->Put(name, Memory(name).get()).ok());
  const auto names = [&](const std::string& prefix) {
    std::vector<std::string> found;
    const auto listed = (*images)->List(prefix);
    EXPECT_TRUE(listed.ok());
    for (const auto& kept : *listed) {
      EXPECT_EQ(Text(kept.memory), kept.name);
      found.push_back(kept.name);
    }
    return found;
  };
  EXPECT_EQ(names(ImagesOfRank(0, 1)), (std::vector<std::string>{ImageOf(0, 1, 0), ImageOf(0, 1, 2)}));
  EXPECT_EQ(names(ImagesOf(0)).size(), 3u);
  EXPECT_TRUE(names(ImagesOf(7)).empty());
  ASSERT_TRUE((*images)->End().ok());
}

TEST_F(Keeper, ItEndsWithTheLastConnectionWhenNothingIsKept) {
  auto images = ImageKeeper::Connect("job3");
  ASSERT_TRUE(images.ok());
  ASSERT_TRUE((*images)->Put("a", Memory("a").get()).ok());
  ASSERT_TRUE((*images)->Put("b", Memory("b").get()).ok());
  ASSERT_TRUE((*images)->DropOwn().ok());
  images->reset();
  EXPECT_TRUE(Eventually([this] { return !Running(); }));
}

// A keeper that ends does not see who is connecting to it in that moment.
TEST_F(Keeper, ConnectionThatAnEndingKeeperNeverAcceptsIsMadeAgain) {
  const auto path = ImageKeeper::Folder("job6");
  ASSERT_TRUE(path.ok());
  auto folder = MeetingFolder::Make(std::filesystem::path(*path).filename());
  ASSERT_TRUE(folder.ok()) << folder.status();
  auto listener = (*folder)->Listen(SOCK_SEQPACKET);
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::thread ending([&] {
    const auto one_waits = [&] {
      pollfd entry = {listener->get(), POLLIN, 0};
      return poll(&entry, 1, 0) == 1;
    };
    EXPECT_TRUE(Eventually(one_waits));
    listener->Close();
    (*folder)->Remove();
    folder->reset();
  });
  auto images = ImageKeeper::Connect("job6");
  ending.join();
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_TRUE((*images)->Put("a", Memory("a").get()).ok());
  ASSERT_TRUE((*images)->End().ok());
}

TEST_F(Keeper, ItEndsSomeTimeAfterTheLastConnection) {
  auto images = ImageKeeper::Connect("job4", absl::Milliseconds(50));
  ASSERT_TRUE(images.ok());
  ASSERT_TRUE((*images)->Put("a", Memory("a").get()).ok());
  images->reset();
  EXPECT_TRUE(Eventually([this] { return !Running(); }));
}

// Whose images would be gone with the next rank that dies.
TEST_F(Keeper, ARankStartsItAgainWhenItIsKilled) {
  auto rank = *ImageKeeper::Connect("killed");
  ASSERT_TRUE(rank->BeRank(2).ok());
  ASSERT_TRUE(rank->Put("kept", Memory("kept").get()).ok());
  ASSERT_TRUE(rank->Put("dropped", Memory("dropped").get()).ok());
  ASSERT_TRUE(rank->Drop("dropped").ok());
  for (int n = 0; n < 2; ++n) {
    const pid_t killed = KeeperOf("killed");
    KillKeeperOf("killed");
    EXPECT_TRUE(Eventually([&] {
      const pid_t now = KeeperOf("killed");
      return now != 0 && now != killed;
    }));
    auto other = *ImageKeeper::Connect("killed");
    EXPECT_TRUE(Eventually([&] {
      const auto ranks = other->RanksOf(2);
      const auto kept = other->Get("kept");
      return ranks.ok() && ranks->present == 1 && ranks->lost == 0 && kept.ok() && *kept && Text(*kept) == "kept";
    }));
    EXPECT_FALSE(*other->Get("dropped"));
  }
  EXPECT_TRUE(rank->End().ok());
}

// A rank may be killed together with the process.
TEST_F(Keeper, AMirrorGivesANewOneWhatRanksThatAreGoneHadPut) {
  auto launcher = *ImageKeeper::Connect("mirrored"), rank = *ImageKeeper::Connect("mirrored");
  ASSERT_TRUE(rank->Put("before", Memory("before").get()).ok());
  ASSERT_TRUE(rank->Put("dropped", Memory("dropped").get()).ok());
  ASSERT_TRUE(launcher->Mirror().ok());
  constexpr int kImages = 300;  // more than a socket holds
  for (int i = 0; i < kImages; ++i)
    ASSERT_TRUE(rank->Put(absl::StrCat("after", i), Memory(absl::StrCat(i)).get()).ok());
  ASSERT_TRUE(rank->Put("replaced", Memory("old").get()).ok());
  ASSERT_TRUE(rank->Put("replaced", Memory("new").get()).ok());
  ASSERT_TRUE(rank->Drop("dropped").ok());
  for (int n = 0; n < 3; ++n) {
    KillKeeperOf("mirrored");
    rank.reset();
    EXPECT_EQ(Text(*launcher->Get("before")), "before");
    EXPECT_EQ(Text(*launcher->Get("replaced")), "new");
    EXPECT_FALSE(*launcher->Get("dropped"));
    for (int i = 0; i < kImages; ++i) EXPECT_EQ(Text(*launcher->Get(absl::StrCat("after", i))), absl::StrCat(i));
  }
  // At once, without a question.
  const pid_t killed = KeeperOf("mirrored");
  KillKeeperOf("mirrored");
  EXPECT_TRUE(Eventually([&] {
    const pid_t now = KeeperOf("mirrored");
    return now != 0 && now != killed;
  }));
  EXPECT_TRUE(launcher->End().ok());
}

// A worker of a cluster is both.
TEST_F(Keeper, ARankMayBecomeAMirror) {
  auto worker = *ImageKeeper::Connect("worker"), other = *ImageKeeper::Connect("worker");
  ASSERT_TRUE(worker->BeRank(0).ok());
  absl::SleepFor(absl::Milliseconds(50));  // its thread waits already
  ASSERT_TRUE(worker->Mirror().ok());
  constexpr int kImages = 1000;  // more than a socket holds
  for (int i = 0; i < kImages; ++i)
    ASSERT_TRUE(other->Put(absl::StrCat("image", i), Memory(absl::StrCat(i)).get()).ok());
  KillKeeperOf("worker");
  other.reset();
  for (int i = 0; i < kImages; ++i) EXPECT_EQ(Text(*worker->Get(absl::StrCat("image", i))), absl::StrCat(i));
  EXPECT_TRUE(worker->End().ok());
}

// It may be older than what a rank has put or dropped meanwhile.
TEST_F(Keeper, WhatAMirrorOffersReplacesNothing) {
  auto rank = *ImageKeeper::Connect("offers");
  ASSERT_TRUE(rank->Put("a", Memory("a").get()).ok());
  ASSERT_TRUE(rank->Put("b", Memory("b").get()).ok());
  ASSERT_TRUE(rank->Drop("b").ok());
  const Fd mirror = *ConnectMeeting(MeetingSocket(*ImageKeeper::Folder("offers")), SOCK_SEQPACKET);
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(SendPacket(mirror, absl::StrCat("offer ", name), Memory("old").get()).ok());
    ASSERT_TRUE(ReceivePacket(mirror, MonotonicNow() + absl::Seconds(60)).ok());
  }
  EXPECT_EQ(Text(*rank->Get("a")), "a");
  EXPECT_FALSE(*rank->Get("b"));
  EXPECT_EQ(Text(*rank->Get("c")), "old");
  EXPECT_TRUE(rank->End().ok());
}

// A rank gives a new one what it had put, before it ends by itself.
TEST_F(Keeper, ARankThatEndsKeepsItsImages) {
  auto rank = *ImageKeeper::Connect("ends"), other = *ImageKeeper::Connect("ends");
  ASSERT_TRUE(rank->BeRank(0).ok());
  ASSERT_TRUE(rank->Put("a", Memory("a").get()).ok());
  KillKeeperOf("ends");
  EXPECT_TRUE(rank->KeepOwn().ok());
  rank.reset();
  EXPECT_TRUE(*other->Get("a"));
  EXPECT_TRUE(other->End().ok());
}

TEST_F(Keeper, AQuestionStartsItAgainWhenItIsKilled) {
  auto images = *ImageKeeper::Connect("asked");
  ASSERT_TRUE(images->Put("a", Memory("a").get()).ok());
  KillKeeperOf("asked");
  ASSERT_TRUE(images->Put("b", Memory("b").get()).ok());
  EXPECT_EQ(Text(*images->Get("a")), "a");
  EXPECT_EQ(Text(*images->Get("b")), "b");
  EXPECT_TRUE(images->End().ok());
}

TEST_F(Keeper, ItIsNotStartedAgainForARankThatHasEnded) {
  auto rank = *ImageKeeper::Connect("ended");
  ASSERT_TRUE(rank->BeRank(0).ok());
  ASSERT_TRUE(rank->Put("a", Memory("a").get()).ok());
  ASSERT_TRUE(rank->EndInOrder().ok());
  KillKeeperOf("ended");
  EXPECT_FALSE(rank->Get("a").ok());
  rank.reset();
  EXPECT_EQ(KeeperOf("ended"), 0);
}

TEST_F(Keeper, ItIsStartedAgainWhenItIsKilledBeforeItCanBeReached) {
  KillAtOnce(2);
  auto images = ImageKeeper::Connect("young");
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_TRUE((*images)->End().ok());
  KillAtOnce(1000);
  const auto none = ImageKeeper::Connect("dead");
  KillAtOnce(0);
  EXPECT_EQ(none.status().message(), "mslua keep was killed by signal 9 before it could be reached");
}

TEST_F(Keeper, CountsTheRanksOfEachStart) {
  auto watcher = *ImageKeeper::Connect("counts");
  const auto is = [&](int64_t start, int64_t came, int64_t present, int64_t lost) {
    return Eventually([&] {
      const auto ranks = watcher->RanksOf(start);
      return ranks.ok() && ranks->came == came && ranks->present == present && ranks->lost == lost;
    });
  };
  EXPECT_TRUE(is(0, 0, 0, 0));
  auto a = *ImageKeeper::Connect("counts"), b = *ImageKeeper::Connect("counts");
  ASSERT_TRUE(a->BeRank(0).ok());
  ASSERT_TRUE(b->BeRank(0).ok());
  EXPECT_TRUE(is(0, 2, 2, 0));
  ASSERT_TRUE(a->EndInOrder().ok());
  a.reset();
  EXPECT_TRUE(is(0, 2, 1, 0));
  b.reset();
  EXPECT_TRUE(is(0, 2, 0, 1));
  EXPECT_TRUE(is(1, 0, 0, 0));
  EXPECT_TRUE(watcher->End().ok());
}

}  // namespace
}  // namespace mslua

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "keep") return mslua::KeeperMain(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
