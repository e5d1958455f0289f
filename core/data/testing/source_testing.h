// What the tests of sources share: files in new folders, reading all of a source, damaged files.
#pragma once

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/base/rng.h"
#include "core/data/loader.h"
#include "core/data/pipeline.h"
#include "gtest/gtest.h"

namespace mslua::data {

using Opened = StatusOr<std::unique_ptr<Reader>>;

// A new empty folder.
inline std::string Folder(const std::string& name) {
  const std::string path = absl::StrCat(testing::TempDir(), "/source_test_", name);
  std::filesystem::remove_all(path);
  EXPECT_TRUE(MakeFolders(path).ok());
  return path;
}

inline void Put(const std::string& path, const std::string& bytes) {
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok()) << path;
}

inline std::string Message(const Status& status) { return std::string(status.message()); }

// Opens a source from its fields.
inline Opened Open(const std::string& kind, FieldMap fields) { return OpenSource(Source(kind, std::move(fields))); }

// Reads all samples; the first error.
inline Status ReadAll(const Reader& reader) {
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

// The numbers of sample i in all columns, f32 or i32; NaN where it cannot be read.
inline std::vector<double> NumbersOf(const Reader& reader, int64_t i) {
  ReadBuffers buffers;
  std::vector<RawColumn> row(reader.columns().size());
  if (!reader.Read(i, &buffers, absl::MakeSpan(row)).ok()) return {std::numeric_limits<double>::quiet_NaN()};
  std::vector<double> numbers;
  for (const RawColumn& c : row) {
    for (int64_t k = 0; k < c.type.elements(); ++k) numbers.push_back(LoadAsDouble(c.type.dtype, c.data, k));
  }
  return numbers;
}

// "x f32[];label i32[];"
inline std::string ColumnsOf(const Reader& reader) {
  std::string text;
  for (const Column& c : reader.columns()) absl::StrAppend(&text, c.name, " ", ToString(c.type), ";");
  return text;
}

// The label of sample i, the last column.
inline int32_t LabelOf(const Reader& reader, int64_t i) {
  ReadBuffers buffers;
  std::vector<RawColumn> row(reader.columns().size());
  const Status status = reader.Read(i, &buffers, absl::MakeSpan(row));
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? *static_cast<const int32_t*>(row.back().data) : -1;
}

// The last column, int32 [], of the batches from the loader's position to the end of the epoch.
inline std::vector<int32_t> LabelsOfEpoch(Loader* loader) {
  std::vector<int32_t> labels;
  Batch batch;
  while (true) {
    const StatusOr<bool> more = loader->Next(&batch);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return labels;
    const int32_t* column = batch.columns.back().as<int32_t>();
    labels.insert(labels.end(), column, column + batch.valid);
  }
}

// A source of samples with labels 0, 1, ...: shuffled batches hold each sample once, two feeds share them, and a loader
// that starts in the middle gives the rest.
inline void CheckOrder(const Source& source) {
  const auto open = [&](const FeedOptions& feed) {
    const auto pipeline = Pipeline::Open(Dataset(source).Shuffle({100}).Batch({2}), feed);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    return std::make_unique<Loader>(*pipeline, LoaderOptions());
  };
  const auto whole = open({});
  const std::vector<int32_t> first = LabelsOfEpoch(whole.get()), second = LabelsOfEpoch(whole.get());
  EXPECT_NE(first, second);
  std::vector<int32_t> sorted = first, shared;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) EXPECT_EQ(sorted[i], static_cast<int32_t>(i));
  const auto resumed = open({});
  ASSERT_TRUE(resumed->Seek({1, 3}).ok());
  EXPECT_EQ(LabelsOfEpoch(resumed.get()), std::vector<int32_t>(second.begin() + 6, second.end()));
  for (int64_t feed : {0, 1}) {
    const std::vector<int32_t> part = LabelsOfEpoch(open({0, 2, feed}).get());
    shared.insert(shared.end(), part.begin(), part.end());
  }
  std::sort(shared.begin(), shared.end());
  EXPECT_EQ(shared, sorted);
}

// Damages `good` in many ways, puts it at `path` and opens and reads it: any outcome but a crash is right.
inline void Fuzz(const std::string& path, const std::string& good, int rounds, const std::function<Opened()>& open) {
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

}  // namespace mslua::data
