#include "rendezvous/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "rendezvous/local_meeting.h"
#include "rendezvous/tls/testing.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using Type = ControlMessage::Type;

constexpr char kSecret[] = "the secret of a test";

MonotonicTime Soon() { return MonotonicNow() + absl::Seconds(30); }

std::string Join(const std::string& id) { return EncodeControl({Type::kJoin, {{"id", id}}}); }

class Admitting : public ::testing::Test {
 protected:
  Admitting() {
    options_.secret = kSecret;
    options_.joins = true;
    options_.refusal = [](const ConnectionUse&) { return ""; };
    options_.log = [this](const std::string& line) { lines_.push_back(line); };
  }
  ~Admitting() override { std::filesystem::remove_all(root_); }
  void OverTcp() {
    listener_ = *ListenTcp({"127.0.0.1", 0});
    at_ = *LocalEndpoint(listener_);
    admission_ = std::make_unique<Admission>(listener_, options_);
  }
  void OverTls() {
    TlsOptions tls;
    tls.config_file = files_.emplace().config();
    options_.tls = *Tls::Load(tls);
    OverTcp();
  }
  void OverUnix() {
    char path[] = "/tmp/mslua-test-XXXXXX";
    root_ = mkdtemp(path);
    setenv("XDG_RUNTIME_DIR", root_.c_str(), 1);
    folder_ = *MeetingFolder::Make("meet-test");
    listener_ = *folder_->Listen();
    admission_ = std::make_unique<Admission>(listener_, options_);
  }
  Fd Dial() { return listener_ && folder_ == nullptr ? *ConnectTcp(at_, Soon()) : *ConnectMeeting(folder_->socket()); }
  bool Listens() {
    std::vector<pollfd> entries;
    admission_->Poll(&entries);
    return entries[0].fd >= 0;
  }
  // One turn of the poll loop.
  void Turn(absl::Duration limit = absl::Milliseconds(20)) {
    std::vector<pollfd> entries;
    admission_->Poll(&entries);
    poll(entries.data(), entries.size(), static_cast<int>(absl::ToInt64Milliseconds(limit)));
    for (auto& newcomer : admission_->Take(entries.data())) known_.push_back(std::move(newcomer));
  }
  void TurnUntil(const std::function<bool()>& done) {
    const MonotonicTime deadline = Soon();
    bool ready = false;
    while (!(ready = done()) && MonotonicNow() < deadline) Turn();
    ASSERT_TRUE(ready);
  }
  void Say(const Fd& socket, absl::string_view text) { ASSERT_TRUE(SendAll(socket, text, Soon()).ok()); }
  // Whether the other end has closed the connection; reads what was sent before.
  bool Closed(const Fd& socket) {
    char bytes[4096];
    ssize_t n;
    while ((n = recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
  }
  // An honest end over TCP.
  std::thread Honest(Fd* socket, const std::string& id) {
    return std::thread([this, socket, id] {
      *socket = *ConnectTcp(at_, Soon());
      auto seals = Authenticate(*socket, kSecret, {}, Soon());
      ASSERT_TRUE(seals.ok()) << seals.status();
      Say(*socket, EncodeSealed({Type::kJoin, {{"id", id}}}, seals->send));
    });
  }

  std::optional<TestCertificates> files_;
  AdmissionOptions options_;
  std::string root_;
  std::unique_ptr<MeetingFolder> folder_;
  Fd listener_;
  Endpoint at_;
  std::unique_ptr<Admission> admission_;
  std::vector<Admission::Newcomer> known_;
  std::vector<std::string> lines_;
};

TEST_F(Admitting, AMemberOverTcp) {
  OverTcp();
  Fd socket;
  std::thread honest = Honest(&socket, "a");
  TurnUntil([&] { return known_.size() == 1; });
  honest.join();
  EXPECT_EQ(known_[0].join.fields.at("id"), "a");
  EXPECT_EQ(known_[0].source, "127.0.0.1");
  EXPECT_EQ(known_[0].rest, "");
  EXPECT_THAT(lines_, SizeIs(0));
}

TEST_F(Admitting, ALoneByteDoesNotWakeAJobWithTls) {
  OverTls();
  const Fd socket = Dial();
  Turn();  // accepts it
  Say(socket, "A");
  Turn();
  std::vector<pollfd> entries;
  admission_->Poll(&entries);
  EXPECT_EQ(poll(entries.data(), entries.size(), 50), 0);
  Say(socket, "BCD");
  TurnUntil([&] { return Closed(socket); });
}

// Its socket stays readable: to keep it would take all of a core until its time is over.
TEST_F(Admitting, WhoGoesAfterAByteIsNotKept) {
  options_.limit = absl::Hours(1);
  OverTls();
  for (const char* text : {"", "A", "ABC", "\x16"}) {
    Fd socket = Dial();
    TurnUntil([&] { return admission_->pending() == 1; });
    Say(socket, text);
    Turn();
    socket.Close();
    TurnUntil([&] { return admission_->pending() == 0; });
  }
  EXPECT_THAT(lines_, SizeIs(0));
}

TEST_F(Admitting, AMemberOverAUnixSocket) {
  OverUnix();
  const Fd socket = Dial();
  Say(socket, Join("a") + Join("behind"));
  TurnUntil([&] { return known_.size() == 1; });
  EXPECT_EQ(known_[0].join.fields.at("id"), "a");
  EXPECT_EQ(known_[0].rest, Join("behind"));
}

TEST_F(Admitting, OverTcpNobodyJoinsWithoutAProof) {
  OverTcp();
  const std::vector<std::string> attempts = {Join("a"),
                                             "GET / HTTP/1.1\r\n\r\n",
                                             EncodeControl({Type::kAbort, {{"code", "0"}}}),
                                             EncodeControl({Type::kLeave, {}}),
                                             EncodeControl({Type::kProof, {{"proof", ""}}}),
                                             EncodeControl(*Dialler("another secret", {}).Start()) + Join("a"),
                                             EncodeControl(*Dialler("another secret", {}).Start()) +
                                                 EncodeControl({Type::kProof, {{"proof", std::string(32, 'x')}}}) +
                                                 Join("a")};
  for (const std::string& attempt : attempts) {
    const Fd socket = Dial();
    Say(socket, attempt);
    TurnUntil([&] { return Closed(socket); });
  }
  EXPECT_THAT(known_, SizeIs(0));
  EXPECT_EQ(admission_->pending(), 0);
  EXPECT_THAT(lines_[0], HasSubstr("refused a connection of 127.0.0.1:"));
  EXPECT_THAT(lines_[0], HasSubstr(absl::StrCat("(user ", geteuid(), " of this host)")));
  EXPECT_THAT(lines_.back(), HasSubstr("MSLUA_JOB_SECRET_FILE"));
}

// A socket whose peer has reset the connection no longer knows the peer's address.
TEST_F(Admitting, WhoHasGoneIsNamed) {
  const auto listener = ListenTcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  auto dialled = ConnectTcp(*LocalEndpoint(*listener), MonotonicNow() + absl::Seconds(10));
  ASSERT_TRUE(dialled.ok());
  const uint16_t port = LocalEndpoint(*dialled)->port;
  sockaddr_storage peer = {};
  socklen_t size = sizeof peer;
  const Fd accepted(accept4(listener->get(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC));
  const linger at_once = {1, 0};
  ASSERT_EQ(setsockopt(dialled->get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  dialled->Close();
  sockaddr_storage now = {};
  size = sizeof now;
  ASSERT_NE(getpeername(accepted.get(), reinterpret_cast<sockaddr*>(&now), &size), 0);
  EXPECT_EQ(NameOfPeer(accepted, peer), absl::StrCat("127.0.0.1:", port));
  EXPECT_EQ(SourceOf(accepted, peer), "127.0.0.1");
}

// A message that may not come is refused by its header: its body is not waited for.
TEST_F(Admitting, KeepsNothingOfWhatMayNotCome) {
  OverUnix();
  const std::string welcome = EncodeControl({Type::kWelcome, {{"x", std::string(3 << 20, 'x')}}});
  const Fd socket = Dial();
  Say(socket, welcome.substr(0, kControlHeaderBytes));
  TurnUntil([&] { return Closed(socket); });
  const Fd longer = Dial();
  Say(longer, EncodeControl({Type::kJoin, {{"x", std::string(5 << 10, 'x')}}}).substr(0, kControlHeaderBytes));
  TurnUntil([&] { return Closed(longer); });
}

TEST_F(Admitting, AnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  OverUnix();
  // As after a mistake that has opened the folders.
  ASSERT_EQ(chmod(root_.c_str(), 0777), 0);
  ASSERT_EQ(chmod((root_ + "/mslua").c_str(), 0777), 0);
  ASSERT_EQ(chmod(folder_->path().c_str(), 0777), 0);
  ASSERT_EQ(chmod(folder_->socket().c_str(), 0777), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    folder_->socket().copy(address.sun_path, sizeof address.sun_path - 1);
    for (int i = 0; i < 3; ++i) {
      const Fd fd(socket(AF_UNIX, SOCK_STREAM, 0));
      if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) _exit(2);
      const std::string join = Join("intruder");
      if (send(fd.get(), join.data(), join.size(), MSG_NOSIGNAL) < 0 && errno != EPIPE) _exit(3);
      char byte;
      if (recv(fd.get(), &byte, 1, 0) > 0) _exit(4);
    }
    _exit(0);
  }
  int status = -1;
  TurnUntil([&] { return waitpid(child, &status, WNOHANG) == child; });
  EXPECT_EQ(status, 0);
  EXPECT_THAT(known_, SizeIs(0));
  ASSERT_THAT(lines_, SizeIs(1)) << "one line for one peer";
  EXPECT_THAT(lines_[0], HasSubstr(absl::StrCat("refused a connection of process ", child, " of user 65534")));
}

// Connections that say nothing, or too little, or all the time a little.
TEST_F(Admitting, TimeIsLimited) {
  options_.limit = absl::Milliseconds(300);
  OverTcp();
  const Fd idle = Dial(), half = Dial(), slow = Dial();
  const std::string start = EncodeControl(*Dialler(kSecret, {}).Start());
  Say(half, start.substr(0, 7));
  size_t sent = 0;
  const MonotonicTime begin = MonotonicNow();
  TurnUntil([&] {
    if (sent < start.size() && MonotonicNow() - begin > sent * absl::Milliseconds(20)) {
      send(slow.get(), &start[sent++], 1, MSG_NOSIGNAL);
    }
    return Closed(idle) && Closed(half) && Closed(slow);
  });
  EXPECT_LT(sent, start.size());
  EXPECT_THAT(lines_[0], HasSubstr("did not say who it is within 300ms"));
  EXPECT_THAT(lines_, SizeIs(1)) << "three connections of one peer";
}

TEST_F(Admitting, TheOldestMakesWay) {
  options_.limit = absl::Hours(1);
  options_.most = 20;
  options_.most_of_one = 10;
  OverTcp();
  std::vector<Fd> idle;
  for (int i = 0; i < 500; ++i) idle.push_back(Dial());
  Fd socket;
  std::thread honest = Honest(&socket, "a");
  TurnUntil([&] { return known_.size() == 1; });
  honest.join();
  EXPECT_EQ(known_[0].join.fields.at("id"), "a");
  EXPECT_LE(admission_->pending(), 10);
  EXPECT_TRUE(Closed(idle[0]));
  EXPECT_LT(lines_.size(), 12u);
}

// While a job trains, many connections that come to nothing wait; who is wanted comes as soon as it no longer does.
TEST_F(Admitting, FailuresMakeOthersWaitWhileThrottled) {
  options_.failures_at_once = 4;
  options_.failures_a_second = 1e-3;
  OverTcp();
  const auto strangers = [&](int n) {
    for (int i = 0; i < n; ++i) Say(Dial(), "GET / HTTP/1.1\r\n\r\n");
  };
  strangers(20);
  TurnUntil([&] { return !lines_.empty() && admission_->pending() == 0; });
  EXPECT_TRUE(Listens());
  admission_->Throttle(true);
  strangers(20);
  TurnUntil([&] { return !Listens(); });
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_FALSE(Listens());  // until as few have failed as may
  Fd socket;
  std::thread honest = Honest(&socket, "a");
  admission_->Throttle(false);
  EXPECT_TRUE(Listens());
  TurnUntil([&] { return known_.size() == 1; });
  honest.join();
  EXPECT_EQ(known_[0].join.fields.at("id"), "a");
}

// While a job trains those that come soon after another are accepted together, some time later.
TEST_F(Admitting, AcceptsTogetherWhileThrottled) {
  options_.together = absl::Hours(1);
  OverTcp();
  admission_->Throttle(true);
  EXPECT_TRUE(Listens());
  const Fd first = Dial();
  TurnUntil([&] { return admission_->pending() == 1; });
  EXPECT_FALSE(Listens());
  admission_->Throttle(false);
  EXPECT_TRUE(Listens());
}

TEST_F(Admitting, MembersWhileThrottled) {
  options_.together = absl::Milliseconds(50);
  OverTcp();
  admission_->Throttle(true);
  Fd sockets[3];
  std::vector<std::thread> honest;
  for (Fd& socket : sockets) honest.push_back(Honest(&socket, absl::StrCat(honest.size())));
  TurnUntil([&] { return known_.size() == 3; });
  for (std::thread& t : honest) t.join();
}

// Nothing is accepted, and no core is kept busy with trying.
TEST_F(Admitting, WithoutDescriptors) {
  OverUnix();
  const Fd first = Dial(), second = Dial();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {3, before.rlim_max};  // those that are open stay open
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  int turns = 0;
  for (const MonotonicTime end = MonotonicNow() + absl::Milliseconds(500); MonotonicNow() < end; ++turns) {
    Turn(absl::Milliseconds(100));
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(turns, 50);
  EXPECT_THAT(known_, SizeIs(0));
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], HasSubstr("Too many open files"));
  Say(second, Join("later"));
  TurnUntil([&] { return known_.size() == 1; });
}

TEST(Refusals, AreToldOnceAndNotTooOften) {
  std::vector<std::string> lines;
  RefusalLog log([&](const std::string& line) { lines.push_back(line); });
  for (int i = 0; i < 5; ++i)
    log.Refused(
        "a", [] { return "a:1"; }, "why\n\033[2Jmslua: error[0] forged");
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0], "refused a connection of a:1: why\n  ?[2Jmslua: error[0] forged");
  log.Refused(
      "a", [] { return "a:2"; }, "another reason");
  EXPECT_THAT(lines, SizeIs(2));
  for (int i = 0; i < 1000; ++i)
    log.Refused(
        absl::StrCat("b", i), [] { return "b"; }, "why");
  EXPECT_THAT(lines, SizeIs(10));
}

}  // namespace
}  // namespace mslua
