#include "rendezvous/tls/tls.h"

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/base/exit_code.h"
#include "core/base/input_file.h"
#include "rendezvous/tls/credentials.h"
#include "rendezvous/tls/testing.h"

namespace mslua {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kTries = 100;

struct Pair {
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0); }
  ~Pair() {
    for (const int fd : ends) close(fd);
  }
  int ends[2];
};

// What a handshake ends with; gives up after a while.
Status Finish(TlsSession& session, int fd) {
  const MonotonicTime deadline = MonotonicNow() + absl::Seconds(20);
  while (MonotonicNow() < deadline) {
    const Status status = session.Handshake();
    if (!status.ok() || session.ready()) {
      if (!status.ok()) shutdown(fd, SHUT_WR);
      return status;
    }
    pollfd entry = {fd, session.wants(), 0};
    poll(&entry, 1, 1000);
  }
  return absl::DeadlineExceededError("the handshake does not end");
}

// What comes next, when it has come.
ssize_t ReadSoon(TlsSession& session, int fd, char* to, size_t size) {
  const MonotonicTime deadline = MonotonicNow() + absl::Seconds(20);
  while (true) {
    const ssize_t n = session.Read(to, size);
    if (n >= 0 || errno != EAGAIN || MonotonicNow() > deadline) return n;
    pollfd entry = {fd, POLLIN, 0};
    poll(&entry, 1, 1000);
  }
}

struct Met {
  Status accepting, dialling;
  std::unique_ptr<TlsSession> accepted, dialled;
};

Met Meet(const Pair& pair, Tls& accepts, Tls& dials, const std::string& host = "localhost",
         PeerIs peer = PeerIs::kMember) {
  Met met;
  met.accepted = *accepts.Accept(pair.ends[0], peer);
  met.dialled = *dials.Dial(pair.ends[1], host);
  std::thread other([&] { met.accepting = Finish(*met.accepted, pair.ends[0]); });
  met.dialling = Finish(*met.dialled, pair.ends[1]);
  other.join();
  return met;
}

class TlsOfTwo : public ::testing::Test {
 protected:
  StatusOr<std::shared_ptr<Tls>> Load(const TestCertificates& from) {
    TlsOptions options;
    options.config_file = from.config();
    options.log = [this](const std::string& line) { lines_.push_back(line); };
    return Tls::Load(options);
  }
  std::vector<std::string> lines_;
};

TEST_F(TlsOfTwo, BytesPassAndBothHaveOneKey) {
  const TestCertificates files;
  ASSERT_TRUE(files.made().ok()) << files.made();
  const auto tls = Load(files);
  ASSERT_TRUE(tls.ok()) << tls.status();
  EXPECT_THAT(lines_, IsEmpty());
  const Pair pair;
  Met met = Meet(pair, **tls, **tls);
  ASSERT_TRUE(met.accepting.ok()) << met.accepting;
  ASSERT_TRUE(met.dialling.ok()) << met.dialling;
  EXPECT_EQ(met.accepted->SharedKey(), met.dialled->SharedKey());
  char buffer[16];
  EXPECT_EQ(met.accepted->Read(buffer, sizeof buffer), -1);
  EXPECT_EQ(errno, EAGAIN);
  char head[] = "ab", tail[] = "cdefgh";
  const iovec parts[] = {{head, 2}, {tail, 6}};
  EXPECT_EQ(met.dialled->Write(parts, 2), 8);
  EXPECT_EQ(ReadSoon(*met.accepted, pair.ends[0], buffer, 3), 3);
  EXPECT_TRUE(met.accepted->Pending());
  EXPECT_EQ(met.accepted->Read(buffer, sizeof buffer), 5);
  EXPECT_FALSE(met.accepted->Pending());
  EXPECT_EQ(std::string(buffer, 5), "defgh");
  met.dialled.reset();
  EXPECT_EQ(ReadSoon(*met.accepted, pair.ends[0], buffer, sizeof buffer), 0);
}

TEST_F(TlsOfTwo, AWriteThatTheSocketDoesNotTakeIsRepeated) {
  const TestCertificates files;
  const auto tls = Load(files);
  const Pair pair;
  Met met = Meet(pair, **tls, **tls);
  ASSERT_TRUE(met.dialling.ok()) << met.dialling;
  std::string sent, received;
  for (int i = 0; i < 1 << 20; ++i) sent += static_cast<char>(i * 7 + i / 256);
  size_t done = 0;
  bool waited = false;
  std::string buffer(100 << 10, 0);
  while (received.size() < sent.size()) {
    const iovec part = {&sent[done], sent.size() - done};
    const ssize_t n = done < sent.size() ? met.dialled->Write(&part, 1) : -1;
    if (n > 0) done += static_cast<size_t>(n);
    waited = waited || met.dialled->MidWrite();
    if (n > 0) continue;
    ssize_t got;
    while ((got = met.accepted->Read(&buffer[0], buffer.size())) > 0) received.append(buffer, 0, got);
    ASSERT_EQ(errno, EAGAIN) << met.accepted->broken();
  }
  EXPECT_TRUE(waited);
  EXPECT_EQ(received, sent);
}

TEST_F(TlsOfTwo, BytesThatWereChangedAreFound) {
  const TestCertificates files;
  const auto tls = Load(files);
  const Pair pair;
  Met met = Meet(pair, **tls, **tls);
  char text[] = "some record of TLS";
  ASSERT_EQ(send(pair.ends[1], text, sizeof text, 0), static_cast<ssize_t>(sizeof text));
  EXPECT_EQ(ReadSoon(*met.accepted, pair.ends[0], text, sizeof text), -1);
  EXPECT_EQ(errno, EPROTO);
  EXPECT_TRUE(absl::IsDataLoss(met.accepted->broken())) << met.accepted->broken();
}

// The other end's certificates are those of another CA.
TEST_F(TlsOfTwo, AnUnknownCaIsRefusedByBoth) {
  const TestCertificates mine, theirs;
  const auto own = Load(mine), other = Load(theirs);
  for (int i = 0; i < kTries; ++i) {
    const Pair pair;
    const Met met = Meet(pair, **own, **other);
    EXPECT_THAT(std::string(met.dialling.message()), HasSubstr("ca_cert_path does not hold"));
    EXPECT_THAT(std::string(met.accepting.message()), HasSubstr("does not know the CA"));
  }
}

TEST_F(TlsOfTwo, AnotherJobIsRefusedAndBothSaySo) {
  // In another folder: files that change are read again.
  const TestCertificates files, others(files);
  const auto own = Load(files);
  CertificateRequest again;
  again.folder = others / "";
  again.folder.pop_back();
  again.job = "other";
  ASSERT_TRUE(MakeCertificates(again).ok());
  const auto other = Load(others);
  for (int i = 0; i < kTries; ++i) {
    const Pair pair;
    const Met met = Meet(pair, **own, **other);
    EXPECT_TRUE(absl::IsPermissionDenied(met.accepting));
    EXPECT_THAT(std::string(met.accepting.message()), HasSubstr("is for job \"other\", and this is job \"test\""));
    EXPECT_THAT(std::string(met.dialling.message()),
                HasSubstr("the other end refuses this one: certificate \"CN = client of other\""));
  }
}

TEST_F(TlsOfTwo, TheDialledHostIsLookedAtWhereTheFileAsksForIt) {
  CertificateRequest request;
  request.hosts = {"node-1.example", "10.0.0.2", "*.cluster.local"};
  const TestCertificates files(request);
  files.Configure("\"crl_path\"", "\"verify\": \"host\",\n  \"crl_path\"");
  const auto tls = Load(files);
  ASSERT_TRUE(tls.ok()) << tls.status();
  for (const char* host : {"node-1.example", "10.0.0.2", "a.cluster.local"}) {
    const Pair pair;
    EXPECT_TRUE(Meet(pair, **tls, **tls, host).dialling.ok()) << host;
  }
  const char* const others[] = {"node-2.example", "10.0.0.3", "server of test"};
  for (int i = 0; i < kTries; ++i) {
    const char* const host = others[i % 3];
    const Pair pair;
    const Met met = Meet(pair, **tls, **tls, host);
    EXPECT_THAT(std::string(met.dialling.message()),
                HasSubstr(absl::StrCat("is for host node-1.example, 10.0.0.2, *.cluster.local, and \"", host)));
    EXPECT_THAT(std::string(met.accepting.message()), HasSubstr("the other end refuses this one"));
  }
}

TEST_F(TlsOfTwo, AClientsCertificateIsNotARanksAndNotTheReverse) {
  const TestCertificates files, others(files);
  others.Configure("client.p12", "attach.p12");
  const auto rank = Load(files), client = Load(others);
  ASSERT_TRUE(client.ok()) << client.status();
  for (int i = 0; i < kTries; ++i) {
    const Pair one, two;
    EXPECT_THAT(std::string(Meet(one, **rank, **client).accepting.message()), HasSubstr("is for clients that attach"));
    EXPECT_THAT(std::string(Meet(two, **rank, **rank, "h", PeerIs::kClient).accepting.message()),
                HasSubstr("is not for clients that attach"));
  }
  const Pair pair;
  EXPECT_TRUE(Meet(pair, **rank, **client, "h", PeerIs::kClient).accepting.ok());
}

// A peer that does not look at its own certificate.
class Careless {
 public:
  Careless(const TestCertificates& from, const char* file, int version = TLS1_3_VERSION)
      : context_(SSL_CTX_new(TLS_method())) {
    SSL_CTX_set_max_proto_version(context_.get(), version);
    if (version < TLS1_2_VERSION) SSL_CTX_set_security_level(context_.get(), 0);
    if (version < TLS1_2_VERSION) SSL_CTX_set_min_proto_version(context_.get(), version);
    if (file == nullptr) return;
    const Credentials own = from.Load(file);
    SSL_CTX_use_certificate(context_.get(), own.certificate.get());
    SSL_CTX_use_PrivateKey(context_.get(), own.key.get());
  }
  // Dials; what the accepting end says in the end. `*heard`: what this end is told.
  Status Meet(Tls& accepts, std::string* heard) {
    const Pair pair;
    auto session = *accepts.Accept(pair.ends[0]);
    Status status;
    std::thread other([&] { status = Finish(*session, pair.ends[0]); });
    const SslPtr ssl(SSL_new(context_.get()));
    SSL_set_fd(ssl.get(), pair.ends[1]);
    char byte;
    const int connected = SSL_connect(ssl.get());
    const int n = connected == 1 ? SSL_read(ssl.get(), &byte, 1) : 0;
    *heard = n > 0 ? "accepted" : TakeOpensslError();
    shutdown(pair.ends[1], SHUT_RDWR);
    other.join();
    return status;
  }

 private:
  const SslContextPtr context_;
};

TEST_F(TlsOfTwo, APeerThatDoesNotLookAtItsOwnCertificateIsRefused) {
  const TestCertificates files, strangers, lost(files);
  files.Change("attach.p12", [](X509* c) {
    X509_gmtime_adj(X509_getm_notBefore(c), -200);
    X509_gmtime_adj(X509_getm_notAfter(c), -100);
  });
  ASSERT_TRUE(RevokeCertificate(files / "", lost / "client.p12").ok());
  CertificateRequest again;
  again.folder = files / "";
  again.folder.pop_back();
  const std::string expired = ContentsOf(files / "attach.p12");
  ASSERT_TRUE(MakeCertificates(again).ok());
  WriteTo(files / "attach.p12", expired);
  const TestCertificates early(files);
  early.Change("client.p12", [](X509* c) { X509_gmtime_adj(X509_getm_notBefore(c), 1000); });
  const auto tls = Load(files);
  ASSERT_TRUE(tls.ok()) << tls.status();
  struct Case {
    const TestCertificates* from;
    const char* file;
    int version;
    const char *said, *heard;
  };
  const Case cases[] = {
      {&files, "attach.p12", TLS1_3_VERSION, "expired on 20", "certificate expired"},
      {&early, "client.p12", TLS1_3_VERSION, "is not valid before 20", "bad certificate"},
      {&lost, "client.p12", TLS1_3_VERSION, "has been revoked", "certificate revoked"},
      {&strangers, "client.p12", TLS1_3_VERSION, "ca_cert_path does not hold", "unknown ca"},
      {&files, "server.p12", TLS1_3_VERSION, "not made for this use", "unsupported certificate"},
      {&files, nullptr, TLS1_3_VERSION, "has shown no certificate", "certificate required"},
      {&files, "client.p12", TLS1_2_VERSION, "version of TLS is too low", "protocol version"},
      {&files, "client.p12", TLS1_1_VERSION, "version of TLS is too low", "protocol version"},
  };
  for (const Case& c : cases) {
    Careless peer(*c.from, c.file, c.version);
    for (int i = 0; i < kTries; ++i) {
      std::string heard;
      const Status status = peer.Meet(**tls, &heard);
      EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.said));
      EXPECT_THAT(heard, HasSubstr(c.heard));
    }
  }
}

TEST_F(TlsOfTwo, Tls12IsSpokenWhereTheFileSaysSo) {
  const TestCertificates files;
  files.Configure("\"crl_path\"", "\"min_version\": \"1.2\",\n  \"crl_path\"");
  const auto tls = Load(files);
  ASSERT_TRUE(tls.ok()) << tls.status();
  std::string heard;
  const Status status = Careless(files, "client.p12", TLS1_2_VERSION).Meet(**tls, &heard);
  EXPECT_EQ(heard, "accepted");
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;  // it says no more
  EXPECT_TRUE(absl::IsPermissionDenied(Careless(files, "client.p12", TLS1_1_VERSION).Meet(**tls, &heard)));
}

TEST_F(TlsOfTwo, OwnMistakesAreNamedBeforeAnyConnection) {
  struct Case {
    std::function<void(const TestCertificates&)> spoil;
    std::string said;
  };
  const auto dates = [](long from, long until) {
    return [=](const TestCertificates& t) {
      t.Change("server.p12", [=](X509* c) {
        X509_gmtime_adj(X509_getm_notBefore(c), from);
        X509_gmtime_adj(X509_getm_notAfter(c), until);
      });
    };
  };
  const auto text = [](const char* name, const char* contents) {
    return [=](const TestCertificates& t) { WriteTo(t / name, contents); };
  };
  const Case cases[] = {
      {dates(-200, -100), "own certificate \"CN = server of test\" expired on 20"},
      {dates(1000, 2000), "is not valid before 20"},
      {[](const TestCertificates& t) {
         const TestCertificates other;
         std::filesystem::copy_file(other / "ca.crt", t / "ca.crt", std::filesystem::copy_options::overwrite_existing);
       },
       "is signed by a CA that ca_cert_path does not hold"},
      {[](const TestCertificates& t) {
         const std::string folder = t / "";
         ASSERT_TRUE(RevokeCertificate(folder, "server.p12").ok());
       },
       "server_cert_path .*has been revoked"},
      {[](const TestCertificates& t) { chmod((t / "server.p12").c_str(), 0644); }, "chmod 600"},
      {[](const TestCertificates& t) { chmod((t / "password").c_str(), 0644); }, "password_file .*chmod 600"},
      {[](const TestCertificates& t) { chmod((t / "ca.crt").c_str(), 0666); }, "ca_cert_path .*chmod go-w"},
      {text("password", "wrong"), "the password is wrong"},
      {text("password", ""), "no password is given"},
      {[](const TestCertificates& t) { std::filesystem::remove(t / "crl.pem"); }, "crl_path .*No such file"},
      {text("crl.pem", "nothing"), "crl_path .*expected a list of revoked certificates"},
      {text("ca.crt", "nothing"), "ca_cert_path .*expected a certificate"},
      {text("server.p12", "nothing"), "expected a certificate with its key"},
      {[](const TestCertificates& t) { std::filesystem::remove(t / "server.p12"); }, "server_cert_path .*No such file"},
      {[](const TestCertificates& t) { t.Configure("server.p12", "attach.p12"); }, "not made for this use"},
      {[](const TestCertificates& t) { t.Configure("ECDHE", "ECDH"); }, "cipher_list: it leaves no cipher"},
  };
  for (const Case& c : cases) {
    const TestCertificates files;
    c.spoil(files);
    const auto tls = Load(files);
    ASSERT_FALSE(tls.ok()) << c.said;
    EXPECT_EQ(ExitCodeIn(tls.status()), kExitSecurity);
    EXPECT_THAT(std::string(tls.status().message()), ::testing::ContainsRegex(c.said));
  }
}

TEST_F(TlsOfTwo, AKeyOfAnotherCertificateIsRefused) {
  const TestCertificates files;
  const Credentials server = files.Load("server.p12"), client = files.Load("client.p12");
  const BioPtr memory(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(memory.get(), server.certificate.get());
  PEM_write_bio_PrivateKey(memory.get(), client.key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  WriteTo(files / "server.p12", std::string(bytes, static_cast<size_t>(size)));
  EXPECT_THAT(std::string(Load(files).status().message()), HasSubstr("the key is not that of the certificate"));
}

TEST_F(TlsOfTwo, AListOfRevokedCertificatesThatHasExpiredIsRefused) {
  const TestCertificates files;
  const std::string text = ContentsOf(files / "crl.pem"), key_text = ContentsOf(files / "ca.key");
  const BioPtr reader = ReaderOf(text), key_reader = ReaderOf(key_text), memory(BIO_new(BIO_s_mem()));
  const CrlPtr crl(PEM_read_bio_X509_CRL(reader.get(), nullptr, nullptr, nullptr));
  const KeyPtr ca(PEM_read_bio_PrivateKey(key_reader.get(), nullptr, nullptr, nullptr));
  ASN1_TIME* const past = X509_gmtime_adj(nullptr, -10);
  X509_CRL_set1_nextUpdate(crl.get(), past);
  ASN1_TIME_free(past);
  X509_CRL_sign(crl.get(), ca.get(), EVP_sha256());
  PEM_write_bio_X509_CRL(memory.get(), crl.get());
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  WriteTo(files / "crl.pem", std::string(bytes, static_cast<size_t>(size)));
  EXPECT_THAT(std::string(Load(files).status().message()), HasSubstr("it expired on 20"));
}

TEST_F(TlsOfTwo, CertificatesThatExpireSoonAreTold) {
  const TestCertificates files;
  files.Configure("\"cert_expire_warning_time_in_day\": 7", "\"cert_expire_warning_time_in_day\": 40");
  ASSERT_TRUE(Load(files).ok());
  EXPECT_THAT(lines_, Contains(HasSubstr("server.p12: the certificate expires on 20")));
  EXPECT_THAT(lines_, Contains(HasSubstr(" days")));
  EXPECT_EQ(lines_.size(), 2u);
}

TEST_F(TlsOfTwo, ChangedFilesAreUsedAndARevokedPeerIsCutOff) {
  const TestCertificates files;
  const auto tls = Load(files);
  const Pair one, two;
  Met first = Meet(one, **tls, **tls);
  ASSERT_TRUE(first.accepting.ok());
  ASSERT_TRUE(RevokeCertificate(files / "", "client.p12").ok());
  absl::SleepFor(absl::Milliseconds(1100));
  // Its own client's certificate is revoked, too: the list counts all the same.
  (*tls)->Refresh();
  EXPECT_THAT(lines_, Contains(HasSubstr("warning: client_cert_path")));
  EXPECT_THAT(lines_, Contains(HasSubstr("this end's own certificate \"CN = client of test\" has been revoked")));
  char byte;
  EXPECT_EQ(first.accepted->Read(&byte, 1), -1);
  EXPECT_THAT(std::string(first.accepted->broken().message()), HasSubstr("client of test\" has been revoked"));
  EXPECT_TRUE(first.dialled->broken().ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Meet(two, **tls, **tls).accepting));
  CertificateRequest again;
  again.folder = files / "";
  ASSERT_TRUE(MakeCertificates(again).ok());
  absl::SleepFor(absl::Milliseconds(1100));
  const Pair three;
  EXPECT_TRUE(Meet(three, **tls, **tls).accepting.ok());
}

TEST_F(TlsOfTwo, ADamagedBlockBehindAWholeOneIsAnError) {
  const TestCertificates files;
  const auto text = ReadFile(files / "ca.crt", 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(ParseCertificates(*text + *text, "ca")->size(), 2u);
  EXPECT_EQ(ParseCertificates(*text + "a comment behind it\n", "ca")->size(), 1u);
  for (const size_t at : {text->find("MII") + 40, text->find("-----END") + 6}) {
    std::string damaged = *text;
    damaged[at] = '*';
    EXPECT_THAT(std::string(ParseCertificates(*text + damaged, "ca").status().message()),
                HasSubstr("ca: the PEM block after the first 1 cannot be read"));
  }
}

TEST_F(TlsOfTwo, APeerThatIsRevokedDuringItsHandshakeIsRefused) {
  const TestCertificates files;
  const auto accepts = Load(files), dials = Load(files);
  const Pair pair;
  Met met;
  met.accepted = *(*accepts)->Accept(pair.ends[0], PeerIs::kMember);
  met.dialled = *(*dials)->Dial(pair.ends[1], "localhost");
  ASSERT_TRUE(RevokeCertificate(files / "", "client.p12").ok());
  absl::SleepFor(absl::Milliseconds(1100));
  (*accepts)->Refresh();
  std::thread other([&] { met.accepting = Finish(*met.accepted, pair.ends[0]); });
  met.dialling = Finish(*met.dialled, pair.ends[1]);
  other.join();
  EXPECT_TRUE(absl::IsPermissionDenied(met.accepting)) << met.accepting;
  EXPECT_THAT(std::string(met.accepting.message()), HasSubstr("client of test\" has been revoked"));
}

TEST_F(TlsOfTwo, AListThatCameWithAnExpiredCertificateCounts) {
  const TestCertificates files, stranger(files);
  stranger.Configure("\"crl.pem\"", "\"\"");
  const auto tls = Load(files), theirs = Load(stranger);
  files.Change("server.p12", [](X509* c) { X509_gmtime_adj(X509_getm_notAfter(c), -100); });
  ASSERT_TRUE(RevokeCertificate(files / "", stranger / "client.p12").ok());
  absl::SleepFor(absl::Milliseconds(1100));
  (*tls)->Refresh();
  EXPECT_THAT(lines_, Contains(HasSubstr("server of test\" expired on")));
  const Pair pair;
  EXPECT_FALSE(Meet(pair, **tls, **theirs).accepting.ok());
}

TEST_F(TlsOfTwo, AListThatTheCaHasNotSignedDoesNotCount) {
  const TestCertificates files, other;
  const auto tls = Load(files);
  const Pair one, two;
  const Met first = Meet(one, **tls, **tls);
  WriteTo(files / "crl.pem", ContentsOf(other / "crl.pem"));
  absl::SleepFor(absl::Milliseconds(1100));
  (*tls)->Refresh();
  EXPECT_THAT(lines_, Contains(HasSubstr("the changed TLS files are not used")));
  EXPECT_TRUE(first.accepted->broken().ok());
  EXPECT_TRUE(Meet(two, **tls, **tls).accepting.ok());
}

TEST_F(TlsOfTwo, ACaThatWouldExpireFirstIsRenewed) {
  CertificateRequest request;
  request.days = 1;
  const TestCertificates files(request);
  const TestCertificates before(files);
  request.folder = files / "";
  request.job = "test";
  bool renewed = true;
  ASSERT_TRUE(MakeCertificates(request, &renewed).ok());
  EXPECT_FALSE(renewed);
  request.days = 30;
  ASSERT_TRUE(MakeCertificates(request, &renewed).ok());
  EXPECT_TRUE(renewed);
  const auto shown = ShowCertificates(files / "", ""), old = ShowCertificates(before / "", "");
  ASSERT_TRUE(shown.ok() && old.ok());
  EXPECT_EQ(shown->front().subject, old->front().subject);
  EXPECT_GT(shown->front().until, old->front().until);
  EXPECT_LT((*shown)[1].until, shown->front().until);
  // What the CA had signed before stays good, and what it has revoked stays so.
  const auto now = Load(files), then = Load(before);
  ASSERT_TRUE(now.ok() && then.ok()) << now.status() << then.status();
  const Pair pair;
  EXPECT_TRUE(Meet(pair, **now, **then).accepting.ok());
}

TEST_F(TlsOfTwo, ACaThatHasExpiredIsRenewed) {
  const TestCertificates files;
  const auto shown = [&] { return ShowCertificates(files / "ca.crt", "")->front(); };
  const std::string contents = ContentsOf(files / "ca.crt"), key_text = ContentsOf(files / "ca.key");
  const BioPtr reader = ReaderOf(contents), key_reader = ReaderOf(key_text);
  const CertificatePtr ca(PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr));
  const KeyPtr key(PEM_read_bio_PrivateKey(key_reader.get(), nullptr, nullptr, nullptr));
  X509_gmtime_adj(X509_getm_notAfter(ca.get()), -100);
  X509_sign(ca.get(), key.get(), EVP_sha256());
  const BioPtr memory(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(memory.get(), ca.get());
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  WriteTo(files / "ca.crt", std::string(bytes, static_cast<size_t>(size)));
  ASSERT_TRUE(shown().expired);
  CertificateRequest request;
  request.folder = files / "";
  bool renewed = false;
  ASSERT_TRUE(MakeCertificates(request, &renewed).ok());
  EXPECT_TRUE(renewed);
  EXPECT_FALSE(shown().expired);
  EXPECT_TRUE(Load(files).ok()) << Load(files).status();
}

TEST_F(TlsOfTwo, FilesThatAreNoCertificatesOfTheFolder) {
  const TestCertificates files;
  const Status own = RevokeCertificate(files / "", "ca.crt");
  EXPECT_EQ(own.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(own.message()), HasSubstr("it is the CA's own certificate"));
  EXPECT_TRUE(Load(files).ok());
  const auto said = [&](const char* name) {
    return std::string(ShowCertificates(files / name, "").status().message());
  };
  EXPECT_THAT(said("config.json"), HasSubstr("config.json: expected a certificate or a PKCS#12 file"));
  EXPECT_THAT(said("crl.pem"), HasSubstr("crl.pem: expected a certificate, got a list of revoked ones"));
  EXPECT_EQ(said("server.p12"), "");
  EXPECT_EQ(RevokeCertificate(files / "", "config.json").code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TlsOfTwo, NothingButTheChainIsToldOnce) {
  const TestCertificates files;
  for (const char* name : {"server.p12", "client.p12"}) {
    files.Change(name, [](X509* c) {
      X509_EXTENSION_free(X509_delete_ext(c, X509_get_ext_by_NID(c, NID_subject_alt_name, -1)));
    });
  }
  const auto tls = Load(files);
  for (int i = 0; i < 2; ++i) {
    const Pair pair;
    EXPECT_TRUE(Meet(pair, **tls, **tls).accepting.ok());
  }
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], HasSubstr("neither a job nor a host"));
}

// A handshake that stops, or is changed, anywhere ends with an error.
TEST_F(TlsOfTwo, HandshakesThatStopOrAreChangedEnd) {
  const TestCertificates files;
  const auto tls = Load(files);
  std::string hello(4096, 0);
  {
    const Pair pair;
    auto session = *(*tls)->Dial(pair.ends[1], "localhost");
    EXPECT_TRUE(session->Handshake().ok());
    hello.resize(static_cast<size_t>(recv(pair.ends[0], &hello[0], hello.size(), 0)));
  }
  const auto offer = [&](const std::string& bytes) {
    const Pair pair;
    auto session = *(*tls)->Accept(pair.ends[0]);
    EXPECT_EQ(send(pair.ends[1], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    shutdown(pair.ends[1], SHUT_WR);
    return Finish(*session, pair.ends[0]);
  };
  for (size_t size = 0; size < hello.size(); ++size) EXPECT_FALSE(offer(hello.substr(0, size)).ok()) << size;
  unsigned seed = 1;
  for (int i = 0; i < 2000; ++i) {
    std::string changed = hello;
    for (int k = 0; k < 3; ++k) changed[rand_r(&seed) % changed.size()] = static_cast<char>(rand_r(&seed));
    EXPECT_FALSE(offer(changed).ok());
  }
}

}  // namespace
}  // namespace mslua
