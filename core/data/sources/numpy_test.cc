#include <zlib.h>

#include <thread>

#include "core/data/numpy_file.h"
#include "core/data/testing/source_testing.h"
#include "gmock/gmock.h"

namespace mslua::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Names = std::vector<std::string>;

std::string Little(uint64_t value, int width) {
  std::string bytes;
  for (int k = 0; k < width; ++k) bytes.push_back(static_cast<char>(value >> (8 * k) & 255));
  return bytes;
}

std::string Npy(const std::string& type, const std::string& shape, const std::string& data,
                const std::string& order = "False", int version = 1) {
  std::string header =
      absl::StrCat("{'descr': '", type, "', 'fortran_order': ", order, ", 'shape': ", shape, ", }      \n");
  return absl::StrCat("\x93NUMPY", std::string(1, static_cast<char>(version)), std::string(1, '\0'),
                      Little(header.size(), version == 1 ? 2 : 4), header, data);
}

std::string Deflated(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(&out[0]);
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// An archive as numpy.savez (stored) or savez_compressed writes it; zip64: with sizes in the extra field.
std::string Npz(const std::vector<std::pair<std::string, std::string>>& members, bool deflate, bool zip64 = false) {
  std::string files, directory;
  for (const auto& [name, bytes] : members) {
    const std::string data = deflate ? Deflated(bytes) : bytes;
    const uint32_t crc =
        static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
    const std::string extra =
        zip64 ? Little(1, 2) + Little(16, 2) + Little(bytes.size(), 8) + Little(data.size(), 8) : "";
    const std::string common =
        absl::StrCat(Little(0, 2), Little(deflate ? 8 : 0, 2), Little(0, 4), Little(crc, 4),
                     Little(zip64 ? 0xffffffff : data.size(), 4), Little(zip64 ? 0xffffffff : bytes.size(), 4),
                     Little(name.size(), 2), Little(extra.size(), 2));
    absl::StrAppend(&directory, "PK\x01\x02", Little(20, 2), Little(20, 2), common, Little(0, 2), Little(0, 2),
                    Little(0, 2), Little(0, 4), Little(files.size(), 4), name, extra);
    absl::StrAppend(&files, "PK\x03\x04", Little(20, 2), common, name, extra, data);
  }
  return absl::StrCat(files, directory, "PK\x05\x06", Little(0, 4), Little(members.size(), 2),
                      Little(members.size(), 2), Little(directory.size(), 4), Little(files.size(), 4), Little(0, 2));
}

// Three rows: x f32[2], y i32[].
std::string X() {
  const float x[] = {0, 1, 2, 3, 4, 5};
  return Npy("<f4", "(3, 2)", std::string(reinterpret_cast<const char*>(x), sizeof x));
}
std::string Y() { return Npy("<i4", "(3,)", Little(7, 4) + Little(8, 4) + Little(9, 4)); }

TEST(NumpyTest, ArchivesStoredDeflatedAndZip64) {
  const std::string path = Folder("npz") + "/a.npz";
  for (const bool deflate : {false, true}) {
    for (const bool zip64 : {false, true}) {
      Put(path, Npz({{"x.npy", X()}, {"sub/y.npy", Y()}}, deflate, zip64));
      const Opened reader = Open("numpy", {{"dataset_files", path}});
      ASSERT_TRUE(reader.ok()) << reader.status();
      EXPECT_EQ((*reader)->size(), 3);
      EXPECT_EQ(ToString((*reader)->columns()[0].type), "f32[2]");
      EXPECT_EQ((*reader)->columns()[1].name, "y");
      EXPECT_EQ(LabelOf(**reader, 2), 9);
      ReadBuffers buffers;
      std::vector<RawColumn> row(2);
      ASSERT_TRUE((*reader)->Read(1, &buffers, absl::MakeSpan(row)).ok());
      EXPECT_EQ(static_cast<const float*>(row[0].data)[1], 3);
    }
  }
  const Opened one = Open("numpy", {{"dataset_files", path}, {"column_names", Names{"y"}}});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ((*one)->columns().size(), 1u);
}

TEST(NumpyTest, RowsGoWhereTheReaderIsTold) {
  const std::string path = Folder("npz_places") + "/a.npz";
  Put(path, Npz({{"x.npy", X()}, {"y.npy", Y()}}, false));
  const Opened reader = Open("numpy", {{"dataset_files", path}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  float x[2] = {};
  ReadBuffers buffers;
  buffers.places = {x, nullptr};
  std::vector<RawColumn> row(2);
  (*reader)->ReadAhead(1);
  ASSERT_TRUE((*reader)->Read(1, &buffers, absl::MakeSpan(row)).ok());
  EXPECT_EQ(row[0].data, x);
  EXPECT_EQ(x[1], 3);
  EXPECT_EQ(*static_cast<const int32_t*>(row[1].data), 8);
}

// Columns that batches have as they are, of a member large enough to be checked by rows: two copies, a cast and padding
// of the same rows, the same as without.
TEST(NumpyTest, BatchesOfRowsAsTheyAre) {
  const std::string path = Folder("npz_direct") + "/a.npz";
  constexpr int64_t kRows = 1030, kRow = 16400;
  std::vector<float> numbers(kRows * kRow);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 65537);
  const std::string data(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
  Put(path, Npz({{"x.npy", Npy("<f4", absl::StrCat("(", kRows, ", ", kRow, ")"), data)}}, false));
  const Dataset source(Source("numpy", {{"dataset_files", path}}));
  const auto check = [&](const Dataset& dataset, size_t columns) {
    const auto pipeline = Pipeline::Open(dataset.Shuffle({kRows}).Batch({103}), {/*seed=*/5});
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    Pipeline::Epoch epoch;
    (*pipeline)->MakeEpoch(0, &epoch);
    Loader loader(*pipeline, {/*workers=*/2});
    Batch batch;
    for (int64_t b = 0; b < kRows / 103; ++b) {
      ASSERT_TRUE(*loader.Next(&batch));
      ASSERT_EQ(batch.columns.size(), columns);
      for (int64_t r = 0; r < 103; ++r) {
        const int64_t sample = epoch.order.samples[b * 103 + r];
        for (const TensorView& column : batch.columns) {
          for (const int64_t k : {int64_t{0}, kRow / 2, kRow - 1})
            ASSERT_EQ(LoadAsDouble(column.type.dtype, column.data, r * kRow + k), numbers[sample * kRow + k]);
        }
      }
    }
  };
  check(source, 1);
  check(source.Project({{"x", "x"}, {"a", "b"}}), 2);
  check(source.Map({{TypeCast{DType::kF64}}, {"x"}}), 1);
}

TEST(NumpyTest, SingleArrays) {
  const std::string path = Folder("npy");
  Put(path + "/x.npy", X());
  Put(path + "/y.npy", Npy("<i4", "(3,)", Little(1, 4) + Little(2, 4) + Little(3, 4), "False", 2));
  const Opened reader = Open("numpy", {{"dataset_files", Names{path + "/x.npy", path + "/y.npy"}}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->columns()[0].name, "x");
  EXPECT_EQ(LabelOf(**reader, 1), 2);
}

TEST(NumpyTest, Errors) {
  const std::string path = Folder("npy_bad") + "/a.npy";
  const auto message = [&](const std::string& bytes, FieldMap fields = {}) {
    Put(path, bytes);
    fields["dataset_files"] = path;
    const Opened reader = Open("numpy", fields);
    return Message(reader.ok() ? ReadAll(**reader) : reader.status());
  };
  EXPECT_EQ(message(X()), "");
  EXPECT_THAT(message("hello, world"), HasSubstr("a.npy: is no .npy array"));
  EXPECT_THAT(message(""), HasSubstr("too short"));
  EXPECT_THAT(message(X().substr(0, X().size() - 1)), HasSubstr("it is truncated: 23 bytes of data, expected 24"));
  EXPECT_THAT(message(Npy(">f4", "(1,)", "abcd")), AllOf(HasSubstr("element type is '>f4'"), HasSubstr(".astype")));
  EXPECT_THAT(message(Npy("<f4", "(1, 1)", "abcd", "True")), HasSubstr("numpy.ascontiguousarray"));
  EXPECT_THAT(message(Npy("<f4", "()", "abcd")), HasSubstr("it is one number"));
  EXPECT_THAT(message(Npy("<f4", "(0, 1)", "")), HasSubstr("no row"));
  EXPECT_THAT(message(Npy("<f4", "(-1,)", "abcd")), HasSubstr("dimension -1"));
  EXPECT_THAT(message(Npy("|b1", "(1,)", "\x02")), HasSubstr("row 1: a bool is neither 0 nor 1"));
  EXPECT_THAT(message(Npz({{"x.npy", X()}, {"y.npy", Npy("|u1", "(2,)", "ab")}}, false)),
              AllOf(HasSubstr("member 'y.npy': 2 rows"), HasSubstr("member 'x.npy' has 3")));
  EXPECT_THAT(message(Npz({{"x.npy", X()}}, false), {{"column_names", Names{"xx"}}}), HasSubstr("no array 'xx'"));
  const std::string archive = Npz({{"x.npy", X()}}, true);
  EXPECT_THAT(message(archive.substr(0, archive.size() - 5)), HasSubstr("it has no directory"));
  EXPECT_THAT(message(archive + archive), HasSubstr("its directory does not end where"));
  EXPECT_THAT(message(archive + "x"), HasSubstr("bytes stand behind its end"));
  std::string fewer = archive;
  fewer[fewer.size() - 12] = 2;
  EXPECT_THAT(message(fewer), HasSubstr("its directory has 1 members, expected 2"));
  std::string damaged = archive;
  damaged[30 + 5 + 20] ^= 0x55;
  EXPECT_THAT(message(damaged), HasSubstr("a.npy, member 'x.npy': its deflated data is damaged"));
}

TEST(NumpyTest, ChecksStoredArrays) {
  const std::string path = Folder("npz_crc") + "/a.npz", archive = Npz({{"x.npy", X()}, {"y.npy", Y()}}, false);
  Put(path, archive);
  EXPECT_TRUE(Open("numpy", {{"dataset_files", path}}).ok());
  std::string damaged = archive;
  damaged[damaged.find(Y()) + Y().size() - 2] ^= 1;
  Put(path, damaged);
  const Opened reader = Open("numpy", {{"dataset_files", path}});
  EXPECT_THAT(Message(reader.status()), HasSubstr("a.npz, member 'y.npy': it is damaged: its CRC-32 is "));
  EXPECT_TRUE(Open("numpy", {{"dataset_files", path}, {"column_names", Names{"x"}}}).ok()) << "what is not read";
}

TEST(NumpyTest, ChecksArraysOfAnyLength) {
  const std::string path = Folder("npz_lengths") + "/a.npz";
  std::vector<std::pair<std::string, std::string>> members;
  std::string data;
  for (size_t n = 1; n <= 300; ++n) {
    data.push_back(static_cast<char>(n * n * 37));
    members.emplace_back(absl::StrCat("x", n, ".npy"), Npy("|u1", absl::StrCat("(1, ", n, ")"), data));
  }
  const std::string archive = Npz(members, false);
  Put(path, archive);
  const Opened reader = Open("numpy", {{"dataset_files", path}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const size_t n : {1, 17, 63, 64, 65, 100, 180, 300}) {
    std::string damaged = archive;
    damaged[damaged.find(members[n - 1].second) + members[n - 1].second.size() - 1 - n / 2] ^= 16;
    Put(path, damaged);
    EXPECT_THAT(Message(Open("numpy", {{"dataset_files", path}}).status()),
                HasSubstr(absl::StrCat("member 'x", n, ".npy': it is damaged")));
  }
}

// One that is larger than what is read twice: the sum is known when all rows have been read, on any thread, in any
// order, some of them twice.
TEST(NumpyTest, ChecksLargeStoredArraysWhileTheyAreRead) {
  constexpr int64_t kRowBytes = 32 << 10, kRows = 2100;
  const std::string path = Folder("npz_large") + "/a.npz";
  const std::string array = Npy("|u1", "(2100, 32768)", std::string(kRowBytes * kRows, 'a'));
  std::string archive = Npz({{"x.npy", array}}, false);
  for (const size_t damaged : {size_t{0}, archive.find("aPK")}) {
    std::string bytes = archive;
    if (damaged > 0) bytes[damaged] = 'b';
    Put(path, bytes);
    const Opened opened = Open("numpy", {{"dataset_files", path}});
    ASSERT_TRUE(opened.ok()) << opened.status();
    const Reader& reader = **opened;
    const auto read = [&](int64_t i) {
      ReadBuffers buffers;
      std::vector<RawColumn> row(1);
      return reader.Read(i, &buffers, absl::MakeSpan(row));
    };
    std::vector<std::thread> threads;
    for (const int64_t first : {0, 1000}) {
      threads.emplace_back([&, first] {
        for (int64_t k = first; k < first + 1099; ++k) EXPECT_TRUE(read(k * 601 % kRows).ok());
      });
    }
    for (std::thread& t : threads) t.join();
    const Status last = read(2099 * 601 % kRows);
    EXPECT_EQ(last.ok(), damaged == 0) << last;
    EXPECT_THAT(Message(last), HasSubstr(damaged > 0 ? "a.npz, member 'x.npy': it is damaged: its CRC-32 is " : ""));
    EXPECT_EQ(read(0).ok(), damaged == 0) << "once it is known";
  }
}

StatusOr<std::vector<float>> Whole(const std::string& path) {
  ASSIGN_OR_RETURN(const auto arrays, OpenNumpy(path, [](const std::string& name) { return name == "sub/x"; }));
  if (arrays.size() != 1) return absl::InternalError(absl::StrCat(arrays.size(), " arrays"));
  std::vector<float> values(static_cast<size_t>(arrays[0].type.elements()));
  RETURN_IF_ERROR(ReadNumpy(arrays[0], values.data()));
  return values;
}

TEST(NumpyTest, WholeArraysInBothOrders) {
  const std::string path = Folder("npz_whole") + "/a.npz";
  std::string data;  // x[i][j][k] is 100 i + 10 j + k
  for (const float v : {0, 100, 10, 110, 20, 120, 1, 101, 11, 111, 21, 121}) {
    data.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  Put(path, Npz({{"x.npy", X()}, {"sub/x.npy", Npy("<f4", "(2, 3, 2)", data, "True")}}, true));
  const auto reversed = Whole(path);
  ASSERT_TRUE(reversed.ok()) << reversed.status();
  EXPECT_THAT(*reversed, testing::ElementsAre(0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121));
  Put(path, Npz({{"sub/x.npy", X()}}, false));
  EXPECT_THAT(*Whole(path), testing::ElementsAre(0, 1, 2, 3, 4, 5));
  Put(path, Npz({{"sub/x.npy", Npy("<f4", "()", Little(0x3f800000, 4))}}, false));
  EXPECT_THAT(*Whole(path), testing::ElementsAre(1));
  Put(path, Npz({{"sub/x.npy", Npy("<f4", "(2, 0)", "", "True")}}, false));
  EXPECT_THAT(*Whole(path), testing::IsEmpty());
  Put(path, Npz({{"sub/x.npy", Npy("|b1", "(2,)", "\1\2")}}, false));
  EXPECT_THAT(Whole(path).status().message(), HasSubstr("member 'sub/x.npy': a bool is neither 0 nor 1"));
}

TEST(NumpyTest, ChecksLargeArraysThatAreReadWhole) {
  const std::string path = Folder("npz_large_whole") + "/a.npz";
  std::string large = Npz({{"sub/x.npy", Npy("<f4", "(16777217,)", std::string((size_t{1} << 26) + 4, '\0'))}}, false);
  Put(path, large);
  EXPECT_EQ(Whole(path)->size(), 16777217u);
  large[1 << 20] = 1;
  Put(path, large);
  EXPECT_THAT(Whole(path).status().message(), HasSubstr("it is damaged: its CRC-32 is"));
}

TEST(NumpyTest, ShufflesShardsAndResumes) {
  const std::string path = Folder("npy_order") + "/y.npy";
  std::string labels;
  for (int i = 0; i < 23; ++i) labels += Little(static_cast<uint64_t>(i), 4);
  Put(path, Npy("<i4", "(23,)", labels));
  CheckOrder(Source("numpy", {{"dataset_files", path}}));
}

TEST(NumpyTest, DamagedFilesNeverCrash) {
  const std::string path = Folder("npz_fuzz") + "/a.npz";
  const auto open = [&] { return Open("numpy", {{"dataset_files", path}}); };
  Fuzz(path, Npz({{"x.npy", X()}, {"y.npy", Y()}}, false), 2000, open);
  Fuzz(path, Npz({{"x.npy", X()}, {"y.npy", Y()}}, true, true), 2000, open);
  Fuzz(path, X(), 2000, open);
}

}  // namespace
}  // namespace mslua::data
