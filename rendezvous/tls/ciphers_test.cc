#include "rendezvous/tls/ciphers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mslua {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Ciphers, WithoutAListAllThatAreGood) {
  const auto chosen = ChooseCiphers("");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->tls13, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
  EXPECT_THAT(chosen->warnings, IsEmpty());
}

TEST(Ciphers, TheListOrdersTheSuitesOfTls13) {
  const auto chosen = ChooseCiphers("ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES256-GCM-SHA384");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->tls12, "ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES256-GCM-SHA384");
  EXPECT_EQ(chosen->tls13, "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384");
}

// MindSpore's tutorial prints one name with a space in it.
TEST(Ciphers, AnUnknownNameIsToldWithTheNearest) {
  const auto chosen =
      ChooseCiphers("ECDHE-R SA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256");
  ASSERT_TRUE(chosen.ok());
  ASSERT_THAT(chosen->warnings, SizeIs(2));
  EXPECT_THAT(chosen->warnings[0], HasSubstr("knows no cipher \"ECDHE-R SA-AES128-GCM-SHA256\"; did you mean "
                                             "\"ECDHE-RSA-AES128-GCM-SHA256\"?"));
  EXPECT_THAT(chosen->warnings[1], HasSubstr("1 name is left out (DHE-RSA-AES128-GCM-SHA256)"));
  EXPECT_EQ(chosen->tls12, "ECDHE-ECDSA-AES128-GCM-SHA256");
}

TEST(Ciphers, NoneLeftIsAnError) {
  for (const char* list : {"nothing", ":", "DHE-RSA-AES128-GCM-SHA256", "AES128-SHA", "TLS_AES_128_CCM_SHA256"}) {
    EXPECT_THAT(std::string(ChooseCiphers(list).status().message()), HasSubstr("it leaves no cipher")) << list;
  }
}

}  // namespace
}  // namespace mslua
