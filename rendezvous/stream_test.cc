// A scheduler and workers over loopback TCP with TLS, and others who come to its port.
#include "rendezvous/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/exit_code.h"
#include "rendezvous/membership.h"
#include "rendezvous/scheduler.h"
#include "rendezvous/tls/testing.h"

namespace mslua {
namespace {

TEST(Plain, AStreamWhoseReaderDoesNotReadIsClosedWhereAMessageBrokeOff) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Stream stream{Fd(ends[0])};
  const Fd reader(ends[1]);
  EXPECT_FALSE(SendAll(stream, std::string(16 << 20, 'x'), MonotonicNow() + absl::Milliseconds(50)).ok());
  EXPECT_FALSE(SendAll(stream, "next", MonotonicNow() + absl::Seconds(1)).ok());
  std::string got(1 << 20, 0);
  ssize_t n = 0;
  while ((n = read(reader.get(), &got[0], got.size())) > 0)
    EXPECT_EQ(got.find_first_not_of('x'), static_cast<size_t>(n) == got.size() ? std::string::npos : n);
  EXPECT_EQ(n, 0);
}

using ::testing::HasSubstr;

MonotonicTime Soon() { return MonotonicNow() + absl::Seconds(30); }

class Encrypted : public ::testing::Test {
 protected:
  static std::shared_ptr<Tls> Load(const TestCertificates& files) {
    auto tls = Tls::Load({files.config(), "", "", {}});
    EXPECT_TRUE(tls.ok()) << tls.status();
    return *tls;
  }
  void Start(int workers, std::shared_ptr<Tls> tls) {
    SchedulerOptions options;
    options.endpoint = {"127.0.0.1", 0};
    options.tls = std::move(tls);
    if (options.tls == nullptr) options.secret = "the secret of a test";
    options.workers = workers;
    options.log = [this](const std::string& line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      absl::StrAppend(&log_, line, "\n");
    };
    auto scheduler = Scheduler::Start(options);
    ASSERT_TRUE(scheduler.ok()) << scheduler.status();
    scheduler_ = std::move(*scheduler);
  }
  StatusOr<std::unique_ptr<Membership>> Join(const std::string& id, std::shared_ptr<Tls> tls) {
    JoinOptions join;
    join.scheduler = scheduler_->endpoint();
    join.tls = std::move(tls);
    if (join.tls == nullptr) join.secret = "the secret of a test";
    join.node_id = id;
    join.self = {"h", {"127.0.0.1", 1000}};
    join.timeout = absl::Seconds(20);
    return Membership::Join(join);
  }
  // Two members; the first has `first`.
  void JoinTwo(const std::shared_ptr<Tls>& first) {
    std::thread other([&] { members_[0] = Join("0", first); });
    members_[1] = Join("1", tls_);
    other.join();
    for (const auto& m : members_) ASSERT_TRUE(m.ok()) << m.status();
  }
  bool Logged(const std::string& text) {
    for (const MonotonicTime until = Soon(); MonotonicNow() < until; absl::SleepFor(absl::Milliseconds(10))) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (log_.find(text) != std::string::npos) return true;
    }
    return false;
  }
  // What the other end of a connection that says `text` answers before it closes.
  std::string Answer(const std::string& text) {
    Stream stream = std::move(*ConnectStream(scheduler_->endpoint(), nullptr, Soon()));
    EXPECT_TRUE(SendAll(stream, text, Soon()).ok());
    std::string answer;
    char byte;
    while (ReceiveAll(stream, &byte, 1, Soon()).ok()) answer += byte;
    return answer;
  }

  const TestCertificates files_;
  const std::shared_ptr<Tls> tls_ = Load(files_);
  std::mutex mutex_;
  std::string log_;
  std::unique_ptr<Scheduler> scheduler_;
  StatusOr<std::unique_ptr<Membership>> members_[2];
};

TEST_F(Encrypted, MembersSpeakThroughTheScheduler) {
  Start(2, tls_);
  JoinTwo(tls_);
  std::mutex mutex;
  std::vector<size_t> heard;
  (*members_[1])->Listen("a", [&](int, const Membership::Texts& texts) {
    const std::lock_guard<std::mutex> lock(mutex);
    heard.push_back(texts.at("text").size());
  });
  // Of more than a record.
  for (const size_t size : {size_t{1}, size_t{60000}, size_t{20000}}) {
    (*members_[0])->Tell("a", 1, {{"text", std::string(size, 'x')}});
  }
  std::thread other([&] { EXPECT_TRUE((*members_[1])->Compare("graph", "a", absl::Seconds(20)).ok()); });
  EXPECT_TRUE((*members_[0])->Compare("graph", "a", absl::Seconds(20)).ok());
  other.join();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    EXPECT_THAT(heard, ::testing::ElementsAre(1, 60000, 20000));
  }
  absl::SleepFor(absl::Seconds(4));  // longer than a member may be silent
  for (auto& m : members_) {
    EXPECT_TRUE((*m)->Health().ok()) << (*m)->Health();
    (*m)->Leave(0);
  }
  EXPECT_TRUE(scheduler_->Wait().ok());
}

TEST_F(Encrypted, OneThatDiesIsNamed) {
  Start(2, tls_);
  JoinTwo(tls_);
  *members_[0] = nullptr;
  const Status end = scheduler_->Wait();
  EXPECT_THAT(std::string(end.message()), HasSubstr("rank 0/2"));
  EXPECT_THAT(std::string(end.message()), HasSubstr("has ended without leaving the job"));
}

TEST_F(Encrypted, WithoutTlsAWorkerIsRefusedAndTheReverse) {
  Start(1, tls_);
  const auto plain = Join("0", nullptr);
  EXPECT_THAT(std::string(plain.status().message()), HasSubstr("it speaks no TLS, and this job does"));
  EXPECT_EQ(CauseOf(plain.status()).exit_code, kExitSecurity);
  EXPECT_TRUE(Join("0", tls_).ok());
  scheduler_.reset();
  Start(1, nullptr);
  const auto encrypted = Join("0", tls_);
  EXPECT_THAT(std::string(encrypted.status().message()), HasSubstr("the other end speaks no TLS"));
  EXPECT_EQ(CauseOf(encrypted.status()).exit_code, kExitSecurity);
  EXPECT_TRUE(Logged("it speaks TLS, and this job does not"));
  EXPECT_TRUE(Join("0", nullptr).ok());
}

TEST_F(Encrypted, AnotherCaIsRefusedBeforeAnythingIsSaid) {
  const TestCertificates strangers;
  Start(1, tls_);
  const auto stranger = Join("0", Load(strangers));
  EXPECT_THAT(std::string(stranger.status().message()), HasSubstr("ca_cert_path does not hold"));
  EXPECT_EQ(CauseOf(stranger.status()).exit_code, kExitSecurity);
  EXPECT_TRUE(Logged("refused a connection of 127.0.0.1"));
  EXPECT_TRUE(Join("0", tls_).ok());
}

TEST_F(Encrypted, HttpAndOtherTextAreRefused) {
  Start(1, tls_);
  EXPECT_THAT(Answer("GET / HTTP/1.1\r\n\r\n"), HasSubstr("it speaks HTTP; this is a port of mslua"));
  EXPECT_THAT(Answer("\n\n\n\n"), HasSubstr("it speaks no TLS"));
  EXPECT_TRUE(Logged("it speaks HTTP"));
  EXPECT_TRUE(Join("0", tls_).ok());
}

// ClientHellos that stop anywhere, and connections that say nothing.
TEST_F(Encrypted, ManyThatDoNotFinishDoNotKeepAWorkerOut) {
  Start(1, tls_);
  std::vector<Fd> idle;
  for (int i = 0; i < 400; ++i) {
    idle.push_back(*ConnectTcp(scheduler_->endpoint(), Soon()));
    const std::string begun("\x16\x03\x01\x00\x7a\x01\x00\x00\x76\x03\x03", static_cast<size_t>(i % 12));
    SendAll(idle.back(), begun, Soon()).IgnoreError();
  }
  const auto joined = Join("0", tls_);
  EXPECT_TRUE(joined.ok()) << joined.status();
}

TEST_F(Encrypted, AMemberWhoseCertificateIsRevokedIsCutOff) {
  Start(2, tls_);
  const TestCertificates lost(files_);
  // The others have new ones.
  CertificateRequest again;
  again.folder = files_ / "";
  ASSERT_TRUE(MakeCertificates(again).ok());
  absl::SleepFor(absl::Milliseconds(1100));
  JoinTwo(Load(lost));
  ASSERT_TRUE(RevokeCertificate(files_ / "", lost / "client.p12").ok());
  const Status end = scheduler_->Wait();
  EXPECT_THAT(std::string(end.message()), HasSubstr("has been revoked (crl_path)"));
  EXPECT_EQ(CauseOf(end).exit_code, kExitSecurity);
}

// As where all hosts have the same files: the list revokes the scheduler's own certificate, too.
TEST_F(Encrypted, MembersWithTheSchedulersOwnCertificateAreCutOffAndHearWhy) {
  TestCertificates elsewhere(files_);
  elsewhere.Configure("\"crl.pem\"", "\"\"");
  const auto theirs = Load(elsewhere);
  Start(2, tls_);
  std::thread other([&] { members_[0] = Join("0", theirs); });
  members_[1] = Join("1", theirs);
  other.join();
  for (const auto& m : members_) ASSERT_TRUE(m.ok()) << m.status();
  ASSERT_TRUE(RevokeCertificate(files_ / "", "client.p12").ok());
  const Status end = scheduler_->Wait();
  EXPECT_THAT(std::string(end.message()), HasSubstr("has been revoked (crl_path)"));
  EXPECT_EQ(CauseOf(end).exit_code, kExitSecurity);
  for (auto& m : members_) {
    const MonotonicTime until = Soon();
    while ((*m)->Health().ok() && MonotonicNow() < until) absl::SleepFor(absl::Milliseconds(10));
    EXPECT_THAT(std::string((*m)->Health().message()), HasSubstr("has been revoked (crl_path)"));
    EXPECT_EQ(CauseOf((*m)->Health()).exit_code, kExitSecurity);
  }
}

TEST_F(Encrypted, AListThatRevokesItsOwnCertificateKeepsOthersOut) {
  TestCertificates elsewhere(files_);
  elsewhere.Configure("\"crl.pem\"", "\"\"");
  const auto theirs = Load(elsewhere);
  Start(2, tls_);
  std::thread waits([&] { members_[0] = Join("0", theirs); });
  EXPECT_TRUE(Logged("The new node: 0"));
  ASSERT_TRUE(RevokeCertificate(files_ / "", "client.p12").ok());
  waits.join();
  EXPECT_EQ(CauseOf(members_[0].status()).exit_code, kExitSecurity);
  EXPECT_THAT(std::string(members_[0].status().message()), HasSubstr("has been revoked"));
  const auto late = Join("1", theirs);
  EXPECT_EQ(CauseOf(late.status()).exit_code, kExitSecurity);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("has been revoked"));
  EXPECT_TRUE(scheduler_->Outcome().ok()) << "the job waits for others";
}

TEST_F(Encrypted, ASchedulerWhoseCertificateIsRevokedLosesItsMembers) {
  TestCertificates without(files_);
  without.Configure("\"crl.pem\"", "\"\"");
  Start(2, Load(without));
  JoinTwo(tls_);
  ASSERT_TRUE(RevokeCertificate(files_ / "", "server.p12").ok());
  const Status end = scheduler_->Wait();
  EXPECT_THAT(std::string(end.message()), HasSubstr("has been revoked (crl_path)"));
  EXPECT_EQ(CauseOf(end).exit_code, kExitSecurity);
}

}  // namespace
}  // namespace mslua
