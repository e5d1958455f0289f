#include "core/checkpoint/manifest.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::checkpoint {
namespace {

using ::testing::HasSubstr;

Manifest Example() {
  Manifest m;
  m.run.job = "net \"1\"\n";
  m.run.epoch = 3;
  m.run.step = int64_t{1} << 52;
  m.run.lineage = {std::string(32, 'a'), 9, "net-3_100.ckpt", {{"", 0, 7}, {std::string(32, 'b'), 5, 60}}};
  m.run.world = 2;
  m.run.seed = 7;
  m.run.rng = "philox";
  m.run.data_epoch = 3;
  m.run.data_batch = 41;
  m.run.schedule_step = 40;
  m.run.recipe_hash = "abc";
  m.run.graph_hash = "def";
  m.run.plan = "{\"a\":[1,2]}";
  m.files = {{"rank_0.safetensors", {kChunkBytes + 1, std::string(128, 'a'), {1, 0xffffffff}}, "", ""},
             {"rank_1.safetensors", {100, std::string(128, '0'), {0xdeadbeef}}, "/b/net-3_100.ckpt", "host1"}};
  m.run.rank = 2;
  m.tensors = {{"w", {DType::kBF16, {4, 6}}, {{0, {0, 0}, {4, 3}}, {1, {0, 3}, {4, 6}}}},
               {"s", {DType::kI64, {}}, {{0, {}, {}}}}};
  return m;
}

// The body of a manifest with a digest that fits.
std::string Seal(const std::string& body) { return body + ",\n\"blake2b\":\"" + Blake2bHex(body) + "\"}\n"; }
std::string Body() {
  const std::string text = *SerializeManifest(Example());
  return text.substr(0, text.rfind(",\n\"blake2b\""));
}

TEST(Manifest, RoundTrip) {
  const auto text = SerializeManifest(Example());
  ASSERT_TRUE(text.ok());
  const auto m = ParseManifest(*text);
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(*SerializeManifest(*m), *text);
  EXPECT_EQ(m->run.job, Example().run.job);
  EXPECT_EQ(m->run.step, int64_t{1} << 52);
  EXPECT_EQ(m->files[0].digest.crc32c, Example().files[0].digest.crc32c);
  EXPECT_EQ(m->files[0].folder, "");
  EXPECT_EQ(m->files[1].folder, "/b/net-3_100.ckpt");
  EXPECT_EQ(m->files[1].host, "host1");
  EXPECT_EQ(m->run.rank, 2);
  EXPECT_EQ(m->tensors[0].slices[1].begin, (Shape{0, 3}));
  EXPECT_EQ(m->run.lineage.generation, 9);
  EXPECT_EQ(m->run.lineage.run, std::string(32, 'a'));
  EXPECT_EQ(m->run.lineage.parent, "net-3_100.ckpt");
  ASSERT_EQ(m->run.lineage.forks.size(), 2u);
  EXPECT_EQ(m->run.lineage.forks[1].generation, 5);
  EXPECT_EQ(m->run.lineage.forks[1].step, 60);
  EXPECT_TRUE(CheckComplete(*m).ok());
}

// What a program that records no lineage has written.
std::string BodyOfVersion2() {
  std::string body = Body();
  const size_t lineage = body.find("\"lineage\":"), run = body.find("\"run\":{");
  body.erase(lineage, body.find("\n\"run\":{") + 1 - lineage);
  body.replace(body.find("\"version\":3"), 11, "\"version\":2");
  return run == std::string::npos ? "" : body;
}

TEST(Manifest, VersionTwoStillLoads) {
  const auto m = ParseManifest(Seal(BodyOfVersion2()));
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(m->run.step, int64_t{1} << 52);
  EXPECT_EQ(m->run.lineage.run, "");
  EXPECT_EQ(m->run.lineage.generation, 0);
  EXPECT_TRUE(ParseLineage(Seal(BodyOfVersion2())).ok());
}

TEST(Manifest, LineageAloneIsThatOfTheManifest) {
  const auto lineage = ParseLineage(Seal(Body()));
  ASSERT_TRUE(lineage.ok()) << lineage.status();
  EXPECT_EQ(lineage->generation, 9);
  EXPECT_EQ(lineage->forks.size(), 2u);
  std::string damaged = Seal(Body());
  damaged[damaged.find("\"generation\":9") + 13] = '8';
  EXPECT_TRUE(absl::IsDataLoss(ParseLineage(damaged).status()));
}

// In quadratic time this takes many minutes.
TEST(Manifest, ManyTensorsAreReadInLinearTime) {
  Manifest m = Example();
  m.tensors.clear();
  for (int i = 0; i < 100000; ++i)
    m.tensors.push_back({absl::StrCat("layer.", i, ".weight"), {DType::kF32, {1}}, {{0, {0}, {1}}}});
  const auto text = SerializeManifest(m);
  ASSERT_TRUE(text.ok());
  const auto read = ParseManifest(*text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tensors.size(), 100000u);
}

TEST(Manifest, AnyEditIsNoticed) {
  std::string text = *SerializeManifest(Example());
  for (char& c : text) {
    c ^= 1;
    EXPECT_FALSE(ParseManifest(text).ok());
    c ^= 1;
  }
  for (size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(ParseManifest(text.substr(0, n)).ok());
  EXPECT_FALSE(ParseManifest(text + " ").ok());
}

TEST(Manifest, SealedNonsenseIsRefused) {
  ASSERT_TRUE(ParseManifest(Seal(Body())).ok());
  const struct {
    std::string from, to, says;
  } cases[] = {
      {"\"version\":3", "\"version\":4", "version 4"},
      {"\"version\":3", "\"version\":1", "version 1"},
      {"\"lineage\"", "\"lines\"", "'lineage'"},
      {"\"generation\":9", "\"generation\":9007199254740993",
       "'generation' is missing or not an integer from 0 to 2^53"},
      {"\"step\":4503599627370496", "\"step\":9223372036854775807",
       "'step' is missing or not an integer from 0 to 2^53"},
      {"bbbb", "bxbb", "32 hexadecimal digits"},
      {"mslua checkpoint", "other", "format 'other'"},
      {"\"step\":", "\"stop\":", "'step'"},
      {"\"epoch\":3", "\"epoch\":-3", "'epoch'"},
      {"rank_1.safetensors", "../secret", "no file name"},
      {"rank_1.safetensors", "rank_0.safetensors", "given twice"},
      {"/b/net-3_100.ckpt", "b/net-3_100.ckpt", "not an absolute path"},
      {"/b/net-3_100.ckpt", "/etc", "not an absolute path of a checkpoint's folder"},
      {"\"host\":\"host1\"", "\"hots\":\"host1\"", "'host'"},
      {"\"rank\":2", "\"rank\":-2", "'rank'"},
      {"\"size\":100", "\"size\":9000000000", "digests"},
      {"deadbeef", "deadbee", "digests"},
      {"\"bf16\"", "\"f8\"", "'f8' is no dtype"},
      {"[4,6]", "[4,4611686018427387904]", "no possible"},
      {"\"end\":[4,3]", "\"end\":[4,7]", "not within"},
      {"\"end\":[4,3]", "\"end\":[4]", "not within"},
      {"\"file\":1", "\"file\":2", "not within"},
      {"\"file\":1", "\"file\":0", "two slices in one file"},
      {"\"name\":\"s\"", "\"name\":\"w\"", "given twice"},
      {"\"seed\":7", "\"seed\":7,\"seed\":8", "given twice"},
  };
  for (const auto& c : cases) {
    std::string body = Body();
    const size_t at = body.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    body.replace(at, c.from.size(), c.to);
    const auto m = ParseManifest(Seal(body));
    ASSERT_FALSE(m.ok()) << c.from << " -> " << c.to;
    EXPECT_THAT(m.status().message(), HasSubstr(c.says));
  }
}

TEST(Manifest, CoverIsChecked) {
  Manifest m = Example();
  m.tensors[0].slices.pop_back();
  EXPECT_THAT(CheckComplete(m).message(), HasSubstr("'w': the slices hold 12 of 24"));
  m = Example();
  m.tensors[0].slices[1].begin = {0, 2};
  EXPECT_THAT(CheckComplete(m).message(), HasSubstr("overlap"));
  m = Example();
  m.tensors[1].slices.clear();
  EXPECT_FALSE(CheckComplete(m).ok());
  m = Example();
  m.tensors[0].type.shape[0] = 0;
  m.tensors[0].slices = {};
  EXPECT_TRUE(CheckComplete(m).ok());
}

TEST(Manifest, ReplicasAreStoredOnce) {
  Manifest whole = Example(), part = Example();
  for (DataFile& file : part.files) file.name += "2";
  ASSERT_TRUE(AppendPart(part, &whole).ok());
  EXPECT_EQ(whole.files.size(), 4u);
  EXPECT_EQ(whole.tensors.size(), 2u);
  EXPECT_EQ(whole.tensors[0].slices.size(), 2u);
  EXPECT_TRUE(CheckComplete(whole).ok());
}

// Mutations sealed with a digest that fits, so that they reach the parser: an error or a manifest whose slices lie
// within their tensors and whose text round-trips.
TEST(Manifest, FuzzedManifestsAreSafe) {
  const std::string seed = Body();
  const std::string alphabet = "0123456789{}[]\",:.-eE \\u\xff";
  uint64_t state = 2;
  const auto next = [&state](uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
  };
  int good = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string body = seed;
    for (uint64_t edits = 1 + next(3); edits > 0 && !body.empty(); --edits) {
      const size_t at = next(body.size());
      switch (next(3)) {
        case 0:
          body[at] = alphabet[next(alphabet.size())];
          break;
        case 1:
          body.erase(at, next(9));
          break;
        case 2:
          body.insert(at, body.substr(next(body.size()), next(30)));
          break;
      }
    }
    const auto m = ParseManifest(Seal(body));
    if (!m.ok()) continue;
    ++good;
    CheckComplete(*m).IgnoreError();
    for (const TensorRecord& t : m->tensors) {
      for (const Slice& s : t.slices) {
        ASSERT_LT(s.file, static_cast<int64_t>(m->files.size()));
        ASSERT_EQ(s.begin.size(), t.type.shape.size());
        for (size_t d = 0; d < s.end.size(); ++d) ASSERT_LE(s.end[d], t.type.shape[d]);
      }
    }
    const auto again = SerializeManifest(*m);
    ASSERT_TRUE(again.ok() && ParseManifest(*again).ok());
  }
  EXPECT_GT(good, 50);
}

}  // namespace
}  // namespace mslua::checkpoint
