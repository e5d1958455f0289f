#include "rendezvous/job_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

class JobSecret : public ::testing::Test {
 protected:
  JobSecret() : folder_(absl::StrCat(::testing::TempDir(), "/secret-", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~JobSecret() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& text, mode_t mode) {
    const std::string path = folder_ + "/given";
    std::filesystem::remove(path);
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  const std::string folder_;
};

TEST_F(JobSecret, IsMadeOnce) {
  const std::string path = folder_ + "/made";
  EXPECT_EQ(ReadJobSecret(path).status().code(), absl::StatusCode::kNotFound);
  bool made = false;
  const auto first = MakeJobSecret(path, &made);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(made);
  EXPECT_EQ(first->size(), 64u);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto second = MakeJobSecret(path, &made);
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(made);
  EXPECT_EQ(*second, *first);
  EXPECT_EQ(*ReadJobSecret(path), *first);
  EXPECT_EQ(WriteJobSecret(path, "another secret of 16").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "nothing else is left";
}

TEST_F(JobSecret, OthersMayNotReadIt) {
  const std::string good(32, 'x');
  EXPECT_EQ(*ReadJobSecret(Write(good + "\n", 0600)), good);
  EXPECT_EQ(*ReadJobSecret(Write(good, 0400)), good);
  for (const mode_t mode : {0644, 0660, 0602, 0604, 0666}) {
    const auto read = ReadJobSecret(Write(good, mode));
    EXPECT_EQ(read.status().code(), absl::StatusCode::kPermissionDenied) << mode;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("chmod 600"));
  }
  bool made;
  EXPECT_EQ(MakeJobSecret(Write(good, 0644), &made).status().code(), absl::StatusCode::kPermissionDenied);
  const std::string path = Write(good, 0600);
  if (chown(path.c_str(), 65534, 65534) == 0) {  // root can
    EXPECT_EQ(ReadJobSecret(path).status().code(), absl::StatusCode::kPermissionDenied) << "another user's";
  }
}

TEST_F(JobSecret, IsNeitherShortNorHuge) {
  for (const std::string& bad :
       {std::string(), std::string(15, 'x'), std::string(15, 'x') + "\n\n", std::string(5000, 'x')}) {
    EXPECT_EQ(ReadJobSecret(Write(bad, 0600)).status().code(), absl::StatusCode::kInvalidArgument) << bad.size();
  }
  EXPECT_FALSE(ReadJobSecret(folder_).ok()) << "a folder";
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(ReadJobSecret(pipe).ok()) << "a pipe, and nobody waits for its other end";
}

}  // namespace
}  // namespace mslua
