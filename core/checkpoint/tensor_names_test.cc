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
}

TEST(OlderNames, NoneOfSeveral) {
  EXPECT_THAT(OlderNames({"a.0.weight", "b.0.weight"}, {"0.weight"}), IsEmpty());
  EXPECT_THAT(OlderNames({"0.weight"}, {"a.0.weight", "b.0.weight"}), IsEmpty());
  EXPECT_THAT(OlderNames({"a.b.w"}, {"b.w", "w"}), IsEmpty());
  EXPECT_THAT(OlderNames({"bias"}, {"xbias"}), IsEmpty());  // no end of the path
}

}  // namespace
}  // namespace mslua::checkpoint
