// CIFAR-10 and CIFAR-100, which share their reader.
#include "core/data/loader.h"
#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

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
  const Opened reader = Open("cifar10", {{"dataset_dir", path}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), 5);
  EXPECT_THAT((*reader)->notices(),
              ElementsAre(AllOf(HasSubstr("data_batch_1.bin, data_batch_3.bin, data_batch_5.bin not in"),
                                HasSubstr("5 samples"))));
  EXPECT_EQ(LabelOf(**reader, 4), 1);
  EXPECT_THAT((*reader)->Where(4), HasSubstr("data_batch_4.bin, record 1"));
  EXPECT_EQ((*Open("cifar10", {{"dataset_dir", path}, {"usage", "all"}}))->size(), 9);
}

TEST(CifarTest, ImagesAreGivenRowByRow) {
  const std::string path = Folder("cifar_rows");
  Put(path + "/test_batch.bin", CifarRecords(1));
  const auto pipeline = Pipeline::Open(Dataset(Source("cifar10", {{"dataset_dir", path}, {"usage", "test"}})), {});
  ASSERT_TRUE(pipeline.ok());
  Loader loader(*pipeline, {});
  Batch batch;
  ASSERT_TRUE(*loader.Next(&batch));
  const uint8_t* p = batch.columns[0].as<uint8_t>();
  for (int c = 0; c < 3; ++c) EXPECT_EQ(p[(5 * 32 + 7) * 3 + c], static_cast<uint8_t>(c * 1024 + 5 * 32 + 7));
}

TEST(CifarTest, Errors) {
  const std::string path = Folder("cifar_bad");
  EXPECT_THAT(Message(Open("cifar10", {{"dataset_dir", path}}).status()),
              AllOf(HasSubstr("no data_batch_1.bin in '" + path + "'"), HasSubstr("cs.toronto.edu/~kriz/cifar.html"),
                    HasSubstr("mslua data make cifar10 " + path)));
  Put(path + "/data_batch_1.bin", CifarRecords(3).substr(0, 2 * 3073 + 100));
  EXPECT_THAT(Message(Open("cifar10", {{"dataset_dir", path}}).status()),
              AllOf(HasSubstr("data_batch_1.bin is truncated in record 2"), HasSubstr("6246 bytes")));
  Put(path + "/data_batch_1.bin", "");
  EXPECT_THAT(Message(Open("cifar10", {{"dataset_dir", path}}).status()), HasSubstr("truncated in record 0"));
  std::string bytes = CifarRecords(3);
  bytes[3073] = 77;
  Put(path + "/data_batch_1.bin", bytes);
  EXPECT_THAT(Message(ReadAll(**Open("cifar10", {{"dataset_dir", path}}))),
              HasSubstr("data_batch_1.bin, record 1: label is 77, expected 0..9"));
}

TEST(CifarTest, Cifar100HasTwoLabels) {
  const std::string path = Folder("cifar100");
  Put(path + "/train.bin", CifarRecords(3, 2));
  const Opened reader = Open("cifar100", {{"dataset_dir", path}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->columns()[1].name, "coarse_label");
  EXPECT_EQ(LabelOf(**reader, 2), 3);
  EXPECT_THAT(Message(Open("cifar100", {{"dataset_dir", path}, {"usage", "test"}}).status()), HasSubstr("no test.bin"));
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
  const Opened reader = Open("cifar10", {{"dataset_dir", path}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), 4);
  EXPECT_EQ(LabelOf(**reader, 3), 3);
  ReadBuffers buffers;
  std::vector<RawColumn> row(2);
  ASSERT_TRUE((*reader)->Read(1, &buffers, absl::MakeSpan(row)).ok());
  EXPECT_EQ(static_cast<const uint8_t*>(row[0].data)[0], 3072 % 251);

  const std::string hundred = Folder("cifar100_py");
  Put(hundred + "/train", Pickled(4, {"fine_labels", "coarse_labels"}));
  const Opened two = Open("cifar100", {{"dataset_dir", hundred}});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(LabelOf(**two, 2), 2);

  Put(path + "/data_batch_1", Pickled(4, {"labels"}).substr(0, 5000));
  EXPECT_THAT(Message(Open("cifar10", {{"dataset_dir", path}}).status()),
              AllOf(HasSubstr("data_batch_1"), HasSubstr("it ends early"), HasSubstr("CIFAR-10 binary version")));
  Put(path + "/data_batch_1", Pickled(4, {"labels"}) + Pickled(4, {"labels"}));
  EXPECT_THAT(Message(Open("cifar10", {{"dataset_dir", path}}).status()), HasSubstr("bytes stand behind its end"));
  Put(path + "/data_batch_1", Pickled(4, {"names"}));
  EXPECT_THAT(Message(Open("cifar10", {{"dataset_dir", path}}).status()),
              HasSubstr("'labels' has 0 entries for 4 images"));
}

TEST(CifarTest, DamagedFilesNeverCrash) {
  const std::string path = Folder("cifar_fuzz");
  Fuzz(path + "/data_batch_1", Pickled(2, {"labels"}), 2000, [&] { return Open("cifar10", {{"dataset_dir", path}}); });
  std::remove((path + "/data_batch_1").c_str());
  Fuzz(path + "/data_batch_1.bin", CifarRecords(2), 300, [&] { return Open("cifar10", {{"dataset_dir", path}}); });
}

}  // namespace
}  // namespace mslua::data
