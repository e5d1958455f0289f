#include "core/data/loader.h"
#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

// clang-format off: jpeglib.h uses FILE and size_t and includes neither.
#include <jpeglib.h>
#include <png.h>
#include <stdio.h>
// clang-format on

namespace mslua::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// `inks`: cyan, magenta, yellow and black, as printing programs write them; 255 is no ink.
std::string Jpeg(int width, int height, bool inks = false) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &out, &size);
  jpeg.image_width = width;
  jpeg.image_height = height;
  const int channels = inks ? 4 : 3;
  jpeg.input_components = channels;
  jpeg.in_color_space = inks ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  if (inks) jpeg_set_quality(&jpeg, 100, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  std::vector<uint8_t> line(static_cast<size_t>(width * channels));
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width * 3 && !inks; ++x) line[x] = static_cast<uint8_t>(x * 5 + y * 3);
    for (int x = 0; x < width && inks; ++x) {
      const uint8_t ink[] = {255, 128, 0, 204};
      std::copy_n(ink, 4, line.begin() + 4 * x);
    }
    JSAMPROW row = line.data();
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string bytes(reinterpret_cast<char*>(out), size);
  free(out);
  return bytes;
}

std::string Png(int width, int height, bool alpha) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
  std::vector<uint8_t> pixels(width * height * (alpha ? 4 : 3));
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i);
  png_alloc_size_t size = 1 << 20;
  std::string bytes(size, '\0');
  EXPECT_TRUE(png_image_write_to_memory(&image, &bytes[0], &size, 0, pixels.data(), 0, nullptr));
  bytes.resize(size);
  return bytes;
}

TEST(ImageFolderTest, ClassesInOrderOfTheirNames) {
  const std::string path = Folder("images_root");
  for (const char* name : {"b_dog", "a_cat", "c_empty"}) ASSERT_TRUE(MakeFolders(path + "/" + name).ok());
  Put(path + "/b_dog/1.JPG", Jpeg(20, 10));
  Put(path + "/a_cat/2.png", Png(6, 4, true));
  Put(path + "/a_cat/notes.txt", "not an image");
  Put(path + "/b_dog/2.WebP", "RIFF");
  ASSERT_TRUE(MakeFolders(path + "/b_dog/more").ok());
  const Opened reader = Open("image_folder", {{"dataset_dir", path}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), 2);
  EXPECT_THAT(
      (*reader)->notices(),
      ElementsAre(HasSubstr("left out 2 images of other formats, or folders, such as 2.WebP"), HasSubstr("c_empty")));
  EXPECT_EQ(LabelOf(**reader, 0), 0);
  EXPECT_EQ(LabelOf(**reader, 1), 1);
  ReadBuffers buffers;
  std::vector<RawColumn> row(2);
  ASSERT_TRUE((*reader)->Read(0, &buffers, absl::MakeSpan(row)).ok());
  EXPECT_EQ(ToString(row[0].type), "u8[4,6,3]");
  EXPECT_EQ(static_cast<const uint8_t*>(row[0].data)[3], 4);  // the second pixel's red: alpha is left out

  // Sizes differ: an error without Resize, fine with it.
  const auto bare = Pipeline::Open(Dataset(Source("image_folder", {{"dataset_dir", path}})).Batch({2}), {});
  ASSERT_TRUE(bare.ok()) << bare.status();
  Loader loader(*bare, {});
  Batch batch;
  EXPECT_THAT(Message(loader.Next(&batch).status()),
              AllOf(HasSubstr("1.JPG"), HasSubstr("shapes differ within a batch: column 'image' is u8[10,20,3]"),
                    HasSubstr("u8[4,6,3]"), HasSubstr("Resize")));
  const auto resized = Pipeline::Open(
      Dataset(Source("image_folder", {{"dataset_dir", path}})).Map({{Resize{8, 8}, HWC2CHW{}}, {"image"}}).Batch({2}),
      {});
  ASSERT_TRUE(resized.ok());
  EXPECT_EQ(ToString((*resized)->schema()[0].type), "u8[2,3,8,8]");
  Loader good(*resized, {});
  EXPECT_TRUE(*good.Next(&batch));
}

// As PIL: 255 * 204 / 255, 128 * 204 / 255 and 0.
TEST(ImageFolderTest, InksBecomeColours) {
  const std::string path = Folder("images_inks");
  ASSERT_TRUE(MakeFolders(path + "/a").ok());
  Put(path + "/a/1.jpg", Jpeg(9, 5, /*inks=*/true));
  const Opened reader = Open("image_folder", {{"dataset_dir", path}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  ReadBuffers buffers;
  RawColumn row[2];
  ASSERT_TRUE((*reader)->Read(0, &buffers, absl::MakeSpan(row)).ok());
  EXPECT_EQ(row[0].type.shape, (Shape{5, 9, 3}));
  ASSERT_EQ(buffers.pixels.size(), 5u * 9 * 3);
  const double want[] = {204, 102, 0};
  for (size_t i = 0; i < buffers.pixels.size(); ++i) EXPECT_NEAR(buffers.pixels[i], want[i % 3], 3) << i;
}

TEST(ImageFolderTest, ClassNamesAreDifferent) {
  const std::string path = Folder("images_twice");
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(MakeFolders(absl::StrCat(path, "/", name)).ok());
    Put(absl::StrCat(path, "/", name, "/1.png"), Png(4, 4, false));
  }
  EXPECT_THAT(
      Message(Open("image_folder", {{"dataset_dir", path}, {"class_names", std::vector<std::string>{"b", "a", "b"}}})
                  .status()),
      HasSubstr("class_names has 'b' twice"));
}

TEST(ImageFolderTest, Errors) {
  const std::string path = Folder("images_bad");
  EXPECT_THAT(Message(Open("image_folder", {{"dataset_dir", path + "/none"}}).status()), HasSubstr("no folder"));
  EXPECT_THAT(Message(Open("image_folder", {{"dataset_dir", path}}).status()), HasSubstr("no image"));
  ASSERT_TRUE(MakeFolders(path + "/c").ok());
  const auto message = [&](const std::string& bytes) {
    Put(path + "/c/1.jpg", bytes);
    return Message(ReadAll(**Open("image_folder", {{"dataset_dir", path}})));
  };
  EXPECT_EQ(message(Jpeg(40, 40)), "");
  EXPECT_THAT(message(Jpeg(40, 40).substr(0, 700)),
              AllOf(HasSubstr("c/1.jpg is a corrupt JPEG"), HasSubstr("remature end")));
  EXPECT_EQ(message(Png(40, 40, false)), "");  // known by its content
  EXPECT_THAT(message(Png(40, 40, false).substr(0, 200)), HasSubstr("c/1.jpg is a corrupt PNG"));
  EXPECT_THAT(message("P5 2 1 65535 abcd"),
              HasSubstr("is a PNM whose values go up to 65535, expected up to 255; fix:"));
  EXPECT_THAT(message("P6 60000 60000 255 "), HasSubstr("has 60000x60000 pixels, expected 100000000 at most"));
  EXPECT_THAT(message("P6 6"), HasSubstr("is a corrupt PNM (its header is cut off)"));
  std::string large = Png(40, 40, false);
  large.replace(16, 17, std::string("\0\0\xea\x60\0\0\xea\x60\x08\x02\0\0\0\x0f\xb0\xe2\x15", 17));
  EXPECT_THAT(message(large), HasSubstr("has 60000x60000 pixels, expected 100000000 at most"));
  EXPECT_THAT(message("GIF89a"), HasSubstr("neither a JPEG nor a PNG nor a PPM"));
  EXPECT_THAT(message(""), HasSubstr("neither a JPEG nor a PNG nor a PPM"));
}

TEST(ImageFolderTest, DamagedFilesNeverCrash) {
  const std::string path = Folder("images_fuzz");
  ASSERT_TRUE(MakeFolders(path + "/c").ok());
  Fuzz(path + "/c/1.jpg", Jpeg(24, 17), 1000, [&] { return Open("image_folder", {{"dataset_dir", path}}); });
  Fuzz(path + "/c/1.jpg", Png(9, 8, true), 1000, [&] { return Open("image_folder", {{"dataset_dir", path}}); });
}

}  // namespace
}  // namespace mslua::data
