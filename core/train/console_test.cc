#include "core/train/console.h"

#include <gtest/gtest.h>

#include "core/base/input_file.h"

namespace mslua {
namespace {

std::string Everything(std::FILE* file) {
  std::rewind(file);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text.push_back(static_cast<char>(c));
  return text;
}

TEST(Console, APrefixIsForLinesThatRanksPrintTogether) {
  std::FILE* const out = std::tmpfile();
  Console::Options options;
  options.prefix = "[rank 2] ";
  options.log_path = testing::TempDir() + "/rank_2.log";
  RecordHealth health([](const std::string&) {});
  options.health = &health;
  {
    Console console(options, out);
    ASSERT_TRUE(console.opened().ok()) << console.opened();
    console.Loss(1, 1, 1, 0.5F);
    console.Line("two\nlines");
  }
  EXPECT_EQ(Everything(out), "[rank 2] epoch: 1 step: 1, loss is 0.5\n[rank 2] two\n[rank 2] lines\n");
  std::fclose(out);
  const auto log = ReadFile(options.log_path, 1000);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(*log, "epoch: 1 step: 1, loss is 0.5\ntwo\nlines\n");
}

}  // namespace
}  // namespace mslua
