#include "core/text/make_files.h"

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/text/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::text {
namespace {

using testing::HasSubstr;

class MakeFiles : public testing::Test {
 protected:
  MakeFiles()
      : root_(absl::StrCat(testing::TempDir(), "/", testing::UnitTest::GetInstance()->current_test_info()->name())) {
    EXPECT_TRUE(MakeFolders(root_).ok());
    TrainOptions options;
    options.vocab_size = 256;  // the bytes
    EXPECT_TRUE(TrainTokenizer({Text("a", "cats and dogs\n")}, options, root_ + "/bytes").ok());
  }

  std::string Text(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(root_, "/", name, ".txt");
    EXPECT_TRUE(WriteFileAtomically(path, text).ok());
    return path;
  }

  // Of the tokens of the texts, each a byte.
  StatusOr<TokenizeReport> Tokenize(const std::vector<std::string>& texts, double test_fraction) {
    std::vector<std::string> files;
    for (const std::string& text : texts) files.push_back(Text(absl::StrCat("text", files.size()), text));
    TokenizeOptions options;
    options.test_fraction = test_fraction;
    return TokenizeFiles(files, root_ + "/bytes", options, absl::StrCat(root_, "/out", ++made_));
  }

  const std::string root_;
  int made_ = 0;
};

TEST_F(MakeFiles, ThePartToTestWithBeginsALine) {
  const auto report = Tokenize({"one two\nthree four\nfive\n"}, 0.5);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->train, 19);
  EXPECT_EQ(report->val, 5);
}

TEST_F(MakeFiles, ItBeginsAWordOrACharacterWhereNoLineBegins) {
  auto report = Tokenize({"one two three four five"}, 0.5);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->train, 13);
  EXPECT_EQ(report->val, 10);
  report = Tokenize({"one\n", "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f"}, 0.25);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->train, 10);
  EXPECT_EQ(report->val, 2);
}

TEST_F(MakeFiles, AnEmptyPartToTestWithIsAnErrorUnlessAskedFor) {
  const auto none = Tokenize({"one"}, 0.01);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("give a larger fraction, or --test-fraction 0"));
  EXPECT_FALSE(IsFile(absl::StrCat(root_, "/out", made_, "/train.bin")));
  const auto report = Tokenize({"one"}, 0);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->val, 0);
}

}  // namespace
}  // namespace mslua::text
