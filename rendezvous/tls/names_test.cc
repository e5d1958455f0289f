#include "rendezvous/tls/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/tls/testing.h"

namespace mslua {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Verify = TlsConfig::Verify;

CertificateRequest RequestFor(std::vector<std::string> hosts) {
  CertificateRequest request;
  request.hosts = std::move(hosts);
  return request;
}

class Names : public ::testing::Test {
 protected:
  // Why an end of job `mine` that has dialled `dialled` refuses one of job `theirs`.
  std::string Why(const std::string& mine, const std::string& theirs, const std::string& dialled,
                  Verify verify = Verify::kBest) {
    Meeting meeting;
    meeting.mine.job = mine;
    meeting.theirs = NamesOf(server_.certificate.get());
    meeting.theirs.job = theirs;
    meeting.verify = verify;
    meeting.dialled = dialled;
    meeting.certificate = server_.certificate.get();
    return Refusal(meeting, &unnamed_);
  }
  const TestCertificates files_{RequestFor({"node-1.example", "10.0.0.2", "::1"})};
  const Credentials server_ = files_.Load("server.p12");
  bool unnamed_ = false;
};

TEST_F(Names, OfACertificate) {
  const CertificateNames server = NamesOf(server_.certificate.get());
  EXPECT_EQ(server.subject, "CN = server of test");
  EXPECT_EQ(server.job, "test");
  EXPECT_EQ(server.role, "");
  EXPECT_THAT(server.hosts, ElementsAre("node-1.example", "10.0.0.2", "::1"));
  EXPECT_EQ(NamesOf(files_.Load("attach.p12").certificate.get()).role, "steer");
  EXPECT_THAT(NamesOf(files_.Load("client.p12").certificate.get()).hosts, IsEmpty());
}

TEST_F(Names, TheJobComesFirst) {
  EXPECT_EQ(Why("a", "a", "elsewhere"), "");
  EXPECT_THAT(Why("a", "b", "node-1.example"), HasSubstr("is for job \"b\", and this is job \"a\""));
  EXPECT_THAT(Why("a", "b", ""), HasSubstr("is for job \"b\""));
}

TEST_F(Names, ThenTheHost) {
  for (const char* host : {"node-1.example", "NODE-1.example", "10.0.0.2", "::1"}) EXPECT_EQ(Why("a", "", host), "");
  for (const char* host : {"node-2.example", "10.0.0.3", "::2", "server of test"}) {
    EXPECT_THAT(Why("", "b", host), HasSubstr("is for host node-1.example, 10.0.0.2, ::1")) << host;
  }
  // The end that accepts has dialled nothing.
  EXPECT_EQ(Why("a", "", ""), "");
  EXPECT_FALSE(unnamed_);
}

TEST_F(Names, VerifyAsksForMoreOrLess) {
  EXPECT_THAT(Why("a", "", "10.0.0.2", Verify::kJob), HasSubstr("is for no job"));
  EXPECT_THAT(Why("", "a", "10.0.0.2", Verify::kJob), HasSubstr("whose certificate names no job"));
  EXPECT_THAT(Why("", "", "10.0.0.2", Verify::kJob), HasSubstr("is for no job"));
  EXPECT_EQ(Why("a", "a", "elsewhere", Verify::kJob), "");
  EXPECT_THAT(Why("a", "a", "elsewhere", Verify::kHost), HasSubstr("\"elsewhere\" was dialled"));
  EXPECT_EQ(Why("a", "b", "elsewhere", Verify::kChain), "");
}

TEST_F(Names, ACertificateWithoutNames) {
  X509* const c = server_.certificate.get();
  X509_EXTENSION_free(X509_delete_ext(c, X509_get_ext_by_NID(c, NID_subject_alt_name, -1)));
  EXPECT_EQ(Why("", "", "anywhere"), "");
  EXPECT_TRUE(unnamed_);
  EXPECT_THAT(Why("", "", "anywhere", Verify::kHost), HasSubstr("is for no host"));
}

}  // namespace
}  // namespace mslua
