// Readers: what opens a source and gives any of its samples to any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/data/dataset.h"

namespace mslua::data {

// A column's name and what one sample of it is. A dimension -1 differs from sample to sample.
struct Column {
  std::string name;
  TensorType type;
};

// One sample's column as a reader found it. The memory is the reader's or the buffers'.
struct RawColumn {
  const void* data = nullptr;
  TensorType type;
  bool planar = false;  // an image of type [h,w,c] that lies in memory as c planes [h,w]
};

// What a thread lends a reader; grows to the largest sample and stays.
struct ReadBuffers {
  std::vector<uint8_t> bytes;   // as in the file
  std::vector<uint8_t> pixels;  // decoded
  std::vector<int32_t> ints;    // labels, tokens
};

// Immutable; any thread may call.
class Reader {
 public:
  virtual ~Reader() = default;

  const std::vector<Column>& columns() const { return columns_; }
  int64_t size() const { return size_; }
  // What the user should know though it is no error, a line each.
  const std::vector<std::string>& notices() const { return notices_; }

  // Sample i of [0, size()). `row` has a place for each column and is valid until the next call with the
  // same buffers. Errors name file and record.
  virtual Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const = 0;
  // "data_batch_1.bin, record 17", for the errors of what is done with the sample later.
  virtual std::string Where(int64_t i) const = 0;

 protected:
  std::vector<Column> columns_;
  int64_t size_ = 0;
  std::vector<std::string> notices_;
};

// Errors name the path, what was expected there, where to get it and, where there is one, the
// `mslua data make` that writes a stand-in.
StatusOr<std::unique_ptr<Reader>> OpenCifar10(const Cifar10& source);
StatusOr<std::unique_ptr<Reader>> OpenCifar100(const Cifar100& source);
StatusOr<std::unique_ptr<Reader>> OpenMnist(const Mnist& source);
StatusOr<std::unique_ptr<Reader>> OpenImageFolder(const ImageFolder& source);
StatusOr<std::unique_ptr<Reader>> OpenText(const Text& source);
StatusOr<std::unique_ptr<Reader>> OpenNumpySlices(const NumpySlices& source);

// The bytes that occur in a file in order: token id i of Text::Format::kCharacters is byte i of it.
// `path` as in Text.
StatusOr<std::string> TextVocabulary(const std::string& path);

}  // namespace mslua::data
