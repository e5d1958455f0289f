#include "core/data/reader.h"

#include "core/base/atomic_file.h"
#include "core/base/folder.h"

// clang-format off: jpeglib.h uses FILE and size_t and includes neither.
#include <jpeglib.h>
#include <png.h>
#include <stdio.h>
#include <zlib.h>
// clang-format on

#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "core/base/rng.h"
#include "core/data/file.h"
#include "core/data/loader.h"
#include "core/data/pickle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Opened = StatusOr<std::unique_ptr<Reader>>;

// A new empty folder.
std::string Folder(const std::string& name) {
  const std::string path = absl::StrCat(testing::TempDir(), "/reader_test_", name);
  std::filesystem::remove_all(path);
  EXPECT_TRUE(MakeFolders(path).ok());
  return path;
}

void Put(const std::string& path, const std::string& bytes) {
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok()) << path;
}

std::string Message(const Status& status) { return std::string(status.message()); }

// Reads all samples; the first error.
Status ReadAll(const Reader& reader) {
  ReadBuffers buffers;
  std::vector<RawColumn> row(reader.columns().size());
  for (int64_t i = 0; i < reader.size(); ++i) {
    RETURN_IF_ERROR(reader.Read(i, &buffers, absl::MakeSpan(row)));
    for (const RawColumn& column : row) {  // touch every byte: the sanitizers look
      const auto* p = static_cast<const uint8_t*>(column.data);
      volatile uint8_t sum = 0;
      for (int64_t k = 0; k < column.type.bytes(); ++k) sum = static_cast<uint8_t>(sum + p[k]);
    }
  }
  return absl::OkStatus();
}

// The label of sample i, the last column.
int32_t LabelOf(const Reader& reader, int64_t i) {
  ReadBuffers buffers;
  std::vector<RawColumn> row(reader.columns().size());
  const Status status = reader.Read(i, &buffers, absl::MakeSpan(row));
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? *static_cast<const int32_t*>(row.back().data) : -1;
}

// Damages `good` in many ways, puts it at `path` and opens and reads it: any outcome but a crash is right.
void Fuzz(const std::string& path, const std::string& good, int rounds, const std::function<Opened()>& open) {
  for (int round = 0; round < rounds; ++round) {
    std::string bad = good;
    const auto random = [&](uint64_t i, uint64_t bound) { return UniformIntAt(7, round, i, bound); };
    if (round % 3 == 0) bad.resize(random(0, bad.size()));
    for (uint64_t k = 0; k < 1 + random(1, 8) && !bad.empty(); ++k) {
      // Headers are short and come first: hit them often.
      const uint64_t reach = random(10 + 3 * k, 2) == 0 ? std::min<uint64_t>(64, bad.size()) : bad.size();
      bad[random(11 + 3 * k, reach)] = static_cast<char>(random(12 + 3 * k, 256));
    }
    // Without Put's fsync, and a new file: replacing one's content makes ext4 write it to disk at once.
    std::remove(path.c_str());
    std::ofstream(path, std::ios::binary) << bad;
    const Opened reader = open();
    const Status status = reader.ok() ? ReadAll(**reader) : reader.status();
    if (!status.ok()) {
      EXPECT_NE(status.message(), "");
    }
  }
}

std::string CifarRecords(int count, int labels = 1) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < labels; ++k) bytes.push_back(static_cast<char>((i + k) % 10));
    for (int p = 0; p < 3072; ++p) bytes.push_back(static_cast<char>(p + i));
  }
  return bytes;
}

TEST(CifarTest, ReadsTheBatchesThatAreThere) {
  const std::string path = Folder("cifar10");
  Put(path + "/data_batch_2.bin", CifarRecords(3));
  Put(path + "/data_batch_4.bin", CifarRecords(2));
  Put(path + "/test_batch.bin", CifarRecords(4));
  const Opened reader = OpenCifar10({path});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), 5);
  EXPECT_THAT((*reader)->notices(),
              ElementsAre(AllOf(HasSubstr("data_batch_1.bin, data_batch_3.bin, data_batch_5.bin not in"),
                                HasSubstr("5 samples"))));
  EXPECT_EQ(LabelOf(**reader, 4), 1);
  EXPECT_THAT((*reader)->Where(4), HasSubstr("data_batch_4.bin, record 1"));
  EXPECT_EQ((*OpenCifar10({path, Usage::kAll}))->size(), 9);
}

TEST(CifarTest, ImagesAreGivenRowByRow) {
  const std::string path = Folder("cifar_rows");
  Put(path + "/test_batch.bin", CifarRecords(1));
  const auto pipeline = Pipeline::Open(Dataset(Cifar10{path, Usage::kTest}), {});
  ASSERT_TRUE(pipeline.ok());
  Loader loader(*pipeline, {});
  Batch batch;
  ASSERT_TRUE(*loader.Next(&batch));
  const uint8_t* p = batch.columns[0].as<uint8_t>();
  for (int c = 0; c < 3; ++c) EXPECT_EQ(p[(5 * 32 + 7) * 3 + c], static_cast<uint8_t>(c * 1024 + 5 * 32 + 7));
}

TEST(CifarTest, Errors) {
  const std::string path = Folder("cifar_bad");
  EXPECT_THAT(Message(OpenCifar10({path}).status()),
              AllOf(HasSubstr("no data_batch_1.bin in '" + path + "'"), HasSubstr("cs.toronto.edu/~kriz/cifar.html"),
                    HasSubstr("mslua data make cifar10 " + path)));
  Put(path + "/data_batch_1.bin", CifarRecords(3).substr(0, 2 * 3073 + 100));
  EXPECT_THAT(Message(OpenCifar10({path}).status()),
              AllOf(HasSubstr("data_batch_1.bin is truncated in record 2"), HasSubstr("6246 bytes")));
  Put(path + "/data_batch_1.bin", "");
  EXPECT_THAT(Message(OpenCifar10({path}).status()), HasSubstr("truncated in record 0"));
  std::string bytes = CifarRecords(3);
  bytes[3073] = 77;
  Put(path + "/data_batch_1.bin", bytes);
  EXPECT_THAT(Message(ReadAll(**OpenCifar10({path}))),
              HasSubstr("data_batch_1.bin, record 1: label is 77, expected 0..9"));
}

TEST(CifarTest, Cifar100HasTwoLabels) {
  const std::string path = Folder("cifar100");
  Put(path + "/train.bin", CifarRecords(3, 2));
  const Opened reader = OpenCifar100({path});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->columns()[1].name, "coarse_label");
  EXPECT_EQ(LabelOf(**reader, 2), 3);
  EXPECT_THAT(Message(OpenCifar100({path, Usage::kTest}).status()), HasSubstr("no test.bin"));
}

std::string Little(uint64_t value, int width) {
  std::string bytes;
  for (int k = 0; k < width; ++k) bytes.push_back(static_cast<char>(value >> (8 * k) & 255));
  return bytes;
}

// A batch as Python 2's pickle protocol 2 writes it: rows of 3072 bytes, labels 0, 1, 2...
std::string Pickled(int rows, const std::vector<std::string>& keys) {
  const auto text = [](const std::string& s) { return "U" + Little(s.size(), 1) + s; };
  std::string p("\x80\x02}q\x01(", 6);
  p += text("batch_label") + "q\x02" + text("training batch 1 of 5") + "q\x03";
  for (const std::string& key : keys) {
    p += text(key) + "q\x04]q\x05(";
    for (int i = 0; i < rows; ++i) p += "K" + Little(i % 10, 1);
    p += "e";
  }
  std::string data;
  for (int i = 0; i < rows * 3072; ++i) data.push_back(static_cast<char>(i % 251));
  p += text("data") + "q\x06" + "cnumpy.core.multiarray\n_reconstruct\nq\x07" + "cnumpy\nndarray\nq\x08K" +
       Little(0, 1) + "\x85" + text("b") + "\x87Rq\t(K\x01M" + Little(rows, 2) + "M" + Little(3072, 2) + "\x86" +
       "cnumpy\ndtype\nq\n" + text("u1") + "K" + Little(0, 1) + "K\x01\x87Rq\x0b(K\x03" + text("|") +
       "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK" + Little(0, 1) + "tb\x89T" + Little(data.size(), 4) + data + "tb";
  return p + text("filenames") + "q\x0c]q\x0d(" + text("a.png") + "q\x0e" + text("b.png") + "q\x0f" + "eu.";
}

TEST(CifarTest, ReadsThePythonVersion) {
  const std::string path = Folder("cifar_py");
  Put(path + "/data_batch_1", Pickled(4, {"labels"}));
  const Opened reader = OpenCifar10({path});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), 4);
  EXPECT_EQ(LabelOf(**reader, 3), 3);
  ReadBuffers buffers;
  std::vector<RawColumn> row(2);
  ASSERT_TRUE((*reader)->Read(1, &buffers, absl::MakeSpan(row)).ok());
  EXPECT_EQ(static_cast<const uint8_t*>(row[0].data)[0], 3072 % 251);

  const std::string hundred = Folder("cifar100_py");
  Put(hundred + "/train", Pickled(4, {"fine_labels", "coarse_labels"}));
  const Opened two = OpenCifar100({hundred});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(LabelOf(**two, 2), 2);

  Put(path + "/data_batch_1", Pickled(4, {"labels"}).substr(0, 5000));
  EXPECT_THAT(Message(OpenCifar10({path}).status()),
              AllOf(HasSubstr("data_batch_1"), HasSubstr("it ends early"), HasSubstr("CIFAR-10 binary version")));
  Put(path + "/data_batch_1", Pickled(4, {"names"}));
  EXPECT_THAT(Message(OpenCifar10({path}).status()), HasSubstr("'labels' has 0 entries for 4 images"));
}

TEST(CifarTest, DamagedFilesNeverCrash) {
  const std::string path = Folder("cifar_fuzz");
  Fuzz(path + "/data_batch_1", Pickled(2, {"labels"}), 2000, [&] { return OpenCifar10({path}); });
  std::remove((path + "/data_batch_1").c_str());
  Fuzz(path + "/data_batch_1.bin", CifarRecords(2), 300, [&] { return OpenCifar10({path}); });
}

std::string Big(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift & 255));
  return bytes;
}
std::string IdxImages(int n) { return Big(0x803) + Big(n) + Big(4) + Big(5) + std::string(n * 20, '\x07'); }
std::string IdxLabels(int n) {
  std::string bytes = Big(0x801) + Big(n);
  for (int i = 0; i < n; ++i) bytes.push_back(static_cast<char>(i % 10));
  return bytes;
}
std::string Gzipped(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  std::vector<uint8_t> packed;
  EXPECT_TRUE(ReadFile(path, 1 << 30, &packed).ok());
  return std::string(packed.begin(), packed.end());
}

TEST(MnistTest, PlainAndGzip) {
  const std::string path = Folder("mnist");
  Put(path + "/train-images-idx3-ubyte", IdxImages(3));
  Gzipped(path + "/train-labels-idx1-ubyte.gz", IdxLabels(3));
  const Opened reader = OpenMnist({path});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(ToString((*reader)->columns()[0].type), "u8[4,5,1]");
  EXPECT_EQ(LabelOf(**reader, 2), 2);
  EXPECT_THAT(Message(OpenMnist({path, Usage::kTest}).status()),
              AllOf(HasSubstr("no t10k-images-idx3-ubyte (or .gz)"), HasSubstr("mslua data make mnist " + path)));
}

TEST(MnistTest, Errors) {
  const std::string path = Folder("mnist_bad");
  const std::string images = path + "/train-images-idx3-ubyte", labels = path + "/train-labels-idx1-ubyte";
  const auto message = [&](const std::string& i, const std::string& l) {
    Put(images, i);
    Put(labels, l);
    const Opened reader = OpenMnist({path});
    return Message(reader.ok() ? ReadAll(**reader) : reader.status());
  };
  EXPECT_EQ(message(IdxImages(3), IdxLabels(3)), "");
  EXPECT_THAT(message(IdxImages(3).substr(0, 16 + 45), IdxLabels(3)),
              HasSubstr("train-images-idx3-ubyte is truncated in record 2 of 3: 45 bytes of data, expected 60"));
  EXPECT_THAT(message(IdxImages(3), IdxLabels(2)), AllOf(HasSubstr("3 images"), HasSubstr("2 labels")));
  EXPECT_THAT(message(IdxLabels(3), IdxLabels(3)), HasSubstr("is not an IDX file of u8 with 3 dimensions"));
  EXPECT_THAT(message(IdxImages(3), Big(0x801) + Big(3) + std::string("\x01\x0b\x02", 3)),
              HasSubstr("record 1: label is 11, expected 0..9"));
  const std::string packed = Gzipped(path + "/x.gz", IdxImages(3));
  EXPECT_THAT(message(packed.substr(0, packed.size() - 9), IdxLabels(3)), HasSubstr("gzip data"));
  std::string corrupt = packed;
  corrupt[corrupt.size() - 6] ^= 0x55;  // in the checksum
  EXPECT_THAT(message(corrupt, IdxLabels(3)), AllOf(HasSubstr(images), HasSubstr("corrupt gzip data")));
}

TEST(MnistTest, DamagedFilesNeverCrash) {
  const std::string path = Folder("mnist_fuzz");
  Put(path + "/train-labels-idx1-ubyte", IdxLabels(3));
  const std::string images = path + "/train-images-idx3-ubyte";
  Fuzz(images, IdxImages(3), 500, [&] { return OpenMnist({path}); });
  Fuzz(images, Gzipped(path + "/x.gz", IdxImages(3)), 1000, [&] { return OpenMnist({path}); });
}

std::string Jpeg(int width, int height) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &out, &size);
  jpeg.image_width = width;
  jpeg.image_height = height;
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  std::vector<uint8_t> line(width * 3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width * 3; ++x) line[x] = static_cast<uint8_t>(x * 5 + y * 3);
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
  const Opened reader = OpenImageFolder({path});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), 2);
  EXPECT_THAT((*reader)->notices(), ElementsAre(HasSubstr("c_empty")));
  EXPECT_EQ(LabelOf(**reader, 0), 0);
  EXPECT_EQ(LabelOf(**reader, 1), 1);
  ReadBuffers buffers;
  std::vector<RawColumn> row(2);
  ASSERT_TRUE((*reader)->Read(0, &buffers, absl::MakeSpan(row)).ok());
  EXPECT_EQ(ToString(row[0].type), "u8[4,6,3]");
  EXPECT_EQ(static_cast<const uint8_t*>(row[0].data)[3], 4);  // the second pixel's red: alpha is left out

  // Sizes differ: an error without Resize, fine with it.
  const auto bare = Pipeline::Open(Dataset(ImageFolder{path}).Batch({2}), {});
  ASSERT_TRUE(bare.ok()) << bare.status();
  Loader loader(*bare, {});
  Batch batch;
  EXPECT_THAT(Message(loader.Next(&batch).status()),
              AllOf(HasSubstr("1.JPG"), HasSubstr("shapes differ within a batch: column 'image' is u8[10,20,3]"),
                    HasSubstr("u8[4,6,3]"), HasSubstr("Resize")));
  const auto resized =
      Pipeline::Open(Dataset(ImageFolder{path}).Map({{Resize{8, 8}, HWC2CHW{}}, "image"}).Batch({2}), {});
  ASSERT_TRUE(resized.ok());
  EXPECT_EQ(ToString((*resized)->schema()[0].type), "u8[2,3,8,8]");
  Loader good(*resized, {});
  EXPECT_TRUE(*good.Next(&batch));
}

TEST(ImageFolderTest, Errors) {
  const std::string path = Folder("images_bad");
  EXPECT_THAT(Message(OpenImageFolder({path + "/none"}).status()), HasSubstr("no folder"));
  EXPECT_THAT(Message(OpenImageFolder({path}).status()), HasSubstr("no image"));
  ASSERT_TRUE(MakeFolders(path + "/c").ok());
  const auto message = [&](const std::string& bytes) {
    Put(path + "/c/1.jpg", bytes);
    return Message(ReadAll(**OpenImageFolder({path})));
  };
  EXPECT_EQ(message(Jpeg(40, 40)), "");
  EXPECT_THAT(message(Jpeg(40, 40).substr(0, 700)),
              AllOf(HasSubstr("c/1.jpg is a corrupt JPEG"), HasSubstr("remature end")));
  EXPECT_EQ(message(Png(40, 40, false)), "");  // known by its content
  EXPECT_THAT(message(Png(40, 40, false).substr(0, 200)), HasSubstr("c/1.jpg is a corrupt PNG"));
  EXPECT_THAT(message("GIF89a"), HasSubstr("neither a JPEG nor a PNG"));
  EXPECT_THAT(message(""), HasSubstr("neither a JPEG nor a PNG"));
}

TEST(ImageFolderTest, DamagedFilesNeverCrash) {
  const std::string path = Folder("images_fuzz");
  ASSERT_TRUE(MakeFolders(path + "/c").ok());
  Fuzz(path + "/c/1.jpg", Jpeg(24, 17), 1000, [&] { return OpenImageFolder({path}); });
  Fuzz(path + "/c/1.jpg", Png(9, 8, true), 1000, [&] { return OpenImageFolder({path}); });
}

TEST(TextTest, Tokens16) {
  const std::string path = Folder("tokens");
  Text text;
  text.format = Text::Format::kUint16;
  text.path = path;
  text.block = 2;
  Put(path + "/train.bin", Little(5, 2) + Little(40000, 2) + Little(7, 2) + Little(8, 2));
  auto reader = OpenText(text);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), 1);
  ReadBuffers buffers;
  std::vector<RawColumn> row(2);
  ASSERT_TRUE((*reader)->Read(0, &buffers, absl::MakeSpan(row)).ok());
  EXPECT_EQ(static_cast<const int32_t*>(row[1].data)[0], 40000);
  text.stride = 1;
  EXPECT_EQ((*OpenText(text))->size(), 2);
  text.vocab_size = 100;
  EXPECT_THAT(Message(ReadAll(**OpenText(text))), HasSubstr("train.bin, token 1: 40000, expected 0..99"));
  Put(path + "/train.bin", "abc");
  EXPECT_THAT(Message(OpenText(text).status()), HasSubstr("expected pairs"));
}

TEST(TextTest, Errors) {
  const std::string path = Folder("text");
  Text text;
  text.path = path;
  EXPECT_THAT(Message(OpenText(text).status()),
              AllOf(HasSubstr("no file '" + path + "/input.txt'"), HasSubstr("mslua data make text " + path)));
  Put(path + "/input.txt", "too short");
  EXPECT_THAT(Message(OpenText(text).status()), HasSubstr("has 8 tokens in this part, a window of block 64 needs 65"));
  text.block = 0;
  EXPECT_THAT(Message(OpenText(text).status()), HasSubstr("expected block >= 1"));
}

TEST(TextTest, PartsDoNotOverlapAndCoverAll) {
  const std::string path = Folder("text_parts");
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes.push_back(static_cast<char>('0' + i % 10));
  Put(path + "/input.txt", bytes);
  Text text;
  text.path = path + "/input.txt";
  text.block = 4;
  const auto size = [&](Usage usage) {
    text.usage = usage;
    return (*OpenText(text))->size();
  };
  EXPECT_EQ(size(Usage::kTrain), 22);  // 90 tokens: 22 windows of 4 and one to predict
  EXPECT_EQ(size(Usage::kTest), 2);
  EXPECT_EQ(size(Usage::kAll), 24);
}

TEST(FileTest, ReadsNoMoreThanTheLimit) {
  const std::string path = Folder("file") + "/x";
  Put(path, "old");
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(ReadFile(path, 100, &bytes).ok());
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "old");
  EXPECT_THAT(Message(ReadFile(path, 2, &bytes)), HasSubstr("has 3 bytes, at most 2"));
}

}  // namespace
}  // namespace mslua::data
