// The numbers of torchvision 0.14.1's functions of tensors for the same image and magnitudes.
#include "core/data/image_ops.h"

#include <cmath>

#include "core/data/augment.h"
#include "core/data/loader.h"
#include "core/data/testing/memory_sources.h"
#include "gtest/gtest.h"

namespace mslua::data {
namespace {

constexpr int64_t kChannels = 3, kHeight = 6, kWidth = 5;

constexpr uint8_t kSharp[] = {0,   28,  57,  86,  115, 10,  42,  78,  114, 155, 43,  82,  126, 185, 215, 98,  160, 226,
                              255, 43,  175, 255, 0,   71,  148, 19,  82,  147, 210, 19,  37,  66,  95,  123, 153, 47,
                              79,  116, 151, 191, 81,  119, 179, 237, 252, 135, 213, 255, 0,   80,  212, 0,   35,  123,
                              185, 55,  120, 183, 247, 55,  74,  102, 132, 160, 190, 85,  116, 153, 204, 228, 117, 172,
                              231, 255, 33,  172, 255, 0,   31,  116, 250, 0,   103, 192, 221, 92,  157, 220, 28,  92};
constexpr uint8_t kPosterized[] = {
    0,   0,   32,  64,  96,  0,   32,  64,  96,  128, 32, 64,  128, 160, 192, 96,  128, 192, 224, 32,  160, 224, 32,
    64,  128, 0,   64,  128, 192, 0,   32,  64,  64,  96, 128, 32,  64,  96,  128, 192, 64,  96,  160, 192, 224, 128,
    160, 224, 0,   64,  192, 0,   64,  128, 160, 32,  96, 160, 224, 32,  64,  96,  128, 160, 160, 64,  96,  128, 192,
    224, 96,  160, 192, 224, 32,  160, 192, 0,   64,  96, 224, 32,  96,  160, 192, 64,  128, 192, 0,   64};
constexpr uint8_t kSolarized[] = {0,  29,  58,  87, 139, 11,  47,  83,  136, 100, 44,  87, 125, 82, 39, 99,  106, 56,
                                  6,  43,  79,  22, 34,  91,  107, 19,  83,  108, 44,  19, 37,  66, 95, 131, 102, 48,
                                  84, 135, 99,  63, 81,  131, 88,  45,  2,   119, 69,  19, 30,  80, 42, 14,  71,  127,
                                  70, 56,  135, 71, 7,   56,  74,  103, 123, 94,  65,  85, 134, 98, 62, 26,  137, 94,
                                  51, 8,   34,  82, 32,  17,  67,  138, 5,   51,  108, 90, 33,  93, 98, 34,  29,  93};
constexpr uint8_t kStretched[] = {
    0,   28,  59,  88,  119, 10,  47,  84,  121, 158, 45,  88,  133, 176, 222, 100, 152, 203, 255, 43,  180, 238, 34,
    92,  152, 18,  84,  150, 215, 18,  23,  55,  85,  117, 147, 36,  75,  113, 152, 190, 70,  117, 162, 210, 255, 130,
    184, 237, 17,  70,  212, 0,   60,  122, 182, 45,  113, 182, 250, 45,  63,  93,  126, 156, 189, 74,  113, 152, 191,
    231, 111, 156, 204, 250, 19,  170, 224, 0,   54,  108, 255, 37,  100, 161, 224, 82,  152, 222, 13,  82};
constexpr uint8_t kShearedX[] = {
    0,   29,  58,  87,  116, 11, 47,  83,  119, 155, 87,  130, 173, 216, 0,   149, 199, 249, 43,  0,   233, 34,  91,
    148, 0,   147, 211, 19,  0,  0,   37,  66,  95,  124, 153, 48,  84,  120, 156, 192, 124, 167, 210, 253, 0,   186,
    236, 30,  80,  0,   14,  71, 128, 185, 0,   184, 248, 56,  0,   0,   74,  103, 132, 161, 190, 85,  121, 157, 193,
    229, 161, 204, 247, 34,  0,  223, 17,  67,  117, 0,   51,  108, 165, 222, 0,   221, 29,  93,  0,   0};
constexpr uint8_t kShearedY[] = {
    0,   29,  0,   0,   0,   11,  47,  58,  87,  116, 44,  87,  83,  119, 155, 99,  149, 130, 173, 216, 176, 233, 199,
    249, 43,  19,  83,  34,  91,  148, 37,  66,  0,   0,   0,   48,  84,  95,  124, 153, 81,  124, 120, 156, 192, 136,
    186, 167, 210, 253, 213, 14,  236, 30,  80,  56,  120, 71,  128, 185, 74,  103, 0,   0,   0,   85,  121, 132, 161,
    190, 118, 161, 157, 193, 229, 173, 223, 204, 247, 34,  250, 51,  17,  67,  117, 93,  157, 108, 165, 222};
constexpr uint8_t kShifted[] = {0, 0, 0,   29,  58,  0, 0, 11,  47,  83,  0, 0, 44,  87,  130, 0, 0, 99,  149, 199,
                                0, 0, 176, 233, 34,  0, 0, 19,  83,  147, 0, 0, 37,  66,  95,  0, 0, 48,  84,  120,
                                0, 0, 81,  124, 167, 0, 0, 136, 186, 236, 0, 0, 213, 14,  71,  0, 0, 56,  120, 184,
                                0, 0, 74,  103, 132, 0, 0, 85,  121, 157, 0, 0, 118, 161, 204, 0, 0, 173, 223, 17,
                                0, 0, 250, 51,  108, 0, 0, 93,  157, 221};
constexpr uint8_t kBicubic[] = {
    2,   39,  73,  110, 5,   47,  85,  127, 19,  68,  113, 166, 39,  93,  140, 217, 72,  141, 230, 137, 123, 175,
    233, 65,  187, 170, 68,  138, 112, 136, 113, 98,  11,  104, 227, 31,  39,  76,  110, 147, 42,  84,  122, 164,
    56,  105, 153, 204, 76,  129, 194, 255, 111, 206, 152, 156, 155, 197, 92,  74,  197, 29,  90,  170, 132, 57,
    178, 138, 51,  158, 255, 68,  76,  113, 147, 184, 79,  121, 156, 222, 93,  144, 196, 204, 112, 175, 255, 77,
    150, 179, 141, 59,  195, 131, 27,  134, 234, 47,  126, 214, 168, 113, 129, 160, 88,  213, 91,  73};

Planes Image() {
  Planes image;
  image.Resize(kChannels, kHeight, kWidth);
  for (int64_t c = 0; c < kChannels; ++c) {
    for (int64_t y = 0; y < kHeight; ++y) {
      for (int64_t x = 0; x < kWidth; ++x)
        image.plane(c)[y * kWidth + x] = static_cast<float>((37 * c + 11 * y * y + 29 * x + 7 * x * y) % 256);
    }
  }
  return image;
}

template <size_t n>
void ExpectNear(const Planes& got, const uint8_t (&want)[n], double tolerance) {
  ASSERT_EQ(got.values.size(), n);
  for (size_t i = 0; i < n; ++i) EXPECT_NEAR(got.values[i], want[i], tolerance) << "element " << i;
}

TEST(ImageOpsTest, ColoursAsTorchvision) {
  Planes image = Image();
  AdjustSharpness(1.8f, 255, &image);
  ExpectNear(image, kSharp, 1);
  image = Image();
  Posterize(3, 255, &image);
  ExpectNear(image, kPosterized, 0);
  image = Image();
  Solarize(110, 255, &image);
  ExpectNear(image, kSolarized, 0);
  image = Image();
  for (float& v : image.values) v = std::floor(v / 2) + 20;
  AutoContrast(255, &image);
  ExpectNear(image, kStretched, 1);
}

TEST(ImageOpsTest, EqualizeAsTorchvision) {
  Planes image;
  image.Resize(1, 30, 40);
  for (int64_t y = 0; y < 30; ++y) {
    for (int64_t x = 0; x < 40; ++x)
      image.values[static_cast<size_t>(y * 40 + x)] = static_cast<float>((x * x + 3 * y * x + y) % 97 + 40);
  }
  Equalize(255, &image);
  int64_t sum = 0, weighted = 0;
  for (size_t i = 0; i < image.values.size(); ++i) {
    sum += static_cast<int64_t>(image.values[i]);
    weighted += static_cast<int64_t>(image.values[i]) * static_cast<int64_t>(i + 1);
  }
  EXPECT_EQ(sum, 174272);
  EXPECT_EQ(weighted % 1000003, 776959);
}

TEST(ImageOpsTest, GeometryAsTorchvision) {
  Planes out;
  MovePixels(ShearBy(0.3, 0, Image()), false, 0, Image(), &out);
  ExpectNear(out, kShearedX, 0);
  MovePixels(ShearBy(0, -0.3, Image()), false, 0, Image(), &out);
  ExpectNear(out, kShearedY, 0);
  MovePixels(ShiftBy(2, 0), false, 0, Image(), &out);
  ExpectNear(out, kShifted, 0);
}

// An image of integers, and the same of numbers from 0 to 1, for each operation in both directions.
TEST(ImageOpsTest, AugmentationsKeepTheRange) {
  AugmentLimits limits;
  limits.shear = 0.3, limits.rotate = 30, limits.colour = 0.9, limits.least_bits = 4,
  limits.shift_x = limits.shift_y = 2;
  Planes spare;
  for (int op = 0; op < kAugmentations; ++op) {
    for (const bool negative : {false, true}) {
      for (const float bound : {255.0f, 1.0f}) {
        Planes image = Image();
        for (float& v : image.values) v *= bound / 255;
        Augment(op, 20, 31, negative, limits, false, 0, bound, &image, &spare);
        ASSERT_EQ(image.values.size(), static_cast<size_t>(kChannels * kHeight * kWidth));
        for (const float v : image.values) {
          EXPECT_TRUE(v >= 0 && v <= bound) << op << " gives " << v;
          EXPECT_TRUE(bound == 1 || v == std::floor(v)) << op << " gives " << v;
        }
      }
    }
  }
}

TEST(ImageOpsTest, BicubicAsTorchvision) {
  auto pixels = std::make_shared<std::vector<uint8_t>>();
  const Planes image = Image();
  for (int64_t i = 0; i < kHeight * kWidth; ++i) {
    for (int64_t c = 0; c < kChannels; ++c) pixels->push_back(static_cast<uint8_t>(image.plane(c)[i]));
  }
  const Dataset dataset =
      Dataset(NumpySlices({{"image", {DType::kU8, {1, kHeight, kWidth, kChannels}}, {pixels, pixels->data()}}}))
          .Map({{Vision{"resize_bicubic", {{"size", std::vector<double>{9, 4}}}}, HWC2CHW{}}, {"image"}});
  const auto pipeline = Pipeline::Open(dataset, {});
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  Loader loader(*pipeline, {0});
  Batch batch;
  ASSERT_TRUE(*loader.Next(&batch));
  EXPECT_EQ(ToString(batch.columns[0].type), "u8[3,9,4]");
  for (size_t i = 0; i < std::size(kBicubic); ++i)
    EXPECT_NEAR(batch.columns[0].as<uint8_t>()[i], kBicubic[i], 1) << "element " << i;
}

// The pixels whose centres are nearest: PyTorch's "nearest-exact".
TEST(ImageOpsTest, NearestKeepsValues) {
  auto pixels = std::make_shared<std::vector<uint8_t>>();
  for (int i = 0; i < 4 * 5; ++i) pixels->push_back(static_cast<uint8_t>(10 * i));
  const auto resized = [&](const Transform& transform) {
    const Dataset dataset = Dataset(NumpySlices({{"image", {DType::kU8, {1, 4, 5, 1}}, {pixels, pixels->data()}}}))
                                .Map({{transform}, {"image"}});
    const auto pipeline = Pipeline::Open(dataset, {});
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    Loader loader(*pipeline, {0});
    Batch batch;
    EXPECT_TRUE(*loader.Next(&batch));
    const auto* values = batch.columns[0].as<uint8_t>();
    return std::vector<int>(values, values + batch.columns[0].type.elements());
  };
  const auto resize = [&](std::vector<double> size) { return resized(Vision{"resize_nearest", {{"size", size}}}); };
  EXPECT_EQ(resize({2, 3}), (std::vector<int>{50, 70, 90, 150, 170, 190}));
  EXPECT_EQ(resize({4, 5}), std::vector<int>(pixels->begin(), pixels->end()));
  EXPECT_EQ(resize({8, 5}).size(), 40u);
  EXPECT_EQ(resize({2}), resize({2, 2}));  // the shorter edge
  const std::vector<int> crop = resized(
      Vision{"random_resized_crop", {{"size", std::vector<double>{7}}, {"interpolation", std::string("nearest")}}});
  for (const int value : crop) EXPECT_EQ(value % 10, 0);
}

}  // namespace
}  // namespace mslua::data
