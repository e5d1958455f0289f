#include "rendezvous/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

namespace mslua {
namespace {

TEST(Control, AReasonThatIsTooLongIsShortened) {
  for (const size_t size : {60000u, 70000u, 200000u}) {
    const ControlMessage message = {ControlMessage::Type::kAbort, {{"code", "2"}, {"why", std::string(size, 'x')}}};
    const auto read = DecodeControl(EncodeControl(message));
    ASSERT_TRUE(read.ok()) << size << ": " << read.status();
    EXPECT_EQ(read->Field("code"), "2");
    EXPECT_EQ(read->Field("why") == message.Field("why"), size == 60000u);
    EXPECT_GT(read->Field("why").size(), 59000u);
  }
}

using ::testing::HasSubstr;
using Type = ControlMessage::Type;

constexpr char kSecret[] = "the secret of a test";

std::string Welcome(const ConnectionUse&) { return ""; }

ConnectionUse Data(const std::string& job, uint32_t epoch, int from, int to) {
  return {ConnectionUse::Kind::kData, job, epoch, from, to};
}

struct Met {
  StatusOr<Seals> dialler;
  bool accepted;
  std::string refused;
  Seals acceptor;
};

Met Meet(const std::string& dials, const std::string& accepts, const ConnectionUse& use = {},
         const Acceptor::Refusal& refusal = Welcome) {
  Dialler dialler(dials, use);
  Acceptor acceptor(accepts, refusal);
  const ControlMessage challenge = acceptor.Answer(*dialler.Start());
  const auto proof = dialler.Prove(challenge);
  if (!proof.ok()) return {proof.status(), acceptor.accepted(), acceptor.refused(), {}};
  const ControlMessage verdict = acceptor.Answer(*proof);
  return {dialler.Finish(verdict), acceptor.accepted(), acceptor.refused(), acceptor.seals()};
}

TEST(Handshake, BothKnowTheSecret) {
  for (const ConnectionUse& use : {ConnectionUse(), Data("job", 3, 2, 0)}) {
    Met met = Meet(kSecret, kSecret, use);
    ASSERT_TRUE(met.dialler.ok()) << met.dialler.status();
    EXPECT_TRUE(met.accepted);
    for (const char* text : {"one", "", "three"}) {
      EXPECT_TRUE(met.acceptor.receive.Check(text, met.dialler->send.Tag(text)).ok());
      EXPECT_TRUE(met.dialler->receive.Check(text, met.acceptor.send.Tag(text)).ok());
    }
  }
}

TEST(Handshake, AnotherSecretIsRefused) {
  const Met met = Meet("another secret, as long", kSecret);
  EXPECT_FALSE(met.accepted);
  EXPECT_EQ(met.dialler.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(met.dialler.status().message()), HasSubstr("MSLUA_JOB_SECRET_FILE"));
  EXPECT_THAT(met.refused, HasSubstr("MSLUA_JOB_SECRET_FILE"));
}

TEST(Handshake, WhatIsNotWantedIsRefused) {
  const auto refusal = [](const ConnectionUse& use) {
    return use.job == "job" && use.from == 2 ? "" : "not of this job";
  };
  EXPECT_TRUE(Meet(kSecret, kSecret, Data("job", 0, 2, 0), refusal).accepted);
  const Met met = Meet(kSecret, kSecret, Data("other", 0, 2, 0), refusal);
  EXPECT_FALSE(met.accepted);
  EXPECT_THAT(std::string(met.dialler.status().message()), HasSubstr("refused: not of this job"));
}

// Who does not know the secret can pass on what others have said, and nothing of it fits.
TEST(Handshake, ProofsServeOnceAndOneWay) {
  Dialler dialler(kSecret, {});
  Acceptor acceptor(kSecret, Welcome);
  const ControlMessage start = *dialler.Start();
  const ControlMessage challenge = acceptor.Answer(start);
  const ControlMessage proof = *dialler.Prove(challenge);
  const ControlMessage verdict = acceptor.Answer(proof);
  ASSERT_EQ(verdict.type, Type::kAccept);
  // The same messages again, to another connection.
  Acceptor again(kSecret, Welcome);
  again.Answer(start);
  EXPECT_EQ(again.Answer(proof).type, Type::kRefuse);
  // The dialler's own proof, sent back to it.
  ControlMessage reflected = proof;
  reflected.type = Type::kAccept;
  EXPECT_EQ(dialler.Finish(reflected).status().code(), absl::StatusCode::kPermissionDenied);
  // The acceptor's proof, sent to an acceptor.
  Acceptor third(kSecret, Welcome);
  third.Answer(start);
  ControlMessage turned = verdict;
  turned.type = Type::kProof;
  EXPECT_EQ(third.Answer(turned).type, Type::kRefuse);
  // An acceptor without a proof.
  EXPECT_EQ(dialler.Finish({Type::kAccept, {}}).status().code(), absl::StatusCode::kPermissionDenied);
}

// A proof for one use does not serve another: the middle changes what the dialler asked for.
TEST(Handshake, ProofsAreBoundToTheUse) {
  const ConnectionUse asked = Data("job", 1, 2, 0);
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"job", "jo"}, {"epoch", "2"}, {"from", "3"}, {"to", "1"}, {"use", "control"}}) {
    Dialler dialler(kSecret, asked);
    Acceptor acceptor(kSecret, Welcome);
    ControlMessage start = *dialler.Start();
    start.fields[name] = value;
    const auto proof = dialler.Prove(acceptor.Answer(start));
    ASSERT_TRUE(proof.ok());
    EXPECT_EQ(acceptor.Answer(*proof).type, Type::kRefuse) << name;
  }
}

TEST(Handshake, MessagesOutOfTurnAreRefused) {
  for (const Type type : {Type::kJoin, Type::kProof, Type::kAccept, Type::kAbort, Type::kLeave, Type::kHeartbeat}) {
    Acceptor acceptor(kSecret, Welcome);
    EXPECT_EQ(acceptor.Answer({type, {}}).type, Type::kRefuse);
    EXPECT_EQ(acceptor.Answer(*Dialler(kSecret, {}).Start()).type, Type::kRefuse) << "no second try";
  }
  Acceptor acceptor(kSecret, Welcome);
  const ControlMessage start = *Dialler(kSecret, {}).Start();
  EXPECT_EQ(acceptor.Answer(start).type, Type::kChallenge);
  EXPECT_EQ(acceptor.Answer(start).type, Type::kRefuse);
  for (const char* nonce : {"", "short"}) {
    Acceptor another(kSecret, Welcome);
    EXPECT_EQ(another.Answer({Type::kChallenge, {{"use", "control"}, {"nonce", nonce}}}).type, Type::kRefuse);
  }
}

TEST(Seal, NoticesEveryChange) {
  Met met = Meet(kSecret, kSecret);
  Seal &send = met.dialler->send, &receive = met.acceptor.receive;
  const std::string first = send.Tag("first"), second = send.Tag("second");
  const auto copy = [&] { return receive; };  // checking counts
  EXPECT_FALSE(copy().Check("second", second).ok()) << "one was left out";
  EXPECT_FALSE(copy().Check("fIrst", first).ok());
  EXPECT_FALSE(copy().Check("first", first.substr(1)).ok());
  EXPECT_FALSE(copy().Check("first", "").ok());
  EXPECT_FALSE(met.dialler->receive.Check("first", first).ok()) << "sent back to who made it";
  ASSERT_TRUE(receive.Check("first", first).ok());
  EXPECT_FALSE(copy().Check("first", first).ok()) << "sent twice";
  EXPECT_TRUE(receive.Check("second", second).ok());
  Met other = Meet(kSecret, kSecret);
  EXPECT_NE(other.dialler->send.Tag("first"), first) << "of another connection";
}

TEST(Authenticate, OverASocket) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd one(ends[0]), other(ends[1]);
  StatusOr<Seals> seals = absl::UnknownError("");
  const MonotonicTime deadline = MonotonicNow() + absl::Seconds(30);
  std::thread dialling([&] { seals = Authenticate(one, kSecret, {}, deadline); });
  Acceptor acceptor(kSecret, Welcome);
  Seal none;
  for (int i = 0; i < 2; ++i) {
    const auto message = ReceiveControl(other, none, deadline);
    ASSERT_TRUE(message.ok());
    ASSERT_TRUE(SendAll(other, EncodeControl(acceptor.Answer(*message)), deadline).ok());
  }
  dialling.join();
  ASSERT_TRUE(seals.ok()) << seals.status();
  ASSERT_TRUE(SendAll(one, EncodeSealed({Type::kLeave, {{"a", "b"}}}, seals->send), deadline).ok());
  Seal receive = acceptor.seals().receive;
  const auto message = ReceiveControl(other, receive, deadline);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->fields.at("a"), "b");
}

TEST(Authenticate, WithoutTheSecretARefusalIsHeard) {
  for (const char* reason : {"", "it speaks no TLS"}) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const Fd one(ends[0]), other(ends[1]);
    Status asked = absl::UnknownError("");
    const MonotonicTime deadline = MonotonicNow() + absl::Seconds(30);
    std::thread asking([&] { asked = AskWithoutSecret(one, deadline); });
    Acceptor acceptor(kSecret, [&](const ConnectionUse&) { return reason; });
    Seal none;
    const auto message = ReceiveControl(other, none, deadline);
    if (message.ok()) SendAll(other, EncodeControl(acceptor.Answer(*message)), deadline).IgnoreError();
    asking.join();
    ASSERT_TRUE(message.ok()) << message.status();
    if (*reason == 0) {
      EXPECT_TRUE(asked.ok()) << asked;
    } else {
      EXPECT_TRUE(absl::IsPermissionDenied(asked)) << asked;
      EXPECT_THAT(std::string(asked.message()), HasSubstr(reason));
    }
  }
}

}  // namespace
}  // namespace mslua
