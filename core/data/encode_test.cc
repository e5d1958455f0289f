#include "core/data/encode.h"

#include <cmath>
#include <limits>

#include "core/data/decode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TensorView View(std::vector<float>& values, Shape shape) { return {{DType::kF32, std::move(shape)}, values.data()}; }

TEST(EncodeTest, ReadsBackWhatItWrites) {
  std::vector<float> values = {0, 1, 0.5f, -3, 7, std::numeric_limits<float>::quiet_NaN()};
  const auto picture = MakePicture(View(values, {2, 3}), {});
  ASSERT_EQ(picture.status(), absl::OkStatus());
  EXPECT_THAT(picture->pixels, ElementsAre(0, 255, 128, 0, 255, 0));
  const auto png = EncodePng(*picture);
  ASSERT_EQ(png.status(), absl::OkStatus());
  std::vector<uint8_t> pixels;
  int64_t height = 0, width = 0, channels = 0;
  ASSERT_EQ(DecodeImage({png->begin(), png->end()}, &pixels, &height, &width, &channels), absl::OkStatus());
  EXPECT_THAT((std::vector<int64_t>{height, width, channels}), ElementsAre(2, 3, 1));
  for (size_t i = 0; i < picture->pixels.size(); ++i) EXPECT_EQ(pixels[3 * i], picture->pixels[i]);
}

TEST(EncodeTest, GridsHaveRowsOfPicturesWithPaddingAroundEach) {
  std::vector<float> values(3 * 3 * 2 * 1);  // three RGB pictures of 2x1
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  PictureOptions options;
  options.high = 255;
  options.columns = 2;
  options.padding = 1;
  const auto picture = MakePicture(View(values, {3, 3, 2, 1}), options);
  ASSERT_EQ(picture.status(), absl::OkStatus());
  ASSERT_EQ(picture->height, 7);
  ASSERT_EQ(picture->width, 5);
  const auto at = [&](int64_t y, int64_t x, int64_t c) {
    return picture->pixels[static_cast<size_t>((y * 5 + x) * 3 + c)];
  };
  EXPECT_EQ(at(0, 1, 0), 0);
  EXPECT_EQ(at(1, 1, 0), 1);  // the first picture: channels are planes of 2 values
  EXPECT_EQ(at(2, 1, 2), 6);
  EXPECT_EQ(at(1, 3, 0), 7);
  EXPECT_EQ(at(4, 1, 1), 15);
  EXPECT_EQ(at(4, 3, 1), 0);  // there is no fourth
  const auto png = EncodePng(*picture);
  ASSERT_EQ(png.status(), absl::OkStatus());
  std::vector<uint8_t> pixels;
  int64_t height = 0, width = 0;
  ASSERT_EQ(DecodeImage({png->begin(), png->end()}, &pixels, &height, &width), absl::OkStatus());
  EXPECT_TRUE(std::equal(picture->pixels.begin(), picture->pixels.end(), pixels.begin()));
}

TEST(EncodeTest, RefusesWhatIsNoPicture) {
  std::vector<float> values(8);
  EXPECT_THAT(MakePicture(View(values, {2, 2, 2}), {}).status().message(), HasSubstr("c = 1 or 3, got f32[2,2,2]"));
  EXPECT_FALSE(MakePicture(View(values, {8}), {}).ok());
  EXPECT_FALSE(MakePicture(View(values, {0, 1, 2, 2}), {}).ok());
  PictureOptions options;
  options.low = 1;
  EXPECT_THAT(MakePicture(View(values, {2, 4}), options).status().message(), HasSubstr("low < high"));
}

}  // namespace
}  // namespace mslua::data
