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
  EXPECT_THAT(message("/colours.ppm", {{"height", int64_t{5}}}), HasSubstr("1x2 pixels (height x width), expected 5x"));
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
}

}  // namespace
}  // namespace mslua::data
