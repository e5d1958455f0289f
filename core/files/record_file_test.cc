#include "core/files/record_file.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/input_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

std::string TempPath(const std::string& name) {
  const char* base = getenv("TEST_TMPDIR");
  const std::string path = absl::StrCat(base != nullptr ? base : "/tmp", "/", name);
  unlink(path.c_str());
  return path;
}

// A limit on the size of files stands for a disk that is full: writes stop in the middle of a record.
class Full {
 public:
  explicit Full(int64_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now = {static_cast<rlim_t>(bytes), before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~Full() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

std::string Contents(const std::string& path) { return *ReadFile(path, 1 << 24); }

class RecordFileTest : public ::testing::Test {
 protected:
  std::vector<std::string> notices_;
  RecordHealth health_{[this](const std::string& text) { notices_.push_back(text); }};
};

TEST_F(RecordFileTest, AppendsWholeRecords) {
  const std::string path = TempPath("append");
  for (int start = 0; start < 2; ++start) {
    auto file = RecordFile::Open(path, true, &health_);
    ASSERT_TRUE(file.ok()) << file.status();
    (*file)->Append("one\n");
    (*file)->Append("two\n");
  }
  EXPECT_EQ(Contents(path), "one\ntwo\none\ntwo\n");
  EXPECT_TRUE(notices_.empty());
  EXPECT_TRUE(health_.outcome().ok());
}

TEST_F(RecordFileTest, ALineThatWasCutOffIsRemovedBeforeTheNext) {
  const std::string path = TempPath("cut");
  for (const std::string& before :
       {std::string("{\"a\":1}\n{\"b\""), std::string("{\"b\""), "{\"a\":1}\n" + std::string(10000, 'x')}) {
    std::ofstream(path) << before;
    auto file = RecordFile::Open(path, true, &health_);
    ASSERT_TRUE(file.ok());
    (*file)->Append("{\"c\":2}\n");
    file->reset();
    EXPECT_EQ(Contents(path), absl::StrCat(before[2] == 'a' ? "{\"a\":1}\n" : "", "{\"c\":2}\n"));
  }
}

TEST_F(RecordFileTest, FullForAWhileLosesNothingAndIsSaidOnce) {
  const std::string path = TempPath("full");
  auto file = RecordFile::Open(path, true, &health_);
  ASSERT_TRUE(file.ok());
  std::string expected;
  const auto append = [&](int n) {
    for (int i = 0; i < n; ++i) {
      const std::string line = absl::StrCat("{\"line\":", expected.size(), "}\n");
      expected += line;
      (*file)->Append(line);
      (*file)->Flush();
    }
  };
  append(10);
  {
    const Full full(205);  // within a record
    append(100);
    const std::string there = Contents(path);
    EXPECT_EQ(there.back(), '\n');
    EXPECT_EQ(there, expected.substr(0, there.size()));
    ASSERT_EQ(notices_.size(), 1u);
    EXPECT_THAT(notices_[0], HasSubstr(absl::StrCat("cannot write ", path, ": File too large: training continues")));
  }
  append(10);
  EXPECT_EQ(Contents(path), expected);
  ASSERT_EQ(notices_.size(), 2u);
  EXPECT_THAT(notices_[1], HasSubstr("can be written again: no record was lost"));
  EXPECT_TRUE(health_.outcome().ok());
}

TEST_F(RecordFileTest, WhatIsLostIsCounted) {
  const std::string path = TempPath("lost");
  auto file = RecordFile::Open(path, true, &health_);
  ASSERT_TRUE(file.ok());
  const std::string line = std::string(1023, 'x') + "\n";
  {
    const Full full(10 * 1024 + 100);
    for (int i = 0; i < 2000; ++i) (*file)->Append(line);
    (*file)->Flush();
    EXPECT_EQ(Contents(path).size(), 10u * 1024);
  }
  (*file)->Append(line);
  file->reset();
  // 10 before, 1024 that waited, and the last one.
  EXPECT_EQ(Contents(path).size(), (10 + 1024 + 1) * 1024u);
  EXPECT_THAT(std::string(health_.outcome().message()), HasSubstr(absl::StrCat("966 records of ", path, " were lost")));
  EXPECT_EQ(notices_.size(), 2u);
}

TEST_F(RecordFileTest, FilesThatFailTogetherAreSaidOnce) {
  const std::string a = TempPath("a"), b = TempPath("b");
  {
    const auto file_a = RecordFile::Open(a, true, &health_), file_b = RecordFile::Open(b, true, &health_);
    const Full full(1);
    for (const auto& file : {file_a->get(), file_b->get()}) {
      file->Append("record\n");
      file->Flush();
    }
    EXPECT_EQ(notices_.size(), 1u);
    file_a->get()->Flush();
    file_b->get()->Flush();
    EXPECT_EQ(notices_.size(), 1u);
  }
  EXPECT_TRUE(health_.outcome().ok());  // written when the files were closed
  EXPECT_EQ(Contents(a) + Contents(b), "record\nrecord\n");
}

TEST_F(RecordFileTest, AFullDiskAtTheEndLosesWhatWaits) {
  const std::string path = TempPath("end");
  const Full full(1);
  auto file = RecordFile::Open(path, false, &health_);
  (*file)->Append("record");
  file->reset();
  EXPECT_EQ(Contents(path), "");
  EXPECT_THAT(std::string(health_.outcome().message()), HasSubstr("1 record of "));
}

}  // namespace
}  // namespace mslua
