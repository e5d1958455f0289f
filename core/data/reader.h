// Readers: what opens a source and gives any of its samples to any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/shape.h"
#include "core/base/status.h"

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

class CodeCalls;

// What a thread lends a reader; grows to the largest sample and stays.
struct ReadBuffers {
  // Of each column: memory of the sample's size, where Read may put the sample; null: there is none. Empty: no column
  // has any.
  std::vector<void*> places;
  std::vector<uint8_t> bytes;      // as in the file
  std::vector<uint8_t> pixels;     // decoded
  std::vector<int32_t> ints;       // labels, tokens
  CodeCalls* code = nullptr;       // the thread's functions of users' code
  std::shared_ptr<void> pipeline;  // working memory of the pipeline that a reader reads from
};

// Immutable; any thread may call.
class Reader {
 public:
  virtual ~Reader() = default;

  const std::vector<Column>& columns() const { return columns_; }
  int64_t size() const { return size_; }
  // What the user should know though it is no error, a line each.
  const std::vector<std::string>& notices() const { return notices_; }
  // Samples lie in memory as they are given: reading one costs nothing.
  virtual bool in_memory() const { return false; }
  // Only the thread that opened it may read.
  virtual bool bound_to_thread() const { return false; }
  // Reading runs code of users (ReadBuffers::code).
  virtual bool runs_code() const { return false; }
  // Names of the classes that labels 0, 1, ... stand for; empty where it knows none.
  virtual std::vector<std::string> class_names() const { return {}; }

  // Sample i of [0, size()). `row` has a place for each column and is valid until the next call with the
  // same buffers. Errors name file and record.
  virtual Status Read(int64_t i, ReadBuffers* buffers, absl::Span<RawColumn> row) const = 0;
  // Sample i is read soon: a reader of large samples lets the system fetch it from the disk.
  virtual void ReadAhead(int64_t /*i*/) const {}
  // "data_batch_1.bin, record 17", for the errors of what is done with the sample later.
  virtual std::string Where(int64_t i) const = 0;

 protected:
  std::vector<Column> columns_;
  int64_t size_ = 0;
  std::vector<std::string> notices_;
};

}  // namespace mslua::data
