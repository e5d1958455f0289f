// A step whose store lies in an image: it computes the same as in memory of its own, and never touches what is
// committed.
#include <cstring>
#include <random>

#include "core/graph/builder.h"
#include "core/image/image.h"
#include "core/runtime/executable.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

constexpr int64_t kSize = 1000;
const TensorType kVector = {DType::kF32, {kSize}};

// A moment, a parameter that follows it, a state that is read after it was replaced, one that stays as it is, and one
// whose new value is another's old one.
Graph StepGraph() {
  GraphBuilder g;
  const Value p = g.Input("p", kParameter, kVector), m = g.Input("m", kState, kVector);
  const Value s = g.Input("s", kState, kVector), same = g.Input("same", kState, kVector);
  g.Input("old", kState, kVector);
  const Value frozen = g.Input("frozen", kParameter, kVector);
  const Value d = g.Input("d", kData, kVector);
  const Value moment = Add(g, Mul(g, m, 0.9), Mul(g, d, frozen));
  g.Output("loss", ReduceSum(g, Mul(g, p, s), {0}, false));
  g.Output("m", moment, "m");
  g.Output("p", Sub(g, p, Mul(g, moment, 0.1)), "p");
  g.Output("s", Add(g, Mul(g, s, 0.5), p), "s");
  g.Output("same", same, "same");
  g.Output("old", p, "old");
  g.Output("late", g.Op("tanh", {s}));
  return *g.Finish();
}

const std::vector<std::string>& Names() {
  static const auto* const names = new std::vector<std::string>{"p", "m", "s", "same", "old", "frozen"};
  return *names;
}
const absl::flat_hash_set<std::string>& Updated() {
  static const auto* const names = new absl::flat_hash_set<std::string>{"p", "m", "s", "same", "old"};
  return *names;
}

struct Training {
  Store store;
  std::unique_ptr<Executable> step;
  std::vector<float> data = std::vector<float>(kSize);

  Training() {
    std::mt19937 random(1);
    for (const std::string& name : Names()) {
      float* const at = store.Add(name, name == "p" || name == "frozen" ? kParameter : kState, kVector)->as<float>();
      for (int64_t i = 0; i < kSize; ++i) at[i] = static_cast<float>(random() % 1000) / 1000;
    }
    step = *Executable::Compile(StepGraph(), &store);
    EXPECT_TRUE(step->BindInput("d", data.data()).ok());
  }
  void Step(int n) {
    for (int64_t i = 0; i < kSize; ++i) data[static_cast<size_t>(i)] = static_cast<float>((i * 7 + n * 13) % 100) / 100;
    ASSERT_TRUE(step->Run().ok());
  }
  std::string Values() const {
    std::string all;
    for (const std::string& name : Names())
      all.append(store.Read(*store.Find(name))->as<const char>(), sizeof(float) * kSize);
    return all;
  }
};

// What the committed side of the image holds, in the order of Names().
std::string Committed(const Training& t) {
  const auto entries = t.store.ImageEntries(Updated());
  const auto at = t.store.image()->Addresses(entries, t.store.image()->side());
  std::string all;
  for (const std::string& name : Names()) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].name == name) all.append(at[i], sizeof(float) * kSize);
    }
  }
  return all;
}

void Commit(Training& t, int64_t turn) {
  ASSERT_TRUE(t.store.PrepareTurn(turn, "").ok());
  t.store.CommitTurn();
}

// Steps write the other side, or what they have updated is copied there.
class Sides : public testing::TestWithParam<ImageWriter> {
 protected:
  static void Settle(Training& t) {
    t.store.Settle(*Image::Make(t.store.ImageEntries(Updated())), Updated(), GetParam(), false);
  }
};

INSTANTIATE_TEST_SUITE_P(, Sides, testing::Values(ImageWriter::kSteps, ImageWriter::kCopies),
                         [](const auto& i) { return i.param == ImageWriter::kSteps ? "Steps" : "Copies"; });

TEST_P(Sides, AStepComputesTheSameAndKeepsWhatIsCommitted) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 20; ++trial) {
    Training plain, kept;
    Settle(kept);
    Commit(kept, 0);
    std::string committed = plain.Values();
    for (int n = 0; n < 30; ++n) {
      plain.Step(n);
      kept.Step(n);
      ASSERT_TRUE(kept.Values() == plain.Values()) << n;
      for (const int output : {0, 6}) {
        const TensorView a = plain.step->Output(output), b = kept.step->Output(output);
        ASSERT_EQ(std::memcmp(a.data, b.data, static_cast<size_t>(a.type.bytes())), 0) << n;
      }
      ASSERT_TRUE(Committed(kept) == committed) << n;
      if (random() % 3 == 0) {
        Commit(kept, n + 1);
        committed = plain.Values();
        ASSERT_TRUE(Committed(kept) == committed);
      }
    }
  }
}

TEST_P(Sides, WhatWritesBesideTheStepKeepsWhatIsCommitted) {
  Training plain, kept;
  Settle(kept);
  Commit(kept, 0);
  const std::string committed = plain.Values();
  for (Training* t : {&plain, &kept}) {
    const Store::Entry& entry = *t->store.Find("m");
    const auto value = t->store.Write(entry);
    ASSERT_TRUE(value.ok());
    value->as<float>()[3] = 42;
  }
  EXPECT_TRUE(Committed(kept) == committed);
  EXPECT_TRUE(kept.Values() == plain.Values());
  plain.Step(0);
  kept.Step(0);
  EXPECT_TRUE(kept.Values() == plain.Values());
  EXPECT_TRUE(Committed(kept) == committed);
  // What has one side cannot be kept: nothing is committed until the next turn.
  ASSERT_TRUE(kept.store.Write(*kept.store.Find("frozen")).ok());
  EXPECT_EQ(kept.store.image()->committed(), Image::kNoTurn);
  Commit(kept, 1);
  EXPECT_TRUE(Committed(kept) == plain.Values());
}

TEST_P(Sides, AnotherGraphReadsTheNewestAndAPartOfAnUpdateKeepsWhatIsCommitted) {
  Training t;
  GraphBuilder g, h;
  g.Output("y", ReduceSum(g, g.Input("p", kParameter, kVector), {0}, false));
  h.Output("m", Mul(h, h.Input("m", kState, kVector), 2.0), "m");
  const auto reader = *Executable::Compile(*g.Finish(), &t.store);
  const auto writer = *Executable::Compile(*h.Finish(), &t.store);
  Settle(t);
  Commit(t, 0);
  const auto sum = [&] {
    double total = 0;
    for (int64_t i = 0; i < kSize; ++i) total += t.store.Read(*t.store.Find("p"))->as<float>()[i];
    return total;
  };
  for (int n = 0; n < 4; ++n) {
    t.Step(n);
    ASSERT_TRUE(reader->Run().ok());
    EXPECT_NEAR(reader->Output(0).as<float>()[0], sum(), 1e-3 * std::abs(sum()) + 1e-3);
    if (n % 2 == 0) Commit(t, n + 1);
  }
  Commit(t, 5);
  const std::string committed = t.Values();
  const float before = t.store.Read(*t.store.Find("m"))->as<float>()[0];
  ASSERT_TRUE(writer->Run().ok());
  EXPECT_EQ(t.store.Read(*t.store.Find("m"))->as<float>()[0], 2 * before);
  EXPECT_TRUE(Committed(t) == committed);
}

TEST_P(Sides, AnImageHasPlacesForTheTypesThatItWasMadeFor) {
  Training t;
  Settle(t);
  Commit(t, 0);
  const std::string committed = t.Values();
  EXPECT_TRUE(absl::IsFailedPrecondition(t.store.Retype("m", {DType::kF32, {1}}).status()));
  EXPECT_TRUE(t.Values() == committed);
}

TEST_P(Sides, AnotherProcessGoesOnFromTheCommittedTurn) {
  Training plain, first;
  Settle(first);
  Commit(first, 0);
  for (int n = 0; n < 5; ++n) {
    plain.Step(n);
    first.Step(n);
    if (n == 2) Commit(first, 3);
  }
  // As after a kill: two steps were made that no turn holds.
  Training again;
  std::shared_ptr<Image> image = *Image::Open(first.store.image()->descriptor());
  ASSERT_TRUE(image->Holds(again.store.ImageEntries(Updated())));
  ASSERT_TRUE(image->GoTo(3).ok());
  again.store.Settle(image, Updated(), GetParam(), true);
  for (int n = 3; n < 5; ++n) again.Step(n);
  EXPECT_TRUE(again.Values() == plain.Values());
}

// What is larger than caches is written past them where it does not lie over what is read.
TEST_P(Sides, AStepOfLargeTensorsComputesTheSame) {
  constexpr int64_t kLarge = 5'000'003;
  const TensorType large = {DType::kF32, {kLarge}};
  const absl::flat_hash_set<std::string> updated = {"p", "m"};
  Store plain, kept;
  std::vector<std::unique_ptr<Executable>> steps;
  for (Store* store : {&plain, &kept}) {
    GraphBuilder g;
    const Value p = g.Input("p", kParameter, large), m = g.Input("m", kState, large);
    const Value moment = Add(g, Mul(g, m, 0.9), p);
    g.Output("m", moment, "m");
    g.Output("p", Sub(g, p, Mul(g, moment, 0.1)), "p");
    for (const char* name : {"p", "m"}) {
      float* const at = store->Add(name, name[0] == 'p' ? kParameter : kState, large)->as<float>();
      for (int64_t i = 0; i < kLarge; ++i) at[i] = static_cast<float>(i % 1013) * 0.37f;
    }
    steps.push_back(*Executable::Compile(*g.Finish(), store));
  }
  kept.Settle(*Image::Make(kept.ImageEntries(updated)), updated, GetParam(), false);
  for (int64_t turn = 0; turn < 4; ++turn) {
    ASSERT_TRUE(kept.PrepareTurn(turn, "").ok());
    kept.CommitTurn();
    for (const auto& step : steps) ASSERT_TRUE(step->Run().ok());
    for (const char* name : {"p", "m"}) {
      const auto a = plain.Read(*plain.Find(name)), b = kept.Read(*kept.Find(name));
      EXPECT_EQ(std::memcmp(a->data, b->data, static_cast<size_t>(large.bytes())), 0) << name << " " << turn;
    }
  }
}

}  // namespace
}  // namespace mslua
