#include <zlib.h>

#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Names = std::vector<std::string>;

// A picture of 1 x 2 pixels: the first dark, the second bright.
const std::string kGrey = std::string("P5 # of a test\n2 1\n255\n") + '\x07' + '\xc8';
const std::string kColours = std::string("P6 2 1 255\n") + "\x01\x02\x03" + "\x0a\x0b\x0c";

std::vector<int> PixelsOf(const Reader& reader, int64_t i) {
  ReadBuffers buffers;
  std::vector<RawColumn> row(reader.columns().size());
  EXPECT_TRUE(reader.Read(i, &buffers, absl::MakeSpan(row)).ok());
  const auto* p = static_cast<const uint8_t*>(row[0].data);
  return std::vector<int>(p, p + row[0].type.elements());
}

TEST(PicturesTest, GreyAndColours) {
  const std::string path = Folder("pictures");
  Put(path + "/grey.pgm", kGrey);
  Put(path + "/colours.ppm", kColours);
  const Opened grey = Open("pictures", {{"dataset_files", Names{path + "/grey.pgm"}},
                                        {"channels", int64_t{1}},
                                        {"zeros", std::map<std::string, std::string>{{"label", "i32[]"}}}});
  ASSERT_TRUE(grey.ok()) << grey.status();
  EXPECT_EQ((*grey)->columns()[1].name, "label");
  EXPECT_THAT(PixelsOf(**grey, 0), ElementsAre(7, 200));
  EXPECT_EQ(NumbersOf(**grey, 0).back(), 0);
  const Opened both = Open("pictures", {{"dataset_files", Names{path + "/grey.pgm", path + "/colours.ppm"}}});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_THAT(PixelsOf(**both, 0), ElementsAre(7, 7, 7, 200, 200, 200));
  EXPECT_THAT(PixelsOf(**both, 1), ElementsAre(1, 2, 3, 10, 11, 12));
  EXPECT_EQ((*both)->Where(1), path + "/colours.ppm");
}

std::string BigEndian(uint32_t n) {
  return {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8), static_cast<char>(n)};
}

std::string Chunk(const std::string& type, const std::string& data) {
  const std::string all = type + data;
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(all.data()), static_cast<uInt>(all.size()));
  return BigEndian(static_cast<uint32_t>(data.size())) + all + BigEndian(static_cast<uint32_t>(crc));
}

// A PNG of one row of `width` pixels, whose bytes are `row`; `more`: chunks before the pixels.
std::string Png(uint32_t width, int bits, int colour_type, const std::string& row, const std::string& more = "") {
  const std::string raw = '\0' + row;
  uLongf size = compressBound(raw.size());
  std::string packed(size, '\0');
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(&packed[0]), &size, reinterpret_cast<const Bytef*>(raw.data()),
                     static_cast<uLong>(raw.size())),
            Z_OK);
  packed.resize(size);
  const std::string header =
      BigEndian(width) + BigEndian(1) + static_cast<char>(bits) + static_cast<char>(colour_type) + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + Chunk("IHDR", header) + more + Chunk("IDAT", packed) + Chunk("IEND", "");
}

// The values that PIL, torchvision and OpenCV give.
TEST(PicturesTest, PngValuesAsTheyAreInTheFile) {
  const std::string path = Folder("pngs") + "/x.png";
  const auto pixels = [&](const std::string& bytes, int64_t channels = 3) {
    Put(path, bytes);
    const Opened opened = Open("pictures", {{"dataset_files", Names{path}}, {"channels", channels}});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? PixelsOf(**opened, 0) : std::vector<int>();
  };
  constexpr int kGreyPng = 0, kRgb = 2, kPalette = 3, kGreyAlpha = 4, kRgba = 6;
  EXPECT_THAT(pixels(Png(2, 16, kGreyPng, std::string("\x20\xff\x80\x00", 4)), 1), ElementsAre(32, 128));
  EXPECT_THAT(pixels(Png(1, 16, kRgb, std::string("\x01\x80\x20\xff\xff\x00", 6))), ElementsAre(1, 32, 255));
  EXPECT_THAT(pixels(Png(1, 16, kRgba, std::string("\x01\x80\x20\xff\xff\x00\x00\x00", 8))), ElementsAre(1, 32, 255));
  const std::string linear = Chunk("gAMA", BigEndian(100000)), srgb = Chunk("gAMA", BigEndian(45455));
  for (const std::string& more : {linear, srgb, Chunk("sRGB", std::string(1, '\0'))}) {
    EXPECT_THAT(pixels(Png(1, 8, kRgb, "\x01\x20\x80", more)), ElementsAre(1, 32, 128));
    EXPECT_THAT(pixels(Png(2, 8, kGreyPng, "\x20\x80", more), 1), ElementsAre(32, 128));
  }
  EXPECT_THAT(pixels(Png(3, 1, kGreyPng, "\xa0"), 1), ElementsAre(255, 0, 255));
  const std::string palette = Chunk("PLTE", "\x07\x08\x09\x0a\x0b\x0c"), clear = Chunk("tRNS", std::string(1, '\0'));
  EXPECT_THAT(pixels(Png(2, 4, kPalette, "\x10", palette + clear)), ElementsAre(10, 11, 12, 7, 8, 9));
  EXPECT_THAT(pixels(Png(1, 8, kGreyAlpha, std::string("\x20\x00", 2)), 1), ElementsAre(32));  // not blended
  EXPECT_THAT(pixels(Png(1, 8, kRgba, std::string("\x01\x20\x80\x00", 4))), ElementsAre(1, 32, 128));
}

TEST(PicturesTest, ErrorsNameTheFile) {
  const std::string path = Folder("bad_pictures");
  Put(path + "/colours.ppm", kColours);
  Put(path + "/text.png", "no picture");
  const auto message = [&](const std::string& name, FieldMap fields) {
    fields["dataset_files"] = Names{path + name};
    const Opened opened = Open("pictures", fields);
    return Message(opened.ok() ? ReadAll(**opened) : opened.status());
  };
  EXPECT_THAT(message("/text.png", {}), HasSubstr("/text.png is neither a JPEG nor a PNG nor a PPM file"));
  EXPECT_THAT(message("/colours.ppm", {{"channels", int64_t{1}}}),
              HasSubstr("/colours.ppm has 3 channels, expected 1 as in the recipe's data"));
  EXPECT_THAT(message("/colours.ppm", {{"height", int64_t{5}}}),
              HasSubstr("1x2 pixels (height x width), expected 5xany"));
  EXPECT_THAT(message("/absent.png", {}), HasSubstr("absent.png"));
  EXPECT_THAT(message("/colours.ppm", {{"channels", int64_t{2}}}), HasSubstr("expected 1 or 3"));
  for (const char* type : {"i32", "nothing[]", "i32[0]", "i32[9999999,9999999]"}) {
    EXPECT_THAT(message("/colours.ppm", {{"zeros", std::map<std::string, std::string>{{"label", type}}}}),
                HasSubstr("label: expected a type such as i32[]"));
  }
}

TEST(PicturesTest, DamagedFiles) {
  const std::string path = Folder("damaged_pictures") + "/x.ppm";
  Fuzz(path, kColours, 2000, [&] { return Open("pictures", {{"dataset_files", Names{path}}}); });
  Fuzz(path, kGrey, 2000, [&] { return Open("pictures", {{"dataset_files", Names{path}}}); });
  for (const std::string& png : {Png(2, 16, 6, std::string(16, '\7'), Chunk("gAMA", BigEndian(100000))),
                                 Png(2, 4, 3, "\x10", Chunk("PLTE", "\x07\x08\x09\x0a\x0b\x0c"))}) {
    Fuzz(path, png, 1000, [&] { return Open("pictures", {{"dataset_files", Names{path}}}); });
  }
}

}  // namespace
}  // namespace mslua::data
