#include <png.h>

#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Names = std::vector<std::string>;

// A grey PNG of 3x2 pixels.
std::string Png(uint8_t grey) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = 3;
  image.height = 2;
  image.format = PNG_FORMAT_RGB;
  const std::vector<uint8_t> pixels(18, grey);
  png_alloc_size_t size = 1 << 16;
  std::string bytes(size, '\0');
  EXPECT_TRUE(png_image_write_to_memory(&image, &bytes[0], &size, 0, pixels.data(), 0, nullptr));
  bytes.resize(size);
  return bytes;
}

std::string Octal(int64_t value, int width) {
  std::string text(static_cast<size_t>(width), '0');
  text.back() = '\0';
  for (int k = width - 2; k >= 0; --k, value /= 8) text[static_cast<size_t>(k)] = static_cast<char>('0' + value % 8);
  return text;
}

// A member of a ustar archive.
std::string Member(const std::string& name, const std::string& bytes, char type = '0') {
  std::string header = name.substr(0, 100);
  header.resize(100);
  header += Octal(0644, 8) + Octal(0, 8) + Octal(0, 8) + Octal(static_cast<int64_t>(bytes.size()), 12) + Octal(0, 12);
  header += std::string(8, ' ') + std::string(1, type) + std::string(100, '\0') + std::string("ustar\0", 6) + "00";
  header.resize(512);
  int64_t sum = 0;
  for (char c : header) sum += static_cast<uint8_t>(c);
  header.replace(148, 7, Octal(sum, 7));
  std::string padded = bytes;
  padded.resize((bytes.size() + 511) / 512 * 512);
  return header + padded;
}
std::string End() { return std::string(1024, '\0'); }

std::string Shard(int first, int count) {
  std::string tar = Member("s/", "", '5');
  for (int i = first; i < first + count; ++i) {
    absl::StrAppend(&tar, Member(absl::StrCat("s/", i, ".PNG"), Png(static_cast<uint8_t>(i))),
                    Member(absl::StrCat("s/", i, ".cls"), absl::StrCat(i, "\n")),
                    Member(absl::StrCat("s/", i, ".json"), absl::StrCat("{\"class\": ", 100 + i, "}")));
  }
  return tar + End();
}

TEST(TarTest, SamplesOfSeveralShards) {
  const std::string path = Folder("tar");
  Put(path + "/a-00.tar", Shard(0, 3));
  Put(path + "/a-01.tar", Shard(3, 2));
  for (const FieldValue& files : {FieldValue(path), FieldValue(path + "/a-{00..01}.tar"),
                                  FieldValue(Names{path + "/a-00.tar", path + "/a-01.tar"})}) {
    const Opened reader = Open("tar", {{"dataset_files", files}});
    ASSERT_TRUE(reader.ok()) << reader.status();
    ASSERT_EQ((*reader)->size(), 5);
    EXPECT_EQ(LabelOf(**reader, 4), 4);
    EXPECT_EQ((*reader)->Where(3), path + "/a-01.tar, sample 's/3'");
  }
  const Opened json = Open("tar", {{"dataset_files", path}, {"label", "json"}, {"label_key", "class"}});
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(LabelOf(**json, 2), 102);
  ReadBuffers buffers;
  std::vector<RawColumn> row(2);
  ASSERT_TRUE((*json)->Read(2, &buffers, absl::MakeSpan(row)).ok());
  EXPECT_EQ(ToString(row[0].type), "u8[2,3,3]");
  EXPECT_EQ(*static_cast<const uint8_t*>(row[0].data), 2);
}

TEST(TarTest, LongNames) {
  const std::string path = Folder("tar_long") + "/a.tar";
  const std::string gnu(150, 'g'), pax(150, 'p');
  const auto record = [](const std::string& name) {
    const std::string text = absl::StrCat(" path=", name, "\n");
    return absl::StrCat(text.size() + 3, text);
  };
  Put(path, Member("././@LongLink", gnu + ".png" + std::string(1, '\0'), 'L') + Member("cut.png", Png(1)) +
                Member("././@LongLink", gnu + ".cls" + std::string(1, '\0'), 'L') + Member("cut.cls", "5") +
                Member("x", record(pax + ".png"), 'x') + Member("cut.png", Png(1)) +
                Member("x", record(pax + ".cls"), 'x') + Member("cut.cls", "6") + End());
  const Opened reader = Open("tar", {{"dataset_files", path}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ((*reader)->size(), 2);
  EXPECT_EQ(LabelOf(**reader, 1), 6);
  EXPECT_THAT((*reader)->Where(0), HasSubstr("'" + gnu + "'"));
}

TEST(TarTest, Errors) {
  const std::string path = Folder("tar_bad") + "/a.tar";
  const auto message = [&](const std::string& bytes, FieldMap fields = {}) {
    Put(path, bytes);
    fields["dataset_files"] = path;
    const Opened reader = Open("tar", fields);
    return Message(reader.ok() ? ReadAll(**reader) : reader.status());
  };
  EXPECT_EQ(message(Shard(0, 2)), "");
  EXPECT_THAT(message(Shard(0, 2).substr(0, 700)), AllOf(HasSubstr("a.tar, member at byte"), HasSubstr("truncated")));
  std::string damaged = Shard(0, 2);
  damaged[512 + 20] = 'x';
  EXPECT_THAT(message(damaged), HasSubstr("member at byte 512: its header is damaged"));
  EXPECT_THAT(message("\x1f\x8b\x08" + Shard(0, 2)), AllOf(HasSubstr("a.tar is compressed"), HasSubstr("gunzip")));
  EXPECT_THAT(
      message(Member("a.png", Png(1)) + End()),
      HasSubstr("sample 'a' has no member .cls beside its other one; the members of a sample follow each other"));
  EXPECT_THAT(message(Member("a.cls", "1") + End()), HasSubstr("sample 'a' has no member .jpg, .jpeg, .png"));
  EXPECT_THAT(message(Member("a.png", Png(1)) + Member("a.jpg", Png(1)) + End()),
              HasSubstr("two members for the image"));
  EXPECT_THAT(message(Member("a.png", Png(1)) + Member("a.cls", "cat") + End()),
              HasSubstr("sample 'a': its .cls is 'cat', expected an integer"));
  EXPECT_THAT(message(Member("a.png", "GIF89a") + Member("a.cls", "1") + End()),
              HasSubstr("sample 'a': its image is neither a JPEG nor a PNG nor a PPM"));
  EXPECT_THAT(message(Member("readme.txt", "hello") + End()), HasSubstr("no sample"));
  EXPECT_THAT(message(Shard(0, 1), {{"label", "json"}}), HasSubstr("label_key: expected the key of the label"));
  EXPECT_THAT(message(Shard(0, 1), {{"label", "json"}, {"label_key", "x"}}), HasSubstr("its .json has no key 'x'"));
  EXPECT_THAT(message(Member("a.png", Png(1)) + Member("a.json", "{\"x\": 1.5}") + End(),
                      {{"label", "json"}, {"label_key", "x"}}),
              HasSubstr("x is 1.5, expected an integer"));
  EXPECT_THAT(Message(Open("tar", {{"dataset_files", "a-{3..1}.tar"}}).status()), HasSubstr("{FIRST..LAST}"));
}

TEST(TarTest, AttributesOfMacOSAreNoMembers) {
  const std::string path = Folder("tar_macos") + "/a.tar";
  Put(path, Member("._0.png", "attributes") + Member("d/0.png", Png(7)) + Member("d/._0.cls", "attributes") +
                Member("d/0.cls", "3") + End());
  for (const char* ending : {"cls", ".CLS", " cls "}) {
    const Opened reader = Open("tar", {{"dataset_files", path}, {"image", "jpg; .png"}, {"label", ending}});
    ASSERT_TRUE(reader.ok()) << reader.status();
    ASSERT_EQ((*reader)->size(), 1);
    EXPECT_EQ(LabelOf(**reader, 0), 3);
  }
}

// Samples behind the end would be left out without a word.
TEST(TarTest, AnArchiveEndsOnceAndHasItsEnd) {
  const std::string path = Folder("tar_end") + "/a.tar";
  const auto message = [&](const std::string& bytes) {
    Put(path, bytes);
    return Message(Open("tar", {{"dataset_files", path}}).status());
  };
  const std::string shard = Shard(0, 2), members = shard.substr(0, shard.size() - 1024);
  EXPECT_EQ(message(shard + std::string(8192, '\0')), "");  // tar fills a record of 20 blocks
  EXPECT_EQ(message(members),
            absl::StrCat(path, ", member at byte ", members.size(),
                         ": the archive has no end, two blocks of zeros: it is truncated; copy or make it again"));
  EXPECT_THAT(message(members + std::string(512, '\0')), HasSubstr("ends after one block of zeros, expected two"));
  EXPECT_THAT(message(members + std::string(700, '\0')), HasSubstr("truncated"));
  for (const std::string& joined : {shard + Shard(2, 2), members + std::string(512, '\0') + Shard(2, 2)})
    EXPECT_THAT(message(joined), AllOf(HasSubstr("data stand behind the archive's end"),
                                       HasSubstr("`tar --concatenate --file=A.tar B.tar`"), HasSubstr("`tar -xif`")));
  EXPECT_THAT(message(""), HasSubstr("the archive has no end"));
}

TEST(TarTest, LinksAndSparseFilesAreNoSamples) {
  const std::string path = Folder("tar_links") + "/a.tar";
  const auto message = [&](const std::string& bytes) {
    Put(path, bytes + End());
    return Message(Open("tar", {{"dataset_files", path}}).status());
  };
  const std::string sample = Member("a.png", Png(1)) + Member("a.cls", "1");
  EXPECT_EQ(message(sample + Member("readme.txt", "", '2') + Member("b.png", Png(1), '7') + Member("b.cls", "1")), "");
  EXPECT_THAT(message(sample + Member("b.png", "", '1') + Member("b.cls", "", '2')),
              AllOf(HasSubstr("member 'b.png' is a link, expected a file"), HasSubstr("--dereference")));
  EXPECT_THAT(message(sample + Member("b.png", Png(1), 'S')), HasSubstr("member 'b.png' is a sparse file"));
  EXPECT_THAT(message(sample + Member("x", "25 GNU.sparse.name=b.png\n", 'x') + Member("GNUSparseFile.1/b.png", "1")),
              HasSubstr("member 'b.png' is a sparse file"));
}

TEST(TarTest, ShufflesShardsAndResumes) {
  const std::string path = Folder("tar_order") + "/a.tar";
  Put(path, Shard(0, 23));
  CheckOrder(Source("tar", {{"dataset_files", path}}));
}

TEST(TarTest, DamagedFilesNeverCrash) {
  const std::string path = Folder("tar_fuzz") + "/a.tar";
  Fuzz(path, Shard(0, 3), 2000, [&] { return Open("tar", {{"dataset_files", path}}); });
  Fuzz(path, Member("x", "20 path=aaaaaaa.png\n", 'x') + Member("a.png", Png(3)) + Member("a.cls", "1") + End(), 2000,
       [&] {
         return Open("tar", {{"dataset_files", path}});
       });
}

}  // namespace
}  // namespace mslua::data
