#include "core/runtime/plan_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/graph/builder.h"
#include "core/runtime/stopwatch.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

std::string Folder(const char* name) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/", name, getpid());
  EXPECT_TRUE(RemoveTree(folder).ok());
  return folder;
}

TEST(PlanCache, FindsWhatWasKept) {
  const PlanCache cache(Folder("plans") + "/a/b");
  const std::string key = PlanCache::Key({"tune", "graph"});
  EXPECT_FALSE(cache.Find(key).has_value());
  ASSERT_TRUE(cache.Keep(key, "a = b\n").ok());
  EXPECT_EQ(cache.Find(key).value(), "a = b\n");
  ASSERT_TRUE(cache.Keep(key, "").ok());
  EXPECT_EQ(cache.Find(key).value(), "");
  EXPECT_FALSE(cache.Find(PlanCache::Key({"tune", "graph2"})).has_value());
}

TEST(PlanCache, KeysTellPartsApart) {
  EXPECT_NE(PlanCache::Key({"ab", "c"}), PlanCache::Key({"a", "bc"}));
  EXPECT_NE(PlanCache::Key({"a"}), PlanCache::Key({"a", ""}));
  EXPECT_EQ(PlanCache::Key({"a", "b"}), PlanCache::Key({"a", "b"}));
}

TEST(PlanCache, WithoutAFolderNothingIsKept) {
  const PlanCache cache("");
  EXPECT_TRUE(cache.Keep("k", "text").ok());
  EXPECT_FALSE(cache.Find("k").has_value());
}

TEST(PlanCache, AFolderThatCannotBeMadeIsAnError) {
  const std::string folder = Folder("file");
  ASSERT_TRUE(WriteFileAtomically(folder, "").ok());
  EXPECT_FALSE(PlanCache(folder + "/plans").Keep("k", "text").ok());
}

TEST(PlanCache, OldFilesGo) {
  const std::string folder = Folder("many");
  const PlanCache cache(folder);
  for (int i = 0; i < PlanCache::kMostFiles + 3; ++i) {
    ASSERT_TRUE(cache.Keep(absl::StrCat("k", i), "text").ok());
    const timespec times[2] = {{1000 + i, 0}, {1000 + i, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, absl::StrCat(folder, "/k", i, ".plan").c_str(), times, 0), 0);
  }
  EXPECT_FALSE(cache.Find("k2").has_value());
  EXPECT_TRUE(cache.Find("k3").has_value());
  EXPECT_TRUE(cache.Find(absl::StrCat("k", PlanCache::kMostFiles + 2)).has_value());
}

TEST(PlanCache, EveryDamagedByteIsNoticed) {
  const std::string file = WrapPlan("conv2d f32[2,3] = product\n");
  ASSERT_EQ(UnwrapPlan(file).value(), "conv2d f32[2,3] = product\n");
  for (size_t i = 0; i < file.size(); ++i) {
    EXPECT_FALSE(UnwrapPlan(file.substr(0, i)).ok()) << i;
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = file;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_FALSE(UnwrapPlan(damaged).ok()) << i;
    }
  }
}

TEST(Stopwatch, MoreWorkTakesLonger) {
  const auto product = [](int64_t n) {
    GraphBuilder g;
    const Value a = g.Input("a", kData, {DType::kF32, {n, n}}), b = g.Input("b", kData, {DType::kF32, {n, n}});
    g.Output("y", g.Op("matmul", {a, b}));
    return SecondsOf(*g.Finish());
  };
  const auto little = product(8), much = product(512);
  ASSERT_TRUE(little.ok() && much.ok());
  EXPECT_GT(*little, 0);
  EXPECT_GT(*much, *little);
}

}  // namespace
}  // namespace mslua
