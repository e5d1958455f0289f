#include "core/train/event_file.h"

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
