// MNIST and Fashion-MNIST, which share their reader.
#include <zlib.h>

#include "core/data/file.h"
#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
  const Opened reader = Open("mnist", {{"dataset_dir", path}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(ToString((*reader)->columns()[0].type), "u8[4,5,1]");
  EXPECT_EQ(LabelOf(**reader, 2), 2);
  EXPECT_THAT(Message(Open("mnist", {{"dataset_dir", path}, {"usage", "test"}}).status()),
              AllOf(HasSubstr("no t10k-images-idx3-ubyte (or .gz)"), HasSubstr("mslua data make mnist " + path)));
}

TEST(MnistTest, Errors) {
  const std::string path = Folder("mnist_bad");
  const std::string images = path + "/train-images-idx3-ubyte", labels = path + "/train-labels-idx1-ubyte";
  const auto message = [&](const std::string& i, const std::string& l) {
    Put(images, i);
    Put(labels, l);
    const Opened reader = Open("mnist", {{"dataset_dir", path}});
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
  Fuzz(images, IdxImages(3), 500, [&] { return Open("mnist", {{"dataset_dir", path}}); });
  Fuzz(images, Gzipped(path + "/x.gz", IdxImages(3)), 1000, [&] { return Open("mnist", {{"dataset_dir", path}}); });
}

TEST(FashionMnistTest, ReadsTheFilesOfMnist) {
  const std::string path = Folder("fashion");
  ASSERT_TRUE(MakeFolders(path + "/FashionMNIST/raw").ok());
  Put(path + "/FashionMNIST/raw/t10k-images-idx3-ubyte", IdxImages(3));
  Put(path + "/FashionMNIST/raw/t10k-labels-idx1-ubyte", IdxLabels(3));
  const Opened reader = Open("fashion_mnist", {{"dataset_dir", path}, {"usage", "test"}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), 3);
  EXPECT_THAT(Message(Open("fashion_mnist", {{"dataset_dir", path}}).status()),
              AllOf(HasSubstr("FashionMnistDataset: no train-images-idx3-ubyte (or .gz)"), HasSubstr("fashion-mnist")));
}

}  // namespace
}  // namespace mslua::data
