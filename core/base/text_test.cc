#include "core/base/text.h"

#include <string>

#include "gtest/gtest.h"

namespace mslua {
namespace {

TEST(Text, EditDistanceCountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("epochs", "epochs"), 0);
  EXPECT_EQ(EditDistance("epohcs", "epochs"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("ca", "abc"), 3);  // optimal string alignment edits no substring twice
}

TEST(Text, DidYouMeanNamesTheNearest) {
  EXPECT_EQ(DidYouMean("epohcs", {"batch_size", "epoch", "epochs"}), " (did you mean 'epochs'?)");
  EXPECT_EQ(DidYouMean("relu", {"GELU", "ReLU"}), " (did you mean 'ReLU'?)");
  EXPECT_EQ(Closest("tran", {"train", "trap"}), "train");
}

TEST(Text, OfEquallyNearNamesTheOneThatIsWrittenAlikeIsMeant) {
  EXPECT_EQ(Closest("sigmod", {"Sigmoid", "sigmoid"}), "sigmoid");
  EXPECT_EQ(Closest("Relu", {"relu", "ReLU"}), "ReLU");
  EXPECT_EQ(Closest("stats", {"seats", "status"}), "status");
  EXPECT_EQ(Closest("stats", {"status", "stat"}), "stat");
}

TEST(Text, TheBeginningOfANameIsNear) {
  EXPECT_EQ(Closest("acc", {"auc", "accuracy"}), "accuracy");
  EXPECT_EQ(Closest("epoch", {"epochs_done", "epochs"}), "epochs");
  EXPECT_EQ(Closest("op", {"optimizer"}), "");
}

TEST(Text, DidYouMeanIsSilentWhenNothingIsNear) {
  EXPECT_EQ(DidYouMean("momentum", {"epochs", "lr"}), "");
  EXPECT_EQ(DidYouMean("", {"epochs"}), "");
  EXPECT_EQ(DidYouMean("x", {"y"}), "");
  EXPECT_EQ(DidYouMean("x", {""}), "");
  EXPECT_EQ(DidYouMean("x", {}), "");
  EXPECT_EQ(DidYouMean(std::string(100000, 'a'), {"a"}), "");
}

TEST(Text, CountedHasThePluralButForOne) {
  EXPECT_EQ(Counted(0, "tensor"), "0 tensors");
  EXPECT_EQ(Counted(1, "tensor"), "1 tensor");
  EXPECT_EQ(Counted(2, "tensor"), "2 tensors");
}

TEST(Text, SomeOfCountsWhatItLeavesOut) {
  EXPECT_EQ(SomeOf({}, 2), "");
  EXPECT_EQ(SomeOf({"a", "b"}, 2), "a, b");
  EXPECT_EQ(SomeOf({"a", "b", "c", "d"}, 2), "a, b and 2 more");
}

}  // namespace
}  // namespace mslua
