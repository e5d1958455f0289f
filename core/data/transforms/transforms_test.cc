// What holds for every transform of the folder, and the numbers of torchvision 0.14.1's tensor functions for the same
// factors, angles and boxes.
#include <cmath>
#include <set>

#include "core/data/loader.h"
#include "core/data/testing/memory_sources.h"
#include "core/data/testing/source_testing.h"
#include "core/data/vision.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr int64_t kChannels = 3, kHeight = 6, kWidth = 5;

constexpr uint8_t kBright[] = {
    0,   37,  75,  113, 150, 14,  61,  107, 154, 201, 57,  113, 169, 224, 255, 128, 193, 255, 255, 55,  228, 255, 44,
    118, 192, 24,  107, 191, 255, 24,  48,  85,  123, 161, 198, 62,  109, 156, 202, 249, 105, 161, 217, 255, 255, 176,
    241, 255, 39,  104, 255, 18,  92,  166, 240, 72,  156, 239, 255, 72,  96,  133, 171, 209, 246, 110, 157, 204, 250,
    255, 153, 209, 255, 255, 44,  224, 255, 22,  87,  152, 255, 66,  140, 214, 255, 120, 204, 255, 37,  120};
constexpr uint8_t kContrast[] = {
    49,  66,  84,  101, 119, 56,  77,  99,  120, 142, 75,  101, 127, 153, 179, 108, 138, 168, 198, 75,  155, 189, 69,
    104, 138, 60,  99,  137, 176, 60,  71,  89,  106, 123, 141, 78,  99,  121, 143, 164, 98,  123, 149, 175, 201, 131,
    161, 191, 67,  97,  177, 57,  92,  126, 160, 83,  121, 159, 198, 83,  93,  111, 128, 146, 163, 100, 122, 143, 165,
    186, 120, 146, 171, 197, 69,  153, 183, 59,  89,  119, 199, 80,  114, 148, 182, 105, 143, 182, 66,  105};
constexpr uint8_t kSaturated[] = {
    0,   8,   37,  66,  95,  0,   26,  62,  98,  134, 23,  66,  109, 152, 216, 78,  128, 199, 255, 22,  155, 255, 13,
    70,  127, 0,   62,  126, 211, 0,   41,  70,  99,  128, 157, 52,  88,  124, 160, 196, 85,  128, 171, 214, 255, 140,
    190, 255, 0,   84,  217, 0,   75,  132, 189, 60,  124, 188, 255, 60,  104, 133, 162, 191, 220, 115, 151, 187, 223,
    255, 148, 191, 234, 255, 0,   203, 253, 0,   44,  147, 255, 28,  138, 195, 252, 123, 187, 251, 0,   123};
constexpr uint8_t kHue[] = {51,  80,  109, 138, 167, 62,  98,  134, 170, 206, 95,  138, 181, 224, 33,  150, 200, 16,
                            242, 94,  227, 226, 85,  142, 199, 70,  134, 198, 29,  70,  0,   29,  57,  87,  116, 10,
                            47,  83,  119, 155, 44,  87,  130, 173, 253, 98,  149, 236, 249, 43,  176, 233, 34,  90,
                            148, 18,  83,  147, 248, 18,  74,  103, 132, 161, 190, 85,  121, 157, 193, 229, 118, 161,
                            204, 247, 114, 173, 223, 97,  29,  117, 250, 13,  108, 165, 222, 93,  157, 221, 109, 93};
constexpr uint8_t kGrey[] = {30,  59,  88,  117, 146, 41,  77, 113, 149, 185, 74, 117, 160, 203, 216,
                             129, 179, 199, 99,  73,  206, 83, 64,  121, 178, 49, 113, 177, 211, 49};
constexpr uint8_t kBlurred[] = {
    31,  46,  80,  115, 130, 44,  60,  97,  128, 142, 80,  93,  129, 149, 158, 121, 125, 148, 148, 153, 141, 133, 141,
    129, 135, 140, 130, 135, 120, 127, 68,  83,  117, 152, 167, 81,  97,  128, 158, 168, 107, 123, 143, 159, 159, 122,
    135, 140, 144, 136, 114, 122, 128, 139, 136, 106, 113, 126, 142, 143, 105, 120, 154, 178, 188, 118, 128, 158, 172,
    178, 144, 142, 153, 151, 156, 159, 145, 131, 129, 136, 151, 141, 120, 126, 130, 143, 140, 120, 128, 126};
constexpr uint8_t kNearest[] = {
    0,   58,  87,  155, 0,   29,  83,  119, 216, 216, 47,  87,  130, 249, 43,  44,  87,  199, 249, 91,  99,  99,  233,
    34,  211, 0,   176, 83,  147, 0,   0,   95,  124, 192, 0,   66,  120, 156, 253, 253, 84,  124, 167, 30,  80,  81,
    124, 236, 30,  128, 136, 136, 14,  71,  248, 0,   213, 120, 184, 0,   0,   132, 161, 229, 0,   103, 157, 193, 34,
    34,  121, 161, 204, 67,  117, 118, 161, 17,  67,  165, 173, 173, 51,  108, 29,  0,   250, 157, 221, 0};
constexpr uint8_t kBilinear[] = {
    9,   11,  13,  23,  11,  37,  70, 63,  60, 62,  172, 144, 125, 112, 104, 170, 127, 205, 178, 160, 138, 90,  163,
    122, 72,  30,  152, 132, 20,  9,  9,   19, 50,  60,  16,  49,  107, 100, 97,  99,  149, 181, 162, 149, 141, 57,
    125, 162, 201, 197, 175, 127, 83, 122, 83, 35,  189, 169, 28,  9,   9,   26,  87,  97,  21,  61,  144, 137, 134,
    136, 186, 218, 171, 186, 178, 94, 84,  69, 232, 185, 212, 134, 120, 98,  19,  19,  63,  203, 35,  9};
constexpr uint8_t kReflected[] = {
    87,  44,  87,  130, 173, 216, 47,  11,  47,  83,  119, 155, 29,  0,   29,  58,  87,  116, 47,  11,  47,  83,
    119, 155, 87,  44,  87,  130, 173, 216, 149, 99,  149, 199, 249, 43,  233, 176, 233, 34,  91,  148, 83,  19,
    83,  147, 211, 19,  233, 176, 233, 34,  91,  148, 149, 99,  149, 199, 249, 43,  87,  44,  87,  130, 173, 216,
    124, 81,  124, 167, 210, 253, 84,  48,  84,  120, 156, 192, 66,  37,  66,  95,  124, 153, 84,  48,  84,  120,
    156, 192, 124, 81,  124, 167, 210, 253, 186, 136, 186, 236, 30,  80,  14,  213, 14,  71,  128, 185, 120, 56,
    120, 184, 248, 56,  14,  213, 14,  71,  128, 185, 186, 136, 186, 236, 30,  80,  124, 81,  124, 167, 210, 253,
    161, 118, 161, 204, 247, 34,  121, 85,  121, 157, 193, 229, 103, 74,  103, 132, 161, 190, 121, 85,  121, 157,
    193, 229, 161, 118, 161, 204, 247, 34,  223, 173, 223, 17,  67,  117, 51,  250, 51,  108, 165, 222, 157, 93,
    157, 221, 29,  93,  51,  250, 51,  108, 165, 222, 223, 173, 223, 17,  67,  117, 161, 118, 161, 204, 247, 34};
constexpr uint8_t kSymmetric[] = {
    11,  11,  47,  83,  119, 155, 0,   0,   29,  58,  87,  116, 0,   0,   29,  58,  87,  116, 11,  11,  47,  83,
    119, 155, 44,  44,  87,  130, 173, 216, 99,  99,  149, 199, 249, 43,  176, 176, 233, 34,  91,  148, 19,  19,
    83,  147, 211, 19,  19,  19,  83,  147, 211, 19,  176, 176, 233, 34,  91,  148, 99,  99,  149, 199, 249, 43,
    48,  48,  84,  120, 156, 192, 37,  37,  66,  95,  124, 153, 37,  37,  66,  95,  124, 153, 48,  48,  84,  120,
    156, 192, 81,  81,  124, 167, 210, 253, 136, 136, 186, 236, 30,  80,  213, 213, 14,  71,  128, 185, 56,  56,
    120, 184, 248, 56,  56,  56,  120, 184, 248, 56,  213, 213, 14,  71,  128, 185, 136, 136, 186, 236, 30,  80,
    85,  85,  121, 157, 193, 229, 74,  74,  103, 132, 161, 190, 74,  74,  103, 132, 161, 190, 85,  85,  121, 157,
    193, 229, 118, 118, 161, 204, 247, 34,  173, 173, 223, 17,  67,  117, 250, 250, 51,  108, 165, 222, 93,  93,
    157, 221, 29,  93,  93,  93,  157, 221, 29,  93,  250, 250, 51,  108, 165, 222, 173, 173, 223, 17,  67,  117};
constexpr uint8_t kEdge[] = {
    0,   0,   29,  58,  87,  116, 0,   0,   29,  58,  87,  116, 0,   0,   29,  58,  87,  116, 11,  11,  47,  83,
    119, 155, 44,  44,  87,  130, 173, 216, 99,  99,  149, 199, 249, 43,  176, 176, 233, 34,  91,  148, 19,  19,
    83,  147, 211, 19,  19,  19,  83,  147, 211, 19,  19,  19,  83,  147, 211, 19,  19,  19,  83,  147, 211, 19,
    37,  37,  66,  95,  124, 153, 37,  37,  66,  95,  124, 153, 37,  37,  66,  95,  124, 153, 48,  48,  84,  120,
    156, 192, 81,  81,  124, 167, 210, 253, 136, 136, 186, 236, 30,  80,  213, 213, 14,  71,  128, 185, 56,  56,
    120, 184, 248, 56,  56,  56,  120, 184, 248, 56,  56,  56,  120, 184, 248, 56,  56,  56,  120, 184, 248, 56,
    74,  74,  103, 132, 161, 190, 74,  74,  103, 132, 161, 190, 74,  74,  103, 132, 161, 190, 85,  85,  121, 157,
    193, 229, 118, 118, 161, 204, 247, 34,  173, 173, 223, 17,  67,  117, 250, 250, 51,  108, 165, 222, 93,  93,
    157, 221, 29,  93,  93,  93,  157, 221, 29,  93,  93,  93,  157, 221, 29,  93,  93,  93,  157, 221, 29,  93};
constexpr uint8_t kConstant[] = {
    7,   7,   7,   7,   7,   7,   7,   7,   7, 7,   7,   7,   7,   0,   29,  58,  87,  116, 7,   11,  47,  83,
    119, 155, 7,   44,  87,  130, 173, 216, 7, 99,  149, 199, 249, 43,  7,   176, 233, 34,  91,  148, 7,   19,
    83,  147, 211, 19,  7,   7,   7,   7,   7, 7,   7,   7,   7,   7,   7,   7,   7,   7,   7,   7,   7,   7,
    7,   7,   7,   7,   7,   7,   7,   7,   7, 7,   7,   7,   7,   37,  66,  95,  124, 153, 7,   48,  84,  120,
    156, 192, 7,   81,  124, 167, 210, 253, 7, 136, 186, 236, 30,  80,  7,   213, 14,  71,  128, 185, 7,   56,
    120, 184, 248, 56,  7,   7,   7,   7,   7, 7,   7,   7,   7,   7,   7,   7,   7,   7,   7,   7,   7,   7,
    7,   7,   7,   7,   7,   7,   7,   7,   7, 7,   7,   7,   7,   74,  103, 132, 161, 190, 7,   85,  121, 157,
    193, 229, 7,   118, 161, 204, 247, 34,  7, 173, 223, 17,  67,  117, 7,   250, 51,  108, 165, 222, 7,   93,
    157, 221, 29,  93,  7,   7,   7,   7,   7, 7,   7,   7,   7,   7,   7,   7,   7,   7,   7,   7,   7,   7};
constexpr uint8_t kAffine[] = {99,  99,  87,  130, 130, 176, 233, 199, 199, 249, 83,  34,  34,  91,  249, 83,  147, 211,
                               91,  148, 9,   9,   211, 19,  9,   9,   9,   9,   9,   9,   136, 136, 124, 167, 167, 213,
                               14,  236, 236, 30,  120, 71,  71,  128, 30,  120, 184, 248, 128, 185, 9,   9,   248, 56,
                               9,   9,   9,   9,   9,   9,   173, 173, 161, 204, 204, 250, 51,  17,  17,  67,  157, 108,
                               108, 165, 67,  157, 221, 29,  165, 222, 9,   9,   29,  93,  9,   9,   9,   9,   9,   9};
constexpr uint8_t kAffineBilinear[] = {
    0,   0,   0,   0,   0,   0,   48,  72,  0,   0,   2,   86,  161, 77,  2,   21, 73, 162, 172, 89,  7,   65,  165,
    53,  150, 0,   47,  170, 125, 6,   0,   0,   0,   0,   0,   0,   66,  90,  0,  0,  4,   123, 198, 104, 2,   48,
    110, 179, 73,  126, 44,  102, 202, 89,  178, 1,   75,  129, 106, 8,   0,   0,  0,  0,   0,   0,   83,  109, 0,
    0,   5,   160, 186, 66,  2,   76,  147, 193, 110, 159, 81,  139, 124, 123, 24, 1,  102, 166, 143, 8};
constexpr uint8_t kSharp[] = {0,   29,  58,  87,  116, 11,  43,  79,  115, 155, 44,  83,  126, 183, 216, 99,  159, 222,
                              255, 43,  176, 255, 0,   73,  148, 19,  83,  147, 211, 19,  37,  66,  95,  124, 153, 48,
                              80,  116, 152, 192, 81,  120, 177, 233, 253, 136, 209, 255, 0,   80,  213, 0,   40,  124,
                              185, 56,  120, 184, 248, 56,  74,  103, 132, 161, 190, 85,  117, 153, 203, 229, 118, 171,
                              227, 255, 34,  173, 255, 0,   36,  117, 250, 6,   104, 188, 222, 93,  157, 221, 29,  93};
constexpr uint8_t kEqualized[] = {
    0,   29,  58,  87,  116, 11,  47,  83,  119, 155, 44,  87,  130, 173, 216, 99,  149, 199, 249, 43,  176, 233, 34,
    91,  148, 19,  83,  147, 211, 19,  37,  66,  95,  124, 153, 48,  84,  120, 156, 192, 81,  124, 167, 210, 253, 136,
    186, 236, 30,  80,  213, 14,  71,  128, 185, 56,  120, 184, 248, 56,  74,  103, 132, 161, 190, 85,  121, 157, 193,
    229, 118, 161, 204, 247, 34,  173, 223, 17,  67,  117, 250, 51,  108, 165, 222, 93,  157, 221, 29,  93};
constexpr uint8_t kStretched[] = {
    0,   29,  59,  88,  119, 11,  47,  85,  121, 159, 44,  88,  133, 177, 222, 100, 152, 203, 255, 44,  181, 239, 34,
    94,  152, 18,  85,  150, 217, 18,  24,  56,  86,  116, 148, 37,  74,  113, 152, 189, 72,  116, 162, 208, 255, 131,
    184, 237, 17,  70,  212, 0,   61,  122, 182, 46,  113, 180, 249, 46,  61,  94,  125, 158, 189, 74,  114, 153, 193,
    231, 111, 158, 204, 251, 18,  171, 225, 0,   54,  109, 255, 38,  100, 162, 224, 83,  153, 224, 12,  83};
constexpr float kCropped[] = {
    83.0f,  105.5f,   132.5f,   155.0f, 115.9f, 141.463f, 172.138f, 197.7f, 164.5f, 193.562f, 180.438f, 129.5f,
    149.5f, 182.062f, 153.938f, 74.5f,  34.0f,  69.625f,  112.375f, 148.0f, 120.0f, 142.5f,   169.5f,   192.0f,
    152.9f, 178.463f, 209.137f, 234.7f, 201.5f, 150.562f, 137.438f, 166.5f, 186.5f, 107.062f, 78.9375f, 111.5f,
    71.0f,  106.625f, 149.375f, 185.0f, 157.0f, 179.5f,   206.5f,   229.0f, 189.9f, 215.463f, 178.938f, 92.5f,
    110.5f, 139.562f, 126.438f, 75.5f,  44.3f,  76.8625f, 115.938f, 148.5f, 108.0f, 143.625f, 186.375f, 222.0f};

// The image that the numbers above were made of.
float PixelAt(int64_t c, int64_t y, int64_t x) {
  return static_cast<float>((37 * c + 11 * y * y + 29 * x + 7 * x * y) % 256);
}

Dataset Image(bool bytes = true) {
  auto pixels = std::make_shared<std::vector<uint8_t>>();
  for (int64_t y = 0; y < kHeight; ++y) {
    for (int64_t x = 0; x < kWidth; ++x) {
      for (int64_t c = 0; c < kChannels; ++c) pixels->push_back(static_cast<uint8_t>(PixelAt(c, y, x)));
    }
  }
  const Dataset image(
      NumpySlices({{"image", {DType::kU8, {1, kHeight, kWidth, kChannels}}, {pixels, pixels->data()}}}));
  return bytes ? image : image.Map({{TypeCast{DType::kF32}}, {"image"}});
}

// The first sample of the dataset as planes.
std::vector<float> Values(const Dataset& dataset, FeedOptions options = {}) {
  const auto pipeline = Pipeline::Open(dataset.Map({{HWC2CHW{}, TypeCast{DType::kF32}}, {"image"}}), options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  Loader loader(*pipeline, {0});
  Batch batch;
  const auto more = loader.Next(&batch);
  EXPECT_TRUE(more.ok()) << more.status();
  if (!more.ok()) return {};
  const float* p = batch.columns[0].as<float>();
  return {p, p + batch.columns[0].type.elements()};
}
std::vector<float> Values(const std::string& kind, const FieldMap& fields) {
  return Values(Image().Map({{Vision{kind, fields}}, {"image"}}));
}
std::string ErrorOf(const std::string& kind, const FieldMap& fields) {
  return Message(Pipeline::Open(Image().Map({{Vision{kind, fields}}, {"image"}}), {}).status());
}
using Numbers = std::vector<double>;

template <class T, size_t n>
void ExpectNear(const std::vector<float>& got, const T (&want)[n], double tolerance) {
  ASSERT_EQ(got.size(), n);
  for (size_t i = 0; i < n; ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
}

TEST(TransformsTest, DeclarationsAreWhole) {
  std::set<std::string> classes;
  for (const VisionDef& def : VisionTransforms()) {
    SCOPED_TRACE(def.kind);
    EXPECT_TRUE(classes.insert(def.class_name).second);
    EXPECT_NE(def.doc, "");
    EXPECT_NE(def.move == nullptr, def.paint == nullptr);
    for (const FieldDef& field : def.fields) EXPECT_NE(field.doc, "") << field.name;
  }
}

TEST(TransformsTest, ColoursAsTorchvision) {
  ExpectNear(Values("color_jitter", {{"brightness", Numbers{1.3, 1.3}}}), kBright, 1);
  ExpectNear(Values("color_jitter", {{"contrast", Numbers{0.6, 0.6}}}), kContrast, 1);
  ExpectNear(Values("color_jitter", {{"saturation", Numbers{1.7, 1.7}}}), kSaturated, 1);
  ExpectNear(Values("color_jitter", {{"hue", Numbers{0.2, 0.2}}}), kHue, 1);
  ExpectNear(Values("grayscale", {}), kGrey, 1);
}

TEST(TransformsTest, GeometryAsTorchvision) {
  ExpectNear(Values("gaussian_blur", {{"kernel_size", Numbers{3, 5}}, {"sigma", 1.1}}), kBlurred, 1);
  ExpectNear(Values("random_rotation", {{"degrees", Numbers{30, 30}}}), kNearest, 0);
  ExpectNear(Values("random_rotation", {{"degrees", Numbers{-50, -50}}, {"resample", "bilinear"}, {"fill_value", 9}}),
             kBilinear, 1);
  const auto pad = [](const char* mode, double fill) {
    return Values("pad", {{"padding", Numbers{1, 2, 0, 3}}, {"padding_mode", mode}, {"fill_value", fill}});
  };
  ExpectNear(pad("reflect", 0), kReflected, 0);
  ExpectNear(pad("symmetric", 0), kSymmetric, 0);
  ExpectNear(pad("edge", 0), kEdge, 0);
  ExpectNear(pad("constant", 7), kConstant, 0);
}

TEST(TransformsTest, AffineAsTorchvision) {
  ExpectNear(Values("random_affine", {{"degrees", Numbers{25, 25}},
                                      {"translate", Numbers{0.2, 0.2, -1 / 3.0, -1 / 3.0}},
                                      {"scale", Numbers{1.2, 1.2}},
                                      {"shear", Numbers{15, 15}},
                                      {"fill_value", 9}}),
             kAffine, 0);
  ExpectNear(Values("random_affine", {{"degrees", Numbers{-40, -40}},
                                      {"translate", Numbers{0, 0, 0.17, 0.17}},
                                      {"scale", Numbers{0.8, 0.8}},
                                      {"shear", Numbers{-10, -10, 20, 20}},
                                      {"resample", "bilinear"}}),
             kAffineBilinear, 1);
}

TEST(TransformsTest, RandomColoursAsTorchvision) {
  const FieldMap always{{"prob", 1}}, never{{"prob", 0}};
  ExpectNear(Values("random_adjust_sharpness", {{"degree", 1.7}, {"prob", 1}}), kSharp, 1);
  ExpectNear(Values("random_equalize", always), kEqualized, 0);
  const Vision flat{"color_jitter", {{"contrast", Numbers{0.6, 0.6}}}};
  ExpectNear(Values(Image().Map({{flat, Vision{"random_auto_contrast", always}}, {"image"}})), kStretched, 2);
  const std::vector<float> image = Values("random_invert", never), grey = Values("random_grayscale", always);
  for (const char* kind : {"random_equalize", "random_auto_contrast", "random_grayscale"})
    EXPECT_EQ(Values(kind, never), image) << kind;
  ASSERT_EQ(grey.size(), image.size());
  const std::vector<float> inverted = Values("random_invert", always),
                           coarse = Values("random_posterize", {{"bits", 3}}),
                           solar = Values("random_solarize", {{"threshold", Numbers{100, 100}}});
  for (size_t i = 0; i < image.size(); ++i) {
    EXPECT_NEAR(grey[i], kGrey[i % (kHeight * kWidth)], 1);
    EXPECT_EQ(inverted[i], 255 - image[i]);
    EXPECT_EQ(coarse[i], static_cast<float>(static_cast<int>(image[i]) & 0xe0));
    EXPECT_EQ(solar[i], image[i] == 100 ? 155 : image[i]);
  }
  int changed = 0;
  const std::vector<float> all = Values("random_solarize", {{"threshold", Numbers{0, 255}}});
  for (size_t i = 0; i < image.size(); ++i) {
    changed += all[i] != image[i];
    EXPECT_THAT(all[i], AnyOf(image[i], 255 - image[i]));
  }
  EXPECT_GT(changed, 0);
  EXPECT_LT(changed, static_cast<int>(image.size()));
}

// kCropped is of the part [4, 3] at row 1, column 2: the drawn part of another seed may be another one.
TEST(TransformsTest, ResizedCropsAsTorchvision) {
  const FieldMap fields{{"size", Numbers{5, 4}}, {"scale", Numbers{0.4, 0.4}}, {"ratio", Numbers{0.75, 0.75}}};
  bool found = false;
  for (uint64_t seed = 0; seed < 200 && !found; ++seed) {
    FeedOptions options;
    options.seed = seed;
    const std::vector<float> got =
        Values(Image(false).Map({{Vision{"random_resized_crop", fields}}, {"image"}}), options);
    ASSERT_EQ(got.size(), std::size(kCropped));
    double worst = 0;
    for (size_t i = 0; i < got.size(); ++i) worst = std::max<double>(worst, std::abs(got[i] - kCropped[i]));
    found = worst < 1e-3;
  }
  EXPECT_TRUE(found);
}

// A column of pixels.
Dataset Column(std::vector<float> pixels, DType dtype) {
  const auto kept = std::make_shared<std::vector<float>>(std::move(pixels));
  const auto height = static_cast<int64_t>(kept->size());
  const Dataset image(NumpySlices({{"image", {DType::kF32, {1, height, 1, 1}}, {kept, kept->data()}}}));
  return dtype == DType::kF32 ? image : image.Map({{TypeCast{dtype}}, {"image"}});
}

// The rows that the second one mixes are no neighbours in the picture.
TEST(TransformsTest, ScalesBehindTheNearestPixels) {
  const Vision nearest{"resize_nearest", {{"size", Numbers{4, 1}}}};
  const Dataset image = Column({0, 10, 20, 30, 40, 50, 60, 70}, DType::kF32);
  ExpectNear(Values(image.Map({{nearest, Resize{3, 1}}, {"image"}})), {40 / 3.0, 40.0, 200 / 3.0}, 1e-4);
}

// 15 and 16 scaled to 15, 15.25, 15.75 and 16.
TEST(TransformsTest, TransformsOfBytesGetBytes) {
  const Vision posterize{"random_posterize", {{"bits", Numbers{4, 4}}}};
  const Dataset image = Column({15, 16}, DType::kU8);
  ExpectNear(Values(image.Map({{Resize{4, 1}, posterize}, {"image"}})), {0.0, 0.0, 16.0, 16.0}, 0);
}

TEST(TransformsTest, FlipsAndErasures) {
  const std::vector<float> flipped = Values("random_vertical_flip", {{"prob", 1}});
  ASSERT_EQ(flipped.size(), static_cast<size_t>(kChannels * kHeight * kWidth));
  for (int64_t y = 0; y < kHeight; ++y)
    EXPECT_EQ(flipped[static_cast<size_t>(y * kWidth)], PixelAt(0, kHeight - 1 - y, 0));
  const std::vector<float> erased =
      Values("random_erasing", {{"prob", 1}, {"scale", Numbers{0.2, 0.2}}, {"ratio", Numbers{1.5, 1.5}}, {"value", 3}});
  int changed = 0;
  for (int64_t i = 0; i < kHeight * kWidth; ++i) changed += erased[static_cast<size_t>(i)] == 3;
  EXPECT_EQ(changed, 6);  // 3 rows of 2: sqrt(6 * 1.5), sqrt(6 / 1.5)
}

// The same numbers for a sample, whatever rows a feed takes; other ones in another epoch.
TEST(TransformsTest, DrawsBelongToTheSample) {
  auto pixels = std::make_shared<std::vector<uint8_t>>(8 * 16 * 16 * 3);
  for (size_t i = 0; i < pixels->size(); ++i) (*pixels)[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  const Dataset images = Dataset(NumpySlices({{"image", {DType::kU8, {8, 16, 16, 3}}, {pixels, pixels->data()}}}))
                             .Map({{Vision{"random_resized_crop", {{"size", 8}}},
                                    Vision{"color_jitter", {{"brightness", 0.4}, {"hue", 0.1}}},
                                    Vision{"random_rotation", {{"degrees", 20}}}, Vision{"random_erasing", {}}},
                                   {"image"}})
                             .Batch({2});
  const auto batches = [&](const FeedOptions& options, int workers) {
    const auto pipeline = Pipeline::Open(images, options);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    Loader loader(*pipeline, {workers});
    std::vector<std::string> all;
    Batch batch;
    for (int epoch = 0; epoch < 2; ++epoch) {
      while (*loader.Next(&batch)) {
        all.emplace_back(static_cast<const char*>(batch.columns[0].data),
                         static_cast<size_t>(batch.columns[0].type.bytes()));
      }
    }
    return all;
  };
  const auto whole = batches({}, 0);
  ASSERT_EQ(whole.size(), 8u);
  EXPECT_NE(whole[0], whole[4]);
  EXPECT_EQ(batches({}, 2), whole);
  const auto second = batches({0, 2, 1}, 0);
  EXPECT_EQ(second[0], whole[1]);
  EXPECT_EQ(second[1], whole[3]);
}

TEST(TransformsTest, Errors) {
  EXPECT_THAT(ErrorOf("color_jiter", {}), HasSubstr("unknown transform 'color_jiter'"));
  EXPECT_THAT(ErrorOf("color_jitter", {{"hue", 0.7}}), HasSubstr("ColorJitter: hue: expected a number from 0 to 0.5"));
  EXPECT_THAT(ErrorOf("color_jitter", {{"brightnes", 1}}), HasSubstr("did you mean 'brightness'?"));
  EXPECT_THAT(ErrorOf("pad", {{"padding", Numbers{1, 2, 3}}}), HasSubstr("expected 1, 2 or 4 numbers, got 3"));
  EXPECT_THAT(ErrorOf("pad", {{"padding", 6}, {"padding_mode", "reflect"}}), HasSubstr("larger than its border"));
  EXPECT_THAT(ErrorOf("pad", {{"padding", 1.5}}), HasSubstr("Pad: padding: expected an integer or a list of integers"));
  EXPECT_THAT(ErrorOf("gaussian_blur", {{"kernel_size", 4}}), HasSubstr("kernel_size: expected an odd number"));
  EXPECT_THAT(ErrorOf("gaussian_blur", {{"kernel_size", 99}}), HasSubstr("larger than twice the image"));
  EXPECT_THAT(ErrorOf("random_resized_crop", {}), HasSubstr("size is missing"));
  EXPECT_THAT(ErrorOf("random_rotation", {{"degrees", -3}}), HasSubstr("degrees: expected a number of at least 0"));
  EXPECT_THAT(ErrorOf("random_erasing", {{"value", Numbers{1, 2}}}), HasSubstr("expected 1 or 3 numbers, got 2"));
  EXPECT_THAT(ErrorOf("grayscale", {{"num_output_channels", 2}}), HasSubstr("expected 1 or 3, got 2"));
  EXPECT_THAT(ErrorOf("random_posterize", {{"bits", 0}}), HasSubstr("bits: expected an integer from 1 to 8"));
  EXPECT_THAT(ErrorOf("random_solarize", {{"threshold", Numbers{9, 3}}}), HasSubstr("threshold: expected {least"));
  for (const char* field : {"translate", "scale", "shear"}) {
    EXPECT_THAT(ErrorOf("random_affine", {{"degrees", 3}, {field, Numbers{2, 1}}}),
                HasSubstr(absl::StrCat("RandomAffine: ", field, ": expected")));
  }
  EXPECT_THAT(ErrorOf("random_affine", {{"degrees", 3}, {"translate", Numbers{0, 1.5}}}), HasSubstr("from -1 to 1"));
  EXPECT_THAT(ErrorOf("random_affine", {{"degrees", 3}, {"scale", Numbers{0, 1}}}), HasSubstr("above 0"));
  const Dataset grey = Image().Map({{Vision{"grayscale", {}}, Vision{"color_jitter", {}}}, {"image"}});
  EXPECT_THAT(Message(Pipeline::Open(grey, {}).status()), HasSubstr("expected an image of 3 channels, got 1"));
}

}  // namespace
}  // namespace mslua::data
