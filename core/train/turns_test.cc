#include "core/train/turns.h"

#include <cmath>
#include <cstring>
#include <random>

#include "gtest/gtest.h"

namespace mslua {
namespace {

TurnRecord Sample() {
  TurnRecord record;
  record.identity = "0123abcd";
  record.folder = "runs/a b\nc";
  record.plan = "{\"matmul\": \"tiles\",\n \"x\": 1}";
  record.lineage = "5f";
  record.family = "89ef";
  record.world = 4;
  record.rank = 3;
  record.generation = 7;
  record.birth = "c01a";
  record.tensors = {{"Net/conv1.weight", {DType::kF32, {6, 1, 5, 5}}, true, "conv1.weight", {}},
                    {"scale", {DType::kBF16, {}}, false, "", {}},
                    {"moments.Net/conv1.weight", {DType::kF32, {40}}, true, "moments.conv1 a.weight", {}}};
  record.tensors[0].part.part = {{12, 1, 5, 5}, {6, 0, 0, 0}, {6, 1, 5, 5}};
  record.tensors[1].part.varies = record.tensors[1].part.own = true;
  record.tensors[2].part.part = {{150}, {40}, {40}};
  record.tensors[2].part.flat = true;
  record.tensors[2].part.replica = true;
  record.state.step = 441;
  record.state.epoch = 2;
  record.state.step_in_epoch = 41;
  record.state.loss = 0.1;
  record.counters = {{"loss_scale.value", 65536.0}, {"mean loss", 1.0 / 3}, {"small", 5e-324}};
  record.files = {{"runs/a b/rank_0.log", 12345}};
  record.interventions = {"{\"step\":3,\"command\":\".set lr 0.1\"}"};
  record.stopped = true;
  return record;
}

TEST(TurnRecord, ReadsBackAsItWasWritten) {
  const TurnRecord a = Sample();
  const auto b = ParseTurn(TurnText(a));
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(b->identity, a.identity);
  EXPECT_EQ(b->folder, a.folder);
  EXPECT_EQ(b->plan, a.plan);
  EXPECT_EQ(b->lineage, a.lineage);
  EXPECT_EQ(b->family, a.family);
  EXPECT_EQ(b->world, a.world);
  EXPECT_EQ(b->rank, a.rank);
  EXPECT_EQ(b->generation, a.generation);
  EXPECT_EQ(b->birth, a.birth);
  ASSERT_EQ(b->tensors.size(), a.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const TurnTensor &x = a.tensors[i], &y = b->tensors[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_TRUE(x.type == y.type) << i;
    EXPECT_EQ(x.updated, y.updated);
    EXPECT_EQ(x.saved_as, y.saved_as);
    EXPECT_EQ(x.part.own, y.part.own);
    EXPECT_EQ(x.part.flat, y.part.flat);
    EXPECT_EQ(x.part.replica, y.part.replica);
    EXPECT_EQ(x.part.varies, y.part.varies);
    EXPECT_TRUE(x.part.part == y.part.part);
  }
  EXPECT_EQ(b->state.step, a.state.step);
  EXPECT_EQ(b->state.epoch, a.state.epoch);
  EXPECT_EQ(b->state.step_in_epoch, a.state.step_in_epoch);
  EXPECT_EQ(b->state.loss, a.state.loss);
  EXPECT_EQ(b->counters, a.counters);
  EXPECT_EQ(b->files, a.files);
  EXPECT_EQ(b->interventions, a.interventions);
  EXPECT_TRUE(b->stopped);
  EXPECT_FALSE(ParseTurn(TurnText(TurnRecord()))->stopped);
}

TEST(TurnRecord, EveryDoubleReadsBack) {
  std::mt19937_64 random(3);
  TurnRecord record;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    record.counters["x"] = value;
    record.state.loss = value;
    const auto back = ParseTurn(TurnText(record));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->counters.at("x"), value);
    EXPECT_EQ(back->state.loss, value);
  }
}

TEST(TurnRecord, OtherTextIsAnError) {
  for (const char* bad : {"x", "step", "step -1", "step 1.5", "step 99999999999999999999", "counter 1", "counter x y",
                          "file -1 x", "file 1", "loss one", "identity \\x", "unknown 1"}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseTurn(bad).status())) << bad;
  }
  // Damaged texts are an error, or another record; nothing else happens.
  const std::string good = TurnText(Sample());
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (unsigned n = random() % 4 + 1; n > 0; --n) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0)
        text.erase(at, random() % 8);
      else
        text[at] = static_cast<char>(random());
      if (text.empty()) break;
    }
    const auto record = ParseTurn(text);
    if (!record.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(record.status()));
    }
  }
}

TEST(NextPace, CommitsAreTwoMillisecondsApart) {
  EXPECT_EQ(NextPace(1, 0.003, 1), 1);
  EXPECT_EQ(NextPace(1, 0.0019, 1), 2);
  EXPECT_EQ(NextPace(4, 0.0042, 4), 2);
  int64_t pace = 1;
  for (int i = 0; i < 20; ++i) pace = NextPace(pace, 1e-6 * static_cast<double>(pace), pace);
  EXPECT_NEAR(static_cast<double>(pace), 2000, 1);
}

// The end of an epoch takes microseconds, and may be the turn after a commit.
TEST(NextPace, AShortTurnAmongLongStepsLeavesThemCommitted) {
  EXPECT_EQ(NextPace(1, 20e-6, 0), 1);
  EXPECT_EQ(NextPace(1, 20e-6, 1), 2);
  EXPECT_EQ(NextPace(2, 0.01, 2), 1);
}

}  // namespace
}  // namespace mslua
