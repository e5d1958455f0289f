// A dataset that another one is made of, opened: its samples by number, the same in every epoch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/data/pipeline.h"
#include "core/data/reader.h"

namespace mslua::data {

class Part {
 public:
  static StatusOr<std::unique_ptr<Part>> Open(const Dataset& dataset, const char* part_of);

  const Pipeline& pipeline() const { return *pipeline_; }
  int64_t size() const { return pipeline_->size(); }
  // Names with the types of single samples.
  const std::vector<Column>& columns() const { return columns_; }
  // Sample i; `scratch` belongs to this part and one thread.
  Status Read(int64_t i, Pipeline::Scratch* scratch, absl::Span<RawColumn> row) const {
    return pipeline_->ReadRow(epoch_, i, scratch, row);
  }
  std::string Where(int64_t i) const { return pipeline_->WhereRow(epoch_, i); }

 private:
  std::shared_ptr<const Pipeline> pipeline_;
  Pipeline::Epoch epoch_;
  std::vector<Column> columns_;
};

// The working memory of one thread for n parts, kept in the buffers.
std::vector<std::unique_ptr<Pipeline::Scratch>>& PartMemory(size_t n, ReadBuffers* buffers);

}  // namespace mslua::data
