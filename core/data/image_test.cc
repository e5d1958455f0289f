#include "core/data/image.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// An image [h,w,c] in f64 and the transforms one after another, each as its definition reads.
struct Plain {
  int64_t h, w, c;
  std::vector<double> v;
  double& at(int64_t y, int64_t x, int64_t k) { return v[(y * w + x) * c + k]; }
  double get(int64_t y, int64_t x, int64_t k) const {
    return y < 0 || x < 0 || y >= h || x >= w ? 0 : v[(y * w + x) * c + k];
  }
};

template <class F>
Plain Make(int64_t h, int64_t w, int64_t c, F value) {
  Plain out{h, w, c, std::vector<double>(h * w * c)};
  for (int64_t y = 0; y < h; ++y) {
    for (int64_t x = 0; x < w; ++x) {
      for (int64_t k = 0; k < c; ++k) out.at(y, x, k) = value(y, x, k);
    }
  }
  return out;
}

Plain Bilinear(const Plain& in, int64_t h, int64_t w) {
  return Make(h, w, in.c, [&](int64_t y, int64_t x, int64_t k) {
    const auto source = [](int64_t i, int64_t from, int64_t to) {
      return std::clamp((i + 0.5) * from / to - 0.5, 0.0, from - 1.0);
    };
    const double sy = source(y, in.h, h), sx = source(x, in.w, w);
    const int64_t y0 = std::floor(sy), x0 = std::floor(sx);
    const int64_t y1 = std::min(y0 + 1, in.h - 1), x1 = std::min(x0 + 1, in.w - 1);
    const double top = in.get(y0, x0, k) * (1 - (sx - x0)) + in.get(y0, x1, k) * (sx - x0);
    const double bottom = in.get(y1, x0, k) * (1 - (sx - x0)) + in.get(y1, x1, k) * (sx - x0);
    return top * (1 - (sy - y0)) + bottom * (sy - y0);
  });
}

Plain Reference(Plain image, const std::vector<Transform>& transforms, const Draws& draws) {
  size_t stream = 0;
  for (const Transform& t : transforms) {
    const Plain in = image;
    if (const auto* crop = std::get_if<RandomCrop>(&t)) {
      const uint64_t key = draws.streams[stream++];
      const int64_t top =
          UniformIntAt(draws.seed, key, 2 * draws.index, in.h + crop->top + crop->bottom - crop->height + 1);
      const int64_t left =
          UniformIntAt(draws.seed, key, 2 * draws.index + 1, in.w + crop->left + crop->right - crop->width + 1);
      image = Make(crop->height, crop->width, in.c, [&](int64_t y, int64_t x, int64_t k) {
        return in.get(y + top - crop->top, x + left - crop->left, k);
      });
    } else if (const auto* flip = std::get_if<RandomHorizontalFlip>(&t)) {
      if (UniformAt(draws.seed, draws.streams[stream++], draws.index) < flip->prob) {
        image = Make(in.h, in.w, in.c, [&](int64_t y, int64_t x, int64_t k) { return in.get(y, in.w - 1 - x, k); });
      }
    } else if (const auto* center = std::get_if<CenterCrop>(&t)) {
      image = Make(center->height, center->width, in.c, [&](int64_t y, int64_t x, int64_t k) {
        return in.get(y + (in.h - center->height) / 2, x + (in.w - center->width) / 2, k);
      });
    } else if (const auto* resize = std::get_if<Resize>(&t)) {
      image = Bilinear(in, resize->height, resize->width);
    } else if (const auto* rescale = std::get_if<Rescale>(&t)) {
      for (double& v : image.v) v = v * rescale->scale + rescale->shift;
    } else if (const auto* normalize = std::get_if<Normalize>(&t)) {
      image = Make(in.h, in.w, in.c, [&](int64_t y, int64_t x, int64_t k) {
        return (in.get(y, x, k) - normalize->mean[k % normalize->mean.size()]) /
               normalize->std[k % normalize->std.size()];
      });
    }
  }
  return image;
}

std::vector<uint8_t> Noise(int64_t n) {
  std::vector<uint8_t> pixels(n);
  for (int64_t i = 0; i < n; ++i) pixels[i] = static_cast<uint8_t>(UniformIntAt(1, 2, i, 256));
  return pixels;
}

const std::vector<std::vector<Transform>>& Chains() {
  static const std::vector<std::vector<Transform>> chains{
      {},
      {RandomCrop{32, 32, 4, 4, 4, 4}, RandomHorizontalFlip{}, Rescale{1 / 255.0},
       Normalize{{0.5, 0.4, 0.3}, {0.2, 0.3, 0.4}}},
      {RandomHorizontalFlip{1}, Resize{224, 224}, Rescale{1 / 255.0}},
      {Resize{7, 50}, RandomCrop{5, 40, 1, 2, 3, 4}},
      {RandomCrop{20, 21, 0, 0, 0, 0}, Resize{33, 64}, CenterCrop{40, 41}, Rescale{2, -1}},
      // Two resizes, and padding of what is normalised: more than one pass.
      {Resize{64, 48}, Resize{20, 90}, Rescale{0.1}},
      {Rescale{1 / 255.0, 1}, RandomCrop{36, 36, 4, 4, 4, 4}, Normalize{{0.5}, {0.25}}, Resize{18, 18}},
      {CenterCrop{50, 10}, RandomHorizontalFlip{0.5}},
      {Resize{1, 1}, Resize{3, 3}},
  };
  return chains;
}

TEST(ImageTest, ChainsEqualTheTransformsOneByOne) {
  const auto pixels = Noise(32 * 32 * 3);
  const uint64_t streams[] = {11, 12, 13};
  ImageScratch scratch;  // kept: what one image leaves there must not show in the next
  for (const bool planes_in : {false, true}) {
    for (const bool planes_out : {false, true}) {
      for (size_t number = 0; number < Chains().size(); ++number) {
        std::vector<Transform> transforms = Chains()[number];
        const Plain source = Make(32, 32, 3, [&](int64_t y, int64_t x, int64_t k) {
          return pixels[planes_in ? (k * 32 + y) * 32 + x : (y * 32 + x) * 3 + k];
        });
        transforms.push_back(TypeCast{DType::kF32});
        if (planes_out) transforms.push_back(HWC2CHW{});
        const auto chain = ImageChain::Make({DType::kU8, {32, 32, 3}}, transforms);
        ASSERT_TRUE(chain.ok()) << chain.status();
        for (uint64_t index = 0; index < 4; ++index) {
          const Draws draws{5, streams, index};
          const Plain want = Reference(source, transforms, draws);
          const Shape shape = planes_out ? Shape{3, want.h, want.w} : Shape{want.h, want.w, 3};
          ASSERT_EQ(ToString(chain->out()), ToString(TensorType{DType::kF32, shape}));
          std::vector<float> got(want.v.size());
          ASSERT_TRUE(
              chain->Apply({pixels.data(), DType::kU8, 32, 32, 3, planes_in}, draws, &scratch, got.data()).ok());
          for (int64_t y = 0; y < want.h; ++y) {
            for (int64_t x = 0; x < want.w; ++x) {
              for (int64_t k = 0; k < 3; ++k) {
                const float value = got[planes_out ? (k * want.h + y) * want.w + x : (y * want.w + x) * 3 + k];
                ASSERT_NEAR(value, want.get(y, x, k), 1e-4)
                    << "chain " << number << " at " << y << " " << x << " " << k;
              }
            }
          }
        }
      }
    }
  }
}

TEST(ImageTest, OtherChannelCounts) {
  for (int64_t channels : {1, 2, 4, 5, 9}) {
    const auto pixels = Noise(6 * 5 * channels);
    const Plain source =
        Make(6, 5, channels, [&](int64_t y, int64_t x, int64_t k) { return pixels[(y * 5 + x) * channels + k]; });
    const std::vector<Transform> transforms{Resize{11, 13}, Rescale{0.5}};
    const auto chain = ImageChain::Make({DType::kU8, {6, 5, channels}}, transforms);
    ASSERT_TRUE(chain.ok());
    const Plain want = Reference(source, transforms, {});
    std::vector<float> got(want.v.size());
    ImageScratch scratch;
    ASSERT_TRUE(chain->Apply({pixels.data(), DType::kU8, 6, 5, channels, false}, {}, &scratch, got.data()).ok());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want.v[i], 1e-4);
  }
}

TEST(ImageTest, BytesAreRoundedOnceAndCastsCut) {
  const uint8_t pixels[2] = {0, 255};  // resized to 4: 0, 63.75, 191.25, 255
  ImageScratch scratch;
  const auto round = ImageChain::Make({DType::kU8, {1, 2, 1}}, {Transform(Resize{1, 4})});
  uint8_t bytes[4];
  ASSERT_TRUE(round->Apply({pixels, DType::kU8, 1, 2, 1, false}, {}, &scratch, bytes).ok());
  EXPECT_THAT(bytes, ElementsAre(0, 64, 191, 255));
  const auto cut =
      ImageChain::Make({DType::kU8, {1, 2, 1}}, {Transform(Resize{1, 4}), Rescale{-1}, TypeCast{DType::kI32}});
  int32_t ints[4];
  ASSERT_TRUE(cut->Apply({pixels, DType::kU8, 1, 2, 1, false}, {}, &scratch, ints).ok());
  EXPECT_THAT(ints, ElementsAre(0, -63, -191, -255));
  const auto saturate = ImageChain::Make({DType::kU8, {1, 2, 1}}, {Transform(Rescale{-1}), TypeCast{DType::kU8}});
  ASSERT_TRUE(saturate->Apply({pixels, DType::kU8, 1, 2, 1, false}, {}, &scratch, bytes).ok());
  EXPECT_EQ(bytes[1], 0);
}

TEST(ImageTest, ResizeOfTheShorterEdge) {
  const auto chain = ImageChain::Make({DType::kU8, {-1, -1, 3}}, {Transform(Resize{256}), CenterCrop{224, 224}});
  ASSERT_TRUE(chain.ok());
  EXPECT_EQ(ToString(chain->out()), "u8[224,224,3]");
  const auto resize = ImageChain::Make({DType::kU8, {-1, -1, 3}}, {Transform(Resize{256}), HWC2CHW{}});
  EXPECT_EQ(ToString(*resize->ShapeFor(300, 600)), "[3,256,512]");
  EXPECT_EQ(ToString(*resize->ShapeFor(500, 375)), "[3,341,256]");
}

std::string ErrorOf(std::vector<Transform> transforms) {
  return std::string(ImageChain::Make({DType::kU8, {32, 32, 3}}, transforms).status().message());
}

TEST(ImageTest, BadArguments) {
  EXPECT_THAT(ErrorOf({RandomCrop{40, 40, 2, 2, 2, 2}}),
              HasSubstr("RandomCrop: the crop, 40x40, is larger than the padded image, 36x36"));
  EXPECT_THAT(ErrorOf({RandomCrop{32, 32, -1}}), HasSubstr("padding must not be negative"));
  EXPECT_THAT(ErrorOf({RandomHorizontalFlip{1.5}}), HasSubstr("expected a probability, got 1.5"));
  EXPECT_THAT(ErrorOf({Resize{0, 5}}), HasSubstr("Resize: expected a size"));
  EXPECT_THAT(ErrorOf({Resize{1 << 20, 5}}), HasSubstr("Resize: expected a size"));
  EXPECT_THAT(ErrorOf({Normalize{{1, 2}, {1, 2, 3}}}), HasSubstr("expected 1 or 3 means and deviations, got 2 and 3"));
  EXPECT_THAT(ErrorOf({Normalize{{0}, {0}}}), HasSubstr("expected positive deviations"));
  EXPECT_THAT(ErrorOf({HWC2CHW{}, Resize{2, 2}}), HasSubstr("Resize: comes after HWC2CHW"));
}

}  // namespace
}  // namespace mslua::data
