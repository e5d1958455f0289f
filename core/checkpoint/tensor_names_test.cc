#include "core/checkpoint/tensor_names.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::checkpoint {
namespace {

using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

TEST(StateOf, NamesTheParameter) {
  const absl::flat_hash_set<absl::string_view> names = {"fc.weight", "moments.fc.weight", "moments.other", "moment1.x"};
  EXPECT_EQ(StateOf("moments.fc.weight", names), "fc.weight");
  EXPECT_EQ(StateOf("moments.other", names), "");  // a parameter of a cell called moments
  EXPECT_EQ(StateOf("fc.weight", names), "");
  EXPECT_EQ(StateOf("ema.fc.weight", names), "fc.weight");
}

TEST(OlderNames, NothingWhereAllAreThere) { EXPECT_THAT(OlderNames({"a.w", "b.w"}, {"a.w", "b.w", "w"}), IsEmpty()); }

TEST(OlderNames, ACellThatWasAskedFirst) {
  EXPECT_THAT(OlderNames({"body.0.weight", "body.0.bias", "head.weight", "moments.body.0.weight"},
                         {"0.weight", "0.bias", "head.weight", "moments.0.weight", "moments.head.weight"}),
              UnorderedElementsAre(Pair("body.0.weight", "0.weight"), Pair("body.0.bias", "0.bias"),
                                   Pair("moments.body.0.weight", "moments.0.weight")));
}

TEST(OlderNames, AWrapperAsTheRoot) {
  EXPECT_THAT(OlderNames({"fc.weight", "moment1.fc.weight"}, {"backbone.fc.weight", "moment1.backbone.fc.weight"}),
              UnorderedElementsAre(Pair("fc.weight", "backbone.fc.weight"),
                                   Pair("moment1.fc.weight", "moment1.backbone.fc.weight")));
  EXPECT_THAT(
      OlderNames({"a.weight", "weight"}, {"network.backbone.a.weight", "network.backbone.weight"}),
      UnorderedElementsAre(Pair("a.weight", "network.backbone.a.weight"), Pair("weight", "network.backbone.weight")));
}

TEST(OlderNames, NoneOfSeveral) {
  EXPECT_THAT(OlderNames({"a.0.weight", "b.0.weight"}, {"0.weight"}), IsEmpty());
  EXPECT_THAT(OlderNames({"0.weight"}, {"a.0.weight", "b.0.weight"}), IsEmpty());
  EXPECT_THAT(OlderNames({"a.b.w"}, {"b.w", "w"}), IsEmpty());
  EXPECT_THAT(OlderNames({"bias"}, {"xbias"}), IsEmpty());  // no end of the path
}

TEST(OlderNames, NoStateForAParameter) {
  EXPECT_THAT(OlderNames({"encoder.weight", "head.weight"}, {"encoder.weight", "moment1.head.weight"}), IsEmpty());
  EXPECT_THAT(OlderNames({"weight"}, {"ema.weight"}), IsEmpty());
  EXPECT_THAT(OlderNames({"weight"}, {"adam.m.weight"}), IsEmpty());
}

TEST(OlderNames, NoCellOfAnotherNetwork) {
  EXPECT_THAT(OlderNames({"encoder.weight", "head.weight"}, {"a.encoder.weight", "b.head.weight"}), IsEmpty());
  EXPECT_THAT(OlderNames({"encoder.weight", "head.weight"}, {"module.encoder.weight", "module.head.weight"}),
              IsEmpty());
  EXPECT_THAT(OlderNames({"encoder.weight", "head.weight"}, {"encoder.weight", "backbone.head.weight"}), IsEmpty());
  EXPECT_THAT(OlderNames({"encoder.weight", "head.weight"}, {"backbone.head.weight"}), IsEmpty());
}

TEST(OlderNames, NoPartOfACell) {
  EXPECT_THAT(OlderNames({"body.weight", "body.bias"}, {"body.weight", "bias"}), IsEmpty());
  EXPECT_THAT(OlderNames({"body.0.weight", "body.1.weight"}, {"0.weight"}), IsEmpty());
  EXPECT_THAT(OlderNames({"body.0.weight", "body.1.weight"}, {"0.weight", "1.weight"}).size(), 2);
  // The last layer was asked before the whole body.
  EXPECT_THAT(OlderNames({"body.0.weight", "body.last.bias"}, {"0.weight", "bias"}).size(), 2);
}

}  // namespace
}  // namespace mslua::checkpoint
