#include "core/image/image.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

std::vector<ImageEntry> Entries(int64_t n = 5) {
  return {{"Net/w", {DType::kF32, {n, 3}}, true},
          {"Net/frozen", {DType::kF32, {7}}, false},
          {"moments.Net/w", {DType::kF32, {n, 3}}, true}};
}

std::unique_ptr<Image> MakeImage(const std::vector<ImageEntry>& entries) {
  auto image = Image::Make(entries);
  EXPECT_TRUE(image.ok()) << image.status();
  return *std::move(image);
}

TEST(Image, WhatIsUpdatedHasTwoSides) {
  for (const int64_t n : {1, 5, 400000}) {
    const auto entries = Entries(n);
    const auto image = MakeImage(entries);
    const auto a = image->Addresses(entries, 0), b = image->Addresses(entries, 1);
    EXPECT_NE(a[0], b[0]);
    EXPECT_EQ(a[1], b[1]);
    std::vector<std::pair<char*, int64_t>> parts;
    for (size_t i = 0; i < entries.size(); ++i) {
      parts.emplace_back(a[i], entries[i].type.bytes());
      if (entries[i].updated) parts.emplace_back(b[i], entries[i].type.bytes());
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(parts[i].first) % 64, 0u);
      std::memset(parts[i].first, static_cast<int>(i + 1), static_cast<size_t>(parts[i].second));
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i].first[0], static_cast<char>(i + 1));
      EXPECT_EQ(parts[i].first[parts[i].second - 1], static_cast<char>(i + 1));
    }
  }
}

TEST(Image, ATurnHoldsOnceItIsCommitted) {
  const auto entries = Entries();
  const auto image = MakeImage(entries);
  EXPECT_EQ(image->committed(), Image::kNoTurn);
  ASSERT_TRUE(image->Prepare(1, 0, "one").ok());
  EXPECT_EQ(image->committed(), Image::kNoTurn);
  EXPECT_EQ(image->prepared(), 1);
  image->Commit();
  EXPECT_EQ(image->committed(), 1);
  ASSERT_TRUE(image->Prepare(2, 1, "two").ok());
  EXPECT_EQ(*image->RecordOf(1), "one");
  EXPECT_EQ(*image->RecordOf(2), "two");
  EXPECT_EQ(image->side(), 0);
  image->Commit();
  EXPECT_EQ(image->side(), 1);
  EXPECT_TRUE(absl::IsNotFound(image->RecordOf(1).status()));
  // An end of an epoch updates nothing: its values are those of the side that is committed.
  ASSERT_TRUE(image->Prepare(3, 1, "three").ok());
  image->Commit();
  EXPECT_EQ(image->side(), 1);
  EXPECT_EQ(*image->RecordOf(3), "three");
}

TEST(Image, AnotherProcessGoesOnFromWhatWasCommittedOrPrepared) {
  const auto entries = Entries();
  auto image = MakeImage(entries);
  std::strcpy(image->Addresses(entries, 0)[0], "first");
  std::strcpy(image->Addresses(entries, 1)[0], "second");
  ASSERT_TRUE(image->Prepare(1, 0, "one").ok());
  image->Commit();
  ASSERT_TRUE(image->Prepare(2, 1, "two").ok());
  image->Begin(9);
  const int kept = fcntl(image->descriptor(), F_DUPFD_CLOEXEC, 0);
  image.reset();
  for (const int64_t turn : {1, 2}) {
    const auto again = Image::Open(kept);
    ASSERT_TRUE(again.ok());
    EXPECT_TRUE((*again)->Holds(entries));
    EXPECT_FALSE((*again)->Holds(Entries(6)));
    EXPECT_EQ((*again)->begun(), 9);
    ASSERT_TRUE((*again)->GoTo(turn).ok());
    EXPECT_EQ((*again)->committed(), turn);
    EXPECT_STREQ((*again)->Addresses(entries, (*again)->side())[0], turn == 1 ? "first" : "second");
    EXPECT_EQ((*again)->prepared(), turn);
    EXPECT_FALSE((*again)->GoTo(3 - turn).ok());
    if (turn == 1) {
      ASSERT_TRUE((*again)->Prepare(2, 1, "two").ok());
    }
  }
  close(kept);
}

TEST(Image, WhatIsDamagedIsAnError) {
  const auto entries = Entries();
  const auto image = MakeImage(entries);
  ASSERT_TRUE(image->Prepare(1, 0, "the record").ok());
  image->Commit();
  image->Begin(9);
  constexpr size_t kRecord = 8192, kEnd = kRecord + 4096;
  char* const bytes =
      static_cast<char*>(mmap(nullptr, kEnd, PROT_READ | PROT_WRITE, MAP_SHARED, image->descriptor(), 0));
  const std::string good(bytes, kEnd);
  // Every byte of the header and the record, damaged in turn: an error, or the turn is not there, or it is as it was.
  for (size_t at = 0; at < kRecord + 64; ++at) {
    bytes[at] = static_cast<char>(bytes[at] ^ 0x41);
    const auto opened = Image::Open(image->descriptor());
    if (opened.ok()) {
      const auto record = (*opened)->RecordOf(1);
      if (record.ok()) {
        EXPECT_EQ(*record, "the record") << at;
      }
      EXPECT_TRUE((*opened)->begun() == 0 || (*opened)->begun() == 9) << at;
    }
    std::memcpy(bytes, good.data(), good.size());
  }
  munmap(bytes, kEnd);
  EXPECT_TRUE(absl::IsResourceExhausted(image->Prepare(2, 1, std::string(Image::kRecordBytes, 'x'))));
  EXPECT_EQ(*image->RecordOf(1), "the record");
  const int file = memfd_create("short", MFD_CLOEXEC);
  EXPECT_TRUE(absl::IsDataLoss(Image::Open(file).status()));
  ASSERT_EQ(ftruncate(file, 64 << 20), 0);
  EXPECT_TRUE(absl::IsDataLoss(Image::Open(file).status()));
  close(file);
  EXPECT_FALSE(Image::Open(-1).ok());
}

// Two turns, and the words that name them with one bit that is another: none is taken for the other, nor its values.
TEST(Image, ADamagedWordNamesNoOtherSide) {
  const auto image = MakeImage(Entries());
  ASSERT_TRUE(image->Prepare(1, 0, "one").ok());
  image->Commit();
  ASSERT_TRUE(image->Prepare(2, 1, "two").ok());
  constexpr int64_t kWords = 24, kBytes = 16;  // of the header: committed, prepared
  char good[kBytes];
  ASSERT_EQ(pread(image->descriptor(), good, kBytes, kWords), kBytes);
  for (int bit = 0; bit < 8 * kBytes; ++bit) {
    char bad[kBytes];
    std::memcpy(bad, good, kBytes);
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    for (const int64_t turn : {1, 2}) {
      ASSERT_EQ(pwrite(image->descriptor(), bad, kBytes, kWords), kBytes);
      const auto opened = Image::Open(image->descriptor());
      ASSERT_TRUE(opened.ok());
      const auto record = (*opened)->RecordOf(turn);
      ASSERT_EQ((*opened)->GoTo(turn).ok(), record.ok()) << bit;
      if (!record.ok()) continue;
      EXPECT_EQ(*record, turn == 1 ? "one" : "two") << bit;
      EXPECT_EQ((*opened)->side(), turn - 1) << bit;
      EXPECT_EQ(*(*opened)->RecordOf(turn), *record) << bit;
    }
  }
}

TEST(Image, NothingIsCommittedAfterForget) {
  const auto image = MakeImage(Entries());
  ASSERT_TRUE(image->Prepare(1, 0, "one").ok());
  image->Commit();
  image->Forget();
  EXPECT_EQ(image->committed(), Image::kNoTurn);
  EXPECT_FALSE(image->RecordOf(1).ok());
  ASSERT_TRUE(image->Prepare(2, 0, "two").ok());
  image->Commit();
  EXPECT_EQ(image->committed(), 2);
}

// Whether this process may write there; the byte stays.
bool Writable(const char* at) {
  int pipes[2];
  EXPECT_EQ(pipe(pipes), 0);
  EXPECT_EQ(write(pipes[1], at, 1), 1);
  const bool can = read(pipes[0], const_cast<char*>(at), 1) == 1;
  close(pipes[0]);
  close(pipes[1]);
  return can;
}

TEST(Image, WhatATurnIsResumedFromCannotBeWritten) {
  for (const int64_t n : {5, 400000}) {
    const auto entries = Entries(n);
    auto image = MakeImage(entries);
    const auto a = image->Addresses(entries, 0), b = image->Addresses(entries, 1);
    constexpr size_t kW = 0, kFrozen = 1, kMoment = 2;
    // The side, what is not updated, the other side.
    const auto writable = [&] {
      std::string text;
      for (const char* at : {a[kW], a[kMoment], a[kFrozen], b[kW], b[kMoment] + entries[kMoment].type.bytes() - 1})
        text += Writable(at) ? 'w' : '-';
      return text;
    };
    image->Protect(entries, ImageWriter::kSteps);
    EXPECT_EQ(writable(), "wwwww");
    ASSERT_TRUE(image->Prepare(1, 0, "one").ok());
    EXPECT_EQ(writable(), "--www");
    image->Commit();
    EXPECT_EQ(writable(), "---ww");
    ASSERT_TRUE(image->Prepare(2, 1, "two").ok());
    EXPECT_EQ(writable(), "-----");
    image->Commit();
    EXPECT_EQ(writable(), "ww---");
    // Nothing was updated.
    ASSERT_TRUE(image->Prepare(3, 1, "three").ok());
    image->Commit();
    EXPECT_EQ(writable(), "ww---");
    for (const int64_t at : {0, 8192, 8192 + 4096}) EXPECT_FALSE(Writable(image->memory().data() + at)) << at;

    const auto again = Image::Open(image->descriptor());
    ASSERT_TRUE(again.ok());
    EXPECT_FALSE(Writable((*again)->memory().data()));
    ASSERT_TRUE((*again)->GoTo(3).ok());
    (*again)->Protect(entries, ImageWriter::kSteps);
    EXPECT_TRUE(Writable((*again)->Addresses(entries, 0)[kW]));
    EXPECT_FALSE(Writable((*again)->Addresses(entries, 1)[kW]));
    EXPECT_FALSE(Writable((*again)->Addresses(entries, 1)[kFrozen]));

    image->Forget();
    EXPECT_EQ(writable(), "wwwww");
    EXPECT_FALSE(Writable(image->memory().data()));
  }
}

TEST(Image, SmallSidesAreCopied) {
  EXPECT_EQ(Image::WriterFor(Entries(5)), ImageWriter::kCopies);
  EXPECT_EQ(Image::WriterFor(Entries(40'000)), ImageWriter::kCopies);
  EXPECT_EQ(Image::WriterFor(Entries(50'000)), ImageWriter::kSteps);
  EXPECT_EQ(Image::WriterFor({{"frozen", {DType::kF32, {1'000'000}}, false}}), ImageWriter::kCopies);
}

// Values of all sizes, on several threads, from places that lie anywhere.
TEST(Image, WhatIsCopiedIsWhatATurnHolds) {
  SetComputeThreads(3);
  std::mt19937 random(3);
  std::vector<ImageEntry> entries;
  for (int i = 0; i < 1500; ++i) {
    const int64_t n = i % 100 == 0 ? 30'000 : static_cast<int64_t>(random() % 40);
    entries.push_back({absl::StrCat("tensor", i), {DType::kU8, {n}}, i % 7 != 0});
  }
  const auto image = MakeImage(entries);
  image->Protect(entries, ImageWriter::kCopies);
  const std::array<std::vector<char*>, 2> places = {image->Addresses(entries, 0), image->Addresses(entries, 1)};
  const auto writable = [&](int64_t i) {
    return Writable(places[0][static_cast<size_t>(i)]) || Writable(places[1][static_cast<size_t>(i)]);
  };
  EXPECT_FALSE(writable(100));
  EXPECT_TRUE(writable(700));  // is not updated
  std::vector<std::string> values(entries.size());
  const auto prepare = [&](int64_t turn) {
    std::vector<Image::Value> sources;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!entries[i].updated) continue;
      values[i].clear();
      for (int64_t k = 0; k < entries[i].type.bytes(); ++k) values[i].push_back(static_cast<char>(random()));
      sources.push_back({{places[0][i], places[1][i]}, values[i].data(), entries[i].type.bytes()});
    }
    ASSERT_TRUE(image->PrepareCopy(turn, sources, absl::StrCat(turn)).ok());
  };
  const auto holds = [&](int side, const std::vector<std::string>& want) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!entries[i].updated) continue;
      EXPECT_EQ(std::memcmp(places[static_cast<size_t>(side)][i], want[i].data(), want[i].size()), 0) << i;
    }
  };
  prepare(1);
  EXPECT_EQ(image->committed(), Image::kNoTurn);
  image->Commit();
  std::vector<std::string> committed = values;
  for (int64_t turn = 2; turn < 6; ++turn) {
    holds(image->side(), committed);
    prepare(turn);
    if (turn == 3) prepare(turn);  // once more, before it is committed
    EXPECT_EQ(image->committed(), turn - 1);
    holds(image->side(), committed);
    holds(1 - image->side(), values);
    image->Commit();
    EXPECT_EQ(*image->RecordOf(turn), absl::StrCat(turn));
    committed = values;
    EXPECT_FALSE(writable(100));
    EXPECT_FALSE(writable(700));
  }
  image->Forget();
  EXPECT_FALSE(writable(100));
  EXPECT_TRUE(writable(700));
}

TEST(Image, ACopyThatFailsLeavesWhatIsCommitted) {
  const auto entries = Entries(1000);
  const auto image = MakeImage(entries);
  const std::array<std::vector<char*>, 2> places = {image->Addresses(entries, 0), image->Addresses(entries, 1)};
  ASSERT_TRUE(image->Prepare(1, 0, "one").ok());
  image->Commit();
  const std::string value(static_cast<size_t>(entries[0].type.bytes()), '2');
  const Image::Value values[] = {{{places[0][0], places[1][0]}, value.data(), entries[0].type.bytes()}};
  // It cannot be mapped for a copy.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit within = {1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &within), 0);
  const Status failed = image->PrepareCopy(2, values, "two");
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(failed)) << failed;
  EXPECT_EQ(places[1][0][0], 0);
  EXPECT_EQ(image->prepared(), 1);
  EXPECT_EQ(image->committed(), 1);
  EXPECT_EQ(*image->RecordOf(1), "one");
  ASSERT_TRUE(image->PrepareCopy(2, values, "two").ok());
  image->Commit();
  EXPECT_EQ(places[1][0][0], '2');
}

// Ranks of a job, each at some point of its turn; all are killed, and resume from the newest turn that one has
// committed. Kills also come while they continue. The value of a turn is its number: every rank must always have it.
TEST(Image, EveryRankHoldsTheNewestCommittedTurn) {
  std::mt19937 random(7);
  const std::vector<ImageEntry> entries = {{"w", {DType::kI64, {1}}, true}};
  for (int trial = 0; trial < 300; ++trial) {
    const size_t ranks = 1 + random() % 4;
    struct Rank {
      std::unique_ptr<Image> image;
      int64_t turn = 0;
      int phase = 0;  // 0: before the step, 1: stepped, 2: prepared (has told the others)
    };
    std::vector<Rank> job(ranks);
    const auto value = [&](Rank& r, int side) -> int64_t& {
      return *reinterpret_cast<int64_t*>(r.image->Addresses(entries, side)[0]);
    };
    for (Rank& r : job) {
      r.image = MakeImage(entries);
      ASSERT_TRUE(r.image->Prepare(0, 0, "0").ok());
    }
    for (Rank& r : job) r.image->Commit();
    for (int event = 0; event < 200; ++event) {
      if (random() % 20 == 0) {
        int64_t newest = Image::kNoTurn;
        for (const Rank& r : job) newest = std::max(newest, r.image->committed());
        for (Rank& r : job) {
          if (random() % 8 == 0) break;  // killed again while they continue
          ASSERT_TRUE(r.image->GoTo(newest).ok()) << newest << " of " << r.image->committed();
          ASSERT_EQ(value(r, r.image->side()), newest);
          ASSERT_EQ(*r.image->RecordOf(newest), absl::StrCat(newest));
        }
        for (Rank& r : job) {
          ASSERT_TRUE(r.image->GoTo(newest).ok());
          r.turn = newest;
          r.phase = 0;
        }
        continue;
      }
      Rank& r = job[random() % ranks];
      const int free = 1 - r.image->side();
      if (r.phase == 0) {
        value(r, free) = -1;  // half a step
        if (random() % 3 > 0) value(r, free) = r.turn + 1, r.phase = 1;
      } else if (r.phase == 1) {
        ASSERT_TRUE(r.image->Prepare(r.turn + 1, free, absl::StrCat(r.turn + 1)).ok());
        r.phase = 2;
      } else {
        const bool all = std::all_of(job.begin(), job.end(), [&](const Rank& other) {
          return other.turn > r.turn || (other.turn == r.turn && other.phase == 2);
        });
        if (!all) continue;
        r.image->Commit();
        ++r.turn;
        r.phase = 0;
      }
    }
  }
}

}  // namespace
}  // namespace mslua
