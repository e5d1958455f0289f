#include "core/data/part.h"

#include <utility>

namespace mslua::data {

StatusOr<std::unique_ptr<Part>> Part::Open(const Dataset& dataset, const char* part_of) {
  auto part = std::make_unique<Part>();
  FeedOptions options;
  options.part_of = part_of;
  ASSIGN_OR_RETURN(part->pipeline_, Pipeline::Open(dataset, options));
  part->pipeline_->MakeEpoch(0, &part->epoch_);
  for (size_t k = 0; k < part->pipeline_->schema().size(); ++k) {
    part->columns_.push_back({part->pipeline_->schema()[k].name, part->pipeline_->row_types()[k]});
  }
  return StatusOr<std::unique_ptr<Part>>(std::move(part));
}

std::vector<std::unique_ptr<Pipeline::Scratch>>& PartMemory(size_t n, ReadBuffers* buffers) {
  using Memory = std::vector<std::unique_ptr<Pipeline::Scratch>>;
  if (buffers->pipeline == nullptr) {
    auto memory = std::make_shared<Memory>();
    for (size_t p = 0; p < n; ++p) memory->push_back(std::make_unique<Pipeline::Scratch>(buffers->code));
    buffers->pipeline = std::move(memory);
  }
  return *static_cast<Memory*>(buffers->pipeline.get());
}

}  // namespace mslua::data
