#include "rendezvous/tls/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace mslua {
namespace {

using ::testing::HasSubstr;

// As MindSpore's tutorial has it.
constexpr char kTutorial[] = R"({
  "server_cert_path": "server.p12",
  "crl_path": "",
  "client_cert_path": "client.p12",
  "ca_cert_path": "/etc/ca.crt",
  "cipher_list": "ECDHE-R SA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256",
  "cert_expire_warning_time_in_day": 60
})";

TEST(TlsConfig, TheTutorialsFile) {
  const auto config = ParseTlsConfig(kTutorial, "folder/config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server_cert_path, "folder/server.p12");
  EXPECT_EQ(config->client_cert_path, "folder/client.p12");
  EXPECT_EQ(config->ca_cert_path, "/etc/ca.crt");
  EXPECT_EQ(config->crl_path, "");
  EXPECT_EQ(config->cipher_list, "ECDHE-R SA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256");
  EXPECT_EQ(config->cert_expire_warning_time_in_day, 60);
  EXPECT_FALSE(config->tls12);
}

TEST(TlsConfig, MistakesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "expected a JSON object"},
      {"{", "c.json: "},
      {R"({"server_cert_path": "a"})", "ca_cert_path is missing"},
      {R"({"ca_cert_path": "a"})", "server_cert_path and client_cert_path are missing"},
      {R"({"ca_cert_path": 1})", "ca_cert_path: expected a string, got 1"},
      {R"({"ca_path": "a"})", "no field \"ca_path\"; known: ca_cert_path, "},
      {R"({"cert_expire_warning_time_in_day": -1})", "expected a whole number of days, 0 to 36500, got -1"},
      {R"({"min_version": "1.1"})", "expected \"1.2\" or \"1.3\", got \"1.1\""},
      {R"({"verify": "none"})", "expected \"job\", \"host\" or \"chain\""},
      {R"({"ca_cert_path": "a", "client_cert_path": "b", "server_key_path": "c"})", "without server_cert_path"},
  };
  for (const auto& [text, said] : cases) {
    const auto config = ParseTlsConfig(text, "c.json");
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(said));
  }
}

TEST(TlsConfig, DamagedFilesAreAnError) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text = kTutorial;
    for (int k = 1 + static_cast<int>(random() % 4); k > 0; --k) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0) {
        text.erase(at, random() % 20);
      } else if (random() % 2 == 0) {
        text.insert(at, 1, "{}[]\",:\\019"[random() % 11]);
      } else {
        text[at] = static_cast<char>(random());
      }
      if (text.empty()) text = "{";
    }
    const auto config = ParseTlsConfig(text, "c.json");
    EXPECT_TRUE(!config.ok() || !config->ca_cert_path.empty());
  }
}

}  // namespace
}  // namespace mslua
