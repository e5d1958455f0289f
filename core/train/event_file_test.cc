#include "core/train/event_file.h"

#include <cmath>
#include <cstring>

#include "gtest/gtest.h"

namespace mslua {
namespace {

std::string Hex(const std::string& bytes) {
  std::string out;
  char two[3];
  for (unsigned char c : bytes) {
    std::snprintf(two, sizeof two, "%02x", c);
    out += two;
  }
  return out;
}

// Fields by hand from event.proto: wall_time 1 (fixed64), step 2 (varint), summary 5 { value 1 { tag 1, simple_value 2
// } }.
TEST(EventFile, ScalarEventIsTheProtocolBuffer) {
  EXPECT_EQ(Hex(ScalarEvent("loss", 300, 1.5f, 2.0)),
            "09"
            "0000000000000040"
            "10"
            "ac02"
            "2a"
            "0d"
            "0a"
            "0b"
            "0a"
            "04"
            "6c6f7373"
            "15"
            "0000c03f");
}

// wall_time 1, step 2, session_log 7 { status 1: START }: TensorBoard drops earlier files' events from this step on.
TEST(EventFile, RestartEventIsTheProtocolBuffer) {
  EXPECT_EQ(Hex(RestartEvent(300, 2.0)),
            "09"
            "0000000000000040"
            "10"
            "ac02"
            "3a"
            "02"
            "0801");
}

// histo 5 { min 1, max 2, num 3, sum 4, sum_squares 5, bucket_limit 6, bucket 7 }; two values, in the first bin and the
// last.
TEST(EventFile, HistogramEventHasLimitsAndCounts) {
  float values[] = {1, 3};
  const Histogram h = MakeHistogram({{DType::kF32, {2}}, values});
  ASSERT_EQ(h.counts.size(), 64u);
  EXPECT_EQ(h.counts[0], 1);
  EXPECT_EQ(h.counts[63], 1);
  EXPECT_EQ(h.Edge(0), 1);
  EXPECT_EQ(h.Edge(32), 2);
  EXPECT_EQ(h.Edge(64), 3);
  const std::string bytes = Hex(HistogramEvent({"w", 1, 2.0}, h));
  EXPECT_EQ(bytes.substr(0, 22), "0900000000000000401001");
  EXPECT_NE(bytes.find("09000000000000f03f"
                       "110000000000000840"
                       "190000000000000040"
                       "210000000000001040"
                       "290000000000002440"
                       "328004"),
            std::string::npos);
}

TEST(Histogram, CountsWhatIsNotFiniteApart) {
  float values[] = {std::nanf(""), -INFINITY, 3e38f, -3e38f};
  const Histogram h = MakeHistogram({{DType::kF32, {4}}, values});
  EXPECT_EQ(h.count, 2);
  EXPECT_EQ(h.nan, 1);
  EXPECT_EQ(h.infinite, 1);
  EXPECT_EQ(h.counts[0] + h.counts[63], 2);
  EXPECT_TRUE(MakeHistogram({{DType::kF32, {1}}, values}).counts.empty());
  double wide[] = {-1.5e308, 1.5e308, 0};  // their difference is infinite
  const Histogram d = MakeHistogram({{DType::kF64, {3}}, wide});
  EXPECT_EQ(d.counts[0], 1);
  EXPECT_EQ(d.counts[32], 1);
  EXPECT_EQ(d.counts[63], 1);
  int32_t same[] = {5, 5};
  EXPECT_EQ(MakeHistogram({{DType::kI32, {2}}, same}).counts[0], 2);
}

// The masked CRC of TFRecord over known bytes: crc32c("123456789") = e3069283.
TEST(EventFile, RecordCarriesMaskedChecksums) {
  const std::string record = TfRecord("123456789");
  ASSERT_EQ(record.size(), 8u + 4 + 9 + 4);
  uint32_t crc;
  memcpy(&crc, &record[8 + 4 + 9], 4);
  const uint32_t raw = 0xe3069283u;
  EXPECT_EQ(crc, (raw >> 15 | raw << 17) + 0xa282ead8u);
}

}  // namespace
}  // namespace mslua
