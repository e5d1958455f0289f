#include "collectives/net/frame.h"

#include <gtest/gtest.h>

#include "core/base/hash.h"
#include "core/base/rng.h"

namespace mslua {
namespace {

Frame Sample() {
  Frame frame;
  frame.type = Frame::Type::kAnswer;
  frame.stage = 2;
  frame.status = 9;
  frame.epoch = 7;
  frame.group = 0x123456789abcdef0;
  frame.sequence = 94;
  frame.bytes = 4096;
  frame.payload_crc = 0xdeadbeef;
  frame.call = Call::Reduce(ReduceOp::kMax, DType::kBF16, nullptr, nullptr, 2048, 3).At("train.lua:88");
  frame.call.tag = -5;
  return frame;
}

TEST(Frame, RoundTrip) {
  const std::string bytes = EncodeFrame(Sample());
  ASSERT_EQ(bytes.size(), kFrameHeaderBytes + 12u);
  EXPECT_EQ(bytes.substr(kFrameHeaderBytes), "train.lua:88");
  int source = 0;
  const auto got = DecodeFrameHeader(bytes.substr(0, kFrameHeaderBytes), &source);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(source, 12);
  EXPECT_EQ(got->type, Frame::Type::kAnswer);
  EXPECT_EQ(got->stage, 2);
  EXPECT_EQ(got->status, 9);
  EXPECT_EQ(got->epoch, 7u);
  EXPECT_EQ(got->group, 0x123456789abcdef0u);
  EXPECT_EQ(got->sequence, 94u);
  EXPECT_EQ(got->bytes, 4096u);
  EXPECT_EQ(got->payload_crc, 0xdeadbeef);
  EXPECT_EQ(got->source_crc, Crc32c("train.lua:88", 12));
  EXPECT_EQ(got->call.tag, -5);
  EXPECT_TRUE(SameCall(got->call, Sample().call));
  Call other = Sample().call;
  other.count = 2047;
  EXPECT_FALSE(SameCall(got->call, other));
}

TEST(Frame, LongSourcesAreCut) {
  Frame frame = Sample();
  const std::string source(300, 's');
  frame.call.At(source);
  EXPECT_EQ(EncodeFrame(frame).size(), kFrameHeaderBytes + size_t{kMaxSourceBytes});
}

TEST(Frame, DamageIsFound) {
  const std::string good = EncodeFrame(Sample()).substr(0, kFrameHeaderBytes);
  int source;
  for (int i = 0; i < kFrameHeaderBytes * 8; ++i) {
    std::string bad = good;
    bad[i / 8] ^= 1 << (i % 8);
    EXPECT_EQ(DecodeFrameHeader(bad, &source).status().code(), absl::StatusCode::kDataLoss) << i;
  }
  for (int size = 0; size < kFrameHeaderBytes; ++size)
    EXPECT_FALSE(DecodeFrameHeader(good.substr(0, size), &source).ok());
}

TEST(Frame, AnAbortHasTheStatusOfOne) {
  Frame frame = Sample();
  frame.type = Frame::Type::kAbort;
  for (const auto& [code, good] : {std::pair(absl::StatusCode::kOk, false),
                                   {absl::StatusCode::kDeadlineExceeded, false},
                                   {static_cast<absl::StatusCode>(77), false},
                                   {absl::StatusCode::kFailedPrecondition, true},
                                   {absl::StatusCode::kAborted, true}}) {
    frame.status = static_cast<uint16_t>(code);
    int source = 0;
    const Status status = DecodeFrameHeader(EncodeFrame(frame).substr(0, kFrameHeaderBytes), &source).status();
    EXPECT_EQ(status.code(), good ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss) << frame.status;
  }
}

TEST(Frame, AnyBytesAreAnErrorOrAFrame) {
  for (uint64_t round = 0; round < 20000; ++round) {
    std::string bytes(kFrameHeaderBytes, 0);
    for (int i = 0; i < kFrameHeaderBytes; i += 4) {
      const uint32_t word = Philox(1, round, i)[0];
      bytes.replace(i, 4, reinterpret_cast<const char*>(&word), 4);
    }
    int source;
    EXPECT_FALSE(DecodeFrameHeader(bytes, &source).ok());
  }
}

}  // namespace
}  // namespace mslua
