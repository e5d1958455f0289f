#include "core/runtime/guard.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/graph/builder.h"
#include "core/runtime/executable.h"

// Three reads of tensor memory on the host that a device would not allow. Each would give the right bits here.
namespace mslua {
namespace {

constexpr int64_t kSize = 2048;
const TensorType kVector{DType::kF32, {kSize}};

// A step that adds to a parameter and its state and gives a sum, in a process that guards memory.
class Guard : public testing::Test {
 protected:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    GraphBuilder g;
    const Value p = g.Input("p", kParameter, kVector), m = g.Input("m", kState, kVector);
    const Value d = g.Input("d", kData, kVector);
    const Value next = Add(g, Mul(g, m, 0.5), d);
    g.Output("y", g.Op("reduce_sum", {Mul(g, next, p)}, {{"axis", std::vector<int64_t>{0}}}));
    g.Output("m", next, "m");
    g.Output("p", Sub(g, p, next), "p");
    for (const char* name : {"p", "m"})
      made_.push_back(*store_.Add(name, name[0] == 'p' ? kParameter : kState, kVector));
    made_[0].as<float>()[0] = 3;
    step_ = *Executable::Compile(*g.Finish(), &store_);
    ASSERT_TRUE(step_->BindInput("d", data_.data()).ok());
  }

  Store store_;
  std::vector<TensorView> made_;  // as Add gave them: to be used until the next step
  std::vector<float> data_ = std::vector<float>(kSize, 1);
  std::unique_ptr<Executable> step_;
};

TEST_F(Guard, AReadOfAParameterAfterAStepIsCaught) {
  ASSERT_TRUE(GuardsMemory());
  EXPECT_EQ(made_[0].as<float>()[0], 3) << "no step has run";
  ASSERT_TRUE(step_->Run().ok());
  EXPECT_DEATH(std::printf("%f", made_[0].as<float>()[0]), "");
  EXPECT_EQ(store_.Read(*store_.Find("p"))->as<float>()[0], 2);
  EXPECT_EQ(made_[0].as<float>()[0], 2) << "Read gives it until the next step";
}

TEST_F(Guard, AReadOfStateByAPointerThatWasReadBeforeIsCaught) {
  ASSERT_TRUE(step_->Run().ok());
  const auto* const kept = store_.Read(*store_.Find("m"))->as<float>();
  EXPECT_EQ(kept[kSize - 1], 1);
  ASSERT_TRUE(step_->Run().ok());
  EXPECT_DEATH(std::printf("%f", kept[kSize - 1]), "");
  EXPECT_EQ(store_.Read(*store_.Find("m"))->as<float>()[kSize - 1], 1.5f);
}

TEST_F(Guard, AReadOfAnActivationIsCaught) {
  ASSERT_TRUE(step_->Run().ok());
  const float* const sum = step_->Output(0).as<float>();
  EXPECT_EQ(*sum, 3);
  ASSERT_TRUE(step_->Run().ok());
  EXPECT_DEATH(std::printf("%f", *sum), "");
  EXPECT_EQ(*step_->Output(0).as<float>(), 1.5f * 2 + 1.5f * -1 * (kSize - 1));
}

TEST_F(Guard, AWriteBesideAStepIsCaught) {
  ASSERT_TRUE(step_->Run().ok());
  EXPECT_DEATH(made_[0].as<float>()[0] = 1, "");
  const auto value = store_.Write(*store_.Find("p"));
  ASSERT_TRUE(value.ok());
  value->as<float>()[0] = 4;
  ASSERT_TRUE(step_->Run().ok());
  EXPECT_EQ(store_.Read(*store_.Find("p"))->as<float>()[0], 4 - 1.5f);
}

TEST_F(Guard, AnOutputThatIsAParameterBoundAsDataCanBeRead) {
  GraphBuilder g;
  g.Output("same", g.Input("d", kData, kVector));
  const auto same = *Executable::Compile(*g.Finish(), &store_);
  ASSERT_TRUE(same->BindInput("d", store_.Read(*store_.Find("p"))->data).ok());
  ASSERT_TRUE(same->Run().ok());
  EXPECT_EQ(same->Output(0).as<float>()[0], 3);
}

// In memory that outlives the process, where tensors lie side by side, whole pages are guarded.
TEST_F(Guard, AReadOfATensorInAnImageIsCaught) {
  const absl::flat_hash_set<std::string> updated = {"p", "m"};
  store_.Settle(*Image::Make(store_.ImageEntries(updated)), updated, ImageWriter::kSteps, false);
  ASSERT_TRUE(step_->Run().ok());
  const auto* const kept = store_.Read(*store_.Find("p"))->as<float>();
  EXPECT_EQ(kept[0], 2);
  ASSERT_TRUE(step_->Run().ok());
  EXPECT_DEATH(std::printf("%f", kept[kSize / 2]), "");
}

}  // namespace
}  // namespace mslua
