#include "launch/this_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mslua {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(ThisHost, CoresAreSharedOut) {
  EXPECT_THAT(ThreadVariables({}, 2, 8), UnorderedElementsAre(Pair("OMP_NUM_THREADS", "4")));
  EXPECT_THAT(ThreadVariables({}, 3, 8), UnorderedElementsAre(Pair("OMP_NUM_THREADS", "2")));
  EXPECT_THAT(ThreadVariables({}, 4, 2),
              UnorderedElementsAre(Pair("OMP_NUM_THREADS", "1"), Pair("OMP_WAIT_POLICY", "passive")));
}

TEST(ThisHost, WhatIsSetStays) {
  EXPECT_THAT(ThreadVariables({{"OMP_NUM_THREADS", "1"}}, 2, 8), IsEmpty());
  EXPECT_THAT(ThreadVariables({{"OMP_NUM_THREADS", "8"}}, 2, 8),
              UnorderedElementsAre(Pair("OMP_WAIT_POLICY", "passive")));
  EXPECT_THAT(ThreadVariables({{"OMP_NUM_THREADS", "8"}, {"OMP_WAIT_POLICY", "active"}}, 2, 8), IsEmpty());
}

TEST(ThisHost, TheKeyIsOfTheHost) {
  EXPECT_EQ(HostKey(), HostKey());
  EXPECT_EQ(HostKey().rfind(HostName() + ":", 0), 0u);
  EXPECT_FALSE(ProgramFile().empty());
  EXPECT_EQ(OwnEnvironment().count("TEST_TMPDIR"), 1u);
}

}  // namespace
}  // namespace mslua
